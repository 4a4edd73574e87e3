"""The features of windows as numbers: keys of spans and tags, and a hash table of keys.

A key is a number in base `base`.  The first digit of a span is its offset; the others are its
symbols, with 1 for the boundary and 0 for unused digits.  The keys of names with tags are above all
keys of spans.
"""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty, empty_like

KEYS_PER_TAG = 4  # a tag alone, with the centre, with the distance to the end, with the last 3
NEAREST = 4  # greater distances to the end are not distinguished
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth, multiplicative hashing)


@kernel
def window_keys(
    symbols: IntArray,
    first: IntArray,
    tags: IntArray,
    first_tag: IntArray,
    lengths: IntArray,
    shape: tuple[int, int, int],
) -> tuple[IntArray, IntArray]:
    """Return (starts, keys) of all positions of the outputs of all inputs.

    symbols : the symbols of all inputs, 2 and above, -1 if unknown
    first : (N + 1,) where the symbols of each input begin
    tags, first_tag : the same for tags, numbered 0 and above, -1 if unknown
    lengths : (N,) number of positions of each output
    shape : width, span, base
    """
    width, span, base = shape
    positions, most = 0, 0
    for i in range(len(lengths)):
        positions += lengths[i]
        per_position = (2 * width + 1) * span + 1 + KEYS_PER_TAG * (first_tag[i + 1] - first_tag[i])
        most += lengths[i] * per_position
    # at most, a position has a bias, `span` keys for each of 2 width + 1 starts, and KEYS_PER_TAG
    # keys for each tag
    starts, keys = np.zeros(positions + 1, dtype=np.int64), empty(most, dtype=np.int64)
    tail = 1
    for _ in range(span):
        tail *= base
    position, k = 0, 0
    for i in range(len(lengths)):
        x = symbols[first[i] : first[i + 1]]
        size = len(x)
        for s in range(lengths[i]):
            centre = (2 * s + 1) * size // (2 * lengths[i])
            keys[k] = (2 * width + 1) * tail  # the bias
            k += 1
            end = min(centre + width, size)
            for start in range(max(centre - width, -1), end + 1):
                key, unit = (start - centre + width) * tail, tail
                for j in range(start, min(start + span - 1, end) + 1):
                    digit = 1 if j == -1 or j == size else x[j]
                    if digit < 0:
                        break
                    unit //= base
                    key += digit * unit
                    keys[k] = key
                    k += 1
            above = (2 * width + 2) * tail
            for tag in tags[first_tag[i] : first_tag[i + 1]]:
                if tag >= 0:
                    k = _tag_keys(x, centre, tag, above, base, keys, k)
            position += 1
            starts[position] = k
    return starts, keys[:k]


@inner_kernel
def _tag_keys(
    x: IntArray, centre: int, tag: int, above: int, base: int, keys: IntArray, k: int
) -> int:
    """Write the keys of one tag at keys[k:]; return the index after them."""
    unit = base * base * base
    keys[k] = above + (tag * KEYS_PER_TAG) * unit
    k += 1
    if x[centre] >= 0:
        keys[k] = above + (tag * KEYS_PER_TAG + 1) * unit + x[centre]
        k += 1
    keys[k] = above + (tag * KEYS_PER_TAG + 2) * unit + min(len(x) - centre, NEAREST)
    k += 1
    digits = 0
    for j in range(max(centre - 2, 0), centre + 1):
        if x[j] < 0:
            return k
        digits = digits * base + x[j]
    keys[k] = above + (tag * KEYS_PER_TAG + 3) * unit + digits
    return k + 1


@kernel
def hash_keys(keys: IntArray, slots: IntArray) -> None:
    """Write the numbers of the keys to `slots`, all -1 (free) at first.

    The number of slots is a power of two and exceeds the number of keys.
    """
    mask = np.uint64(len(slots) - 1)
    for number in range(len(keys)):
        place = _slot(keys[number], mask)
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = number


@kernel
def find_keys(
    starts: IntArray, wanted: IntArray, keys: IntArray, slots: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (starts, ids): the numbers of the known keys among those wanted at each position."""
    mask = np.uint64(len(slots) - 1)
    known, ids = np.zeros_like(starts), empty_like(wanted)
    k = 0
    for s in range(len(starts) - 1):
        for i in range(starts[s], starts[s + 1]):
            place = _slot(wanted[i], mask)
            while slots[place] >= 0:
                if keys[slots[place]] == wanted[i]:
                    ids[k] = slots[place]
                    k += 1
                    break
                place = (place + np.uint64(1)) & mask
        known[s + 1] = k
    return known, ids[:k]


@inner_kernel
def _slot(key: int, mask: np.uint64) -> np.uint64:
    return ((np.uint64(key) * _MIX) >> np.uint64(20)) & mask
