"""Build lattices from arcs, FSTs, text, n-best lists and confusion networks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.axis_labels import check_same_rows
from fstgrad.core.checks import BoolArray, FloatArray, IntArray, index_array, instance, log_weights
from fstgrad.core.errors import FstError, InfeasibleError, InvalidInputError
from fstgrad.core.sequences import batch, check_container, items, members
from fstgrad.core.uninitialized import empty
from fstgrad.io import listed
from fstgrad.openfst import (
    Fst,
    FstArrays,
    Symbols,
    acceptor_over,
    is_acyclic,
    parse_lattices,
    read,
    to_arrays,
)
from fstgrad.strings.lattices.graph import NO_SYMBOL, Graph

_LARGEST_STATE = 2**31


class ScoredArcs(NamedTuple):
    """Arcs in any order: four arrays (A,).

    source, nextstate : int64, states; label : int64, ids of symbols or -1 for epsilon
    scores : float64, log-weights in nats
    """

    source: IntArray
    nextstate: IntArray
    label: IntArray
    scores: FloatArray

    @classmethod
    def checked(
        cls,
        source: npt.ArrayLike,
        nextstate: npt.ArrayLike,
        label: npt.ArrayLike,
        scores: npt.ArrayLike,
        num_symbols: int,
    ) -> "ScoredArcs":
        """Return arcs from arrays of one length; InvalidInputError if a value is out of range."""
        first = index_array("source", source, _LARGEST_STATE, (None,))
        shape = first.shape
        return cls(
            first,
            index_array("nextstate", nextstate, _LARGEST_STATE, shape),
            index_array("label", label, num_symbols, shape, lower=NO_SYMBOL),
            log_weights("scores", scores, shape),
        )


Parts = tuple[Graph, IntArray, FloatArray, IntArray, BoolArray]


def ordered(arcs: ScoredArcs, start: int, final: Mapping[int, float]) -> Parts:
    """Return graph, labels, scores, origins and ends of a lattice; O(A log A).

    States on no path are removed; the others are numbered in topological order.  The graph has one
    end: if there are several final states, or one with a score or outgoing arcs, an epsilon arc
    with its score leads from each to a new state.

    Raises
    ------
    InfeasibleError
        No path leads from the start to a final state.
    InvalidInputError
        The arcs have a cycle, or a state or a final score is out of range.
    """
    for state in (start, *final):
        index_array("a final state or the start", state, _LARGEST_STATE, ())
    states, ends_of = np.unique(np.concatenate([arcs.source, arcs.nextstate]), return_inverse=True)
    known = {int(state): i for i, state in enumerate(states.tolist())}
    source, nextstate = ends_of[: len(arcs.source)], ends_of[len(arcs.source) :]
    for state in (start, *final):
        known.setdefault(int(state), len(known))
    numbers = [known[int(state)] for state in final]
    of_final = log_weights("final", [float(score) for score in final.values()])
    stops = dict(zip(numbers, of_final.tolist(), strict=True))
    num = len(known)
    names = empty(num, dtype=np.int64)
    names[list(known.values())] = list(known)
    only = next(iter(stops)) if len(stops) == 1 else -1
    origin = np.arange(len(source))
    label, scores = arcs.label, arcs.scores
    ends = np.zeros(len(source), dtype=bool)
    if only < 0 or stops[only] != 0.0 or (source == only).any():
        extra = np.array(list(stops), dtype=np.int64)
        source = np.concatenate([source, extra])
        nextstate = np.concatenate([nextstate, np.full(len(extra), num)])
        label = np.concatenate([label, np.full(len(extra), NO_SYMBOL)])
        scores = np.concatenate([scores, np.array(list(stops.values()), dtype=np.float64)])
        origin = np.concatenate([origin, names[extra]])
        ends = np.concatenate([ends, np.ones(len(extra), dtype=bool)])
        only, num = num, num + 1
    rank = _topological_rank(source, nextstate, num, known[int(start)], only)
    kept = np.flatnonzero((rank[source] >= 0) & (rank[nextstate] >= 0))
    order = kept[np.lexsort((kept, rank[nextstate[kept]], rank[source[kept]]))]
    graph = Graph(rank[source[order]], rank[nextstate[order]], int(rank.max()) + 1)
    return graph, label[order].astype(np.int64), scores[order], origin[order], ends[order]


def _topological_rank(
    source: IntArray, nextstate: IntArray, num: int, start: int, end: int
) -> IntArray:
    """Return the topological number (num,) of each state; -1 if it is on no path."""
    useful = reached(source, nextstate, num, start) & reached(nextstate, source, num, end)
    if not (useful[start] and useful[end]):
        raise InfeasibleError(
            "no path leads from the start to a final state: the lattice is empty; "
            "check start, final and the arcs"
        )
    alive = useful[source] & useful[nextstate]
    source, nextstate = source[alive], nextstate[alive]
    order = np.argsort(source, kind="stable")
    bounds = np.searchsorted(source[order], np.arange(num + 1))
    indegree = np.bincount(nextstate, minlength=num)
    rank = np.full(num, -1, dtype=np.int64)
    front, count = np.array([start]), 0
    if indegree[start]:
        raise _cycle()
    while len(front):
        rank[front] = np.arange(count, count + len(front))
        count += len(front)
        arcs = order[_ranges(bounds[front], bounds[front + 1])]
        left, taken = np.unique(nextstate[arcs], return_counts=True)
        indegree[left] -= taken
        front = left[indegree[left] == 0]
    if count < useful.sum():
        raise _cycle()
    return rank


def reached(source: IntArray, nextstate: IntArray, num: int, start: int) -> BoolArray:
    """Return (num,) bool: which states can be reached from `start`."""
    order = np.argsort(source, kind="stable")
    bounds = np.searchsorted(source[order], np.arange(num + 1))
    found = np.zeros(num, dtype=bool)
    front = np.array([start])
    while len(front):
        found[front] = True
        ahead = np.unique(nextstate[order[_ranges(bounds[front], bounds[front + 1])]])
        front = ahead[~found[ahead]]
    return found


def _ranges(begin: IntArray, end: IntArray) -> IntArray:
    """Return begin[0] .. end[0] - 1, begin[1] .. end[1] - 1, ... as one array."""
    sizes = end - begin
    within: IntArray = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranges: IntArray = np.repeat(begin, sizes) + within
    return ranges


def _cycle() -> InvalidInputError:
    return InvalidInputError(
        "the arcs have a cycle, so that paths do not end; a lattice is acyclic"
    )


def scored_states(final: Mapping[int, float] | Iterable[int]) -> dict[int, float]:
    """Return final states and their scores in nats; 0 for states without a score."""
    if isinstance(final, Mapping):
        return dict(final)
    states = members("final", final)
    for state in states:
        index_array("final", state, _LARGEST_STATE, ())
    return dict.fromkeys(map(int, states), 0.0)


def arcs_of_fst(fst: Fst, alphabet: Alphabet) -> tuple[ScoredArcs, int, dict[int, float]]:
    """Return arcs, start and final scores of an acyclic acceptor; scores are minus the weights.

    Raises
    ------
    FstError, InfeasibleError, AlphabetError
        The FST is no acceptor or cyclic; it is empty; a label is not in the alphabet.
    """
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    given = to_arrays(fst)  # checks states first: OpenFst does not
    if not is_acyclic(read(fst)):
        raise FstError("fst is cyclic; a lattice has finitely many paths")
    arrays = acceptor_over(given, alphabet, "fst")
    if arrays.start < 0:
        raise InfeasibleError("fst is empty: it has no start state")
    stops = np.flatnonzero(arrays.final < np.inf)
    final = {int(state): -float(arrays.final[state]) for state in stops}
    scores = log_weights("scores", -arrays.weight)
    return (
        ScoredArcs(arrays.source, arrays.nextstate, arrays.ilabel - 1, scores),
        arrays.start,
        final,
    )


def arcs_of_text(
    text: str, alphabet: Alphabet, symbols: Symbols | None
) -> tuple[ScoredArcs, int, dict[int, float]]:
    """Return arcs, start and final scores of a lattice in text; see `Lattice.from_text`."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    lattices = parse_lattices(text, "text", symbols, known=alphabet)
    if len(lattices) > 1:
        raise FstError(
            f"text has {len(lattices)} lattices ({listed(lattices)}); give one, or read a file "
            "with fstgrad.openfst.read_collection"
        )
    (arcs,) = lattices.values()
    names = dict(arcs.symbols)
    labels, first, which = np.unique(arcs.ilabel, return_index=True, return_inverse=True)
    ids = np.full(len(labels), NO_SYMBOL)
    for i, label in enumerate(labels.tolist()):
        if label > 0:
            name = f"text:{arcs.line[first[i]]}"
            ids[i] = alphabet.encode([names[label]], name=name)[0]
    final = {state: -cost for state, cost in arcs.final.items()}
    checked = ScoredArcs.checked(arcs.source, arcs.nextstate, ids[which], -arcs.cost, len(alphabet))
    return checked, arcs.start, final


