"""log Z and marginals of chains of several lengths, stored position by position.

The distributions are those of `linear_chain.LinearChains`.  For the gradient of a training chunk
this form needs no padding, and only the sums of the pair marginals are computed.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import LARGEST_SCORE, FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.strings import kernels
from fstgrad.strings.linear_chain import SAFE, LinearChains


class Packed(NamedTuple):
    """The order of rows: all items at position 0, then all that reach position 1, and so on.

    Attributes
    ----------
    lengths : (B,) int64
        Lengths of the items, the longest first.
    sizes : (T,) int64
        How many items reach each position.
    item, position : (P,) int64
        Item and position of each row; P is the sum of the lengths.
    """

    lengths: IntArray
    sizes: IntArray
    item: IntArray
    position: IntArray

    @classmethod
    def of(cls, lengths: IntArray) -> "Packed":
        """Return the rows of items with the given lengths (B,), >= 1 and in descending order."""
        longest = int(lengths.max(initial=0))
        sizes = np.searchsorted(-lengths, -np.arange(longest), side="left").astype(np.int64)
        ends = np.cumsum(sizes)
        item = np.arange(lengths.sum()) - np.repeat(ends - sizes, sizes)
        return cls(lengths, sizes, item, np.repeat(np.arange(longest), sizes))


class PackedSums(NamedTuple):
    """log Z (B,) in nats, marginals (P, n), and pair marginals summed over all steps (n, n)."""

    log_z: FloatArray
    node: FloatArray
    pairs: FloatArray


def solve_packed(emissions: FloatArray, transitions: FloatArray, packed: Packed) -> PackedSums:
    """Return log Z and marginals of chains with emissions (P, n) and transitions (n, n).

    Both are log-weights in nats.  O(P n^2).  If the weights exceed the range of floats,
    `LinearChains` computes the result.

    Raises
    ------
    InfeasibleError
        Every string of an item has a score of -inf.
    InvalidInputError
        A score is NaN, +inf or above 1e300.
    """
    weights, largest = emissions.copy(), empty(len(emissions))
    kernels.packed_chains.shift_rows(weights, largest)
    steepest = float(transitions.max())
    highest, lowest = max(float(largest.max()), steepest), min(float(largest.min()), steepest)
    usual = -np.inf < lowest and highest <= LARGEST_SCORE and weights.max() <= 0  # no NaN
    if not usual:
        return _padded(emissions, transitions, packed)
    kernels.passes.exponentials(weights.reshape(-1))
    step = np.exp(transitions - steepest)
    n = len(transitions)
    node, pairs, log_z = np.zeros(weights.shape), np.zeros((n, n)), np.zeros(len(packed.lengths))
    turned = np.ascontiguousarray(step.T)
    least = kernels.packed_chains.packed_passes(
        weights, step, turned, packed.sizes, node, pairs, log_z
    )
    if not (least >= SAFE and np.isfinite(log_z).all()):
        return _padded(emissions, transitions, packed)
    log_z += np.bincount(packed.item, largest, len(log_z)) + (packed.lengths - 1) * steepest
    pairs *= step
    return PackedSums(log_z, node, pairs)


def _padded(emissions: FloatArray, transitions: FloatArray, packed: Packed) -> PackedSums:
    """Return the result of `solve_packed` by `LinearChains`, with padding."""
    lengths, n = packed.lengths, emissions.shape[1]
    padded = np.zeros((len(lengths), int(lengths[0]), n))
    padded[packed.item, packed.position] = emissions
    chains = LinearChains(padded, transitions, lengths)
    solved = chains.solve()
    pairs = chains.pair_sums(solved, np.ones(len(lengths)))
    return PackedSums(solved.log_z, solved.node[packed.item, packed.position], pairs)
