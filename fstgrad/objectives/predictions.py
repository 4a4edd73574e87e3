"""Predictions shared by all frameworks: padded tables and structures of minimum risk."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.losses import Loss
from fstgrad.strings.lattices import Lattice
from fstgrad.trees.spanning import SpanningTrees

NOTHING = -100  # padding of predictions, the same as in padded gold


def padded(lists: Sequence[Sequence[IntArray]], k: int, shape: Sequence[int]) -> IntArray:
    """Return up to k structures for each of B items in one int64 table (B, k, *shape)."""
    table = np.full((len(lists), k, *shape), NOTHING)
    for i, own in enumerate(lists):
        for j, structure in enumerate(own):
            # negative entries of a structure are padding too
            place: Any = (i, j, *map(slice, structure.shape))
            table[place] = np.where(structure < 0, NOTHING, structure)
    return table


def least_risk(
    candidates: Sequence[IntArray], evidence: Sequence[IntArray], loss: Loss
) -> IntArray:
    """Return the nonempty candidate against which the evidence has the smallest total loss."""
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


def best_of_lattice(lattice: Lattice, loss: Loss, candidates: int) -> IntArray:
    """Return the nonempty string of the smallest exact expected loss among the k best.

    k = `candidates`.  The result is empty if all of them are.
    """
    best = [ids for ids, _ in lattice.kbest(candidates) if len(ids)]
    risks = [lattice.expected_loss(lattice.compile(loss, ids)) for ids in best]
    return best[int(np.argmin(risks))] if best else np.zeros(0, dtype=np.int64)


def most_attached(trees: SpanningTrees) -> IntArray:
    """Return the tree with the largest expected number of correct arcs (and labels)."""
    shares = trees.marginals()
    return trees.with_scores(np.where(shares > 0, shares, -np.inf)).mode()
