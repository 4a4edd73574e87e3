"""Losses of 0 or +infinity: no loss, and equality with the target."""

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import IntArray
from fstgrad.core.errors import NotSupportedError
from fstgrad.losses.automata.machine import (
    PAST_THE_END,
    Arcs,
    TargetMachine,
    symbol_classes,
)
from fstgrad.losses.automata.semiring import TROPICAL
from fstgrad.losses.base import MachineLoss
from fstgrad.losses.evaluation import Target
from fstgrad.openfst import Fst


def _acceptor(
    alphabet: Alphabet, source: IntArray, label: IntArray, goal: IntArray, place: IntArray
) -> TargetMachine:
    """Return the unweighted machine from state 0 to the last state.

    source, label, goal : (A,) int64
        The arcs: each leads from `source` to `goal` and reads the symbol id `label`.
    place : (K, 1, 2) int64
        As in `TargetMachine`.
    """
    arcs = Arcs(source, goal, np.zeros(len(label), dtype=np.int64))
    class_of, classes = symbol_classes(arcs, label, len(alphabet))
    size = int(goal.max(initial=0)) + 1
    initial, final = TROPICAL.full((size,)), TROPICAL.full((size,))
    initial[0] = final[-1] = 0
    none = Arcs(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    return TargetMachine(TROPICAL, class_of, classes, none, initial, final, 1.0, place)


class NoLoss(MachineLoss):
    """L(y, y_i) = 0: with `CollapsedLoss`, a distribution over strings y of any length.

    The target only gives the default length of `compile`.

    Parameters
    ----------
    alphabet : Alphabet

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.CollapsedLoss(fg.NoLoss(fg.Alphabet("ab")), fg.Alphabet("ab$"),
    ...                         collapse="end", blank="$")
    >>> b = loss.compile("a", length=2)  # "", a, b, aa, ab, ba, bb
    >>> round(float(np.exp(fg.StringDistribution(np.zeros((2, 3)), b).log_partition())), 9)
    7.0
    """

    def _machine(self, target: Target) -> TargetMachine:
        if not isinstance(target, Fst):
            self.alphabet.encode(target, name="target")
        every = np.arange(len(self.alphabet))
        anywhere = np.array(
            [[[-PAST_THE_END, PAST_THE_END]]]
        )  # no alignment: the path is in every band
        return _acceptor(self.alphabet, np.zeros_like(every), every, np.zeros_like(every), anywhere)


class ExactMatch(MachineLoss):
    """L(y, y_i) = 0 if y equals y_i, else +infinity: every other string is left out.

    In a `CollapsedLoss` this loss allows exactly the latent strings that collapse to the target, so
    its log-partition function is the log-likelihood of connectionist temporal classification (for
    scores that are log-probabilities).  The target is one string; an acceptor raises
    NotSupportedError.

    Parameters
    ----------
    alphabet : Alphabet

    Examples
    --------
    >>> import fstgrad as fg
    >>> loss = fg.ExactMatch(fg.Alphabet("ab"))
    >>> loss("ab", "ab"), loss("aa", "ab")
    (0.0, inf)
    """

    def _machine(self, target: Target) -> TargetMachine:
        if isinstance(target, Fst):
            raise NotSupportedError("ExactMatch takes one target string, not an acceptor")
        ids = self.alphabet.encode(target, name="target")
        at = np.arange(len(ids))
        place = np.repeat(np.arange(len(ids) + 1), 2).reshape(-1, 1, 2)
        return _acceptor(self.alphabet, at, ids, at + 1, place)
