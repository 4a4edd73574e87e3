"""Exact minimum of a quadratic model with an l1 penalty: a linear system for each set of signs.

Coordinate descent is very slow if columns are almost collinear, for example the roots x, x^(1/2)
and x^(1/3) of large counts.  The feature-sign search of Lee, Battle, Raina and Ng (2007) guesses
the signs of the nonzero parameters and solves for the parameters.  If signs change on the way, it
moves to the best point at which one of them would change.  It ends after finitely many sets of
signs.
"""

from collections.abc import Callable

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray

MOST_ACTIVE = 400  # nonzero parameters; larger systems are not solved
MOST_ROUNDS = 60
SLACK = 1e-9  # the slope of a zero parameter may exceed the penalty by this share


class Model:
    """The model g'd + d'Hd / 2 + sum_m penalty_m |coef_m + d_m| of the direction d (m,).

    column : a function from m to column m of H, (m,).
    gradient, penalty, coef : (m,).
    """

    def __init__(
        self,
        column: Callable[[int], FloatArray],
        gradient: FloatArray,
        penalty: FloatArray,
        coef: FloatArray,
    ) -> None:
        self.gradient, self.penalty, self.coef = gradient, penalty, coef
        self._column = column
        self._columns: dict[int, FloatArray] = {}

    def columns(self, which: IntArray) -> FloatArray:
        """Return the columns `which` (k,) of H, (m, k); each column is computed once."""
        if which.size == 0:
            return np.zeros((self.coef.size, 0))
        for m in which:
            if m not in self._columns:
                self._columns[m] = self._column(int(m))
        return np.stack([self._columns[m] for m in which], axis=1)

    def product(self, direction: FloatArray) -> FloatArray:
        """Return H d, (m,)."""
        used = np.flatnonzero(direction)
        return np.asarray(self.columns(used) @ direction[used])

    def value(self, direction: FloatArray) -> float:
        """Return the value of the model at d."""
        curved = self.gradient + 0.5 * self.product(direction)
        return float(curved @ direction + self.penalty @ np.abs(self.coef + direction))


def minimum(model: Model, start: FloatArray) -> FloatArray | None:
    """Return the direction (m,) that minimises the model; None if the limits are reached before.

    start : (m,), a direction; the signs of coef + start are the first guess.  Each round solves a
    linear system of the nonzero parameters.
    """
    now = model.coef + start
    free = model.penalty == 0
    signs = np.where(free, 0.0, np.sign(now))
    for _ in range(MOST_ROUNDS):
        active = np.flatnonzero(free | (signs != 0))
        if active.size > MOST_ACTIVE:
            return None
        target = _solved(model, active, signs)
        moved = _before_a_change_of_sign(model, now, target, signs)
        if moved is not None:
            now = moved
            signs = np.where(free, 0.0, np.sign(now))
            continue
        now = target
        slope = model.gradient + model.product(now - model.coef)
        passed = np.where(signs == 0, np.abs(slope) - (1.0 + SLACK) * model.penalty, -np.inf)
        passed[free] = -np.inf
        worst = int(passed.argmax())
        if passed[worst] <= 0:
            return now - model.coef
        signs[worst] = -np.sign(slope[worst])
    return None


def _solved(model: Model, active: IntArray, signs: FloatArray) -> FloatArray:
    """Return the parameters coef + d (m,) that minimise the model for these signs (m,).

    Parameters that are not in `active` are 0.
    """
    direction = -model.coef.copy()  # moves inactive parameters to 0
    direction[active] = 0.0
    right = -(model.gradient + model.penalty * signs + model.product(direction))[active]
    hessian = model.columns(active)[active]
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(hessian), 1e-300))
    scaled = hessian * scale[:, None] * scale
    target = np.zeros(model.coef.size)
    solution = np.linalg.lstsq(scaled, right * scale, rcond=1e-14)[0]
    target[active] = model.coef[active] + scale * solution
    return target


def _before_a_change_of_sign(
    model: Model, now: FloatArray, target: FloatArray, signs: FloatArray
) -> FloatArray | None:
    """Return the best point between `now` and `target` (m,) at which a parameter becomes zero.

    Returns None if the target has the guessed signs.
    """
    changed: BoolArray = (signs != 0) & (target * signs < 0)
    if not changed.any():
        return None
    way = target - now
    crossing = np.flatnonzero((now != 0) & (now * target < 0) & (signs != 0))
    shares = -now[crossing] / way[crossing]
    points = []
    for which, share in zip(crossing, shares, strict=True):
        point = now + share * way
        point[which] = 0.0
        points.append(point)
    # a zero parameter whose target has the wrong sign stays 0
    points.append(np.where(changed & (now == 0), 0.0, target))
    best: FloatArray = min(points, key=lambda point: model.value(point - model.coef))
    return best
