"""The contract of an objective: B values of arrays, with their exact gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.errors import NotSupportedError
from fstgrad.objectives.threads import ALONE, Team

Array = npt.NDArray[Any]
Arrays = Sequence[Array]


class Objective:
    """B scalars; scalar i is a function of the slices scores[k][i] and constants[k][i] alone."""

    what = "this objective"  # its name in an error

    def is_twice_differentiable(self) -> bool:
        """Whether there is a Hessian product."""
        return False

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) float64, and for each array of scores the gradients, its shape.

        The gradients are new arrays, which the caller may overwrite.

        Parameters
        ----------
        scores : arrays (B, ...), float32 or float64, read only
        constants : arrays (B, ...) of any dtype, read only
        team : Team
            The threads to use; no bit depends on their number.
        """
        raise NotImplementedError

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Raise what `evaluate` would for these constants; scores are zeros of the right shape."""
        self.evaluate(scores, constants)

    def measure(self, constants: Arrays, team: Team = ALONE) -> Array:
        """Return a table of numbers that do not depend on scores, float64."""
        raise NotImplementedError

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return, for each array of scores, H times the directions; float64, NotSupportedError."""
        raise self.no_second_derivative()

    def no_second_derivative(self) -> NotSupportedError:
        """Return the error of a second derivative."""
        return NotSupportedError(
            f"{self.what} has no second derivative here; differentiate softmax_margin or crf_nll "
            "twice, or use first derivatives only"
        )


def zeros(scores: Arrays) -> list[Array]:
    """Return zeros like the scores."""
    return [np.zeros(table.shape, table.dtype) for table in scores]
