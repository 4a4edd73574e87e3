"""Kernels of flooding belief propagation on 4- and 8-connected grids, in the linear domain.

The same equation as `bp_linear`, for images: neighbours are found by position, without lists of
arcs.  Measured on 4-connected grids, it is 1.5 to 1.8 times as fast for 2 labels and 1.1 to 1.7
times for 5 and 20.

Direction d joins each pixel (r, c) with the later pixel (r, c) + steps[d], for D = 2 directions of
4-connected and D = 4 of 8-connected grids.  All arrays have the pixels of a row last, so that every
inner loop runs along a row:

    node (height, C, width)          exp(node score - maximum)
    messages (2D, height, C, width)  messages into each pixel, maximum 1: from the earlier pixel of
                                     direction d at 2d, from the later one at 2d + 1; messages from
                                     beyond the border stay 1
    table (D, height, C, C, >= width) exp(edge score - maximum) of the w-th edge of direction d from
                                     row r, [label of the earlier pixel, of the later]; or
                                     (1, 1, C, C, 1), a table that all edges share

The message of pixel i to pixel j is

    message[b] = sum_a node_i[a] * product of messages into i except from j [a] * edge[a, b],

divided by its maximum.  This domain is only for models whose edge tables have no zero and span less
than `grid.LARGEST_SPAN` nats: then no message entry is below e^-LARGEST_SPAN, and a product of
messages can leave the float range only if its maximum does.  If the maximum of a new message is
below TINY, the sweep stops, and the caller starts again in the log domain.  Until then, what
underflows is less than 1e-60 of what is kept.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate, logarithms
from fstgrad.mrf.arrays import Index

TINY = 1e-140
NO = np.uint64(0)


@inner_kernel
def multiply_other_directions(
    d: int, r: int, node: FloatArray, messages: FloatArray, out: FloatArray
) -> None:
    """Write out (C, W) = the node weights of row r times the messages of all directions but d."""
    for c in range(out.shape[0]):
        for w in range(out.shape[1]):
            out[c, w] = node[r, c, w]
    for e in range(len(messages) // 2):
        if e != d:
            early, late = messages[2 * e, r], messages[2 * e + 1, r]
            for c in range(out.shape[0]):
                for w in range(out.shape[1]):
                    out[c, w] *= early[c, w] * late[c, w]


@inner_kernel
def multiply(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Write out = left * right, elementwise, for arrays (C, W)."""
    for c in range(out.shape[0]):
        for w in range(out.shape[1]):
            out[c, w] = left[c, w] * right[c, w]


@inner_kernel
def tables_of_row(table: FloatArray, d: int, r: int) -> FloatArray:
    """Return the tables (C, C, >= width) or (C, C, 1) of the edges of direction d from row r."""
    tables: FloatArray = table[d if len(table) > 1 else 0, r if table.shape[1] > 1 else 0]
    return tables


@part_kernel
def marginalize(
    cavity: FloatArray, scores: FloatArray, flip: int, maximum: int, first: Index, width: Index,
    to: Index, out: FloatArray,
) -> None:  # fmt: skip
    """Write out[b, to + w] = sum (or maximum) over a of cavity[a, first + w] * scores[a, b, w].

    `scores` (C, C, W) holds weights exp(score - maximum), not logs; flip = 1 reads scores[b, a, w];
    a table (C, C, 1) is used for all w.  w runs over 0 .. width - 1.
    """
    size, shared = cavity.shape[0], scores.shape[2] == 1
    for b in range(size):
        for w in range(width):
            out[b, to + w] = 0.0
    done = size - size % 2 if maximum == 0 else 0
    for b in range(0, done, 2):
        for a in range(0, done, 2):
            _add_block(cavity, a, scores, flip, b, first, width, to, out)
    for b in range(size):
        for a in range(done if b < done else 0, size):
            i, j = (b, a) if flip == 1 else (a, b)
            weight = scores[i, j, 0]
            if shared and maximum == 0:
                for w in range(width):
                    out[b, to + w] += cavity[a, first + w] * weight
            elif shared:
                for w in range(width):
                    out[b, to + w] = max(out[b, to + w], cavity[a, first + w] * weight)
            elif maximum == 0:
                for w in range(width):
                    out[b, to + w] += cavity[a, first + w] * scores[i, j, w]
            else:
                for w in range(width):
                    out[b, to + w] = max(out[b, to + w], cavity[a, first + w] * scores[i, j, w])


