"""Certified bounds on log Z and on marginals, within a tolerance if possible.

- Upper bound: weighted mini-buckets (`mini_buckets`), and the mean of log Z over spanning trees for
  the messages of tree-reweighted belief propagation (`messages.tree_weights`).
- Lower bound: mean field, E_q[s] + H(q), over single nodes and over forests (`block_field`).
- Both bounds for every label of every node: from the trees' sums over the labelings with that
  label, and from mean field with that node fixed.
- Tighter bounds: a node is fixed to each of its labels in turn, which splits Z into a sum of
  smaller parts (Weller and Jebara 2014, "Clamping variables and approximate inference").  The part
  with the largest e^upper - e^lower is split first; a part whose elimination is cheap is summed
  exactly.

Larger factors keep their tables.
"""

import heapq
import time
from itertools import count

import numpy as np

from fstgrad.core.checks import FloatArray, positive_integer, positive_number
from fstgrad.core.errors import MemoryLimitError
from fstgrad.mrf.budget import Budget
from fstgrad.mrf.clamping import clamp
from fstgrad.mrf.exact.plan import ELIMINATION_MEMORY
from fstgrad.mrf.masks import without_masks
from fstgrad.mrf.parts import Part, engine_of, part_of
from fstgrad.mrf.result import Bounds
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.table import Table


