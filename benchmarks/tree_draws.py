"""Draw 64 spanning trees without replacement, against the beam of Stanojevic (2022) in JAX.

A second table draws the same heads with O(n^2) updates of an inverse (Sherman-Morrison) instead of
eliminations.  A level is safe if all its probabilities keep 6 digits.  If one does not, the level
is computed by elimination; after an improbable head, the inverse is computed again.
"""

import importlib.util
import pathlib
import sys

from _harness import interleaved_medians, one_thread, run

one_thread()
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import numba  # noqa: E402
import numpy as np  # noqa: E402

from fstgrad import SpanningTrees  # noqa: E402
from fstgrad.trees import kernels  # noqa: E402
from fstgrad.trees.kernels.sampling import contract as contract_weights  # noqa: E402
from fstgrad.trees.kernels.sampling import draw, head_weights  # noqa: E402

COUNT = 64
# Probabilities below LEAST_CHANCE, and updates by less than LEAST_RATIO, lose too many digits.
LEAST_CHANCE, LEAST_RATIO = 1e-10, 1e-6


def without_replacement(quick):
    for n in (10, 20, 40):
        for sd in (1.0, 5.0):
            scores = sd * np.random.default_rng(n).normal(size=(n + 1, n + 1))
            calls = {"ours": lambda s=scores: ours(s)}
            assert len(ours(scores)) == COUNT
            if importlib.util.find_spec("jax"):
                calls["jax"] = lambda s=scores: beam(s)
                known = SpanningTrees(scores, single_root=True)
                heads, logs = beam(scores)
                assert len({tuple(tree) for tree in heads.tolist()}) == COUNT
                wrong = float(np.abs(logs - known.log_prob(heads)).max())
            seconds = interleaved_medians(calls)
            row = {"distinct trees": COUNT, "n": n, "sd": sd, "seconds fstgrad": seconds["ours"]}
            if "jax" in seconds:
                row["seconds JAX beam"] = seconds["jax"]
                row["times"] = seconds["jax"] / seconds["ours"]
                row["its error of log p"] = wrong
            yield row


def ours(scores):
    return SpanningTrees(scores, single_root=True).sample_without_replacement(COUNT, 0)


def beam(scores):
    import _jax_trees
    import jax

    key = jax.random.key(0)
    return tuple(map(np.asarray, _jax_trees.sample_without_replacement(key, scores, COUNT)))


@numba.njit
def inverse_of(a, j):
    """Return the inverse Laplacian of the first j + 1 dependents, given weights a."""
    matrix = -a[1 : j + 2, : j + 1]
    for k in range(j + 1):
        matrix[k, k] = 0.0
        matrix[k, k] = a[0, k] - matrix[:, k].sum()
    return np.linalg.inv(matrix)


@numba.njit
def updated_draws(w, count, rng, heads):
    """Draw trees into `heads` (count, n); return how many of the count * n levels were safe."""
    n = len(w) - 1
    first = inverse_of(w[:, 1:].copy(), n - 1)
    chances, sums, direction = np.empty(n + 1), np.empty(n + 1), np.empty(n)
    safe = 0
    for item in range(count):
        a, holder, x = w[:, 1:].copy(), np.arange(n + 1), first.copy()
        for j in range(n - 1, -1, -1):
            good = True
            for h in range(n + 1):
                at = holder[h]
                slope = x[j, j] - x[j, at - 1] if at > 0 else x[j, j]
                chances[h] = 0.0 if at == j + 1 else w[h, j + 1] * slope
                good &= chances[h] >= LEAST_CHANCE or w[h, j + 1] == 0.0 or at == j + 1
            safe += good
            if not good:
                head_weights(a[: j + 2, : j + 1], w, holder, j, False, chances)
            sums[:] = np.cumsum(chances)
            head = draw(sums, rng)
            heads[item, j] = head
            above, ratio = holder[head], chances[head] / sums[n]
            contract_weights(a, holder, j, head, False)
            if j > 0 and (ratio < LEAST_RATIO or not good):
                x = inverse_of(a, j - 1)
            elif j > 0:
                contract(x, j, above, direction)
    return safe


@numba.njit
def contract(x, j, above, direction):
    """Merge dependent j into `above`: remove its row and column from the inverse, in O(n^2)."""
    pivot = x[j, j] if above == 0 else x[j, j] - x[j, above - 1]
    for k in range(j):
        direction[k] = x[k, j] if above == 0 else x[k, j] - x[k, above - 1]
    for k in range(j):
        factor = direction[k] / pivot
        for i in range(j):
            x[k, i] -= factor * x[j, i]


def on_updates(quick):
    rng = np.random.default_rng(6)
    for n in (10, 20, 40):
        for sd in (1.0, 5.0, 20.0):
            scores = sd * rng.normal(size=(n + 1, n + 1))
            np.fill_diagonal(scores, -np.inf)
            scores[:, 1:] -= scores[:, 1:].max(axis=0)
            w = np.exp(scores)
            w[:, 0] = 0.0
            heads = np.empty((COUNT, n), dtype=np.int64)
            safe = updated_draws(w, COUNT, np.random.default_rng(0), heads)
            again = heads.copy()
            marginals = SpanningTrees(scores, single_root=False).marginals()[0].copy()
            own = (w, marginals, False, False)
            kernels.sampling.colbourn(*own, np.random.default_rng(0), heads)
            seconds = interleaved_medians(
                {
                    "updates": lambda w=w, h=again: updated_draws(
                        w, COUNT, np.random.default_rng(0), h
                    ),
                    "eliminations": lambda w=w, mu=marginals, h=heads: kernels.sampling.colbourn(
                        w, mu, False, False, np.random.default_rng(0), h
                    ),
                }
            )
            yield {
                "heads of 64 trees": n,
                "sd": sd,
                "levels that are safe": safe / (COUNT * n),
                "same trees": float((heads == again).all(axis=1).mean()),
                "seconds updates": seconds["updates"],
                "seconds eliminations": seconds["eliminations"],
                "times": seconds["eliminations"] / seconds["updates"],
            }


def rows(quick):
    yield from without_replacement(quick)
    yield from on_updates(quick)


if __name__ == "__main__":
    run("Draws of spanning trees without replacement", rows)
