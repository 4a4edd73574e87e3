"""Kernels of variable elimination: two sweeps over the tables of a bucket tree.

Bucket k eliminates one node v.  Its table T has an axis for each node of the separator s and, last,
one for v.  Its inputs are the score tables whose first node to be eliminated is v, and the messages
of its children:

    up      T(s, v) = sum of the inputs,  m(s) = log sum_v exp T(s, v)
    down    P(v | s) = exp(T(s, v) - m(s)),  belief B(s, v) = P(s) P(v | s),

with P(s) the belief of the parent summed onto the separator.  A sweep first uses products of
weights exp(score - maximum) in place of sums of scores (linear domain).  No probability is ever
obtained by subtraction, so this is exact to rounding as long as no product underflows.  If one
does, `fill` returns False, and the caller starts again with logarithms (in_logs).

A sweep visits the buckets low .. high - 1.  With `again`, a sweep up skips buckets whose parent is
`high` or later, since a sweep down may have overwritten their messages.

Arrays: weights or scores (score cells,), messages (message cells,), marginals (marginal cells,),
each at the places that `Program` gives.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import TINY, Buckets, Inputs, Program, Scopes
from fstgrad.mrf.kernels.tables import fill, fill_logs, most_blocks, share


@kernel
def sweep_up(
    p: Program,
    low: int,
    high: int,
    again: bool,
    weights: FloatArray,
    smallest: FloatArray,
    least: FloatArray,
    messages: FloatArray,
) -> tuple[float, bool]:
    """Write the messages, each divided by its maximum; return log Z, and False at an underflow.

    exp m(s) = sum_v exp T(s, v) / maximum.  log Z (nats) is the sum of the logs of these maxima; it
    lacks the maxima that the caller subtracted from the scores.  Returns (-inf, True) if no
    labeling is allowed.  If the second result is False, the first has no meaning.

    smallest (inputs,) is the smallest positive number of each input; this kernel writes the entries
    of children's messages, and least (n,), the smallest positive number of each message.
    """
    size = most_blocks(p)
    inner, outer = empty(size, np.int64), empty(size, np.int64)
    table = empty(p.cells.max())
    value = 0.0
    for k in range(low, high):
        if again and p.parent[k] >= high:
            continue
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
        least[k] = 1.0
        for row in range(rows):
            out[row] /= top
            if 0 < out[row] < least[k]:
                least[k] = out[row]
        if least[k] < TINY:
            return value, False
    return value, True


@kernel
def sweep_up_logs(
    p: Program,
    low: int,
    high: int,
    again: bool,
    scores: FloatArray,
    maximum: int,
    messages: FloatArray,
) -> float:
    """Write the messages in logs, m(s) = log sum_v exp T(s, v); return log Z in nats.

    With maximum = 1, m(s) = max_v T(s, v), and the result is the highest score of a labeling.
    """
    size = most_blocks(p)
    inner, outer = empty(size, np.int64), empty(size, np.int64)
    table = empty(p.cells.max())
    value = 0.0
    for k in range(low, high):
        if again and p.parent[k] >= high:
            continue
        fill_logs(p, k, scores, messages, p.source, table, inner, outer)
        labels = p.shape[p.first_axis[k + 1] - 1]
        rows = p.cells[k] // labels
        for row in range(rows):
            cells = table[row * labels : (row + 1) * labels]
            message = cells.max()
            if maximum == 0 and message > -np.inf:
                total = 0.0
                for c in range(labels):
                    total += np.exp(cells[c] - message)
                message += np.log(total)
            messages[p.message[k] + row] = message
        if p.parent[k] < 0:
            value += messages[p.message[k]]
    return value


@kernel
def best_labels(
    p: Program,
    low: int,
    high: int,
    cliques: IntArray,
    scores: FloatArray,
    messages: FloatArray,
    labels: IntArray,
) -> None:
    """Write labels[v] = argmax_v T(s, v) for each bucket, given the labels of later buckets.

    `messages` are those of `sweep_up_logs` with maximum = 1.  The nodes of bucket k are
    cliques[first_axis[k]:first_axis[k + 1]], v last.  labels (I,).
    """
    for k in range(high - 1, low - 1, -1):
        first, last = p.first_axis[k], p.first_axis[k + 1] - 1
        row = np.zeros(p.shape[last])
        for j in range(p.first_input[k], p.first_input[k + 1]):
            at, step = p.source[j], p.first_step[j]
            for axis in range(first, last):
                at += p.step[step + axis - first] * labels[cliques[axis]]
            data = messages if p.child[j] >= 0 else scores
            for c in range(len(row)):
                row[c] += data[at + c * p.step[step + last - first]]
        labels[cliques[last]] = np.argmax(row)


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
    """Write P(v | s) of bucket k to `table`, 0 for impossible states of the separator s."""
    belief(p, k, in_logs, False, weights, messages, table, inner, outer)


@part_kernel
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
    """Write P(v | s) of bucket k to `table`; if `joint`, write P(s) P(v | s).

    With `joint`, messages[message[k]:] of the bucket must hold P(s), as `share` leaves it.
    """
    labels = p.shape[p.first_axis[k + 1] - 1]
    if in_logs:
        fill_logs(p, k, weights, messages, p.source, table, inner, outer)
    else:  # the sweep up has shown that no product underflows: no test is needed
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
            # divide first: the quotient is at most 1, while scale / total could overflow
            scale = messages[p.message[k] + row] if joint and p.parent[k] >= 0 else 1.0
            for c in range(labels):
                table[at + c] = table[at + c] / total * scale
        at += labels


@kernel
def sweep_down(
    p: Program,
    low: int,
    high: int,
    in_logs: bool,
    weights: FloatArray,
    messages: FloatArray,
    marginals: FloatArray,
) -> None:
    """Add the marginals of all score tables to `marginals`; messages become marginals P(s)."""
    size = most_blocks(p)
    inner, outer = empty(size, np.int64), empty(size, np.int64)
    table = empty(p.cells.max())
    for k in range(high - 1, low - 1, -1):
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
    """Add the derivative of the marginals along `direction` to `out`; both have their layout.

    From m(s) = log sum_v exp T(s, v) follow dm(s) = sum_v P(v | s) dT(s, v) on the way up, and
    dB(s, v) = P(v | s) (P(s) (dT(s, v) - dm(s)) + dP(s)) on the way down.  `messages` come in as
    `sweep_up` leaves them and become the marginals P(s).
    """
    size = most_blocks(p)
    inner, outer = empty(size, np.int64), empty(size, np.int64)
    given, moved = empty(p.cells.max()), empty(p.cells.max())
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
        # `own` keeps dm of the sweep up; `changes` is overwritten by dP(s) of the separators
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


@kernel
def connect(tree: Buckets, tables: Scopes, inputs: Inputs) -> None:
    """Fill the arrays of `inputs`: for each bucket its score tables first, then its children.

    step[first_step[j] + a] is how far input j moves in memory for one step along axis a of its
    bucket, 0 if the input does not depend on that axis.  slowest[j] is the first axis that input j
    depends on; the last axis if there is none.
    """
    first_axis, cliques, sizes, parent, first_input = tree
    first_node, scope, stride, bucket_of = tables
    child, slowest, first_step, step, number = inputs
    buckets = len(parent)
    used = first_input[:-1].copy()
    for t in range(len(bucket_of)):
        j = used[bucket_of[t]]
        used[bucket_of[t]] += 1
        child[j], number[j] = -1, t
    for k in range(buckets):
        if parent[k] >= 0:
            j = used[parent[k]]
            used[parent[k]] += 1
            child[j], number[j] = k, -1
    at = 0
    for k in range(buckets):
        for j in range(first_input[k], first_input[k + 1]):
            first_step[j] = at
            low, high = first_axis[k], first_axis[k + 1]
            step[at : at + high - low] = 0
            if child[j] < 0:
                for slot in range(first_node[number[j]], first_node[number[j] + 1]):
                    for axis in range(low, high):
                        if cliques[axis] == scope[slot]:
                            step[at + axis - low] = stride[slot]
            else:
                width = 1
                for own in range(first_axis[child[j] + 1] - 2, first_axis[child[j]] - 1, -1):
                    for axis in range(low, high):
                        if cliques[axis] == cliques[own]:
                            step[at + axis - low] = width
                    width *= sizes[cliques[own]]
            slowest[j] = high - low - 1
            for axis in range(high - low - 1, -1, -1):
                if step[at + axis] != 0:
                    slowest[j] = axis
            at += high - low
