"""What the predictions of every framework share: padded tables, and strings of the least risk."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fstgrad.checks import IntArray
from fstgrad.lattices import Lattice
from fstgrad.losses import Loss
from fstgrad.trees.spanning import SpanningTrees

NOTHING = -100  # where there is nothing, so that results can be compared with padded gold


def padded(lists: Sequence[Sequence[IntArray]], k: int, shape: Sequence[int]) -> IntArray:
    """Return up to k structures for each of B items in one table (B, k, *shape)."""
    table = np.full((len(lists), k, *shape), NOTHING)
    for i, own in enumerate(lists):
        for j, structure in enumerate(own):
            # what a family marks by a negative number is padding too
            place: Any = (i, j, *map(slice, structure.shape))
            table[place] = np.where(structure < 0, NOTHING, structure)
    return table


def least_risk(
    candidates: Sequence[IntArray], evidence: Sequence[IntArray], loss: Loss
) -> IntArray:
    """Return the candidate of the least mean loss of the evidence against it."""
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
    """Return the nonempty string with the least expected loss, exact, among the k best."""
    best = [ids for ids, _ in lattice.kbest(candidates) if len(ids)]
    risks = [lattice.expected_loss(lattice.compile(loss, ids)) for ids in best]
    return best[int(np.argmin(risks))] if best else np.zeros(0, dtype=np.int64)


def most_attached(trees: SpanningTrees) -> IntArray:
    """Return the tree of the most expected right arcs (and labels)."""
    shares = trees.marginals()
    return trees.with_scores(np.where(shares > 0, shares, -np.inf)).mode()
