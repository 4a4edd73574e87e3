"""The two semirings of the layered engine, in which a transducer defines a loss.

========== ============ ======= ====== ==== =====================================================
name       values       plus    times  zero loss of a hypothesis whose paths sum to u
========== ============ ======= ====== ==== =====================================================
tropical   int64 units  min     +      INF  u times the unit: the cheapest alignment
probability float64     +       *      0    -log(u + smoothing), or -u: counts and kernels
========== ============ ======= ====== ==== =====================================================

Tropical costs are integer multiples of one unit, so that equal states compare equal.  INF means
+infinity, and so does every value above INF / 2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

INF = 2**60


@dataclass(frozen=True)
class Semiring:
    """(plus, times, zero, one) on arrays of one dtype."""

    name: str
    dtype: npt.DTypeLike
    plus: np.ufunc
    times: np.ufunc
    zero: Any
    one: Any

    def is_zero(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the `values` that are the semiring's zero."""
        mask: npt.NDArray[np.bool_] = (
            values > self.zero // 2 if self is TROPICAL else values == self.zero
        )
        return mask

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by name, so that unpickling returns the same object."""
        return _by_name, (self.name,)

    def full(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array of this shape, filled with the semiring's zero."""
        return np.full(shape, self.zero, dtype=self.dtype)


TROPICAL = Semiring("tropical", np.int64, np.minimum, np.add, INF, np.int64(0))
PROBABILITY = Semiring("probability", np.float64, np.add, np.multiply, 0.0, 1.0)
SEMIRINGS = {semiring.name: semiring for semiring in (TROPICAL, PROBABILITY)}


def _by_name(name: str) -> Semiring:
    return SEMIRINGS[name]
