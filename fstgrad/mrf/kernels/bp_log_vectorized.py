"""The same equation as `bp_log`, for all messages at once; vectorized, up to 10 times as fast.

This is what runs if scores have hard zeros, span more than floats hold, or belong to larger
factors.  Measured against `bp_log.update_all` on a random graph of degree 4: 7 times as fast for 2
labels, 3 to 4 times for 5, 1.1 (a table for each edge) to 2.4 times for 20.

Arcs with the same direction along their edges (all even or all odd) are handled TILE at a time,
each in its own lane, so that inner loops run along arcs: lane w of a tile is arc first + 2 w.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate, logarithms
from fstgrad.mrf.arrays import Potentials
from fstgrad.mrf.kernels.bp_log import TINY, log_sum_of_terms

TILE = 64  # arcs
ONE, TWO = np.uint64(1), np.uint64(2)


class Tile(NamedTuple):
    """Scratch memory for the messages of TILE arcs.

    old, cavity, weight, out : (C, TILE)
        Old messages, cavity, exp(cavity - top) and new messages.
    top, work : (TILE,)
        The maximum of each lane, and memory for `fstgrad.core.vectors`.
    row : (C,)
    """

    old: FloatArray
    cavity: FloatArray
    weight: FloatArray
    out: FloatArray
    top: FloatArray
    work: FloatArray
    row: FloatArray


@kernel
def flood(
    low: int,
    high: int,
    source: IntArray,
    total: FloatArray,
    p: Potentials,
    messages: FloatArray,
    damping: float,
    maximum: int,
    fresh: FloatArray,
) -> float:
    """Write the new messages of arcs low .. high - 1 to `fresh`, damped as in `bp_log.damp`.

    All are computed from the old messages; messages, fresh (2E, C), total (I, C).  maximum = 1
    takes the largest term instead of the sum.  Returns the largest |new - old| before damping, in
    nats, or -1 if all labels of a node or of a message are dead.
    """
    size = total.shape[1]
    tile = Tile(
        empty((size, TILE)), empty((size, TILE)), empty((size, TILE)),
        empty((size, TILE)), empty(TILE), empty(TILE), empty(size),
    )  # fmt: skip
    largest = 0.0
    for base in range(low, high, 2 * TILE):
        for flip in range(2):
            first = base + ((base ^ flip) & 1)
            count = (min(high, base + 2 * TILE) - first + 1) // 2
            if not gather_cavities(first, count, source, total, messages, tile):
                return -1.0
            if maximum == 0:
                sum_over_sender(first, count, p, tile)
            else:
                maximize_over_sender(first, count, p, tile)
            largest = normalize_and_damp(first, count, damping, largest, tile, fresh)
            if largest < 0:
                return -1.0
    return largest


@part_kernel
def gather_cavities(
    first: int, count: int, source: IntArray, total: FloatArray, messages: FloatArray, tile: Tile
) -> bool:
    """Write old messages, cavities and their maxima to a tile; False if a lane is all -inf."""
    old, cavity, top = tile.old, tile.cavity, tile.top
    size = np.uint64(total.shape[1])
    for w in range(np.uint64(count)):
        arc = np.uint64(first) + TWO * w
        back, i = arc ^ ONE, np.uint64(source[arc])
        for c in range(size):
            score = total[i, c]
            cavity[c, w] = score - messages[back, c] if score > -np.inf else -np.inf
            old[c, w] = messages[arc, c]
    return column_maxima(cavity, count, top)


@part_kernel
def column_maxima(rows: FloatArray, count: int, top: FloatArray) -> bool:
    """Write the maximum over rows (C, TILE) of each lane to `top`; return False if one is -inf."""
    for w in range(count):
        top[w] = rows[0, w]
    for c in range(1, rows.shape[0]):
        for w in range(count):
            top[w] = rows[c, w] if rows[c, w] > top[w] else top[w]
    dead = 0
    for w in range(count):
        dead += top[w] == -np.inf
    return dead == 0


@part_kernel
def sum_over_sender(first: int, count: int, p: Potentials, tile: Tile) -> None:
    """Write out[b, w] = log sum_a exp(cavity[a, w] + edge[a, b]) for each label b and lane w."""
    size, flip = len(tile.row), first & 1
    for a in range(size):
        for w in range(count):
            tile.weight[a, w] = tile.cavity[a, w] - tile.top[w]
        exponentiate(tile.weight[a, :count], tile.work)
    if len(p.shift) == 1:
        for b in range(size):
            for w in range(count):
                tile.out[b, w] = 0.0
            for a in range(size):
                scale = p.exp_edge[0, b, a] if flip else p.exp_edge[0, a, b]
                for w in range(count):
                    tile.out[b, w] += tile.weight[a, w] * scale
    else:
        for w in range(count):
            e = (first >> 1) + w
            for a in range(size):
                tile.row[a] = tile.weight[a, w]
            for b in range(size):
                total = 0.0
                for a in range(size):
                    total += tile.row[a] * (p.exp_edge[e, b, a] if flip else p.exp_edge[e, a, b])
                tile.out[b, w] = total
    for b in range(size):
        logarithms_of_sums(first, count, b, p, tile)


@part_kernel
def logarithms_of_sums(first: int, count: int, b: int, p: Potentials, tile: Tile) -> None:
    """Replace the sums out[b] by their logs; recompute those at most TINY from the scores."""
    out, logs = tile.out, tile.weight[b, :count]
    few = 0
    for w in range(count):
        few += not out[b, w] > TINY
        logs[w] = out[b, w] if out[b, w] > TINY else 1.0
    logarithms(logs, tile.work)
    for w in range(count):
        if few > 0 and not out[b, w] > TINY:
            out[b, w] = _log_sum_of_lane(first, w, b, p, tile)
        else:
            out[b, w] = logs[w] + tile.top[w] + p.shift[(first >> 1) + w if len(p.shift) > 1 else 0]


@part_kernel
def maximize_over_sender(first: int, count: int, p: Potentials, tile: Tile) -> None:
    """Write out[b, w] = max_a (cavity[a, w] + edge[a, b]) for each label b and lane w."""
    size, flip = len(tile.row), first & 1
    for b in range(size):
        for w in range(count):
            k = (first >> 1) + w if len(p.shift) > 1 else 0
            best = -np.inf
            for a in range(size):
                term = tile.cavity[a, w] + (p.edge[k, b, a] if flip else p.edge[k, a, b])
                best = term if term > best else best
            tile.out[b, w] = best


@part_kernel
def _log_sum_of_lane(first: int, w: int, b: int, p: Potentials, tile: Tile) -> float:
    """Return log sum_a exp(cavity[a, w] + edge[a, b]) from the scores, without underflow."""
    for a in range(len(tile.row)):
        tile.row[a] = tile.cavity[a, w]
    k = (first >> 1) + w if len(p.shift) > 1 else 0
    return log_sum_of_terms(tile.row, p.edge, k, first & 1, 0, b)


@part_kernel
def normalize_and_damp(
    first: int, count: int, damping: float, largest: float, tile: Tile, fresh: FloatArray
) -> float:
    """Write the messages of a tile to `fresh`, maximum 0, damped as in `bp_log.damp`.

    Returns the larger of `largest` and the largest change before damping, in nats, or -1 if all
    labels of a message are dead.
    """
    out, old, top = tile.out, tile.old, tile.top
    if not column_maxima(out, count, top):
        return -1.0
    size = out.shape[0]
    for c in range(size):
        beyond = 0
        for w in range(count):
            out[c, w] -= top[w]
            beyond += (abs(out[c, w] - old[c, w]) > largest) & (out[c, w] != old[c, w])
        if beyond > 0:
            for w in range(count):
                if out[c, w] != old[c, w]:
                    largest = max(largest, abs(out[c, w] - old[c, w]))
    if damping > 0:
        for c in range(size):
            for w in range(count):
                new, before = out[c, w], old[c, w]
                damped = (1 - damping) * new + damping * before
                out[c, w] = damped if (new > -np.inf) & (before > -np.inf) else new
        column_maxima(out, count, top)
    for w in range(np.uint64(count)):
        arc = np.uint64(first) + TWO * w
        for c in range(np.uint64(size)):
            fresh[arc, c] = out[c, w] - top[w] if damping > 0 else out[c, w]
    return largest
