"""Budget: how many states and samples an answer may cost, decided before they are spent.

Seconds are turned into operations by rates measured on one core, so that the same input and seed
give the same result on every machine, and a slower one takes longer.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import (
    FloatArray,
    called,
    instance,
    positive_integer,
    positive_number,
)
from fstgrad.errors import InfeasibleError, InvalidInputError, NotSupportedError, StateLimitError

_STATE = 2e-6  # seconds for a state to be determinized and walked
_CELL = 2e-9  # for a state and an entry of the scores in both passes
_STEP = 2e-9  # for a state of M, or a symbol of the alphabet, at one position of one sample
_STATE_BYTES = 16  # for a state and a context
_SAMPLE_BYTES = 64  # for a sample and a position
PLAIN_SPEED = 3  # strings of the scores alone, in the time of one of an automaton
_LEAST_SAMPLES = 200
_TRIED = 20_000  # states that are tried without an estimate of the number needed


class Budget(NamedTuple):
    """Limits on the cost of the result for one pair, and its required precision.

    seconds : time of one core, approximately; half for an automaton, half for samples.
    memory : bytes, about.
    width : nats; no more samples are drawn than an interval of this width needs.
    """

    seconds: float = 1.0
    memory: float = 1e9
    width: float = 0.05

    def checked(self) -> "Budget":
        """Return the budget, all of it above zero."""
        return Budget(*(positive_number(name, value) for name, value in self._asdict().items()))

    def states(self, scores: FloatArray) -> int:
        """Return how many states an automaton may have."""
        _check_table(scores)
        n, contexts = scores.shape[-1], scores[0].size // scores.shape[-1]
        by_time = 0.5 * self.seconds / (_STATE + _CELL * n * contexts)
        by_memory = 0.5 * self.memory / (_STATE_BYTES * (contexts + n))
        return max(1, int(min(by_time, by_memory)))

    def most_samples(self, scores: FloatArray, step_states: int) -> int:
        """Return how many strings may be drawn and evaluated.

        Raises
        ------
        InvalidInputError
            The fewest that give an estimate would take more than ten times the seconds.
        """
        self.checked()
        _check_table(scores)
        step_states = positive_integer("step_states", step_states)
        length, n = len(scores), scores.shape[-1]
        each = _STEP * length * (step_states + 20 * n)
        needed = 5 * _LEAST_SAMPLES * each  # with those that proposals are compared by
        if needed > 10 * max(self.seconds, 1.0):
            raise InvalidInputError(
                f"seconds is {self.seconds:g}, but the strings of {length:,} positions that an "
                f"answer needs take about {needed:.0f} s with this loss; give at least "
                f"{np.ceil(needed / 10):.0f}, or shorter strings"
            )
        by_time = 0.5 * self.seconds / each
        by_memory = 0.25 * self.memory / (_SAMPLE_BYTES * length)
        return max(_LEAST_SAMPLES, int(min(by_time, by_memory)))


def _check_table(scores: FloatArray) -> None:
    instance("scores", scores, np.ndarray, "an array")
    shape = scores.shape
    if len(shape) < 2 or 0 in shape:
        raise InvalidInputError(f"scores has shape {shape}; give (l, n), (l, n+1, n) and so on")


def exact_within(compiled: Callable[..., LossAutomaton], limit: int) -> LossAutomaton | None:
    """Return the exact automaton; None if it has, or is likely to have, too many states.

    Where the limit is high the bands 1 and 2, which are cheap, tell how the number grows: beyond
    two more bands of the same growth nothing is tried.
    """
    if limit > _TRIED:
        try:
            one, two = (
                called("compiled", compiled, band=band, max_states=limit).num_states
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
