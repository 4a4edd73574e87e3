"""`GeneralizedRootModel`: the estimator, with the interface of scikit-learn estimators.

Only this module needs scikit-learn (the extra `fstgrad[grm]`).
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.labels import check_same_rows
from fstgrad.core.sequences import items
from fstgrad.grm import covariates as extra
from fstgrad.grm import fitting, normalization, preparation, storage
from fstgrad.grm.active_set import Intercepts
from fstgrad.grm.design import MAX_MEMORY, Design, intercept_coordinates, terms_of
from fstgrad.grm.families import Base, resolve
from fstgrad.grm.inference import InferenceMixin
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.problem import Problem, Solving, checkpoint_of, solve_nodes
from fstgrad.grm.progress import node_progress
from fstgrad.grm.regression import NodeFit
from fstgrad.grm.selection import SelectionMixin

checks.extra("sklearn", "grm", "GeneralizedRootModel")
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

ROUGH = 0.05  # times alpha: the tolerance of node regressions that only start a joint fit
SetsLike = Sequence[Sequence[int | str]]
MatrixLike = npt.ArrayLike | sparse.csr_matrix


class GeneralizedRootModel(InferenceMixin, SelectionMixin, BaseEstimator):  # type: ignore[misc]
    """A k-wise graphical model of vectors of counts, positive or real numbers.

        p(x) proportional to exp( sum_s theta_s x_s + sum_{2<=j<=k} sum_{|S|=j} theta_S
                                  prod_{t in S} x_t^(1/j) + sum_s B(x_s) )

    k = 1 is the independent model, k = 2 the square-root model, k = 3 adds triples.  Each node has
    an l1-penalised regression on the products of the other variables; the p fits are combined into
    one model.

    Parameters
    ----------
    k : int
        The largest size of a set.
    base : str or fstgrad.grm.families.Base
        The family of one variable given the others: "poisson", "negative-binomial",
        "hurdle-poisson", "hurdle-negative-binomial", "bernoulli", "exponential", "gaussian", or an
        object such as `families.FiniteCounts(log_measure)`.
    alpha : float
        The weight of the l1 norm against the mean log-likelihood, > 0.
    interactions : {"strongest", "all"}
        "strongest": sets of size j act through x^(1/j) only.  "all": sets of every size l <= j
        act through x^(1/j), including single variables; all terms except theta_s x_s are penalised.
    candidate_sets : None, "stagewise" or list of sets
        None: all sets of up to k variables.  "stagewise": a set of l variables is a candidate if
        all its subsets of l - 1 were selected.  Sets of column numbers or names: only these and
        their subsets of up to k variables.
    screening : {"kkt", "none"}
        "kkt": columns join the working set when they violate their optimality condition.
        "none": every column is in the working set (for comparison).
    symmetrize : {"joint", "average", "min", "max"}
        How the |S| estimates of theta_S are combined.  "joint": one penalised pseudo-likelihood, in
        which all nodes share theta_S, started from the node regressions.  "average" (as in the
        paper, including zeros), "min" and "max" merge the estimates and refit the intercepts.
    scale_columns : bool
        Penalise a coefficient in proportion to the root mean square of its column; useful if
        columns have very different sizes.
    tol : float
        The largest accepted violation of the optimality conditions, in units of the gradient.
    max_iter : int
        The largest number of scans over all candidates for one node.
    n_jobs : int, optional
        The number of threads; None means 1, -1 all cores.
    warm_start : bool
        Whether to start from the last fit.
    checkpoint : path, optional
        A file for the finished nodes; the same fit with the same file resumes from it.
    max_memory : float
        Memory limit in bytes, for each of the shared design, the derivatives of a joint fit and the
        active columns.  If the design would exceed it, its products are not stored, but computed at
        every scan.
    verbose : bool
        Whether to show a progress bar.
    covariate_alpha : float
        The weight of the l1 norm of the slopes of covariates, >= 0; 0 means no penalty.

    Attributes
    ----------
    parameters_ : fstgrad.grm.parameters.Parameters
        The fitted model; its `slopes` (p, d) are those of the covariates.
    kkt_ : (p,) float64
        The certificate: for each node the largest violation of its optimality conditions over
        all candidate sets.  In negative-binomial and hurdle fits, the objective has a ridge on the
        intercepts at the mean covariates, 0.001 Var[t] / 2 times their squares, which keeps them
        finite; so the residuals of slopes and intercepts alone do not vanish exactly.
    names_ : list of str
        The names of the columns; x0, x1, ... if there are none.
    covariate_names_ : list of str, or None
        The names of the covariates, if they were a data frame.
    node_fits_ : list of NodeFit
        The p regressions before they are combined.  If they only start a joint fit, they are rough
        and, for k >= 3, contain only pairs.
    n_candidates_ : int
        The number of candidate sets of two and more variables.
    n_iter_ : int
        The largest number of scans that a node needed.
    uses_offset_ : bool
        Whether the fit had an offset; scores then need an offset, too.

    References
    ----------
    Inouye, Ravikumar, Dhillon: Generalized Root Models, arXiv 1606.00813, Sections 3-6.

    Examples
    --------
    >>> X = np.random.default_rng(0).poisson(1.0, size=(200, 4))
    >>> model = GeneralizedRootModel(k=2, alpha=0.1).fit(X)
    >>> bool(model.kkt_.max() <= model.tol)
    True
    """

    def __init__(
        self,
        k: int = 2,
        base: str | Base = "poisson",
        alpha: float = 0.01,
        *,
        interactions: Literal["strongest", "all"] = "strongest",
        candidate_sets: Literal["stagewise"] | SetsLike | None = None,
        screening: Literal["kkt", "none"] = "kkt",
        symmetrize: Literal["joint", "average", "min", "max"] = "joint",
        scale_columns: bool = False,
        tol: float = 1e-6,
        max_iter: int = 100,
        n_jobs: int | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        max_memory: float = MAX_MEMORY,
        verbose: bool = False,
        covariate_alpha: float = 0.0,
    ) -> None:
        self.k = k
        self.base = base
        self.alpha = alpha
        self.interactions = interactions
        self.candidate_sets = candidate_sets
        self.screening = screening
        self.symmetrize = symmetrize
        self.scale_columns = scale_columns
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.max_memory = max_memory
        self.verbose = verbose
        self.covariate_alpha = covariate_alpha

    def fit(
        self,
        X: MatrixLike,
        y: None = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> "GeneralizedRootModel":
        """Fit the p node regressions and combine them into one model.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            Counts, positive numbers or real numbers, depending on `base`.
        y : None
            Ignored.
        sample_weight : (n,) array-like, optional
            Weights >= 0 of the rows: a weight of 2 equals two copies, a weight of 0 the absence of
            the row; a common factor has no effect.
        offset : (n,) array-like, optional
            Added to the coefficient of T of every node.  With the Poisson base, this is the log of
            an exposure, for example of the length of a document; at most 30.
        covariates : (n, d) array-like, optional
            z_i . slopes_s is added to the coefficient of T of node s in row i; each node has its
            own slopes.  Scores then need those of their rows; `at` returns a joint model of them.
        feature_names : sequence of str, optional
            Names of the columns if X has none, for example a CSR matrix.

        Raises
        ------
        InvalidInputError
            X has NaN or values that the base does not allow; k < 1 or k > p; alpha <= 0; covariates
            are constant, or linearly dependent while covariate_alpha is 0.
        MemoryLimitError
            The active columns or the derivatives of a joint fit would exceed `max_memory`, or the
            design would even without stored products; this is checked before they are built.
        """
        self._solve(self._prepared(X, sample_weight, offset, feature_names, covariates))
        self.uses_offset_ = offset is not None
        return self

    def _prepared(
        self,
        X: MatrixLike,
        sample_weight: npt.ArrayLike | None,
        offset: npt.ArrayLike | None,
        feature_names: Sequence[str] | None,
        covariates: npt.ArrayLike | None = None,
    ) -> Problem:
        """Return the problem of a fit, after checking the arguments."""
        preparation.check_parameters(self)
        check_same_rows(X=X, sample_weight=sample_weight, offset=offset, covariates=covariates)
        x = self._validated(X, reset=True)
        self.names_ = self._chosen_names(feature_names, x.shape[1])
        self.covariate_names_ = extra.column_names(covariates)
        if self.k > x.shape[1]:
            raise InvalidInputError(
                f"k is {self.k} and X has {x.shape[1]} feature(s); a set has distinct members, "
                f"give k <= {x.shape[1]}"
            )
        rows = preparation.weighted_rows(x, sample_weight, offset, covariates, resolve(self.base))
        return self._problem(rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz file."""
        check_is_fitted(self)
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "GeneralizedRootModel":
        """Return a model that `save` wrote."""
        model: GeneralizedRootModel = storage.load(cls, path)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        base = resolve(self.base)
        tags.input_tags.positive_only = not base.allows_negative
        tags.input_tags.categorical = base.whole_numbers  # the checks round their samples
        return tags

    def _validated(self, X: MatrixLike, *, reset: bool) -> sparse.csr_matrix:
        """Return X as CSR float64 without stored zeros, checked by scikit-learn and the base."""
        own = preparation.own(X)
        try:
            array = validate_data(
                self, own, accept_sparse="csr", dtype=np.float64, reset=reset,
                ensure_all_finite=False,
            )  # fmt: skip
        except Exception as error:  # from scikit-learn, or from __array__ of an unknown class
            raise preparation.NotNumbers(f"X is not a table of numbers: {error}") from error
        return preparation.plain(array, resolve(self.base))

    def _chosen_names(self, given: Sequence[str] | None, features: int) -> list[str]:
        """Return the given names, those of the data frame, or x0, x1, ..."""
        if given is None:
            given = getattr(self, "feature_names_in_", [f"x{i}" for i in range(features)])
        names = [str(name) for name in items("feature_names", given)]
        if len(set(names)) != features or len(names) != features:
            raise InvalidInputError(
                f"feature_names has {len(set(names))} distinct names for {features} columns of X"
            )
        return names

    def _problem(self, rows: preparation.Rows) -> Problem:
        """Return the problem of the fit: everything that does not depend on alpha."""
        x, weights, offset, z = rows
        covariates = extra.prepare(z, weights, float(self.covariate_alpha))
        k, base = int(self.k), resolve(self.base)
        terms = terms_of(k, self.interactions)
        coordinates = intercept_coordinates(terms, base.free_coordinates(k))
        return Problem(
            x, preparation.families(x, weights, base), k, terms,
            Intercepts(coordinates, ~np.isin(coordinates, base.free_coordinates(k)), covariates),
            preparation.varying_columns(x, k), weights, offset, float(self.max_memory),
            self.scale_columns,
        )  # fmt: skip

    def _solving(self) -> Solving:
        return Solving(
            float(self.alpha), float(self.tol), int(self.max_iter), self.screening, self._threads()
        )

    def _starts(self, problem: Problem) -> list[NodeFit] | None:
        """Return the last node fits if a warm start can use them, else None."""
        before = getattr(self, "node_fits_", None)
        if not self.warm_start or before is None or len(before) != problem.x.shape[1]:
            return None
        same = self.parameters_.k == self.k
        same = same and isinstance(self.parameters_.family, type(problem.families[0]))
        same = same and before[0].intercepts.size == problem.intercepts.width
        return before if same else None

    def _solve(self, problem: Problem) -> None:
        """Fit the nodes and combine them, and store the result."""
        starts, k = self._starts(problem), problem.k
        sizes = preparation.candidates(self.candidate_sets, problem.x.shape[1], k, self.names_)
        if isinstance(self.candidate_sets, str):
            for size in range(2, k):
                empty = {s: np.zeros((0, s), np.int64) for s in range(size + 1, k + 1)}
                design = problem.design({**sizes, **empty})
                starts = self._nodes(problem, design, starts, size)
                chosen = self._chosen(problem, starts, design, size)
                sizes[size + 1] = fitting.cliques(chosen, problem.x.shape[1])
        design = problem.design(sizes)
        if starts is None or not self._is_joint() or self.candidate_sets == "stagewise":
            first = problem.pairs_of(design) if self._is_joint() else design
            fits = self._nodes(problem, first, starts, k)
            self._store(problem, fits, design, None)
        else:  # the last joint fit is the better start
            self._store(problem, starts, design, self.parameters_)

    def _nodes(
        self, problem: Problem, design: Design, starts: list[NodeFit] | None, stage: int
    ) -> list[NodeFit]:
        """Return the node regressions, with a rough tolerance if they only start a joint fit."""
        ignored = {"checkpoint", "n_jobs", "verbose", "max_memory", "warm_start"}
        settings = {n: v for n, v in self.get_params().items() if n not in ignored}
        kept = checkpoint_of(problem, self.checkpoint, stage, settings, storage.plain)
        solving = self._solving()
        if self._is_joint() and stage == problem.k:
            solving = replace(solving, tol=max(solving.tol, ROUGH * solving.alpha))
        with node_progress(problem.x.shape[1], self.names_, enabled=self.verbose) as progress:
            return solve_nodes(problem, design, solving, starts, kept, progress)

    def _is_joint(self) -> bool:
        return self.symmetrize == "joint" and self.k > 1

    def _chosen(self, problem: Problem, fits: list[NodeFit], design: Design, size: int) -> IntArray:
        """Return the sets (m, size) that at least one node selected."""
        model = fitting.symmetrize(fits, design, problem.blank(), problem.intercepts, "max")
        sets = [i.sets for i in model.interactions if i.term.size == size]
        return np.unique(np.concatenate(sets), axis=0)

    def _store(
        self, problem: Problem, fits: list[NodeFit], design: Design, last: Parameters | None
    ) -> None:
        """Combine the node fits into one model, or use the last joint fit."""
        self.families_ = problem.families
        self.node_fits_ = fits
        rule = "average" if self.symmetrize == "joint" else self.symmetrize
        merged = fitting.symmetrize(fits, design, problem.blank(), problem.intercepts, rule)
        kkt = np.array([fit.kkt for fit in fits])
        scans = max(fit.scans for fit in fits)
        if self._is_joint():
            start = replace(last, families=problem.families) if last else merged
            joint = problem.fit_joint(design, self._solving(), start)
            merged, kkt = joint.parameters, joint.kkt
            scans = joint.scans + (0 if last else scans)
        elif merged.flat.values.size:
            merged = problem.refit_intercepts(merged, self._solving())
        self.parameters_ = merged
        self._summaries(design.candidate_count(), kkt, scans)
        self._warn(kkt)

    def _warn(self, kkt: FloatArray) -> None:
        """Warn if the fit stopped early, or if the model has no normalizer."""
        if kkt.max() > self.tol:
            worst = int(np.argmax(kkt))
            warnings.warn(
                f"node {worst} stopped at a violation of {kkt[worst]:.2g} > tol={self.tol}; "
                "raise max_iter or tol",
                stacklevel=5,
            )
        answer = normalization.is_normalizable(self.parameters_)
        if answer.value is False:
            warnings.warn(
                f"the fitted model has no normalizer ({answer.certificate}): it has node "
                "conditionals, but no joint distribution to sample from; raise alpha, give "
                'symmetrize="min", or use a base of counts',
                stacklevel=5,
            )

    def _summaries(self, candidates: int, kkt: FloatArray, scans: int) -> None:
        self.n_features_in_ = len(self.node_fits_)
        self.uses_offset_ = False
        self.kkt_ = kkt
        self.n_iter_ = scans
        self.n_candidates_ = candidates

    def _threads(self) -> int:
        if self.n_jobs is None:
            return 1
        if self.n_jobs < 0:
            return max(1, (os.cpu_count() or 1) + 1 + self.n_jobs)
        return checks.positive_integer("n_jobs", self.n_jobs)
