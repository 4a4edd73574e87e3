"""Markov chains on labelings: the moves of all samplers, one chain at a time."""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray, one_of
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    MemoryLimitError,
    NotSupportedError,
)
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import GridScores
from fstgrad.mrf.exact.engine import exact
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.sampling.chromatic import ChromaticSweeps
from fstgrad.mrf.scored_graph import ScoredGraph

Sampler = Literal["gibbs", "chromatic", "blocked", "metropolis", "swendsen-wang"]
SAMPLERS = ("gibbs", "chromatic", "blocked", "metropolis", "swendsen-wang")
PARALLEL_SITES = 15_000  # with fewer nodes of a colour, one thread is used
KEYS = 2**62  # kernels compute each random number from a key and a counter
REPLICAS = 20  # of parallel tempering
LEAST_BETA = 0.25


def new_key(rng: np.random.Generator) -> int:
    """Return a random key in [0, 2^62)."""
    return int(rng.integers(KEYS))


def new_keys(rng: np.random.Generator, number: int) -> list[int]:
    """Return `number` random keys in [0, 2^62), for independent streams."""
    keys: list[int] = rng.integers(KEYS, size=number).tolist()
    return keys


class Chain:
    """The state of one chain.

    Parameters
    ----------
    model : ScoredGraph
    sampler : str
        What a sweep does.  "gibbs": I draws at random nodes; "chromatic": every node once, one
        colour class at a time; "blocked": every node once, each induced forest drawn jointly (Hamze
        and de Freitas 2004); "metropolis": I proposals of a random label at a random node;
        "swendsen-wang": draws bonds, then a label for every cluster of bonds, for strong couplings
        and models without larger factors (see `edge_strengths`).
    labels : (I,) int64
        The initial labeling, which must be allowed.
    key : int
        The key of the random numbers; the draws depend only on it and on the number of sweeps.
    threads : int
        For "chromatic", within a colour; the draws do not depend on it.

    Attributes
    ----------
    labels : (I,) int64
        The current labeling.
    sweeps : int
        The number of sweeps made.

    Raises
    ------
    NotSupportedError
        "swendsen-wang" for a model with larger factors.
    """

    def __init__(
        self, model: ScoredGraph, sampler: Sampler, labels: IntArray, key: int, threads: int = 1
    ) -> None:
        sampler = cast(Sampler, one_of("sampler", sampler, SAMPLERS))
        if sampler == "swendsen-wang" and model.factors.number:
            raise NotSupportedError(
                "swendsen-wang clusters pairs of nodes, but the model has larger factors; use "
                "method 'tempered' or 'blocked'"
            )
        self.model, self.sampler, self.key = model, sampler, key
        self.labels = labels.copy()
        self.sweeps = 0
        self.threads = threads

    def advance(self, sweeps: int) -> None:
        """Make `sweeps` sweeps."""
        move = {
            "gibbs": self._random_sites,
            "metropolis": self._metropolis,
            "chromatic": self._grid_colours if self._is_binary_grid else self._colours,
            "blocked": self._blocks,
            "swendsen-wang": self._clusters,
        }[self.sampler]
        # random numbers per sweep: three per node, or one for each edge and node
        room = 3 * self.model.num_nodes
        if self.sampler == "swendsen-wang":
            room = self.model.num_nodes + self.model.graph.num_edges
        if move == self._colours and self._chromatic_sweeps is not None:
            self._chromatic_sweeps.sweep(sweeps, self.key, room * self.sweeps, room, self.labels)
            self.sweeps += sweeps
            return
        for _ in range(sweeps):
            move(room * self.sweeps)
            self.sweeps += 1

    @property
    def _is_binary_grid(self) -> bool:
        model = self.model
        return (
            model.graph.grid is not None
            and model.edge_stack.shape == (1, 2, 2)
            and model.factors.number == 0
        )

    def _random_sites(self, counter: int) -> None:
        nowhere = np.zeros(0, np.int64)
        kernels.sites.gibbs_sites(
            0,
            self.model.num_nodes,
            nowhere,
            self.key,
            counter,
            self.model.pieces,
            self.labels,
        )

    def _metropolis(self, counter: int) -> None:
        kernels.sites.metropolis_steps(
            self.model.num_nodes, self.key, counter, self.model.pieces,
            self.model.labels_per_node, self.labels,
        )  # fmt: skip

    def _clusters(self, counter: int) -> None:
        kernels.swendsen_wang.cluster_sweep(
            self.key, counter, self.model.pieces, self._strengths, self.labels
        )

    @cached_property
    def _strengths(self) -> FloatArray:
        return edge_strengths(self.model)

    @cached_property
    def _chromatic_sweeps(self) -> ChromaticSweeps | None:
        """The draws of a model without larger factors, else None."""
        if self.model.factors.number:
            return None
        return ChromaticSweeps(self.model, self.threads, PARALLEL_SITES)

    def _colours(self, counter: int) -> None:
        for sites, bands in self._classes:

            def band(low: int, high: int, sites: IntArray = sites) -> None:
                kernels.sites.gibbs_sites(
                    low, high, sites, self.key, counter, self.model.pieces, self.labels
                )

            bands(band)

    @cached_property
    def _classes(self) -> list[tuple[IntArray, ThreadRanges]]:
        """The nodes of each colour, with their division among threads."""
        colour = self.model.interactions.colour
        classes = [np.flatnonzero(colour == k).astype(np.int64) for k in range(colour.max() + 1)]
        return [
            (sites, ThreadRanges(len(sites), self.threads, PARALLEL_SITES)) for sites in classes
        ]

    def _grid_colours(self, counter: int) -> None:
        scores = self._grid_tables
        labels = self.labels.reshape(scores.node.shape[:2])
        for parity in (0, 1):

            def band(low: int, high: int, parity: int = parity) -> None:
                kernels.sites.grid_rows(low, high, parity, self.key, counter, scores, labels)

            self._rows(band)

    @cached_property
    def _rows(self) -> ThreadRanges:
        height, width = self.model.graph.grid or (0, 0)
        return ThreadRanges(height, self.threads if height * width >= 2 * PARALLEL_SITES else 1)

    @cached_property
    def _grid_tables(self) -> GridScores:
        node = self.model.scores.node.reshape(*(self.model.graph.grid or ()), -1)
        p = self.model.potentials
        return GridScores(
            node, np.exp(node - node.max(axis=-1, keepdims=True)), p.exp_edge[0],
            np.ascontiguousarray(p.exp_edge[0].T), p.edge[0],
        )  # fmt: skip

    def _blocks(self, counter: int) -> None:
        graph, p = self.model.graph, self.model.potentials
        block, orders, parent_arc = forest_blocks(self.model)
        total, messages, scale, numbers = self._scratch
        kernels.sites.fill_uniform(self.key, counter, numbers)
        for order in orders:
            kernels.sites.block_totals(order, block, self.model.pieces, self.labels, total)
            kernels.forests.sweep_up(order, parent_arc, graph.source, p, 0, total, messages, scale)
            kernels.forests.draw(
                order, parent_arc, graph.source, p.edge, total, numbers, self.labels
            )

    @cached_property
    def _scratch(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        nodes, size = self.model.scores.node.shape
        arcs = 2 * self.model.graph.num_edges
        return empty((nodes, size)), empty((arcs, size)), empty(nodes), empty(nodes)


def edge_strengths(model: ScoredGraph) -> FloatArray:
    """Return the bond strength of each edge (K,) float64, in nats: J for a Potts table J [a = b].

    The strength is the trace of the table without its row and column means, divided by C - 1.  For
    two labels and for Potts tables, the bonds then represent the edge completely up to node scores,
    and clusters move freely.  In general, bonds of any strength leave the distribution invariant
    (Swendsen and Wang 1987; Higdon 1998, "Auxiliary variable methods", for scores that
    bonds do not represent).  A negative strength bonds labels that differ if there are two labels;
    with more labels it is replaced by 0.  Tables with hard zeros have strength 0.
    """
    edge = model.edge_stack
    size = model.num_labels
    if size == 1:
        return np.zeros(len(edge))
    finite = np.isfinite(edge).all(axis=(1, 2), keepdims=True)
    table: FloatArray = np.where(finite, edge, 0.0)
    table = table - table.mean(axis=1, keepdims=True)
    table = table - table.mean(axis=2, keepdims=True)
    strength: FloatArray = np.trace(table, axis1=1, axis2=2) / (size - 1)
    return strength if size == 2 else np.maximum(strength, 0.0)


def forest_blocks(model: ScoredGraph) -> tuple[IntArray, list[IntArray], IntArray]:
    """Return a partition of the nodes into blocks, each of which induces a forest; cached.

    Returns the block of each node (I,); for each block its nodes, parents before children; and the
    arc (I,) from each node's parent, -1 for roots; all int64.  A 4-connected grid has two blocks in
    the shape of combs: even rows joined by the first column, odd rows joined by the last.  On other
    graphs, each node joins the first block that it fits, so that a forest is one block.  No
    two nodes of a larger factor are in the same block.
    """
    graph = model.graph
    if "blocks" not in graph.cache:
        by_combs = model.factors.number == 0 and not graph.is_forest
        block = _combs(*graph.grid) if by_combs and graph.grid else _first_fit_forests(model)
        parent_arc = np.full(graph.num_nodes, -1, np.int64)
        orders = []
        for b in range(int(block.max()) + 1):
            order = empty(graph.num_nodes, np.int64)
            member = (block == b).astype(np.int64)
            count = kernels.graphs.breadth_first(graph.outgoing, member, order, parent_arc)
            orders.append(order[:count].copy())
        graph.cache["blocks"] = block, orders, parent_arc
    cached: tuple[IntArray, list[IntArray], IntArray] = graph.cache["blocks"]
    return cached


def _combs(height: int, width: int) -> IntArray:
    block = np.zeros((height, width), np.int64)
    block[1::2] = 1
    block[:, -1] = 1
    block[:, 0] = 0
    return block.ravel()


def _first_fit_forests(model: ScoredGraph) -> IntArray:
    """Return the block of each node: the first in which it closes no cycle and shares no factor."""
    graph, factors = model.graph, model.factors
    block = np.full(graph.num_nodes, -1, np.int64)
    roots: list[dict[int, int]] = []
    for v in range(graph.num_nodes):
        near = graph.source[graph.leaving[graph.start[v] : graph.start[v + 1]] ^ 1].tolist()
        slots = factors.near[factors.near_start[v] : factors.near_start[v + 1]]
        tied = {u for f in factors.owner[slots].tolist() for u in factors.nodes(f)} - {v}
        for b in range(len(roots) + 1):
            if b == len(roots):
                roots.append({})
            if any(block[u] == b for u in tied):
                continue
            ends = [_root(roots[b], u) for u in near if block[u] == b]
            if len(set(ends)) == len(ends):
                block[v] = b
                roots[b][v] = v
                roots[b].update(dict.fromkeys(ends, v))
                break
    return block


def _root(parent: dict[int, int], v: int) -> int:
    """Return the root of v in a union-find forest; halve the path to it."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


def start_labels(
    model: ScoredGraph, rng: np.random.Generator, initial: npt.ArrayLike | None = None
) -> IntArray:
    """Return an allowed labeling (I,) int64: `initial`, or a random one.

    If a random labeling is forbidden by hard zeros, it is repaired by Gibbs sweeps in which hard
    zeros are replaced by an increasing cost.  If this fails, returns the exact mode.

    Raises
    ------
    InvalidInputError
        `initial` is forbidden.
    InfeasibleError
        A node has no allowed label, or the exact engine finds that every labeling is forbidden.
    NotSupportedError
        No allowed labeling was found, and elimination needs too much memory.
    """
    if initial is None:
        try:
            return random_labels(model, rng)
        except NotSupportedError as error:
            remedy = "; pass one as initial=, or use"
            raise NotSupportedError(str(error).replace("; use", remedy)) from error
    given = model.labeling(initial, "initial")
    if model.score(given) == -np.inf:
        raise InvalidInputError("initial is a forbidden labeling; give one with a finite score")
    return given


def random_labels(model: ScoredGraph, rng: np.random.Generator) -> IntArray:
    """Return a random allowed labeling (I,) int64; errors as in `start_labels`."""
    alive = allowed_at_nodes(model)
    random = np.where(alive, rng.random(alive.shape), -1.0)
    return allowed_labels(model, random.argmax(axis=1).astype(np.int64), rng)


def allowed_at_nodes(model: ScoredGraph) -> BoolArray:
    """Return which labels nodes allow, (I, C); raise InfeasibleError if a node has none."""
    alive = model.scores.node > -np.inf
    if not alive.any(axis=1).all():
        raise InfeasibleError("a node has no allowed label, so Z = 0; remove its hard zeros")
    return alive


def allowed_labels(model: ScoredGraph, labels: IntArray, rng: np.random.Generator) -> IntArray:
    """Return an allowed labeling (I,): `labels`, or the result of repairs or elimination.

    The node scores must allow `labels`.  Errors as in `start_labels`.
    """
    if model.score(labels) > -np.inf:
        return labels
    for repaired in _repairs(model, labels, new_key(rng)):
        if model.score(repaired) > -np.inf:
            return repaired
    try:
        return exact(model).engine.mode()
    except MemoryLimitError as error:
        raise NotSupportedError(
            "no allowed labeling was found to start from; use method 'exact' with a larger "
            "max_memory"
        ) from error


def _repairs(model: ScoredGraph, labels: IntArray, key: int) -> Iterator[IntArray]:
    hard, larger = model.scores.edge == -np.inf, model.factors.table
    for stage, cost in enumerate((2.0, 5.0, 10.0, 20.0, 40.0)):
        soft = model.with_scores(
            model.scores.node,
            np.where(hard, -cost, model.scores.edge),
            np.where(larger == -np.inf, -cost, larger) if (larger == -np.inf).any() else None,
        )
        chain = Chain(soft, "chromatic", labels, key + stage)
        for _ in range(40):
            chain.advance(1)
            yield chain.labels
        labels = chain.labels


class TemperedChain:
    """Parallel tempering: a chain that moves between distant modes.

    There are 20 replicas.  Replica k samples the model with the scores beta_k s(y), with beta from
    1 to 0.25; `labels` are those at beta = 1.  After each sweep, neighbouring replicas a and b are
    exchanged with probability min(1, exp((beta_a - beta_b) (s_b - s_a))), which leaves the product
    of their distributions invariant (Geyer 1991; Swendsen and Wang 1986).

    Parameters
    ----------
    model, labels, key
        As in `Chain`; all replicas start at `labels`.
    """

    def __init__(self, model: ScoredGraph, labels: IntArray, key: int) -> None:
        self.model = model
        self.betas = np.linspace(1.0, LEAST_BETA, REPLICAS)
        random = np.random.default_rng(key)
        keys = new_keys(random, REPLICAS)
        self.chains = [
            Chain(scaled(model, float(beta)), "chromatic", labels, chain_key)
            for beta, chain_key in zip(self.betas, keys, strict=True)
        ]
        self.random = random

    @property
    def labels(self) -> IntArray:
        """The labels of the replica at beta = 1."""
        return self.chains[0].labels

    def advance(self, sweeps: int) -> None:
        """Make `sweeps` sweeps of every replica, with exchanges after each."""
        for _ in range(sweeps):
            for chain in self.chains:
                chain.advance(1)
            scores = [self.model.score(chain.labels) for chain in self.chains]
            for a in range(REPLICAS - 1):
                b = a + 1
                gain = (self.betas[a] - self.betas[b]) * (scores[b] - scores[a])
                if np.log(self.random.random()) < gain:
                    first, second = self.chains[a], self.chains[b]
                    first.labels, second.labels = second.labels, first.labels
                    scores[a], scores[b] = scores[b], scores[a]


def scaled(model: ScoredGraph, beta: float) -> ScoredGraph:
    """Return the model with all scores times beta > 0 (not its offset); hard zeros remain."""
    return model.with_scores(
        beta * model.scores.node, beta * model.scores.edge, beta * model.factors.table
    )
