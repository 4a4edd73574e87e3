"""Errors of models that are trained several times, with intervals of a bootstrap.

Pairs and runs are drawn with replacement, so that an interval includes the variation between the
initial weights as well as that between the test pairs.  The runs of two models with the same number
start from the same weights and are drawn together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.learning.comparison import Interval
from fstgrad.learning.measures import Symbols, edit_distances

RESAMPLES = 2000


class Errors(NamedTuple):
    """The edit distances (runs, pairs) of predictions, and the lengths (pairs,) of the targets."""

    edits: FloatArray
    lengths: FloatArray

    @classmethod
    def of(cls, runs: Sequence[Sequence[Symbols]], targets: Sequence[Symbols]) -> "Errors":
        """Return the errors of the predictions of each run."""
        edits = np.stack([edit_distances(found, targets) for found in runs])
        return cls(edits, np.array([len(y) for y in targets], dtype=np.float64))

    def word_error(self) -> Interval:
        """Return the share of wrong predictions."""
        return _interval((self.edits > 0).astype(np.float64), np.ones_like(self.lengths))

    def symbol_error(self) -> Interval:
        """Return the edit distance divided by the number of symbols of the targets."""
        return _interval(self.edits, self.lengths)

    def word_difference(self, other: "Errors") -> Interval:
        """Return the word error minus that of another model with as many runs, or with one."""
        wrong = (self.edits > 0).astype(np.float64) - (other.edits > 0)
        return _interval(wrong, np.ones_like(self.lengths))


def _interval(values: FloatArray, sizes: FloatArray) -> Interval:
    """Return the sum of values (runs, pairs) divided by runs and sizes, with its interval."""
    runs, pairs = values.shape
    rng = np.random.default_rng(0)
    of_runs = rng.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs
    of_pairs = rng.multinomial(pairs, np.full(pairs, 1 / pairs), size=RESAMPLES)
    drawn = np.einsum("kr,kp,rp->k", of_runs, of_pairs, values, optimize=True)
    lower, upper = np.quantile(drawn / (of_pairs @ sizes), [0.025, 0.975])
    return Interval(float(values.sum() / runs / sizes.sum()), float(lower), float(upper))
