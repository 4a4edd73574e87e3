"""The passes over all strings of a batch, one string after another, in one call.

Items are concatenated: item i of a table (N, ...) has the rows starts[i] .. starts[i + 1] - 1.
"""

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.losses.automata.layout import LayoutArrays
from fstgrad.strings.kernels import order_one, passes
from fstgrad.strings.kernels.arguments import BatchLayoutArrays, Dual
from fstgrad.strings.kernels.one_state import one_state_pass


@kernel
def shift_items(
    scores: FloatArray,
    starts: IntArray,
    used: BoolArray,
    table: FloatArray,
    highest: FloatArray,
    tally: FloatArray,
    low: int,
    high: int,
) -> int:
    """Run `shift_scores` for the items low .. high - 1, with row i of tally (B, RECENT_RANGES + q).

    Return -1, or the row of the first position where no symbol is allowed.
    """
    for i in range(low, high):
        lo, hi = starts[i], starts[i + 1]
        position = passes.shift_scores(scores[lo:hi], used, table[lo:hi], highest[lo:hi], tally[i])
        if position >= 0:
            return int(lo + position)
    return -1


@kernel
def real_passes(
    table: FloatArray,
    starts: IntArray,
    walks: BatchLayoutArrays,
    weight: FloatArray,
    final: FloatArray,
    order: int,
    fits: BoolArray,
    totals: FloatArray,
    low: int,
    high: int,
) -> None:
    """Run `forward_backward` or `one_state_pass` for each item i in low .. high - 1 with fits[i].

    Write the logs of the sums to `totals` (B,); `table` becomes Q.
    """
    for i in range(low, high):
        if not fits[i]:
            continue
        own, walk = table[starts[i] : starts[i + 1]], _walk(walks, starts, i)
        weights = weight[walks.arcs[i] : walks.arcs[i + 1]].reshape(walk.next_entry.shape)
        ends = final[walks.ends[i] : walks.ends[i + 1]]
        if order == 2 and len(weights) == len(own) and len(ends) == 1:
            totals[i] = one_state_pass(own, walk.class_of, weights)
        elif order == 1:
            totals[i] = order_one.forward_backward(own, walk, weights, ends)
        else:
            totals[i] = passes.forward_backward(own, walk, weights, ends, order)


@kernel
def tangent_passes(
    table: Dual,
    starts: IntArray,
    walks: BatchLayoutArrays,
    weight: Dual,
    final: Dual,
    moved: bool,
    order: int,
    fits: BoolArray,
    found: Dual,
    items: tuple[int, int],
) -> None:
    """Run `forward_backward_with_tangents` for each item from items[0] to items[1] - 1 that fits.

    Write the logs of the sums and their derivatives to `found` (B,); `table` becomes Q and dQ.
    """
    for i in range(items[0], items[1]):
        if not fits[i]:
            continue
        lo, hi, first, last = starts[i], starts[i + 1], walks.arcs[i], walks.arcs[i + 1]
        walk = _walk(walks, starts, i)
        shape = walk.next_entry.shape
        weights = Dual(
            weight.value[first:last].reshape(shape), weight.change[first:last].reshape(shape)
        )
        begin, end = walks.ends[i], walks.ends[i + 1]
        own = Dual(table.value[lo:hi], table.change[lo:hi])
        ends = Dual(final.value[begin:end], final.change[begin:end])
        if order == 1:
            log_z, change = order_one.forward_backward_with_tangents(
                own, walk, weights, ends, moved
            )
        else:
            log_z, change = passes.forward_backward_with_tangents(
                own, walk, weights, ends, moved, order
            )
        found.value[i], found.change[i] = log_z, change


@inner_kernel
def _walk(walks: BatchLayoutArrays, starts: IntArray, i: int) -> LayoutArrays:
    """Return the walk of one item: l + 2 `offsets` and `first_entry`, l + 1 `dense`."""
    lo, hi = starts[i] + 2 * i, starts[i + 1] + 2 * i + 2
    first, last = walks.arcs[i], walks.arcs[i + 1]
    states = walks.offsets[hi - 2]
    return LayoutArrays(
        walks.class_of[i],
        walks.offsets[lo:hi],
        walks.first_entry[lo:hi],
        walks.dense[starts[i] + i : starts[i + 1] + i + 1],
        walks.symbol[walks.states[i] : walks.states[i + 1]],
        walks.next_entry[first:last].reshape((states, (last - first) // states)),
    )
