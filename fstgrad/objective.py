"""The training objective of pairs (x, y) in the weights w, and its exact gradient."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.automaton import LossAutomaton
from fstgrad.checks import FloatArray, IntArray, one_of
from fstgrad.errors import AlphabetError, InvalidInputError
from fstgrad.features import Features
from fstgrad.losses import MAX_STATES, Engine, TransducerLoss
from fstgrad.strings import StringDistribution, risk, softmax_margin

Kind = Literal["softmax-margin", "risk", "crf"]
KINDS: tuple[Kind, ...] = ("softmax-margin", "risk", "crf")


class PairGradient(NamedTuple):
    """What one pair adds to the objective.

    value : float, nats; the objective of the pair.
    gradient : like w; the gradient of `value` in w.
    log_partition : float, nats; log Z of the distribution whose marginals the gradient takes.
    states : int; states of the loss automaton, 0 without a loss.
    """

    value: float
    gradient: FloatArray
    log_partition: float
    states: int


@dataclass(frozen=True)
class PairObjective:
    """An objective of one pair, and its mean over pairs.

    With the score tables of `features`:

    - "softmax-margin": F(w) = log sum_y exp(L(y, y_i) - w.(Psi(x_i, y_i) - Psi(x_i, y))), Eq. 1;
    - "risk": E[L(y, y_i)] under exp(w.Psi(x_i, y)) / Z;
    - "crf": -log p(y_i | x_i), the softmax margin with L = 0.

    Hypotheses y have the length of y_i.

    Parameters
    ----------
    features : Features
    loss : TransducerLoss, optional
        None stands for L = 0.
    kind : {"softmax-margin", "risk", "crf"}
    cap, engine, max_states
        As in `TransducerLoss.compile`.

    References
    ----------
    Cortes, Kuznetsov, Mohri, Storcheus, Yang (2018), Eq. 1 and Eq. 4.

    Examples
    --------
    >>> import fstgrad as fg
    >>> abc = fg.Alphabet("ab")
    >>> objective = PairObjective(fg.QGramCounts(abc, 2), fg.Hamming(abc), kind="risk")
    >>> value, gradient = objective.mean(np.zeros((2, 2)), [("x", "ab"), ("x", "abba")])
    >>> value  # (2 / 2 + 4 / 2) / 2
    1.5
    """

    features: Features
    loss: TransducerLoss | None = None
    kind: Kind = "softmax-margin"
    cap: float | None = None
    engine: Engine = "layered"
    max_states: int = MAX_STATES

    def __post_init__(self) -> None:
        """Check that the parts go together."""
        one_of("kind", self.kind, KINDS)
        if self.kind == "risk" and self.loss is None:
            raise InvalidInputError("kind is 'risk' without a loss; give the loss to expect")
        if self.loss is not None and self.loss.alphabet != self.features.alphabet:
            raise AlphabetError(
                f"the loss has the alphabet {self.loss.alphabet!r}, the features have "
                f"{self.features.alphabet!r}; make both from one"
            )

    def __call__(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> PairGradient:
        """Return value, gradient in w, log Z and automaton size of one pair."""
        ids, scores, b = self._tables(w, x, y)
        if b is not None and self.kind == "risk":
            value, table = risk(scores, b)
            log_partition = StringDistribution(scores, _support(b)).log_partition()
        else:
            value, table = softmax_margin(scores, ids, b, engine=self.engine)
            log_partition = value + _gold_score(scores, ids)
        states = 0 if b is None else b.num_states
        return PairGradient(value, self.features.gradient(table, x), log_partition, states)

    def mean(
        self, w: npt.ArrayLike, pairs: Iterable[tuple[Any, SequenceLike]]
    ) -> tuple[float, FloatArray]:
        """Return the mean objective of the pairs and its gradient in w.

        Raises
        ------
        InvalidInputError
            There are no pairs.
        """
        value, gradient, count = 0.0, np.zeros(self.features.shape), 0
        for x, y in pairs:
            part = self(w, x, y)
            value, count = value + part.value, count + 1
            gradient += part.gradient
        if count == 0:
            raise InvalidInputError("pairs is empty; give at least one pair")
        return value / count, gradient / count

    def distribution(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> StringDistribution:
        """Return the distribution of one pair whose marginals the gradient is made of."""
        _, scores, b = self._tables(w, x, y)
        return StringDistribution(scores, _support(b) if b and self.kind == "risk" else b)

    def automaton(self, y: SequenceLike) -> LossAutomaton | None:
        """Return the loss automaton of one target; None where the objective has no loss."""
        if self.loss is None or self.kind == "crf":
            return None
        return self.loss.compile(
            y, len(y), cap=self.cap, engine=self.engine, max_states=self.max_states
        )

    def _tables(
        self, w: npt.ArrayLike, x: Any, y: SequenceLike
    ) -> tuple[IntArray, FloatArray, LossAutomaton | None]:
        """Return the ids of y, the score table and the loss automaton."""
        ids = self.features.alphabet.encode(y, name="y")
        if len(ids) == 0:
            raise InvalidInputError("y is empty; give at least one symbol")
        return ids, self.features.scores(w, x, len(ids)), self.automaton(y)


def _gold_score(scores: FloatArray, ids: IntArray) -> float:
    """Return w.Psi(y) of one string: the sum of its entries of the score table."""
    distribution = StringDistribution(scores)
    return float(distribution.inner(distribution.parts(ids), scores))


def _support(b: LossAutomaton) -> LossAutomaton | None:
    """Return the strings of finite loss with the loss 0; None for all strings."""
    if b.is_complete:
        return None
    levels = tuple(replace(level, cost=np.zeros_like(level.cost)) for level in b.levels)
    return replace(b, levels=levels, initial=0.0, final=np.zeros_like(b.final))
