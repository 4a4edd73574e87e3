"""Mean field: the best product of simple distributions, and its lower bound on log Z.

For every distribution q, log Z >= E_q[s] + H(q).  `mean_field` ascends this bound over products of
one distribution per node (naive mean field).  `structured_mean_field` does so over products of one
distribution per block of nodes that induces a forest: given the other blocks, the best distribution
of a block is the forest model in which the edges that leave the block are replaced by their
expected scores, added to the node scores (Saul and Jordan 1996; Wiegerinck 2000).  Its bound is
never below that of the naive mean field from which it starts.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    positive_integer,
    positive_number,
)
from fstgrad.core.distribution import masked_inner
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.hard_zeros import with_hard_zeros
from fstgrad.mrf.resources import NO_LIMIT, Budget
from fstgrad.mrf.result import Inference
from fstgrad.mrf.sampling.chains import forest_blocks, start_labels
from fstgrad.mrf.scored_graph import NO_FACTORS, ScoredGraph, Table, infeasible

Progress = Callable[[int, float], None]
MARGINALS_A_CALL = 2**18  # that one call of the kernel computes, about
BLOCK_SWEEPS = 50  # at most
LEAST_GAIN = 1e-6  # stop when a sweep over the blocks raises the bound by less, relative


def mean_field(
    model: ScoredGraph,
    *,
    max_iter: int = 500,
    tol: float = 1e-8,
    rng: Seed = 0,
    progress: Progress | None = None,
) -> Inference:
    """Return the product q = prod_i q_i found by coordinate ascent on E_q[s] + H(q) <= log Z.

    The bound holds after every iteration; at convergence it is a local optimum.  An iteration costs
    O(E C^2 + sum over larger factors of arity * cells).

    Parameters
    ----------
    max_iter : int
        The largest number of iterations.
    tol : float
        Stop when no q_i(c) changes by more than this.
    rng : Generator, int or None
        For the start if edges or factors have hard zeros.  The start is then one allowed labeling,
        because the bound is -inf if q gives a forbidden pair positive probability.  Otherwise the
        start is softmax(node_scores).
    progress : callable
        Called with (iteration, largest change of a q_i(c)).

    Raises
    ------
    InfeasibleError
        A node has no allowed label.
    NotSupportedError
        There are hard zeros, and no allowed labeling was found.
    """
    max_iter = positive_integer("max_iter", max_iter)
    tol = positive_number("tol", tol, allow_zero=True)
    return mean_field_within(model, max_iter, tol, rng, progress)


def mean_field_within(
    model: ScoredGraph,
    max_iter: int = 500,
    tol: float = 1e-8,
    rng: Seed = 0,
    progress: Progress | None = None,
    budget: Budget = NO_LIMIT,
) -> Inference:
    """Return what `mean_field` returns; stops after an iteration, at least one, if time is over."""
    begun = time.perf_counter()
    graph, model = model.graph, with_hard_zeros(model)
    q = _start(model, generator(rng))
    history: list[float] = []
    sweeps_a_call = 1  # signals are handled between calls of the kernel
    if progress is None and budget is NO_LIMIT:
        sweeps_a_call = max(1, min(max_iter, MARGINALS_A_CALL // max(1, model.scores.node.size)))
    while True:
        changes = empty(min(sweeps_a_call, max_iter - len(history)))
        history += changes[
            : kernels.coordinate_ascent.climb(model.pieces, q, tol, changes)
        ].tolist()
        if history[-1] < 0:
            raise infeasible()
        if progress is not None:
            progress(len(history), history[-1])
        if history[-1] <= tol or len(history) == max_iter or budget.is_spent:
            break

    def edge_source(low: int, high: int) -> FloatArray:
        first, second = graph.edges[low:high].T
        pairs: FloatArray = q[first][:, :, None] * q[second][:, None, :]
        return pairs

    result = Inference(
        "mean-field", 0.0, "lower bound", q, edge_source, graph.num_edges,
        factors=_products(model, q), converged=history[-1] <= tol, iterations=len(history),
        residuals=np.array(history),
    )  # fmt: skip
    return replace(
        result, log_partition=_bound(model, result), seconds=time.perf_counter() - begun
    )  # fmt: skip


def _start(model: ScoredGraph, rng: np.random.Generator) -> FloatArray:
    node = model.scores.node
    if model.has_hard_zeros:
        q = np.zeros(node.shape)
        try:
            labels = start_labels(model, rng)
        except NotSupportedError as error:
            raise NotSupportedError(
                "mean-field found no allowed labeling to start from; use method 'bp' or 'trw'"
            ) from error
        q[np.arange(len(q)), labels] = 1.0
        return q
    if (node.max(axis=1) == -np.inf).any():
        raise infeasible()
    q = np.exp(node - node.max(axis=1, keepdims=True))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def _bound(model: ScoredGraph, result: Inference) -> float:
    """Return E_q[s] + H(q) in nats, with the offset."""
    q = result.node
    if model.shared:
        pairs = float(masked_inner(result.edge_sum, model.scores.edge, 2))
    else:
        pairs = float(masked_inner(result.edge, model.scores.edge, 3))
    pairs += float(masked_inner(result.factors, model.factors.table, 1))
    entropy = -float((q * np.log(q, out=np.zeros_like(q), where=q > 0)).sum())
    return float(masked_inner(q, model.scores.node, 2)) + pairs + entropy + model.offset


def _products(model: ScoredGraph, q: FloatArray) -> FloatArray:
    """Return the marginals (cells,) of the larger factors under q (I, C)."""
    if model.factors.number == 0:
        return NO_FACTORS
    out = empty(len(model.factors.table))
    kernels.coordinate_ascent.factor_products(model.factors, q, out)
    return out


class StructuredField(NamedTuple):
    """The bound and its distribution.

    Attributes
    ----------
    value : float
        At most log Z, without the model's constant, in nats.
    node : (I, C) float64
        At most the log of the sum over the labelings in which node i has label c, in nats.
    marginals : Table
        The marginals of q, edge part (E, C, C); at an optimum, they are the gradient of `value`.
    """

    value: float
    node: FloatArray
    marginals: Table


class _Blocks:
    """A model with its edges split into those within blocks and those between blocks.

    All larger factors are between blocks.
    """

    def __init__(self, model: ScoredGraph) -> None:
        self.model = model
        self.block: IntArray = forest_blocks(model)[0]
        edges = model.graph.edges
        inside = self.block[edges[:, 0]] == self.block[edges[:, 1]]
        self.inner, self.cross = np.flatnonzero(inside), np.flatnonzero(~inside)
        if "block forest" not in model.graph.cache:
            model.graph.cache["block forest"] = Graph(
                model.num_nodes, np.ascontiguousarray(edges[self.inner])
            )
        stack = np.broadcast_to(model.edge_stack, (len(edges), *model.edge_stack.shape[1:]))
        self.table = model.scores.edge if model.shared else stack[self.inner]
        hard = stack[self.cross] == -np.inf
        self.soft, self.hard = np.where(hard, 0.0, stack[self.cross]), hard.astype(float)
        self.left, self.right = edges[self.cross].T

    def expected(self, q: FloatArray) -> FloatArray:
        """Return node scores plus the expected scores of edges and factors between blocks.

        q : (I, C), marginals of nodes.  The result is (I, C), with -inf for a label that meets a
        hard zero with positive probability.
        """
        out = self.model.scores.node.copy()
        if self.model.factors.number:
            kernels.coordinate_ascent.add_expected_factors(self.model.factors, q, out)
        for near, far, rule in (
            (self.left, self.right, "ecd,ed->ec"), (self.right, self.left, "ecd,ec->ed"),
        ):  # fmt: skip
            np.add.at(out, near, np.einsum(rule, self.soft, q[far]))
            np.add.at(out, near, np.where(np.einsum(rule, self.hard, q[far]) > 0, -np.inf, 0.0))
        return out

    def forest(self, theta: FloatArray) -> Forest:
        """Return the exact engine of the edges within blocks, with node scores theta (I, C)."""
        graph = self.model.graph.cache["block forest"]
        return Forest(ScoredGraph(graph, theta, self.table, self.model.labels_per_node))

    def value(self, theta: FloatArray, q: Table) -> float:
        """Return E_q[s] + H(q) in nats, for the distribution q of `forest(theta)`."""
        moved = np.where(q.node > 0, theta - self.model.scores.node, 0.0)
        between = np.einsum("ec,ecd,ed->", q.node[self.left], self.soft, q.node[self.right])
        spare = np.zeros(theta.shape)
        larger = kernels.coordinate_ascent.add_expected_factors(self.model.factors, q.node, spare)
        inside = self.forest(theta).log_partition() - float((q.node * moved).sum())
        return inside + float(between) + larger


def structured_mean_field(
    model: ScoredGraph, start: FloatArray, budget: Budget = NO_LIMIT
) -> StructuredField:
    """Return the bound of a model by coordinate ascent over the blocks.

    Parameters
    ----------
    start : (I, C) float64
        Node marginals from which the ascent starts; all labelings in their support are allowed.
    budget : Budget
        If it is spent, stops after the current sweep, but not before two sweeps.

    Raises
    ------
    InfeasibleError
        A block has no allowed labeling, given the support of the others.
    """
    blocks, q = _Blocks(model), start
    theta = blocks.expected(q)
    value = -np.inf
    with np.errstate(invalid="ignore", divide="ignore"):
        for sweep in range(BLOCK_SWEEPS):
            before = value
            below = np.full(q.shape, -np.inf)
            for b in range(int(blocks.block.max()) + 1):
                members = blocks.block == b
                theta = np.where(members[:, None], blocks.expected(q), theta)
                marginals = blocks.forest(theta).marginals()
                q = np.where(members[:, None], marginals.node, q)
                # fixing a label within a block multiplies the block's sum by P(label)
                value = blocks.value(theta, Table(q, marginals.edge))
                below[members] = value + np.log(q[members])
            if value - before <= LEAST_GAIN * max(1.0, abs(value)):
                break
            # during the first sweep, blocks not yet visited keep their start: `below` is no bound
            if sweep > 0 and budget.is_spent:
                break
    edge = q[model.graph.edges[:, 0]][:, :, None] * q[model.graph.edges[:, 1]][:, None, :]
    edge[blocks.inner] = marginals.edge
    # the nodes of a larger factor are in different blocks, so they are independent under q
    return StructuredField(value, below, Table(q, edge, _products(model, q)))
