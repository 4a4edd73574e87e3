"""Exact samples of spanning trees: independent draws, and draws without replacement.

Without replacement, independent draws come first: the distinct trees among them, in order of first
occurrence, are draws without replacement.  If the distribution is so peaked that draws repeat, the
other trees are drawn from the exact distribution of the remaining ones
(`kernels.without_replacement`).
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, writable
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.solution import Solution
from fstgrad.trees.structures import PADDING, RankedTree

# If Wilson's walks need on average more than this times n^2 steps per tree, Colbourn's method runs:
# the first limit is for method "auto", the second for "wilson".
AUTO_STEPS, WILSON_STEPS = 10, 1000
# At most this many independent draws per requested distinct tree; then draw from the other trees.
DRAWS = 32
# Arcs this far below the best tree are never drawn; scores beyond are masks.
LOWEST_DRAWN = -1e5
# Weights below exp(-300) are handled on logarithms.
LOWEST_WEIGHT = -300.0


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
    (Wilson 1996).  With the root arc at r, B_jj of the graph without r is g_rj + g_jr.
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


def sample_without_replacement(
    table: ArcTable, solution: Solution, count: int, rng: np.random.Generator
) -> list[RankedTree]:
    """Return up to `count` distinct (tree, score) of one sentence, in the order of the draws."""
    n = int(table.lengths[0])
    trees = _first_occurrences(table, solution, count, rng)
    if len(trees) < count and n > 0:
        trees = _draw_remaining(table, solution, count, trees, rng)
    flat = table.flat[0] if table.labeled else table.flat[0][..., None]
    totals = flat[trees[..., 0], np.arange(1, n + 1), trees[..., 1]].sum(axis=-1)
    return [
        (tree if table.labeled else tree[:, 0], float(total))
        for tree, total in zip(trees, totals, strict=True)
    ]


def _first_occurrences(
    table: ArcTable, solution: Solution, count: int, rng: np.random.Generator
) -> IntArray:
    """Return the distinct trees (k, n, 2) among independent draws, at most `count`.

    They cost no more than the same number of draws from the remaining trees: one step of a walk is
    counted as 8 of the n^4 / 12 multiplications of such a draw.  Blocks are drawn until there are
    enough trees; later blocks do not change the trees of earlier ones.
    """
    distinct: dict[bytes, IntArray] = {}
    n = int(table.lengths[0])
    steps = max(1.0, expected_steps(solution, 0)) if n else 1.0  # one word, one root: no walk
    blocks = min(DRAWS, 1 + int(n**4 / (100 * steps))) if not n or steps < n * n * AUTO_STEPS else 0
    for _ in range(blocks):
        heads = sample_heads(solution, count, rng, "auto")
        labels = np.zeros_like(heads)
        if table.labeled:
            labels = sample_labels(table.shares, heads, rng)
        draws = np.stack([heads, labels], axis=-1)[:, 0]
        for draw in draws:
            distinct.setdefault(draw.tobytes(), draw)
            if len(distinct) == count:
                return np.array(list(distinct.values()))
    return np.array(list(distinct.values()), dtype=np.int64).reshape(len(distinct), n, 2)


def _draw_remaining(
    table: ArcTable, solution: Solution, count: int, drawn: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return the drawn trees (m, n, 2) and further ones, `count` in all if that many exist."""
    n = int(table.lengths[0])
    single = solution.single_root
    normal, closed = empty((n + 1, n + 1)), np.zeros(n + 1, dtype=bool)
    raised = empty((n + 1, n + 1))
    kernels.normal_form.lift_masks(writable(solution.given[0]), raised)
    kernels.normal_form.write_normal_form(raised, n, single, LOWEST_DRAWN, normal, closed)
    children = np.zeros(0)
    if single:
        log_gradient, marginals = empty((2, n + 1, n + 1))
        kernels.elimination.solve_logs(
            normal, np.zeros((0, n + 1, n + 1)), n, single, closed, log_gradient, marginals[None]
        )
        children = normal[0] + log_gradient[0]
    labels = table.label_logs.shape[-1]
    top = normal[1 if single else 0 :].max(axis=0)  # per dependent
    weights = normal - np.where(top > -np.inf, top, 0.0)
    finite = weights > -np.inf
    finite[0] &= not single
    is_log = bool(weights.min(initial=0.0, where=finite) < LOWEST_WEIGHT)
    state = rng.bit_generator.state
    for logs in (False, True) if not is_log else (True,):
        rng.bit_generator.state = state  # so that logarithms repeat the draws of floats
        choices = np.zeros((count, n), dtype=np.int64)
        kernels.without_replacement.to_choices(
            np.ascontiguousarray(drawn[..., 0]), np.ascontiguousarray(drawn[..., 1]), labels,
            single, choices,
        )  # fmt: skip
        parts = kernels.without_replacement.RemainingTrees(
            w=weights if logs else np.exp(np.minimum(weights, 0.0)),
            is_log=logs,
            children=children,
            label_logs=table.label_logs[0],
            choices=choices,
            logs=np.full((count, n, (n + 1) * labels), -np.inf),
            totals=np.full(count, -np.inf),
            branch=np.full(count, -1),
        )
        total = kernels.without_replacement.draw_remaining(parts, len(drawn), rng)
        if total >= 0:  # all pivots were safe
            break
    trees = empty((total, n, 2), dtype=np.int64)
    tree_heads, tree_labels = empty((2, total, n), dtype=np.int64)
    kernels.without_replacement.from_choices(
        choices[:total], labels, single, tree_heads, tree_labels
    )
    trees[..., 0], trees[..., 1] = tree_heads, tree_labels
    return trees
