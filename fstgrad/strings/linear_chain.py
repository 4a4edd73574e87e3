"""LinearChains: a batch of chains with emissions (B, T, n) and one table of transitions (n, n).

p(y) = exp(sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t]) / Z, the linear-chain
conditional random field (Lafferty, McCallum, Pereira 2001).  These are the distributions of a
`StringDistribution` of order 2 with scores[t, x, y] = emissions[t, y] + transitions[x, y], but that
table is never built: each position of the whole batch needs one matrix product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    LARGEST_SCORE,
    BoolArray,
    FloatArray,
    IntArray,
    unusable_score,
    with_finite_sums,
    writable,
)
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.strings import kernels

NO_POSITION = "no position is left by the mask and the tags"
NO_STRING = (
    "no string has a finite score (Z = 0): allow more symbols in emissions or more steps in "
    "transitions"
)
GOLD_FORBIDDEN = "gold has a score of -inf: emissions or transitions forbid it"
BLOCK = 32  # items per kernel call: fixed, so that results do not depend on the threads
SAFE = 1e-250  # least factor of `forward_backward` at which underflow loses below 1e-50 of Z

Each = Callable[[int, Callable[[int], None]], None]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Solved:
    """log Z, marginals and the two factors of the pair marginals.

    Attributes
    ----------
    log_z : (B,) float64, nats
    node : (B, T, n) float64
        node[i, t, y] = P(y at position t of item i); 0 beyond the lengths.
    factors : (2, T B n) float64, `before` and `after` of `kernels.linear_chain.forward_backward`
        Each has one array (T, items of the block, n) per block of `BLOCK` items, concatenated.
    is_wide : (B,) bool
        Items whose weights exceed the range of float64; their factors are 0.
    """

    log_z: FloatArray
    node: FloatArray
    factors: FloatArray
    is_wide: BoolArray


@dataclass(frozen=True)
class Expectation:
    """An expected cost, and what its gradient needs.

    Attributes
    ----------
    value : (B,) float64
    node : (B, T, n) float64
        The covariance of the cost with the number of y at position t: the gradient in emissions.
    factors : (2, T B n) float64, prefix and suffix
        `before` times the expected cost up to a position, less the value, given its symbol, and
        `after` times that from the position on; in the layout of `Solved.factors`.
    """

    value: FloatArray
    node: FloatArray
    factors: FloatArray


def one_by_one(count: int, run: Callable[[int], None]) -> None:
    """Call run(0) .. run(count - 1)."""
    for i in range(count):
        run(i)


class LinearChains:
    """B linear chains that share their transitions.

    Parameters
    ----------
    emissions : (B, T, n) float32 or float64
        Log-weights in nats; -inf forbids.  Entries beyond the lengths are ignored.
    transitions : (n, n) float32 or float64
        transitions[x, y] is the log-weight of y after x, in nats; -inf forbids.
    lengths : (B,) int
        The number of symbols of each item, 0 .. T; an item of length 0 is infeasible.
    each : callable
        each(count, run) calls run(0) .. run(count - 1), possibly in threads.

    Raises
    ------
    InvalidInputError
        A log-weight is NaN, +inf or above 1e300, or shapes or lengths do not match.

    Examples
    --------
    >>> import numpy as np
    >>> chains = LinearChains(np.zeros((1, 3, 2)), np.zeros((2, 2)), np.array([3]))
    >>> round(float(chains.solve().log_z[0] / np.log(2)), 12)  # 8 equal strings
    3.0
    """

    def __init__(
        self,
        emissions: npt.NDArray[np.floating],
        transitions: npt.NDArray[np.floating],
        lengths: IntArray,
        each: Each = one_by_one,
    ) -> None:
        if emissions.ndim != 3 or min(emissions.shape[1:]) == 0:
            raise InvalidInputError(
                f"emissions has the shape {emissions.shape}; give (B, T, n) with T, n > 0"
            )
        _, length, n = emissions.shape
        if transitions.shape != (n, n):
            raise InvalidInputError(
                f"transitions has the shape {transitions.shape}; emissions are for {n} symbols: "
                f"give ({n}, {n})"
            )
        for i, size in enumerate(np.asarray(lengths).tolist()):
            if not 0 <= size <= length:
                raise InvalidInputError(f"item {i} has length {size}; give 1 to {length}")
        self.emissions = writable(with_finite_sums(np.asarray(emissions, dtype=np.float64)))
        self.transitions = writable(with_finite_sums(np.asarray(transitions, dtype=np.float64)))
        self.is_empty = np.asarray(lengths) == 0
        self.lengths = np.maximum(np.asarray(lengths, dtype=np.int64), 1)  # for kernels
        self.each = each
        self._inside = (np.arange(length) < self.lengths[:, None]) & ~self.is_empty[:, None]
        self._largest = self._maxima("emissions", self.emissions)
        self._steepest = float(self._maxima("transitions", self.transitions).max())

    def solve(self, *, allows_infeasible: bool = False) -> Solved:
        """Return log Z and marginals, by matrix products; O(B T n^2).

        allows_infeasible : whether to give items without a string of finite score log Z = -inf and
        marginals of 0.

        Raises
        ------
        InfeasibleError
            Every string of an item has a score of -inf.
        """
        forward_backward: Callable[..., None] = kernels.linear_chain.forward_backward
        items, length, n = self.emissions.shape
        tables = np.zeros((3, self.emissions.size))  # one allocation: large pages
        node, log_z, least = tables[2].reshape(items, length, n), np.zeros(items), np.ones(items)
        step = np.exp(self.transitions - _finite(self._steepest))
        turned = np.ascontiguousarray(step.T)
        factors = _blocks(tables[:2], items, n)

        def run(block: int) -> None:
            part, left, right = factors[block]
            largest = _finite(self._largest[part]).T[..., None]
            np.subtract(self.emissions[part].swapaxes(0, 1), largest, out=right)
            right[~self._inside[part].T] = -np.inf
            np.exp(right, out=right)
            results = node[part], log_z[part], least[part]
            forward_backward(right, step, turned, self.lengths[part], left, *results)

        self.each(len(factors), run)
        shift = np.where(self._inside, self._largest, 0.0).sum(axis=1)
        log_z += shift + (self.lengths - 1) * _finite(self._steepest)
        is_wide = ~(least >= SAFE)
        for i in np.flatnonzero(is_wide).tolist():
            _, left, right = factors[i // BLOCK]
            left[:, i % BLOCK] = right[:, i % BLOCK] = 0.0
            log_z[i], node[i], _ = self._solve_wide(i)
        if not allows_infeasible:
            self._check_feasible(log_z)
        return Solved(log_z, node, tables[:2], is_wide & (log_z > -np.inf))

    def score(self, i: int, symbols: IntArray) -> float:
        """Return the log-weight of a string of item i in nats."""
        steps = self.transitions[symbols[:-1], symbols[1:]]
        return float(self.emissions[i, np.arange(len(symbols)), symbols].sum() + steps.sum())

    def pair_sums(self, solved: Solved, weights: FloatArray) -> FloatArray:
        """Return sum_i weights[i] E[number of steps from x to y in item i], (n, n).

        `solved` is the result of `solve`, `weights` are (B,).  O(B T n^2).
        """
        total = step_sums(self.transitions, solved.factors, weights, self.each)
        return total + self.wide_sums(solved.is_wide, weights)

    def wide_sums(self, is_wide: BoolArray, weights: FloatArray) -> FloatArray:
        """Return the part (n, n) of `pair_sums` due to the wide items, which have no factors."""
        total = np.zeros_like(self.transitions)
        for i in np.flatnonzero(is_wide):
            total += weights[i] * self._solve_wide(int(i))[2]
        return total

    def expectation(self, solved: Solved, costs: FloatArray, step_costs: FloatArray) -> Expectation:
        """Return E[sum_t costs[t, y_t] + sum_t step_costs[y_{t-1}, y_t]]; O(B T n^2).

        `solved` is the result of `solve`, `costs` are (B, T, n), `step_costs` (n, n), all finite.
        """
        conditional_costs: Callable[..., None] = kernels.linear_chain.conditional_costs
        items, length, n = self.emissions.shape
        products = np.zeros((2, self.emissions.size))
        value, node = np.zeros(items), np.zeros((items, length, n))
        step = np.exp(self.transitions - _finite(self._steepest))
        weighted = step * step_costs
        steps = kernels.linear_chain.StepCosts(
            step, np.ascontiguousarray(step.T), weighted, np.ascontiguousarray(weighted.T)
        )
        factors = _blocks(solved.factors, items, n)
        tables = _blocks(products, items, n)

        def run(block: int) -> None:
            (part, before, after), (_, left, right) = factors[block], tables[block]
            given = kernels.linear_chain.Factors(before, after, self.lengths[part])
            conditional_costs(given, steps, costs[part], left, right)
            mean = (solved.node[part, 0] * (left[0] + right[0])).sum(axis=1)
            value[part] = mean
            left -= mean[:, None]
            node[part] = solved.node[part] * (left + right).swapaxes(0, 1)
            right += costs[part].swapaxes(0, 1)
            left *= before
            right *= after

        self.each(len(factors), run)
        for i in np.flatnonzero(solved.is_wide).tolist():
            value[i], node[i], _ = self._expectation_of_wide(i, costs[i], step_costs)
        return Expectation(value, node, products)

    def wide_covariances(
        self, is_wide: BoolArray, costs: FloatArray, step_costs: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return the part (n, n) of `step_covariances` due to the wide items."""
        total = np.zeros_like(self.transitions)
        for i in np.flatnonzero(is_wide).tolist():
            total += weights[i] * self._expectation_of_wide(i, costs[i], step_costs)[2]
        return total

    def best(self) -> tuple[IntArray, FloatArray]:
        """Return the best strings (B, T) int64 and their log-weights (B,) in nats.

        Strings are -1 beyond the lengths.  O(B T n^2).

        Raises
        ------
        InfeasibleError
            Every string of an item has a score of -inf.
        """
        items = len(self.emissions)
        found, scores = np.full(self.emissions.shape[:2], -1), empty(items)

        def run(block: int) -> None:
            part = slice(block * BLOCK, min(items, (block + 1) * BLOCK))
            scores[part] = kernels.linear_chain.best_strings(
                self.emissions[part], self.transitions, self.lengths[part], found[part]
            )

        self.each(-(-items // BLOCK), run)
        self._check_feasible(scores)
        return found, scores

    def kbest(self, k: int) -> tuple[IntArray, FloatArray]:
        """Return the k best strings (B, k, T) int64 and their log-weights (B, k) in nats.

        Strings are sorted best first, and -1 beyond the lengths.  If an item has fewer than k
        strings, the remaining log-weights are -inf and the strings -1.  O(B T n^2 k).

        Raises
        ------
        InfeasibleError
            Every string of an item has a score of -inf.
        """
        items, length, _ = self.emissions.shape
        found, scores = np.full((items, k, length), -1), empty((items, k))

        def run(i: int) -> None:
            size = int(self.lengths[i])
            scores[i] = kernels.linear_chain.best_lists(
                self.emissions[i], self.transitions, size, k, found[i]
            )
            found[i, scores[i] == -np.inf] = -1

        self.each(items, run)
        self._check_feasible(scores[:, 0])
        return found, scores

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent strings of each item, (B, k, T) int64, -1 beyond the lengths.

        Forward filtering, backward sampling: y_t is drawn from
        p(y_t | y_{t+1}) proportional to exp(log-weight of prefixes that end in y_t +
        transitions[y_t, y_{t+1}]).  O(B T n (n + k)).

        Raises
        ------
        InfeasibleError
            Every string of an item has a score of -inf.
        """
        items, length, n = self.emissions.shape
        found, points = np.full((items, k, length), -1), rng.random((items, k, length))
        best = np.zeros(items)

        def run(i: int) -> None:
            log_before = self._log_before(i)
            best[i] = log_before[-1].max()
            if best[i] == -np.inf:
                return
            symbols = np.zeros(k, dtype=np.int64)
            for t in reversed(range(self.lengths[i])):
                rows = np.broadcast_to(log_before[t], (k, n))
                if t + 1 < self.lengths[i]:
                    rows = rows + self.transitions[:, symbols].T
                share = np.cumsum(np.exp(rows - rows.max(axis=1, keepdims=True)), axis=1)
                point = points[i, :, t, None] * share[:, -1:]
                symbols = (share <= point).sum(axis=1)
                found[i, :, t] = symbols

        self.each(items, run)
        self._check_feasible(best)
        return found

    def _log_before(self, i: int) -> FloatArray:
        """Return the log-weights (l, n) of the prefixes of item i, by their last symbol."""
        own = self.emissions[i, : self.lengths[i]]
        if self.is_empty[i]:
            return np.full(own.shape, -np.inf)
        rows = empty_like(own)
        for t, emission in enumerate(own):
            rows[t] = emission
            if t > 0:
                rows[t] += _log_sum(rows[t - 1][:, None] + self.transitions)
        return rows

    def _solve_wide(self, i: int) -> tuple[float, FloatArray, FloatArray]:
        """Return log Z, marginals (T, n) and summed pair marginals (n, n), all in log space."""
        before = self._log_before(i)
        node, pairs = np.zeros(self.emissions.shape[1:]), np.zeros_like(self.transitions)
        if before[-1].max() == -np.inf:
            return -np.inf, node, pairs
        log_z = float(_log_sum(before[-1][:, None])[0])
        ahead = np.zeros(len(self.transitions))
        for t in reversed(range(len(before))):
            node[t] = np.exp(before[t] + ahead - log_z)
            if t > 0:
                steps = self.transitions + (self.emissions[i, t] + ahead)
                pairs += np.exp(before[t - 1][:, None] + steps - log_z)
                ahead = _log_sum(steps.T)
        return log_z, node, pairs

    def _expectation_of_wide(
        self, i: int, costs: FloatArray, step_costs: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the value, the covariances (T, n), and those of all steps (n, n), in log space."""
        before = self._log_before(i)
        log_z, node, _ = self._solve_wide(i)
        prefix = np.zeros_like(before)
        for t, cost in enumerate(costs[: len(before)]):
            prefix[t] = cost
            if t > 0:
                weight = before[t - 1][:, None] + self.transitions
                share = np.exp(weight - _finite(_log_sum(weight)))
                prefix[t] += (share * (prefix[t - 1][:, None] + step_costs)).sum(axis=0)
        value = float(node[len(before) - 1] @ prefix[-1])
        covariance, pairs = np.zeros_like(node), np.zeros_like(self.transitions)
        suffix = ahead = np.zeros(len(self.transitions))
        for t in reversed(range(len(before))):
            covariance[t] = node[t] * (prefix[t] + suffix - value)
            if t > 0:
                weight = self.transitions + (self.emissions[i, t] + ahead)
                rest = step_costs + (costs[t] + suffix)
                pair = np.exp(before[t - 1][:, None] + weight - log_z)
                pairs += pair * (prefix[t - 1][:, None] - value + rest)
                ahead = _log_sum(weight.T)
                suffix = (np.exp(weight - _finite(ahead)[:, None]) * rest).sum(axis=1)
        return value, covariance, pairs

    def _maxima(self, name: str, table: FloatArray) -> FloatArray:
        """Return the largest entry of each row; raise if one is no log-weight."""
        maxima: FloatArray = table.max(axis=-1)
        seen = np.where(self._inside, maxima, 0.0) if name == "emissions" else maxima
        if not (usable := seen.astype(np.float64) <= LARGEST_SCORE).all():
            place = tuple(int(j) for j in np.argwhere(~usable)[0])
            raise unusable_score(f"the largest of {name}{list(place)}", seen[place])
        return seen

    def _check_feasible(self, scores: FloatArray) -> None:
        """Raise InfeasibleError if the best, or the summed, score of an item is -inf."""
        bad = np.flatnonzero(np.isneginf(scores) | self.is_empty).tolist()
        if bad:
            reasons = {i: NO_POSITION if self.is_empty[i] else NO_STRING for i in bad}
            raise InfeasibleError.of_items(reasons)


class MaskedChains(LinearChains):
    """Linear chains of the positions inside a mask (B, T), which may be anywhere.

    The chains have these positions one after the other; strings are returned at their places, and
    -1 outside of the mask.  `taken` and `placed` convert other tables.
    """

    def __init__(
        self,
        emissions: npt.NDArray[np.floating],
        transitions: npt.NDArray[np.floating],
        mask: BoolArray,
        each: Each = one_by_one,
    ) -> None:
        lengths = mask.sum(axis=1)
        is_front = (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all()
        self._order = None if is_front else np.argsort(~mask, axis=1, kind="stable")
        super().__init__(self.taken(emissions), transitions, lengths, each)

    def taken(self, table: Array) -> Array:
        """Return a table (B, T, ...) with the positions inside the mask in front."""
        if self._order is None:
            return table
        return table[np.arange(len(table))[:, None], self._order]

    def placed(self, table: Array) -> Array:
        """Return a table (B, T, ...) of the chains with the positions at their places."""
        if self._order is None:
            return table
        result: Array = empty_like(table)
        result[np.arange(len(table))[:, None], self._order] = table
        return result

    def best(self) -> tuple[IntArray, FloatArray]:
        """Return the best strings (B, T) at their places, and their log-weights (B,)."""
        strings, scores = super().best()
        return self.placed(strings), scores

    def kbest(self, k: int) -> tuple[IntArray, FloatArray]:
        """Return the k best strings (B, k, T) at their places, and their log-weights (B, k)."""
        strings, scores = super().kbest(k)
        return self.placed(strings.swapaxes(1, 2)).swapaxes(1, 2), scores

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent strings of each item, (B, k, T), at their places."""
        return self.placed(super().sample(k, rng).swapaxes(1, 2)).swapaxes(1, 2)


def step_sums(
    transitions: FloatArray,
    factors: FloatArray | tuple[FloatArray, FloatArray],
    weights: FloatArray,
    each: Each = one_by_one,
) -> FloatArray:
    """Return `LinearChains.pair_sums` (n, n) from the factors of the pair marginals.

    `factors` are those of `Solved`, `weights` are (B,).  O(B T n^2).
    """
    n = len(transitions)
    blocks, total = _blocks(factors, len(weights), n), np.zeros((n, n))
    space = empty(max((left.size for _, left, _ in blocks), default=0))  # shared by all threads

    def run(block: int) -> None:
        rows = slice(block * BLOCK, min(n, (block + 1) * BLOCK))
        for part, left, right in blocks:
            following = right[1:].reshape(-1, n)
            size = len(following)
            count = rows.stop - rows.start
            own = space[rows.start * size : rows.stop * size].reshape(count, size)
            table = own.reshape(count, *left[1:, :, 0].shape)
            np.multiply(left[:-1, :, rows].transpose(2, 0, 1), weights[part], out=table)
            kernels.linear_chain.add_product(own, following, total[rows])

    each(-(-n // BLOCK), run)
    total *= np.exp(transitions - _finite(transitions.max()))
    return total


def step_covariances(
    transitions: FloatArray,
    factors: FloatArray,
    step_costs: FloatArray,
    weights: FloatArray,
    each: Each = one_by_one,
) -> FloatArray:
    """Return sum_i weights[i] Cov(cost, number of steps from x to y in item i), (n, n).

    `factors` (4, T B n) are those of `Solved` and of `Expectation`; items without factors add
    nothing.  It is the gradient in the transitions.  O(B T n^2).
    """
    before, after, prefix, suffix = factors
    total = step_costs * step_sums(transitions, (before, after), weights, each)
    total += step_sums(transitions, (prefix, after), weights, each)
    total += step_sums(transitions, (before, suffix), weights, each)
    return total


def _blocks(
    factors: FloatArray | tuple[FloatArray, FloatArray], items: int, n: int
) -> list[tuple[slice, FloatArray, FloatArray]]:
    """Return for each block its items and its factors, each (T, items of the block, n)."""
    before, after = factors
    length = len(before) // (items * n) if items else 0
    parts = [slice(low, min(items, low + BLOCK)) for low in range(0, items, BLOCK)]

    def own(table: FloatArray, part: slice) -> FloatArray:
        low, high = part.start * length * n, part.stop * length * n
        return table[low:high].reshape(length, part.stop - part.start, n)

    return [(part, own(before, part), own(after, part)) for part in parts]


def _finite(values: npt.ArrayLike) -> FloatArray:
    """Return the values with -inf replaced by 0."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isneginf(array), 0.0, array)


def _log_sum(table: FloatArray) -> FloatArray:
    """Return the log-sum-exp over the first axis."""
    largest = _finite(table.max(axis=0))
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(np.exp(table - largest).sum(axis=0)) + largest
    return total
