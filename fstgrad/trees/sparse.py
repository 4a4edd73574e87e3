"""`SparseSpanningTrees`: spanning trees of graphs with many nodes and few arcs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.spanning import SpanningTrees

# The most dependents for which a graph is solved, or sampled, as a dense table if necessary.
DENSE, DENSE_SAMPLES = 2000, 100
# The largest error of marginals, in graphs of up to DENSE dependents and in larger ones.  It is
# estimated from their sum over the arcs into a dependent, which is 1, and from the rounding errors
# of the numbers whose differences they are.
DENSE_TOLERANCE, TOLERANCE = 1e-11, 1e-8
MACHINE_EPSILON = float(np.finfo(np.float64).eps)
# The most steps of Wilson's walks per tree and arc.
STEPS = 10_000


@dataclass(frozen=True)
class Elimination:
    """The elimination of all nodes in an order that keeps the fill small (`kernels.sparse`).

    rank (n,) : the position of each node in the order.
    """

    rank: IntArray
    begin: IntArray
    later: IntArray
    into: FloatArray
    out: FloatArray
    pivots: FloatArray


class SparseSpanningTrees:
    """Arborescences over dependents 1 .. n and the root 0, given as a list of arcs.

    p(tree) = exp(sum of the scores of its arcs) / Z; any number of arcs may leave the root.

    Parameters
    ----------
    arcs : (m, 2) array_like of int
        (head, dependent), each pair once; 0 is the root.
    scores : (m,) array_like
        Log-weights in nats; -inf forbids an arc.
    n : int
        The number of dependents.

    Raises
    ------
    InvalidInputError
        If arcs are not pairs of nodes, or are repeated.
    InfeasibleError
        On first use, if a node cannot be reached from the root.
    NotSupportedError
        With more than 2,000 dependents, from `marginals` and `entropy` if the marginals into some
        dependent may be off by 10^-8, because differences of the inverse Laplacian lost their
        digits (the arcs of a cycle outweigh all arcs into it by about 10^8); and from all methods
        if a node's weights, relative to the largest arcs into each dependent, leave the range of
        float64.  Smaller graphs are then solved as dense tables.  With more than 100 dependents,
        from `sample` if the walks are too long.

    Notes
    -----
    The Laplacian is eliminated in the minimum-degree order of scipy's sparse LU, without
    subtractions, so log Z is exact up to rounding.  Marginals come from the selected inverse: the
    entries of the inverse on the pattern of the factors (Takahashi, Fagan and Chin, 1973).  Time
    and memory grow with the fill, about n log n for grids and road networks; graphs without small
    separators fill up to n^2.

    Examples
    --------
    >>> import numpy as np
    >>> arcs = [(0, 1), (0, 2), (1, 2), (2, 1)]
    >>> trees = SparseSpanningTrees(arcs, np.zeros(4), n=2)
    >>> round(float(np.exp(trees.log_partition())), 9), trees.marginals().round(6).tolist()
    (3.0, [0.666667, 0.666667, 0.333333, 0.333333])
    """

    __repr__ = short_repr

    def __init__(self, arcs: npt.ArrayLike, scores: npt.ArrayLike, *, n: int) -> None:
        self.n = checks.positive_integer("n", n)
        self.arcs = checks.index_array("arcs", arcs, self.n + 1, (None, 2))
        self.scores = checks.log_weights("scores", scores, (len(self.arcs),))
        heads, dependents = self.arcs.T
        bad = np.flatnonzero((dependents == 0) | (heads == dependents))
        if len(bad):
            raise InvalidInputError(
                f"arcs[{bad[0]}] is {tuple(self.arcs[bad[0]].tolist())}; give (head, dependent) "
                f"with a dependent in 1 .. {self.n} that is not the head"
            )
        order = np.lexsort((heads, dependents))
        twice = np.flatnonzero((np.diff(self.arcs[order], axis=0) == 0).all(axis=1))
        if len(twice):
            arc = tuple(self.arcs[order[twice[0]]].tolist())
            raise InvalidInputError(f"arcs has {arc} twice; add up the weights of parallel arcs")
        self._order = order

    def log_partition(self) -> float:
        """Return log Z in nats."""
        if self._elimination is None:
            return float(self._dense.log_partition())
        return float(np.log(self._elimination.pivots).sum() + self._tops.sum())

    def marginals(self) -> FloatArray:
        """Return the probability of every arc, (m,)."""
        return self._marginals.copy()

    def entropy(self) -> float:
        """Return the entropy in nats."""
        if self._elimination is None:
            return float(self._dense.entropy())
        reduced_costs = np.where(
            self.scores > -np.inf, self._tops[self.arcs[:, 1] - 1] - self.scores, 0
        )
        value = np.log(self._elimination.pivots).sum() + self._marginals @ reduced_costs
        return max(float(value), 0.0)

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return the heads (k, n) of k independent trees, by Wilson's walks (1996).

        If strong cycles make the walks too long, small graphs are sampled as dense tables.
        """
        count, generator = checks.positive_integer("k", k), checks.generator(rng)
        if self._elimination is None:
            return self._dense_samples(count, generator)
        heads, dependents = self.arcs[self._order].T
        starts = np.searchsorted(dependents, np.arange(1, self.n + 2))
        weights = self._weights[self._order]
        sums = np.add.accumulate(weights)
        before = np.concatenate([[0.0], sums])[starts[:-1]]
        cumulative = sums - np.repeat(before, np.diff(starts))
        chosen = empty((count, self.n), dtype=np.int64)
        done = kernels.sparse.wilson(
            starts, heads - 1, cumulative, STEPS * count * len(heads), generator, chosen
        )
        if not done:
            return self._dense_samples(count, generator)
        trees: IntArray = heads[chosen]
        return trees

    def _dense_samples(self, count: int, rng: np.random.Generator) -> IntArray:
        if self.n > DENSE_SAMPLES:
            raise NotSupportedError(
                f"the walks took more than {STEPS} steps for each arc, because some cycles of arcs "
                "have far higher scores than other arcs; use SpanningTrees (dense tables replace "
                f"graphs of up to {DENSE_SAMPLES} dependents automatically, and this has {self.n})"
            )
        return self._dense.sample(count, rng)

    @cached_property
    def _dense(self) -> SpanningTrees:
        """The same distribution as a dense table, for graphs of up to DENSE dependents."""
        table = np.full((self.n + 1, self.n + 1), -np.inf)
        table[tuple(self.arcs.T)] = self.scores
        return SpanningTrees(table, single_root=False)

    @cached_property
    def _tops(self) -> FloatArray:
        """Each dependent's largest score (n,), 0 if it has none."""
        top = np.full(self.n, -np.inf)
        np.maximum.at(top, self.arcs[:, 1] - 1, self.scores)
        return np.where(top > -np.inf, top, 0.0)

    @cached_property
    def _weights(self) -> FloatArray:
        return np.exp(self.scores - self._tops[self.arcs[:, 1] - 1])

    @cached_property
    def _elimination(self) -> Elimination | None:
        """The elimination; None if the weights of a small graph leave the range of floats."""
        heads, dependents = self.arcs.T - 1
        inner = heads >= 0
        rank = _rank(heads[inner], dependents[inner], self.n)
        first, second = rank[heads[inner]], rank[dependents[inner]]
        from scipy.sparse import csr_array

        ends = np.concatenate([first, second]), np.concatenate([second, first])
        pattern = csr_array((np.ones(2 * len(first)), ends), shape=(self.n, self.n))
        begin = np.zeros(self.n + 1, dtype=np.int64)
        later = kernels.sparse.fill(
            pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64), begin
        )
        into, out = np.zeros((2, len(later)))
        kernels.sparse.scatter(first, second, self._weights[inner], begin, later, into, out)
        root, pivots = np.zeros((2, self.n))
        root[rank[dependents[~inner]]] = self._weights[~inner]
        if not kernels.sparse.eliminate(begin, later, into, out, root, pivots):
            self._check_reached()
            if self.n <= DENSE:
                return None
            raise NotSupportedError(
                "the weights of some arcs, relative to the largest into their dependents, leave "
                "the range of float64; raise the scores of masked arcs (dense tables replace "
                f"graphs of up to {DENSE} dependents automatically, and this has {self.n})"
            )
        return Elimination(rank, begin, later, into, out, pivots)

    @cached_property
    def _marginals(self) -> FloatArray:
        e = self._elimination
        if e is None:
            return self._dense_marginals()
        diagonal = np.zeros(self.n)
        to_later, to_earlier = empty((2, len(e.later)))
        kernels.sparse.select_inverse(
            e.begin, e.later, e.into, e.out, e.pivots, diagonal, to_later, to_earlier
        )
        heads, dependents = self.arcs.T - 1
        inner = heads >= 0
        other = np.zeros(len(heads))
        entries = empty(int(inner.sum()))
        kernels.sparse.gather(
            e.rank[heads[inner]], e.rank[dependents[inner]], e.begin, e.later, to_later,
            to_earlier, entries,
        )  # fmt: skip
        other[inner] = entries
        minuend = self._weights * diagonal[e.rank[dependents]]
        marginals = minuend - self._weights * other
        sums = np.bincount(dependents, marginals, self.n)
        missed = np.maximum(
            np.abs(sums - 1), 4 * MACHINE_EPSILON * np.bincount(dependents, minuend, self.n)
        )
        limit = DENSE_TOLERANCE if self.n <= DENSE else TOLERANCE
        if (missed < limit).all() and marginals.min() >= -limit:
            clipped: FloatArray = np.clip(marginals, 0.0, 1.0)
            return clipped
        if self.n <= DENSE:
            return self._dense_marginals()
        raise NotSupportedError(
            "the graph is too ill-conditioned for marginals from its inverse Laplacian: those "
            f"into dependent {int(missed.argmax()) + 1} are off by about {missed.max():.1g}; use "
            f"SpanningTrees (dense tables replace graphs of up to {DENSE} dependents "
            f"automatically, and this has {self.n})"
        )

    def _dense_marginals(self) -> FloatArray:
        marginals: FloatArray = self._dense.marginals()[tuple(self.arcs.T)]
        return marginals

    def _check_reached(self) -> None:
        """Raise if some dependents cannot be reached from the root."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        allowed = self.arcs[self.scores > -np.inf]
        ones = np.ones(len(allowed))
        graph = csr_array((ones, (allowed[:, 0], allowed[:, 1])), shape=(self.n + 1,) * 2)
        reached = breadth_first_order(graph, 0, return_predecessors=False)
        unreachable = np.setdiff1d(np.arange(self.n + 1), reached)
        if len(unreachable):
            raise InfeasibleError(
                f"no allowed arcs lead from the root to {len(unreachable)} of the dependents, "
                f"among them {unreachable[:5].tolist()}: Z = 0; allow an arc into each part of the "
                "graph"
            )


class SparseUndirectedTrees:
    """Spanning trees or rooted forests of an undirected graph with few edges.

    Parameters
    ----------
    edges : (m, 2) array_like of int
        Pairs of nodes 0 .. n-1, each pair once.
    scores : (m,) array_like
        Log-weights (log-conductances) in nats.
    n : int
        The number of nodes.
    root_scores : (n,) array_like, optional
        Log-weights of the nodes as roots; the structures are then rooted forests, as in
        `UndirectedTrees`.

    Notes
    -----
    All results come from `SparseSpanningTrees`, with node 0 as the root; for forests, the root is
    an additional node with an arc to every node.
    """

    __repr__ = short_repr

    def __init__(
        self,
        edges: npt.ArrayLike,
        scores: npt.ArrayLike,
        *,
        n: int,
        root_scores: npt.ArrayLike | None = None,
    ) -> None:
        self.n = checks.positive_integer("n", n, minimum=2 if root_scores is None else 1)
        self.edges = checks.index_array("edges", edges, self.n, (None, 2))
        self.scores = checks.log_weights("scores", scores, (len(self.edges),))
        self.is_forest = root_scores is not None
        pairs = self.edges + self.is_forest
        arcs, arc_scores = np.concatenate([pairs, pairs[:, ::-1]]), np.tile(self.scores, 2)
        if root_scores is not None:
            roots = checks.log_weights("root_scores", root_scores, (self.n,))
            nodes = np.arange(1, self.n + 1)
            arcs = np.concatenate([arcs, np.stack([np.zeros_like(nodes), nodes], axis=1)])
            arc_scores = np.concatenate([arc_scores, roots])
        used = arcs[:, 1] > 0
        self._used = used
        self.arborescences = SparseSpanningTrees(
            arcs[used], arc_scores[used], n=self.n if self.is_forest else self.n - 1
        )

    def log_partition(self) -> float:
        """Return log Z in nats."""
        return self.arborescences.log_partition()

    def entropy(self) -> float:
        """Return the entropy in nats."""
        return self.arborescences.entropy()

    def marginals(self) -> FloatArray:
        """Return the probability of every edge, (m,)."""
        both = np.zeros(len(self._used))
        both[self._used] = self.arborescences.marginals()
        m = len(self.edges)
        total: FloatArray = both[:m] + both[m : 2 * m]
        return total

    def effective_resistances(self) -> FloatArray:
        """Return the effective resistance between the ends of every edge, (m,); for trees only."""
        if self.is_forest:
            raise InvalidInputError(
                "only trees have effective resistances, not rooted forests; give no root_scores"
            )
        return self.marginals() * np.exp(-self.scores)

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k trees as edges (k, n-1, 2), or k forests as heads (k, n), -1 for roots."""
        heads = self.arborescences.sample(k, rng)
        if self.is_forest:
            return heads - 1
        dependents = np.broadcast_to(np.arange(1, self.n), heads.shape)
        return np.stack([heads, dependents], axis=-1)


def _rank(heads: IntArray, dependents: IntArray, n: int) -> IntArray:
    """Return each node's position in the minimum-degree order of the graph."""
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    arcs = csc_array((np.ones(len(heads)), (heads, dependents)), shape=(n, n))
    degree: FloatArray = 1 + np.asarray((arcs + arcs.T).sum(axis=0)).ravel()
    matrix = csc_array(eye_array(n, format="csc") * (2 * degree.max()) + arcs + arcs.T)
    factors = splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    rank: IntArray = factors.perm_c.astype(np.int64)
    return rank
