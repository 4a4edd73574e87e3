"""`UndirectedTrees`: spanning trees and rooted forests of an undirected graph, and resistances."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.spanning import SpanningTrees


class UndirectedTrees:
    """Spanning trees of an undirected graph with p(tree) = exp(sum of its edges' scores) / Z.

    Every tree corresponds to one arborescence with root 0, so all results come from `SpanningTrees`
    on symmetric scores.  With `root_scores`, the structures are rooted forests: each tree of the
    forest has one root, whose score is added.

    Parameters
    ----------
    scores : (n, n) array_like
        Symmetric log-weights in nats, -inf where there is no edge; the diagonal is ignored.
        exp(score) is the conductance of an edge in an electrical network.
    root_scores : (n,) array_like, optional
        Log-weights of the nodes as roots, -inf forbids; the structures are then rooted forests.

    Raises
    ------
    InvalidInputError
        If scores are not symmetric, NaN or +inf.
    InfeasibleError
        On first use, if the graph is not connected (for forests: if a component has no possible
        root).

    Notes
    -----
    O(n^3), accurate for scores of any range (see `SpanningTrees`).  Kirchhoff (1847).

    Examples
    --------
    By Cayley's formula, four nodes have 16 trees.  The resistance between two nodes of the complete
    graph of four is 1/2.

    >>> import numpy as np
    >>> trees = UndirectedTrees(np.zeros((4, 4)))
    >>> round(float(np.exp(trees.log_partition())), 9)
    16.0
    >>> trees.effective_resistances()[0].round(9)
    array([0. , 0.5, 0.5, 0.5])
    """

    __repr__ = short_repr

    def __init__(self, scores: npt.ArrayLike, *, root_scores: npt.ArrayLike | None = None) -> None:
        table = checks.score_array("scores", scores).copy()
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
            batch = "; give each graph of a batch alone" if table.ndim == 3 else ""
            raise InvalidInputError(
                f"scores has shape {table.shape}; the shape must be (n, n), of one graph with "
                f"n > 0 nodes{batch}"
            )
        np.fill_diagonal(table, -np.inf)
        table = checks.log_weights("scores", table)
        if not np.array_equal(table, table.T):
            i, j = (int(x) for x in np.argwhere(table != table.T)[0])
            raise InvalidInputError(
                f"scores[{i}, {j}] is {table[i, j]} and scores[{j}, {i}] is {table[j, i]}; edges "
                "have no direction: make the table symmetric"
            )
        self.scores = table
        self.root_scores: FloatArray | None = None
        if root_scores is not None:
            self.root_scores = checks.log_weights("root_scores", root_scores, (len(table),))
            with_root = np.full((len(table) + 1,) * 2, -np.inf)
            with_root[1:, 1:], with_root[0, 1:] = table, self.root_scores
            table = with_root
        self.arborescences = SpanningTrees(table, single_root=False, labeled=False)

    def log_partition(self) -> float:
        """Return log Z in nats."""
        return float(self.arborescences.log_partition())

    def entropy(self) -> float:
        """Return the entropy in nats."""
        return float(self.arborescences.entropy())

    def marginals(self) -> FloatArray:
        """Return the probability of every edge, a symmetric array (n, n)."""
        arcs = self._among_nodes(self.arborescences.marginals())
        return arcs + arcs.T

    def root_marginals(self) -> FloatArray:
        """Return the probability that each node is the root of a tree of the forest, (n,)."""
        if self.root_scores is None:
            raise InvalidInputError(
                "root_scores is None, and only rooted forests have root marginals; give root_scores"
            )
        return self.arborescences.marginals()[0, 1:].copy()

    def effective_resistances(self) -> FloatArray:
        """Return the effective resistance between all pairs of nodes, (n, n); for trees only.

        The resistance between i and j is the derivative of log Z in the weight of the edge i-j,
        even if the graph lacks this edge.  For an edge of the graph, it is the marginal divided by
        the weight.
        """
        if self.root_scores is not None:
            raise InvalidInputError(
                "only trees have effective resistances, not rooted forests; give no root_scores"
            )
        n = len(self.scores)
        if n == 1:
            return np.zeros((1, 1))
        return self._resistances.copy()

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k trees, drawn exactly: edges (k, n-1, 2), or heads (k, n) for forests.

        The head of i is the next node on the path from i to its root, -1 for the root itself.
        """
        return self._edges(self.arborescences.sample(k, rng))

    def mode(self) -> IntArray:
        """Return the edges (n-1, 2) of the best tree, or the heads (n,) of the best forest."""
        return self._edges(self.arborescences.mode())

    def _edges(self, heads: IntArray) -> IntArray:
        if self.root_scores is not None:
            return heads - 1
        dependents = np.broadcast_to(np.arange(1, len(self.scores)), heads.shape)
        return np.stack([heads, dependents], axis=-1)

    def _among_nodes(self, table: FloatArray) -> FloatArray:
        return table if self.root_scores is None else table[1:, 1:]

    @cached_property
    def _resistances(self) -> FloatArray:
        """Return the gradient of log Z in the weights, on logarithms to avoid underflow."""
        n = len(self.scores) - 1
        _ = self.log_partition()  # raises if there is no tree
        log_gradient, marginals = empty((2, n + 1, n + 1))
        kernels.elimination.solve_logs(
            self.scores, np.zeros((0, n + 1, n + 1)), n, False, np.zeros(n + 1, dtype=bool),
            log_gradient, marginals[None],
        )  # fmt: skip
        slopes = np.exp(log_gradient)
        return slopes + slopes.T
