"""PathWeights: what a pass over strings multiplies along a path, apart from the scores."""

from dataclasses import dataclass

import numpy as np

from fstgrad.automata.automaton import DEAD, Level, LossAutomaton, is_complete, open_spread
from fstgrad.automata.product import PairLevels, pair_levels
from fstgrad.checks import FloatArray, IntArray


@dataclass(frozen=True)
class PathWeights:
    """The weights of an automaton's arcs, as logarithms, and a tangent of them.

    The path of y has the weight exp(initial + sum_t log[t] + final) and, where `tangent` is given,
    the derivative (tangent_initial + sum_t tangent[t] + tangent_final) of its logarithm.

    Shapes: log[t] and tangent[t] are (S_t, C), final and tangent_final (S_l,).
    """

    class_of: IntArray
    levels: tuple[Level, ...]
    log: tuple[FloatArray, ...]
    initial: float
    final: FloatArray
    tangent: tuple[FloatArray, ...] | None = None
    tangent_initial: float = 0.0
    tangent_final: FloatArray | None = None

    @property
    def spread(self) -> float:
        """Largest difference, at any level, between logarithms still to come from two states."""
        return open_spread(self.levels, self.log, self.final)

    @property
    def is_complete(self) -> bool:
        """Whether every string has a path."""
        return is_complete(self.levels)


def loss_weights(b: LossAutomaton, *, scale: float, slope: float | None = None) -> PathWeights:
    """Return the weight e^{scale L}, with the derivative slope L of its logarithm if given."""
    costs = tuple(level.cost for level in b.levels)
    plain = PathWeights(
        b.class_of,
        b.levels,
        tuple(scale * cost for cost in costs),
        scale * b.initial,
        scale * b.final,
    )
    return plain if slope is None else _with_slope(plain, costs, b.initial, b.final, slope)


def product_weights(weighing: LossAutomaton, measured: LossAutomaton) -> PathWeights:
    """Return e^{L1} over the pairs of states of two automata, with the tangent L2.

    L1 is the loss of `weighing`, L2 that of `measured`.  States are the pairs that a common prefix
    reaches; classes are the pairs of classes that a symbol has.
    """
    return _pair_weights(weighing, measured, pair_levels(weighing, measured))


def _pair_weights(
    weighing: LossAutomaton, measured: LossAutomaton, product: PairLevels
) -> PathWeights:
    log = tuple(level.left_cost for level in product.levels)
    return PathWeights(
        product.class_of,
        tuple(Level(level.nextstate, level.left_cost) for level in product.levels),
        log,
        weighing.initial,
        weighing.final[product.left],
        tuple(level.right_cost for level in product.levels),
        measured.initial,
        measured.final[product.right],
    )


def beyond(inside: LossAutomaton, outside: LossAutomaton) -> PathWeights | None:
    """Return the strings that have a path in `inside` and none in `outside`, all of weight one.

    None if no pair of states at the end has such a string.
    """
    levels = []
    for t, level in enumerate(outside.levels):  # one more state in each level: the path has ended
        ended = np.full((int(t > 0), level.nextstate.shape[1]), DEAD)
        nextstate = np.concatenate([level.nextstate, ended])
        nextstate[nextstate == DEAD] = outside.level_sizes[t + 1]
        levels.append(Level(nextstate, np.zeros(nextstate.shape)))
    ends = np.append(np.ones_like(outside.final), 0.0)
    completed = LossAutomaton(outside.alphabet, outside.class_of, tuple(levels), 0.0, ends)
    product = pair_levels(inside, completed)
    paths = _pair_weights(inside, completed, product)
    lost = completed.final[product.right] == 0.0
    if not lost.any():
        return None
    return PathWeights(
        paths.class_of,
        paths.levels,
        tuple(np.zeros_like(log) for log in paths.log),
        0.0,
        np.where(lost, 0.0, -np.inf),
    )


def _with_slope(
    plain: PathWeights,
    costs: tuple[FloatArray, ...],
    initial: float,
    final: FloatArray,
    slope: float,
) -> PathWeights:
    return PathWeights(
        plain.class_of,
        plain.levels,
        plain.log,
        plain.initial,
        plain.final,
        tuple(slope * cost for cost in costs),
        slope * initial,
        slope * final,
    )
