"""The sums of one row: mass and moments of exp(<eta, t> + B), scaled by its largest term."""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.compiler import kernel


class Moments(NamedTuple):
    """Sums over one row of eta; `scalars` are held in arrays of one entry so that kernels add.

    height : the largest log term.  mass : the sum of the terms over e^height.
    left_out : a bound on what was not summed, over e^height.
    size : the size of the numbers that cancel in the largest term.
    center (k,) : the values that t is measured from.
    first (k,), second (k, k) : sums of t - center and of its products (lower triangle).
    """

    height: FloatArray
    mass: FloatArray
    left_out: FloatArray
    size: FloatArray
    center: FloatArray
    first: FloatArray
    second: FloatArray


@kernel
def empty_moments(k: int) -> Moments:
    """Return room for the sums of a row with k statistics."""
    return Moments(
        np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(k), np.zeros(k),
        np.zeros((k, k)),
    )  # fmt: skip


@kernel
def clear(moments: Moments) -> None:
    """Start a new row, of height -inf."""
    moments.height[0] = -np.inf
    moments.mass[0] = 0.0
    moments.left_out[0] = 0.0
    moments.size[0] = 0.0
    for i in range(moments.first.shape[0]):  # slices cost more than these few entries
        moments.center[i] = 0.0
        moments.first[i] = 0.0
        for j in range(moments.first.shape[0]):
            moments.second[i, j] = 0.0


@kernel
def raise_height(moments: Moments, height: float, size: float) -> None:
    """Scale the sums to a larger height."""
    scale = math.exp(moments.height[0] - height)
    moments.height[0] = height
    moments.size[0] = size
    moments.mass[0] *= scale
    moments.left_out[0] *= scale
    for i in range(moments.first.shape[0]):
        moments.first[i] *= scale
        for j in range(moments.first.shape[0]):
            moments.second[i, j] *= scale


@kernel
def recenter(moments: Moments, center: FloatArray) -> None:
    """Measure the statistics from another center."""
    k = center.shape[0]
    mass = moments.mass[0]
    for i in range(k):
        for j in range(i + 1):
            # E[(t_i - b_i)(t_j - b_j)] from the sums about a, with a - b = shift
            shift_i, shift_j = moments.center[i] - center[i], moments.center[j] - center[j]
            moments.second[i, j] += (
                shift_i * moments.first[j] + shift_j * moments.first[i] + shift_i * shift_j * mass
            )
    for i in range(k):
        moments.first[i] += (moments.center[i] - center[i]) * mass
        moments.center[i] = center[i]


@kernel
def mirror(moments: Moments) -> None:
    """Turn the sums over x > 0 of T = x^2 into those over x < 0: even roots carry the sign of x."""
    k = moments.center.shape[0]
    for i in range(1, k, 2):
        moments.center[i] = -moments.center[i]
        moments.first[i] = -moments.first[i]
    for i in range(k):
        for j in range(i + 1):
            if (i + j) % 2 == 1:
                moments.second[i, j] = -moments.second[i, j]


@kernel
def add_moments(moments: Moments, other: Moments) -> None:
    """Add the sums of another part of the same row; `other` is changed."""
    recenter(other, moments.center)
    if other.height[0] > moments.height[0]:
        raise_height(moments, other.height[0], max(moments.size[0], other.size[0]))
    scale = math.exp(other.height[0] - moments.height[0])
    moments.mass[0] += scale * other.mass[0]
    moments.left_out[0] += scale * other.left_out[0]
    moments.first[:] += scale * other.first
    moments.second[:] += scale * other.second


@kernel
def finish(moments: Moments, bounds: FloatArray, mean: FloatArray, covariance: FloatArray) -> None:
    """Turn the sums of one row into A and its largest error, the mean and the covariance."""
    k = mean.shape[0]
    mass = moments.mass[0]
    bounds[0] = moments.height[0] + math.log(mass)
    rounding = 1e-15 * (8.0 + 4.0 * (moments.size[0] + abs(bounds[0])))
    bounds[1] = math.log1p(moments.left_out[0] / mass) + rounding
    for i in range(k):
        first = moments.first[i] / mass
        mean[i] = moments.center[i] + first
        for j in range(i + 1):
            second = moments.second[i, j] / mass - first * (moments.first[j] / mass)
            covariance[i, j] = second
            covariance[j, i] = second


@kernel
def fail(bounds: FloatArray, mean: FloatArray, covariance: FloatArray) -> None:
    """Write the result of a sum that does not converge: +inf, without moments."""
    bounds[:] = np.inf
    mean[:] = np.nan
    covariance[:] = np.nan
