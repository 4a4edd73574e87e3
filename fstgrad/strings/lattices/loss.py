"""The loss against one target along the strings of a lattice: A o B with B built on demand.

A state of the composition is a pair (state of the lattice, canonical row of M).  Rows are computed
only for prefixes in the lattice.  Epsilon arcs of the lattice change the lattice state but not the
row.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    cost_array,
    divisor,
    index_array,
    instance,
    log_weights,
    real_number,
)
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    NotSupportedError,
    StateLimitError,
)
from fstgrad.losses import Loss, Target
from fstgrad.losses.automata.band import Band, band_too_narrow, barred_cells, check_band
from fstgrad.losses.automata.caps import check_cap
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.semiring import TROPICAL
from fstgrad.losses.automata.target_loss import FunctionTargetLoss, SumTargetLoss, TargetLoss
from fstgrad.strings.lattices import build
from fstgrad.strings.lattices.graph import NO_SYMBOL, Flow, Graph, sums_by
from fstgrad.strings.lattices.rows import Rows, row_form, unique_columns
from fstgrad.strings.lattices.search import best_path

REMEDY = (
    "Lower the cap (cap=), which replaces the loss L by min(L, cap), raise max_states, or estimate "
    "from samples (fstgrad.sampled_risk, fstgrad.sampled_softmax_margin)."
)

FEWER_PATHS = (
    "Give a lattice of fewer paths, raise max_states, or estimate from samples "
    "(fstgrad.sampled_risk, fstgrad.sampled_softmax_margin)."
)


@dataclass(frozen=True, eq=False)
class LatticeLoss:
    """The loss of every string of a lattice against one target, for any scores of its arcs.

    `graph` has one path for each path of the lattice with a finite loss.  This loss is `initial`
    plus the sum of the costs of the arcs.

    Attributes
    ----------
    lattice : Graph
        The A arcs of the lattice.
    label : (A,) int64
        Their labels: ids of symbols, -1 for epsilon.
    graph : Graph
        The composition, with E arcs.
    arc : (E,) int64
        The lattice arc of each arc of the composition.
    cost : (E,) float64
        Cost of each arc of the composition in nats.
    initial : float
        Part of the loss of every path, in nats.
    scores : (A,) float64, optional
        Log-weights in nats of the lattice for which the loss was compiled, for `closest`.
    """

    lattice: Graph
    label: IntArray
    graph: Graph
    arc: IntArray
    cost: FloatArray
    initial: float
    scores: FloatArray | None = None

    def __post_init__(self) -> None:
        """Check the arrays, because kernels index without checks."""
        for name in ("lattice", "graph"):
            instance(name, getattr(self, name), Graph, "a Graph")
        arcs = self.lattice.num_arcs
        vars(self).update(
            label=index_array("label", self.label, 2**62, (arcs,), lower=NO_SYMBOL),
            arc=index_array("arc", self.arc, arcs, (None,)),
            cost=cost_array("cost", self.cost, (len(self.arc),)),
            initial=real_number("initial", self.initial),
        )
        if self.scores is not None:
            vars(self).update(scores=log_weights("scores", self.scores, (arcs,)))

    def __repr__(self) -> str:
        return f"LatticeLoss({self.num_states:,} states, {len(self.arc):,} arcs)"

    @property
    def num_states(self) -> int:
        """Number of states of the composition."""
        return self.graph.num_states

    @property
    def num_arcs(self) -> int:
        """Number of arcs E of the composition."""
        return self.graph.num_arcs

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.graph.source, self.graph.nextstate, self.arc, self.cost)
        return sum(array.nbytes for array in arrays)

    def augmented(self, lattice: Graph, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return log sum exp(L + score) over paths, in nats, and the arc posteriors (A,).

        lattice : Graph, the same object as the attribute `lattice`
        scores : (A,), log-weights in nats

        InfeasibleError if no path has a finite score and a finite loss.
        """
        flow = Flow.of(self.graph, self._checked(lattice, scores)[self.arc] + self.cost)
        return flow.log_z + self.initial, self._summed(flow.posterior)

    def risk(self, lattice: Graph, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return E[L] in nats under exp(score) / Z and its gradient (A,) in the scores.

        The gradient is P(e) (E[L | e] - E[L]).  Arguments and errors as in `augmented`.
        """
        flow = Flow.of(self.graph, self._checked(lattice, scores)[self.arc])
        mean, given = flow.conditional_means(self.cost)
        return mean + self.initial, self._summed(flow.posterior * (given - mean))

    def _leaves_out(self, lattice: Graph, scores: FloatArray) -> bool:
        """Return whether a path with a finite score has L = +inf; arguments as in `augmented`."""
        allowed = self._checked(lattice, scores) > -np.inf
        return self.graph.count_paths(allowed[self.arc]) < lattice.count_paths(allowed)

    def best(
        self, lattice: Graph, scores: FloatArray, scale: float = 1.0
    ) -> tuple[IntArray, float, float]:
        """Return a path with the highest score + scale L, this sum and its L, in nats.

        The path is an int64 array of lattice arcs.  Arguments and errors as in `augmented`.
        """
        scale = real_number("scale", scale)
        checked = self._checked(lattice, scores)
        path, total = best_path(self.graph, checked[self.arc] + scale * self.cost)
        loss = self.initial + float(self.cost[path].sum())
        return self.arc[path], total + scale * self.initial, loss

    def reward(self, lattice: Graph, temperature: float) -> FloatArray:
        """Return the arc posteriors (A,) under exp(-L / temperature) / Z; temperature > 0, nats."""
        self._check_lattice(lattice)
        temperature = divisor("temperature", temperature)
        return self._summed(Flow.of(self.graph, -self.cost / temperature).posterior)

    def closest(self) -> tuple[IntArray, float]:
        """Return a string of the lattice with the least loss (ids), and its loss in nats.

        In speech recognition, the oracle: no rescoring of the lattice can reach a lower loss.
        Strings whose score in `scores` is -inf are left out; InfeasibleError if none remains.
        """
        gain = -self.cost
        if self.scores is not None:
            gain = np.where(self.scores[self.arc] > -np.inf, gain, -np.inf)
        path, total = best_path(self.graph, gain)
        labels = self.label[self.arc[path]]
        return labels[labels != NO_SYMBOL], self.initial - total

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the greatest finite loss of the strings of the lattice, in nats."""
        least, most = (best_path(self.graph, sign * self.cost)[1] for sign in (-1.0, 1.0))
        return self.initial - least, self.initial + most

    def _summed(self, values: FloatArray) -> FloatArray:
        """Return the sums (A,) of `values` (E,) over the arcs that represent each lattice arc."""
        return sums_by(self.arc, values, self.lattice.num_arcs)

    def _checked(self, lattice: Graph, scores: npt.ArrayLike) -> FloatArray:
        """Return the scores as float64 (A,), after checking that `lattice` is the compiled one."""
        self._check_lattice(lattice)
        return log_weights("scores", scores, (lattice.num_arcs,))

    def _check_lattice(self, lattice: Graph) -> None:
        """Raise InvalidInputError unless the loss was compiled for this graph."""
        if lattice is not self.lattice:
            raise InvalidInputError(
                "the loss was compiled for another lattice; compile it for this one, or make "
                "lattices with the same arcs by with_scores"
            )


def compose(
    graph: Graph,
    label: IntArray,
    loss: Loss,
    target: Target,
    *,
    cap: float | None = None,
    band: Band | None = None,
    max_states: int,
) -> LatticeLoss:
    """Return the loss along a lattice; see `Lattice.compile`.

    A sum of losses is composed part by part: the composition with one part is the lattice for the
    next.  Only a sum with a cap needs one machine, because the cap applies to the sum.

    Raises
    ------
    InfeasibleError
        All paths have an infinite loss, or a path with a finite loss has no alignment in the band.
    StateLimitError
        The composition has more than `max_states` states.
    NotSupportedError
        Both `cap` and `band` are given, or the loss does not support one of them.
    """
    if cap is not None and band is not None:
        raise NotSupportedError("band and cap exclude each other; leave one of them out")
    against = loss.against(target, max_states=max_states)
    if isinstance(against, SumTargetLoss) and cap is not None:
        machine = loss.machine(target, max_states=max_states)
        against = TargetLoss(loss.alphabet, machine, loss._to_loss)
    if band is not None:
        return banded(graph, label, against, band, max_states)
    return _along(graph, label, against, cap, None, max_states)


def banded(
    graph: Graph,
    label: IntArray,
    against: TargetLoss | SumTargetLoss,
    band: Band,
    max_states: int,
) -> LatticeLoss:
    """Return the loss L_k of a band along a lattice; a sum uses the band for each part."""
    return _along(graph, label, against, None, check_band(band), max_states)


def _along(
    graph: Graph,
    label: IntArray,
    against: TargetLoss | SumTargetLoss | FunctionTargetLoss,
    cap: float | None,
    band: Band | None,
    max_states: int,
) -> LatticeLoss:
    if isinstance(against, TargetLoss) and band is not None:
        return _in_a_band(graph, label, against, band, max_states)
    if isinstance(against, TargetLoss):
        return _composed(graph, label, against, cap, max_states)
    if isinstance(against, FunctionTargetLoss):
        if band is not None:
            raise NotSupportedError("a function has no band; leave band out")
        return _enumerated(graph, label, against, max_states)
    total = LatticeLoss(
        graph, label, graph, np.arange(graph.num_arcs), np.zeros(graph.num_arcs), 0.0
    )
    for part in against.parts:
        own = _along(total.graph, label[total.arc], part, None, band, max_states)
        total = LatticeLoss(
            graph,
            label,
            own.graph,
            total.arc[own.arc],
            total.cost[own.arc] + own.cost,
            total.initial + own.initial,
        )
    return total


def _enumerated(
    graph: Graph, label: IntArray, against: FunctionTargetLoss, max_states: int
) -> LatticeLoss:
    """Return the loss of a function on the tree of all paths; their last arcs have the losses."""
    end = graph.num_states - 1
    nodes: list[tuple[int, tuple[int, ...]]] = [(0, ())]  # a state and the string that leads to it
    arcs: list[tuple[int, int, int]] = []  # source, next state (-1 at the end), arc of the lattice
    ends: list[tuple[int, ...]] = []
    for node, (state, string) in enumerate(nodes):  # the list grows
        for e in range(graph.first_out[state], graph.first_out[state + 1]):
            symbol = int(label[e])
            longer = string if symbol == NO_SYMBOL else (*string, symbol)
            is_last = int(graph.nextstate[e]) == end
            arcs.append((node, -1 if is_last else len(nodes), e))
            if is_last:
                ends.append(longer)
            else:
                nodes.append((int(graph.nextstate[e]), longer))
        if (size := len(nodes) + len(ends)) > max_states:
            raise StateLimitError(
                size, max_states, where="tree of the paths of the lattice", remedy=FEWER_PATHS
            )
    loss_of = {
        string: float(against.losses_of(np.array([string], dtype=np.int64))[0])
        for string in {*ends} or {()}
    }
    if end == 0:
        return LatticeLoss(graph, label, graph, np.arange(0), np.zeros(0), _finite(loss_of[()]))
    source, nextstate, arc = np.array(arcs, dtype=np.int64).T
    cost = np.zeros(len(arcs))
    cost[nextstate < 0] = [loss_of[string] for string in ends]
    parts = source, np.where(nextstate < 0, len(nodes), nextstate), arc
    return _trimmed(graph, label, parts, cost, len(nodes) + 1, 0.0)


def _in_a_band(
    graph: Graph, label: IntArray, against: TargetLoss, band: Band, max_states: int
) -> LatticeLoss:
    # the depth of a state, in symbols or in arcs, whichever varies less over the paths to it: arcs
    # in a confusion network with epsilons
    ways = [graph.depths(label != NO_SYMBOL), graph.depths(np.ones(len(label), dtype=np.bool_))]
    read = min(ways, key=lambda depth: int(np.ptp(depth, axis=1).sum()))
    barred = barred_cells(against.machine, band, read, read[-1])
    try:
        b = _composed(graph, label, against, None, max_states, barred)
    except InfeasibleError:
        b = None
    if b is None or b.graph.num_paths < graph.num_paths:
        support = replace(against, machine=against.machine.support())
        whole = _composed(graph, label, support, None, max_states)
        if b is None or b.graph.num_paths < whole.graph.num_paths:
            raise band_too_narrow(band)
    return b


def _composed(
    graph: Graph,
    label: IntArray,
    against: TargetLoss,
    cap: float | None,
    max_states: int,
    barred: BoolArray | None = None,
) -> LatticeLoss:
    if cap is not None:
        cap = check_cap(cap)
        if against.machine.semiring is TROPICAL:
            against, cap = replace(against, machine=against.machine.with_constant(cap)), None
    machine = against.machine

    def in_nats(values: npt.NDArray[Any]) -> FloatArray:
        losses = against.in_nats(values)
        return losses if cap is None else np.minimum(losses, cap)

    pairs = _Pairs(graph, label, machine, max_states, barred)
    if graph.num_states == 1:
        initial = float(in_nats(machine.value(machine.initial[:, None]))[0])
        return LatticeLoss(graph, label, graph, np.arange(0), np.zeros(0), _finite(initial))
    for state in range(1, graph.num_states):
        pairs.enter(state)
    cost = np.concatenate([np.concatenate(pairs.cost) * machine.unit, in_nats(pairs.values)])
    source, nextstate, arc = (np.concatenate(parts) for parts in pairs.arcs)
    initial = float(pairs.initial * machine.unit)
    return _trimmed(graph, label, (source, nextstate, arc), cost, pairs.num_states, initial)


def _trimmed(
    graph: Graph,
    label: IntArray,
    arcs: tuple[IntArray, IntArray, IntArray],
    cost: FloatArray,
    num_states: int,
    initial: float,
) -> LatticeLoss:
    """Return the composition without its paths of infinite loss.

    arcs : (E,) each: states of the composition, of which the last is its end, and lattice arcs
    """
    source, nextstate, arc = arcs
    kept = np.flatnonzero(np.isfinite(cost))
    useful = build.reached(nextstate[kept], source[kept], num_states, num_states - 1)
    if not useful[0]:
        _finite(np.inf)
    kept = kept[useful[nextstate[kept]]]
    order = kept[np.argsort(source[kept], kind="stable")]
    number = np.cumsum(useful) - 1
    composed = Graph(number[source[order]], number[nextstate[order]], int(useful.sum()))
    return LatticeLoss(graph, label, composed, arc[order], cost[order], initial)


def _finite(loss: float) -> float:
    if not np.isfinite(loss):
        raise InfeasibleError(
            "every string of the lattice has an infinite loss against the target; use a loss that "
            "is finite on some string of the lattice"
        )
    return loss


class _Pairs:
    """The states of the composition, built along the lattice in topological order.

    arcs : sources, next states and lattice arcs of the arcs so far, in blocks
    cost : their costs in units of the machine, without those of arcs into the end
    values : the weights at the end, one per arc into the end
    """

    def __init__(
        self,
        graph: Graph,
        label: IntArray,
        machine: TargetMachine,
        max_states: int,
        barred: BoolArray | None,
    ) -> None:
        self._graph, self._max_states = graph, max_states
        self._classes = np.where(label == NO_SYMBOL, NO_SYMBOL, machine.class_of[label])
        self._form = row_form(graph, self._classes, machine, barred)
        rows, offset, _ = self._form.canonical(machine.initial[None].copy(), 0)
        self.initial = offset[0]
        self._rows: dict[int, Rows] = {0: self._form.close(rows, 0)}
        self._first = {0: 0}
        self._needed: dict[int, list[int]] = {}  # states by the last state that needs them
        # arcs are sorted by source only: a state's last arc need not have its largest next state
        for state, last in enumerate(np.maximum.reduceat(graph.nextstate, graph.first_out[:-2])):
            self._needed.setdefault(int(last), []).append(state)
        self.num_states = 1
        self.arcs: tuple[list[IntArray], list[IntArray], list[IntArray]] = ([], [], [])
        self.cost: list[npt.NDArray[Any]] = [np.zeros(0)]
        self.values = machine.semiring.full((0,))

    def enter(self, state: int) -> None:
        """Build the pairs of one state of the lattice and the arcs that lead to them."""
        moved, source, arc = self._moved(state)
        if state == self._graph.num_states - 1:
            self.values = self._form.ends(moved)
            number, found = np.zeros(len(moved), dtype=np.int64), 1
        else:
            rows, offset, alive = self._form.canonical(moved, state)
            columns, number = unique_columns(np.ascontiguousarray(rows[alive].T))
            self._rows[state] = self._form.close(np.ascontiguousarray(columns.T), state)
            self.cost.append(offset[alive])
            source, arc, found = source[alive], arc[alive], columns.shape[1]
        for block, values in zip(self.arcs, (source, number + self.num_states, arc), strict=True):
            block.append(values)
        self._first[state] = self.num_states
        self.num_states += found
        for done in self._needed.pop(state, ()):
            del self._rows[done]
        if self.num_states > self._max_states:
            raise StateLimitError(
                self.num_states,
                self._max_states,
                where=f"composition with the lattice at state {state} of {self._graph.num_states}",
                remedy=REMEDY,
            )

    def _moved(self, state: int) -> tuple[Rows, IntArray, IntArray]:
        """Return the rows that arrive at a state, their source pairs and their lattice arcs."""
        graph = self._graph
        arcs_in = graph.arcs_in[graph.first_in[state] : graph.first_in[state + 1]]
        classes = self._classes[arcs_in]
        blocks, sources, arcs = [], [], []
        for symbol_class in np.unique(classes).tolist():
            group = arcs_in[classes == symbol_class]
            before = [self._rows[p] for p in graph.source[group].tolist()]
            rows = np.concatenate(before)
            blocks.append(
                rows if symbol_class == NO_SYMBOL else self._form.advance(rows, symbol_class)
            )
            for p, part in zip(graph.source[group].tolist(), before, strict=True):
                sources.append(self._first[p] + np.arange(len(part)))
            arcs.append(np.repeat(group, [len(part) for part in before]))
        return np.concatenate(blocks), np.concatenate(sources), np.concatenate(arcs)
