"""The choice of alpha: alpha_max, paths, EBIC, cross-validation, stability selection."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.axis_labels import check_same_rows
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.grm import preparation
from fstgrad.grm.fitting import largest_useful_alpha
from fstgrad.grm.problem import FitSettings, Problem

MatrixLike = Any
SMALLEST_SHARE = 0.01  # a default path ends at this share of alpha_max


@dataclass(frozen=True, eq=False)
class Selection:
    """The best model along a path, and the criterion for all its alphas.

    model : the model of the best alpha, fitted to all rows.
    alphas : (m,) float64, decreasing.
    criterion : (m,) float64, EBIC in nats (smaller is better), or the mean held-out score in nats
        (larger is better).
    name : {"ebic", "cv"}, the criterion.
    """

    model: Any
    alphas: FloatArray
    criterion: FloatArray
    name: Literal["ebic", "cv"]

    __repr__ = short_repr

    def __str__(self) -> str:
        """Return a line for each alpha with its criterion; the best one has a mark."""
        better = "EBIC (nats; less is better)"
        if self.name == "cv":
            better = "held-out score (nats per entry; more is better)"
        lines = [f"{'alpha':>12s}  {better}"]
        for alpha, value in zip(self.alphas, self.criterion, strict=True):
            mark = "  chosen" if alpha == self.model.alpha else ""
            lines.append(f"{alpha:12.5g}  {value:.8g}{mark}")
        return "\n".join(lines)


class UsedRows(NamedTuple):
    """The rows of positive weight: X, and its weights, offsets and covariates by argument name."""

    x: MatrixLike
    attributes: dict[str, Any]

    @property
    def size(self) -> int:
        """Return n."""
        return _row_count(self.x)

    def part(self, rows: IntArray) -> "UsedRows":
        """Return some of the rows."""
        attributes = {
            name: None if values is None else _take(np.asarray(values), rows)
            for name, values in self.attributes.items()
        }
        return UsedRows(_take(self.x, rows), attributes)


def used_rows(
    x: MatrixLike,
    sample_weight: npt.ArrayLike | None,
    offset: npt.ArrayLike | None,
    covariates: npt.ArrayLike | None,
) -> UsedRows:
    """Return X and its weights, offsets and covariates by name, without rows of weight 0."""
    attributes: dict[str, Any] = {
        "sample_weight": sample_weight, "offset": offset, "covariates": covariates,
    }  # fmt: skip
    check_same_rows(X=x, **attributes)
    n = _row_count(x)
    if offset is not None:
        attributes["offset"] = checks.real_array("offset", offset, (n,))
    if covariates is not None:  # a data frame stays one, for the names of its columns
        checks.real_array("covariates", covariates, (n, None), may_have_labels=True)
    if sample_weight is None:
        return UsedRows(x, attributes)
    nonzero = np.flatnonzero(preparation.sample_weights(sample_weight, n))
    attributes["sample_weight"] = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n)
    every = UsedRows(x, attributes)
    return every if len(nonzero) == n else every.part(nonzero)


def penalties(problem: Problem, settings: FitSettings, alphas: Sequence[float] | int) -> FloatArray:
    """Return the alphas (m,) of a path, the largest first; a number stands for geometric steps."""
    if isinstance(alphas, int | np.integer):
        count = checks.positive_integer("alphas", alphas)
        largest = largest_useful_alpha(problem, settings)
        if largest == 0:
            raise InvalidInputError(
                "alpha has no effect on X, where fewer than two columns vary, or none together, or "
                "no candidate set does, so that no steps can be chosen; give a number as alpha"
            )
        return np.geomspace(largest, SMALLEST_SHARE * largest, count)
    array = checks.real_array("alphas", alphas, (None,))
    if not array.size:
        raise InvalidInputError("alphas is empty; give at least one penalty")
    return np.sort(array)[::-1]


def by_ebic(models: Sequence[Any], rows: UsedRows, gamma: float) -> Selection:
    """Return the model of a path with the least extended BIC; n is the sum of the weights."""
    weights = rows.attributes["sample_weight"]
    n = rows.size if weights is None else float(np.sum(weights))
    if n <= 1:
        raise InvalidInputError(
            f"sample_weight sums to {n:g}, and EBIC takes this as the number of rows; give "
            'weights that are numbers of copies, or criterion="cv"'
        )
    values = np.array([_ebic(m, n, m.score(rows.x, **rows.attributes), gamma) for m in models])
    return Selection(models[int(np.argmin(values))], _alphas(models), values, "ebic")


def by_cross_validation(
    estimator: Any, models: Sequence[Any], rows: UsedRows, folds: int, rng: np.random.Generator
) -> Selection:
    """Return the model of a path whose alpha has the largest mean score of held-out rows."""
    alphas, numbers = _alphas(models), np.arange(rows.size)
    if rows.size < folds:
        raise InvalidInputError(
            f"folds is {folds}, and {rows.size} row(s) have a weight above 0; give more rows, "
            "fewer folds or the criterion 'ebic'"
        )
    fold = rng.permutation(rows.size) % folds
    scores = np.zeros(len(alphas))
    for number in range(folds):
        inside, outside = rows.part(numbers[fold != number]), rows.part(numbers[fold == number])
        fits = estimator.path(inside.x, alphas.tolist(), **inside.attributes)
        scores += [model.score(outside.x, **outside.attributes) / folds for model in fits]
    return Selection(models[int(np.argmax(scores))], alphas, scores, "cv")


def stability(
    estimator: Any,
    rows: UsedRows,
    samples: int,
    rng: np.random.Generator,
    feature_names: Sequence[str] | None,
) -> dict[tuple[str, ...], float]:
    """Return the share of random halves of the rows on which each set is selected.

    As in `GeneralizedRootModel.stability`.
    """
    from sklearn.base import clone

    if rows.size < 2:
        raise InvalidInputError(
            "X has one row of weight above 0, and stability fits halves of the rows; give two or "
            "more"
        )
    counts: dict[tuple[str, ...], int] = {}
    for _ in range(samples):
        half = np.sort(rng.permutation(np.arange(rows.size))[: rows.size // 2])
        part = rows.part(half)
        model = clone(estimator).fit(part.x, feature_names=feature_names, **part.attributes)
        selected = {
            tuple(model.names_[s] for s in members)
            for term in model.parameters_.interactions
            for members in term.sets.tolist()
        }
        for names in selected:
            counts[names] = counts.get(names, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {names: count / samples for names, count in ranked}


def _alphas(models: Sequence[Any]) -> FloatArray:
    return np.array([model.alpha for model in models])


def _ebic(model: Any, n: float, score: float, gamma: float) -> float:
    """Return the extended BIC of the pseudo-likelihood, in nats."""
    p = model.n_features_in_
    sizes = model.parameters_.flat.sizes
    candidates = sum(np.log(comb(p, int(size))) for size in sizes)
    return float(-2 * n * p * score + sizes.size * np.log(n) + 2 * gamma * candidates)


def _row_count(x: MatrixLike) -> int:
    shape = getattr(x, "shape", None)
    if not shape:
        checks.instance("X", x, list | tuple, "an array, a sparse matrix or a data frame")
    return int(shape[0]) if shape else len(x)


def _take(x: MatrixLike, rows: IntArray) -> Any:
    """Return some rows of an array, a sparse matrix or a data frame."""
    from sklearn.utils import _safe_indexing

    try:
        return _safe_indexing(x, rows)
    except Exception as error:  # from __getitem__ of an unknown class
        raise InvalidInputError(
            f"X is a {type(x).__name__} whose rows cannot be selected; give an array, a sparse "
            "matrix or a data frame"
        ) from error
