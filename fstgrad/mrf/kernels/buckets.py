"""Kernels of variable elimination: the tables of a bucket tree, two sweeps over them.

Bucket k belongs to one node v; its table has an axis for each node of the separator and, last, one
for v.  The inputs of a bucket are the score tables of which v is the first node to go, and the
messages of its children.  Where floats allow, tables are products of weights exp(score - maximum)
(linear); else they are sums of logarithms (log).  Nothing is ever subtracted from a probability, so
the linear sweep is exact to rounding as long as no product leaves the float range: `fill` returns
False where one does, and the caller starts again in logs.

Letters: T table of a bucket, P = P(v | separator), m message, B belief = P(separator) P.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.arrays import TINY, Program

BLOCK = 512


@kernel
def split(p: Program, first: int, last: int) -> tuple[int, int]:
    """Return the first axis of the inner block of the axes first .. last - 1, and its cells."""
    axis = last - 1
    block = p.shape[axis]
    while axis > first and block * p.shape[axis - 1] <= BLOCK:
        axis -= 1
        block *= p.shape[axis]
    return axis, block


@kernel
def most_blocks(p: Program) -> int:
    """Return the largest number of blocks, or of cells of a block."""
    most = 1
    for k in range(len(p.cells)):
        cells = 1
        last = p.first_axis[k + 1]
        for first in range(last - 1, p.first_axis[k] - 1, -1):
            cells *= p.shape[first]
            _, block = split(p, first, last)
            most = max(most, block, cells // block)
    return most


@kernel
def places(p: Program, j: int, k: int, low: int, high: int, out: IntArray) -> None:
    """Write where input j is read for every joint state of the axes low .. high - 1."""
    out[0] = 0
    count = 1
    for axis in range(high - 1, low - 1, -1):  # last axis fastest: blocks of what is there
        step = p.step[p.first_step[j] + axis - p.first_axis[k]]
        for c in range(1, p.shape[axis]):
            for i in range(count):
                out[c * count + i] = out[i] + c * step
        count *= p.shape[axis]


@kernel
def reads(p: Program, j: int, k: int, axis: int) -> int:
    """Return how a block reads input j: 0 one number, 1 consecutive numbers, 2 by its places."""
    consecutive = 1
    constant = True
    ordered = True
    for a in range(p.first_axis[k + 1] - 1, axis - 1, -1):
        step = p.step[p.first_step[j] + a - p.first_axis[k]]
        if p.shape[a] > 1:
            constant = constant and step == 0
            ordered = ordered and step == consecutive
        consecutive *= p.shape[a]
    return 0 if constant else (1 if ordered else 2)


@kernel
def multiply(
    p: Program, j: int, k: int, first: int, data: FloatArray, checked: bool, table: FloatArray,
    inner: IntArray, outer: IntArray,
) -> bool:  # fmt: skip
    """Multiply input j onto the axes `first` and up; return False at a product below TINY.

    That is looked for only if `checked`.
    """
    last = p.first_axis[k + 1]
    axis, block = split(p, first, last)
    way = reads(p, j, k, axis)
    places(p, j, k, first, axis, outer)
    if way == 2 or checked:
        places(p, j, k, axis, last, inner)
    blocks = 1
    for a in range(first, axis):
        blocks *= p.shape[a]
    for o in range(blocks):
        base = p.source[j] + outer[o]
        row = table[o * block : (o + 1) * block]
        if checked:
            for i in range(block):
                factor = data[base + inner[i]]
                product = row[i] * factor
                if product < TINY and row[i] > 0 and factor > 0:
                    return False
                row[i] = product
        elif way == 0:
            factor = data[base]
            for i in range(block):
                row[i] *= factor
        elif way == 1:
            for i in range(block):
                row[i] *= data[base + i]
        else:
            for i in range(block):
                row[i] *= data[base + inner[i]]
    return True


@kernel
def add(
    p: Program, j: int, k: int, first: int, data: FloatArray, begin: int, table: FloatArray,
    inner: IntArray, outer: IntArray,
) -> None:  # fmt: skip
    """Add input j, which begins at `begin`, to the axes `first` and up."""
    last = p.first_axis[k + 1]
    axis, block = split(p, first, last)
    places(p, j, k, first, axis, outer)
    places(p, j, k, axis, last, inner)
    blocks = 1
    for a in range(first, axis):
        blocks *= p.shape[a]
    for o in range(blocks):
        base = begin + outer[o]
        for i in range(block):
            table[o * block + i] += data[base + inner[i]]


@kernel
def repeat(table: FloatArray, cells: int, times: int) -> int:
    """Repeat the first cells of a table; return how many there are then."""
    for c in range(1, times):
        table[c * cells : (c + 1) * cells] = table[:cells]
    return cells * times


@kernel
def fill(
    p: Program,
    k: int,
    weights: FloatArray,
    messages: FloatArray,
    smallest: FloatArray,
    table: FloatArray,
    inner: IntArray,
    outer: IntArray,
) -> bool:
    """Write the product of a bucket's inputs; return whether it stayed in the float range.

    The table grows axis by axis from its last one, and an input is multiplied on as soon as all
    its axes are there: few inputs cost a pass over the whole table.  smallest[j] is the smallest
    positive number of input j.
    """
    bound = 1.0
    for j in range(p.first_input[k], p.first_input[k + 1]):
        bound *= smallest[j]
    table[0] = 1.0
    cells = 1
    for first in range(p.first_axis[k + 1] - 1, p.first_axis[k] - 1, -1):
        cells = repeat(table, cells, p.shape[first])
        for j in range(p.first_input[k], p.first_input[k + 1]):
            if p.first_axis[k] + p.slowest[j] == first:
                data = messages if p.child[j] >= 0 else weights
                if not multiply(p, j, k, first, data, bound < TINY, table, inner, outer):
                    return False
    return True


@kernel
def fill_logs(
    p: Program,
    k: int,
    scores: FloatArray,
    messages: FloatArray,
    begins: IntArray,
    table: FloatArray,
    inner: IntArray,
    outer: IntArray,
) -> None:
    """Write the sum of a bucket's inputs, which begin at `begins`."""
    table[0] = 0.0
    cells = 1
    for first in range(p.first_axis[k + 1] - 1, p.first_axis[k] - 1, -1):
        cells = repeat(table, cells, p.shape[first])
        for j in range(p.first_input[k], p.first_input[k + 1]):
            if p.first_axis[k] + p.slowest[j] == first:
                data = messages if p.child[j] >= 0 else scores
                add(p, j, k, first, data, begins[j], table, inner, outer)


