"""One node regression: the l1-penalised maximum likelihood of a node given all others.

    minimise over b:  mean_i ( A(eta_i) - <eta_i, t(x_is)> ) + alpha sum_c |b_c|,
    eta_ij = sum_{c of root j} b_c z_ic,      t_j(x) = x^(1/j),

with the columns z of `fstgrad.grm.design`.  The penalty falls on every coefficient but Psi_(1)^(1).

Newton steps as in QUIC: a quadratic model on a working set, solved by coordinate descent, and a
line search on the true objective.  A is evaluated once for each step.  Where the line search finds
no descent within a few halvings, the curvature of A along the step is far from the one at eta, and
the step is taken again with a multiple of the mean curvature added (Levenberg, Marquardt).  Between
the solves one scan over all columns (O(non-zeros of the design)) finds the columns that violate the
Karush-Kuhn-Tucker conditions; they join the working set.  At the end no column of the whole design
violates them by more than `tol`: that residual is the certificate of the fit.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.grm.base import Base, Derivatives
from fstgrad.grm.design import Design

MOST_NEWTON_STEPS = 200
MOST_HALVINGS = 6  # of a step before its Hessian is damped
MOST_DAMPING = 1e12
MOST_SWEEPS = 200
MOST_DENSE = 500  # non-zero coordinates of a Newton system that is solved densely
ARMIJO = 1e-4


class Intercepts(NamedTuple):
    """The coordinates of eta, from 0, that have an intercept, and which of these are penalised."""

    coordinates: IntArray
    penalised: BoolArray


@dataclass(frozen=True)
class NodeFit:
    r"""The solution of one node regression.

    intercepts : (m,) float64, those of the coordinates in `Intercepts`.
    term, key : (c,) int64, the block of the design and the combinatorial number of S \ {s}.
    values : (c,) float64, the coefficients theta_S that are not zero.
    kkt : float, the largest violation of the optimality conditions over all candidate columns.
    steps, scans : int, Newton steps and scans over all columns.
    """

    intercepts: FloatArray
    term: IntArray
    key: IntArray
    values: FloatArray
    kkt: float
    objective: float
    steps: int
    scans: int
    converged: bool


@dataclass
class WorkingSet:
    """The columns in play, copied behind one another; the intercepts come first and stay."""

    block: IntArray
    column: IntArray
    coef: FloatArray
    penalty: FloatArray
    root: IntArray  # from 0: the coordinate of eta
    indptr: IntArray
    rows: IntArray
    values: FloatArray

    @property
    def matrix(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        """The arguments that every kernel starts with."""
        return self.indptr, self.rows, self.values, self.root


@dataclass
class NodeRegression:
    """The problem of one node.

    statistics : (n, k + e) float64, t(x_is).
    """

    base: Base
    design: Design
    node: int
    statistics: FloatArray
    intercepts: Intercepts
    alpha: float
    tol: float
    max_iter: int
    screening: str = "kkt"
    columns: list[IntArray] = field(init=False)
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.columns = [self.design.columns(block, self.node) for block in self.design.blocks]

    def fit(self, start: NodeFit | None = None) -> NodeFit:
        """Return the solution, from `start` or from the independent model."""
        work = self._start(start)
        objective, slopes, residual = self._solve(work, np.inf)
        scans = 0
        while True:
            gradients = self._scan(residual)
            scans += 1
            outside, found = self._violations(gradients, work)
            inside = float(slopes.max(initial=0.0))
            kkt = max(outside, inside)
            if kkt <= self.tol or scans >= self.max_iter:
                break
            before = self.steps
            work = self._grow(work, found)
            objective, slopes, residual = self._solve(work, kkt)
            if self.steps == before and outside <= 0:
                break  # rounding: neither a new column nor a step
        used = (
            np.flatnonzero(work.coef[self.intercepts.coordinates.size :])
            + self.intercepts.coordinates.size
        )
        return NodeFit(
            intercepts=work.coef[: self.intercepts.coordinates.size].copy(),
            term=work.block[used],
            key=self.design.keys(work.block[used], work.column[used]),
            values=work.coef[used],
            kkt=kkt,
            objective=objective,
            steps=self.steps,
            scans=scans,
            converged=kkt <= self.tol,
        )

    def _start(self, start: NodeFit | None) -> WorkingSet:
        """Return the working set of the intercepts and what `start` uses."""
        if start is None:
            intercepts = np.zeros(self.intercepts.coordinates.size)
            intercepts[0] = self.base.independent(float(self.statistics[:, 0].mean()))
            none = np.empty(0, dtype=np.int64)
            return self._working_set(none, none, intercepts)
        column = self.design.find(start.term, start.key)
        known = np.zeros(column.size, dtype=bool)
        for number, allowed in enumerate(self.columns):
            known |= (start.term == number) & np.isin(column, allowed)
        return self._working_set(
            start.term[known],
            column[known],
            np.concatenate([start.intercepts, start.values[known]]),
        )

    def _working_set(self, block: IntArray, column: IntArray, coef: FloatArray) -> WorkingSet:
        """Copy the columns (block, column), given in the order of `coef`, behind the intercepts."""
        from fstgrad.grm.kernels.regression import gather

        n, fixed = self.design.samples, self.intercepts.coordinates.size
        parts = [(np.tile(np.arange(n), fixed), np.ones(fixed * n))]
        order, lengths = [], [np.full(fixed, n)]
        for number, source in enumerate(self.design.blocks):
            mine = np.flatnonzero(block == number)
            chosen = column[mine]
            length = source.indptr[chosen + 1] - source.indptr[chosen]
            indptr = np.zeros(chosen.size + 1, dtype=np.int64)
            rows, values = np.empty(length.sum(), dtype=np.int64), np.empty(length.sum())
            gather(source.indptr, source.rows, source.values, chosen, indptr, rows, values)
            parts.append((rows, values))
            lengths.append(length)
            order.append(mine)
        moved = np.concatenate([np.arange(0), *order])
        root_of = np.array([b.term.root for b in self.design.blocks], dtype=np.int64)
        root = np.concatenate([self.intercepts.coordinates, root_of[block[moved]] - 1])
        penalised = np.concatenate([self.intercepts.penalised, np.ones(moved.size, dtype=bool)])
        return WorkingSet(
            block=np.concatenate([np.full(fixed, -1), block[moved]]),
            column=np.concatenate([np.full(fixed, -1), column[moved]]),
            coef=np.concatenate([coef[:fixed], coef[fixed:][moved]]),
            penalty=np.where(penalised, self.alpha, 0.0),
            root=root.astype(np.int64),
            indptr=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64),
            rows=np.concatenate([part[0] for part in parts]),
            values=np.concatenate([part[1] for part in parts]),
        )

    def _solve(self, work: WorkingSet, violation: float) -> tuple[float, FloatArray, FloatArray]:
        """Newton steps on the working set until it violates its conditions tenfold less.

        Returns the objective, the violation of each column and the residual (n, k).
        """
        from fstgrad.grm.kernels.regression import add_columns, gradients

        target = 0.5 * self.tol if violation == np.inf else max(0.5 * self.tol, 0.1 * violation)
        eta = np.zeros(self.statistics.shape)
        add_columns(*work.matrix, work.coef, eta)
        value, mean, covariance = self.base.derivatives(eta)
        objective = self._objective(value, eta, work.coef, work.penalty)
        damping = 0.0
        for _ in range(MOST_NEWTON_STEPS):
            gradient = gradients(*work.matrix, mean - self.statistics)
            slopes = violations(gradient, work.coef, work.penalty)
            worst = slopes.max()
            if worst <= target or damping > MOST_DAMPING:
                break
            curved = covariance + damping * covariance.mean(axis=0) if damping else covariance
            direction = self._direction(work, curved, gradient, max(0.25 * target, 0.05 * worst))
            trial = self._search(work, eta, objective, direction, gradient)
            if trial is None:
                damping = max(10.0 * damping, 1e-2)
                continue
            damping = 0.0 if damping < 1e-3 else damping / 5.0
            self.steps += 1
            work.coef, eta, objective, (value, mean, covariance) = trial
        gradient = gradients(*work.matrix, mean - self.statistics)
        return objective, violations(gradient, work.coef, work.penalty), mean - self.statistics

    def _search(
        self,
        work: WorkingSet,
        eta: FloatArray,
        objective: float,
        direction: FloatArray,
        gradient: FloatArray,
    ) -> tuple[FloatArray, FloatArray, float, Derivatives] | None:
        """Return the coefficients, eta, objective and derivatives of a step that descends enough.

        None where `MOST_HALVINGS` halvings find none.
        """
        from fstgrad.grm.kernels.regression import add_columns

        moved = np.zeros(eta.shape)
        add_columns(*work.matrix, direction, moved)
        predicted = gradient @ direction + work.penalty @ (
            np.abs(work.coef + direction) - np.abs(work.coef)
        )
        size = 1.0
        for _ in range(MOST_HALVINGS):
            coef, trial = work.coef + size * direction, eta + size * moved
            derivatives = self.base.derivatives(trial)
            new = self._objective(derivatives[0], trial, coef, work.penalty)
            if new <= objective + ARMIJO * size * predicted + 1e-15 * abs(objective):
                return coef, trial, new, derivatives
            size /= 2
        return None

    def _direction(
        self, work: WorkingSet, covariance: FloatArray, gradient: FloatArray, tolerance: float
    ) -> FloatArray:
        """Return the Newton direction by coordinate descent.

        Where columns are so correlated that the descent crawls, its signs are kept and the linear
        system of the non-zero coordinates is solved instead, if the solution has these signs.
        """
        from fstgrad.grm.kernels.regression import quadratic_descent

        direction, solved = quadratic_descent(
            *work.matrix, covariance, gradient, work.penalty, work.coef, tolerance, MOST_SWEEPS
        )
        now = work.coef + direction
        active = np.flatnonzero((now != 0) | (work.penalty == 0))
        if solved or active.size > MOST_DENSE or (work.coef[now == 0] != 0).any():
            return direction
        sign = np.where(work.penalty > 0, np.sign(now), 0.0)[active]
        try:
            exact = np.linalg.solve(
                self._hessian(work, active, covariance),
                -(gradient[active] + work.penalty[active] * sign),
            )
        except np.linalg.LinAlgError:
            return direction
        if (sign * (work.coef[active] + exact) >= 0).all():
            direction[active] = exact
        return direction

    def _hessian(self, work: WorkingSet, active: IntArray, covariance: FloatArray) -> FloatArray:
        """Return mean_i z_ia H_i[root a, root b] z_ib for the columns `active`, dense."""
        n = self.design.samples
        columns = sparse.csc_matrix((work.values, work.rows, work.indptr), (n, work.root.size))[
            :, active
        ]
        roots = work.root[active]
        out = np.empty((active.size, active.size))
        for i in np.unique(roots):
            for j in np.unique(roots):
                left, right = np.flatnonzero(roots == i), np.flatnonzero(roots == j)
                weighted = sparse.diags(covariance[:, i, j] / n) @ columns[:, right]
                out[np.ix_(left, right)] = (columns[:, left].T @ weighted).toarray()
        return out

    def _objective(
        self, value: FloatArray, eta: FloatArray, coef: FloatArray, penalty: FloatArray
    ) -> float:
        fit = (value - np.einsum("ij,ij->i", eta, self.statistics)).mean()
        return float(fit + penalty @ np.abs(coef))

    def _scan(self, residual: FloatArray) -> list[FloatArray]:
        """Return the gradients of all columns that the node may use, block by block."""
        from fstgrad.grm.kernels.design import column_products

        out = []
        for block, columns in zip(self.design.blocks, self.columns, strict=True):
            gradient = np.empty(columns.size)
            column_products(
                block.indptr, block.rows, block.values, columns,
                np.ascontiguousarray(residual[:, block.term.root - 1]),
                1.0 / self.design.samples, gradient,
            )  # fmt: skip
            out.append(gradient)
        return out

    def _violations(
        self, gradients: list[FloatArray], work: WorkingSet
    ) -> tuple[float, list[IntArray]]:
        """Return the worst violation outside the working set and the columns that violate."""
        worst, found = 0.0, []
        for number, (columns, gradient) in enumerate(zip(self.columns, gradients, strict=True)):
            excess = np.abs(gradient) - self.alpha
            mine = work.column[work.block == number]
            excess[np.searchsorted(columns, mine)] = -np.inf
            worst = max(worst, float(excess.max(initial=0.0)))
            bar = 0.0 if self.screening == "kkt" else -np.inf
            found.append(columns[excess > bar])
        return worst, found

    def _grow(self, work: WorkingSet, found: list[IntArray]) -> WorkingSet:
        """Return the working set without its zeros and with the columns that violate."""
        fixed = self.intercepts.coordinates.size
        kept = np.flatnonzero(work.coef[fixed:]) + fixed
        block = np.concatenate(
            [work.block[kept], *(np.full(f.size, number) for number, f in enumerate(found))]
        )
        coef = np.zeros(fixed + block.size)
        coef[:fixed] = work.coef[:fixed]
        coef[fixed : fixed + kept.size] = work.coef[kept]
        return self._working_set(block, np.concatenate([work.column[kept], *found]), coef)


def violations(gradient: FloatArray, coef: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return how far each coordinate is from 0 in gradient + penalty * sign(coef)."""
    active = np.abs(gradient + penalty * np.sign(coef))
    idle = np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.where(coef != 0, active, idle)
