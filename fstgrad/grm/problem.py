"""The data of a fit, prepared once, and the problems of nodes that are solved with them."""

import json
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fstgrad.core.checks import BoolArray, FloatArray, IntArray, path_name
from fstgrad.core.errors import MemoryLimitError
from fstgrad.core.threads import worker_threads
from fstgrad.core.uninitialized import empty
from fstgrad.grm import fitting, preparation
from fstgrad.grm.active_set import Intercepts, activate
from fstgrad.grm.base import Base
from fstgrad.grm.blocks import Term
from fstgrad.grm.design import Design, build
from fstgrad.grm.joint import JointFit, JointRegression
from fstgrad.grm.newton import NewtonSolver
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.regression import NodeFit, NodeRegression

AT_ONCE = 16  # nodes whose intercepts are refitted together


@dataclass(frozen=True)
class Solving:
    """The arguments of `GeneralizedRootModel` that determine how a fit is solved."""

    alpha: float
    tol: float
    max_iter: int
    screening: str
    threads: int


@dataclass
class Problem:
    """The samples of a fit, and what can be reused by fits with another alpha.

    x : CSR (n, p).
    families : one for each column.
    terms, intercepts : of the model.
    varying : (p,) bool, the columns that vary.
    weights : (n,), > 0, mean 1.
    offset : (n,), added to the first coordinate of eta.
    max_memory : float, in bytes.
    keep : whether to keep the solvers of the nodes, so that the next fit continues from them.
    """

    x: sparse.csr_matrix
    families: tuple[Base, ...]
    k: int
    terms: list[Term]
    intercepts: Intercepts
    varying: BoolArray
    weights: FloatArray
    offset: FloatArray
    max_memory: float
    scale_columns: bool = False
    designs: dict[int, Design] = field(default_factory=dict, init=False)
    solver: NewtonSolver | None = field(default=None, init=False)
    keep: bool = field(default=False, init=False)
    solvers: dict[int, NewtonSolver] = field(default_factory=dict, init=False)

    def design(self, sizes: dict[int, IntArray]) -> Design:
        """Return the design of the candidate sets {size: (m, size)}; for all sets ({}), cached."""
        if not sizes and 0 in self.designs:
            return self.designs[0]
        statistics = preparation.statistics(self.x, self.varying, self.families[0], self.k)
        weights = self.weights if self.scale_columns else None
        design = build(statistics, self.terms, sizes, self.max_memory, scale_weights=weights)
        if not sizes:
            self.designs[0] = design
        return design

    def pairs_of(self, design: Design) -> Design:
        """Return the design restricted to pairs, which are enough to start a joint fit."""
        larger = {s: np.zeros((0, s), np.int64) for s in range(3, self.k + 1)}
        return replace(design, candidates={**design.candidates, **larger})

    def blank(self) -> Parameters:
        """Return parameters with the families, zero intercepts and no sets."""
        width = self.k + self.families[0].num_extra
        return Parameters(self.families, self.k, np.zeros((self.x.shape[1], width)), ())

    def node_solver(self, node: int) -> NewtonSolver:
        """Return the solver of one node."""
        return self._solver_of(range(node, node + 1), 0.0)

    def _solver_of(self, nodes: range, fixed: FloatArray | float) -> NewtonSolver:
        """Return the solver of q nodes; `fixed`, (q, n, c) or a number, is added to their eta."""
        observed = np.stack([self._observed(node) for node in nodes])
        offset = np.zeros(observed.shape) + fixed
        offset[:, :, 0] += self.offset
        families = self.families[nodes.start : nodes.stop]
        return NewtonSolver(families, observed, self.weights, offset, self.intercepts)

    @cached_property
    def columns(self) -> sparse.csc_matrix:
        """The samples by column."""
        return self.x.tocsc()

    def _observed(self, node: int) -> FloatArray:
        """Return t of one column, (n, c)."""
        start, end = self.columns.indptr[node : node + 2]
        family, n = self.families[node], self.x.shape[0]
        out = np.repeat(family.statistics(np.zeros(1), self.k), n, axis=0)
        values = self.columns.data[start:end]
        out[self.columns.indices[start:end]] = family.statistics(values, self.k)
        return out

    def fit_node(
        self, node: int, design: Design, solving: Solving, start: NodeFit | None
    ) -> NodeFit:
        """Return the solution of one node regression; a constant column has no sets."""
        if not self.varying[node]:
            nothing = {size: np.zeros((0, size), np.int64) for size in range(2, self.k + 1)}
            design = Design(design.samples, design.features, design.blocks, nothing)
        solver = self.solvers.get(node) or self.node_solver(node)
        solver.steps = 0
        if self.keep:
            self.solvers[node] = solver
        regression = NodeRegression(
            solver, design, node, solving.alpha, solving.tol, solving.max_iter,
            solving.screening,
        )  # fmt: skip
        return regression.fit(start)

    def fit_joint(self, design: Design, solving: Solving, start: Parameters) -> JointFit:
        """Return the joint fit with tied parameters, from `start`, in threads."""
        regression = self.joint(design, solving)
        regression.solver.steps = 0
        if solving.threads == 1:
            return regression.fit(start)
        with worker_threads(solving.threads) as pool:
            regression.solver.apply = pool.map
            found = regression.fit(start)
        regression.solver.apply = map
        return found

    def joint(self, design: Design, solving: Solving) -> JointRegression:
        """Return the problem of all nodes with tied parameters; its solver is cached."""
        if self.solver is None:
            self.solver = self._joint_solver()
        return JointRegression(
            self.solver, design, self.varying, solving.alpha, solving.tol, solving.max_iter
        )

    def joint_bytes(self) -> int:
        """Return the number of bytes of the derivatives of all nodes at all rows."""
        width = self.k + self.families[0].num_extra
        return 8 * self.x.shape[0] * self.x.shape[1] * width * (4 + 2 * width)

    def _joint_solver(self) -> NewtonSolver:
        """Return the solver of all nodes; raise MemoryLimitError if it needs too much memory."""
        n, p = self.x.shape
        width = self.k + self.families[0].num_extra
        need = self.joint_bytes()
        if need > self.max_memory:
            raise MemoryLimitError(
                f"the joint fit keeps the derivatives of {p} nodes at {n} rows, {need / 2**30:.3g} "
                f"GiB, which exceeds max_memory = {self.max_memory / 2**30:.3g} GiB; give "
                'symmetrize="average", fewer rows or columns, or raise max_memory'
            )
        observed = empty((p, n, width))
        for node in range(p):
            observed[node] = self._observed(node)
        offset = np.zeros((1, n, width))
        offset[0, :, 0] = self.offset
        return NewtonSolver(self.families, observed, self.weights, offset, self.intercepts)

    def refit_intercepts(self, parameters: Parameters, solving: Solving) -> Parameters:
        """Return the parameters with optimal intercepts and slopes for their interactions.

        Needed after merging, since the intercepts of a node fit are optimal for its own estimates
        of theta_S, not for the merged ones.
        """
        free = replace(parameters, intercepts=np.zeros(parameters.intercepts.shape))
        fixed = free.eta(self.x.toarray())
        heads, f = self.intercepts, self.intercepts.coordinates.size
        before = np.concatenate(
            [parameters.intercepts[:, heads.coordinates], parameters.slopes], axis=1
        )
        nothing = Design(self.x.shape[0], self.x.shape[1], (), {})
        none, p = np.zeros(0, dtype=np.int64), self.x.shape[1]
        sets, slots = (none, none, np.zeros(0)), (none,) * 4

        def refit(nodes: range) -> FloatArray:
            solver = self._solver_of(nodes, fixed[:, nodes].swapaxes(0, 1))
            start = heads.covariates.inward(before[nodes])
            own = heads, solver.ridge
            active = activate(nothing, own, start, solving.alpha, sets, slots)
            slopes = solver.solve(active, 0.5 * solving.tol)[1]
            is_done = slopes.max(initial=0.0) <= solving.tol
            if len(nodes) > 1 and not is_done:  # a hard node stopped the others
                return np.concatenate([refit(range(s, s + 1)) for s in nodes])
            return heads.covariates.outward(active.coef.reshape(start.shape))

        parts = [range(s, min(s + AT_ONCE, p)) for s in range(0, p, AT_ONCE)]
        with worker_threads(solving.threads) as pool:
            found = np.concatenate(list(pool.map(refit, parts)))
        intercepts = np.zeros(parameters.intercepts.shape)
        intercepts[:, heads.coordinates] = found[:, :f]
        return replace(parameters, intercepts=intercepts, slopes=found[:, f:])


