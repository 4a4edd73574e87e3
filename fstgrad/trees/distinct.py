"""Samples of distinct trees: draws without replacement.

Independent draws come first: the distinct trees among them, in order of first occurrence, are draws
without replacement.  If the distribution is so peaked that draws repeat, the other trees are drawn
from the exact distribution of the remaining ones (`kernels.distinct`).
"""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.sampling import AUTO_STEPS, expected_steps, sample_heads, sample_labels
from fstgrad.trees.solution import Solution

# At most this many independent draws per requested tree; then draw from the remaining trees.
DRAWS = 32
# Arcs this far below the best tree are never drawn; scores beyond are masks.
LIMIT = -1e5
# Weights below exp(-300) are handled on logarithms.
LOWEST = -300.0


def sample_distinct(
    table: ArcTable, solution: Solution, count: int, rng: np.random.Generator
) -> list[tuple[IntArray, float]]:
    """Return up to `count` distinct (tree, score) of one sentence, in the order of the draws."""
    n = int(table.lengths[0])
    trees = _first_occurrences(table, solution, count, rng)
    if len(trees) < count and n > 0:
        trees = _complete(table, solution, count, trees, rng)
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
    enough trees; later blocks do not change the trees found before.
    """
    found: dict[bytes, IntArray] = {}
    n = int(table.lengths[0])
    steps = max(1.0, expected_steps(solution, 0)) if n else 1.0  # one word, one root: no walk
    most = min(DRAWS, 1 + int(n**4 / (100 * steps))) if not n or steps < n * n * AUTO_STEPS else 0
    for _ in range(most):
        heads = sample_heads(solution, count, rng, "auto")
        labels = np.zeros_like(heads)
        if table.labeled:
            labels = sample_labels(table.shares, heads, rng)
        draws = np.stack([heads, labels], axis=-1)[:, 0]
        for draw in draws:
            found.setdefault(draw.tobytes(), draw)
            if len(found) == count:
                return np.array(list(found.values()))
    return np.array(list(found.values()), dtype=np.int64).reshape(len(found), n, 2)


def _complete(
    table: ArcTable, solution: Solution, count: int, known: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return the known trees (m, n, 2) and further ones, `count` in all if that many exist."""
    n = int(table.lengths[0])
    single = solution.single_root
    normal, closed = empty((n + 1, n + 1)), np.zeros(n + 1, dtype=bool)
    given = empty((n + 1, n + 1))
    kernels.normal.lift_masks(solution.given[0], given)
    kernels.normal.normalise(given, n, single, LIMIT, normal, closed)
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
    is_log = bool(weights.min(initial=0.0, where=finite) < LOWEST)
    state = rng.bit_generator.state
    for logs in (False, True) if not is_log else (True,):
        rng.bit_generator.state = state  # so that logarithms repeat the draws of floats
        choices = np.zeros((count, n), dtype=np.int64)
        kernels.distinct.to_choices(
            np.ascontiguousarray(known[..., 0]), np.ascontiguousarray(known[..., 1]), labels,
            single, choices,
        )  # fmt: skip
        parts = kernels.distinct.Parts(
            w=weights if logs else np.exp(np.minimum(weights, 0.0)),
            is_log=logs,
            children=children,
            label_logs=table.label_logs[0],
            choices=choices,
            logs=np.full((count, n, (n + 1) * labels), -np.inf),
            totals=np.full(count, -np.inf),
            branch=np.full(count, -1),
        )
        drawn = kernels.distinct.draw_distinct(parts, len(known), rng)
        if drawn >= 0:
            break
    trees = empty((drawn, n, 2), dtype=np.int64)
    heads, own = empty((2, drawn, n), dtype=np.int64)
    kernels.distinct.from_choices(choices[:drawn], labels, single, heads, own)
    trees[..., 0], trees[..., 1] = heads, own
    return trees
