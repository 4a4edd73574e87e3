"""Distributions over trees with all their trees, and scores that are hard on floats."""

import numpy as np

import fstgrad as fg
from tests.contract import Enumerated
from tests.oracles import trees as oracle


def enumerated(scores, *, single_root, family=fg.SpanningTrees, projective=False):
    structures, tables = oracle.tables(scores.shape, single_root=single_root, projective=projective)
    allowed = [np.isfinite(scores[t > 0]).all() for t in tables]
    structures = [s for s, keep in zip(structures, allowed, strict=True) if keep]
    tables = [(t,) for t, keep in zip(tables, allowed, strict=True) if keep]

    def make(table):
        return family(table[0], single_root=single_root, labeled=scores.ndim == 3)

    return Enumerated(make((scores,)), structures, tables, np.zeros(len(tables)), (scores,), make)


def masked(scores, *arcs):
    scores = scores.copy()
    for arc in arcs:
        scores[arc] = -np.inf
    return scores


def normal(sd, n=7, seed=0):
    return sd * np.random.default_rng(seed).normal(size=(n + 1, n + 1))


def mutual_heads():
    scores = normal(1)
    scores[2, 5] += 40
    scores[5, 2] += 40
    return scores


def three_cycle():
    scores = normal(1)
    for head, dependent in ((1, 4), (4, 6), (6, 1)):
        scores[head, dependent] += 40
    return scores


def weakly_joined_blocks(gap=-40.0):
    scores = normal(1, n=8)
    left = np.arange(9) < 5
    scores[np.ix_(left, ~left)] = gap
    scores[np.ix_(~left, left)] = gap
    return scores


def nested_cycles():
    """Cycles of cycles whose ways out are ever weaker, beyond the range of float64 weights."""
    scores = np.full((9, 9), -1500.0)
    scores[0] = -2500.0
    for head, dependent, score in (
        (1, 2, 0), (2, 1, 0), (3, 4, 0), (4, 3, 0), (5, 6, 0), (6, 5, 0), (7, 8, 0), (8, 7, 0),
        (1, 3, -800), (4, 2, -900), (5, 8, -700), (7, 6, -750),
    ):  # fmt: skip
        scores[head, dependent] = score
    return scores + normal(1, n=8)


def nested_pairs(n=16, step=60.0):
    """Word k joins the cycle of the words before it at the cost of `step`: n - 1 nested cycles.

    Weights fall below those that floats tell from 0 even in normal form.
    """
    ranks = np.maximum.outer(np.arange(n + 1), np.arange(n + 1)) - 1
    scores = -step * ranks
    scores[0] = -step * (n + 1)
    return scores + normal(1, n=n)


def offsets():
    return normal(1) + 100 * np.random.default_rng(3).normal(size=8)


KILLERS = {
    "sd 20": normal(20),
    "sd 50": normal(50),
    "sd 100": normal(100),
    "sd 400": normal(400),
    "mutual heads": mutual_heads(),
    "three-cycle": three_cycle(),
    "two blocks": weakly_joined_blocks(),
    "two far blocks": weakly_joined_blocks(-900.0),
    "nested cycles": nested_cycles(),
    "all -200": np.full((8, 8), -200.0),
    "offsets of the dependents": offsets(),
    "one dependent": normal(100, n=1),
    "two dependents": normal(100, n=2),
}
