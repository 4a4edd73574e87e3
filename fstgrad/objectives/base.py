"""The contract of an objective: B values, functions of arrays, with their exact gradients.

The items of a batch are shared by the threads of a `Team`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.errors import NotSupportedError
from fstgrad.mrf.resources import ThreadRanges

Array = npt.NDArray[Any]
Arrays = Sequence[Array]


class Team:
    """Threads that share the items of a batch; each item writes only its own results.

    The results do not depend on the number of threads.

    Parameters
    ----------
    size : int
        The number of threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def each(self, items: int, run: Callable[[int], None]) -> None:
        """Call run(i) for every item."""

        def piece(low: int, high: int) -> None:
            for i in range(low, high):
                run(i)

        self.slices(items, piece)

    def slices(self, items: int, run: Callable[[int, int], None]) -> None:
        """Call run(low, high), high exclusive, for slices of 0 .. items - 1, one per thread."""
        if items:
            with ThreadRanges(items, self.size) as ranges:
                ranges(run)


ALONE = Team(1)


class Objective:
    """B scalars; scalar i depends only on the slices scores[k][i] and constants[k][i]."""

    what = "this objective"  # its name in errors

    def is_twice_differentiable(self) -> bool:
        """Return whether `hessian_product` is available."""
        return False

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) float64 and, for each array of scores, a gradient of its shape.

        The gradients are new arrays, which the caller may overwrite.

        Parameters
        ----------
        scores : arrays (B, ...), float32 or float64, read-only
        constants : arrays (B, ...) of any dtype, read-only
        team : Team
            The threads to use.  Results do not depend on their number, to the last bit.
        """
        raise NotImplementedError

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Check the constants: raise the error of `evaluate`, if any, at scores of zero."""
        self.evaluate(scores, constants)

    def measure(self, constants: Arrays, team: Team = ALONE) -> Array:
        """Return a float64 table of the constants, for an objective that has no scores."""
        raise NotImplementedError

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the Hessian times the directions, one float64 array for each array of scores.

        Raises
        ------
        NotSupportedError
            The objective has no Hessian product.
        """
        raise self.no_second_derivative()

    def no_second_derivative(self) -> NotSupportedError:
        """Return the error that `hessian_product` raises if it is not available."""
        return NotSupportedError(
            f"{self.what} has no second derivative here; differentiate softmax_margin or crf_nll "
            "twice, or use first derivatives only"
        )


def zeros(scores: Arrays) -> list[Array]:
    """Return zeros of the shapes and dtypes of the scores."""
    return [np.zeros(table.shape, table.dtype) for table in scores]
