"""Explain the cost of a pair by its cheapest alignments, with rules and costs."""

import heapq
import html
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import BoolArray, FloatArray, IntArray, instance, positive_integer
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.costs.parameter_tying import END, edit_kind
from fstgrad.costs.transducer import PairTransducer, TransducerSource, pair_transducer
from fstgrad.losses.transducers.rules import CONTINUED, NO_RULE

_GAP = "·"
_MOST_PATHS = 2_000  # searched for distinct alignments
_SAME = 1e-9


class Operation(NamedTuple):
    """One step of an alignment.

    Attributes
    ----------
    read, written : tuple of str, symbols of the hypothesis and of the target.
    name : str, the rule, or copy, substitute, delete, insert, silent, (end).
    cost : float, in nats.
    events : tuple of int, the events of the transducer.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    name: str
    cost: float
    events: tuple[int, ...]


@dataclass(frozen=True)
class Alignment:
    """One alignment of the hypothesis with the target.

    Attributes
    ----------
    operations : tuple of Operation.
    cost : float, the sum of their costs, in nats.
    """

    operations: tuple[Operation, ...]
    cost: float

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Raise InvalidInputError unless the operations are Operations."""
        for step in items("operations", self.operations):
            instance("one of operations", step, Operation, "an Operation")

    @property
    def key(self) -> tuple[object, ...]:
        """A key of the alignment that ignores the order within runs of deletions and insertions."""
        key: list[object] = []
        run: list[tuple[object, ...]] = []
        for operation in self.operations:
            shown = (operation.read, operation.written, operation.name, operation.cost)
            if bool(operation.read) == bool(operation.written):
                key += [*sorted(run, key=repr), shown]
                run = []
            else:
                run.append(shown)
        return (*key, *sorted(run, key=repr))

    def lines(self, mark: str = "") -> tuple[str, str]:
        """Return the aligned strings as two lines; `·` is a gap, and `mark` separates symbols."""
        instance("mark", mark, str, "text")
        cells = [
            (mark.join(step.read) or _GAP, mark.join(step.written) or _GAP)
            for step in self.operations
            if step.read or step.written
        ]
        widths = [max(len(a), len(b)) for a, b in cells]
        above = " ".join(a.ljust(w) for (a, _), w in zip(cells, widths, strict=True))
        below = " ".join(b.ljust(w) for (_, b), w in zip(cells, widths, strict=True))
        return above.rstrip(), below.rstrip()


@dataclass(frozen=True)
class Explanation:
    """The cheapest alignments of a pair, and the cost of the pair without each operation.

    Attributes
    ----------
    cost : float, the cost of the pair in nats; inf if there is no alignment.
    alignments : tuple of Alignment, the cheapest first.
    without : tuple of (Operation, float)
        For each operation of the first alignment with a cost, the cost of the pair in nats if the
        operation were not allowed.  The end of a path is left out.
    alphabet : Alphabet
    """

    cost: float
    alignments: tuple[Alignment, ...]
    without: tuple[tuple[Operation, float], ...]
    alphabet: Alphabet

    __repr__ = short_repr

    @property
    def is_ambiguous(self) -> bool:
        """Whether several alignments are cheapest."""
        return len(self.alignments) > 1 and self.alignments[1].cost - self.cost <= _SAME

    def __str__(self) -> str:
        if not self.alignments:
            return "inf: no alignment; the grammar has no way from one to the other"
        text = "\n".join(itertools.chain(*(self._lines_of(a) for a in self.alignments)))
        changes = [
            f"  without {_operation_text(step, self._separator)}: "
            + (f"{cost:g}" if np.isfinite(cost) else "no alignment")
            for step, cost in self.without
        ]
        return "\n".join([text, *(["what would change it", *changes] if changes else [])])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    @cached_property
    def _separator(self) -> str:
        return "" if self.alphabet.is_characters else " "

    def _lines_of(self, alignment: Alignment) -> Iterator[str]:
        above, below = alignment.lines(self._separator)
        indent = " " * len(f"{alignment.cost:g}")
        yield f"{alignment.cost:g}  {above}"
        yield f"{indent}  {below}"
        for step in alignment.operations:
            if step.cost:
                yield f"{indent}    {step.cost:g}  {_operation_text(step, self._separator)}"


def explain(source: TransducerSource, x: SequenceLike, y: SequenceLike, k: int = 3) -> Explanation:
    """Return the k cheapest alignments of a hypothesis with a target, and the effect of each edit.

    Parameters
    ----------
    source : pynini.Fst, TransducerLoss or grammar
    x, y : sequences of symbols, the hypothesis and the target.
    k : int
        The largest number of alignments, of those among the 2,000 cheapest paths.  Alignments that
        differ only in the order of consecutive deletions and insertions count as one.

    Raises
    ------
    InvalidInputError, AlphabetError
        `k` is below 1, or a symbol is not in the alphabet.
    NotSupportedError, FstError
        See `pair_transducer`; the transducer has a silent cycle of negative cost.
    MemoryLimitError
        The tables of the pair would need more than 4 GiB.

    Examples
    --------
    >>> import fstgrad as fg
    >>> print(explain(fg.EditDistance(fg.Alphabet("acht")), "cht", "cat", k=1))
    1  c h t
       c a t
         1  substitute h -> a
    what would change it
      without substitute h -> a: 2
    """
    return explain_pair(pair_transducer(source), x, y, k)


