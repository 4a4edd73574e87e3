"""`UndirectedTrees`: spanning trees and rooted forests of an undirected graph, and resistances."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fstgrad import checks
from fstgrad.checks import FloatArray, IntArray, Seed
from fstgrad.errors import InvalidInputError
from fstgrad.summary import short_repr
from fstgrad.trees import kernels
from fstgrad.trees.spanning import SpanningTrees


class UndirectedTrees:
    """Spanning trees of an undirected graph, p(tree) = exp(sum of the scores of its edges) / Z.

    Every tree is one arborescence away from node 0, so that all answers are those of
    `SpanningTrees` on symmetric scores.  With `root_scores` the structures are rooted forests: each
    tree of the forest has one root, whose score is added.

    Parameters
    ----------
    scores : (n, n) array_like
        Symmetric log-weights in nats, -inf where there is no edge; the diagonal is ignored.
        exp(score) is the conductance of an edge in an electrical network.
    root_scores : (n,) array_like, optional
        Log-weights of the nodes as roots, -inf forbids; makes forests of the trees.

    Raises
    ------
    InvalidInputError
        Scores that are not symmetric, NaN, +inf.
    InfeasibleError
        On first use, where the graph is not connected (a part of a forest has no root).

    Notes
    -----
    O(n^3), right for scores of any range (`SpanningTrees`).  Kirchhoff (1847).

    Examples
    --------
    Cayley: four nodes have 16 trees; two nodes at distance one in the complete graph of four have
    the resistance 1/2.

    >>> import numpy as np
    >>> trees = UndirectedTrees(np.zeros((4, 4)))
    >>> round(float(np.exp(trees.log_partition())), 9)
    16.0
    >>> trees.effective_resistances()[0].round(9)
    array([0. , 0.5, 0.5, 0.5])
    """

    __repr__ = short_repr

    def __init__(self, scores: npt.ArrayLike, *, root_scores: npt.ArrayLike | None = None) -> None:
        table = checks.log_weights("scores", scores, (None, None)).copy()
        if table.shape[0] != table.shape[1] or not len(table):
            raise InvalidInputError(f"scores has shape {table.shape}; the shape must be (n, n)")
        np.fill_diagonal(table, -np.inf)
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
            whole = np.full((len(table) + 1,) * 2, -np.inf)
            whole[1:, 1:], whole[0, 1:] = table, self.root_scores
            table = whole
        self.arborescences = SpanningTrees(table, single_root=False, labeled=False)

    def log_partition(self) -> float:
        """Return log Z in nats."""
        return float(self.arborescences.log_partition())

    def entropy(self) -> float:
        """Return the entropy in nats."""
        return float(self.arborescences.entropy())

    def marginals(self) -> FloatArray:
        """Return the probability of every edge, symmetric (n, n)."""
        arcs = self._among_nodes(self.arborescences.marginals())
        return arcs + arcs.T

    def root_marginals(self) -> FloatArray:
        """Return the probability of every node to be the root of a tree of the forest, (n,)."""
        if self.root_scores is None:
            raise InvalidInputError("root_scores is None; give it to have rooted forests")
        return self.arborescences.marginals()[0, 1:].copy()

    def effective_resistances(self) -> FloatArray:
        """Return the effective resistance between all pairs of nodes, (n, n), of trees.

        The derivative of log Z in the weight of an edge, whether it is there or not; for an edge it
        is its marginal over its weight.
        """
        if self.root_scores is not None:
            raise InvalidInputError("effective resistances are those of trees; give no root_scores")
        n = len(self.scores)
        if n == 1:
            return np.zeros((1, 1))
        return self._resistances.copy()

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k trees drawn exactly: (k, n-1, 2) edges, or the heads (k, n) of forests.

        heads[i] is the node before i on the way to its root, -1 for the root itself.
        """
        return self._edges(self.arborescences.sample(k, rng))

    def mode(self) -> IntArray:
        """Return the best tree, (n-1, 2) edges, or the heads (n,) of the best forest."""
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
        """Return the gradient of log Z in the weights, on logarithms, where none can underflow."""
        n = len(self.scores) - 1
        _ = self.log_partition()  # there is a tree, or the error says why not
        log_gradient, marginals = np.empty((2, n + 1, n + 1))
        kernels.elimination.solve_logs(
            self.scores, np.empty((0, n + 1, n + 1)), n, False, np.zeros(n + 1, dtype=bool),
            log_gradient, marginals[None],
        )  # fmt: skip
        slopes = np.exp(log_gradient)
        return slopes + slopes.T