def largest_useful_alpha(problem: Problem, solving: Solving, joint: bool) -> float:
    """Return the smallest alpha at which the model has no set, times 1 + 1e-9.

    This is the largest gradient of a set, divided by its scale, at the independent model.  With
    `joint`, it is the largest tied gradient: if the tied gradient of a set exceeds a bound, so does
    the gradient of one of its nodes; the bound is lowered until the largest tied gradient found
    exceeds it.
    """
    design = problem.design({})
    alone = replace(solving, alpha=1e300, screening="kkt")
    fits = solve_nodes(problem, design, alone, None)
    start = fitting.symmetrize(fits, design, problem.blank(), problem.intercepts, "average")
    regression = problem.joint(design, alone)
    active = regression.start(start)
    residual = regression.solver.solve(active, 0.5 * solving.tol)[0]
    top = 0.0
    for number, block in enumerate(design.blocks):
        for node in np.flatnonzero(problem.varying).tolist():
            columns = design.columns(block, node)
            slopes = np.abs(design.gradients(number, columns, residual[node]))
            scaled = slopes / np.maximum(block.scale[columns], 1e-300)
            top = max(top, float(scaled.max(initial=0.0)))
    bound = 0.5 * top
    while joint and top > 0:
        excess = regression.violators(residual, active, bound)[2]
        largest = bound + float(excess.max(initial=-np.inf))
        if largest >= bound:
            top = largest
            break
        bound *= 0.5
    return top * (1 + 1e-9)


