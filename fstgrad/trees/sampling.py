"""Exact samples of spanning trees."""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.solution import Solution
from fstgrad.trees.structures import PADDING

# If Wilson's walks need on average more than this times n^2 steps per tree, Colbourn's method runs:
# the first limit is for method "auto", the second for "wilson".
AUTO_STEPS, WILSON_STEPS = 10, 1000


def sample_heads(solution: Solution, count: int, rng: np.random.Generator, method: str) -> IntArray:
    """Return heads (count, b, n), -1 beyond an item's length."""
    items, size = solution.scores.shape[:2]
    heads = np.full((count, items, size - 1), PADDING)
    for item, n in enumerate(solution.lengths):
        heads[:, item, :n] = _sample_item(solution, item, count, rng, method)
    return heads


def _sample_item(
    solution: Solution, item: int, count: int, rng: np.random.Generator, method: str
) -> IntArray:
    n, single = int(solution.lengths[item]), solution.single_root
    heads = empty((count, n), dtype=np.int64)
    if n == 0:
        return heads
    log_weights = solution.log_weights(item)
    weights = np.exp(log_weights)
    chance = np.ascontiguousarray(solution.marginals[item, 0, : n + 1])
    steps = expected_steps(solution, item)
    if method != "colbourn" and steps < n * n * (AUTO_STEPS if method == "auto" else WILSON_STEPS):
        most = int(count * max(100 * steps, 1000))  # far more steps than walks need
        if kernels.sampling.wilson(weights, chance, n, single, most, rng, heads):
            return heads
    state = rng.bit_generator.state
    if not kernels.sampling.colbourn(weights, chance, False, single, rng, heads):
        rng.bit_generator.state = state  # repeats the draws made before floats failed
        kernels.sampling.colbourn(log_weights, chance, True, single, rng, heads)
    return heads


def expected_steps(solution: Solution, item: int) -> float:
    """Return the mean number of steps of Wilson's walks per tree, inf if unknown.

    On average, the walks visit j s_j B_jj times, where s_j is the total weight that enters j
    (Wilson 1996, theorem 3).  With the root arc at r, B_jj of the graph without r is g_rj + g_jr.
    """
    weights = np.exp(solution.log_weights(item))
    n = len(weights) - 1
    gradient = solution.gradient[item, : n + 1, : n + 1]
    if not gradient.any():
        return np.inf
    if not solution.single_root:
        return float(weights.sum(axis=0) @ gradient[0])
    visits = weights[1:].sum(axis=0) @ (gradient + gradient.T)
    return float(solution.marginals[item, 0, 1 : n + 1] @ visits[1:])


def sample_labels(shares: FloatArray, heads: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a label for each arc of heads (k, b, n) from the shares (b, n+1, n+1, y)."""
    _, items, dependents = np.indices(heads.shape)
    cumulative = np.cumsum(shares, axis=-1)[items, np.maximum(heads, 0), dependents + 1]
    target = rng.random(heads.shape) * cumulative[..., -1]
    labels = (cumulative <= target[..., None]).sum(axis=-1)
    return np.where(heads >= 0, labels, PADDING)