def explain_pair(
    transducer: PairTransducer, x: SequenceLike, y: SequenceLike, k: int = 3
) -> Explanation:
    """Return the explanation of a pair by a transducer, as `explain` does."""
    k = positive_integer("k", k)
    x = transducer.alphabet.encode(x, name="x")
    y = transducer.alphabet.encode(y, name="y")
    by_key: dict[tuple[object, ...], Alignment] = {}
    for events in itertools.islice(_cheapest_paths(transducer, x, y), _MOST_PATHS):
        alignment = _alignment(transducer, events)
        by_key.setdefault(alignment.key, alignment)
        if len(by_key) == k:
            break
    alignments = tuple(by_key.values())
    if not alignments:
        return Explanation(np.inf, (), (), transducer.alphabet)
    without, seen = [], set()
    for step in alignments[0].operations:
        if step.cost and (key := step[:4]) not in seen and step.events[0] < transducer.num_arcs:
            seen.add(key)
            weight = np.where(_events_like(transducer, step), -np.inf, -transducer.cost)
            without.append((step, -transducer.best_path(x, y, weight)[1]))
    return Explanation(alignments[0].cost, alignments, tuple(without), transducer.alphabet)


class _PathSuffix(NamedTuple):
    """The end of a path, from a node on; sorted by the cost of the whole path, newest first."""

    least_cost: float
    newest: int
    node: tuple[int, int, int]
    cost: float
    path: tuple[object, ...]
    silent: tuple[int, ...]


def _cheapest_paths(
    transducer: PairTransducer, x: SequenceLike, y: SequenceLike
) -> Iterator[IntArray]:
    """Yield the events of the alignments of a pair, the cheapest first.

    Paths grow backwards from the end, ordered by their cost so far plus the least cost from the
    start to their node (A* with an exact bound).  No path repeats a silent cycle.
    """
    ids = [transducer.alphabet.encode(side) + 1 for side in (x, y)]
    cost_before: FloatArray = -transducer.best_sums(x, y, -transducer.cost)
    number = itertools.count(0, -1)
    heap: list[_PathSuffix] = []

    def push(
        node: tuple[int, int, int], cost: float, path: tuple[object, ...], silent: tuple[int, ...]
    ) -> None:
        least_cost = cost + float(cost_before[node])
        if np.isfinite(least_cost):
            # rounded, so that paths of equal cost are completed one after the other
            heapq.heappush(
                heap, _PathSuffix(round(least_cost, 9), next(number), node, cost, path, silent)
            )

    for state in range(transducer.num_states):
        event = transducer.num_arcs + state
        push(
            (len(ids[0]), len(ids[1]), state), float(transducer.cost[event]), (event, ()), (state,)
        )
    while heap:
        _, _, (i, j, state), cost, path, silent = heapq.heappop(heap)
        if (i, j, state) == (0, 0, transducer.start):
            yield np.array(_events_of(path), dtype=np.int64)
        for p, q in ((i - 1, j - 1), (i - 1, j), (i, j - 1), (i, j)):
            if p < 0 or q < 0:
                continue
            key = (state, int(ids[0][p]) if p < i else 0, int(ids[1][q]) if q < j else 0)
            for arc in transducer.arcs_into.get(key, ()):
                source = int(transducer.source[arc])
                stays = (p, q) == (i, j)
                if stays and source in silent:
                    continue
                visited = (*silent, source) if stays else (source,)
                push((p, q, source), cost + float(transducer.cost[arc]), (arc, path), visited)


def _events_of(path: tuple[object, ...]) -> list[int]:
    events = []
    while path:
        event, path = path  # type: ignore[assignment]
        events.append(event)
    return events  # type: ignore[return-value]


def _alignment(transducer: PairTransducer, events: IntArray) -> Alignment:
    """Return the operations of a path: one for each arc, or one for all arcs of a rule."""
    rule = np.append(transducer.rule, np.full(transducer.num_states, NO_RULE))[events]
    first = np.flatnonzero(rule != CONTINUED)
    operations = []
    for k, step_events in zip(rule[first], np.split(events, first[1:]), strict=True):
        read, written = _symbols_of(transducer, step_events)
        cost = float(transducer.cost[step_events].sum())
        name = transducer.rules[k] if k >= 0 else edit_kind("".join(read), "".join(written))
        if step_events[0] >= transducer.num_arcs:
            name = END
        if read or written or cost:
            operations.append(Operation(read, written, name, cost, tuple(step_events.tolist())))
    return Alignment(tuple(operations), float(transducer.cost[events].sum()))


def _symbols_of(
    transducer: PairTransducer, events: IntArray
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    arcs = events[events < transducer.num_arcs]
    symbols = transducer.alphabet.symbols
    sides = (transducer.ilabel[arcs], transducer.olabel[arcs])
    read, written = (tuple(symbols[label - 1] for label in side if label) for side in sides)
    return read, written


def _events_like(transducer: PairTransducer, step: Operation) -> BoolArray:
    """Return a mask (A + S,) of the events with the rule or the edit of a step."""
    alike = np.zeros(len(transducer.cost), dtype=bool)
    first = step.events[0]
    if transducer.rule[first] >= 0:
        alike[: transducer.num_arcs] = transducer.rule == transducer.rule[first]
    else:
        alike[: transducer.num_arcs] = (
            (transducer.ilabel == transducer.ilabel[first])
            & (transducer.olabel == transducer.olabel[first])
            & (transducer.rule == NO_RULE)
            & (transducer.cost[: transducer.num_arcs] == transducer.cost[first])
        )
    return alike


def _operation_text(step: Operation, mark: str) -> str:
    """Return an operation as text: the rule, or the edit with its symbols."""
    read, written = mark.join(step.read), mark.join(step.written)
    if step.name in ("substitute", "copy"):
        return f"{step.name} {read} -> {written}"
    if step.name in ("delete", "insert"):
        return f"{step.name} {read or written}"
    return step.name
