"""A labeling of high score with a certified gap, by sequential reweighted message passing.

The score is divided among factors and nodes, and messages move score between them.  For any
messages, the sum of the maxima of all parts is an upper bound on the best score.  A sweep visits
the nodes in order and moves the score of each node to its later factors; this never raises the
bound.  For pairs this is TRW-S (Kolmogorov 2006); for larger factors, which keep their tables, it
is SRMP (Kolmogorov 2015, "A new look at reweighted message passing").  If a gap remains,
mini-buckets may lower the bound, and annealing may raise the score.
"""

import numpy as np

from fstgrad.core.checks import IntArray, Seed, generator, positive_integer, positive_number
from fstgrad.core.errors import MemoryLimitError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.clamping import clamp
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.mini_buckets import MiniBuckets
from fstgrad.mrf.resources import NO_LIMIT, Budget
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.sampling.chains import Chain, allowed_labels, new_key, scaled
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible

LOOK = 5  # forward and backward sweeps between two evaluations of the bound
WINDOWS, WINDOW_NODES, WINDOW_MEMORY = 10, 150, 1 << 23
EXACT = 1e-9  # relative: a smaller gap is a rounding error


def tree_mode(
    model: ScoredGraph,
    *,
    max_iter: int = 500,
    tol: float = 1e-6,
    max_cells: int = 1 << 16,
    restarts: int = 10,
    rng: Seed = 0,
) -> Decoded:
    """Return a labeling with a certified gap: no labeling scores more than score + gap.

    The bound is exact on trees of factors, and if the linear relaxation over edges and factors is
    tight (submodular scores of two labels).

    Parameters
    ----------
    max_iter : int
        The largest number of iterations.  An iteration is a forward and a backward sweep and costs
        O(E C^2 + sum over larger factors of arity^2 * cells).
    tol : float
        Stop when five iterations lower the bound by at most tol * max(1, |bound|).  `converged` is
        True if this happened, or if the gap is zero up to rounding.
    max_cells : int
        Largest table of a mini-bucket; 0 for no mini-buckets.
    restarts : int
        The number of simulated annealings if a gap remains.  Each has 60 temperatures of 20 sweeps;
        then, in 10 windows of at most 150 nodes, the labels are replaced by the best ones given the
        labels around the window.
    rng : Generator, int or None
        For the annealings.

    Raises
    ------
    InfeasibleError
        A sweep shows that every labeling is forbidden.
    NotSupportedError
        No allowed labeling was found.
    """
    max_iter = positive_integer("max_iter", max_iter)
    tol = positive_number("tol", tol, allow_zero=True)
    max_cells = positive_integer("max_cells", max_cells, minimum=0)
    restarts = positive_integer("restarts", restarts, minimum=0)
    return tree_mode_within(model, max_iter, tol, max_cells, restarts, rng)


def tree_mode_within(
    model: ScoredGraph,
    max_iter: int = 500,
    tol: float = 1e-6,
    max_cells: int = 1 << 16,
    restarts: int = 10,
    rng: Seed = 0,
    budget: Budget = NO_LIMIT,
) -> Decoded:
    """Return what `tree_mode` returns; if the budget is spent, the best result so far."""
    best = _Best(model)
    upper, converged = _swept(model, max_iter, tol, best, budget)
    if not best.closes(upper) and max_cells > 0 and not budget.is_spent:
        buckets = MiniBuckets(model, max_cells, maximum=True)
        upper = min(upper, buckets.value)
        best.take(buckets.labels())
    random = generator(rng)
    for _ in range(restarts):
        if best.labels is None or best.closes(upper):
            break
        best.take(_annealed(model, best.labels, random, budget))
        for _ in range(WINDOWS):
            if not budget.is_spent:
                best.take(_within_window(model, best.labels, random))
    if best.labels is None:
        raise NotSupportedError(
            "no allowed labeling was found; use method 'exact' or 'max-product'"
        )
    gap = max(0.0, upper - best.score)
    return Decoded("trw", best.labels, best.score, gap, converged or best.closes(upper))


