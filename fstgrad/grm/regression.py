"""One node regression as a fit runs it: `reference` on sparse columns, with weights and offsets.

    minimise over b:  mean_i w_i ( A(eta_i) - <eta_i, t(x_is)> ) + alpha sum_c |b_c|,
    eta_ij = intercept_j + [j = 1] offset_i + sum_{c of root j} b_c z_ic,   t_j(x) = T(x)^(1/j),

with the columns z of `fstgrad.grm.design`, by the Newton steps of `fstgrad.grm.newton` on a working
set.  Between two solves, one scan over all columns, O(nonzeros of the design), finds the columns
that violate the Karush-Kuhn-Tucker conditions, and they join the working set.  At the end, the
largest violation over all columns of the design is at most `tol`; it is the certificate of the fit.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.grm.active_set import WARM_SHARE, ActiveSet, activate
from fstgrad.grm.design import Design
from fstgrad.grm.newton import NewtonSolver


@dataclass(frozen=True)
class NodeFit:
    r"""The solution of one node regression.

    intercepts : (f + d,) float64, those of the coordinates in `Intercepts`, then the slopes of the
        covariates.
    term, key : (m,) int64, the block of the design and the combinatorial number of S \ {s}.
    values : (m,) float64, the nonzero coefficients theta_S.
    kkt : float, the largest violation of the optimality conditions over all candidate columns.
    objective : float, the minimum in nats.
    steps, scans : int, the numbers of Newton steps and of scans over all columns.
    converged : bool, whether kkt is at most the tolerance.
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

    def without_slopes(self, count: int, added: float) -> "NodeFit":
        """Return this without its `count` slopes, and with `added` to the intercept of T."""
        intercepts = self.intercepts[: len(self.intercepts) - count].copy()
        intercepts[0] += added
        return replace(self, intercepts=intercepts)


@dataclass
class NodeRegression:
    """The problem of one node.

    solver : the solver of this node alone.
    design : the shared design.
    alpha, tol, max_iter, screening : as in `GeneralizedRootModel`.
    columns : for each block, the columns that the node may use.
    """

    solver: NewtonSolver
    design: Design
    node: int
    alpha: float
    tol: float
    max_iter: int
    screening: str = "kkt"
    columns: list[IntArray] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = [self.design.columns(block, self.node) for block in self.design.blocks]

    def fit(self, start: NodeFit | None = None) -> NodeFit:
        """Return the solution, from `start` or from the independent model."""
        active = self._start(start)
        if start is not None and self.design.blocks:  # first add columns that will become active
            gradients = self._scan(self.solver.residual(active)[0])
            active = self._grow(active, self._violations(gradients, active, WARM_SHARE)[1])
        residual, slopes, objective = self.solver.solve(active, 0.5 * self.tol)
        scans = 0
        while True:
            outside, violating = self._violations(self._scan(residual[0]), active)
            scans += 1
            kkt = max(outside, float(slopes.max(initial=0.0)))
            if kkt <= self.tol or scans >= self.max_iter:
                break
            before = self.solver.steps
            active = self._grow(active, violating)
            target = max(0.5 * self.tol, 0.1 * kkt)
            residual, slopes, objective = self.solver.solve(active, target)
            if self.solver.steps == before and outside <= 0:
                break  # at the limit of rounding: neither a new column nor a step
        used = (active.term >= 0) & (active.coef != 0)
        return NodeFit(
            intercepts=self.solver.intercepts.from_fit_basis(active.coef[active.term < 0]),
            term=active.term[used],
            key=active.key[used],
            values=active.coef[used],
            kkt=kkt,
            objective=objective,
            steps=self.solver.steps,
            scans=scans,
            converged=kkt <= self.tol,
        )

    def without_sets(self, start: NodeFit, target: float) -> FloatArray:
        """Return the residual (n, c) of the model without sets, from `start` without sets.

        target : the largest violation of a condition of an intercept or a slope.
        """
        residual: FloatArray = self.solver.solve(self._start(start), target)[0][0]
        return residual

    def largest_gradient(self, residual: FloatArray) -> float:
        """Return the largest |gradient| / scale of a column, given a residual (n, c)."""
        largest = 0.0
        for number, gradient in enumerate(self._scan(residual)):
            scale = self.design.blocks[number].scale[self.columns[number]]
            scaled = np.abs(gradient) / np.maximum(scale, 1e-300)
            largest = max(largest, float(scaled.max(initial=0.0)))
        return largest

    def _start(self, start: NodeFit | None) -> ActiveSet:
        """Return the active parameters: the intercepts and the columns of `start`."""
        if start is None:
            none = np.zeros(0, dtype=np.int64)
            intercepts = self.solver.starting_intercepts()
            return self._activate(intercepts, none, none, np.zeros(0))
        column = self.design.find(start.term, start.key)
        allowed = np.zeros(column.size, dtype=bool)
        for number, columns in enumerate(self.columns):
            allowed |= (start.term == number) & np.isin(column, columns)
        node_coefs = self.solver.intercepts.to_fit_basis(start.intercepts)
        return self._activate(
            node_coefs[None, :], start.term[allowed], column[allowed], start.values[allowed]
        )

    def _activate(
        self, intercepts: FloatArray, block: IntArray, column: IntArray, coef: FloatArray
    ) -> ActiveSet:
        sets = block, self.design.keys(block, column), coef
        slots = np.arange(block.size), np.zeros(block.size, dtype=np.int64), block, column
        of_node = self.solver.intercepts, self.solver.ridge
        return activate(self.design, of_node, intercepts, self.alpha, sets, slots)

    def _scan(self, residual: FloatArray) -> list[FloatArray]:
        """Return the gradients of all columns that the node may use, one array per block.

        residual : (n, c).
        """
        return [
            self.design.gradients(number, columns, residual)
            for number, columns in enumerate(self.columns)
        ]

    def _violations(
        self, gradients: list[FloatArray], active: ActiveSet, share: float = 1.0
    ) -> tuple[float, list[IntArray]]:
        """Return the worst violation outside the working set, and the columns of each block to add.

        These are the columns outside the working set whose gradient exceeds share * alpha.
        """
        worst, strongest, sizes = 0.0, [], []
        active_columns = self.design.find(active.term, active.key)
        for number, (columns, gradient) in enumerate(zip(self.columns, gradients, strict=True)):
            size = np.abs(gradient)
            if self.design.scaled:
                size /= np.maximum(self.design.blocks[number].scale[columns], 1e-300)
            size[np.searchsorted(columns, active_columns[active.term == number])] = -np.inf
            worst = max(worst, float(size.max(initial=0.0)) - share * self.alpha)
            bar = share * self.alpha if self.screening == "kkt" else -np.inf
            strong = size > bar
            strongest.append(columns[strong])
            sizes.append(size[strong])
        if sum(map(len, strongest)) > self.design.most:
            least = np.sort(np.concatenate(sizes))[-self.design.most]
            strongest = [c[size >= least] for c, size in zip(strongest, sizes, strict=True)]
        return worst, strongest

    def _grow(self, active: ActiveSet, added: list[IntArray]) -> ActiveSet:
        """Return the working set without its zeros, and with the columns `added` of each block."""
        nonzero = (active.term >= 0) & (active.coef != 0)
        term = np.concatenate(
            [active.term[nonzero], *(np.full(a.size, number) for number, a in enumerate(added))]
        )
        before = self.design.find(active.term[nonzero], active.key[nonzero])
        column = np.concatenate([before, *added])
        coef = np.concatenate([active.coef[nonzero], np.zeros(column.size - before.size)])
        return self._activate(active.coef[active.term < 0][None, :], term, column, coef)
