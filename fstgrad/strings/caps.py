"""A cap chosen for given scores: raised until the bounds of log Z meet."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.automaton import LossAutomaton
from fstgrad.bounds import loss_range
from fstgrad.checks import positive_integer, positive_number
from fstgrad.errors import NotSupportedError, StateLimitError
from fstgrad.losses.base import MAX_STATES, Loss
from fstgrad.strings.distribution import StringDistribution

_STEPS = 64


@dataclass(frozen=True)
class CapChoice:
    """A capped automaton and what is known of the whole loss.

    Attributes
    ----------
    automaton : LossAutomaton of min(L, cap)
    cap : float, nats
    lower, upper : float
        Bounds of the uncapped log Z under the scores, nats.
    reason : {"tolerance", "exact", "state limit"}
        Why the search stopped: the bounds are within the tolerance, no loss is above the cap, or
        the next cap would pass the state limit.
    """

    automaton: LossAutomaton
    cap: float
    lower: float
    upper: float
    reason: Literal["tolerance", "exact", "state limit"]


def choose_cap(
    scores: npt.ArrayLike,
    loss: Loss,
    target: SequenceLike,
    *,
    tolerance: float = 1e-3,
    max_states: int = MAX_STATES,
) -> CapChoice:
    """Return the smallest cap tried whose bounds of log Z are within `tolerance` of each other.

    Caps rise by the least positive cost of an arc, or by 1/64 of the largest loss if that is more.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats, as in `StringDistribution`.
    loss : Loss
        In the tropical semiring.
    target : sequence
        The target y_i.
    tolerance : float, nats
    max_states : int
        Limit of each determinization.

    Raises
    ------
    NotSupportedError
        The loss is rational, or may be infinite.
    StateLimitError
        Even the first cap passes the limit.
    """
    positive_number("tolerance", tolerance, allow_zero=True)
    positive_integer("max_states", max_states)
    if loss.semiring != "tropical":
        raise NotSupportedError("a cap saves no states of a rational loss; compile it without cap=")
    length = len(np.asarray(scores))
    lowest, highest, step = loss_range(loss.machine(target), length)
    step = max(step, (highest - lowest) / _STEPS)
    choice: CapChoice | None = None
    cap = lowest + step
    while True:
        try:
            b = loss.compile(target, length, cap=cap, max_states=max_states)
        except StateLimitError:
            if choice is None:
                raise
            return choice
        lower, upper = StringDistribution(scores, b).log_partition_bounds()
        if upper - lower <= tolerance:
            reason: Literal["tolerance", "exact"] = "exact" if cap > highest else "tolerance"
            return CapChoice(b, cap, lower, upper, reason)
        choice = CapChoice(b, cap, lower, upper, "state limit")
        cap = min(cap + step, highest + step)
