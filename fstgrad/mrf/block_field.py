"""A lower bound on log Z by structured mean field over forests.

The nodes are split into blocks that induce forests.  For a product q of one distribution per block,
log Z >= E_q[s] + H(q).  Given the other blocks, the best distribution of a block is the forest
model in which the edges that leave the block are replaced by their expected scores, added to the
node scores (Saul and Jordan 1996; Wiegerinck 2000).  The bound is never below that of the naive
mean field from which it starts.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.budget import ENDLESS, Budget
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.sampling.chains import forest_blocks
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.table import Table

SWEEPS = 50  # at most
SETTLED = 1e-6  # stop when a sweep raises the bound by less than this, relative


class BlockField(NamedTuple):
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
            kernels.coordinates.add_expected_factors(self.model.factors, q, out)
        for own, other, rule in (
            (self.left, self.right, "ecd,ed->ec"), (self.right, self.left, "ecd,ec->ed"),
        ):  # fmt: skip
            np.add.at(out, own, np.einsum(rule, self.soft, q[other]))
            np.add.at(out, own, np.where(np.einsum(rule, self.hard, q[other]) > 0, -np.inf, 0.0))
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
        larger = kernels.coordinates.add_expected_factors(self.model.factors, q.node, spare)
        inside = self.forest(theta).log_partition() - float((q.node * moved).sum())
        return inside + float(between) + larger

    def cells(self, q: FloatArray) -> FloatArray:
        """Return the marginals (cells,) of larger factors: their nodes are in different blocks."""
        out = empty(len(self.model.factors.table))
        kernels.coordinates.factor_products(self.model.factors, q, out)
        return out


def block_field(model: ScoredGraph, start: FloatArray, budget: Budget = ENDLESS) -> BlockField:
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
        for sweep in range(SWEEPS):
            before = value
            below = np.full(q.shape, -np.inf)
            for b in range(int(blocks.block.max()) + 1):
                own = blocks.block == b
                theta = np.where(own[:, None], blocks.expected(q), theta)
                found = blocks.forest(theta).marginals()
                q = np.where(own[:, None], found.node, q)
                # fixing a label within a block multiplies the block's sum by P(label)
                value = blocks.value(theta, Table(q, found.edge))
                below[own] = value + np.log(q[own])
            if value - before <= SETTLED * max(1.0, abs(value)):
                break
            # during the first sweep, blocks not yet visited keep their start: `below` is no bound
            if sweep > 0 and budget.is_spent:
                break
    edge = q[model.graph.edges[:, 0]][:, :, None] * q[model.graph.edges[:, 1]][:, None, :]
    edge[blocks.inner] = found.edge
    return BlockField(value, below, Table(q, edge, blocks.cells(q)))
