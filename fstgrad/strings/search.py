"""Samples and k-best strings of A o B, each from one backward pass."""

import heapq

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.strings.algebra import Algebra, MaxPlus, Real
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import PathWeights
from fstgrad.strings.solve import no_string_message


def sample(scores: FloatArray, paths: PathWeights, k: int, rng: np.random.Generator) -> IntArray:
    """Return k independent strings, (k, l) int64; O(l k n) after the pass, l k uniform numbers.

    Symbol t is drawn with probability proportional to the weight of all continuations,
    exp(score_t[x, b] + log H_t[r, s, b]); see `passes`.

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.
    """
    ways = _Continuations(scores, paths)
    length, n = len(scores), scores.shape[-1]
    drawn = np.full((k, length + scores.ndim - 2), n, dtype=np.int64)
    strings = drawn[:, scores.ndim - 2 :]
    state = np.zeros(k, dtype=np.int64)
    for t in range(length):
        weights = ways.through(t, drawn[:, t : t + scores.ndim - 2], state)
        largest = weights.max(axis=1, keepdims=True)
        if t == 0 and np.isneginf(largest[0, 0]):
            raise InfeasibleError(no_string_message(paths.is_complete))
        cumulative = np.cumsum(np.exp(weights - largest), axis=1)
        point = rng.random(k) * cumulative[:, -1]
        strings[:, t] = (cumulative <= point[:, None]).sum(axis=1)
        state = paths.levels[t].nextstate[state, paths.class_of[strings[:, t]]]
    return strings.copy()


def kbest(scores: FloatArray, paths: PathWeights, k: int) -> list[tuple[IntArray, float]]:
    """Return the k best strings (ids, log-weight in nats), by best-first search.

    B is deterministic, so each string has one path.  The max-plus pass gives the best completion of
    every prefix, so the search expands only prefixes of the k best strings.  Among equal
    log-weights the smaller ids come first.  The list is shorter if fewer strings have a finite
    log-weight.
    """
    ways = _Continuations(scores, paths, MaxPlus())
    length, n, contexts = len(scores), scores.shape[-1], scores.ndim - 2
    # items: (minus the best total through the prefix, prefix, state, weight of the prefix)
    queue: list[tuple[float, tuple[int, ...], int, float]] = [(-np.inf, (), 0, paths.initial)]
    found: list[tuple[IntArray, float]] = []
    while queue and len(found) < k:
        bound, prefix, state, weight = heapq.heappop(queue)
        t = len(prefix)
        if t == length:
            found.append((np.array(prefix, dtype=np.int64), -bound))
            continue
        context = ((n,) * contexts + prefix)[t : t + contexts]
        best = ways.through(t, np.array([context], dtype=np.int64), np.array([state]))[0]
        steps = scores[(t, *context)] + paths.log[t][state, paths.class_of]
        nextstates = paths.levels[t].nextstate[state, paths.class_of]
        for symbol in np.flatnonzero(best > -np.inf).tolist():
            nextstate, total = int(nextstates[symbol]), weight + float(steps[symbol])
            if t + 1 == length:
                item = (-total - float(paths.final[nextstate]), (*prefix, symbol), nextstate, total)
            else:
                item = (-weight - float(best[symbol]), (*prefix, symbol), nextstate, total)
            heapq.heappush(queue, item)
    return found


class _Continuations:
    """Log-weights of all continuations of every prefix: sums, or maxima with `MaxPlus`.

    Sums are exact up to a constant per position, maxima are exact.
    """

    def __init__(
        self, scores: FloatArray, paths: PathWeights, algebra: Algebra | None = None
    ) -> None:
        passes = Passes(scores, paths, algebra=algebra)
        real = isinstance(passes.algebra, Real)
        self._scores = scores
        with np.errstate(divide="ignore"):
            self._ahead = {
                t: np.log(ahead[0]) if real else ahead[0] for t, ahead in passes.backward_weights()
            }
        still = np.append(np.cumsum(passes.shifts[::-1])[::-1], 0.0)[1:]
        self._shift = still + float(paths.final.max())

    def through(self, t: int, context: IntArray, state: IntArray) -> FloatArray:
        """Return log-weights (k, n) in nats of each symbol at t with all its continuations.

        context : (k, q - 1) ids, oldest first, n before the start
        state : (k,) states of level t
        """
        width = self._scores.shape[-1] + 1
        younger = np.zeros(len(context), dtype=np.int64)
        for column in context.T[1:]:
            younger = younger * width + column
        scores = self._scores[t][tuple(context.T)] if context.shape[1] else self._scores[t]
        rows: FloatArray = scores + self._ahead[t][younger, state] + self._shift[t]
        return rows
