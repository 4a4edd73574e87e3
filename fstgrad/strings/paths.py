"""PathWeights: the factors, other than scores, that a pass over strings multiplies along a path."""

from dataclasses import dataclass

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.losses.automata.automaton import DEAD, Level, LossAutomaton, cost_spread, is_complete
from fstgrad.losses.automata.product import PairLevels, pair_levels


@dataclass(frozen=True)
class PathWeights:
    """The log-weights of an automaton's arcs and, optionally, their derivatives (the tangent).

    The path of y has the weight exp(initial + sum_t log[t] + final).  If `tangent` is given, the
    derivative of the log-weight is tangent_initial + sum_t tangent[t] + tangent_final.

    Attributes
    ----------
    class_of : (n,) int64, the class of each symbol
    levels : l Levels, the arcs
    log : l arrays (S_t, C) float64, log-weights of the arcs of each level in nats
    initial : float, nats
    final : (S_l,) float64, nats
    tangent, tangent_initial, tangent_final
        The derivatives of `log`, `initial` and `final`, in the same shapes.
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
        """The largest difference, over all levels, between log-weights to go from two states."""
        return cost_spread(self.levels, self.log, self.final)

    @property
    def is_complete(self) -> bool:
        """Whether every string of length l has a path."""
        return is_complete(self.levels)


def loss_weights(b: LossAutomaton, *, scale: float, slope: float | None = None) -> PathWeights:
    """Return the weights e^{scale L} and, if `slope` is given, the log-derivatives slope L."""
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
    """Return the weights e^{L1} with the tangent L2, on the product of two automata.

    L1 is the loss of `weighing`, L2 that of `measured`, both in nats.  A state is a pair of states
    that some prefix reaches; a class is a pair of classes that some symbol has.
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


def difference_weights(inside: LossAutomaton, outside: LossAutomaton) -> PathWeights | None:
    """Return weight one for the strings that have a path in `inside` but none in `outside`.

    All other strings have no path, or weight 0.  Return None if there are no such strings.
    """
    levels = []
    for t, level in enumerate(outside.levels):  # one more state per level: `outside` has no path
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
