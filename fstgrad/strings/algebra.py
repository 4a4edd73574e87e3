"""The semirings of the passes over strings: real weights, log-weights, maxima.

A pass multiplies and adds arrays of weights of shape (D, ...).  With D = 1 they hold the weights
only.  With D = 2 they also hold the tangent, the derivative of every weight along one direction
(the first-order expectation semiring of Eisner 2002):

=========== ========= ====================== =============== ======================================
class       weight    tangent                zero            used for
=========== ========= ====================== =============== ======================================
Real        w         w'                     0               weights within the range of floats
Log         log w     w' / w                 -inf            weights beyond the range of floats
MaxPlus     log w     none                   -inf            the best strings
=========== ========= ====================== =============== ======================================
"""

from typing import Protocol

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray

_BLOCK = 1 << 20  # about how many numbers a blocked product holds at once


class Algebra(Protocol):
    """Sums and products of weight arrays (D, ...)."""

    zero: float

    def weights(self, log_weight: FloatArray, tangent: FloatArray | None) -> FloatArray:
        """Return the weights (D, ...); D = 2 if the derivative of `log_weight` is given."""

    def times(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the product of two weight arrays (D, ...), entry by entry."""

    def matmul(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the matrix product (D, R, I, J) of (D, R, I, K) and (D, R, K, J)."""

    def reduce(self, values: FloatArray, starts: IntArray) -> FloatArray:
        """Return the sums over segments of axis -2; segment i begins at starts[i]."""

    def scale(self, values: FloatArray) -> tuple[FloatArray, float]:
        """Return the values divided by a common factor, and the log of the factor."""

    def normalize(self, values: FloatArray) -> FloatArray:
        """Return the weights as probabilities that sum to one, with tangents if D = 2."""


class Real:
    """The real semiring: weights w with tangents w'."""

    zero = 0.0

    def weights(self, log_weight: FloatArray, tangent: FloatArray | None) -> FloatArray:
        """Return w = exp(log_weight) and, if `tangent` is given, w' = w tangent."""
        value = np.exp(log_weight)
        return value[None] if tangent is None else np.stack([value, value * tangent])

    def times(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return v w and, if D = 2, (v w)' = v' w + v w'."""
        if len(left) == 1:
            return np.multiply(left, right, dtype=np.float64)
        return np.stack([left[0] * right[0], left[1] * right[0] + left[0] * right[1]])

    def matmul(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the matrix products V W and, if D = 2, V' W + V W'."""
        if len(left) == 1:
            product: FloatArray = np.matmul(left, right)
            return product
        return np.stack(
            [left[0] @ right[0], np.matmul(left[1], right[0]) + np.matmul(left[0], right[1])]
        )

    def reduce(self, values: FloatArray, starts: IntArray) -> FloatArray:
        """Return the sums over segments of axis -2."""
        result: FloatArray = np.add.reduceat(values, starts, axis=-2)
        return result

    def scale(self, values: FloatArray) -> tuple[FloatArray, float]:
        """Return the values divided by the largest weight, and its log; unchanged if it is 0."""
        largest = float(values[0].max())
        return (values / largest, float(np.log(largest))) if largest > 0 else (values, 0.0)

    def normalize(self, values: FloatArray) -> FloatArray:
        """Return p = w / sum w and, if D = 2, p' = w' / sum w - p sum(w' / sum w)."""
        total = values[0].sum()
        share = np.divide(values[0], total)
        if len(values) == 1:
            return np.expand_dims(share, 0)
        change = np.divide(values[1], total)
        return np.stack([share, change - share * change.sum()])


class Log:
    """The log semiring: log-weights log w with tangents (log w)' = w' / w."""

    zero = -np.inf

    def weights(self, log_weight: FloatArray, tangent: FloatArray | None) -> FloatArray:
        """Return the log-weights, with their derivatives if `tangent` is given."""
        return log_weight[None] if tangent is None else np.stack([log_weight, tangent])

    def times(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the sums of log-weights and of tangents."""
        with np.errstate(over="ignore"):  # as in `_terms`
            return np.add(left, right, dtype=np.float64)

    def matmul(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return log sum_k exp(left[i, k] + right[k, j]), one block of the axis k at a time.

        If D = 2, the tangent is the mean of the sums of tangents, weighted by the terms.
        """
        result = np.full((len(left), *left.shape[1:-1], right.shape[-1]), -np.inf)
        blocks = _blocks(left.shape, right.shape[-1])
        for block in blocks:
            terms = _terms(left[0], right[0], block)
            result[0] = np.logaddexp(result[0], _log_sum(terms, -2))
        if len(left) == 2:
            result[1] = 0.0
            total = np.where(result[0] > -np.inf, result[0], 0.0)[..., None, :]
            for block in blocks:
                share = np.exp(_terms(left[0], right[0], block) - total)
                result[1] += (share * _terms(left[1], right[1], block)).sum(axis=-2)
        return result

    def reduce(self, values: FloatArray, starts: IntArray) -> FloatArray:
        """Return the log-sum-exps over segments of axis -2; tangents become weighted means."""
        total = np.logaddexp.reduceat(values[0], starts, axis=-2)
        if len(values) == 1:
            return total[None]
        sizes = np.diff(np.append(starts, values.shape[-2]))
        finite = np.where(total > -np.inf, total, 0.0)
        share = np.exp(values[0] - np.repeat(finite, sizes, axis=-2))
        return np.stack([total, np.add.reduceat(share * values[1], starts, axis=-2)])

    def scale(self, values: FloatArray) -> tuple[FloatArray, float]:
        """Return the values unchanged and 0: log-weights need no scaling."""
        return values, 0.0

    def normalize(self, values: FloatArray) -> FloatArray:
        """Return p = exp(log w - log sum w) and, if D = 2, p' = p (d - sum p d), d = (log w)'."""
        share = np.exp(values[0] - _log_sum(values[0].reshape(1, -1, 1), -2))
        if len(values) == 1:
            return np.expand_dims(share, 0)
        return np.stack([share, share * (values[1] - (share * values[1]).sum())])


class MaxPlus(Log):
    """The max-plus semiring: log-weights, of which sums keep the largest; no tangents."""

    def matmul(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return max_k (left[i, k] + right[k, j]), one block of the axis k at a time."""
        result = np.full((*left.shape[:-1], right.shape[-1]), -np.inf)
        for block in _blocks(left.shape, right.shape[-1]):
            result = np.maximum(result, _terms(left, right, block).max(axis=-2))
        return result

    def reduce(self, values: FloatArray, starts: IntArray) -> FloatArray:
        """Return the maxima over segments of axis -2."""
        result: FloatArray = np.maximum.reduceat(values, starts, axis=-2)
        return result


def _blocks(shape: tuple[int, ...], columns: int) -> list[slice]:
    """Return slices of the inner axis that keep a block of terms near `_BLOCK` numbers."""
    inner = shape[-1]
    width = max(1, _BLOCK // max(1, int(np.prod(shape[1:-1])) * columns))
    return [slice(start, start + width) for start in range(0, inner, width)]


def _terms(left: FloatArray, right: FloatArray, block: slice) -> FloatArray:
    """Return left[..., i, k] + right[..., k, j] for k in the block, as (..., i, k, j)."""
    with np.errstate(over="ignore"):  # the sum of two masks of finfo.min is -inf
        terms: FloatArray = left[..., :, block, None] + right[..., None, block, :]
    return terms


def _log_sum(terms: FloatArray, axis: int) -> FloatArray:
    """Return the log-sum-exp over an axis; -inf if every term is -inf."""
    largest = terms.max(axis=axis, keepdims=True)
    shift = np.where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(np.exp(terms - shift).sum(axis=axis)) + shift.squeeze(axis)
    return total