def bounds(
    model: ScoredGraph,
    *,
    tolerance: float = 0.01,
    max_parts: int = 1000,
    max_seconds: float = 60.0,
    max_cells: int = 1 << 20,
) -> Bounds:
    """Return certified bounds on log Z and on every node marginal.

    Parameters
    ----------
    tolerance : float
        Stop when upper - lower is at most this, in nats.
    max_parts : int
        Stop when Z is a sum of at least this many parts, or of as many as 4 GiB hold.
    max_seconds : float
        Stop after this time, which is checked between sweeps.  An exact sum is not started if it
        would take longer than the remaining time, at 20 ns per cell.  Whatever the limit, the
        result has at least one bound of trees or of mini-buckets and one sweep of mean field, or an
        exact sum of at most 2^18 cells if its order of elimination is found in time.
    max_cells : int
        A part is summed exactly if the largest table of its elimination has at most this many
        cells.  A mini-bucket has at most min(max_cells, 65536) cells, or as many as its largest
        factor.  0 means trees and mean field only.

    Raises
    ------
    InfeasibleError
        Every labeling is forbidden.
    """
    begun = time.perf_counter()
    tolerance = positive_number("tolerance", tolerance, allow_zero=True)
    max_parts = positive_integer("max_parts", max_parts)
    max_cells = positive_integer("max_cells", max_cells, minimum=0)
    budget = Budget.of(positive_number("max_seconds", max_seconds))
    try:
        return _exact(model, max_cells, budget, begun)
    except MemoryLimitError:
        whole = without_masks(model)
    parts, order = _Parts(), count()
    root = clamp(whole, np.full(whole.num_nodes, -1))
    parts.add(part_of(root, max_cells, budget, too_wide=True), next(order))
    max_parts = min(max_parts, ELIMINATION_MEMORY // _bytes_of_part(whole))
    while parts.width > tolerance and len(parts) < max_parts and not budget.is_spent:
        widest = parts.pop()
        if widest is None:
            break
        found = _split(widest, max_cells, budget)
        for part in [widest] if found is None else found:
            parts.add(part, next(order))
    return _result(whole, parts, tolerance, begun)


def _split(part: Part, max_cells: int, budget: Budget) -> list[Part] | None:
    """Return the parts with each label of one more node; None if the budget is spent before."""
    node, found = _uncertain(part), []
    for label in np.flatnonzero(part.above[node] > -np.inf).tolist():
        if budget.is_spent:
            return None
        labels = part.given.labels.copy()
        labels[node] = label
        found.append(part_of(clamp(part.given.whole, labels), max_cells, budget))
    return found


def _bytes_of_part(model: ScoredGraph) -> int:
    """Return the bytes of the tables that a part keeps."""
    edges = model.graph.num_edges * model.num_labels**2
    return 8 * (4 * model.scores.node.size + 2 * (edges + len(model.factors.table)))


class _Parts:
    """The parts of Z.

    `open` is a heap of (-gain, number, part) for the parts that can be split, with
    gain = log(e^upper - e^lower); `closed` has the others.
    """

    def __init__(self) -> None:
        self.open: list[tuple[float, int, Part]] = []
        self.closed: list[Part] = []

    def __len__(self) -> int:
        return len(self.open) + len(self.closed)

    def all(self) -> list[Part]:
        return [part for *_, part in self.open] + self.closed

    def add(self, part: Part, number: int) -> None:
        if part.upper == -np.inf:
            return
        if part.upper == part.lower or part.given.rest is None:
            self.closed.append(part)
            return
        # log(e^upper - e^lower): how much splitting this part can narrow the bounds
        gain = part.upper + float(np.log(max(-np.expm1(part.lower - part.upper), 1e-300)))
        heapq.heappush(self.open, (-gain, number, part))

    def pop(self) -> Part | None:
        return heapq.heappop(self.open)[2] if self.open else None

    @property
    def width(self) -> float:
        parts = self.all()
        upper = np.logaddexp.reduce([p.upper for p in parts]) if parts else -np.inf
        lower = np.logaddexp.reduce([p.lower for p in parts]) if parts else -np.inf
        return float(upper - lower) if upper > -np.inf else 0.0


def _uncertain(part: Part) -> int:
    """Return the node to split at: the largest (entropy + 0.001) * (degree + 1) of free nodes."""
    p = np.zeros(0) if part.upper_gradient is None else part.upper_gradient.node
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    rest = part.given.rest
    degree = rest.interactions.degree if rest is not None else np.zeros(0)
    score = (entropy[part.given.free] + 1e-3) * (degree + 1)
    return int(part.given.free[score.argmax()])


def _exact(model: ScoredGraph, max_cells: int, budget: Budget, begun: float) -> Bounds:
    """Return bounds with upper = lower, or raise MemoryLimitError if that is too expensive."""
    engine = engine_of(model, max_cells, budget)
    value, table = engine.log_partition() + model.offset, engine.marginals()
    return Bounds(
        "bounds", value, "bounds", table.node, lambda low, high: table.edge[low:high].copy(),
        model.graph.num_edges, factors=table.factors, seconds=time.perf_counter() - begun,
        lower=value, upper=value, node_lower=table.node, node_upper=table.node,
        lower_gradient=table, upper_gradient=table, parts=1,
    )  # fmt: skip


def _result(model: ScoredGraph, parts: _Parts, tolerance: float, begun: float) -> Bounds:
    every = parts.all()
    if not every:
        raise infeasible()
    lowers, uppers = (np.array([getattr(p, name) for p in every]) for name in ("lower", "upper"))
    lower, upper = float(np.logaddexp.reduce(lowers)), float(np.logaddexp.reduce(uppers))
    below = np.logaddexp.reduce([p.below for p in every], axis=0)
    above = np.logaddexp.reduce([p.above for p in every], axis=0)
    bottom, top = _marginal_bounds(below, above)
    gradients = [
        _mixed(model, [getattr(p, name) for p in every], values, total)
        for name, values, total in (
            ("lower_gradient", lowers, lower), ("upper_gradient", uppers, upper),
        )
    ]  # fmt: skip
    low, high = gradients
    middle = high if lower == -np.inf else Table(
        (low.node + high.node) / 2, (low.edge + high.edge) / 2, (low.factors + high.factors) / 2
    )  # fmt: skip
    value = upper if lower == -np.inf else (lower + upper) / 2
    return Bounds(
        "bounds", value + model.offset, "bounds", middle.node,
        lambda first, last: middle.edge[first:last].copy(), model.graph.num_edges,
        factors=middle.factors, converged=upper - lower <= tolerance, iterations=len(every),
        seconds=time.perf_counter() - begun, lower=lower + model.offset,
        upper=upper + model.offset, node_lower=bottom, node_upper=top,
        lower_gradient=low, upper_gradient=high, parts=len(every),
    )  # fmt: skip


def _marginal_bounds(below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds (I, C) on P(y_i = c) from log-bounds (I, C) on the sums with y_i = c."""

    def ratio(one: FloatArray, other: FloatArray) -> FloatArray:
        """Return e^one / (e^one + sum over the other labels of e^other)."""
        rest = np.full(one.shape, -np.inf)
        for c in range(one.shape[1]):
            rest[:, c] = np.logaddexp.reduce(np.delete(other, c, axis=1), axis=1, initial=-np.inf)
        both = np.logaddexp(one, rest)
        with np.errstate(invalid="ignore"):
            return np.where(one == -np.inf, 0.0, np.exp(one - both))

    return ratio(below, above), ratio(above, below)


def _mixed(
    model: ScoredGraph, tables: list[Table | None], values: FloatArray, total: float
) -> Table:
    """Return the gradient of total = log-sum-exp of `values` from the gradients of the values."""
    size = model.num_labels
    node = np.zeros(model.scores.node.shape)
    edge, cells = np.zeros((model.graph.num_edges, size, size)), np.zeros(len(model.factors.table))
    for value, table in zip(values, tables, strict=True):
        if table is not None and value > -np.inf:
            weight = np.exp(value - total)
            node += weight * table.node
            edge += weight * table.edge
            cells += weight * table.factors
    return Table(node, edge, cells)
