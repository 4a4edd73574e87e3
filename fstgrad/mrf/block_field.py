"""A lower bound on log Z by mean field over forests: the nodes of a block are drawn jointly.

The nodes are split into blocks that are forests.  For a product q of distributions over the blocks,
log Z >= E_q[s] + H(q); the best distribution for a block, given the others, is the forest with the
expected scores of the edges that leave it (Saul and Jordan 1996; Wiegerinck 2000).  The bound is
never below that of the naive mean field from which it starts.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.mrf import kernels
from fstgrad.mrf.budget import ENDLESS, Budget
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.sampling.chains import forest_blocks
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.table import Table

SWEEPS = 50
SETTLED = 1e-6


class BlockField(NamedTuple):
    """The bound and its distribution.

    Attributes
    ----------
    value : float
        At most log Z, without the model's constant, in nats.
    node : (I, C) float64
        At most the log of the sum over the labelings in which node i has label c.
    marginals : Table
        The marginals of q; at an optimum, they are the gradient of `value`.
    """

    value: float
    node: FloatArray
    marginals: Table


class _Blocks:
    """A model with its edges inside of blocks and between them; larger factors are between."""

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
        """Return node scores plus the expected scores of edges between blocks under q."""
        out = self.model.scores.node.copy()
        if self.model.factors.number:
            kernels.coordinates.add_expected_factors(self.model.factors, q, out)
        for own, other, rule in (
            (self.left, self.right, "ecd,ed->ec"), (self.right, self.left, "ecd,ec->ed"),
        ):  # fmt: skip
            np.add.at(out, own, np.einsum(rule, self.soft, q[other]))
            np.add.at(out, own, np.where(np.einsum(rule, self.hard, q[other]) > 0, -np.inf, 0.0))
        return out

    def forest(self, theta: FloatArray) -> Forest:
        """Return the forests with these node scores."""
        graph = self.model.graph.cache["block forest"]
        return Forest(ScoredGraph(graph, theta, self.table, self.model.labels_per_node))

    def value(self, theta: FloatArray, q: Table) -> float:
        """Return E_q[s] + H(q) of the forests' distribution q."""
        moved = np.where(q.node > 0, theta - self.model.scores.node, 0.0)
        between = np.einsum("ec,ecd,ed->", q.node[self.left], self.soft, q.node[self.right])
        spare = np.zeros(theta.shape)
        larger = kernels.coordinates.add_expected_factors(self.model.factors, q.node, spare)
        inside = self.forest(theta).log_partition() - float((q.node * moved).sum())
        return inside + float(between) + larger

    def cells(self, q: FloatArray) -> FloatArray:
        """Return the marginals of the larger factors, no two of whose nodes share a block."""
        out = np.empty(len(self.model.factors.table))
        kernels.coordinates.factor_products(self.model.factors, q, out)
        return out


def block_field(model: ScoredGraph, start: FloatArray, budget: Budget = ENDLESS) -> BlockField:
    """Return the bound of a model, from marginals (I, C) of an allowed product.

    Raises
    ------
    InfeasibleError
        No product of this support is allowed.
    """
    blocks, q = _Blocks(model), start
    theta = blocks.expected(q)
    value = -np.inf
    with np.errstate(invalid="ignore", divide="ignore"):
        for sweep in range(SWEEPS):
            before = value
            below = np.full(q.shape, -np.inf)
            for b in range(int(blocks.block.max()) + 1):
                own = blocks.block == b
                theta = np.where(own[:, None], blocks.expected(q), theta)
                found = blocks.forest(theta).marginals()
                q = np.where(own[:, None], found.node, q)
                # the labelings of a block with one label weigh P(label) of what all of them do
                value = blocks.value(theta, Table(q, found.edge))
                below[own] = value + np.log(q[own])
            if value - before <= SETTLED * max(1.0, abs(value)):
                break
            if sweep > 0 and budget.is_spent:  # in the first one, some blocks are as they came
                break
    edge = q[model.graph.edges[:, 0]][:, :, None] * q[model.graph.edges[:, 1]][:, None, :]
    edge[blocks.inner] = found.edge
    return BlockField(value, below, Table(q, edge, blocks.cells(q)))