def _swept(
    model: ScoredGraph, max_iter: int, tol: float, best: "_Best", budget: Budget
) -> tuple[float, bool]:
    """Return the upper bound of the sweeps (nats) and whether they converged.

    Labelings that are read from the messages are passed to `best`.
    """
    m = model.pieces._replace(node=model.scores.node.copy())
    edge_to_variable = np.zeros((len(m.outgoing.source), model.num_labels))
    factor_to_variable = np.zeros((len(m.factors.scope), model.num_labels))
    share, labels = empty(model.num_nodes), empty(model.num_nodes, np.int64)
    kernels.trw_s.node_shares(m, share)
    upper = np.inf
    for iteration in range(1, max_iter + 1):
        if not (
            kernels.trw_s.sweep(m, share, True, edge_to_variable, factor_to_variable)
            and kernels.trw_s.sweep(m, share, False, edge_to_variable, factor_to_variable)
        ):
            raise infeasible()
        if iteration % LOOK and iteration < max_iter and not budget.is_spent:
            continue
        kernels.trw_s.read_labels(m, edge_to_variable, factor_to_variable, labels)
        best.take(labels)
        bound = kernels.trw_s.dual(m, edge_to_variable, factor_to_variable) + model.offset
        converged = upper - bound <= tol * max(1.0, abs(bound))
        upper = min(upper, bound)
        if converged or best.closes(upper):
            return upper, True
        if budget.is_spent:
            break
    return upper, False


def _annealed(
    model: ScoredGraph, labels: IntArray, rng: np.random.Generator, budget: Budget
) -> IntArray:
    """Return the last labeling of a chain of Gibbs sweeps at falling temperatures from `labels`."""
    tables = [table[np.isfinite(table)] for table in (*model.scores, model.factors.table)]
    widest = max(1e-300, *(float(np.ptp(table)) for table in tables if table.size))
    for beta in np.geomspace(0.5, 100.0, 60) / widest:
        if budget.is_spent:
            break
        chain = Chain(scaled(model, float(beta)), "chromatic", labels, new_key(rng))
        chain.advance(20)
        labels = chain.labels
    return labels


def _within_window(model: ScoredGraph, labels: IntArray, rng: np.random.Generator) -> IntArray:
    """Return `labels` with those of a window replaced by the best ones, given all others.

    The window is the breadth-first neighbourhood of a random node.  If its elimination needs more
    than WINDOW_MEMORY, nothing is replaced.
    """
    graph = model.interactions
    neighbours = graph.source[graph.leaving ^ 1]
    inside = np.zeros(model.num_nodes, np.bool_)
    inside[rng.integers(model.num_nodes)] = True
    queue = np.flatnonzero(inside).tolist()
    for v in queue:  # grows as it is read
        for u in neighbours[graph.start[v] : graph.start[v + 1]].tolist():
            if not inside[u] and len(queue) < WINDOW_NODES:
                inside[u] = True
                queue.append(u)
    improved = labels.copy()
    rest = clamp(model, np.where(inside, -1, labels)).rest
    if rest is not None:
        try:
            engine = Forest(rest) if rest.is_forest else Elimination(rest, WINDOW_MEMORY)
            improved[inside] = engine.mode()
        except MemoryLimitError:
            pass
    return improved


class _Best:
    """Keeps the best of the labelings given to `take`, each first improved node by node."""

    def __init__(self, model: ScoredGraph) -> None:
        self.model = model
        self.labels: IntArray | None = None
        self.score = -np.inf

    def closes(self, upper: float) -> bool:
        """Return whether the best score equals the upper bound (nats) up to rounding."""
        return bool(upper - self.score <= EXACT * max(1.0, abs(upper)))

    def take(self, labels: IntArray) -> None:
        """Consider a labeling (I,); a forbidden one is repaired if there is no labeling yet."""
        candidate = labels.copy()
        if self.model.score(candidate) == -np.inf:
            if self.labels is not None:
                return
            alive = self.model.scores.node[np.arange(len(candidate)), candidate] > -np.inf
            start = np.where(alive, candidate, self.model.scores.node.argmax(axis=1))
            candidate = allowed_labels(self.model, start.astype(np.int64), generator(0)).copy()
        while kernels.coordinate_ascent.improve(self.model.pieces, candidate):
            pass
        score = self.model.score(candidate)
        if score > self.score:
            self.labels, self.score = candidate, score
