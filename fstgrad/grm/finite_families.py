"""The bases of bounded counts: a given log measure, and absence or presence."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import tables
from fstgrad.grm.count_families import EMPTY, CountBase, Scale

if TYPE_CHECKING:
    from fstgrad.grm.kernels.counts import Table


class FiniteCounts(CountBase):
    """Counts 0, ..., m - 1 with a given log measure.

    Parameters
    ----------
    log_measure : (m,) array-like, or a function of counts
        B(x) in nats up to a constant, -inf for counts that cannot occur.
    largest : int, optional
        m - 1, if `log_measure` is a function.
    scale : {"identity", "log"}
        T = x or T = log(1 + x)^2.

    Raises
    ------
    InvalidInputError
        Fewer than two counts are allowed, or `log_measure` is a function and `largest` is missing.

    Examples
    --------
    >>> dice = FiniteCounts([-np.inf, 0, 0, 0, 0, 0, 0])
    >>> bool(abs(dice.log_partition([0.0]).value - np.log(6)) < 1e-12)
    True
    """

    name = "finite"

    def __init__(
        self,
        log_measure: npt.ArrayLike | Callable[[FloatArray], npt.ArrayLike],
        largest: int | None = None,
        scale: Scale = "identity",
    ) -> None:
        values = log_measure
        if callable(log_measure):
            if largest is None:
                raise InvalidInputError("log_measure is a function; give largest, the last count")
            values = log_measure(np.arange(checks.positive_integer("largest", largest) + 1.0))
        measure = checks.log_weights("log_measure", values, (None,))  # type: ignore[arg-type]
        self.log_measure = measure.copy()
        if len(self.log_measure) < 2 or not np.isfinite(self.log_measure).sum() > 1:
            raise InvalidInputError("log_measure allows fewer than two counts; give more")
        self.log_measure.flags.writeable = False
        self.scale = checks.one_of("scale", scale, ("identity", "log"))  # type: ignore[assignment]

    def describe(self) -> dict[str, Any]:
        """Return the log measure and the scale."""
        return {"log_measure": self.log_measure.tolist(), "scale": self.scale}

    def _key(self) -> tuple[Any, ...]:
        return (self.log_measure.tobytes(), self.scale)

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return the log measure; -inf beyond the last count."""
        values = np.asarray(x, dtype=np.float64)
        at = np.clip(values, 0, len(self.log_measure) - 1).astype(np.int64)
        return np.where(values < len(self.log_measure), self.log_measure[at], -np.inf)

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless the measure allows all values."""
        super().check_values(values)
        wrong = np.flatnonzero(np.isneginf(self.log_base(values)))
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}, which the measure of the {self.name} base forbids; "
                f"its counts run from 0 to {len(self.log_measure) - 1}"
            )

    def build_table(self, k: int) -> "Table":
        """Return a table with all counts as single points."""
        x = np.arange(float(len(self.log_measure)))
        return tables.finite_table(self.log_measure, self.statistics(x, k))


class Bernoulli(FiniteCounts):
    """Absence and presence: x = 0 or 1, T = x, B = 0; counts above 0 are replaced by 1."""

    name = "bernoulli"

    def prepared(self, values: FloatArray) -> FloatArray:
        """Return 1 for counts above 0; raise InvalidInputError unless values are counts."""
        CountBase.check_values(self, values)
        return (values > 0).astype(np.float64)

    def __init__(self) -> None:
        super().__init__(np.zeros(2))

    def describe(self) -> dict[str, Any]:
        """Return an empty dict: the constructor has no arguments."""
        return {}

    def independent(self, mean: float) -> float:
        """Return the log odds of the mean; -100 for a mean of 0, 100 for a mean of 1."""
        if mean <= 0 or mean >= 1:
            return EMPTY if mean <= 0 else -EMPTY
        return float(np.log(mean / (1 - mean)))
