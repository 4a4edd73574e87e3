"""The choice of alpha: alpha_max, paths, EBIC, cross-validation, stability selection."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.labels import check_same_rows
from fstgrad.core.summary import short_repr
from fstgrad.grm import preparation
from fstgrad.grm.problem import Problem, largest_useful_alpha

MatrixLike = Any
SMALLEST_SHARE = 0.01  # a default path ends at this share of alpha_max


@dataclass(frozen=True)
class Selection:
    """The best model along a path, and the criterion for all its alphas.

    model : the model of the best alpha, fitted to all rows.
    alphas : (m,) float64, decreasing.
    criterion : (m,) float64, EBIC in nats (smaller is better), or the mean held-out score in nats
        (larger is better).
    """

    model: Any
    alphas: FloatArray
    criterion: FloatArray

    __repr__ = short_repr


class SelectionMixin:
    """Methods that fit a model many times; they do not change the model itself."""

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

        With symmetrize="joint", it is that of the joint fit; otherwise, the largest over all node
        regressions.  The arguments are those of `fit`.
        """
        model = self._copy()
        problem = model._prepared(X, sample_weight, offset, feature_names, covariates)
        return largest_useful_alpha(problem, model._solving(), model._is_joint())

    def path(
        self,
        X: MatrixLike,
        alphas: Sequence[float] | int = 10,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> list[Any]:
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
        first = self._copy()
        problem = first._prepared(X, sample_weight, offset, feature_names, covariates)
        problem.keep = not first._is_joint() and problem.joint_bytes() <= problem.max_memory
        models: list[Any] = []
        for alpha in self._alphas(problem, alphas).tolist():
            model = self._copy(alpha=alpha, warm_start=True)
            preparation.check_parameters(model)
            model._adopt(first)
            if models:
                model.node_fits_ = models[-1].node_fits_
                model.parameters_ = models[-1].parameters_
            model._solve(problem)
            model.uses_offset_ = offset is not None
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
    ) -> Selection:
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
        X, given = _weighted(X, sample_weight, offset, covariates)
        models = self.path(X, alphas, feature_names=feature_names, **given)
        found = np.array([model.alpha for model in models])
        if criterion == "ebic":
            n = len(_rows(X)) if sample_weight is None else float(np.sum(given["sample_weight"]))
            if n <= 1:
                raise InvalidInputError(
                    f"sample_weight sums to {n:g}, and EBIC takes this as the number of rows; give "
                    'weights that are numbers of copies, or criterion="cv"'
                )
            values = np.array([_ebic(m, n, m.score(X, **given), gamma) for m in models])
            return Selection(models[int(np.argmin(values))], found, values)
        parts = checks.positive_integer("folds", folds, minimum=2)
        rows = _rows(X)
        fold = checks.generator(rng).permutation(len(rows)) % parts
        scores = np.zeros(len(found))
        for number in range(parts):
            inside, outside = rows[fold != number], rows[fold == number]
            fits = self.path(_take(X, inside), found.tolist(), **_taken(given, inside))
            held, its = _take(X, outside), _taken(given, outside)
            scores += [model.score(held, **its) / parts for model in fits]
        return Selection(models[int(np.argmax(scores))], found, scores)

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
        X, given = _weighted(X, sample_weight, offset, covariates)
        rows, found = _rows(X), dict[tuple[str, ...], int]()
        for _ in range(samples):
            half = np.sort(generator.permutation(rows)[: len(rows) // 2])
            its = _taken(given, half)
            model = self._copy().fit(_take(X, half), feature_names=feature_names, **its)
            chosen = {
                tuple(model.names_[s] for s in members)
                for term in model.parameters_.interactions
                for members in term.sets.tolist()
            }
            for names in chosen:
                found[names] = found.get(names, 0) + 1
        ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return {names: count / samples for names, count in ranked}

    def _adopt(self, other: Any) -> None:
        """Copy the attributes that `_prepared` set for X."""
        for name in ("names_", "covariate_names_", "n_features_in_", "feature_names_in_"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))

    def _alphas(self, problem: Problem, alphas: Sequence[float] | int) -> FloatArray:
        """Return the penalties (m,), the largest first."""
        if isinstance(alphas, int | np.integer):
            count = checks.positive_integer("alphas", alphas)
            model = self._copy()
            top = largest_useful_alpha(problem, model._solving(), model._is_joint())
            return np.geomspace(top, SMALLEST_SHARE * top, count)
        given = checks.real_array("alphas", alphas, (None,))
        if not given.size:
            raise InvalidInputError("alphas is empty; give at least one penalty")
        return np.sort(given)[::-1]

    def _copy(self, **changes: Any) -> Any:
        from sklearn.base import clone

        return clone(self).set_params(**changes)


def _ebic(model: Any, n: float, score: float, gamma: float) -> float:
    """Return the extended BIC of the pseudo-likelihood, in nats."""
    p = model.n_features_in_
    sizes = model.parameters_.flat.sizes
    candidates = sum(np.log(comb(p, int(size))) for size in sizes)
    return float(-2 * n * p * score + sizes.size * np.log(n) + 2 * gamma * candidates)


def _rows(x: MatrixLike) -> npt.NDArray[np.int64]:
    shape = getattr(x, "shape", None)
    if not shape:
        checks.instance("X", x, list | tuple, "an array, a sparse matrix or a data frame")
    return np.arange(shape[0] if shape else len(x))


def _weighted(
    x: MatrixLike,
    sample_weight: npt.ArrayLike | None,
    offset: npt.ArrayLike | None,
    covariates: npt.ArrayLike | None,
) -> tuple[MatrixLike, dict[str, Any]]:
    """Return X and its weights, offsets and covariates by name, without rows of weight 0."""
    given = {"sample_weight": sample_weight, "offset": offset, "covariates": covariates}
    check_same_rows(X=x, **given)
    if sample_weight is None:
        return x, given
    n = len(_rows(x))
    used = np.flatnonzero(preparation.sample_weights(sample_weight, n))
    given["sample_weight"] = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n)
    return (x, given) if len(used) == n else (_take(x, used), _taken(given, used))


def _taken(given: dict[str, Any], rows: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the weights, offsets and covariates of some rows."""
    return {name: None if a is None else _take(np.asarray(a), rows) for name, a in given.items()}


def _take(x: MatrixLike, rows: npt.NDArray[np.int64]) -> Any:
    """Return some rows of an array, a sparse matrix or a data frame."""
    from sklearn.utils import _safe_indexing

    try:
        return _safe_indexing(x, rows)
    except Exception as error:  # from __getitem__ of an unknown class
        raise InvalidInputError(
            f"X is a {type(x).__name__} whose rows cannot be selected; give an array, a sparse "
            "matrix or a data frame"
        ) from error
