"""Undirected graphs as arrays, with data that algorithms derive from them.

Edge e = (i, j) has two arcs: 2e runs from i to j, 2e + 1 from j to i; the arc d ^ 1 is the reverse
of d, and `source[d ^ 1]` is the head of d.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import IntArray, index_array, integers
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Network, OutgoingArcs

STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))  # (rows, columns) from a pixel to later neighbours
FAR = 1000  # mean distance of neighbours, in nodes, up to which their data is in a cache


@dataclass(frozen=True, eq=False)
class Graph:
    """A simple graph on the nodes 0 .. num_nodes - 1.

    Parameters
    ----------
    num_nodes : int
    edges : (E, 2) int64
        Pairs of different nodes, each pair once.
    pixels : (height, width) or None
        Set if the nodes are the row-major pixels of an image and the edges those of
        `grid_edges(height, width, connectivity)`.
    connectivity : 4 or 8
    """

    num_nodes: int
    edges: IntArray
    pixels: tuple[int, int] | None = None
    connectivity: int = 4

    def __post_init__(self) -> None:
        self.edges.flags.writeable = False  # of every graph: kernels have the same signature

    @property
    def grid(self) -> tuple[int, int] | None:
        """(height, width) of a 4-connected grid, else None."""
        return self.pixels if self.connectivity == 4 else None

    def check_image(self, name: str, size: Sequence[int]) -> None:
        """Check that the nodes are the pixels of an image of this size, (height, width).

        Raises
        ------
        InvalidInputError
            The graph is no grid, or one of another size.
        """
        if self.pixels == tuple(size):
            return
        expected = "no grid" if self.pixels is None else f"a grid of {self.pixels}"
        remedy = "nodes in one axis" if self.pixels is None else "an image of this size"
        raise InvalidInputError(
            f"{name} is an image of (height, width) = {tuple(size)}, and the graph is {expected}; "
            f"give {remedy}, or the model of PairwiseMRF.grid({size[0]}, {size[1]}, ...)"
        )

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """The (rows, columns) from each pixel of a grid to later neighbours, as `grid_edges`."""
        return STEPS[: self.connectivity // 2]

    @classmethod
    def checked(cls, num_nodes: int, edges: npt.ArrayLike) -> "Graph":
        """Return the graph of `edges` (E, 2), checked.

        Raises InvalidInputError for a self-loop, a repeated edge or an index out of range.
        """
        given = integers("edges", edges)
        given = given.reshape(-1, 2) if given.size == 0 else given
        array = index_array("edges", given, num_nodes, (None, 2))
        loops = np.flatnonzero(array[:, 0] == array[:, 1])
        if loops.size:
            e = int(loops[0])
            raise InvalidInputError(
                f"edges[{e}] joins node {array[e, 0]} to itself; put its scores into node_scores"
            )
        pairs = np.sort(array, axis=1) @ np.array([num_nodes, 1])
        order = np.argsort(pairs, kind="stable")
        again = np.flatnonzero(np.diff(pairs[order]) == 0)
        if again.size:
            first, second = (int(e) for e in order[again[0] : again[0] + 2])
            raise InvalidInputError(
                f"edges[{first}] and edges[{second}] join the same nodes "
                f"{array[first].tolist()}; add their scores up (from_factors does so)"
            )
        return cls(num_nodes, np.ascontiguousarray(array))

    @property
    def num_edges(self) -> int:
        """Number of edges E."""
        return len(self.edges)

    @cached_property
    def source(self) -> IntArray:
        """The node (2E,) that each arc leaves."""
        return self.edges.ravel()

    @cached_property
    def degree(self) -> IntArray:
        """Number of neighbours of each node (I,)."""
        return np.bincount(self.source, minlength=self.num_nodes).astype(np.int64)

    @cached_property
    def start(self) -> IntArray:
        """Offsets (I + 1,) into `leaving`: node i has the arcs leaving[start[i]:start[i + 1]]."""
        return np.concatenate(([0], np.cumsum(self.degree))).astype(np.int64)

    @cached_property
    def leaving(self) -> IntArray:
        """The arcs (2E,) sorted by the node that they leave."""
        return np.argsort(self.source, kind="stable").astype(np.int64)

    @cached_property
    def outgoing(self) -> OutgoingArcs:
        """The arcs in the form that kernels read."""
        return OutgoingArcs(self.start, self.leaving, self.source)

    @cached_property
    def network(self) -> Network:
        """The arcs, renumbered in the order of the nodes that they leave."""
        place = empty(len(self.leaving), np.int64)
        place[self.leaving] = np.arange(len(place))
        head, mate = self.source[self.leaving ^ 1], place[self.leaving ^ 1]
        return Network(self.start, head.astype(np.int32), mate.astype(np.int32))

    @cached_property
    def rank(self) -> IntArray:
        """The position (I,) of each node in an order in which neighbours are near each other.

        The given order if neighbours are at most FAR apart on average.  Otherwise the reverse order
        of Cuthill and McKee (1969), if it halves the mean distance (on random graphs it does not).
        """
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        rank = np.arange(self.num_nodes)
        apart = self._mean_distance(rank)
        if apart > FAR:
            start, head, _ = self.network
            ones = np.ones(len(head), np.int8)
            matrix = csr_matrix((ones, head, start), shape=(self.num_nodes, self.num_nodes))
            other = empty_like(rank)
            other[reverse_cuthill_mckee(matrix, symmetric_mode=True)] = rank
            rank = other if self._mean_distance(other) < apart / 2 else rank
        return rank

    def _mean_distance(self, rank: IntArray) -> float:
        ends = rank[self.edges]
        return float(np.abs(ends[:, 0] - ends[:, 1]).mean()) if len(ends) else 0.0

    @cached_property
    def traversal(self) -> tuple[IntArray, IntArray]:
        """A breadth-first order (I,), and the arc (I,) from each node's parent, -1 at roots."""
        order = empty(self.num_nodes, np.int64)
        parent_arc = np.full(self.num_nodes, -1, np.int64)
        everywhere = np.ones(self.num_nodes, np.int64)
        kernels.graphs.breadth_first(self.outgoing, everywhere, order, parent_arc)
        return order, parent_arc

    @cached_property
    def is_forest(self) -> bool:
        """Whether the graph has no cycle."""
        roots = int(np.count_nonzero(self.traversal[1] < 0))
        return self.num_edges == self.num_nodes - roots

    @cached_property
    def colour(self) -> IntArray:
        """A proper colouring (I,): two colours on 4-connected grids, else first-fit by degree."""
        if self.grid is not None:
            rows, columns = np.indices(self.grid)
            return ((rows + columns) % 2).ravel().astype(np.int64)
        colour = np.full(self.num_nodes, -1, np.int64)
        order = np.argsort(-self.degree, kind="stable").astype(np.int64)
        kernels.graphs.first_fit_colouring(self.outgoing, order, colour)
        return colour

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """Data that algorithms keep for this graph, for example elimination plans."""
        return {}


def grid_edges(height: int, width: int, connectivity: int = 4) -> IntArray:
    """Return the edges (E, 2) int64 of a grid; pixel (r, c) is node r * width + c.

    First the horizontal edges (r, c)-(r, c+1), then the vertical (r, c)-(r+1, c), and with
    `connectivity=8` the diagonals (r, c)-(r+1, c+1), then (r, c+1)-(r+1, c); each row by row.
    """
    pixel = np.arange(height * width).reshape(height, width)
    pairs = []
    for down, right in STEPS[: connectivity // 2]:
        rows, first, second = height - down, max(0, -right), max(0, right)
        pairs.append((pixel[:rows, first : width - second], pixel[down:, second : width - first]))
    edges = empty((sum(a.size for a, _ in pairs), 2), dtype=np.int64)
    low = 0
    for a, b in pairs:
        edges[low : low + a.size, 0], edges[low : low + a.size, 1] = a.ravel(), b.ravel()
        low += a.size
    return edges
