"""Choose a cap for given scores: raise it until the bounds of the uncapped objective meet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    call_function,
    instance,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import InvalidInputError, NotSupportedError, StateLimitError
from fstgrad.core.short_repr import short_repr
from fstgrad.losses import MAX_STATES, Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.caps import loss_range
from fstgrad.strings.distribution import StringDistribution

Bounded = Literal["softmax-margin", "risk"]
Reason = Literal["tolerance", "exact", "state limit", "no progress"]
TOLERANCE = 1e-3  # nats
_STEPS = 64
_CLOSING, _STALLED = 0.999, 5  # stop if the gap of the bounds shrinks less, 5 times in a row


@dataclass(frozen=True)
class CapChoice:
    """A capped automaton, and bounds on the objective under the uncapped loss.

    Attributes
    ----------
    automaton : LossAutomaton of min(L, cap)
    cap : float, nats
    lower, upper : float, nats
        Bounds on log Z of exp(L + w.Psi), or on the risk E[L], under the uncapped loss L.
    reason : {"tolerance", "exact", "state limit", "no progress"}
        Why the search stopped: the bounds are within the tolerance, no loss is above the cap, the
        next cap exceeds the state limit, or five times in a row a higher cap hardly moved the
        bounds.
    """

    automaton: LossAutomaton
    cap: float
    lower: float
    upper: float
    reason: Reason

    __repr__ = short_repr


REMEDY = (
    "Raise max_states, shorten the strings, or draw samples (fg.sampled_softmax_margin), which any "
    "length and loss allows."
)


def choose_cap(
    scores: npt.ArrayLike,
    loss: Loss,
    target: SequenceLike,
    *,
    tolerance: float = TOLERANCE,
    max_states: int = MAX_STATES,
    objective: Bounded = "softmax-margin",
    compiled: Callable[[float], LossAutomaton] | None = None,
) -> CapChoice:
    """Raise the cap until the bounds of the objective are within `tolerance` of each other.

    The cap rises in steps of the least positive cost of an arc, or of 1/64 of the range of the
    loss if that is more.  If the search stops for another reason, return the last cap that was
    compiled; `reason` says why.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats, as in `StringDistribution`.
    loss : Loss
        A loss in the tropical semiring.
    target : sequence
        The target y_i.
    tolerance : float
        Stop if upper - lower is at most this, in nats; >= 0.
    max_states : int
        Limit on the states of each determinization.
    objective : {"softmax-margin", "risk"}
        The bounded quantity: log Z of exp(L + w.Psi), or E[L] under exp(w.Psi) / Z.
    compiled : callable, optional
        Maps a cap to the automaton of min(L, cap), for example from a cache.  By default
        `loss.compile`.

    Returns
    -------
    CapChoice

    Raises
    ------
    NotSupportedError
        The loss is rational, or may be infinite.
    StateLimitError
        The first cap already exceeds the limit.
    InvalidInputError, AlphabetError
        Scores or options are invalid; the target has a symbol outside the alphabet.

    Examples
    --------
    >>> import fstgrad as fg
    >>> found = fg.choose_cap(
    ...     np.zeros((4, 2)), fg.EditDistance(fg.Alphabet("ab")), "abba", tolerance=0.1
    ... )
    >>> found.cap, found.reason, found.upper - found.lower <= 0.1
    (3.0, 'tolerance', True)
    """
    tolerance = positive_number("tolerance", tolerance, allow_zero=True)
    max_states = positive_integer("max_states", max_states)
    one_of("objective", objective, ("softmax-margin", "risk"))
    instance("loss", loss, Loss, "a Loss")
    if compiled is not None and not callable(compiled):
        raise InvalidInputError(f"compiled is {compiled!r}; give a function of a cap")
    if loss.semiring != "tropical":
        raise NotSupportedError("a cap saves no states of a rational loss; compile it without cap=")
    scores = StringDistribution(scores).scores
    length = len(scores)
    lowest, highest, step = loss_range(loss.machine(target), length)
    step = max(step, (highest - lowest) / _STEPS)
    choice: CapChoice | None = None
    stalled = 0
    cap = lowest + step
    while True:
        try:
            if compiled is None:
                b = loss.compile(target, length, cap=cap, max_states=max_states)
            else:
                b = call_function("compiled", compiled, cap)
                instance("what compiled returns", b, LossAutomaton, "a LossAutomaton")
        except StateLimitError as error:
            if choice is None:
                raise StateLimitError(
                    error.states, error.limit, where=f"{error.where}, for the least cap, {cap:g}",
                    remedy=REMEDY, nbytes=error.nbytes,
                ) from None  # fmt: skip
            return choice
        lower, upper = _bounds(scores, b, objective)
        if cap > highest:
            return CapChoice(b, cap, lower, upper, "exact")
        if upper - lower <= tolerance:
            return CapChoice(b, cap, lower, upper, "tolerance")
        if choice is not None and upper - lower >= _CLOSING * (choice.upper - choice.lower):
            stalled += 1
            if stalled == _STALLED:
                return CapChoice(b, cap, lower, upper, "no progress")
        else:
            stalled = 0
        choice = CapChoice(b, cap, lower, upper, "state limit")
        cap = min(cap + step, highest + step)


def _bounds(scores: FloatArray, b: LossAutomaton, objective: Bounded) -> tuple[float, float]:
    """Return bounds on log Z of exp(L + w.Psi), or on E[L], for the uncapped loss L."""
    if objective == "softmax-margin" or b.cap is None:
        return StringDistribution(scores, b).log_partition_bounds()
    free = StringDistribution(scores)
    return free.expected_loss(b), free.expected_loss(b.cap.upper)
