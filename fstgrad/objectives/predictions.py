"""Predictions shared by all frameworks: padded tables and structures of minimum risk."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.losses import Loss
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.strings import StringDistribution
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
    """Return the nonempty candidate against which the evidence has the least total loss."""
    lengths = np.array([len(y) for y in evidence])
    risks = []
    for candidate in candidates:
        if len(candidate) == 0:
            risks.append(np.inf)
            continue
        against, total = loss.against(candidate), 0.0
        for length in np.unique(lengths):
            rows = np.stack([y for y in evidence if len(y) == length])
            total += float(against.losses_of(rows).sum())
        risks.append(total)
    return candidates[int(np.argmin(risks))]


def lattice_string_of_least_risk(lattice: Lattice, loss: Loss, candidates: int) -> IntArray:
    """Return the nonempty string of least (exact) expected loss among the k best.

    k = `candidates`.  The result is empty if all of them are.
    """
    best = [ids for ids, _ in lattice.kbest(candidates) if len(ids)]
    risks = [lattice.expected_loss(lattice.compile(loss, ids)) for ids in best]
    return best[int(np.argmin(risks))] if best else np.zeros(0, dtype=np.int64)


def tree_of_least_risk(trees: SpanningTrees) -> IntArray:
    """Return the tree with the largest expected number of correct arcs (and labels)."""
    marginals = trees.marginals()
    return trees.with_scores(np.where(marginals > 0, marginals, -np.inf)).mode()


def labels_of_least_risk(model: PairwiseMRF, method: str, options: Mapping[str, Any]) -> IntArray:
    """Return the labels with the fewest expected errors: those with largest marginals."""
    labels: IntArray = model.infer(method, **options).node.argmax(axis=1)
    return labels
