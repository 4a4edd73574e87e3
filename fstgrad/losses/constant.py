"""Losses of 0 or +infinity: no loss, and equality with the target."""

from typing import Literal

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import IntArray, instance
from fstgrad.core.errors import NotSupportedError
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.machine import ANYWHERE, Arcs, TargetMachine, symbol_classes
from fstgrad.losses.automata.semiring import TROPICAL
from fstgrad.losses.base import Loss
from fstgrad.losses.evaluation import Target
from fstgrad.openfst import Fst


class _Constraint(Loss):
    """A loss of 0 or +infinity, defined by its machine; subclasses give the arcs."""

    semiring: Literal["tropical", "probability", "mixed"] = "tropical"

    def __init__(self, alphabet: Alphabet) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        self.alphabet = alphabet

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: the loss has a machine but no transducer."""
        raise NotSupportedError(f"a {type(self).__name__} has no transducer; compile it")

    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        raise NotSupportedError(f"a {type(self).__name__} has no transducer; leave engine out")

    def _acceptor(
        self, source: IntArray, label: IntArray, goal: IntArray, place: IntArray
    ) -> TargetMachine:
        """Return the unweighted machine from state 0 to the last state.

        source, label, goal : (A,) int64
            The arcs: each leads from `source` to `goal` and reads the symbol id `label`.
        place : (K, 1, 2) int64
            As in `TargetMachine`.
        """
        arcs = Arcs(source, goal, np.zeros(len(label), dtype=np.int64))
        class_of, classes = symbol_classes(arcs, label, len(self.alphabet))
        size = int(goal.max(initial=0)) + 1
        initial, final = TROPICAL.full((size,)), TROPICAL.full((size,))
        initial[0] = final[-1] = 0
        none = Arcs(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
        return TargetMachine(TROPICAL, class_of, classes, none, initial, final, 1.0, place)


class NoLoss(_Constraint):
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
        every = np.arange(len(self.alphabet))
        anywhere = np.array([[[-ANYWHERE, ANYWHERE]]])  # no alignment: the path is in every band
        return self._acceptor(np.zeros_like(every), every, np.zeros_like(every), anywhere)


class ExactMatch(_Constraint):
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
        return self._acceptor(at, ids, at + 1, place)
