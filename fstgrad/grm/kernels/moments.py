"""The sums of one row of eta: mass and moments of e^f, f = <eta, t> + B, over its largest term."""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel


class Moments(NamedTuple):
    """Sums over the x of one row of eta; numbers are arrays (1,), so that kernels can change them.

    height : the largest f, in nats.  mass : the sum of e^(f - height).
    left_out : a bound on the terms that were not summed, in units of e^height.
    size : |B| + sum_j |eta_j t_j| at the largest term, for the rounding error of f.
    center (k,) : the reference values of t.
    first (k,), second (k, k) : the sums of e^(f - height) (t - center) and of
        e^(f - height) (t_i - center_i) (t_j - center_j) for j <= i.
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
    """Return memory for the sums of a row with k statistics."""
    return Moments(
        np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(k), np.zeros(k),
        np.zeros((k, k)),
    )  # fmt: skip


@kernel
def clear(moments: Moments) -> None:
    """Reset all sums for a new row: height -inf, the rest 0."""
    moments.height[0] = -np.inf
    moments.mass[0] = 0.0
    moments.left_out[0] = 0.0
    moments.size[0] = 0.0
    for i in range(moments.first.shape[0]):  # slices are slower for so few entries
        moments.center[i] = 0.0
        moments.first[i] = 0.0
        for j in range(moments.first.shape[0]):
            moments.second[i, j] = 0.0


@kernel
def raise_height(moments: Moments, height: float, size: float) -> None:
    """Set a larger height, and the size of its term; rescale the sums by e^(old - new)."""
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
    """Change the center to `center` (k,) and the sums accordingly."""
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
    """Turn sums over x > 0 into those over x < 0, for T = x^2: t_j changes its sign for even j."""
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
    """Add the sums of another part of the same row; `other` is recentered in place."""
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
    """Write the results of one row from its sums.

    bounds (2,) = (A, bound on its error) with A = height + log mass; mean (k,) = E[t] = center +
    first / mass; covariance (k, k) = second / mass - (first / mass) (first / mass)'.
    """
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
    """Write the results of a row without a finite sum: A = +inf, moments NaN."""
    bounds[:] = np.inf
    mean[:] = np.nan
    covariance[:] = np.nan
