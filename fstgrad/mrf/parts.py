"""Bounds on one part of Z: the sum over the labelings that agree with some given labels."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError, MemoryLimitError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.block_field import block_field
from fstgrad.mrf.budget import ENDLESS, Budget, SpentError
from fstgrad.mrf.clamping import Clamped
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.exact.plan import ELIMINATION_MEMORY
from fstgrad.mrf.mean_field import climbed
from fstgrad.mrf.messages.tree_reweighted import tree_messages
from fstgrad.mrf.messages.tree_weights import TreeBound, tree_cover
from fstgrad.mrf.mini_buckets import MiniBuckets
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.sequential import sought
from fstgrad.mrf.table import Table

SWEEPS = 100  # at most, of tree-reweighted messages and of mean field
LARGEST_BUCKET = 1 << 16  # cells
FEW_CELLS = 1 << 18  # of larger factors; with more, sweeps of trees are slow
QUICK_CELLS = 1 << 23  # mini-buckets with this many cells take less than a second
CELLS_OF_A_BUCKET = 2000  # overhead of a mini-bucket, in cells
ALWAYS_SUMMED = 1 << 18  # an elimination with this many cells is done whatever time is left
SECONDS_A_CELL = 2e-8  # of an elimination, for log Z and the marginals
SETTLED = 1e-4  # messages whose largest change is at most this (nats) have converged
LOOK = 20  # sweeps between two evaluations of the bound


@dataclass(frozen=True, eq=False)
class Part:
    """Bounds on the part of Z with some given labels; all are logarithms, in nats.

    given : the model with these labels.
    lower, upper : bounds on the part.
    below, above : (I, C), bounds on the sum over the labelings of the part with label c of node i.
    lower_gradient, upper_gradient : the gradients of the bounds by the scores, None for -inf.
    """

    given: Clamped
    lower: float
    upper: float
    below: FloatArray
    above: FloatArray
    lower_gradient: Table | None
    upper_gradient: Table | None


def part_of(given: Clamped, max_cells: int, budget: Budget, *, too_wide: bool = False) -> Part:
    """Return the bounds of one part; if the budget is spent, those after one sweep.

    max_cells : a part whose elimination needs at most this many cells is summed exactly.
    too_wide : whether an exact sum is known to be too expensive; then it is not tried.
    """
    rest = given.rest
    if given.value == -np.inf:
        return _dead(given)
    if rest is None:
        value, table = given.value, given.table(None)
        both = given.expand(np.zeros((0, given.whole.num_labels)), -np.inf, value)
        return Part(given, value, value, both, both, table, table)
    try:
        with suppress(MemoryLimitError):
            if not too_wide:
                return _summed(given, rest, max_cells, budget)
        return _bounded(given, rest, max_cells, budget)
    except InfeasibleError:
        return _dead(given)


def _dead(given: Clamped) -> Part:
    nothing = np.full(given.whole.scores.node.shape, -np.inf)
    return Part(given, -np.inf, -np.inf, nothing, nothing, None, None)


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


def _summed(given: Clamped, rest: ScoredGraph, max_cells: int, budget: Budget) -> Part:
    """Return the exact part, or raise MemoryLimitError if it is too expensive."""
    engine = engine_of(rest, max_cells, budget)
    value = engine.log_partition() + given.value
    table = given.table(engine.marginals())
    with np.errstate(divide="ignore"):
        both = np.log(table.node) + value
    return Part(given, value, value, both, both, table, table)


def _bounded(given: Clamped, rest: ScoredGraph, max_cells: int, budget: Budget) -> Part:
    """Return the part with upper bounds from mini-buckets and trees, lower ones from mean field."""
    upper, marginals, above = np.inf, None, rest.scores.node
    methods = [_best_of_trees]
    if max_cells > 0:
        cells = rest.num_nodes * (min(max_cells, LARGEST_BUCKET) + CELLS_OF_A_BUCKET)
        quick = cells <= QUICK_CELLS or len(rest.factors.table) > FEW_CELLS
        methods.insert(0 if quick else 1, _best_of_buckets)
    try:
        for method in methods:
            try:
                found = method(rest, max_cells, budget, ENDLESS if upper == np.inf else budget)
            except SpentError:
                break
            above = np.minimum(above, found.node) if upper < np.inf else found.node
            if found.value < upper:
                upper, marginals = found.value, found.marginals
    except InfeasibleError:
        return _dead(given)
    above = np.minimum(above, upper)
    above = given.expand(above + given.value, -np.inf, upper + given.value)
    lower, below, gradient = _fields(rest, budget)
    lower = min(lower, upper)
    below = given.expand(below + given.value, -np.inf, lower + given.value)
    return Part(
        given, lower + given.value, upper + given.value, np.minimum(below, above), above,
        None if gradient is None else given.table(gradient), given.table(marginals),
    )  # fmt: skip


def _fields(rest: ScoredGraph, budget: Budget) -> tuple[float, FloatArray, Table | None]:
    """Return the best mean-field bound, lower bounds for all labels (I, C), and its gradient.

    Mean field over forests starts from naive mean field and from a labeling of high score.
    Returns (-inf, all -inf, None) if no allowed start is found.
    """
    lower, gradient = -np.inf, None
    below = np.full(rest.scores.node.shape, -np.inf)
    starts = []
    try:
        inner = climbed(rest, max_iter=SWEEPS, budget=budget)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        lower, gradient = inner.log_partition, Table(inner.node, inner.edge, inner.factors)
        below = label_bounds(rest, inner.node, lower)
        starts.append(inner.node)
    if budget.is_spent:
        return lower, below, gradient
    try:
        best = sought(rest, max_iter=20, max_cells=0, restarts=1, budget=budget)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        starts.append(rest.parts(best.labels).node)
    for start in takewhile(lambda _: not budget.is_spent, starts):
        blocks = block_field(rest, start, budget)
        below = np.maximum(below, blocks.node)
        if blocks.value > lower:
            lower, gradient = blocks.value, blocks.marginals
    return lower, below, gradient


def _best_of_buckets(rest: ScoredGraph, max_cells: int, budget: Budget, first: Budget) -> TreeBound:
    """Return the bound of mini-buckets; raise SpentError if the budget `first` is spent.

    The budget of the search for an order is `budget`.
    """
    buckets = MiniBuckets(rest, min(max_cells, LARGEST_BUCKET), budget=first, search=budget)
    node = np.where(rest.scores.node > -np.inf, buckets.value, -np.inf)
    return TreeBound(buckets.value, node, buckets.gradient())


def _best_of_trees(rest: ScoredGraph, max_cells: int, budget: Budget, first: Budget) -> TreeBound:
    """Return the least bound of trees over the sweeps; flooding messages may not converge.

    The bound before the first sweep has its own budget `first`; raises SpentError if it is spent.
    """
    cover = tree_cover(rest.links)
    messages = tree_messages(rest, 1, cover.rho)
    best = messages.tree_bound(cover, first)
    for sweep in range(1, SWEEPS + 1):
        if budget.is_spent:
            break
        settled = messages.sweep(0.5) <= SETTLED
        if settled or sweep % LOOK == 0:
            try:
                found = messages.tree_bound(cover, budget)
            except SpentError:
                break
            if found.value > best.value and not settled:
                break
            best = min(best, found, key=lambda bound: bound.value)
        if settled:
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
    kernels.coordinates.all_expected_scores(model.pieces, q, expected)
    held = np.where(q > 0, q, 1.0)
    scores = np.multiply(q, expected, out=np.zeros(q.shape), where=q > 0)
    own = (scores - q * np.log(held)).sum(axis=1)
    return np.asarray(value - own[:, None] + expected)
