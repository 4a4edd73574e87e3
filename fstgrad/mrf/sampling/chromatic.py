"""Gibbs sampling colour class by colour class, on any graph without larger factors."""

from itertools import pairwise

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.uninitialized import empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Sites
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.kernels.chromatic_gibbs import AHEAD, BLOCK, Blocks
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph


class ChromaticSweeps:
    """The tables of a model in the order in which the kernels of the draws read them.

    For models without larger factors.  Colour classes of at least `parallel` nodes are divided
    among the threads; the drawn labels do not depend on this.
    """

    def __init__(self, model: ScoredGraph, threads: int, parallel: int) -> None:
        self.model = model
        self.sites, self.cuts = colour_sites(model.graph)
        sizes = np.diff(self.cuts)
        self.alone = threads == 1 or int(sizes.max()) < parallel
        self.binary = model.num_labels == 2 and bool(np.isfinite(model.scores.edge).all())
        (self._gains if self.binary else self._weights)()
        self.bands = [
            ThreadRanges(int(items), threads if size >= parallel else 1)
            for items, size in zip(np.diff(self.cuts), sizes, strict=True)
        ]

    def _gains(self) -> None:
        """Make the tables for two labels: differences of scores."""
        node, edge = self.model.scores.node, self.model.edge_stack
        which = self.sites.which & 1 if self.model.shared else self.sites.which
        self.blocks, lane, self.cuts = colour_blocks(self.model.graph, self.sites, self.cuts)
        gain = np.stack((edge[:, 1] - edge[:, 0], edge[:, :, 1] - edge[:, :, 0]), axis=1)
        with np.errstate(invalid="ignore"):  # -inf - (-inf) at a node without an allowed label
            self.node_gain = (node[:, 1] - node[:, 0])[self.blocks.node]
        self.gain = gain.reshape(-1, 2)[which[lane]]
        self.table = kernels.chromatic_gibbs.logistic_table()

    def _weights(self) -> None:
        """Make the tables for any number of labels: one for each arc, or two that all share."""
        node, tables = self.model.scores.node, self.model.potentials.exp_edge
        with np.errstate(invalid="ignore"):  # NaN at a node without an allowed label
            self.weight = np.exp(node - node.max(axis=1, keepdims=True))
        which = self.sites.which
        if self.model.shared:
            self.table, which = np.stack((tables[0].T, tables[0])), which & 1
        else:
            self.table, ahead = tables[which >> 1], which & 1 == 0
            self.table[ahead] = tables[which[ahead] >> 1].transpose(0, 2, 1)
            which = np.arange(len(which))
        self.sites = self.sites._replace(which=which)
        self.cut, self.cuts = cut_into_blocks(self.cuts, AHEAD)

    def sweep(self, sweeps: int, key: int, counter: int, room: int, labels: IntArray) -> None:
        """Draw a new label for every node given all others, `sweeps` times, in place.

        labels : (I,) int64.  key, counter, room : see `kernels.chromatic_gibbs`.
        """
        if self.alone:
            self._draw(0, self.cuts[-1], sweeps, key, counter, room, labels)
            return
        for at in range(counter, counter + sweeps * room, room):
            for bands, (first, _) in zip(self.bands, pairwise(self.cuts), strict=True):

                def band(low: int, high: int, first: int = first, at: int = at) -> None:
                    self._draw(first + low, first + high, 1, key, at, room, labels)

                bands(band)

    def _draw(
        self, low: int, high: int, sweeps: int, key: int, counter: int, room: int, labels: IntArray
    ) -> None:
        which = kernels.chromatic_gibbs.Range(low, high, sweeps, key, counter, room)
        if self.binary:
            kernels.chromatic_gibbs.draw_binary(
                which, self.blocks, self.node_gain, self.gain, self.table, labels
            )
        else:
            kernels.chromatic_gibbs.draw_many(
                which,
                self.sites,
                self.cut,
                self.weight,
                self.table,
                self.model.pieces,
                labels,
            )


def cut_into_blocks(cuts: list[int], size: int) -> tuple[IntArray, list[int]]:
    """Cut colour classes into blocks of at most `size` sites of one colour.

    Returns the first site of each block with the end (blocks + 1,), and the first block of each
    colour with the end.
    """
    begins = [np.arange(a, b, size) for a, b in pairwise(cuts)]
    cut = np.append(np.concatenate(begins), cuts[-1])
    return cut, np.searchsorted(cut, cuts).tolist()


def colour_sites(graph: Graph) -> tuple[Sites, list[int]]:
    """Return the sites, and the first site of each colour class with the end; cached.

    `which` is the arc: 2e from the first node of edge e, 2e + 1 from the second.
    """
    if "sites" not in graph.cache:
        network = graph.network
        nodes = np.argsort(graph.colour, kind="stable").astype(np.int64)
        counts = graph.degree[nodes]
        start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        arcs = np.arange(start[-1]) + np.repeat(network.start[nodes] - start[:-1], counts)
        sites = Sites(nodes, start, network.head[arcs], graph.leaving[arcs])
        cuts = [0, *np.cumsum(np.bincount(graph.colour)).tolist()]
        graph.cache["sites"] = sites, cuts
    cached: tuple[Sites, list[int]] = graph.cache["sites"]
    return cached


def colour_blocks(
    graph: Graph, sites: Sites, cuts: list[int]
) -> tuple[Blocks, IntArray, list[int]]:
    """Return the sites in blocks, the arc of each lane, and the first block of each colour; cached.

    Arcs are numbered as in `sites`; the last entry of the third result is the number of blocks.
    """
    if "colour blocks" not in graph.cache:
        degree = np.diff(sites.start)
        colour = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
        order = np.lexsort((-degree, colour))
        cut, block_cuts = cut_into_blocks(cuts, BLOCK)
        place = empty_like(order)
        place[order] = np.arange(len(order))
        place = np.repeat(place, degree)  # of each arc's site
        block = np.searchsorted(cut, place, side="right") - 1
        number = np.arange(len(place)) - np.repeat(sites.start[:-1], degree)
        lane = np.lexsort((place, number, block))
        block, number = block[lane], number[lane]
        new = (np.diff(block, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
        slot = np.append(np.flatnonzero(new), len(lane))
        first_slot = np.searchsorted(block[slot[:-1]], np.arange(len(cut)))
        node = sites.node[order]
        blocks = Blocks(
            node.astype(np.uint64), cut.astype(np.uint64), first_slot.astype(np.uint64),
            slot.astype(np.uint64), sites.head[lane].astype(np.uint32),
        )  # fmt: skip
        graph.cache["colour blocks"] = blocks, lane, block_cuts
    cached: tuple[Blocks, IntArray, list[int]] = graph.cache["colour blocks"]
    return cached