def solve_nodes(
    problem: Problem,
    design: Design,
    solving: Solving,
    starts: list[NodeFit] | None,
    checkpoint: fitting.Checkpoint | None = None,
    progress: fitting.Progress | None = None,
) -> list[NodeFit]:
    """Return the solutions of all node regressions, computed in threads; see `fitting.fit_all`."""
    return fitting.fit_all(
        lambda node: problem.fit_node(node, design, solving, starts[node] if starts else None),
        problem.x.shape[1],
        threads=solving.threads,
        checkpoint=checkpoint,
        progress=progress,
    )


def checkpoint_of(
    problem: Problem, path: Any, stage: int, settings: dict[str, Any], plain: Callable[[Any], Any]
) -> fitting.Checkpoint | None:
    """Return the checkpoint of a stage of a fit; None without a path.

    stage : the largest size of a set in the stage; stages before the last have a suffix in the name
    of their file.  settings : the arguments of the model that affect the result.  plain : converts
    values to types of JSON.
    """
    if path is None:
        return None
    shape = problem.x.shape
    described = json.dumps([shape, stage, settings], default=plain, sort_keys=True)
    where = pathlib.Path(path_name(path, "checkpoint"))
    if stage < problem.k:
        where = where.with_name(f"{where.name}.stage{stage}")
    x = problem.x
    extra = problem.intercepts.covariates
    arrays = [x.data, x.indices, x.indptr, problem.weights, problem.offset, extra.columns]
    digest = fitting.fingerprint(arrays, described)
    return fitting.Checkpoint(where, digest, shape[1], problem.terms, problem.intercepts.width)
