"""A loss that is a function of Python: for samples, n-best lists and lattices of few paths."""

import uuid
from collections.abc import Callable
from typing import Any, Literal

import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, instance, positive_integer
from fstgrad.core.errors import NotSupportedError
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.target_loss import Function, FunctionTargetLoss, SumTargetLoss
from fstgrad.losses.base import Loss
from fstgrad.losses.evaluation import Target
from fstgrad.openfst import Fst


class FunctionLoss(Loss):
    """The loss that a function of Python returns: BLEU, a parser, the price of an error.

    It has no automaton, so sums over all strings are not possible.  It works where strings are
    sampled or listed: `sampled_risk`, `sampled_softmax_margin`, `method="sampled"`, `fg.mbr`,
    n-best lists (`nbest_risk`), `matrix` and `pairwise`, and `Lattice.compile` for lattices of few
    paths, whose objectives are then exact.

    Parameters
    ----------
    alphabet : Alphabet
    function : callable
        function(y, target) is the loss in nats, finite or +inf, of a hypothesis against a target;
        both are tuples of symbols.

    Examples
    --------
    >>> import fstgrad as fg
    >>> abc = fg.Alphabet("abc")
    >>> loss = fg.FunctionLoss(abc, lambda y, target: float(set(y) != set(target)))
    >>> loss("aab", "ba"), loss("abc", "ba")
    (0.0, 1.0)
    >>> lattice = fg.Lattice.from_nbest(["ab", "c"], [0.0, 0.0], abc)
    >>> lattice.expected_loss(lattice.compile(loss, "ab"))
    0.5
    """

    semiring: Literal["tropical", "probability", "mixed"] = "mixed"

    def __init__(self, alphabet: Alphabet, function: Function) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        instance("function", function, Callable, "a function of a hypothesis and a target")
        self.alphabet = alphabet
        self.function = function
        self._token = uuid.uuid4().hex  # for `fingerprint`: the code of a function has no digest

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: a function has no transducer."""
        raise self._without_an_automaton()

    @property
    def _is_sum(self) -> bool:
        return True  # so that multiples and sums use `against`

    def _machine(self, target: Target) -> TargetMachine:
        raise self._without_an_automaton()

    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        raise self._without_an_automaton()

    def _compile_reference(self, *_: Any, **__: Any) -> LossAutomaton:
        raise self._without_an_automaton()

    def _without_an_automaton(self) -> NotSupportedError:
        return NotSupportedError(
            f"{type(self).__name__} has no automaton to sum over all strings; use sampled_risk, "
            "sampled_softmax_margin or the method 'sampled', an n-best list, or Lattice.compile on "
            "a lattice of few paths"
        )

    def against(self, target: Target, *, max_states: int | None = None) -> SumTargetLoss:
        """Return the loss against one target; see `Loss.against`."""
        if max_states is not None:
            positive_integer("max_states", max_states)
        return self._unchecked(target)

    def _unchecked(self, target: Target) -> SumTargetLoss:
        if isinstance(target, Fst):
            raise NotSupportedError("FunctionLoss takes one target string, not an acceptor")
        ids = self.alphabet.encode(target, name="target")
        of_target = FunctionTargetLoss(
            self.alphabet, self.function, tuple(self.alphabet.decode(ids))
        )
        return SumTargetLoss((of_target,))
