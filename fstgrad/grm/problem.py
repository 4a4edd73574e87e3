"""The data of a fit, prepared once, and the problems of nodes that are solved with them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fstgrad.core import checks
from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.core.threads import worker_threads
from fstgrad.core.uninitialized import empty
from fstgrad.grm import covariates, preparation
from fstgrad.grm.active_set import Intercepts, activate
from fstgrad.grm.base import Base
from fstgrad.grm.blocks import Term
from fstgrad.grm.design import Design, build, intercept_coordinates, terms_of
from fstgrad.grm.joint import JointFit, JointRegression
from fstgrad.grm.newton import NewtonSolver
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.regression import NodeFit, NodeRegression

AT_ONCE = 16  # nodes whose intercepts are refitted together


@dataclass(frozen=True)
class FitSettings:
    """The arguments of `GeneralizedRootModel` that determine how a fit is solved.

    symmetrize : as in the model, but "average" for k = 1, which has nothing to tie.
    stagewise : whether the sets of one size determine the candidates of the next.
    candidates : the candidate sets {size: (m, size)}; a size that is missing has all sets.
    checkpoint : the path of the file for finished nodes.
    arguments : all arguments of the model by name, for the checkpoint.
    progress_names : the names of the columns for the progress bar; None for no bar.
    """

    alpha: float
    tol: float
    max_iter: int
    screening: str
    threads: int
    symmetrize: str
    stagewise: bool = False
    candidates: dict[int, IntArray] = field(default_factory=dict)
    checkpoint: str | os.PathLike[str] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    progress_names: Sequence[str] | None = None

    @property
    def is_joint(self) -> bool:
        """Whether all nodes share their parameters."""
        return self.symmetrize == "joint"


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
    keeps_solvers : whether the next fit continues from the solvers of the nodes.
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
    solver_of_all: NewtonSolver | None = field(default=None, init=False)
    keeps_solvers: bool = field(default=False, init=False)
    solver_of_node: dict[int, NewtonSolver] = field(default_factory=dict, init=False)

    def design(self, candidates: dict[int, IntArray]) -> Design:
        """Return the design of the candidate sets {size: (m, size)}; for all sets ({}), cached."""
        if not candidates and 0 in self.designs:
            return self.designs[0]
        statistics = preparation.statistics(self.x, self.varying, self.families[0], self.k)
        weights = self.weights if self.scale_columns else None
        design = build(statistics, self.terms, candidates, self.max_memory, scale_weights=weights)
        if not candidates:
            self.designs[0] = design
        return design

    def pairs_of(self, design: Design) -> Design:
        """Return the design restricted to pairs, which are enough to start a joint fit."""
        return replace(design, candidates={**design.candidates, **self.up_to(2)})

    def up_to(self, size: int) -> dict[int, IntArray]:
        """Return the candidates {size: (0, size)} that leave out all larger sets than `size`."""
        return {s: np.zeros((0, s), np.int64) for s in range(size + 1, self.k + 1)}

    def without_sets(self) -> Parameters:
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
        offset[:, :, 0] += self.centered_offset
        families = self.families[nodes.start : nodes.stop]
        return NewtonSolver(families, observed, self.weights, offset, self.intercepts)

    @property
    def centered_offset(self) -> FloatArray:
        """The offsets (n,) without their mean, which the intercepts of a fit include."""
        return self.offset - self.intercepts.mean_offset

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
        self, node: int, design: Design, settings: FitSettings, start: NodeFit | None
    ) -> NodeFit:
        """Return the solution of one node regression; a constant column has no sets."""
        if not self.varying[node]:
            design = Design(design.samples, design.features, design.blocks, self.up_to(1))
        return self.node(node, design, settings).fit(start)

    def node(self, node: int, design: Design, settings: FitSettings) -> NodeRegression:
        """Return the problem of one node; its solver may be kept for the next fit."""
        solver = self.solver_of_node.get(node) or self.node_solver(node)
        solver.steps = 0
        if self.keeps_solvers:
            self.solver_of_node[node] = solver
        return NodeRegression(
            solver, design, node, settings.alpha, settings.tol, settings.max_iter,
            settings.screening,
        )  # fmt: skip

    def fit_joint(self, design: Design, settings: FitSettings, start: Parameters) -> JointFit:
        """Return the joint fit with tied parameters, from `start`, in threads."""
        regression = self.joint(design, settings)
        regression.solver.steps = 0
        if settings.threads == 1:
            return regression.fit(start)
        with worker_threads(settings.threads) as pool:
            regression.solver.apply = pool.map
            joint_fit = regression.fit(start)
        regression.solver.apply = map
        return joint_fit

    def joint(self, design: Design, settings: FitSettings) -> JointRegression:
        """Return the problem of all nodes with tied parameters; its solver is cached."""
        if self.solver_of_all is None:
            self.solver_of_all = self._joint_solver()
        return JointRegression(
            self.solver_of_all,
            design,
            self.varying,
            settings.alpha,
            settings.tol,
            settings.max_iter,
        )

    def keep_solvers(self, settings: FitSettings) -> None:
        """Keep the solvers of node regressions for the next fit, if all fit into max_memory."""
        self.keeps_solvers = not settings.is_joint and self.joint_bytes() <= self.max_memory

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
        offset[0, :, 0] = self.centered_offset
        return NewtonSolver(self.families, observed, self.weights, offset, self.intercepts)

    def refit_intercepts(self, parameters: Parameters, settings: FitSettings) -> Parameters:
        """Return the parameters with optimal intercepts and slopes for their interactions.

        Needed after merging, since the intercepts of a node fit are optimal for its own estimates
        of theta_S, not for the merged ones.
        """
        without = replace(parameters, intercepts=np.zeros(parameters.intercepts.shape))
        fixed = without.eta(self.x.toarray())
        start = self.intercepts.from_model(parameters.intercepts, parameters.slopes)
        no_blocks = Design(self.x.shape[0], self.x.shape[1], (), {})
        none, p = np.zeros(0, dtype=np.int64), self.x.shape[1]
        sets, slots = (none, none, np.zeros(0)), (none,) * 4

        def refit(nodes: range) -> FloatArray:
            solver = self._solver_of(nodes, fixed[:, nodes].swapaxes(0, 1))
            of_node = self.intercepts, solver.ridge
            active = activate(no_blocks, of_node, start[nodes], settings.alpha, sets, slots)
            slopes = solver.solve(active, 0.5 * settings.tol)[1]
            is_done = slopes.max(initial=0.0) <= settings.tol
            if len(nodes) > 1 and not is_done:  # a hard node stopped the others
                return np.concatenate([refit(range(s, s + 1)) for s in nodes])
            return active.coef.reshape(len(nodes), -1)

        parts = [range(s, min(s + AT_ONCE, p)) for s in range(0, p, AT_ONCE)]
        with worker_threads(settings.threads) as pool:
            node_coefs = np.concatenate(list(pool.map(refit, parts)))
        intercepts, slopes = self.intercepts.to_model(node_coefs, parameters.intercepts.shape[1])
        return replace(parameters, intercepts=intercepts, slopes=slopes)


def prepare(
    rows: preparation.Rows,
    base: Base,
    k: int,
    interactions: str,
    *,
    scale_columns: bool,
    max_memory: float,
    covariate_alpha: float,
) -> Problem:
    """Return the problem of a fit: everything that does not depend on alpha.

    Raises InvalidInputError if k exceeds the number of columns, or as in `covariates.prepare`.
    """
    x, weights, offset, z = rows
    if k > x.shape[1]:
        raise InvalidInputError(
            f"k is {k} and X has {x.shape[1]} feature(s); a set has distinct members, "
            f"give k <= {x.shape[1]}"
        )
    preparation.warn_of_means(base, x, weights)
    columns = covariates.prepare(z, weights, covariate_alpha)
    center = weights @ offset / weights.sum()
    terms, free = terms_of(k, interactions), base.free_coordinates(k)
    coordinates = intercept_coordinates(terms, free)
    return Problem(
        x, preparation.families(x, weights, base), k, terms,
        Intercepts(coordinates, ~np.isin(coordinates, free), columns, float(center)),
        preparation.varying_columns(x, k), weights, offset, max_memory, scale_columns,
    )  # fmt: skip


def worker_count(n_jobs: int | None) -> int:
    """Return the number of threads for the argument `n_jobs`."""
    if n_jobs is None:
        return 1
    if n_jobs < 0:
        return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    return checks.positive_integer("n_jobs", n_jobs)
