"""Connectionist temporal classification: sums over the paths that collapse to a gold string.

A path has one label for each of T frames; runs of a label become one label, then blanks are removed
(Graves, Fernandez, Gomez, Schmidhuber 2006, sections 3.1 and 4.1).  The paths of y_1 .. y_S pass
through 2 S + 1 states: state 2 i reads blanks, state 2 i + 1 reads y_{i+1}.  A path starts in one
of the first two states and ends in one of the last two.  With p = exp(score),

    alpha[t, s] = p[t, label of s] (alpha[t-1, s] + alpha[t-1, s-1] + alpha[t-1, s-2]),

where the last term, which skips a blank, needs two different labels.  The terms divided by their
sum are the shares P(state before | s at t), from which the backward pass needs no weights:

    posterior[t-1, r] = sum_s posterior[t, s] P(r at t - 1 | s at t).

The weights alpha of one frame differ by more than the range of float64: they are m 2^e, with an
integer e in a second float.  They are kept for every `BLOCK`-th frame and computed again for the
others, so the memory of an item is O(T S / BLOCK + S BLOCK).

With a direction, the passes are differentiated along it.  The derivative of a share is the share
times the deviation of the mean sum of the direction over the prefixes (`mean`).
"""

import math

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import fused_kernel, kernel, part_kernel
from fstgrad.core.distribution import FAR
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import LN2, LN2_REST, LOG2_E, ROUND, exponentiate
from fstgrad.strings.kernels.arguments import LOWEST, GoldFrames, GoldStates

BLOCK = 32  # in so many frames a mantissa stays between 2^-32 and 2^51
FAINT = -900.0  # the least difference of exponents in a sum: a smaller term changes no digit
NEGLIGIBLE = 1e-100  # smaller shares are 0, so that no product is a subnormal number


