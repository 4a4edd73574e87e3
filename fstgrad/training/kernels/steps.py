"""Steps of optimizers.

The penalty l2/2 |w|^2 belongs to every step, also of weights that the gradient leaves alone.  `sgd`
visits only the weights that the gradient touches: what a weight misses is made up for when it is
touched again, or by `sgd_catch_up`.
"""

import math

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def sgd(
    w: FloatArray,
    done: FloatArray,
    places: IntArray,
    gradient: FloatArray,
    rates: tuple[float, float, float, float],
) -> None:
    """Move the weights at `places` by one step of gradient descent.

    done : (d,) the sum of log(1 - rate l2) over the steps whose penalty each weight has paid
    rates : the rate, l2, and that sum before and after this step
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