def arcs_of_nbest(
    hypotheses: Sequence[SequenceLike], scores: npt.ArrayLike, alphabet: Alphabet
) -> tuple[ScoredArcs, int]:
    """Return the arcs of an n-best list (the scored epsilon arcs first), and the final state."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    check_same_rows(hypotheses=hypotheses, scores=scores)
    every = batch("hypotheses", hypotheses)
    strings = [alphabet.encode(y, name=f"hypotheses[{i}]") for i, y in enumerate(every)]
    if not strings:
        raise InvalidInputError("hypotheses is empty; give at least one")
    weights = log_weights("scores", scores, (len(strings),))
    lengths = np.array([len(y) for y in strings])
    # path i has the states first[i] .. first[i] + l_i - 1, one before each of its symbols
    first = 1 + np.cumsum(lengths) - lengths
    final = 1 + int(lengths.sum())
    inner = np.arange(1, final)
    after = inner + 1
    after[(first + lengths - 2)[lengths > 0]] = final
    entry = np.where(lengths > 0, first, final)
    return ScoredArcs(
        np.concatenate([np.zeros(len(strings), dtype=np.int64), inner]),
        np.concatenate([entry, after]),
        np.concatenate([np.full(len(strings), NO_SYMBOL), *strings]),
        np.concatenate([weights, np.zeros(len(inner))]),
    ), final


def arcs_of_slots(
    slots: Sequence[Sequence[tuple[str | None, float]]], alphabet: Alphabet
) -> ScoredArcs:
    """Return the arcs of a confusion network, slot by slot; state t comes before slot t."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    rows: list[tuple[int, int, int, float]] = []
    for t, slot in enumerate(slots):
        check_container(name := f"slots[{t}]", slot, of_rows=True)
        alternatives = items(name, slot)
        if not alternatives:
            raise InvalidInputError(
                f"{name} is empty; give an alternative, (None, 0.0) for no symbol"
            )
        for pair in alternatives:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidInputError(f"{name} has {pair!r}; give pairs (symbol, score)")
            symbol, score = pair
            label = NO_SYMBOL if symbol is None else int(alphabet.encode([symbol], name=name)[0])
            rows.append(
                (
                    t,
                    t + 1,
                    label,
                    float(log_weights(f"the score of {symbol!r} in {name}", score, ())),
                )
            )
    if not rows:
        raise InvalidInputError("slots is empty; give at least one slot with an alternative")
    source, nextstate, labels, scores = map(list, zip(*rows, strict=True))
    return ScoredArcs.checked(source, nextstate, labels, scores, len(alphabet))


