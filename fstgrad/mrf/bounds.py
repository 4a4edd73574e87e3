"""Certified bounds of log Z and of marginals, as close as the tolerance.

- Above: weighted mini-buckets (`mini_buckets`), and the mean of log Z over spanning trees, at the
  messages of tree-reweighted belief propagation (`messages.tree_weights`).
- Below: mean field, E_q[s] + H(q), over single nodes and over forests (`block_field`).
- Both for every label of every node: the trees' sums over the labelings with that label, and
  the mean-field bounds with that node fixed.
- Closer: a node is given each of its labels in turn, which splits Z into a sum of smaller ones
  (Weller and Jebara 2014, "Clamping variables and approximate inference").  The part with the
  widest bounds is split first; a part that is narrow enough is summed exactly.
"""

import heapq
import time
from dataclasses import dataclass
from itertools import count

import numpy as np

from fstgrad.checks import FloatArray, positive_integer, positive_number
from fstgrad.errors import InfeasibleError, MemoryLimitError, NotSupportedError
from fstgrad.mrf import kernels
from fstgrad.mrf.block_field import block_field
from fstgrad.mrf.clamping import Clamped, clamp
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.factors import pairwise_form
from fstgrad.mrf.masks import without_masks
from fstgrad.mrf.mean_field import mean_field
from fstgrad.mrf.messages.arcs import GraphMessages
from fstgrad.mrf.messages.tree_weights import TreeBound, tree_cover
from fstgrad.mrf.mini_buckets import MiniBuckets
from fstgrad.mrf.result import Bounds
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.sequential import tree_mode
from fstgrad.mrf.table import Table

SWEEPS = 100
LARGEST_BUCKET = 1 << 16  # cells
SETTLED = 1e-4
LOOK = 20  # sweeps between two bounds


@dataclass(frozen=True, eq=False)
class Part:
    """What is known about Z given some labels: logarithms, in nats.

    `below` and `above` (I, C) bound the sums over the labelings with one more label; the tables are
    the gradients of `lower` and `upper`, None where that is -inf.
    """

    given: Clamped
    lower: float
    upper: float
    below: FloatArray
    above: FloatArray
    lower_gradient: Table | None
    upper_gradient: Table


def bounds(
    model: ScoredGraph,
    *,
    tolerance: float = 0.01,
    max_parts: int = 1000,
    max_seconds: float = 60.0,
    max_cells: int = 1 << 20,
) -> Bounds:
    """Return bounds on log Z and on every marginal of a node.

    Parameters
    ----------
    tolerance : float
        Stop when upper - lower is at most this, in nats.
    max_parts : int
        Stop when Z is a sum of more parts.
    max_seconds : float
    max_cells : int
        A part whose elimination needs at most this many cells in its largest table is summed
        exactly, and a mini-bucket has at most this many, or 65536; 0 for trees and mean field
        only.

    Raises
    ------
    MemoryLimitError
        A model with larger factors that is too wide for `max_cells` and whose pairwise form needs
        more than 4 GiB.
    """
    begun = time.perf_counter()
    positive_number("tolerance", tolerance, allow_zero=True)
    positive_integer("max_parts", max_parts)
    positive_integer("max_cells", max_cells, minimum=0)
    positive_number("max_seconds", max_seconds)
    try:
        return _exact(model, max_cells, begun)
    except MemoryLimitError:
        model = without_masks(model)
        whole = model if model.factors.number == 0 else pairwise_form(model)
    start = _part(clamp(whole, np.full(whole.num_nodes, -1)), max_cells)
    parts, order = _Parts(), count()
    parts.add(start, next(order))
    while (
        parts.width > tolerance
        and len(parts) < max_parts
        and time.perf_counter() - begun < max_seconds
    ):
        widest = parts.pop()
        if widest is None:
            break
        node = _uncertain(widest)
        for label in range(int(whole.labels_per_node[node])):
            if widest.above[node, label] > -np.inf:
                labels = widest.given.labels.copy()
                labels[node] = label
                parts.add(_part(clamp(whole, labels), max_cells), next(order))
    return _result(model, whole, parts, tolerance, begun)


class _Parts:
    """The parts of Z; those that can be split in a heap by the width of their bounds."""

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
        # log(e^upper - e^lower): what splitting this part can gain
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


def _part(given: Clamped, max_cells: int) -> Part:
    """Return the bounds of one part."""
    rest = given.rest
    if rest is None or given.value == -np.inf:
        both = given.expand(np.full((len(given.free), given.whole.num_labels), -np.inf),
                            -np.inf, given.value)  # fmt: skip
        none = given.table(None if rest is None else Table(
            np.zeros(rest.scores.node.shape),
            np.zeros((rest.graph.num_edges, rest.num_labels, rest.num_labels))))  # fmt: skip
        return Part(given, given.value, given.value, both, both, none, none)
    try:
        return _summed(given, rest, max_cells)
    except MemoryLimitError:
        return _bounded(given, rest, max_cells)
    except InfeasibleError:
        return _dead(given)


