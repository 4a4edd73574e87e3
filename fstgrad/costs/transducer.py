"""A transducer as arrays, which scores the alignments of many pairs of strings.

- `PairTransducer` : its arcs, and sums and maxima over alignments.
- `pair_transducer`, `loss_of` : the transducer of an FST, a loss or a grammar.
- `silent_arcs` : the arcs that neither read nor write, with the sums over their cycles.
"""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from fstgrad.core import checks
from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, index_array, instance, positive_integer
from fstgrad.core.errors import (
    FstError,
    InvalidInputError,
    MemoryLimitError,
    NotSupportedError,
)
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.costs import kernels
from fstgrad.costs.kernels.arrays import AlignmentArcs, SilentArcs
from fstgrad.costs.pairs import Pairs, check_labels, masses
from fstgrad.losses import Loss, TransducerLoss
from fstgrad.losses.pairwise import ALIGNMENT_MEMORY, ArcCosts, negative_cycle
from fstgrad.losses.transducers.rules import CONTINUED, NO_RULE, RuleTransducer
from fstgrad.openfst import Fst, FstArrays, compose, connect, from_arrays, to_arrays


@dataclass(frozen=True)
class PairTransducer:
    """A transducer whose arcs are sorted by the labels that they read and write.

    An event is an arc, 0 .. A - 1, or the end of a path in state s, A + s.  A silent arc neither
    reads nor writes.

    Attributes
    ----------
    alphabet : Alphabet of n symbols, on both sides.
    start : int, the start state.
    ilabel, olabel, source, nextstate : (A,) int64; label 0 is epsilon, label i + 1 is symbol i.
    rule : (A,) int64, the index in `rules` of the rule that an arc begins; -2 for the next arcs of
        a rule, -1 for other arcs.
    cost : (A + S,) float64, the costs of the events in nats; +inf if the event is impossible.
    rules : tuple of str, the names of rules.
    """

    alphabet: Alphabet
    start: int
    ilabel: IntArray
    olabel: IntArray
    source: IntArray
    nextstate: IntArray
    rule: IntArray
    cost: FloatArray
    rules: tuple[str, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the arrays that the kernels read; raise InvalidInputError."""
        instance("alphabet", self.alphabet, Alphabet, "an Alphabet")
        object.__setattr__(self, "cost", checks.cost_array("cost", self.cost, (None,)))
        object.__setattr__(self, "rules", tuple(items("rules", self.rules)))
        arcs, n = len(index_array("source", self.source, 2**31, (None,))), len(self.alphabet)
        states = len(self.cost) - arcs
        for name, size, lower in (
            ("ilabel", n + 1, 0), ("olabel", n + 1, 0), ("source", states, 0),
            ("nextstate", states, 0), ("rule", len(self.rules), CONTINUED),
        ):  # fmt: skip
            labels = index_array(name, getattr(self, name), size, (arcs,), lower=lower)
            object.__setattr__(self, name, labels)
        object.__setattr__(self, "start", positive_integer("start", self.start, minimum=0))
        if self.start >= states:
            raise InvalidInputError(f"start is {self.start}; states run from 0 to {states - 1}")
        if (np.diff(self.ilabel * (n + 1) + self.olabel) < 0).any():
            raise InvalidInputError("arcs must be sorted by ilabel, then by olabel; use from_fst")

    @classmethod
    def from_fst(cls, fst: FstArrays | RuleTransducer, alphabet: Alphabet) -> "PairTransducer":
        """Return the transducer of an FST with the labels of `alphabet`.

        States that are on no path are left out.

        Raises
        ------
        FstError
            The FST has no path.
        """
        is_right = (FstArrays, RuleTransducer)
        instance("fst", fst, is_right, "an FstArrays, as openfst.to_arrays returns it")
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        if isinstance(fst, FstArrays):
            fst = RuleTransducer(fst, alphabet, (), np.full(fst.num_arcs, NO_RULE))
        on_paths = RuleTransducer.split(
            to_arrays(connect(from_arrays(fst.coded))), alphabet, fst.names
        )
        trimmed = on_paths.fst
        if trimmed.start < 0:
            raise FstError("the transducer has no path; it accepts no pair of strings")
        order = np.lexsort((trimmed.source, trimmed.olabel, trimmed.ilabel))
        return cls(
            alphabet,
            trimmed.start,
            trimmed.ilabel[order],
            trimmed.olabel[order],
            trimmed.source[order],
            trimmed.nextstate[order],
            on_paths.rule[order],
            np.concatenate([trimmed.weight[order], trimmed.final]),
            fst.names,
        )

    @property
    def num_arcs(self) -> int:
        """Number of arcs A."""
        return len(self.source)

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return len(self.cost) - self.num_arcs

    def log_sums(self, pairs: Pairs, weight: FloatArray) -> FloatArray:
        """Return the log-sum (N,) of each pair's alignments under log-weights (A + S,) of events.

        It is -inf for a pair without an alignment; a weight of -inf forbids an event.

        Raises
        ------
        FstError
            The weights of a silent cycle do not converge.
        MemoryLimitError
            The tables of the longest strings would need more than 4 GiB.
        InvalidInputError
            `weight` has NaN or +inf or another shape, or a label of `pairs` is not in 1 .. n.
        """
        weight = self._checked(pairs, weight, tables=1)
        silent = self._silent_arcs(self._arcs, weight)
        result: FloatArray = kernels.alignments.log_sums(
            pairs.labels, self._arcs, silent, weight, self.start
        )
        return result

    def expected_counts(
        self, pairs: Pairs, weight: FloatArray, mass: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the log-sums (N,), and the gradient (A + S,) of mass . log-sums.

        The gradient with respect to the log-weights is the expected counts of the events.  `mass`
        (N,) is that of the pairs if left out.  Errors are those of `log_sums`.
        """
        weight, mass = self._checked(pairs, weight, tables=2), masses(pairs, mass)
        result: tuple[FloatArray, FloatArray] = kernels.alignments.expected_counts(
            pairs.labels,
            self._arcs,
            self._silent_arcs(self._arcs, weight),
            self._reversed,
            self._silent_arcs(self._reversed, weight),
            weight,
            self.start,
            mass,
        )
        return result

    def best_counts(
        self, pairs: Pairs, weight: FloatArray, mass: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the largest log-weight (N,) of an alignment of each pair, and counts (A + S,).

        The counts are the numbers of times that these alignments use each event, times `mass` (N,).
        A pair without an alignment has weight -inf.

        Raises
        ------
        FstError
            Silent arcs form a cycle of negative cost.
        MemoryLimitError, InvalidInputError
            As in `log_sums`.
        """
        weight, mass = self._checked(pairs, weight, tables=2), masses(pairs, mass)
        value, counts = kernels.alignments.best_counts(
            pairs.labels, self._arcs, weight, self.start, mass
        )
        if np.isnan(value).any():
            raise negative_cycle()
        return value, counts

    def best_path(
        self, x: SequenceLike, y: SequenceLike, weight: FloatArray
    ) -> tuple[IntArray, float]:
        """Return the events of the best alignment of a pair, and its log-weight.

        Without an alignment there are no events, and the weight is -inf.  Errors are those of
        `best_counts`.
        """
        ids = self.alphabet.encode(x, name="x"), self.alphabet.encode(y, name="y")
        weight = self._checked(Pairs.encode(self.alphabet, [ids]), weight, tables=0)
        arcs = ArcCosts.of(self._fst(-weight, slice(None)), len(self.alphabet))
        cost, path = arcs.best_path(*ids)
        if cost == np.inf:
            return np.zeros(0, dtype=np.int64), -np.inf
        path = np.argsort(self.source, kind="stable")[path]  # FstArrays sorts arcs by source
        end = self.nextstate[path[-1]] if len(path) else self.start
        return np.append(path, self.num_arcs + end), -cost

    def best_sums(self, x: SequenceLike, y: SequenceLike, weight: FloatArray) -> FloatArray:
        """Return the largest log-weight (|x| + 1, |y| + 1, S) of a path from the start to nodes."""
        ids = self.alphabet.encode(x, name="x"), self.alphabet.encode(y, name="y")
        pair = Pairs.encode(self.alphabet, [ids])
        weight = self._checked(pair, weight, tables=2)
        table, value = kernels.alignments.best_sums(pair.labels, self._arcs, weight, self.start)
        if np.isnan(value):
            raise negative_cycle()
        return np.asarray(table)

    def to_fst(self, cost: FloatArray) -> FstArrays:
        """Return the transducer with other costs (A + S,) of events, in nats; +inf drops an arc."""
        return self.to_rules(cost).fst

    def to_rules(self, cost: FloatArray) -> RuleTransducer:
        """Return what `to_fst` returns, with the rules of its arcs."""
        cost = checks.cost_array("cost", cost, (len(self.cost),))
        arcs = np.flatnonzero(np.isfinite(cost[: self.num_arcs]))
        arcs = arcs[np.argsort(self.source[arcs], kind="stable")]  # the order of FstArrays
        return RuleTransducer(self._fst(cost, arcs), self.alphabet, self.rules, self.rule[arcs])

    def _fst(self, cost: FloatArray, arcs: IntArray | slice) -> FstArrays:
        return FstArrays(
            "log64",
            self.start,
            cost[self.num_arcs :],
            self.source[arcs],
            self.ilabel[arcs],
            self.olabel[arcs],
            self.nextstate[arcs],
            cost[: self.num_arcs][arcs],
        )

    @cached_property
    def pairs_of_rules(self) -> IntArray:
        """The number of different pairs of labels of the first arcs of each rule."""
        first = np.column_stack([self.rule, self.ilabel, self.olabel])[self.rule >= 0]
        return np.bincount(np.unique(first, axis=0)[:, 0], minlength=len(self.rules))

    @cached_property
    def arcs_into(self) -> dict[tuple[int, int, int], list[int]]:
        """The indices of the arcs by (nextstate, ilabel, olabel)."""
        arcs: dict[tuple[int, int, int], list[int]] = {}
        keys = zip(self.nextstate.tolist(), self.ilabel.tolist(), self.olabel.tolist(), strict=True)
        for arc, key in enumerate(keys):
            arcs.setdefault(key, []).append(arc)
        return arcs

    def _checked(self, pairs: Pairs, weight: FloatArray, tables: int) -> FloatArray:
        """Return the weights (A + S,) after checks; raise if the tables would be too large."""
        instance("pairs", pairs, Pairs, "Pairs, as Pairs.encode makes them")
        array = checks.float_array("weight", weight, (len(self.cost),))
        if not (array < np.inf).all():  # also rejects NaN
            raise InvalidInputError("weight has NaN or inf; give log-weights, -inf forbids")
        check_labels(pairs, self.alphabet)
        x, y = (int(np.diff(f).max(initial=0)) + 1 for f in (pairs.x_first, pairs.y_first))
        nbytes = 8 * tables * x * y * self.num_states
        if nbytes > ALIGNMENT_MEMORY:
            raise MemoryLimitError(
                f"aligning {x - 1:,} with {y - 1:,} symbols through {self.num_states:,} states "
                f"needs {nbytes:,} bytes, more than {ALIGNMENT_MEMORY:,}; give shorter strings"
            )
        return checks.writable(array)

    @cached_property
    def _arcs(self) -> AlignmentArcs:
        """The `arcs` of the kernels."""
        width = len(self.alphabet) + 1
        key_of = self.ilabel * width + self.olabel
        keys, first = np.unique(key_of, return_index=True)
        first = np.append(first, [self.num_arcs, self.num_arcs]).astype(np.int64)
        return AlignmentArcs(width, keys, first, key_of, self.source, self.nextstate)

    @cached_property
    def _reversed(self) -> AlignmentArcs:
        return self._arcs._replace(source=self.nextstate, nextstate=self.source)

    def _silent_arcs(self, arcs: AlignmentArcs, weight: FloatArray) -> SilentArcs:
        """Return `silent` of the kernels: the arcs that neither read nor write."""
        count = int(np.searchsorted(arcs.key_of, 0, side="right"))
        return silent_arcs(
            arcs.source[:count], arcs.nextstate[:count], weight[:count], self.num_states
        )


@runtime_checkable
class HasLoss(Protocol):
    """An object with a loss over an alphabet, such as a grammar."""

    def loss(self, alphabet: Alphabet | None = None) -> TransducerLoss:
        """Return the loss over `alphabet`, or over the object's own alphabet if left out."""


TransducerSource: TypeAlias = TransducerLoss | HasLoss | Fst


def loss_of(source: TransducerSource, alphabet: Alphabet | None = None) -> TransducerLoss:
    """Return the loss of a source: a transducer, a grammar or a loss.

    Raises
    ------
    InvalidInputError
        `source` is none of these, it is a transducer without symbols and `alphabet` is left out, or
        `alphabet` is not that of the loss.
    """
    if alphabet is not None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
    if isinstance(source, Fst):
        table = to_arrays(source).input_symbols or ()
        of_table = alphabet or Alphabet(symbol for label, symbol in table if label != 0)
        return TransducerLoss(source, of_table)
    if isinstance(source, TransducerLoss):
        if alphabet is not None and alphabet != source.alphabet:
            raise InvalidInputError(
                f"alphabet is {alphabet!r}, but the loss has {source.alphabet!r}; leave it out"
            )
        return source
    if isinstance(source, HasLoss) and not isinstance(source, Loss):  # a wrapper holds its loss
        loss = source.loss(alphabet)
        if isinstance(loss, TransducerLoss):  # a loss automaton has a method of this name, too
            return loss
    raise InvalidInputError(
        f"source is a {type(source).__name__}; give a pynini.Fst, a TransducerLoss or a grammar"
    )


def pair_transducer(source: TransducerSource, alphabet: Alphabet | None = None) -> PairTransducer:
    """Return the transducer of a source: a transducer, a grammar or a loss.

    Raises
    ------
    NotSupportedError
        The loss has log=False or smoothing > 0.
    InvalidInputError
        As for `loss_of`.
    FstError
        The transducer has no path.
    """
    loss = loss_of(source, alphabet)
    if not loss.log or loss.smoothing:
        raise NotSupportedError(
            "the loss is not a cost of its transducer; give a loss with log=True and smoothing=0"
        )
    fst = loss.rule_transducer or to_arrays(reduce(compose, loss.factors))
    return PairTransducer.from_fst(fst, loss.alphabet)


def silent_arcs(
    source: IntArray, nextstate: IntArray, weight: FloatArray, states: int
) -> SilentArcs:
    """Return `silent` of the kernels: components in topological order, stars, arcs that leave.

    A path of silent arcs runs through the components in this order.  Inside a component it may use
    cycles any number of times, which `_star` sums up in closed form.

    Raises
    ------
    FstError
        The weights of a cycle do not converge.
    """
    number, order = _components(source, nextstate, states)
    members: list[int] = []
    member_first, star_first, push_first = [0], [0], [0]
    stars, push = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for component in order:
        states_inside = np.flatnonzero(number == component)
        inside = (number[source] == component) & (number[nextstate] == component)
        leaving = np.flatnonzero((number[source] == component) & ~inside)
        stars.append(
            _star(
                np.searchsorted(states_inside, source[inside]),
                np.searchsorted(states_inside, nextstate[inside]),
                weight[inside],
                len(states_inside),
            ).ravel()
        )
        members += states_inside.tolist()
        push.append(leaving)
        member_first.append(len(members))
        star_first.append(star_first[-1] + len(states_inside) ** 2)
        push_first.append(push_first[-1] + len(leaving))
    firsts = (np.array(first, dtype=np.int64) for first in (member_first, star_first, push_first))
    first_member, first_star, first_push = firsts
    return SilentArcs(
        first_member,
        np.array(members, dtype=np.int64),
        first_star,
        first_push,
        np.concatenate(push),
        np.concatenate(stars),
    )


def _components(source: IntArray, nextstate: IntArray, states: int) -> tuple[IntArray, list[int]]:
    """Return the component of each state, and the components with arcs in topological order."""
    if not len(source):
        return np.zeros(0, dtype=np.int64), []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(source)), (source, nextstate)), shape=(states, states))
    _, labels = connected_components(graph, connection="strong")
    number: IntArray = np.asarray(labels, dtype=np.int64)
    before: dict[int, set[int]] = {int(c): set() for c in number[np.append(source, nextstate)]}
    for a, b in zip(number[source].tolist(), number[nextstate].tolist(), strict=True):
        if a != b:
            before[b].add(a)
    order: list[int] = []
    while before:
        free = sorted(c for c, others in before.items() if not others & before.keys())
        order += free
        for c in free:
            del before[c]
    return number, order


def _star(source: IntArray, nextstate: IntArray, weight: FloatArray, size: int) -> FloatArray:
    """Return the log-sums (size, size) of all paths inside, the empty ones too (Lehmann 1977).

    For each k: s_ij <- log(exp s_ij + exp(s_ik + s_kj) / (1 - exp s_kk)).  Then empty paths are
    added.  Raises FstError if s_kk >= 0.
    """
    sums = np.full((size, size), -np.inf)
    np.logaddexp.at(sums, (source, nextstate), weight)
    for k in range(size):
        loop = sums[k, k]
        if loop >= 0:
            raise FstError(
                "the transducer has a cycle of arcs that neither read nor write, of weight "
                f"{np.exp(loop):g} >= 1, so that the sum over its paths diverges; give these arcs "
                "a higher cost"
            )
        star = -np.log1p(-np.exp(loop))
        sums = np.logaddexp(sums, sums[:, k : k + 1] + star + sums[k : k + 1])
    diagonal = np.arange(size)
    sums[diagonal, diagonal] = np.logaddexp(sums[diagonal, diagonal], 0.0)
    return sums
