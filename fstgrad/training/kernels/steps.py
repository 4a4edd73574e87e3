"""Steps of optimizers on the weights that a gradient touches.

The penalty l2/2 |w|^2 belongs to every step, also of weights that the gradient leaves alone: what a
weight misses is made up for when it is touched again, or by `catch_up`.  `done` holds, for each
weight, the sum of the rates up to which its penalty is paid.
"""

import math

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel

_SMALL = 1e-12


@kernel
def adagrad(
    w: FloatArray,
    squares: FloatArray,
    done: FloatArray,
    places: IntArray,
    gradient: FloatArray,
    rates: tuple[float, float, float],
) -> None:
    """Move the weights at `places` by one step of Adagrad (Duchi, Hazan, Singer 2011).

    squares : (d,) sums of squared gradients
    rates : the rate, the sum of the rates before this step, l2
    """
    rate, before, l2 = rates
    for i in range(len(places)):
        k, g = places[i], gradient[i]
        w[k] *= _kept(squares[k], before - done[k], l2)
        squares[k] += g * g
        if squares[k] > 0.0:
            w[k] -= rate * (g + l2 * w[k]) / (math.sqrt(squares[k]) + _SMALL)
        done[k] = before + rate


@kernel
def adagrad_catch_up(
    w: FloatArray, squares: FloatArray, done: FloatArray, rate: float, l2: float
) -> None:
    """Pay the penalty of all weights; `rate` is the sum of the rates so far."""
    for k in range(len(w)):
        w[k] *= _kept(squares[k], rate - done[k], l2)
        done[k] = rate


@inner_kernel
def _kept(squares: float, rate: float, l2: float) -> float:
    """Return what the penalty leaves of a weight whose gradient was zero for a sum of rates."""
    if rate <= 0.0 or squares <= 0.0:
        return 1.0
    return math.exp(-l2 * rate / (math.sqrt(squares) + _SMALL))


@kernel
def sgd(
    w: FloatArray,
    done: FloatArray,
    places: IntArray,
    gradient: FloatArray,
    rates: tuple[float, float, float, float],
) -> None:
    """Move the weights at `places` by one step of gradient descent.

    rates : the rate, l2, and the sums of log(1 - rate l2) before and after this step; `done` is in
        these sums, as gradient descent multiplies a weight by 1 - rate l2 in a step
    """
    rate, l2, before, after = rates
    for i in range(len(places)):
        k = places[i]
        if before != done[k]:
            w[k] *= math.exp(before - done[k])
        w[k] -= rate * (gradient[i] + l2 * w[k])
        done[k] = after


@kernel
def sgd_catch_up(w: FloatArray, done: FloatArray, after: float) -> None:
    """Pay the penalty of all weights."""
    for k in range(len(w)):
        if after != done[k]:
            w[k] *= math.exp(after - done[k])
        done[k] = after


@kernel
def adam(
    w: FloatArray,
    first: FloatArray,
    second: FloatArray,
    gradient: FloatArray,
    rates: tuple[float, float, float, float, float, float],
) -> None:
    """Move the weights and the moments (d,) by one step of Adam (Kingma and Ba 2015, alg. 1).

    rates : the rate, the two decays, the two scales 1 - decay^t, l2
    """
    rate, decay_first, decay_second, scale_first, scale_second, l2 = rates
    for i in range(len(w)):
        g = gradient[i] + l2 * w[i]
        first[i] = decay_first * first[i] + (1.0 - decay_first) * g
        second[i] = decay_second * second[i] + (1.0 - decay_second) * g * g
        moved = (first[i] / scale_first) / (math.sqrt(second[i] / scale_second) + 1e-8)
        w[i] -= rate * moved
