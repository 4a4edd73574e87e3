"""One step of an optimizer over all weights."""

import math

from fstgrad.checks import FloatArray
from fstgrad.compiler import kernel


@kernel
def adam(
    w: FloatArray,
    first: FloatArray,
    second: FloatArray,
    gradient: FloatArray,
    rate: float,
    decay_first: float,
    decay_second: float,
    scale_first: float,
    scale_second: float,
    small: float,
) -> None:
    """Move the weights and the moments (d,) by one step of Adam (Kingma and Ba 2015, alg. 1)."""
    for i in range(len(w)):
        first[i] = decay_first * first[i] + (1.0 - decay_first) * gradient[i]
        second[i] = decay_second * second[i] + (1.0 - decay_second) * gradient[i] * gradient[i]
        moved = (first[i] / scale_first) / (math.sqrt(second[i] / scale_second) + small)
        w[i] -= rate * moved
