"""Kernels on the table of one bucket: filled from its inputs, summed onto them.

A table is worked on in blocks: the last axes, as many as fit into BLOCK cells, are the inner block,
and `inner` and `outer` hold where an input is read for each of its cells and for each block.
"""

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
def lay_out(
    p: Program, j: int, k: int, first: int, by_places: bool, inner: IntArray, outer: IntArray
) -> tuple[int, int, int]:
    """Write where input j is read by the axes `first` and up of bucket k.

    outer[o] is the place of block o.  inner[i] is that of cell i in a block, where a block is read
    by its places, or where `by_places` asks for it.  Returns how a block reads, its number of
    cells, and the number of blocks: at most `most_blocks` each, the length of both arrays.
    """
    last = p.first_axis[k + 1]
    axis, block = split(p, first, last)
    way = reads(p, j, k, axis)
    places(p, j, k, first, axis, outer)
    if way == 2 or by_places:
        places(p, j, k, axis, last, inner)
    blocks = 1
    for a in range(first, axis):
        blocks *= p.shape[a]
    return way, block, blocks


@kernel
def multiply(
    p: Program, j: int, k: int, first: int, data: FloatArray, checked: bool, table: FloatArray,
    inner: IntArray, outer: IntArray,
) -> bool:  # fmt: skip
    """Multiply input j onto the axes `first` and up; return False at a product below TINY.

    That is looked for only if `checked`.
    """
    way, block, blocks = lay_out(p, j, k, first, checked, inner, outer)
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
    _, block, blocks = lay_out(p, j, k, first, True, inner, outer)
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
    way, block, blocks = lay_out(p, j, k, first, False, inner, outer)
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
                    begin = p.message[child]
                    rows = p.cells[child] // p.shape[p.first_axis[child + 1] - 1]
                    messages[begin : begin + rows] = 0.0
                    sum_onto(p, j, k, first, table, messages, inner, outer)
                else:
                    sum_onto(p, j, k, first, table, marginals, inner, outer)
        rest = cells // p.shape[first]
        for c in range(1, p.shape[first]):
            for i in range(rest):
                table[i] += table[c * rest + i]
        cells = rest
