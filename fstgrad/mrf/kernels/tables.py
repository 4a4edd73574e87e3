"""Kernels that fill the table of one bucket from its inputs, and sum the table onto its inputs.

The loops run over a table block by block.  A block spans as many of the last axes as fit into BLOCK
cells, at least one.  An input is read at (its beginning) + outer[o] + inner[i] for cell i of block
o; `inner` and `outer` are scratch memory, int64, each `most_blocks` long.  Letters: k is a bucket,
j an input, both of a `Program`.
"""

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.vectors import copy_to
from fstgrad.mrf.arrays import TINY, Program

BLOCK = 512
CONSTANT, CONSECUTIVE, SCATTERED = range(3)  # how a block reads an input


@part_kernel
def split(p: Program, first: int, last: int) -> tuple[int, int]:
    """Return the first axis of a block of the axes first .. last - 1, and the block's cells."""
    axis = last - 1
    block = p.shape[axis]
    while axis > first and block * p.shape[axis - 1] <= BLOCK:
        axis -= 1
        block *= p.shape[axis]
    return axis, block


@kernel
def most_blocks(p: Program) -> int:
    """Return the length of `inner` and `outer`: the most blocks of a table or cells of a block."""
    most = 1
    for k in range(len(p.cells)):
        cells = 1
        last = p.first_axis[k + 1]
        for first in range(last - 1, p.first_axis[k] - 1, -1):
            cells *= p.shape[first]
            _, block = split(p, first, last)
            most = max(most, block, cells // block)
    return most


@part_kernel
def places(p: Program, j: int, k: int, low: int, high: int, out: IntArray) -> None:
    """Write the offset at which input j is read for every joint state of the axes low .. high - 1.

    out[state] = sum over the axes of (label of the axis) * step; the last axis runs fastest.
    """
    out[0] = 0
    count = 1
    for axis in range(high - 1, low - 1, -1):  # each axis appends shifted copies of `out` so far
        step = p.step[p.first_step[j] + axis - p.first_axis[k]]
        for c in range(1, p.shape[axis]):
            for i in range(count):
                out[c * count + i] = out[i] + c * step
        count *= p.shape[axis]


@part_kernel
def reads(p: Program, j: int, k: int, axis: int) -> int:
    """Return how a block of the axes `axis` and up of bucket k reads input j.

    CONSTANT: one number for all cells.  CONSECUTIVE: consecutive numbers.  SCATTERED: at the
    offsets of `places`.
    """
    consecutive = 1
    constant = True
    ordered = True
    for a in range(p.first_axis[k + 1] - 1, axis - 1, -1):
        step = p.step[p.first_step[j] + a - p.first_axis[k]]
        if p.shape[a] > 1:
            constant = constant and step == 0
            ordered = ordered and step == consecutive
        consecutive *= p.shape[a]
    return CONSTANT if constant else (CONSECUTIVE if ordered else SCATTERED)


@part_kernel
def lay_out(
    p: Program, j: int, k: int, first: int, by_places: bool, inner: IntArray, outer: IntArray
) -> tuple[int, int, int]:
    """Write the offsets at which the axes `first` and up of bucket k read input j.

    outer[o] is the offset of block o.  inner[i], the offset of cell i within a block, is written
    only if `reads` returns SCATTERED or `by_places` is True.  Returns what `reads` returns, the
    number of cells of a block and the number of blocks.
    """
    last = p.first_axis[k + 1]
    axis, block = split(p, first, last)
    way = reads(p, j, k, axis)
    places(p, j, k, first, axis, outer)
    if way == SCATTERED or by_places:
        places(p, j, k, axis, last, inner)
    blocks = 1
    for a in range(first, axis):
        blocks *= p.shape[a]
    return way, block, blocks


@part_kernel
def multiply(
    p: Program, j: int, k: int, first: int, data: FloatArray, checked: bool, table: FloatArray,
    inner: IntArray, outer: IntArray,
) -> bool:  # fmt: skip
    """Multiply the axes `first` and up of the table by input j, in place.

    Returns False at the first product below TINY of two positive numbers.  Only if `checked` are
    products tested; otherwise returns True.
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
        elif way == CONSTANT:
            factor = data[base]
            for i in range(block):
                row[i] *= factor
        elif way == CONSECUTIVE:
            for i in range(block):
                row[i] *= data[base + i]
        else:
            for i in range(block):
                row[i] *= data[base + inner[i]]
    return True


@part_kernel
def add(
    p: Program, j: int, k: int, first: int, data: FloatArray, begin: int, table: FloatArray,
    inner: IntArray, outer: IntArray,
) -> None:  # fmt: skip
    """Add input j, which begins at data[begin], to the axes `first` and up of the table."""
    _, block, blocks = lay_out(p, j, k, first, True, inner, outer)
    for o in range(blocks):
        base = begin + outer[o]
        for i in range(block):
            table[o * block + i] += data[base + inner[i]]


@part_kernel
def repeat(table: FloatArray, cells: int, times: int) -> int:
    """Append times - 1 copies of the first `cells` cells of a table; return cells * times."""
    for c in range(1, times):
        copy_to(table[c * cells : (c + 1) * cells], table[:cells])
    return cells * times


@part_kernel
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
    """Write table[cell] = product over the inputs j of bucket k of their weights at the cell.

    Returns False, with the table unfinished, if a product falls below TINY.  The table grows axis
    by axis from the last one, and each input is multiplied in as soon as all its axes exist: few
    inputs cost a pass over the whole table.  smallest[j] is the smallest positive number of input
    j; products are tested only if the product of these numbers is below TINY.
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


@part_kernel
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
    """Write table[cell] = sum over the inputs j of bucket k of their scores at the cell.

    Input j begins at begins[j] of `messages` if a child sends it, else of `scores`.
    """
    table[0] = 0.0
    cells = 1
    for first in range(p.first_axis[k + 1] - 1, p.first_axis[k] - 1, -1):
        cells = repeat(table, cells, p.shape[first])
        for j in range(p.first_input[k], p.first_input[k + 1]):
            if p.first_axis[k] + p.slowest[j] == first:
                data = messages if p.child[j] >= 0 else scores
                add(p, j, k, first, data, begins[j], table, inner, outer)


@part_kernel
def sum_onto(
    p: Program, j: int, k: int, first: int, table: FloatArray, out: FloatArray, inner: IntArray,
    outer: IntArray,
) -> None:  # fmt: skip
    """Add each cell of the axes `first` and up to the cell of input j that it reads.

    Input j begins at out[target[j]]; axes that it lacks are thereby summed out.
    """
    way, block, blocks = lay_out(p, j, k, first, False, inner, outer)
    for o in range(blocks):
        base = p.target[j] + outer[o]
        row = table[o * block : (o + 1) * block]
        if way == CONSTANT:
            total = 0.0
            for i in range(block):
                total += row[i]
            out[base] += total
        elif way == CONSECUTIVE:
            for i in range(block):
                out[base + i] += row[i]
        else:
            for i in range(block):
                out[base + inner[i]] += row[i]


@part_kernel
def share(
    p: Program, k: int, table: FloatArray, messages: FloatArray, marginals: FloatArray,
    inner: IntArray, outer: IntArray,
) -> None:  # fmt: skip
    """Sum the table of bucket k onto each of its inputs: children's messages and score tables.

    Messages are overwritten; `marginals` are added to.  `table` is overwritten: its axes are summed
    out from the first one on.
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
