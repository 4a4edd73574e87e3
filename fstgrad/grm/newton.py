"""Proximal Newton steps for l1 regressions of one or of many nodes, with tied parameters.

    minimise over b:  sum_s mean_i w_i ( A_s(eta_si) - <eta_si, t(x_is)> )
                      + sum_c ( penalty_c |b_c| + ridge_c b_c^2 / 2 ),
    eta_s = offset + sum over the slots of node s of b_parameter * column.

Newton steps are those of QUIC: a quadratic model of the active parameters, solved by coordinate
descent, and a line search on the true objective.  A is evaluated once for each trial step.  If the
line search finds no descent within a few halvings, the curvature of A along the step is far from
that at eta, and the step is repeated with a multiple of the mean curvature added (Levenberg,
Marquardt).  If A is flat along a parameter (wherever its column is not 0, the variable has one
value with certainty), a quadratic model is useless; this parameter then moves alone until its slope
changes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty
from fstgrad.grm import feature_sign, kernels
from fstgrad.grm.active_set import (
    ActiveSet,
    Intercepts,
    objective,
    violations,
    zero_idle_intercepts,
)
from fstgrad.grm.base import Base

if TYPE_CHECKING:
    from fstgrad.grm.kernels.descent import NormalMatrices

MOST_STEPS = 200
MOST_HALVINGS = 6  # of a step before its Hessian is damped
MOST_DAMPING = 1e12
MOST_SWEEPS = 100  # of a coordinate descent
NEAR = 40.0  # a step from violations up to so many times the target may reach it
# The slopes that a direction may leave, as a share of those before: the later steps of a hard
# problem need a direction that is nearly exact.
FIRST, ROUGHLY, CLOSELY = 3, 0.25, 0.05
# Normal matrices are formed if they have at most so many entries, and so many products of entries
# for each entry of a column, which a sweep reads.
MOST_ENTRIES, PRODUCTS = 8_000_000, 30
ARMIJO = 1e-4  # share of the predicted descent that a step must reach
STRAIGHT = 0.75  # share of the predicted descent from which on a step of twice the size is tried
FLAT = 1e-8  # curvature / slope^2, in 1 / nats, below which a parameter counts as flat
MOST_TRIALS = 200  # evaluations of a search along a flat parameter
MOST_STALLED = 10  # stop after so many steps that lower neither objective nor worst violation
Map = Callable[..., Iterable[Any]]  # the built-in map, or that of a thread pool


class State(NamedTuple):
    """A point of a solver: eta (q, n, c), the derivatives there, and the objective in nats.

    residual : (q, n, c), w (E[t] - t).  covariance : (q, n, c, c), w Cov[t].
    losses : (q,), the mean negative log-likelihood of each node without B.
    """

    eta: FloatArray
    residual: FloatArray
    covariance: FloatArray
    losses: FloatArray
    objective: float


@dataclass
class NewtonSolver:
    """The problem of q nodes, and the state of its solution.

    families : the base of each node.
    observed : (q, n, c) float64, t(x_is).
    weights : (n,) float64, the weights of the samples, with mean 1.
    offset : float64 that broadcasts to (q, n, c), added to eta.
    intercepts : the coordinates with intercepts, and the covariates.
    apply : the built-in map, or that of a thread pool, over nodes.
    steps : the number of Newton steps so far.
    last : the state at the end of the last solve.
    """

    families: Sequence[Base]
    observed: FloatArray
    weights: FloatArray
    offset: FloatArray
    intercepts: Intercepts
    apply: Map = map
    steps: int = field(default=0, init=False)
    last: State | None = field(default=None, init=False)

    @cached_property
    def ridge(self) -> FloatArray:
        """The ridge weight (q, f + d) of every intercept, of half its square; 0 for slopes."""
        weight, most = (
            np.array([getattr(family, name) for family in self.families])[:, None]
            for name in ("ridge", "ridge_variance")
        )
        ridge = weight * np.minimum(self.variances[:, self.intercepts.coordinates], most)
        return self._with_slopes(ridge)

    @cached_property
    def means(self) -> FloatArray:
        """The weighted mean of t, (q, c)."""
        share = self.weights / self.weights.sum()
        return np.asarray(np.einsum("i,qic->qc", share, self.observed))

    @cached_property
    def variances(self) -> FloatArray:
        """The weighted variance of t, (q, c), at least 1e-12."""
        centered = self.observed - self.means[:, None]
        share = self.weights / self.weights.sum()
        return np.asarray(np.maximum(np.einsum("i,qic->qc", share, centered**2), 1e-12))

    def starting_intercepts(self) -> FloatArray:
        """Return intercepts and slopes (q, f + d) near those of the independent model.

        Positive and real numbers need eta_1 < 0 in every row, whatever its offset.
        """
        starts = np.array(
            [f.starting_eta(m) for f, m in zip(self.families, self.means, strict=True)]
        )
        highest = np.broadcast_to(self.offset, self.observed.shape)[:, :, 0].max(axis=1)
        is_whole = [family.whole_numbers for family in self.families]
        starts[:, 0] -= np.where(is_whole, 0.0, np.maximum(highest, 0.0))
        return self._with_slopes(starts[:, self.intercepts.coordinates])

    def _with_slopes(self, intercepts: FloatArray) -> FloatArray:
        """Return intercepts (q, f) with a 0 for each covariate, (q, f + d)."""
        slopes = np.zeros((len(intercepts), self.intercepts.covariates.count))
        return np.concatenate([intercepts, slopes], axis=1)

    def solve(
        self, active: ActiveSet, target: float, most_steps: int = MOST_STEPS
    ) -> tuple[FloatArray, FloatArray, float]:
        """Improve active.coef until no optimality condition is violated by more than `target`.

        Stops earlier after `most_steps` steps, or if rounding prevents further descent.  Returns
        the residuals w (E[t] - t), (q, n, c), the violations (m,) and the objective in nats.
        """
        state = self._first_state(active)
        damping, stalled, least = 0.0, 0, np.inf
        for step in range(most_steps + 1):
            gradient = self._gradient(active, state, active.coef)
            slopes = violations(gradient, active.coef, active.penalty)
            worst = float(slopes.max(initial=0.0))
            hopeless = damping > MOST_DAMPING or stalled >= MOST_STALLED
            if worst <= target or hopeless or step == most_steps:
                break
            after = self._escape_flat_direction(
                active, state, np.where(slopes > target, slopes, 0.0)
            )
            if after is not None:
                self.steps += 1
                active.coef, state = after
                continue
            curved = state.covariance
            if damping:
                spread = self.variances[:, None, :, None] * np.eye(curved.shape[2])
                curved = curved + damping * (spread + curved.mean(axis=1, keepdims=True))
            rough = (ROUGHLY if step < FIRST else CLOSELY) * worst
            tol = min(rough, 0.5 * target) if worst < NEAR * target else rough
            direction = self._direction(active, curved, gradient, (tol, rough))
            zero_idle_intercepts(active, direction, slopes <= 0.25 * target)
            after = self._search(active, state, direction, gradient)
            if after is None:
                damping = max(10.0 * damping, 1e-2)
                continue
            damping = 0.0 if damping < 1e-3 else damping / 5.0
            self.steps += 1
            stalled = 0 if after[1].objective < state.objective or worst < least else stalled + 1
            least = min(least, worst)
            active.coef, state = after
        self.last = state
        return state.residual, slopes, state.objective

    def residual(self, active: ActiveSet) -> FloatArray:
        """Return the residuals w (E[t] - t), (q, n, c), at active.coef.

        If the independent model is better, active.coef is first replaced by it.
        """
        self.last = self._first_state(active)
        return self.last.residual

    def _gradient(self, active: ActiveSet, state: State, coef: FloatArray) -> FloatArray:
        """Return the gradient (m,) at `coef` of the objective without the l1 penalty."""
        return kernels.design.gradients(active.slots, state.residual) + active.ridge * coef

    def _escape_flat_direction(
        self, active: ActiveSet, state: State, slopes: FloatArray
    ) -> tuple[FloatArray, State] | None:
        """Return the coefficients and the state after a move along a flat parameter, or None.

        slopes : (m,), the violations that count.  Of the flat parameters, the one with the largest
        violation moves until its slope has decreased by at least a tenth without changing its
        sign.  There, the convex objective is lower and has a curvature.
        """
        curvature = kernels.design.curvatures(active.slots, state.covariance) + active.ridge
        flat = np.where(curvature < FLAT * slopes**2, slopes, 0.0)
        m = int(flat.argmax())
        if flat[m] == 0:
            return None
        unit, moved = np.zeros(active.coef.shape), np.zeros(state.eta.shape)
        slope = self._gradient(active, state, active.coef)[m]
        unit[m] = -np.sign(slope + active.penalty[m] * np.sign(active.coef[m]))
        kernels.design.add_columns(active.slots, unit, moved)
        size, least, most = 1.0 / float(np.abs(moved).max(initial=1e-300)), 0.0, np.inf
        for _ in range(MOST_TRIALS):
            coef = active.coef + size * unit
            after = self._state(state.eta + size * moved, coef, active)
            fall = np.inf
            if np.isfinite(after.objective):
                now = self._gradient(active, after, coef)[m] + active.penalty[m] * np.sign(coef[m])
                fall = 1.0 + now * unit[m] / flat[m]
            if 0.1 <= fall <= 1.0 and after.objective < state.objective:
                return coef, after
            least, most = (size, most) if fall < 0.1 else (least, size)
            size = 0.5 * (least + most) if np.isfinite(most) else 4.0 * size
        return None

    def _first_state(self, active: ActiveSet) -> State:
        """Return the state at active.coef, or at the independent model if that is better.

        Merged estimates, and estimates from other data, may be worse than the independent model or
        have no normalizer; active.coef is then replaced.  If the last solve stopped at the same
        eta, its derivatives are reused.
        """
        eta, last, self.last = self._eta(active), self.last, None
        if last is not None and _nearly_equal(eta, last.eta):
            return last._replace(eta=eta, objective=objective(active, active.coef, last.losses))
        last = None
        state = self._state(eta, active.coef, active)
        if self.steps or not (active.coef[active.term >= 0] != 0).any():
            return state
        alone = np.zeros(active.coef.shape)
        alone[active.term < 0] = self.starting_intercepts().ravel()
        before, active.coef = active.coef, alone
        other = self._state(self._eta(active), active.coef, active)
        if other.objective < state.objective or not np.isfinite(state.objective):
            return other
        active.coef = before
        return state

    def _eta(self, active: ActiveSet) -> FloatArray:
        """Return eta (q, n, c) = offset + Z active.coef."""
        eta = empty(self.observed.shape)
        eta[:] = self.offset
        kernels.design.add_columns(active.slots, active.coef, eta)
        return eta

    def _state(
        self, eta: FloatArray, coef: FloatArray, active: ActiveSet, near: State | None = None
    ) -> State:
        """Return the state at eta; nodes with the same eta as in `near` are copied from it.

        The objective is +inf if an eta has no normalizer.
        """
        residual, covariance = empty(eta.shape), empty((*eta.shape, eta.shape[2]))

        def node(s: int) -> float:
            if near is not None and np.array_equal(eta[s], near.eta[s]):
                residual[s], covariance[s] = near.residual[s], near.covariance[s]
                return float(near.losses[s])
            value, mean, second = self.families[s].derivatives(eta[s])
            derivatives = value, mean, second, eta[s], self.observed[s], self.weights
            return float(kernels.design.weighted_loss(*derivatives, residual[s], covariance[s]))

        losses = np.array(list(self.apply(node, range(len(self.families)))))
        return State(eta, residual, covariance, losses, objective(active, coef, losses))

    def _search(
        self, active: ActiveSet, state: State, direction: FloatArray, gradient: FloatArray
    ) -> tuple[FloatArray, State] | None:
        """Return the coefficients and the state after a line search, or None without descent."""
        if not np.isfinite(direction).all():
            return None
        moved = np.zeros(state.eta.shape)
        kernels.design.add_columns(active.slots, direction, moved)
        predicted = gradient @ direction + active.penalty @ (
            np.abs(active.coef + direction) - np.abs(active.coef)
        )
        size = 1.0
        for _ in range(MOST_HALVINGS):
            coef = active.coef + size * direction
            after = self._state(state.eta + size * moved, coef, active, state)
            rounding = 1e-15 * abs(state.objective)
            if after.objective <= state.objective + ARMIJO * size * predicted + rounding:
                break
            size /= 2
        else:
            return None
        while size >= 1.0 and after.objective < state.objective + STRAIGHT * size * predicted:
            size *= 2.0
            further = active.coef + size * direction
            beyond = self._state(state.eta + size * moved, further, active, state)
            if not beyond.objective < after.objective:
                break
            coef, after = further, beyond
        return coef, after

    def _direction(
        self,
        active: ActiveSet,
        covariance: FloatArray,
        gradient: FloatArray,
        tol: tuple[float, float],
    ) -> FloatArray:
        """Return the Newton direction (m,) by coordinate descent.

        tol : the accuracy of slopes, and that which is enough after many sweeps.
        If the descent does not converge, because columns are correlated, a search over the signs
        continues from its result (`feature_sign`).
        """
        coordinates, penalised = self.intercepts.coordinates, self.intercepts.penalised
        free = np.flatnonzero(~penalised)
        blocks = np.arange(len(self.families))[:, None] * self.intercepts.width + free
        moved = coordinates[free]
        mean = np.einsum("qiab->qab", covariance) / covariance.shape[1]
        curvature = mean[:, moved[:, None], moved]
        size = np.einsum("qaa->qa", curvature).max(axis=1, initial=1e-200)
        least = np.maximum(1e-12 * size[:, None], active.ridge[blocks])
        ridge = least[:, :, None] * np.eye(free.size)
        model = kernels.descent.Quadratic(
            covariance, gradient, active.penalty, active.ridge, active.coef,
            blocks.astype(np.int64), _inverses(curvature + ridge),
            self._normal(active, covariance),
        )  # fmt: skip
        direction, converged = kernels.descent.quadratic_descent(
            active.slots, model, *tol, MOST_SWEEPS
        )
        if converged or not np.isfinite(direction).all():
            return direction
        return self._polished(active, covariance, gradient, direction)

    def _normal(self, active: ActiveSet, covariance: FloatArray) -> "NormalMatrices":
        """Return the normal matrix of each node, or none if sweeps over columns are faster."""
        order, ends, offset, unfilled = active.layout
        if offset[-1] > MOST_ENTRIES or active.normal_matrix_products > PRODUCTS * active.entries:
            return unfilled
        entries = empty(offset[-1])

        def node(s: int) -> None:
            slots_of_node, matrix = order[ends[s] : ends[s + 1]], entries[offset[s] : offset[s + 1]]
            kernels.descent.fill_matrix(active.slots, slots_of_node, covariance[s], matrix)

        list(self.apply(node, range(len(self.families))))
        return unfilled._replace(entries=entries)

    def _polished(
        self, active: ActiveSet, covariance: FloatArray, gradient: FloatArray, direction: FloatArray
    ) -> FloatArray:
        """Return the minimum of the quadratic model, or `direction` if none lower is found."""

        def column(m: int) -> FloatArray:
            unit = np.zeros(active.coef.size)
            unit[m] = 1.0
            return (
                kernels.design.hessian_product(active.slots, covariance, unit) + active.ridge * unit
            )

        model = feature_sign.Model(column, gradient, active.penalty, active.coef)
        exact = feature_sign.minimum(model, direction)
        if exact is None or model.value(exact) > model.value(direction):
            return direction
        return exact


def _nearly_equal(x: FloatArray, y: FloatArray) -> bool:
    """Whether finite arrays are equal up to rounding."""
    return bool((np.abs(x - y) <= 1e-13 * (1.0 + np.abs(y))).all())


def _inverses(matrices: FloatArray) -> FloatArray:
    """Return the pseudoinverses of symmetric matrices (q, u, u); for u = 1, the reciprocals."""
    if matrices.shape[-1] == 1:
        return np.divide(1.0, matrices, out=np.zeros(matrices.shape), where=matrices != 0)
    return np.ascontiguousarray(np.linalg.pinv(matrices, hermitian=True))
