"""Certified bounds on log Z and on marginals, within a tolerance if possible.

- Upper bound: weighted mini-buckets (`mini_buckets`), and the mean of log Z over spanning trees for
  the messages of tree-reweighted belief propagation (`messages.tree_cover`).
- Lower bound: mean field, E_q[s] + H(q), over single nodes and over forests (`mean_field`).
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
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from fstgrad.core.checks import FloatArray, positive_integer, positive_number
from fstgrad.core.errors import InfeasibleError, MemoryLimitError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.clamping import Clamped, clamp
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.exact.plan import ELIMINATION_MEMORY
from fstgrad.mrf.hard_zeros import with_hard_zeros
from fstgrad.mrf.mean_field import mean_field_within, structured_mean_field
from fstgrad.mrf.messages.tree_cover import TreeBound, tree_cover
from fstgrad.mrf.messages.tree_reweighted import tree_messages
from fstgrad.mrf.mini_buckets import MiniBuckets
from fstgrad.mrf.resources import NO_LIMIT, Budget, SpentError
from fstgrad.mrf.result import Bounds
from fstgrad.mrf.scored_graph import ScoredGraph, Table, infeasible
from fstgrad.mrf.trw_s import tree_mode_within

SWEEPS = 100  # at most, of tree-reweighted messages and of mean field
LARGEST_BUCKET = 1 << 16  # cells
FEW_CELLS = 1 << 18  # of larger factors; with more, sweeps of trees are slow
QUICK_CELLS = 1 << 23  # mini-buckets with this many cells take less than a second
CELLS_OF_A_BUCKET = 2000  # overhead of a mini-bucket, in cells
ALWAYS_SUMMED = 1 << 18  # an elimination with this many cells is done whatever time is left
SECONDS_A_CELL = 2e-8  # of an elimination, for log Z and the marginals
CONVERGED = 1e-4  # messages whose largest change is at most this (nats) have converged
SWEEPS_A_BOUND = 20  # sweeps between two evaluations of the bound


@dataclass(frozen=True, eq=False)
class Part:
    """Bounds on the part of Z with some given labels; all are logarithms, in nats.

    clamped : the model with these labels.
    lower, upper : bounds on the part.
    below, above : (I, C), bounds on the sum over the labelings of the part with label c of node i.
    lower_gradient, upper_gradient : the gradients of the bounds by the scores, None for -inf.
    """

    clamped: Clamped
    lower: float
    upper: float
    below: FloatArray
    above: FloatArray
    lower_gradient: Table | None
    upper_gradient: Table | None


def bound_part(clamped: Clamped, max_cells: int, budget: Budget, *, too_wide: bool = False) -> Part:
    """Return the bounds of one part; if the budget is spent, those after one sweep.

    max_cells : a part whose elimination needs at most this many cells is summed exactly.
    too_wide : whether an exact sum is known to be too expensive; then it is not tried.
    """
    rest = clamped.rest
    if clamped.value == -np.inf:
        return _impossible_part(clamped)
    if rest is None:
        value, table = clamped.value, clamped.table(None)
        both = clamped.expand(np.zeros((0, clamped.full.num_labels)), -np.inf, value)
        return Part(clamped, value, value, both, both, table, table)
    try:
        with suppress(MemoryLimitError):
            if not too_wide:
                return _exact_part(clamped, rest, max_cells, budget)
        return _bounded_part(clamped, rest, max_cells, budget)
    except InfeasibleError:
        return _impossible_part(clamped)


def _impossible_part(clamped: Clamped) -> Part:
    nothing = np.full(clamped.full.scores.node.shape, -np.inf)
    return Part(clamped, -np.inf, -np.inf, nothing, nothing, None, None)


def engine_of(model: ScoredGraph, max_cells: int, budget: Budget) -> Forest | Elimination:
    """Return the exact engine of a model.

    Raises MemoryLimitError if the largest table has more than max_cells cells, or if the sum would
    take longer than the remaining time.
    """
    if model.is_forest:
        return Forest(model)
    if max_cells == 0:
        raise MemoryLimitError("max_cells is 0")
    try:
        engine = Elimination(model, 8 * max_cells, budget)  # this limits the largest table
    except SpentError as error:
        raise MemoryLimitError("the time is over before there is an order") from error
    engine.max_memory = ELIMINATION_MEMORY
    cells = sum(engine.plan.cells)
    if cells > ALWAYS_SUMMED and cells * SECONDS_A_CELL > budget.left:
        raise MemoryLimitError(f"a sum of {cells:,} cells takes longer than the time that is left")
    return engine


def _exact_part(clamped: Clamped, rest: ScoredGraph, max_cells: int, budget: Budget) -> Part:
    """Return the exact part, or raise MemoryLimitError if it is too expensive."""
    engine = engine_of(rest, max_cells, budget)
    value = engine.log_partition() + clamped.value
    table = clamped.table(engine.marginals())
    with np.errstate(divide="ignore"):
        both = np.log(table.node) + value
    return Part(clamped, value, value, both, both, table, table)


def _bounded_part(clamped: Clamped, rest: ScoredGraph, max_cells: int, budget: Budget) -> Part:
    """Return the part with upper bounds from mini-buckets and trees, lower ones from mean field."""
    upper, marginals, above = np.inf, None, rest.scores.node
    methods = [_tree_bound]
    if max_cells > 0:
        cells = rest.num_nodes * (min(max_cells, LARGEST_BUCKET) + CELLS_OF_A_BUCKET)
        quick = cells <= QUICK_CELLS or len(rest.factors.table) > FEW_CELLS
        methods.insert(0 if quick else 1, _mini_bucket_bound)
    try:
        for method in methods:
            try:
                bound = method(rest, max_cells, budget, NO_LIMIT if upper == np.inf else budget)
            except SpentError:
                break
            above = np.minimum(above, bound.node) if upper < np.inf else bound.node
            if bound.value < upper:
                upper, marginals = bound.value, bound.marginals
    except InfeasibleError:
        return _impossible_part(clamped)
    above = np.minimum(above, upper)
    above = clamped.expand(above + clamped.value, -np.inf, upper + clamped.value)
    lower, below, gradient = _lower_bounds(rest, budget)
    lower = min(lower, upper)
    below = clamped.expand(below + clamped.value, -np.inf, lower + clamped.value)
    return Part(
        clamped, lower + clamped.value, upper + clamped.value, np.minimum(below, above), above,
        None if gradient is None else clamped.table(gradient), clamped.table(marginals),
    )  # fmt: skip


def _lower_bounds(rest: ScoredGraph, budget: Budget) -> tuple[float, FloatArray, Table | None]:
    """Return the best mean-field bound, lower bounds for all labels (I, C), and its gradient.

    Mean field over forests starts from naive mean field and from a labeling of high score.
    Returns (-inf, all -inf, None) if no allowed start is found.
    """
    lower, gradient = -np.inf, None
    below = np.full(rest.scores.node.shape, -np.inf)
    starts = []
    try:
        inner = mean_field_within(rest, max_iter=SWEEPS, budget=budget)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        lower, gradient = inner.log_partition, Table(inner.node, inner.edge, inner.factors)
        below = label_bounds(rest, inner.node, lower)
        starts.append(inner.node)
    if budget.is_spent:
        return lower, below, gradient
    try:
        best = tree_mode_within(rest, max_iter=20, max_cells=0, restarts=1, budget=budget)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        starts.append(rest.parts(best.labels).node)
    for start in takewhile(lambda _: not budget.is_spent, starts):
        blocks = structured_mean_field(rest, start, budget)
        below = np.maximum(below, blocks.node)
        if blocks.value > lower:
            lower, gradient = blocks.value, blocks.marginals
    return lower, below, gradient


def _mini_bucket_bound(
    rest: ScoredGraph, max_cells: int, budget: Budget, first: Budget
) -> TreeBound:
    """Return the bound of mini-buckets; raise SpentError if the budget `first` is spent.

    The budget of the search for an order is `budget`.
    """
    buckets = MiniBuckets(rest, min(max_cells, LARGEST_BUCKET), budget=first, search=budget)
    node = np.where(rest.scores.node > -np.inf, buckets.value, -np.inf)
    return TreeBound(buckets.value, node, buckets.gradient())


def _tree_bound(rest: ScoredGraph, max_cells: int, budget: Budget, first: Budget) -> TreeBound:
    """Return the least bound of trees over the sweeps; flooding messages may not converge.

    The bound before the first sweep has its own budget `first`; raises SpentError if it is spent.
    """
    cover = tree_cover(rest.links)
    messages = tree_messages(rest, 1, cover.rho)
    best = messages.tree_bound(cover, first)
    for sweep in range(1, SWEEPS + 1):
        if budget.is_spent:
            break
        converged = messages.sweep(0.5) <= CONVERGED
        if converged or sweep % SWEEPS_A_BOUND == 0:
            try:
                bound = messages.tree_bound(cover, budget)
            except SpentError:
                break
            if bound.value > best.value and not converged:
                break
            best = min(best, bound, key=lambda tree_bound: tree_bound.value)
        if converged:
            break
    return best


def label_bounds(model: ScoredGraph, q: FloatArray, value: float) -> FloatArray:
    """Return lower bounds (I, C) on the log of the sum over the labelings with y_i = c.

    q : (I, C), a product of node distributions.  value : its bound E_q[s] + H(q), in nats.
    If node i is fixed at c, the other q_j give the bound
    value - E_(q_i)[g_i] - H(q_i) + g_i(c), with g_i(c) the expected score of node i at c and of all
    edges and factors of i.
    """
    expected = empty(q.shape)
    kernels.coordinate_ascent.all_expected_scores(model.pieces, q, expected)
    positive = np.where(q > 0, q, 1.0)
    scores = np.multiply(q, expected, out=np.zeros(q.shape), where=q > 0)
    share = (scores - q * np.log(positive)).sum(axis=1)
    return np.asarray(value - share[:, None] + expected)


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
        full = with_hard_zeros(model)
    parts, order = _Parts(), count()
    root = clamp(full, np.full(full.num_nodes, -1))
    parts.add(bound_part(root, max_cells, budget, too_wide=True), next(order))
    max_parts = min(max_parts, ELIMINATION_MEMORY // _bytes_of_part(full))
    while parts.width > tolerance and len(parts) < max_parts and not budget.is_spent:
        widest = parts.pop()
        if widest is None:
            break
        smaller = _split(widest, max_cells, budget)
        for part in [widest] if smaller is None else smaller:
            parts.add(part, next(order))
    return _result(full, parts, tolerance, begun)


def _split(part: Part, max_cells: int, budget: Budget) -> list[Part] | None:
    """Return the parts with each label of one more node; None if the budget is spent before."""
    node, parts = _uncertain(part), []
    for label in np.flatnonzero(part.above[node] > -np.inf).tolist():
        if budget.is_spent:
            return None
        labels = part.clamped.labels.copy()
        labels[node] = label
        parts.append(bound_part(clamp(part.clamped.full, labels), max_cells, budget))
    return parts


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
        if part.upper == part.lower or part.clamped.rest is None:
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
    rest = part.clamped.rest
    degree = rest.interactions.degree if rest is not None else np.zeros(0)
    score = (entropy[part.clamped.free] + 1e-3) * (degree + 1)
    return int(part.clamped.free[score.argmax()])


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
