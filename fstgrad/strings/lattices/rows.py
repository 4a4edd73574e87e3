"""Rows of a target machine M along a lattice, and their canonical forms.

A row holds the weight of a prefix for each state of M (a cell).  Let two prefixes lead to the same
state q of the lattice.  If their canonical rows are equal, their losses differ by the same constant
for all continuations.  Only the continuations of q count here, not all strings:

- tropical.  Let c_j(y) be the cost of a continuation y from cell j.  A dynamic program over pairs
  of cells, backward through the lattice, gives for each state q

      gap_q[j, k] >= c_k(y) - c_j(y)    for every continuation y of q.

  Cell j of a row v never matters if v_k + gap_q[j, k] <= v_j for another cell k.  This test is at
  least as strong as the bounds of `fstgrad.losses.automata.determinize` (gap <= ub_k - lb_j) and,
  for edit distances, as the triangle inequality between cells.  The minimum of the remaining cells
  becomes the cost of the arc.
- probability.  Cells from which no continuation of q reaches an end are set to zero.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.semiring import INF, TROPICAL
from fstgrad.strings.lattices import kernels
from fstgrad.strings.lattices.graph import NO_SYMBOL, Graph

Rows = npt.NDArray[Any]  # (N, K)
_MANTISSA_BITS = 40  # inexact weights are compared to this many bits
_GAP_MEMORY = 2**30  # beyond this size, bounds of single cells replace the bounds of pairs


class RowForm(Protocol):
    """Operations on rows (N, K) along a lattice, for one semiring."""

    def close(self, rows: Rows, state: int) -> Rows:
        """Return the rows at a lattice state after any number of epsilon arcs of M."""

    def ends(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the total weights (N,) of rows at the end of the lattice."""

    def advance(self, rows: Rows, symbol_class: int) -> Rows:
        """Return the rows after a symbol of the class, from rows that `close` returned."""

    def canonical(self, rows: Rows, state: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return canonical rows, the offsets (N,) taken out, and which rows are alive (N,)."""


def row_form(
    graph: Graph, classes: IntArray, machine: TargetMachine, barred: BoolArray | None
) -> RowForm:
    """Return the row operations for the machine's semiring.

    classes : (A,), the class in M of the symbol of each arc, or -1 for epsilon
    barred : (S, K) bool or None, cells of a tropical machine that are forbidden at each state
    """
    if machine.semiring is TROPICAL:
        return TropicalRows(graph, classes, machine, barred)
    return CountingRows(graph, classes, machine)


class TropicalRows:
    """Tropical rows: integers in the unit of the machine, minus the least of the row."""

    def __init__(
        self, graph: Graph, classes: IntArray, machine: TargetMachine, barred: BoolArray | None
    ) -> None:
        self._machine = machine
        size = machine.num_states
        if barred is None:
            barred = np.zeros((graph.num_states, size), dtype=np.bool_)
        self._barred = barred
        self._pairs = graph.num_states * size**2 * 8 <= _GAP_MEMORY
        if self._pairs:
            self._lower, self._gap = pair_bounds(graph, classes, machine, barred)
        else:
            self._lower, self._upper = cell_bounds(graph, classes, machine, barred)

    def close(self, rows: Rows, state: int) -> Rows:
        """Return the rows after epsilon arcs; barred cells become INF."""
        epsilon = self._machine.epsilon
        rows = kernels.rows.advance(rows, epsilon.source, epsilon.nextstate, epsilon.weight, False)
        rows[:, self._barred[state]] = INF
        return rows

    def ends(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the least total costs (N,)."""
        return self._machine.value(np.where(self._barred[-1], INF, rows).T)

    def advance(self, rows: Rows, symbol_class: int) -> Rows:
        """Return the rows after a symbol of the class."""
        arcs = self._machine.arcs[symbol_class]
        return kernels.rows.advance(rows, arcs.source, arcs.nextstate, arcs.weight, True)

    def canonical(self, rows: Rows, state: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Set cells that cannot win to INF and subtract the least of each row."""
        rows = np.ascontiguousarray(rows)
        offset, alive = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
        if self._pairs:
            kernels.rows.prune(rows, self._gap[state], self._lower[state], offset, alive)
        else:
            bounds = self._lower[state], self._upper[state]
            kernels.rows.prune_by_cells(rows, *bounds, offset, alive)
        return rows, offset, alive


class CountingRows:
    """Rows of sums of weights; cells without a continuation are zero."""

    def __init__(self, graph: Graph, classes: IntArray, machine: TargetMachine) -> None:
        self._machine = machine
        useful = np.zeros((graph.num_states, machine.num_states))
        useful[-1] = machine.final > 0
        for state in reversed(range(graph.num_states - 1)):
            for arc in range(graph.first_out[state], graph.first_out[state + 1]):
                ahead, symbol_class = useful[graph.nextstate[arc]], int(classes[arc])
                if symbol_class != NO_SYMBOL:
                    ahead = machine.step_backward(ahead[:, None], symbol_class)[:, 0] > 0
                useful[state] = np.maximum(useful[state], ahead)
        self._useful = useful > 0

    def close(self, rows: Rows, state: int) -> Rows:
        """Return the rows unchanged: machines of sums have no epsilon arcs."""
        return rows

    def ends(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the total weights (N,)."""
        return self._machine.value(rows.T)

    def advance(self, rows: Rows, symbol_class: int) -> Rows:
        """Return the rows after a symbol of the class."""
        return np.ascontiguousarray(self._machine.advance(rows.T, symbol_class).T)

    def canonical(self, rows: Rows, state: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Set cells without a continuation to zero; the offsets are 0, and all rows are alive."""
        rows = np.where(self._useful[state], rows, 0.0)
        return rows, np.zeros(len(rows)), np.ones(len(rows), dtype=bool)


def pair_bounds(
    graph: Graph, classes: IntArray, machine: TargetMachine, barred: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the least costs to go (S, K) and the bounds gap (S, K, K), in units of the machine.

    gap[q, j, k] >= c_k(y) - c_j(y) for all continuations y of q with a finite cost from cell j.
    O(K x arcs of M) for each class of symbols that leads into a state.
    """
    size = machine.num_states
    gap = np.full((graph.num_states, size, size), -INF)
    lower, _ = cell_bounds(graph, classes, machine, barred)
    finite = machine.final < INF // 2
    ends = np.where(finite, machine.final, 0)
    gap[-1] = np.where(finite, ends - ends[:, None], INF)
    gap[-1][~finite] = -INF
    scratch, before = empty((size, size), dtype=np.int64), empty((size, size), dtype=np.int64)
    epsilon = machine.epsilon
    for state in reversed(range(graph.num_states)):
        _bar(gap[state], barred[state])
        kernels.rows.pair_closure(gap[state], epsilon.source, epsilon.nextstate, epsilon.weight)
        _bar(gap[state], barred[state])
        arcs_in = graph.arcs_in[graph.first_in[state] : graph.first_in[state + 1]]
        for symbol_class in np.unique(classes[arcs_in]).tolist():
            sources = np.unique(graph.source[arcs_in[classes[arcs_in] == symbol_class]])
            if symbol_class == NO_SYMBOL:
                gap[sources] = np.maximum(gap[sources], gap[state])
                continue
            arcs = machine.arcs[symbol_class]
            kernels.rows.pair_step(
                gap[state], lower[state], arcs.source, arcs.nextstate, arcs.weight, scratch, before
            )
            for source in sources:
                np.maximum(gap[source], before, out=gap[source])
    return lower, gap


def _bar(gap: IntArray, barred: BoolArray) -> None:
    """Set the bounds (K, K) of barred cells (K,): they never win and are always removed."""
    gap[:, barred] = INF
    gap[barred] = -INF


def cell_bounds(
    graph: Graph, classes: IntArray, machine: TargetMachine, barred: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return bounds (S, K), lower and upper, on the costs to go from each cell, in units.

    The lower bound is the least cost of a continuation; no continuation costs more than the upper
    bound.
    """
    size = machine.num_states
    bounds = np.full((graph.num_states, 2, size), INF)
    bounds[:, 1] = -INF
    bounds[-1] = machine.final
    epsilon = machine.epsilon
    back = (
        epsilon.nextstate[::-1].copy(),
        epsilon.source[::-1].copy(),
        epsilon.weight[::-1].copy(),
    )
    for state in reversed(range(graph.num_states)):
        bounds[state][:, barred[state]] = INF
        bounds[state] = kernels.rows.advance(bounds[state], *back, False)
        bounds[state][:, barred[state]] = INF
        arcs_in = graph.arcs_in[graph.first_in[state] : graph.first_in[state + 1]]
        for symbol_class in np.unique(classes[arcs_in]).tolist():
            before = bounds[state]
            if symbol_class != NO_SYMBOL:
                arcs = machine.arcs[symbol_class]
                before = kernels.rows.advance(
                    before, arcs.nextstate, arcs.source, arcs.weight, True
                )
            for source in np.unique(graph.source[arcs_in[classes[arcs_in] == symbol_class]]):
                np.minimum(bounds[source, 0], before[0], out=bounds[source, 0])
                np.maximum(bounds[source, 1], before[1], out=bounds[source, 1])
    return bounds[:, 0].copy(), bounds[:, 1].copy()


def unique_columns(rows: Rows) -> tuple[Rows, IntArray]:
    """Return the distinct columns of `rows` (K, S), and for each column its number among them (S,).

    Columns are compared by a 64-bit hash, and the result is verified.  After a collision another
    hash is used.
    """
    keys = _comparable(rows)
    for salt in range(8):
        _, first, inverse = np.unique(_hashes(keys, salt), return_index=True, return_inverse=True)
        if np.array_equal(keys[:, first[inverse]], keys):
            return rows[:, first], inverse
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return rows[:, first], inverse.ravel()


def _comparable(rows: Rows) -> npt.NDArray[np.uint64]:
    """Return rows as uint64 patterns; weights that count as equal have equal patterns."""
    if rows.dtype == np.int64:
        return rows.view(np.uint64) if rows.flags.c_contiguous else rows.astype(np.uint64)
    if not np.array_equal(rows, np.rint(rows)):
        mantissa, exponent = np.frexp(rows)
        rows = np.ldexp(np.rint(np.ldexp(mantissa, _MANTISSA_BITS)), exponent - _MANTISSA_BITS)
    return np.ascontiguousarray(rows).view(np.uint64)


def _hashes(keys: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.uint64]:
    """Return one hash per column: the sum of its mixed cells times random odd factors."""
    factors = np.random.default_rng(salt).integers(2**63, size=len(keys), dtype=np.uint64) * 2 + 1
    mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= factors[:, None].astype(np.uint64)
    mixed ^= mixed >> np.uint64(29)
    hashes: npt.NDArray[np.uint64] = mixed.sum(axis=0, dtype=np.uint64)
    return hashes