@fused_kernel
def gold_posteriors(
    scores: FloatArray,
    targets: IntArray,
    sizes: IntArray,
    blank: int,
    is_normalized: bool,
    directions: FloatArray | None,
    values: FloatArray,
    table: FloatArray,
) -> None:
    """Write -log p(gold) and its gradient, or the product of its Hessian and a direction.

    scores : (B, T, n), log-weights in nats; in each frame some score is finite
    targets : (B, S), without blanks; sizes : (B, 2), the numbers of frames and labels of each item
    is_normalized : if False, the value is -log sum exp(score) over the paths of gold, where the
        `offset` of each frame is subtracted from the scores
    directions : (B, T, n), or None for the gradient
    values : (B,), +inf if there is no path
    table : (B, T, n), zeros at first; the gradient, or the product
    """
    items, length, n = scores.shape
    width = 2 * targets.shape[1] + 5
    block = GoldFrames(
        np.zeros((BLOCK + 1, width)),
        np.full((BLOCK + 1, width), -np.inf),
        np.zeros((BLOCK + 1, width)),
        np.zeros((BLOCK, width)),
        np.zeros((BLOCK, width)),
        np.zeros((BLOCK, width)),
    )
    kept, work = empty((length // BLOCK + 1, 3, width)), empty(n)
    for i in range(items):
        frames, size = sizes[i, 0], sizes[i, 1]
        states = gold_states(targets[i, :size], blank, n)
        total = 0.0
        if is_normalized:
            for t in range(frames):
                total += _softmax(scores[i, t], table[i, t], work)
            if directions is not None:
                for t in range(frames):
                    _times_covariance(table[i, t], directions[i, t])
        if directions is None:
            found = _gold(scores[i, :frames], states, block, kept, None, table[i])
        else:
            found = _gold(scores[i, :frames], states, block, kept, directions[i], table[i])
        values[i] = total - found


@part_kernel
def gold_states(target: IntArray, blank: int, n: int) -> GoldStates:
    """Return the states of the paths of one gold string of labels below n."""
    width = 2 * len(target) + 5
    symbol, place = np.full(width, blank), np.zeros(width, dtype=np.int64)
    skips, barred = np.zeros(width), np.full(width, -np.inf)
    known, labels = np.full(n, -1), empty(len(target) + 1, dtype=np.int64)
    known[blank], labels[0], count = 0, blank, 1
    for i in range(len(target)):
        j, label = 2 * i + 3, target[i]
        symbol[j] = label
        if known[label] < 0:
            known[label], labels[count] = count, label
            count += 1
        place[j] = known[label]
        if i == 0 or label != target[i - 1]:
            skips[j], barred[j] = 1.0, 0.0
    return GoldStates(symbol, place, labels[:count], skips, barred)


@part_kernel
def _softmax(scores: FloatArray, row: FloatArray, work: FloatArray) -> float:
    """Write exp(score) / Z of a frame to `row`; return log Z less the offset."""
    most, total = highest(scores), 0.0
    for k in range(len(row)):
        row[k] = scores[k] - most
    exponentiate(row, work)
    for k in range(len(row)):
        total += row[k]
    for k in range(len(row)):
        row[k] /= total
    return math.log(total) + float(most - offset(scores))


@part_kernel
def highest(scores: FloatArray) -> float:
    """Return the largest score of a frame; `max` of an array takes long to compile."""
    most = scores[0]
    for k in range(1, len(scores)):
        if scores[k] > most:
            most = scores[k]
    return float(most)


@part_kernel
def offset(scores: FloatArray) -> float:
    """Return the largest score of a frame, rounded down: an integer, so that masks stay exact."""
    return float(np.floor(highest(scores)))


@part_kernel
def relative(score: float, shift: float) -> float:
    """Return a score less the offset of its frame, and that of `LOWEST` if it is deeper."""
    x = score - shift
    if x >= LOWEST or x == -np.inf:
        return x
    return LOWEST - (shift if abs(shift) <= FAR else 0.0)


@part_kernel
def _times_covariance(row: FloatArray, direction: FloatArray) -> None:
    """Replace probabilities p by p (v - E v), for the direction v."""
    mean = 0.0
    for k in range(len(row)):
        mean += row[k] * direction[k]
    for k in range(len(row)):
        row[k] *= direction[k] - mean


@part_kernel
def _gold(
    scores: FloatArray,
    states: GoldStates,
    block: GoldFrames,
    kept: FloatArray,
    direction: FloatArray | None,
    table: FloatArray,
) -> float:
    """Return log Z of the paths, and subtract their posteriors, or the derivatives, from `table`.

    log Z is that of the scores less the offset of each frame.  O(T S).
    """
    frames, end = len(scores), len(states.symbol) - 3
    blocks = (frames + BLOCK - 1) // BLOCK
    if end > 2 * frames + 2:
        return -np.inf
    if frames == 0:
        return 0.0  # the empty path
    block.mantissa[0], block.exponent[0], block.mean[0] = 0.0, -np.inf, 0.0
    block.mantissa[0, 1], block.exponent[0, 1] = 1.0, 0.0  # a path may enter either first state
    for b in range(blocks):
        _keep(block, kept[b], False)
        rows = _forward(scores, states, block, b, (2, end), direction)
        if b + 1 < blocks:
            _normalize(block, rows)
    best = max(block.exponent[rows, end], block.exponent[rows, end - 1])
    if best == -np.inf:
        return -np.inf
    posterior, change = np.zeros(end + 3), np.zeros(end + 3)
    for j in range(end - 1, end + 1):
        shift = max(block.exponent[rows, j] - best, FAINT)
        posterior[j] = block.mantissa[rows, j] * 2.0**shift
    total = posterior[end - 1] + posterior[end]
    for j in range(end - 1, end + 1):
        p = posterior[j] / total
        posterior[j] = p if p > NEGLIGIBLE else 0.0
    if direction is not None:
        mean = 0.0
        for j in range(end - 1, end + 1):
            mean += posterior[j] * block.mean[rows, j]
        for j in range(end - 1, end + 1):
            change[j] = posterior[j] * (block.mean[rows, j] - mean)
    window = (end - 1, end)
    for b in range(blocks - 1, -1, -1):
        if b + 1 < blocks:
            _keep(block, kept[b], True)
            _forward(scores, states, block, b, window, direction)
        window = _backward(frames, states, block, b, window, (posterior, change), direction, table)
    return math.log(total) + float(best * LN2 + best * LN2_REST)


@part_kernel
def _keep(block: GoldFrames, kept: FloatArray, is_restored: bool) -> None:
    """Copy the first row of a block to `kept`, or back."""
    for j in range(kept.shape[1]):  # an assignment of arrays takes long to compile
        if is_restored:
            block.mantissa[0, j], block.exponent[0, j] = kept[0, j], kept[1, j]
            block.mean[0, j] = kept[2, j]
        else:
            kept[0, j], kept[1, j] = block.mantissa[0, j], block.exponent[0, j]
            kept[2, j] = block.mean[0, j]


@part_kernel
def _normalize(block: GoldFrames, row: int) -> None:
    """Move a row to the first one, with mantissas from 1/2 to 1."""
    for j in range(block.mantissa.shape[1]):
        mantissa, exponent = math.frexp(block.mantissa[row, j])
        block.mantissa[0, j] = mantissa
        block.exponent[0, j] = block.exponent[row, j] + exponent
        block.mean[0, j] = block.mean[row, j]


@part_kernel
def _window(
    t: int, frames: int, last_frame: int, end: int, bounds: tuple[int, int]
) -> tuple[int, int]:
    """Return the first index of a state of frame t, and the first one behind its states.

    Between the first and the last states, and from which those in `bounds` can be reached until
    `last_frame`; a frame moves by two states at most.
    """
    first = max(2, end + 1 - 2 * (frames - t), bounds[0] - 2 * (last_frame - t))
    return first, min(2 * t + 4, bounds[1] + 1)


@part_kernel
def _forward(
    scores: FloatArray,
    states: GoldStates,
    block: GoldFrames,
    number: int,
    bounds: tuple[int, int],
    direction: FloatArray | None,
) -> int:
    """Run the frames of a block from its first row; return the number of frames."""
    frames, end = len(scores), len(states.symbol) - 3
    start, stop = number * BLOCK, min(frames, (number + 1) * BLOCK)
    emission, work = empty((3, len(states.labels))), empty(end + 3)
    for t in range(start, stop):
        _emissions(scores[t], states.labels, emission)
        first, last = _window(t, frames, stop - 1, end, bounds)
        _advance(states, block, t - start, emission, work, first, last)
        if direction is not None:
            r, before = t - start, block.mean[t - start]
            stay, step, skip = block.stay[r], block.step[r], block.skip[r]
            for j in range(first, last):
                mean = stay[j] * before[j] + step[j] * before[j - 1] + skip[j] * before[j - 2]
                block.mean[r + 1, j] = mean + direction[t, states.symbol[j]]
    return stop - start


@part_kernel
def _emissions(scores: FloatArray, labels: IntArray, emission: FloatArray) -> None:
    """Write exp(score - offset) of U labels as m 2^e, with m from 1/2 to 1, or 0.

    emission : (3, U), for m, e, and scratch
    """
    mantissa, exponent, work = emission[0], emission[1], emission[2]
    shift = offset(scores)
    for u in range(len(labels)):
        x = relative(scores[labels[u]], shift)
        if x == -np.inf:
            mantissa[u] = exponent[u] = x
        else:
            k = np.ceil(x * LOG2_E)
            exponent[u], mantissa[u] = k, (x - k * LN2) - k * LN2_REST
    exponentiate(mantissa, work)


@part_kernel
def _advance(
    states: GoldStates,
    block: GoldFrames,
    r: int,
    emission: FloatArray,
    work: FloatArray,
    first: int,
    last: int,
) -> None:
    """Write the weights of the prefixes of one more frame, and the shares of the states before."""
    m, e = block.mantissa[r], block.exponent[r]
    total, largest = block.mantissa[r + 1, first:last], block.exponent[r + 1, first:last]
    stay, step = block.stay[r, first:last], block.step[r, first:last]
    skip, place = block.skip[r, first:last], states.place[first:last]
    skips, barred, work = states.skips[first:last], states.barred[first:last], work[first:last]
    here, one, two = e[first:last], e[first - 1 : last - 1], e[first - 2 : last - 2]
    for j in range(len(work)):
        work[j] = two[j] + barred[j]
    for j in range(len(work)):
        x, y, z = here[j], one[j], work[j]
        most = x if x > y else y
        largest[j] = most if most > z else z
    _scale(m[first:last], here, largest, stay)
    _scale(m[first - 1 : last - 1], one, largest, step)
    _scale(m[first - 2 : last - 2], work, largest, skip)
    for j in range(len(work)):
        skip[j] *= skips[j]
    for j in range(len(work)):
        total[j] = stay[j] + step[j] + skip[j]
    for j in range(len(work)):
        work[j] = np.divide(1.0, total[j]) if total[j] > 0.0 else 0.0
    for share in (stay, step, skip):
        for j in range(len(work)):
            p = share[j] * work[j]
            share[j] = p if p > NEGLIGIBLE else 0.0
    for j in range(len(work)):
        total[j] *= emission[0, place[j]]
        largest[j] += emission[1, place[j]]
    block.mantissa[r + 1, last : last + 2], block.exponent[r + 1, last : last + 2] = 0.0, -np.inf


@part_kernel
def _scale(
    mantissa: FloatArray, exponent: FloatArray, largest: FloatArray, out: FloatArray
) -> None:
    """Write the weights m 2^e in units of 2^largest, for e <= largest."""
    bits = out.view(np.int64)
    for j in range(len(out)):
        difference = exponent[j] - largest[j]  # not a number if both are -inf
        out[j] = (difference if difference > FAINT else FAINT) + ROUND
    for j in range(len(out)):
        bits[j] = (bits[j] + 1023) << 52
    for j in range(len(out)):
        out[j] *= mantissa[j]


@part_kernel
def _backward(
    frames: int,
    states: GoldStates,
    block: GoldFrames,
    number: int,
    bounds: tuple[int, int],
    rows: tuple[FloatArray, FloatArray],
    direction: FloatArray | None,
    table: FloatArray,
) -> tuple[int, int]:
    """Subtract the posteriors of a block from `table`, and turn `rows` into those before it.

    rows : the posteriors of the states of the last frame of the block, and their derivatives;
        they are 0 outside of `bounds`
    Returns the bounds of the frame before.
    """
    end = len(states.symbol) - 3
    start, stop = number * BLOCK, min(frames, (number + 1) * BLOCK)
    posterior, change = rows
    for t in range(stop - 1, start - 1, -1):
        first, last = _window(t, frames, stop - 1, end, bounds)
        if direction is None:
            _subtract(posterior, states, first, last, table[t])
        else:
            _subtract(change, states, first, last, table[t])
        if t == 0:
            break
        r = t - start
        first, last = _window(t - 1, frames, stop - 1, end, bounds)
        stay, step, skip = block.stay[r], block.step[r], block.skip[r]
        if direction is not None:
            _spread_changes(states, block, r, rows, direction[t], first, last)
        for j in range(first, last):
            p = posterior[j] * stay[j]
            p += posterior[j + 1] * step[j + 1] + posterior[j + 2] * skip[j + 2]
            posterior[j] = p if p > NEGLIGIBLE else 0.0
        posterior[last : last + 2] = change[last : last + 2] = 0.0
    low, high = first, max(first, last - 1)
    while low < high and posterior[low] == 0.0:
        low += 1
    while low < high and posterior[high] == 0.0:
        high -= 1
    return low, high


@part_kernel
def _subtract(
    masses: FloatArray, states: GoldStates, first: int, last: int, row: FloatArray
) -> None:
    """Subtract the masses of the states of a frame from those of their labels."""
    symbol, total = states.symbol, 0.0
    for j in range(first + first % 2, last, 2):
        total += masses[j]
    row[symbol[2]] -= total  # the blank, which every other state reads
    for j in range(first + 1 - first % 2, last, 2):
        row[symbol[j]] -= masses[j]


@part_kernel
def _spread_changes(
    states: GoldStates,
    block: GoldFrames,
    r: int,
    rows: tuple[FloatArray, FloatArray],
    direction: FloatArray,
    first: int,
    last: int,
) -> None:
    """Replace the derivatives of the posteriors of a frame by those of the frame before."""
    posterior, change = rows
    before, after, symbol = block.mean[r], block.mean[r + 1], states.symbol
    for j in range(first, last):
        total = 0.0
        for share, k in ((block.stay[r], j), (block.step[r], j + 1), (block.skip[r], j + 2)):
            deviation = before[j] - (after[k] - direction[symbol[k]])
            total += share[k] * (change[k] + posterior[k] * deviation)
        change[j] = total


@kernel
def best_paths(
    scores: FloatArray,
    targets: IntArray,
    sizes: IntArray,
    blank: int,
    values: FloatArray,
    paths: IntArray,
) -> None:
    """Write the states of the best path of each item, and its score less the offsets of the frames.

    Viterbi on the states of `gold_posteriors`; O(T S).  Of equal paths, the one whose last label
    ends first and begins first, then the label before, and so on.

    scores, targets, sizes : as in `gold_posteriors`
    values : (B,), -inf if there is no path
    paths : (B, T), the states; entries beyond the frames, and without a path, stay as they are
    """
    items, length, n = scores.shape
    width = 2 * targets.shape[1] + 5
    back = empty((length, width), dtype=np.int8)
    for i in range(items):
        frames, size = sizes[i, 0], sizes[i, 1]
        states = gold_states(targets[i, :size], blank, n)
        end = 2 * size + 2
        best = np.full(end + 1, -np.inf)
        best[1] = 0.0
        for t in range(frames):
            _best_step(scores[i, t], states, best, back[t])
            best[1] = -np.inf
        j = end if best[end] >= best[end - 1] else end - 1
        values[i] = best[j]
        if best[j] == -np.inf:
            continue
        for t in range(frames - 1, -1, -1):
            paths[i, t] = j - 2
            j -= back[t, j]


@part_kernel
def _best_step(
    scores: FloatArray, states: GoldStates, best: FloatArray, back: npt.NDArray[np.int8]
) -> None:
    """Replace the best scores by those of one more frame; write how far back they come from."""
    shift = offset(scores)
    for j in range(len(best) - 1, 1, -1):
        score, distance = best[j], 0
        if best[j - 1] > score:
            score, distance = best[j - 1], 1
        if best[j - 2] + states.barred[j] > score:
            score, distance = best[j - 2], 2
        best[j] = score + relative(scores[states.symbol[j]], shift)
        back[j] = distance
