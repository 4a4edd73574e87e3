"""Budget: limits on states and samples, computed before the work starts.

Fixed rates, measured on one core, convert seconds into operations.  So the same input and seed give
the same result on every machine; a slower machine needs more time.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import (
    FloatArray,
    call_function,
    log_weights,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    NotSupportedError,
    StateLimitError,
)
from fstgrad.losses.automata.automaton import LossAutomaton

_STATE = 2e-6  # seconds to determinize a state and to visit it in the passes
_CELL = 2e-9  # seconds per state and entry of the scores of a position, for both passes
_STEP = 2e-9  # seconds per sample, position and state of M (or symbol of the alphabet)
_STATE_BYTES = 16  # per state and context
_SAMPLE_BYTES = 64  # per sample and position
PLAIN_SPEED = 3  # a string drawn from the scores alone is this much cheaper than one from B
_LEAST_SAMPLES = 200
_TRIED = 20_000  # up to this limit of states, compile without estimating the number needed


class Budget(NamedTuple):
    """Limits on the cost of the result for one pair, and its required precision.

    Attributes
    ----------
    seconds : float
        Approximate time on one core, > 0: half for an automaton, half for samples.
    memory : float
        Approximate memory in bytes, > 0.
    width : float
        Wanted width of the interval in nats, > 0: no more samples are drawn than it needs.
    """

    seconds: float = 1.0
    memory: float = 1e9
    width: float = 0.05

    def checked(self) -> "Budget":
        """Return the budget as floats.

        Raises
        ------
        InvalidInputError
            A limit is not a finite number > 0.
        """
        return Budget(*(positive_number(name, value) for name, value in self._asdict().items()))

    def states(self, scores: FloatArray) -> int:
        """Return how many states an automaton may have, for scores (l, n), (l, n+1, n), ...

        Half of `seconds` and half of `memory` are enough for them; at least 1.
        """
        scores = _checked_table(scores)
        n, contexts = scores.shape[-1], scores[0].size // scores.shape[-1]
        by_time = 0.5 * self.seconds / (_STATE + _CELL * n * contexts)
        by_memory = 0.5 * self.memory / (_STATE_BYTES * (contexts + n))
        return max(1, int(min(by_time, by_memory)))

    def most_samples(self, scores: FloatArray, step_states: int) -> int:
        """Return how many strings may be drawn and evaluated; at least 200.

        Parameters
        ----------
        scores : (l, n), (l, n+1, n), ... float64
        step_states : int
            States of M that the evaluation of a string visits per position.

        Raises
        ------
        InvalidInputError
            The fewest strings that give an estimate need more than ten times `seconds` (or more
            than 10 s), or a limit is not above 0.
        """
        self.checked()
        scores = _checked_table(scores)
        step_states = positive_integer("step_states", step_states)
        length, n = len(scores), scores.shape[-1]
        each = _STEP * length * (step_states + 20 * n)
        needed = 5 * _LEAST_SAMPLES * each  # includes the samples that compare proposals
        if needed > 10 * max(self.seconds, 1.0):
            raise InvalidInputError(
                f"seconds is {self.seconds:g}, but an estimate for {length:,} positions with this "
                f"loss needs about {needed:.0f} s, more than ten times as much; give at least "
                f"{np.ceil(needed / 10):.0f}, or shorter strings"
            )
        by_time = 0.5 * self.seconds / each
        by_memory = 0.25 * self.memory / (_SAMPLE_BYTES * length)
        return max(_LEAST_SAMPLES, int(min(by_time, by_memory)))


def _checked_table(scores: FloatArray) -> FloatArray:
    shape = (table := log_weights("scores", scores)).shape
    if len(shape) < 2 or 0 in shape:
        raise InvalidInputError(f"scores has shape {shape}; give (l, n), (l, n+1, n) and so on")
    return table


def exact_within(compiled: Callable[..., LossAutomaton], limit: int) -> LossAutomaton | None:
    """Return the exact automaton; None if it has, or probably has, more than `limit` states.

    `compiled` maps band= and max_states= to an automaton.  If the limit is above 20,000, the bands
    1 and 2, which are cheap, show how the number of states grows.  If two further bands with the
    same growth would exceed the limit, the exact automaton is not compiled.
    """
    if limit > _TRIED:
        try:
            one, two = (
                call_function("compiled", compiled, band=band, max_states=limit).num_states
                for band in (1, 2)
            )
        except StateLimitError:
            return None
        except (NotSupportedError, InfeasibleError):
            one = two = 1
        if two * np.square(two / one) > limit:
            return None
    try:
        return compiled(max_states=limit)
    except StateLimitError:
        return None
