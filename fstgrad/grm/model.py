"""`GeneralizedRootModel`: the estimator, with the interface of scikit-learn estimators.

Only this module needs scikit-learn (the extra `fstgrad[grm]`).
"""

import copy
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fstgrad.core import checks
from fstgrad.core.axis_labels import check_columns, check_same_rows, column_names
from fstgrad.core.checks import FloatArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import (
    calibration,
    conditionals,
    fitting,
    normalization,
    partition,
    preparation,
    report,
    sampling,
    selection,
    storage,
)
from fstgrad.grm import covariates as row_covariates
from fstgrad.grm.design import MAX_MEMORY, intercept_coordinates, terms_of
from fstgrad.grm.families import Base, resolve
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.preparation import MatrixLike
from fstgrad.grm.problem import FitSettings, Problem, prepare, worker_count
from fstgrad.grm.regression import NodeFit
from fstgrad.grm.report import FitReport, WeightedSet
from fstgrad.plot.counts import add_word_graph

checks.extra("sklearn", "grm", "GeneralizedRootModel")
from sklearn.base import BaseEstimator, clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

SetsLike = Sequence[Sequence[int | str]]


class GeneralizedRootModel(BaseEstimator):  # type: ignore[misc]
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
        How the |S| estimates of theta_S are combined.  "joint": the sum of the node regressions, in
        which they share theta_S; its penalty is alpha |S| |theta_S|.  "average" (as in the paper,
        including zeros), "min" and "max" merge the estimates and refit the intercepts.
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
        intercepts at the mean covariates and offset, 0.001 Var[t] / 2 times their squares, which
        keeps them finite; so residuals of slopes and intercepts alone do not vanish exactly.
    names_ : list of str
        The names of the columns; x0, x1, ... if there are none.
    kept_columns_ : (W,) bool, or None
        The columns that `fstgrad grm fit --features` kept, of all W of the table.
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
    Inouye, Ravikumar, Dhillon: Generalized Root Models, arXiv 1606.00813.

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
            an exposure, such as the length of a document.  From -700 to 30 for counts; those
            of a negative-binomial or hurdle fit are within 30 of each other.
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
        problem = self._prepared(X, sample_weight, offset, feature_names, covariates)
        self._solve(problem, uses_offset=offset is not None)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz file."""
        self._fitted()
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "GeneralizedRootModel":
        """Return a model that `save` wrote."""
        return storage.load(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        base = resolve(self.base)
        tags.input_tags.positive_only = not base.allows_negative
        tags.input_tags.categorical = base.whole_numbers  # the checks round their samples
        return tags

    def alpha_max(
        self,
        X: MatrixLike,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> float:
        """Return the smallest alpha at which the model has no set, to a relative 1e-9.

        The arguments are those of `fit`.  With symmetrize="min", it is the smallest alpha at which
        no node selects a set; the model, whose sets all their nodes select, may have none below it.
        """
        model = clone(self)
        problem = model._prepared(X, sample_weight, offset, feature_names, covariates)
        return fitting.largest_useful_alpha(problem, model._settings())

    def path(
        self,
        X: MatrixLike,
        alphas: Sequence[float] | int = 10,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> "list[GeneralizedRootModel]":
        """Return one fitted model for each alpha, the largest alpha first.

        Each fit starts from the previous model, and all models share one design.

        Parameters
        ----------
        X : (n, p)
            As in `fit`.
        alphas : sequence of float, or int
            The penalties, in any order; or their number, for geometric steps from alpha_max down to
            a hundredth of it.
        sample_weight, offset, covariates, feature_names
            As in `fit`.
        """
        first = clone(self)
        problem = first._prepared(X, sample_weight, offset, feature_names, covariates)
        settings = first._settings()
        problem.keep_solvers(settings)
        models: list[GeneralizedRootModel] = []
        for alpha in selection.penalties(problem, settings, alphas).tolist():
            model = clone(self).set_params(alpha=alpha, warm_start=True)
            preparation.check_parameters(model)
            for name in preparation.NAMES_OF_COLUMNS:
                if hasattr(first, name):
                    setattr(model, name, getattr(first, name))
            if models:
                model.node_fits_ = models[-1].node_fits_
                model.parameters_ = models[-1].parameters_
            model._solve(problem, uses_offset=offset is not None)
            models.append(model)
        return models

    def select(
        self,
        X: MatrixLike,
        alphas: Sequence[float] | int = 10,
        *,
        criterion: Literal["ebic", "cv"] = "ebic",
        gamma: float = 0.5,
        folds: int = 5,
        rng: Seed = 0,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> selection.Selection:
        """Return the model with the best alpha by a criterion.

        Parameters
        ----------
        X, alphas
            As in `path`.
        criterion : {"ebic", "cv"}
            "ebic": -2 n p score + sum over sets of (log n + 2 gamma log C(p, |S|)), the extended
            BIC of the pseudo-likelihood (Foygel and Drton, NeurIPS 2010).  "cv": the mean over
            folds of the score of held-out rows.  Both weight the rows by `sample_weight`; n is the
            sum of the weights.
        gamma : float
            The weight, >= 0, of the number of candidate sets; 0 is BIC.
        folds : int
            The number of folds of "cv".
        rng : Generator, int or None
            Assigns the rows to folds.
        sample_weight, offset, covariates
            As in `fit`.
        """
        checks.one_of("criterion", criterion, ("ebic", "cv"))
        gamma = checks.positive_number("gamma", gamma, allow_zero=True)
        parts = checks.positive_integer("folds", folds, minimum=2)
        random = checks.generator(rng)
        rows = selection.used_rows(X, sample_weight, offset, covariates)
        models = self.path(rows.x, alphas, feature_names=feature_names, **rows.attributes)
        if criterion == "ebic":
            return selection.by_ebic(models, rows, gamma)
        return selection.by_cross_validation(self, models, rows, parts, random)

    def stability(
        self,
        X: MatrixLike,
        *,
        samples: int = 50,
        rng: Seed = 0,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> dict[tuple[str, ...], float]:
        """Return the share of random halves of the rows on which each set is selected.

        A dict from sets of names to shares in (0, 1], the largest first.  The model is fitted to
        `samples` halves.  Source: Meinshausen and Buehlmann, Journal of the Royal Statistical
        Society B 72 (2010).
        """
        generator = checks.generator(rng)
        samples = checks.positive_integer("samples", samples)
        rows = selection.used_rows(X, sample_weight, offset, covariates)
        return selection.stability(self, rows, samples, generator, feature_names)

    def node_conditional(self, s: int, x: npt.ArrayLike) -> conditionals.NodeConditional:
        """Return p(x_s | all other x), with its `log_prob`, `mean`, `sample` and `log_partition`.

        Parameters
        ----------
        s : int
            The column.
        x : (p,) array-like
            The values of all variables; x[s] is not used.

        After a fit with an offset, this and the other distributions are those of offset 0, with a
        warning; `at` has those of another one.
        """
        parameters = self._joint()
        node = int(checks.index_array("s", s, parameters.features, ()))
        return conditionals.node_conditional(parameters, node, x, self.names_)

    def radial_conditional(self, v: npt.ArrayLike) -> conditionals.RadialConditional:
        """Return the density along x = z v for v (p,), with its `log_density` and `sample`."""
        return conditionals.radial_conditional(self._joint(), v, self.names_)

    def is_normalizable(self) -> normalization.Normalizability:
        """Return whether the model can be normalised, with a certificate or a counterexample.

        Exponential and Gaussian models of few variables that are close to the boundary take up to
        about 15 s.
        """
        return normalization.is_normalizable(self._joint())

    def gibbs(
        self,
        k: int,
        rng: Seed = None,
        *,
        burn_in: int = 200,
        thin: int = 5,
        chains: int = 4,
        offset: float = 0.0,
    ) -> sampling.GibbsSample:
        """Return k Gibbs draws with their R-hat and effective sample sizes.

        Parameters
        ----------
        k : int
        rng : Generator, int or None
        burn_in, thin : int
            Each chain makes `burn_in` sweeps first, then `thin` sweeps before each draw.
        chains : int
        offset : float
            The offset of the drawn rows, for example the log of their exposure.

        Raises
        ------
        InfeasibleError
            The model is known to have no normalizer.
        NotSupportedError
            A conditional cannot be drawn, for example if its mean exceeds a million.
        """
        parameters = self._joint(float(checks.real_array("offset", offset, ())))
        return sampling.gibbs(parameters, k, rng, burn_in=burn_in, thin=thin, chains=chains)

    def sample(self, k: int, rng: Seed = None) -> FloatArray:
        """Return k Gibbs draws (k, p) float64, with the defaults of `gibbs`.

        Warns if there are enough draws to see that the chains have not mixed.
        """
        drawn = self.gibbs(k, rng)
        sampling.warn_if_unmixed(drawn)
        return drawn.values

    def log_partition(
        self,
        method: Literal["auto", "exact", "ais"] = "auto",
        *,
        samples: int = 200,
        steps: int = 200,
        rng: Seed = None,
    ) -> partition.PartitionEstimate:
        """Return log Z in nats.

        It is exact for independent variables, for the Gaussian base with k <= 2 and, unless the sum
        is too large, for counts with p <= 3.  Otherwise it is an estimate with a standard error, by
        annealed importance sampling with `samples` chains of `steps` steps.

        Raises
        ------
        InvalidInputError
            method is "exact", and there is no exact method for the model.
        InfeasibleError
            The model is known to have no normalizer.
        """
        return partition.log_partition(self._joint(), method, samples=samples, steps=steps, rng=rng)

    def at(
        self, covariates: npt.ArrayLike | None = None, *, offset: float = 0.0
    ) -> "GeneralizedRootModel":
        """Return the joint model of rows with these covariates and this offset.

        Parameters
        ----------
        covariates : (d,) array-like, optional
            As in `fit`; required if the fit had covariates.
        offset : float
            As in `fit`.

        Returns
        -------
        GeneralizedRootModel
            A copy without covariates and offset, whose intercepts include both; for `gibbs`,
            `log_partition`, `node_conditional` and other methods.

        Examples
        --------
        >>> from fstgrad import GeneralizedRootModel
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(300, 1))
        >>> X = rng.poisson(np.exp(z * [0.5, -0.5, 0.0]))
        >>> model = GeneralizedRootModel(k=2, alpha=0.2).fit(X, covariates=z)
        >>> draws = model.at([2.0]).sample(50, rng=0)
        >>> bool(draws[:, 0].mean() > draws[:, 1].mean())
        True
        """
        parameters = self._fitted()
        row = row_covariates.of_row(covariates, parameters.covariates, self.covariate_names_)
        model = copy.copy(self)
        shift = float(checks.real_array("offset", offset, ()))
        model.parameters_ = parameters.at_offset(shift, row)
        added = model.parameters_.intercepts[:, 0] - parameters.intercepts[:, 0]
        model.node_fits_ = [
            fit.without_slopes(len(row), more)
            for fit, more in zip(self.node_fits_, added, strict=True)
        ]
        model.uses_offset_, model.covariate_names_ = False, None
        return model

    def calibrate(
        self,
        X: Any,
        *,
        sweeps: int = 1000,
        chains: int = 200,
        rng: Seed = 0,
        sample_weight: npt.ArrayLike | None = None,
    ) -> calibration.Calibration:
        """Change the intercepts until samples have the mean statistics of X; return what remains.

        A pseudo-likelihood fits each node given the others.  If the family is wrong for the data,
        samples of the joint distribution may have other means.  This method solves the likelihood
        equations of the intercepts, E_model[t] = E_data[t], by stochastic approximation.  It
        replaces the parameters of the model; the interactions do not change.  The cost is sweeps *
        chains draws of every variable, up to three times.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            The data of the fit.
        sweeps : int
            The number of Gibbs sweeps, each with one step of the intercepts.
        chains : int
            The number of persistent chains; half start at rows of X, half at draws of the
            independent model.
        rng : Generator, int or None
            For the chains.
        sample_weight : (n,) array-like, optional
            As in `fit`.

        Returns
        -------
        Calibration
            `parameters`, and `gap` (p, c): |E_model[t] - E_data[t]| over the second half of the
            sweeps, in standard deviations of the data.  A large gap means that the chains have not
            mixed, or that the family cannot have these means; in the second case, use another base.

        Raises
        ------
        InvalidInputError
            The model was fitted with an offset or covariates.
        InfeasibleError
            The model is known to have no normalizer.
        """
        if self.uses_offset_:
            raise InvalidInputError(
                "calibrate: the model was fitted with an offset, so that its rows have different "
                "means; fit a model without an offset to rows of the same exposure"
            )
        parameters = self._joint()
        check_same_rows(X=X, sample_weight=sample_weight)
        x = self._validated(X, reset=False)
        weights = preparation.sample_weights(sample_weight, x.shape[0])
        terms = terms_of(parameters.k, self.interactions)
        free = parameters.family.free_coordinates(parameters.k)
        calibrated = calibration.calibrate(
            parameters, x.toarray(), weights, intercept_coordinates(terms, free),
            sweeps=sweeps, chains=chains, rng=rng,
        )  # fmt: skip
        self.parameters_ = calibrated.parameters
        return calibrated

    def top_interactions(
        self,
        order: int,
        top: int = 10,
        *,
        sign: Literal["both", "positive", "negative"] = "both",
    ) -> list[WeightedSet]:
        """Return up to `top` sets of `order` variables, the strongest coefficients first.

        sign : "both" ranks by absolute value; the others select coefficients of one sign.
        For order 1, all single variables are ranked by theta_s, the largest first (with sign
        "negative", the smallest first).
        """
        parameters = self._fitted()
        order = checks.positive_integer("order", order)
        top = checks.positive_integer("top", top)
        checks.one_of("sign", sign, ("both", "positive", "negative"))
        return report.strongest_sets(parameters, self.names_, order, top, sign)

    def to_networkx(self, top: int | None = None) -> Any:
        """Return a networkx graph of the sets: all, or the `top` strongest of each size.

        The edge attribute `weight` is the coefficient of the pair, 0 if there is none.  A larger
        set joins each pair of its members by an edge, and each of these edges lists it in its
        attribute `sets` as (names, value).
        """
        checks.extra("networkx", "grm", "to_networkx")
        if top is not None:
            top = checks.positive_integer("top", top)
        return report.graph_of_sets(self._fitted(), self.names_, top)

    def plot(self, top: int = 30, ax: Any = None) -> Any:
        """Draw the graph of the `top` strongest sets of each size; return the matplotlib axes.

        ax : axes to draw on; by default, those of a new figure.
        """
        checks.extra("networkx", "grm", "plot")
        pyplot = checks.extra("matplotlib.pyplot", "plot", "plot")
        if ax is not None:
            checks.instance("ax", ax, pyplot.Axes, "the axes of a figure of matplotlib")
        graph = self.to_networkx(top)
        axes = pyplot.subplots()[1] if ax is None else ax
        add_word_graph(axes, graph.edge_subgraph(graph.edges))
        return axes

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the columns, (p,)."""
        self._fitted()
        return np.array(self.names_, dtype=object)

    def score(
        self,
        X: Any,
        y: None = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> float:
        """Return the weighted mean over rows, and the mean over nodes, of log p(x_s | all other x).

        In nats; the arguments are those of `fit`.
        """
        check_same_rows(X=X, sample_weight=sample_weight)
        log_likelihood = self.pseudo_log_likelihood(X, offset=offset, covariates=covariates)
        weights = preparation.sample_weights(sample_weight, len(log_likelihood))
        used = weights > 0
        total = weights[used] @ log_likelihood[used]
        return float(total / weights.sum() / self.parameters_.features)

    def pseudo_log_likelihood(
        self,
        X: Any,
        *,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Return sum_s log p(x_s | all other x) of each row, (n,) float64, in nats.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            As in `fit`.
        offset : (n,) array-like, optional
            As in `fit`; required if the fit had an offset.
        covariates : (n, d) array-like, optional
            As in `fit`; required if the fit had covariates.

        Raises
        ------
        InvalidInputError
            X, the offset or the covariates are invalid or missing, or a log-likelihood overflows.
        """
        parameters = self._fitted()
        check_same_rows(X=X, offset=offset, covariates=covariates)
        x = self._validated(X, reset=False)
        return parameters.pseudo_log_likelihood(x, self._shifts(x.shape[0], offset, covariates))

    score_samples = pseudo_log_likelihood  # the name in scikit-learn

    def report(
        self,
        X: Any,
        *,
        samples: int = 2000,
        rng: Seed = 0,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        bootstrap: int = 0,
        top: int = 10,
    ) -> FitReport:
        """Return a comparison of Gibbs draws with data X (n, p), and the strongest sets.

        `print(model.report(X))` shows means, variances, shares of zeros, rank correlations and
        maximum mean discrepancies, then the sets with their coefficients and the rows of X that
        support them.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            The data of the fit or other rows.
        samples : int
            The number of draws.  If the rows have offsets or covariates, each draw has those of a
            random row of X.
        rng : Generator, int or None
            For the draws and the resampled rows.
        sample_weight, offset, covariates
            As in `fit`; the last two are required if the fit had them.  A row with a weight k
            counts as k copies (`report.copies_of_rows`).
        bootstrap : int
            The number of fits to rows drawn with replacement, with the settings of the model; 0 for
            none.  The report then has the share of fits that select each set with the same sign.
        top : int
            The number of sets of each size in the report.
        """
        self._fitted()
        check_same_rows(X=X, sample_weight=sample_weight, offset=offset, covariates=covariates)
        x, shift = self._validated(X, reset=False), None
        if self.uses_offset_ or self.parameters_.covariates or offset is not None:
            shift = self._shifts(x.shape[0], offset, covariates)
        elif covariates is not None:
            row_covariates.checked(covariates, x.shape[0], 0)
        copies = report.copies_of_rows(sample_weight, x.shape[0])
        rows, sizes = {"offset": offset, "covariates": covariates}, (samples, bootstrap, top)
        return report.fit_report(self, x, shift, rows, copies, sizes, rng)

    def supporting_rows(self, X: Any, names: Sequence[str], top: int = 5) -> list[int]:
        """Return up to `top` rows of X with the largest |product| of the columns `names`.

        The largest first; rows with product 0 are left out.
        """
        self._fitted()
        x = self._validated(X, reset=False).toarray()
        columns = report.columns_of(names, self.names_)
        return report.supporting_rows(x, columns, checks.positive_integer("top", top))

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
        x, base = self._validated(X, reset=True), resolve(self.base)
        frame_names = getattr(self, "feature_names_in_", column_names(X))
        self.names_ = preparation.names_of_columns(feature_names, frame_names, x.shape[1])
        if feature_names is not None:
            preparation.check_one_naming(self.names_, X)
        self.covariate_names_ = column_names(covariates)
        preparation.match_columns(self, "covariates", covariates, reset=True)
        rows = preparation.weighted_rows(x, sample_weight, offset, covariates, base)
        return prepare(
            rows, base, int(self.k), self.interactions, scale_columns=self.scale_columns,
            max_memory=float(self.max_memory), covariate_alpha=float(self.covariate_alpha),
        )  # fmt: skip

    def _validated(self, X: MatrixLike, *, reset: bool) -> sparse.csr_matrix:
        """Return X as CSR float64 without stored zeros, checked by scikit-learn and the base."""
        return preparation.validated(self, X, reset=reset)

    def _settings(self) -> FitSettings:
        """Return the arguments that determine how a fit is solved."""
        names, sets = self.names_, self.candidate_sets
        return FitSettings(
            float(self.alpha), float(self.tol), int(self.max_iter), self.screening,
            worker_count(self.n_jobs), self.symmetrize if self.k > 1 else "average",
            isinstance(sets, str), preparation.candidates(sets, len(names), int(self.k), names),
            self.checkpoint, self.get_params(), names if self.verbose else None,
        )  # fmt: skip

    def _solve(self, problem: Problem, *, uses_offset: bool) -> None:
        """Fit the nodes, combine them, and store the result."""
        start, features = None, problem.x.shape[1]
        if self.warm_start and hasattr(self, "node_fits_"):
            start = self.node_fits_, self.parameters_
        solution = fitting.fit(problem, self._settings(), start)
        self.families_ = problem.families
        self.node_fits_: list[NodeFit] = solution.node_fits
        self.parameters_ = solution.parameters
        self.n_features_in_ = features
        self.uses_offset_: bool = uses_offset
        self.kkt_ = solution.kkt
        self.n_iter_ = solution.scans
        self.n_candidates_ = solution.candidates
        fitting.warn_of_defects(solution, self.tol)

    def _shifts(
        self, rows: int, offset: npt.ArrayLike | None, covariates: npt.ArrayLike | None
    ) -> FloatArray:
        """Return what offsets and covariates of the rows add to eta_1 of each node, (n, p)."""
        parameters = self._fitted()
        if offset is None and self.uses_offset_:
            raise InvalidInputError(
                "the model was fitted with an offset, and offset is None; give the offsets of the "
                "rows, zeros for an exposure of 1"
            )
        check_columns("covariates", covariates, self.covariate_names_)
        preparation.match_columns(self, "covariates", covariates)
        z = row_covariates.checked(covariates, rows, parameters.covariates)
        return parameters.shifts(preparation.offsets(offset, rows, parameters.family), z)

    def _fitted(self) -> Parameters:
        if not hasattr(self, "parameters_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(X) first")
        return self.parameters_

    def _joint(self, offset: float = 0.0) -> Parameters:
        return self._fitted().of_one_row(offset, uses_offset=self.uses_offset_)