def fst_arrays(
    graph: Graph, label: IntArray, ends: BoolArray, log_weight: FloatArray, symbols: Symbols
) -> FstArrays:
    """Return an acceptor in log64 whose costs are -log_weight (A,), in nats.

    The arcs in `ends` (A,) become final weights.
    """
    inner = ~ends
    states = graph.num_states - int(ends.any())
    final = np.full(states, np.inf)
    if ends.any():
        final[graph.source[ends]] = -log_weight[ends]
    else:
        final[-1] = 0.0
    arc_label = label[inner] + 1
    return FstArrays(
        arc_type="log64",
        start=0,
        final=final,
        source=graph.source[inner],
        ilabel=arc_label,
        olabel=arc_label,
        nextstate=graph.nextstate[inner],
        weight=-log_weight[inner],
        input_symbols=symbols,
        output_symbols=symbols,
    )


class LatticeInput(NamedTuple):
    """The arcs of a lattice with their numbers in the input; attributes as in `Lattice`."""

    graph: Graph
    label: IntArray
    origin: IntArray
    ends: BoolArray

    def scatter(self, scores: Any, default: FloatArray) -> Any:
        """Return scores (A,) of the arcs from `scores` (G,) of the input, an array or a tensor.

        Arcs that were not in the input have the scores `default` (A,).
        """
        is_tensor = hasattr(scores, "new_tensor")
        scores = scores if is_tensor else log_weights("scores", scores)
        shape, arcs = tuple(np.shape(scores)), self.origin[~self.ends]
        if len(shape) != 1 or ((given := shape[0]) <= arcs.max() and not self._is_nbest(given)):
            raise InvalidInputError(
                f"scores has the shape {shape}; give one score for each arc of the input, at "
                f"least {int(arcs.max()) + 1}, or one for each hypothesis"
            )
        places = np.flatnonzero(~self.ends & (self.origin < given))
        result = scores.new_tensor(default) if is_tensor else np.array(default)
        result[places] = scores[self.origin[places]]
        return result

    def _is_nbest(self, count: int) -> bool:
        """Return whether the arcs from the start are the epsilon arcs of `count` hypotheses."""
        first = self.graph.source == 0
        origins = np.sort(self.origin[first])
        return bool((self.label[first] == NO_SYMBOL).all()) and origins.tolist() == [*range(count)]
