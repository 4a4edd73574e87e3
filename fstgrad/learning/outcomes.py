"""The results of pairs: the outcome of each, and the sums of their values and gradients.

- `Outcome` : the numbers of one pair, or its error.
- `Sums` : value and gradient over many pairs.
- `Chunk` : the outcomes of consecutive pairs and their sums.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, index_array
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.learning import kernels
from fstgrad.learning.objective import NAN, Method, PairGradient

CHUNK_SIZE = 16  # pairs; affects the result, because it fixes the order of summation

XY = tuple[Any, SequenceLike]
Item = XY | FstgradError  # an error replaces a pair that could not be read


class Outcome(NamedTuple):
    """The result of one pair: the numbers of `PairGradient`, or an error.

    place : position of the pair in the input.
    seconds : wall time of the pair.
    """

    place: int
    seconds: float
    value: float = NAN
    log_partition: float = NAN
    states: int = 0
    method: Method = "exact"
    standard_error: float = 0.0
    effective_samples: float = NAN
    error: FstgradError | None = None
    cap: float = NAN
    lower: float = NAN
    upper: float = NAN
    reason: str = ""
    proposal: str = ""
    is_reliable: bool = True

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass
class Sums:
    """Sums over the pairs so far, in the order of the input.

    gradient : like w; value : nats; done, failed : numbers of pairs; variance : of the value, from
    sampling; gap : if a cap was chosen, the most by which the value under the uncapped loss may be
    higher.  support : (k,) the indices of the weights in `gradient` (k,), each once, if that of all
    others is zero; None if `gradient` has all weights.  unreliable : number of sampled pairs whose
    estimates are not reliable.
    """

    gradient: FloatArray
    value: float = 0.0
    variance: float = 0.0
    done: int = 0
    failed: int = 0
    gap: float = 0.0
    support: IntArray | None = None
    unreliable: int = 0

    __repr__ = short_repr

    def add(self, other: "Sums") -> None:
        """Add the sums of the next chunk."""
        if other.support is None:
            if self.support is not None:
                raise InvalidInputError("sums over few weights cannot include sums over all")
            self.gradient += other.gradient
        elif self.support is None:
            support = index_array(
                "support", other.support, len(self.gradient), other.gradient.shape
            )
            kernels.templates.add_at(support, other.gradient, self.gradient)
        else:
            both = np.concatenate([self.support, other.support])
            self.support, place = np.unique(both, return_inverse=True)
            values = np.concatenate([self.gradient, other.gradient])
            self.gradient = np.bincount(place, values).astype(np.float64)
        self.value += other.value
        self.variance += other.variance
        self.done += other.done
        self.failed += other.failed
        self.gap += other.gap
        self.unreliable += other.unreliable

    def count(self, part: PairGradient) -> None:
        """Add all numbers of a pair except its gradient, which `PairObjective.pair` has added."""
        self.value += part.value
        self.variance += part.standard_error**2
        self.gap += part.upper - part.lower if part.method == "capped" and part.reason else 0.0
        self.done += 1
        self.unreliable += not part.is_reliable

    def mean(self) -> tuple[float, FloatArray]:
        """Return the mean objective and gradient of the pairs without an error.

        Raises
        ------
        InvalidInputError
            If there is no pair without an error.
        """
        if not self.done:
            failed = f"all {self.failed:,} pairs failed" if self.failed else "pairs is empty"
            raise InvalidInputError(f"{failed}; give at least one pair that can be computed")
        return self.value / self.done, self.gradient / self.done


class Chunk(NamedTuple):
    """The outcomes of some pairs and their sums."""

    outcomes: tuple[Outcome, ...]
    sums: Sums

    def __repr__(self) -> str:
        return short_repr(self)


def outcome_of(place: int, seconds: float, part: PairGradient) -> Outcome:
    """Return the outcome of a pair that was computed."""
    numbers = part._asdict()
    del numbers["gradient"]
    return Outcome(place, seconds, **numbers)