def _dead(given: Clamped) -> Part:
    nothing = np.full(given.whole.scores.node.shape, -np.inf)
    zeros = Table(np.zeros(nothing.shape), np.zeros((given.whole.graph.num_edges, 1, 1)))
    return Part(given, -np.inf, -np.inf, nothing, nothing, None, zeros)


def _engine(model: ScoredGraph, max_cells: int) -> Forest | Elimination:
    """Return exact inference, or raise MemoryLimitError."""
    if model.is_forest:
        return Forest(model)
    if max_cells == 0:
        raise MemoryLimitError("max_cells is 0")
    return Elimination(model, 8 * max_cells)


def _summed(given: Clamped, rest: ScoredGraph, max_cells: int) -> Part:
    """Return the exact sum, or raise MemoryLimitError."""
    engine = _engine(rest, max_cells)
    value = engine.log_partition() + given.value
    table = given.table(engine.marginals())
    with np.errstate(divide="ignore"):
        both = np.log(table.node) + value
    return Part(given, value, value, both, both, table, table)


def _bounded(given: Clamped, rest: ScoredGraph, max_cells: int) -> Part:
    """Return the bounds of mini-buckets and trees, and those of mean field."""
    try:
        trees = _best_of_trees(rest)
        upper, marginals = trees.value, trees.marginals
        if max_cells > 0:
            buckets = MiniBuckets(rest, min(max_cells, LARGEST_BUCKET))
            if buckets.value < upper:
                upper, marginals = buckets.value, buckets.gradient()
    except InfeasibleError:
        return _dead(given)
    above = given.expand(np.minimum(trees.node, upper) + given.value, -np.inf, upper + given.value)
    lower, below, gradient = _fields(rest)
    lower = min(lower, upper)
    below = given.expand(below + given.value, -np.inf, lower + given.value)
    return Part(
        given, lower + given.value, upper + given.value, np.minimum(below, above), above,
        None if gradient is None else given.table(gradient), given.table(marginals),
    )  # fmt: skip


def _fields(rest: ScoredGraph) -> tuple[float, FloatArray, Table | None]:
    """Return the best bound of mean field, those of all labels (I, C), and its gradient.

    Forests start from naive mean field and from a labeling of high score.
    """
    lower, gradient = -np.inf, None
    below = np.full(rest.scores.node.shape, -np.inf)
    starts = []
    try:
        inner = mean_field(rest, max_iter=SWEEPS)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        lower, gradient = inner.log_partition, Table(inner.node, inner.edge)
        below = label_bounds(rest, inner.node, lower)
        starts.append(inner.node)
    try:
        best = tree_mode(rest, max_iter=20, max_cells=0, restarts=1)
    except (InfeasibleError, NotSupportedError):
        pass
    else:
        starts.append(rest.parts(best.labels).node)
    for start in starts:
        blocks = block_field(rest, start)
        below = np.maximum(below, blocks.node)
        if blocks.value > lower:
            lower, gradient = blocks.value, blocks.marginals
    return lower, below, gradient


def _best_of_trees(rest: ScoredGraph) -> TreeBound:
    """Return the least bound of trees along the sweeps; parallel messages need not settle."""
    cover = tree_cover(rest.graph)
    messages = GraphMessages(rest, 0, 1, cover.rho)
    best = messages.tree_bound(cover)
    for sweep in range(1, SWEEPS + 1):
        settled = messages.sweep(0.5) <= SETTLED
        if settled or sweep % LOOK == 0:
            found = messages.tree_bound(cover)
            if found.value > best.value and not settled:
                break
            best = min(best, found, key=lambda bound: bound.value)
        if settled:
            break
    return best


def label_bounds(model: ScoredGraph, q: FloatArray, value: float) -> FloatArray:
    """Return mean-field bounds (I, C) on the sums over the labelings with one label.

    `value` = E_q[s] + H(q).  With node i fixed at c the other q_j give the bound
    value - E_(q_i)[g_i] - H(q_i) + g_i(c), g_i(c) = E[s | y_i = c] less what does not touch i.
    """
    expected = np.empty(q.shape)
    kernels.coordinates.all_expected_scores(model.pieces, q, expected)
    held = np.where(q > 0, q, 1.0)
    scores = np.multiply(q, expected, out=np.zeros(q.shape), where=q > 0)
    own = (scores - q * np.log(held)).sum(axis=1)
    return np.asarray(value - own[:, None] + expected)


