"""Naive mean field: the best product of node distributions, and its lower bound on log Z."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fstgrad.core.checks import FloatArray, Seed, generator, positive_integer, positive_number
from fstgrad.core.distribution import masked_inner
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.budget import ENDLESS, Budget
from fstgrad.mrf.masks import without_masks
from fstgrad.mrf.result import Inference
from fstgrad.mrf.sampling.chains import start_labels
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.table import NO_FACTORS

Progress = Callable[[int, float], None]
SWEPT = 2**18  # marginals that one call of the kernel computes, about


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
    return climbed(model, max_iter, tol, rng, progress)


def climbed(
    model: ScoredGraph,
    max_iter: int = 500,
    tol: float = 1e-8,
    rng: Seed = 0,
    progress: Progress | None = None,
    budget: Budget = ENDLESS,
) -> Inference:
    """Return what `mean_field` returns; stops after an iteration, at least one, if time is over."""
    begun = time.perf_counter()
    graph, model = model.graph, without_masks(model)
    q = _start(model, generator(rng))
    history: list[float] = []
    together = 1  # sweeps per call of the kernel; signals are handled between calls
    if progress is None and budget is ENDLESS:
        together = max(1, min(max_iter, SWEPT // max(1, model.scores.node.size)))
    while True:
        changes = empty(min(together, max_iter - len(history)))
        history += changes[: kernels.coordinates.climb(model.pieces, q, tol, changes)].tolist()
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
    if (model.scores.edge == -np.inf).any() or (model.factors.table == -np.inf).any():
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
    kernels.coordinates.factor_products(model.factors, q, out)
    return out