@kernel
def sum_onto(
    p: Program, j: int, k: int, first: int, table: FloatArray, out: FloatArray, inner: IntArray,
    outer: IntArray,
) -> None:  # fmt: skip
    """Add every cell of the axes `first` and up to the cell of input j, from target[j]."""
    last = p.first_axis[k + 1]
    axis, block = split(p, first, last)
    way = reads(p, j, k, axis)
    places(p, j, k, first, axis, outer)
    if way == 2:
        places(p, j, k, axis, last, inner)
    blocks = 1
    for a in range(first, axis):
        blocks *= p.shape[a]
    for o in range(blocks):
        base = p.target[j] + outer[o]
        row = table[o * block : (o + 1) * block]
        if way == 0:
            total = 0.0
            for i in range(block):
                total += row[i]
            out[base] += total
        elif way == 1:
            for i in range(block):
                out[base + i] += row[i]
        else:
            for i in range(block):
                out[base + inner[i]] += row[i]


@kernel
def share(
    p: Program, k: int, table: FloatArray, messages: FloatArray, marginals: FloatArray,
    inner: IntArray, outer: IntArray,
) -> None:  # fmt: skip
    """Sum a bucket's table onto all its inputs: children's messages and score tables.

    The messages are overwritten, `marginals` added to, and the table is summed out axis by axis.
    """
    cells = p.cells[k]
    for first in range(p.first_axis[k], p.first_axis[k + 1]):
        for j in range(p.first_input[k], p.first_input[k + 1]):
            if p.first_axis[k] + p.slowest[j] == first:
                child = p.child[j]
                if child >= 0:
                    messages[p.message[child] : p.message[child + 1]] = 0.0
                    sum_onto(p, j, k, first, table, messages, inner, outer)
                else:
                    sum_onto(p, j, k, first, table, marginals, inner, outer)
        rest = cells // p.shape[first]
        for c in range(1, p.shape[first]):
            for i in range(rest):
                table[i] += table[c * rest + i]
        cells = rest


@kernel
def sweep_up(
    p: Program, weights: FloatArray, smallest: FloatArray, messages: FloatArray
) -> tuple[float, bool]:
    """Write all messages, each with maximum 1; return log Z and whether floats could hold them.

    `smallest` comes with the score tables' entries and leaves with those of the messages.
    """
    size = most_blocks(p)
    inner, outer = np.empty(size, np.int64), np.empty(size, np.int64)
    table = np.empty(p.cells.max())
    value = 0.0
    least = np.ones(len(p.cells))
    for k in range(len(p.cells)):
        for j in range(p.first_input[k], p.first_input[k + 1]):
            if p.child[j] >= 0:
                smallest[j] = least[p.child[j]]
        if not fill(p, k, weights, messages, smallest, table, inner, outer):
            return value, False
        labels = p.shape[p.first_axis[k + 1] - 1]
        rows = p.cells[k] // labels
        out = messages[p.message[k] : p.message[k] + rows]
        top = 0.0
        for row in range(rows):
            total = 0.0
            for c in range(labels):
                total += table[row * labels + c]
            out[row] = total
            top = max(top, total)
        if top == 0.0:
            return -np.inf, True
        value += np.log(top)
        for row in range(rows):
            out[row] /= top
            if 0 < out[row] < least[k]:
                least[k] = out[row]
        if least[k] < TINY:
            return value, False
    return value, True


