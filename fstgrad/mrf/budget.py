"""A time limit for a computation, checked between sweeps."""

import time
from dataclasses import dataclass


class SpentError(Exception):
    """The time is over before there is a result; this error never leaves the package."""


@dataclass(frozen=True)
class Budget:
    """The time `end` at which to stop, in seconds of `time.perf_counter`; inf for no limit."""

    end: float = float("inf")

    @classmethod
    def of(cls, seconds: float) -> "Budget":
        """Return a budget that ends `seconds` from now."""
        return cls(time.perf_counter() + seconds)

    @property
    def left(self) -> float:
        """The remaining seconds; negative when the time is over."""
        return self.end - time.perf_counter()

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return self.end < float("inf") and time.perf_counter() >= self.end

    def check(self) -> None:
        """Raise SpentError if the time is over."""
        if self.is_spent:
            raise SpentError


ENDLESS = Budget()
