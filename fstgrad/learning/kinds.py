"""The objectives of one pair: value, gradient in the scores and log Z, from one automaton."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.losses import Engine
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings import StringDistribution, direct_loss, hinge, raml, softmax_margin
from fstgrad.strings.distribution import flat_index
from fstgrad.strings.tangents import tangent

Kind = Literal["softmax-margin", "risk", "crf", "hinge", "raml", "direct"]
KINDS: tuple[Kind, ...] = ("softmax-margin", "risk", "crf", "hinge", "raml", "direct")
ESTIMATED: tuple[Kind, ...] = ("softmax-margin", "risk", "crf")  # with samples and bounded caps


@dataclass(frozen=True)
class Constants:
    """The constants of kinds: `temperature` of "raml", `epsilon` of "direct"."""

    temperature: float = 1.0
    epsilon: float = 1.0


CONSTANTS = Constants()


class Evaluated(NamedTuple):
    """value, in nats; table, its gradient, like the scores; log_partition, in nats.

    log_partition is log Z of the distribution whose marginals are in the gradient; nan if the
    gradient is computed from best strings.
    """

    value: float
    table: FloatArray
    log_partition: float


def evaluated(
    kind: Kind,
    scores: FloatArray,
    ids: IntArray,
    b: LossAutomaton | None,
    engine: Engine,
    constants: Constants,
) -> Evaluated:
    """Return the objective of the target `ids`; without an automaton the loss is 0."""
    if b is None or kind in ("softmax-margin", "crf"):
        value, table = softmax_margin(scores, ids, b, engine=engine)
        return Evaluated(value, table, value + gold_score(scores, ids))
    if kind == "risk":
        solved = tangent(StringDistribution(scores, b).scores, b, scale=0, slope=1)
        return Evaluated(solved.slope, solved.change, solved.log_partition)
    if kind == "raml":
        value, table = raml(scores, b, constants.temperature)
        return Evaluated(value, table, StringDistribution(scores).log_partition())
    if kind == "hinge":
        return Evaluated(*hinge(scores, ids, b), np.nan)
    return Evaluated(*direct_loss(scores, b, constants.epsilon), np.nan)


def gold_score(scores: FloatArray, ids: IntArray) -> float:
    """Return w.Psi(y) of one string: the sum of its entries of the score table."""
    return float(scores.take(flat_index(ids, scores.ndim - 1, scores.shape[-1])).sum())