@kernel
def sweep_up_logs(
    p: Program, scores: FloatArray, maximum: int, messages: FloatArray, best: npt.NDArray[np.int32]
) -> float:
    """Write all messages in logs; return log Z, or with maximum = 1 the best score.

    With maximum = 1, `best` is where each message has its maximum.
    """
    size = most_blocks(p)
    inner, outer = np.empty(size, np.int64), np.empty(size, np.int64)
    table = np.empty(p.cells.max())
    value = 0.0
    for k in range(len(p.cells)):
        fill_logs(p, k, scores, messages, p.source, table, inner, outer)
        labels = p.shape[p.first_axis[k + 1] - 1]
        rows = p.cells[k] // labels
        for row in range(rows):
            cells = table[row * labels : (row + 1) * labels]
            at = int(np.argmax(cells))
            message = cells[at]
            if maximum == 1:
                best[p.message[k] + row] = at
            elif message > -np.inf:
                total = 0.0
                for c in range(labels):
                    total += np.exp(cells[c] - message)
                message += np.log(total)
            messages[p.message[k] + row] = message
        if p.parent[k] < 0:
            value += messages[p.message[k]]
    return value


@kernel
def conditional(
    p: Program,
    k: int,
    in_logs: bool,
    weights: FloatArray,
    messages: FloatArray,
    table: FloatArray,
    inner: IntArray,
    outer: IntArray,
) -> None:
    """Write P(v | separator), 0 where the separator's state is impossible."""
    belief(p, k, in_logs, False, weights, messages, table, inner, outer)


@kernel
def belief(
    p: Program,
    k: int,
    in_logs: bool,
    joint: bool,
    weights: FloatArray,
    messages: FloatArray,
    table: FloatArray,
    inner: IntArray,
    outer: IntArray,
) -> None:
    """Write P(v | separator), times P(separator) if `joint`: the bucket's message is that then."""
    labels = p.shape[p.first_axis[k + 1] - 1]
    if in_logs:
        fill_logs(p, k, weights, messages, p.source, table, inner, outer)
    else:  # the sweep up has shown that the products are floats
        fill(p, k, weights, messages, np.ones(len(p.child)), table, inner, outer)
    at = 0
    for row in range(p.cells[k] // labels):
        if in_logs:
            top = -np.inf
            for c in range(labels):
                top = max(top, table[at + c])
            for c in range(labels):
                table[at + c] = np.exp(table[at + c] - top) if top > -np.inf else 0.0
        total = 0.0
        for c in range(labels):
            total += table[at + c]
        if total > 0:
            # probabilities at most 1: dividing first keeps what is small from overflowing
            scale = messages[p.message[k] + row] if joint and p.parent[k] >= 0 else 1.0
            for c in range(labels):
                table[at + c] = table[at + c] / total * scale
        at += labels


@kernel
def sweep_down(
    p: Program, in_logs: bool, weights: FloatArray, messages: FloatArray, marginals: FloatArray
) -> None:
    """Add the marginals of all score tables to `marginals`; messages become those of separators."""
    size = most_blocks(p)
    inner, outer = np.empty(size, np.int64), np.empty(size, np.int64)
    table = np.empty(p.cells.max())
    for k in range(len(p.cells) - 1, -1, -1):
        belief(p, k, in_logs, True, weights, messages, table, inner, outer)
        share(p, k, table, messages, marginals, inner, outer)


@kernel
def tangents(
    p: Program,
    in_logs: bool,
    weights: FloatArray,
    messages: FloatArray,
    direction: FloatArray,
    out: FloatArray,
) -> None:
    """Add to `out` the derivative of the marginals along `direction`, laid out like marginals.

    A message m(s) = log sum_v exp T(v, s) has dm = sum_v P(v | s) dT, and P(v | s) changes by
    P(v | s) (dT - dm).
    """
    size = most_blocks(p)
    inner, outer = np.empty(size, np.int64), np.empty(size, np.int64)
    given, moved = np.empty(p.cells.max()), np.empty(p.cells.max())
    changes = np.zeros(len(messages))
    for k in range(len(p.cells)):
        conditional(p, k, in_logs, weights, messages, given, inner, outer)
        fill_logs(p, k, direction, changes, p.target, moved, inner, outer)
        labels = p.shape[p.first_axis[k + 1] - 1]
        for row in range(p.cells[k] // labels):
            total = 0.0
            for c in range(labels):
                total += given[row * labels + c] * moved[row * labels + c]
            changes[p.message[k] + row] = total
    own, unused = changes.copy(), np.zeros(len(out))
    for k in range(len(p.cells) - 1, -1, -1):
        conditional(p, k, in_logs, weights, messages, given, inner, outer)
        # `own` keeps dm of the sweep up; `changes` is overwritten by the change of separators
        fill_logs(p, k, direction, own, p.target, moved, inner, outer)
        labels = p.shape[p.first_axis[k + 1] - 1]
        for row in range(p.cells[k] // labels):
            at = p.message[k] + row
            separator = messages[at] if p.parent[k] >= 0 else 1.0
            shift = changes[at] if p.parent[k] >= 0 else 0.0
            for c in range(labels):
                cell = row * labels + c
                moved[cell] = given[cell] * (separator * (moved[cell] - own[at]) + shift)
                given[cell] *= separator
        share(p, k, given, messages, unused, inner, outer)
        share(p, k, moved, changes, out, inner, outer)
