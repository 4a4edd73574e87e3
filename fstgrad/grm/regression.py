"""One node regression: the l1-penalised maximum likelihood of a node given all others.

    minimise over b:  mean_i w_i ( A(eta_i) - <eta_i, t(x_is)> ) + alpha sum_c |b_c|,
    eta_ij = intercept_j + [j = 1] offset_i + sum_{c of root j} b_c z_ic,   t_j(x) = T(x)^(1/j),

with the columns z of `fstgrad.grm.design`, by the Newton steps of `fstgrad.grm.newton` on a working
set.  Between two solves, one scan over all columns, O(nonzeros of the design), finds the columns
that violate the Karush-Kuhn-Tucker conditions, and they join the working set.  At the end, the
largest violation over all columns of the design is at most `tol`; it is the certificate of the fit.
"""

from dataclasses import dataclass, field

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.grm.active_set import EAGER, Play, put_in_play
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
        play = self._start(start)
        if start is not None and self.design.blocks:  # first add columns that will become active
            gradients = self._scan(self.solver.residual(play)[0])
            play = self._grow(play, self._violations(gradients, play, EAGER)[1])
        residual, slopes, objective = self.solver.solve(play, 0.5 * self.tol)
        scans = 0
        while True:
            outside, found = self._violations(self._scan(residual[0]), play)
            scans += 1
            kkt = max(outside, float(slopes.max(initial=0.0)))
            if kkt <= self.tol or scans >= self.max_iter:
                break
            before = self.solver.steps
            play = self._grow(play, found)
            target = max(0.5 * self.tol, 0.1 * kkt)
            residual, slopes, objective = self.solver.solve(play, target)
            if self.solver.steps == before and outside <= 0:
                break  # at the limit of rounding: neither a new column nor a step
        used = (play.term >= 0) & (play.coef != 0)
        return NodeFit(
            intercepts=self.solver.intercepts.covariates.outward(play.coef[play.term < 0]),
            term=play.term[used],
            key=play.key[used],
            values=play.coef[used],
            kkt=kkt,
            objective=objective,
            steps=self.solver.steps,
            scans=scans,
            converged=kkt <= self.tol,
        )

    def _start(self, start: NodeFit | None) -> Play:
        """Return the active parameters: the intercepts and the columns of `start`."""
        if start is None:
            none = np.zeros(0, dtype=np.int64)
            intercepts = self.solver.starting_intercepts()
            return self._put_in_play(intercepts, none, none, np.zeros(0))
        column = self.design.find(start.term, start.key)
        known = np.zeros(column.size, dtype=bool)
        for number, allowed in enumerate(self.columns):
            known |= (start.term == number) & np.isin(column, allowed)
        heads = self.solver.intercepts.covariates.inward(start.intercepts)
        return self._put_in_play(
            heads[None, :], start.term[known], column[known], start.values[known]
        )

    def _put_in_play(
        self, intercepts: FloatArray, block: IntArray, column: IntArray, coef: FloatArray
    ) -> Play:
        sets = block, self.design.keys(block, column), coef
        slots = np.arange(block.size), np.zeros(block.size, dtype=np.int64), block, column
        heads = self.solver.intercepts, self.solver.ridge
        return put_in_play(self.design, heads, intercepts, self.alpha, sets, slots)

    def _scan(self, residual: FloatArray) -> list[FloatArray]:
        """Return the gradients of all columns that the node may use, one array per block.

        residual : (n, c).
        """
        return [
            self.design.gradients(number, columns, residual)
            for number, columns in enumerate(self.columns)
        ]

    def _violations(
        self, gradients: list[FloatArray], play: Play, share: float = 1.0
    ) -> tuple[float, list[IntArray]]:
        """Return the worst violation outside the working set, and the columns of each block to add.

        These are the columns outside the working set whose gradient exceeds share * alpha.
        """
        worst, found, sizes = 0.0, [], []
        in_play = self.design.find(play.term, play.key)
        for number, (columns, gradient) in enumerate(zip(self.columns, gradients, strict=True)):
            size = np.abs(gradient)
            if self.design.scaled:
                size /= np.maximum(self.design.blocks[number].scale[columns], 1e-300)
            size[np.searchsorted(columns, in_play[play.term == number])] = -np.inf
            worst = max(worst, float(size.max(initial=0.0)) - share * self.alpha)
            bar = share * self.alpha if self.screening == "kkt" else -np.inf
            strong = size > bar
            found.append(columns[strong])
            sizes.append(size[strong])
        if sum(map(len, found)) > self.design.most:
            least = np.sort(np.concatenate(sizes))[-self.design.most]
            found = [f[size >= least] for f, size in zip(found, sizes, strict=True)]
        return worst, found

    def _grow(self, play: Play, found: list[IntArray]) -> Play:
        """Return the working set without its zeros, and with the columns `found` added."""
        kept = (play.term >= 0) & (play.coef != 0)
        term = np.concatenate(
            [play.term[kept], *(np.full(f.size, number) for number, f in enumerate(found))]
        )
        column = np.concatenate([self.design.find(play.term[kept], play.key[kept]), *found])
        coef = np.concatenate([play.coef[kept], np.zeros(column.size - kept.sum())])
        return self._put_in_play(play.coef[play.term < 0][None, :], term, column, coef)
