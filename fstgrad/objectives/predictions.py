"""Predictions shared by all frameworks: padded tables and structures of minimum risk."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import warn
from fstgrad.losses import Loss
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.strings import StringDistribution
from fstgrad.strings.consensus import NO_FINITE_RISK, expected_losses
from fstgrad.strings.lattices import Lattice
from fstgrad.trees.spanning import SpanningTrees

PADDING = -100  # padding of predictions, the same as in padded gold


def padded(lists: Sequence[Sequence[IntArray]], k: int, shape: Sequence[int]) -> IntArray:
    """Return up to k structures for each of B items in one int64 table (B, k, *shape)."""
    table = np.full((len(lists), k, *shape), PADDING)
    for i, structures in enumerate(lists):
        for j, structure in enumerate(structures):
            # negative entries of a structure are padding too
            place: Any = (i, j, *map(slice, structure.shape))
            table[place] = np.where(structure < 0, PADDING, structure)
    return table


def string_of_least_risk(
    distribution: StringDistribution,
    loss: Loss,
    candidates: int,
    samples: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return the string of least expected loss among the k best, k = `candidates`.

    The expectation is estimated by the mean over `samples` drawn strings.
    """
    best = [ids for ids, _ in distribution.kbest(candidates)]
    return least_total_loss(best, list(distribution.sample(samples, rng)), loss)


def least_total_loss(
    candidates: Sequence[IntArray], evidence: Sequence[IntArray], loss: Loss
) -> IntArray:
    """Return the nonempty candidate with the least total loss, all strings of evidence as targets.

    If all candidates are empty, the first one.
    """
    known = [candidate for candidate in candidates if len(candidate)]
    if not known:
        return candidates[0]
    times = Counter(tuple(y.tolist()) for y in evidence)
    targets = [np.array(y, dtype=np.int64) for y in times]
    risks = loss.matrix(known, targets) @ np.array(list(times.values()), dtype=np.float64)
    return _of_least_risk(known, risks)


def lattice_string_of_least_risk(lattice: Lattice, loss: Loss, candidates: int) -> IntArray:
    """Return the nonempty string of least expected loss among the k best, k = `candidates`.

    The expectation is exact, or over 1,000 drawn strings, as in `expected_losses`.  The result is
    empty if all of the best strings are.
    """
    best = [ids for ids, _ in lattice.kbest(candidates) if len(ids)]
    if not best:
        return np.zeros(0, dtype=np.int64)
    return _of_least_risk(best, expected_losses(lattice, loss, best))


def _of_least_risk(candidates: Sequence[IntArray], risks: FloatArray) -> IntArray:
    """Return the first candidate with the least expected loss (C,); warn if all are infinite."""
    best = int(np.argmin(risks))
    if risks[best] == np.inf:
        warn(NO_FINITE_RISK, UserWarning)
    return candidates[best]


def tree_of_least_risk(trees: SpanningTrees) -> IntArray:
    """Return the tree with the largest expected number of correct arcs (and labels)."""
    marginals = trees.marginals()
    return trees.with_scores(np.where(marginals > 0, marginals, -np.inf)).mode()


def labels_of_least_risk(model: PairwiseMRF, method: str, options: Mapping[str, Any]) -> IntArray:
    """Return the labels with the fewest expected errors: those with largest marginals."""
    labels: IntArray = model.infer(method, **options).node.argmax(axis=1)
    return labels