@inner_kernel
def _add_block(
    cavity: FloatArray, a: int, scores: FloatArray, flip: int, b: int, first: Index, width: Index,
    to: Index, out: FloatArray,
) -> None:  # fmt: skip
    """Add the terms of labels a, a + 1 to the sums of labels b, b + 1: half the memory traffic."""
    i, j = (b, a) if flip == 1 else (a, b)
    di, dj = (0, 1) if flip == 1 else (1, 0)  # a step from a to a + 1
    if scores.shape[2] == 1:
        s, t = scores[i, j, 0], scores[i + di, j + dj, 0]
        u, v = scores[i + dj, j + di, 0], scores[i + 1, j + 1, 0]
        for w in range(width):
            p, q = cavity[a, first + w], cavity[a + 1, first + w]
            out[b, to + w] += p * s + q * t
            out[b + 1, to + w] += p * u + q * v
    else:
        for w in range(width):
            p, q = cavity[a, first + w], cavity[a + 1, first + w]
            out[b, to + w] += p * scores[i, j, w] + q * scores[i + di, j + dj, w]
            out[b + 1, to + w] += p * scores[i + dj, j + di, w] + q * scores[i + 1, j + 1, w]


@part_kernel
def normalize_and_damp(
    row: FloatArray, old: FloatArray, damping: float, first: Index, width: Index, top: FloatArray,
    ratio: FloatArray, fresh: FloatArray,
) -> bool:  # fmt: skip
    """Scale the messages row[:, w] to maximum 1, damp them and write them to fresh[:, first + w].

    Damping takes the geometric mean new^(1 - damping) * old^damping.  ratio (2,) is updated to the
    largest and the smallest new / old so far, before damping.  top (>= width,) is scratch memory.
    Returns False, without writing, if the maximum of a message is below TINY.
    """
    for w in range(width):
        top[w] = row[0, w]
    for c in range(1, row.shape[0]):
        for w in range(width):
            top[w] = max(top[w], row[c, w])
    fine = 0
    for w in range(width):
        fine += top[w] >= TINY
    if fine < width:
        return False
    for w in range(width):
        top[w] = np.divide(1.0, top[w])  # a division sign would test for zero
    for c in range(row.shape[0]):
        rise, fall, beyond = ratio[0], ratio[1], 0
        for w in range(width):
            value, before = row[c, w] * top[w], old[c, first + w]
            fresh[c, first + w] = value
            beyond += (value > rise * before) | (value < fall * before)
        if beyond > 0:  # divide only here: it is rare, and divisions are slow
            for w in range(width):
                quotient = fresh[c, first + w] / old[c, first + w]
                rise, fall = max(rise, quotient), min(fall, quotient)
            ratio[0], ratio[1] = rise, fall
    if damping > 0.0:
        _damp(old[:, first : first + width], damping, top, fresh[:, first : first + width])
    return True


@part_kernel
def _damp(old: FloatArray, damping: float, top: FloatArray, fresh: FloatArray) -> None:
    """Replace the new messages (C, width) by new^(1 - damping) * old^damping, scaled to maximum 1.

    `top` (>= width,) is scratch memory.
    """
    size, width = fresh.shape
    # both are as wide as a row of messages; messages lie in [e^-200, 1], so quotients are in range
    power, work = empty(width), empty(width)
    for c in range(size):
        for w in range(width):
            power[w] = np.divide(old[c, w], fresh[c, w])
        logarithms(power, work)
        for w in range(width):
            power[w] *= damping
        exponentiate(power, work)
        for w in range(width):
            fresh[c, w] *= power[w]
            top[w] = fresh[c, w] if c == 0 else max(top[w], fresh[c, w])
    for w in range(width):
        top[w] = np.divide(1.0, top[w])
    for c in range(size):
        for w in range(width):
            fresh[c, w] *= top[w]


