"""Exact samples of spanning trees, with and without replacement."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.trees import kernels
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.solution import Solution, solve
from fstgrad.trees.structures import PADDING

# Wilson's walks are given up after so many n^2 steps for each tree, and all trees drawn anew.
WILSON_STEPS = 100


def sample_heads(solution: Solution, count: int, rng: np.random.Generator, method: str) -> IntArray:
    """Return heads (count, b, n), -1 past an item's length."""
    items, size = solution.scores.shape[:2]
    heads = np.full((count, items, size - 1), PADDING)
    for item, n in enumerate(solution.lengths):
        heads[:, item, :n] = _sample_item(solution, item, count, rng, method)
    return heads


def _sample_item(
    solution: Solution, item: int, count: int, rng: np.random.Generator, method: str
) -> IntArray:
    n, single = int(solution.lengths[item]), solution.single_root
    heads = np.empty((count, n), dtype=np.int64)
    if n == 0:
        return heads
    weights = np.exp(solution.log_weights(item))
    chance = np.ascontiguousarray(solution.marginals[item, 0, : n + 1])
    if method == "wilson" or (method == "auto" and expected_steps(solution, item) < 10 * n * n):
        steps = WILSON_STEPS * count * n * n
        if kernels.sampling.wilson(weights, chance, n, single, steps, rng, heads):
            return heads
    if kernels.sampling.colbourn(weights, chance, n, single, rng, heads):
        return heads
    _split(solution.scores[item], heads, 0, single, rng)
    return heads


def expected_steps(solution: Solution, item: int) -> float:
    """Return the mean number of steps of Wilson's walks for one tree, inf where it is not known.

    The walks visit j, in the mean, s_j B_jj times, s_j the weight that enters j (Wilson 1996,
    theorem 3).  With the root arc at r, B_jj of the graph without r is g_rj + g_jr.
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


def _split(
    scores: FloatArray, heads: IntArray, dependent: int, single: bool, rng: np.random.Generator
) -> None:
    """Draw all heads of the next dependent at once, and go on with the trees that share one.

    One exact solution for each different prefix of heads: for scores so extreme that they leave
    the range of float64 weights, where the prefixes are few.
    """
    n = heads.shape[1]
    if dependent == n:
        return
    table = scores[: n + 1, : n + 1]
    column = solve(table[None].copy(), np.array([n]), single_root=single).marginals[0]
    chance = column[:, dependent + 1]
    counts = rng.multinomial(len(heads), chance / chance.sum())
    drawn = rng.permutation(np.repeat(np.arange(n + 1), counts))
    heads[:, dependent] = drawn
    for head in np.flatnonzero(counts):
        rows = drawn == head
        inner = heads[rows]
        _split(_fixed(table, int(head), dependent + 1), inner, dependent + 1, single, rng)
        heads[rows] = inner


def sample_labels(shares: FloatArray, heads: IntArray, rng: np.random.Generator) -> IntArray:
    """Return a label for each arc of heads (k, b, n) by the shares (b, n+1, n+1, y)."""
    _, items, dependents = np.indices(heads.shape)
    cumulative = np.cumsum(shares, axis=-1)[items, np.maximum(heads, 0), dependents + 1]
    target = rng.random(heads.shape) * cumulative[..., -1]
    labels = (cumulative <= target[..., None]).sum(axis=-1)
    return np.where(heads >= 0, labels, PADDING)


def sample_distinct(
    table: ArcTable, count: int, rng: np.random.Generator, *, single_root: bool
) -> list[tuple[IntArray, float]]:
    """Return up to `count` different (tree, score) of one sentence, in the order of their draws.

    A tree is a path of n choices.  Each prefix carries its log-probability and a Gumbel variable
    of that location, the maximum over the trees it leads to; the `count` largest prefixes of a
    level are kept, and at the last level their order is that of draws without replacement.
    """
    n = int(table.lengths[0])
    flat = table.flat[0] if table.labeled else table.flat[0][..., None]
    shares = table.shares[0] if table.labeled else (flat > -np.inf).astype(float)
    log_share = _log(shares)
    prefixes = np.empty((1, 0), dtype=np.int64)
    tables, log_prob = table.arcs.copy(), np.zeros(1)
    gumbel = rng.gumbel(size=1)
    for d in range(1, n + 1):
        solved = solve(tables, np.full(len(tables), n), single_root=single_root)
        options = (_log(solved.marginals[:, :, d])[:, :, None] + log_share[:, d]).reshape(
            len(tables), -1
        )
        location = log_prob[:, None] + options
        perturbed = _conditioned(location + rng.gumbel(size=location.shape), gumbel)
        order = np.argsort(-perturbed, axis=None)[:count]
        order = order[perturbed.flat[order] > -np.inf]
        parent, choice = np.unravel_index(order, perturbed.shape)
        log_prob, gumbel = location[parent, choice], perturbed[parent, choice]
        prefixes = np.concatenate([prefixes[parent], choice[:, None]], axis=1)
        labels = flat.shape[-1]
        tables = np.stack(
            [_fixed(tables[p], int(c) // labels, d) for p, c in zip(parent, choice, strict=True)]
        )
    trees = np.stack([prefixes // flat.shape[-1], prefixes % flat.shape[-1]], axis=-1)
    totals = flat[trees[..., 0], np.arange(1, n + 1), trees[..., 1]].sum(axis=-1)
    return [
        (tree if table.labeled else tree[:, 0], float(total))
        for tree, total in zip(trees, totals, strict=True)
    ]


def _conditioned(gumbel: FloatArray, maximum: FloatArray) -> FloatArray:
    """Return Gumbel variables (k, c) shifted so that each row's maximum is `maximum` (k,).

    -log(exp(-maximum) - exp(-row maximum) + exp(-gumbel)), in Kool's stable form.
    """
    top = gumbel.max(axis=1, keepdims=True)
    gap = maximum[:, None] - gumbel + _log1mexp(gumbel - top)
    return maximum[:, None] - np.maximum(gap, 0.0) - np.log1p(np.exp(-np.abs(gap)))


def _log1mexp(x: FloatArray) -> FloatArray:
    """Return log(1 - exp(x)) for x <= 0."""
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(x))


def _log(x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(x)


def _fixed(table: FloatArray, head: int, dependent: int) -> FloatArray:
    """Return the table with one head left for a dependent."""
    fixed = table.copy()
    fixed[:, dependent] = -np.inf
    fixed[head, dependent] = table[head, dependent]
    return fixed
