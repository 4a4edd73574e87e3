"""Steps of optimizers: SGD and Adam.

The penalty l2/2 |w|^2 applies to all weights in every step.  `sgd` visits only the weights in the
gradient: the penalties that a weight misses are applied at its next visit, or by `sgd_catch_up`.
"""

import math

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel


@kernel
def sgd(
    w: FloatArray,
    done: FloatArray,
    places: IntArray,
    gradient: FloatArray,
    rates: tuple[float, float, float, float],
) -> None:
    """Update the weights at `places` by one step of gradient descent.

    done : (d,) the sum of log(1 - rate l2) over the steps whose penalty each weight has received
    rates : the rate, l2, and this sum over all steps before and after this step
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
    """Apply the outstanding penalties of all weights."""
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
    """Update the weights and the moments (d,) by one step of Adam (Kingma and Ba 2015, alg. 1).

    rates : the rate, the two decays, the two scales 1 - decay^t, l2
    """
    rate, decay_first, decay_second, scale_first, scale_second, l2 = rates
    for i in range(len(w)):
        g = gradient[i] + l2 * w[i]
        first[i] = decay_first * first[i] + (1.0 - decay_first) * g
        second[i] = decay_second * second[i] + (1.0 - decay_second) * g * g
        moved = (first[i] / scale_first) / (math.sqrt(second[i] / scale_second) + 1e-8)
        w[i] -= rate * moved