@kernel
def sweep(
    low: int,
    high: int,
    steps: IntArray,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    messages: FloatArray,
    fresh: FloatArray,
) -> float:
    """Write the messages that rows low .. high - 1 send to `fresh`; return the largest change.

    The change is |log new - log old| before damping, in nats; -1 if a maximum is below TINY.  steps
    (D, 2) int64: rows down, 0 or 1, and columns to the right, -1, 0 or 1.
    """
    height, size, width = node.shape
    others, cavity, out = empty((size, width)), empty((size, width)), empty((size, width))
    top, ratio = empty(width), np.ones(2)
    ok = True
    for r in range(low, high):
        for d in range(len(steps)):
            down, right = steps[d, 0], steps[d, 1]
            # columns of the first edge of a row; unsigned indices need no test of their sign
            first, second = np.uint64(max(0, -right)), np.uint64(max(0, right))
            edges = np.uint64(width - abs(right))
            multiply_other_directions(d, r, node, messages, others)
            if edges > 0 and r + down < height:
                at, to = 2 * d, r + down
                multiply(others, messages[at, r], cavity)
                marginalize(cavity, tables_of_row(table, d, r), 0, maximum, first, edges, NO, out)
                ok = ok and normalize_and_damp(
                    out, messages[at, to], damping, second, edges, top, ratio, fresh[at, to]
                )
            if edges > 0 and r - down >= 0:
                at, to = 2 * d + 1, r - down
                multiply(others, messages[at, r], cavity)
                marginalize(cavity, tables_of_row(table, d, to), 1, maximum, second, edges, NO, out)
                ok = ok and normalize_and_damp(
                    out, messages[at, to], damping, first, edges, top, ratio, fresh[at, to]
                )
        if not ok:
            return -1.0
    return float(max(np.log(ratio[0]), -np.log(ratio[1])))


@kernel
def beliefs(
    low: int, high: int, node: FloatArray, messages: FloatArray, out: FloatArray,
    log_norm: FloatArray,
) -> bool:  # fmt: skip
    """Write the normalized node beliefs of rows low .. high - 1 and their log-normalizers.

    out[r, c, w] = node * product of all messages / norm; log_norm (height, width) is log norm in
    nats.  Returns False if a norm is below TINY.
    """
    _, size, width = node.shape
    for r in range(low, high):
        norm = np.zeros(width)
        multiply_other_directions(-1, r, node, messages, out[r])
        for c in range(size):
            for w in range(width):
                norm[w] += out[r, c, w]
        for w in range(width):
            if not norm[w] >= TINY:
                return False
            log_norm[r, w] = np.log(norm[w])
            norm[w] = np.divide(1.0, norm[w])
        for c in range(size):
            for w in range(width):
                out[r, c, w] *= norm[w]
    return True


@kernel
def pair_norms(
    low: int,
    high: int,
    steps: IntArray,
    node: FloatArray,
    table: FloatArray,
    messages: FloatArray,
    out: FloatArray,
) -> None:
    """Write the normalizers (not logs) of the beliefs of the edges from rows low .. high - 1.

    norm = sum over (a, b) of cavity_i[a] * exp(score[a, b] - maximum) * cavity_j[b]; a cavity is
    the product of the node weight and all messages except the one across the edge.  out (D, height,
    width) receives that of the w-th edge of direction d from row r; other entries are left alone.
    """
    height, size, width = node.shape
    others, cavity, sent = empty((size, width)), empty((size, width)), empty((size, width))
    for r in range(low, high):
        for d in range(len(steps)):
            down, right = steps[d, 0], steps[d, 1]
            first, second = max(0, -right), max(0, right)
            edges = width - first - second
            if r + down >= height:
                continue
            multiply_other_directions(d, r, node, messages, others)
            multiply(others, messages[2 * d, r], cavity)
            marginalize(cavity, tables_of_row(table, d, r), 0, 0, first, edges, 0, sent)
            multiply_other_directions(d, r + down, node, messages, others)
            multiply(others, messages[2 * d + 1, r + down], cavity)
            for w in range(edges):
                out[d, r, w] = 0.0
            for c in range(size):
                for w in range(edges):
                    out[d, r, w] += sent[c, w] * cavity[c, second + w]