def _uncertain(part: Part) -> int:
    """Return the node to split at: many neighbours, an uncertain label."""
    p = part.upper_gradient.node
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    rest = part.given.rest
    degree = rest.graph.degree if rest is not None else np.empty(0)
    score = (entropy[part.given.free] + 1e-3) * (degree + 1)
    return int(part.given.free[score.argmax()])


def _exact(model: ScoredGraph, max_cells: int, begun: float) -> Bounds:
    """Return bounds without a gap, or raise MemoryLimitError."""
    engine = _engine(model, max_cells)
    value, table = engine.log_partition() + model.offset, engine.marginals()
    return Bounds(
        "bounds", value, "bounds", table.node, lambda low, high: table.edge[low:high].copy(),
        model.graph.num_edges, factors=table.factors, seconds=time.perf_counter() - begun,
        lower=value, upper=value, node_lower=table.node, node_upper=table.node,
        lower_gradient=table, upper_gradient=table, parts=1,
    )  # fmt: skip


def _result(
    model: ScoredGraph, whole: ScoredGraph, parts: _Parts, tolerance: float, begun: float
) -> Bounds:
    every = parts.all()
    if not every:
        raise infeasible()
    lowers, uppers = (np.array([getattr(p, name) for p in every]) for name in ("lower", "upper"))
    lower, upper = float(np.logaddexp.reduce(lowers)), float(np.logaddexp.reduce(uppers))
    below = np.logaddexp.reduce([p.below for p in every], axis=0)
    above = np.logaddexp.reduce([p.above for p in every], axis=0)
    bottom, top = _marginal_bounds(below, above)
    gradients = [
        _of_model(model, whole, _mixed([getattr(p, name) for p in every], values, total))
        for name, values, total in (
            ("lower_gradient", lowers, lower), ("upper_gradient", uppers, upper),
        )
    ]  # fmt: skip
    low, high = gradients
    middle = high if lower == -np.inf else Table(
        (low.node + high.node) / 2, (low.edge + high.edge) / 2, (low.factors + high.factors) / 2
    )  # fmt: skip
    nodes, size = model.num_nodes, model.num_labels
    value = upper if lower == -np.inf else (lower + upper) / 2
    return Bounds(
        "bounds", value + model.offset, "bounds", middle.node,
        lambda first, last: middle.edge[first:last].copy(), model.graph.num_edges,
        factors=middle.factors, converged=upper - lower <= tolerance, iterations=len(every),
        seconds=time.perf_counter() - begun, lower=lower + model.offset,
        upper=upper + model.offset, node_lower=bottom[:nodes, :size],
        node_upper=top[:nodes, :size], lower_gradient=low, upper_gradient=high, parts=len(every),
    )  # fmt: skip


def _marginal_bounds(below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds on P(y_i = c) from bounds on the sums over the labelings with y_i = c."""

    def ratio(one: FloatArray, other: FloatArray) -> FloatArray:
        """Return e^one / (e^one + sum over the other labels of e^other)."""
        rest = np.full(one.shape, -np.inf)
        for c in range(one.shape[1]):
            rest[:, c] = np.logaddexp.reduce(np.delete(other, c, axis=1), axis=1, initial=-np.inf)
        both = np.logaddexp(one, rest)
        with np.errstate(invalid="ignore"):
            return np.where(one == -np.inf, 0.0, np.exp(one - both))

    return ratio(below, above), ratio(above, below)


def _mixed(tables: list[Table | None], values: FloatArray, total: float) -> Table:
    """Return the gradient of a log-sum-exp from those of its terms."""
    found = [
        (np.exp(value - total), table)
        for value, table in zip(values, tables, strict=True)
        if table is not None and value > -np.inf
    ]
    if not found:
        first = next(table for table in tables if table is not None)
        return Table(np.zeros(first.node.shape), np.zeros(first.edge.shape))
    node = sum(weight * table.node for weight, table in found)
    edge = sum(weight * table.edge for weight, table in found)
    return Table(np.asarray(node), np.asarray(edge))


def _of_model(model: ScoredGraph, whole: ScoredGraph, table: Table) -> Table:
    """Return the marginals of a model from those of its pairwise form."""
    if whole is model:
        return table
    nodes, size = model.num_nodes, model.num_labels
    larger = [
        table.node[nodes + f, : int(np.prod(model.factors.shape(f)))]
        for f in range(model.factors.number)
    ]
    edge = table.edge[: model.graph.num_edges, :size, :size]
    return Table(table.node[:nodes, :size], edge, np.concatenate(larger))
