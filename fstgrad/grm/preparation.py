"""Prepares the input of a fit: checks, roots of the data, columns that vary, candidate sets."""

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fstgrad.core import checks
from fstgrad.core.axis_labels import check_columns, check_mask, column_names
from fstgrad.core.axis_labels import column_labels as labels_of
from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import items, members
from fstgrad.grm import covariates as row_covariates
from fstgrad.grm.base import Base
from fstgrad.grm.families import resolve

MatrixLike = npt.ArrayLike | sparse.csr_matrix
_NO_NAME = ("None", "nan", "NaN", "NaT", "<NA>")  # texts of objects that stand for a missing name
NAMES_OF_COLUMNS = (  # attributes of a model
    "names_", "column_labels_", "covariate_names_", "n_features_in_", "feature_names_in_",
    "kept_columns_",
)  # fmt: skip
LEAST_OFFSET = -700.0  # nats: the log of an exposure near the smallest positive float64
LARGEST_OFFSET = 30.0  # nats: the log of an exposure of 10^13; with a ridge, of a ratio of two


class NotNumbers(InvalidInputError, TypeError):
    """X has entries that are not numbers; also a TypeError, which scikit-learn expects."""


def check_parameters(model: Any) -> None:
    """Raise InvalidInputError if an argument of a `GeneralizedRootModel` is invalid."""
    checks.positive_integer("k", model.k)
    resolve(model.base)
    checks.positive_number("alpha", model.alpha)
    checks.one_of("interactions", model.interactions, ("strongest", "all"))
    checks.one_of("screening", model.screening, ("kkt", "none"))
    checks.one_of("symmetrize", model.symmetrize, ("joint", "average", "min", "max"))
    checks.positive_number("tol", model.tol)
    checks.positive_integer("max_iter", model.max_iter)
    checks.positive_number("max_memory", model.max_memory)
    checks.positive_number("covariate_alpha", model.covariate_alpha, allow_zero=True)
    checks.flag("scale_columns", model.scale_columns)
    checks.flag("warm_start", model.warm_start)
    checks.instance("verbose", model.verbose, bool | int, "True or False")
    if isinstance(model.candidate_sets, str):
        checks.one_of("candidate_sets", model.candidate_sets, ("stagewise",))


def copied_if_sparse(x: Any) -> Any:
    """Return X, copied if it is sparse, dense if it is a frame that leaves out other values than 0.

    Raises InvalidInputError if X is a damaged sparse matrix or has masked values, which
    scikit-learn would use as if they were data.
    """
    if sparse.issparse(x):
        copied = checks.sparse_matrix("X", x, copy=True)
        if copied.dtype == bool:  # True twice is True, as in x.toarray()
            copied = copied.tocsr()
            copied.sum_duplicates()
        return copied
    check_mask("X", x)
    left_out = [own.fill_value for own in getattr(x, "dtypes", ()) if hasattr(own, "fill_value")]
    if hasattr(x, "sparse") and any(value != 0 for value in left_out):
        return x.sparse.to_dense()
    return x


def check_kind(x: Any) -> None:
    """Raise TypeError if X has texts or times, which others read as counts, or complex numbers."""
    if not sparse.issparse(x) and (kind := checks.kind_of_others(x)):
        why = "Complex data not supported" if kind == "c" else "it has texts or times"
        raise TypeError(f"{why}; convert them")


def validated(model: Any, x: MatrixLike, *, reset: bool) -> sparse.csr_matrix:
    """Return X as CSR float64 without stored zeros, checked by scikit-learn and the base."""
    from sklearn.utils.validation import validate_data

    table = copied_if_sparse(x)
    if not reset and not hasattr(model, "feature_names_in_"):  # which scikit-learn compares
        check_columns("X", x, model.names_)
    try:
        check_kind(table)
        with warnings.catch_warnings():
            if not reset and column_names(x) == model.names_:  # those of `feature_names`
                warnings.filterwarnings("ignore", "X has feature names", UserWarning)
            array = validate_data(
                model, table, accept_sparse="csr", dtype=np.float64, reset=reset,
                ensure_all_finite=False,
            )  # fmt: skip
    except Exception as error:  # from scikit-learn, or from __array__ of an unknown class
        problem = ": " if isinstance(error, ValueError) else " is not a table of numbers: "
        raise NotNumbers(f"X{problem}{error}") from error
    match_columns(model, "X", x, reset=reset)
    if reset:
        model.kept_columns_ = None
    if not reset:
        check_columns("X", x, model.names_)  # also labels that are not those of a frame
    return modelled_matrix(array, resolve(model.base))


def modelled_matrix(array: Any, family: Base) -> sparse.csr_matrix:
    """Return the values that a family models as CSR (n, p) without duplicates and stored zeros.

    array : dense, or a CSR matrix that may be changed.
    Raises InvalidInputError if a value is missing, infinite or not allowed by the family.
    """
    x = sparse.csr_matrix(array)
    bad = np.flatnonzero(~np.isfinite(x.data))
    if bad.size:
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        shown = "NaN" if np.isnan(x.data[bad[0]]) else x.data[bad[0]]
        raise InvalidInputError(
            f"X[{row}, {x.indices[bad[0]]}] is {shown}; fill it, or leave the row out"
        )
    x.sum_duplicates()
    x.eliminate_zeros()
    x.data = family.modelled_values(x.data)
    family.check_values(x.data)
    return x


def match_columns(model: Any, name: str, table: Any, *, reset: bool = False) -> None:
    """Compare labels of columns that are no texts with those of the fit, or keep those of the fit.

    The labels 0, 1, ... are positions if the others are no permutation of them.  Files of models
    have the names only, texts of these labels.

    Raises
    ------
    InvalidInputError
        The labels differ, or are in another order.
    """
    kept, own = getattr(model, "column_labels_", {}), labels_of(table) or []
    own = [] if all(isinstance(label, str) for label in own) else own
    positions = list(range(len(own)))
    if reset:
        model.column_labels_ = {**kept, name: [] if own == positions else own}
        return
    names = model.names_ if name == "X" else model.covariate_names_
    known = own if own and column_names(table) == names else kept.get(name) or positions
    if own not in ([], known) and (set(own) == set(known) or positions not in (own, known)):
        raise InvalidInputError(
            f"{name} has the columns {own}, and that of the fit {known}; give them in this order: "
            f"{name}[{known}]"
        )


def names_of_columns(
    feature_names: Sequence[str] | None, frame_names: Any, features: int
) -> list[str]:
    """Return the argument `feature_names`, or the names of a data frame, or x0, x1, ..."""
    if feature_names is None:
        default = [f"x{i}" for i in range(features)]
        feature_names = default if frame_names is None else frame_names
    names = items("feature_names", feature_names)
    for i, name in enumerate(names):
        if isinstance(name, bytes):
            raise InvalidInputError(f"feature_names[{i}] is bytes, not text; decode it")
        if not isinstance(name, str) and str(name) in _NO_NAME:
            raise InvalidInputError(f"feature_names[{i}] is {name!r}, not a name; give a text")
    names = [str(name) for name in names]
    if len(set(names)) != features or len(names) != features:
        raise InvalidInputError(
            f"feature_names has {len(set(names))} distinct names for {features} columns of X"
        )
    return names


def check_one_naming(feature_names: Sequence[str], x: Any) -> None:
    """Raise InvalidInputError if the columns of X have other texts than `feature_names`."""
    labels, own = labels_of(x) or [], column_names(x)
    if own and own != list(feature_names) and all(isinstance(label, str) for label in labels):
        raise InvalidInputError(
            f"feature_names is {list(feature_names)}, and X has the columns {own}; leave "
            "feature_names out, or rename the columns of X"
        )


def statistics(
    x: sparse.csr_matrix, varying: BoolArray, base: Base, k: int
) -> dict[int, sparse.csr_matrix]:
    """Return t_j of the columns that vary, CSR (n, p) for each root j from 1 to k.

    varying : (p,) bool; the other columns are 0.  All matrices share the arrays of their pattern.
    """
    shared = sparse.csr_matrix(x @ sparse.diags(varying.astype(float)))
    shared.eliminate_zeros()
    shared.sort_indices()
    roots = base.statistics(shared.data, k)
    return {
        j: sparse.csr_matrix(
            (np.ascontiguousarray(roots[:, j - 1]), shared.indices, shared.indptr), shared.shape
        )
        for j in range(1, k + 1)
    }


def families(x: sparse.csr_matrix, weights: FloatArray, base: Base) -> tuple[Base, ...]:
    """Return the family of every column of x (n, p), its own parameters, if any, fitted.

    weights : (n,), > 0, of the rows.
    """
    if type(base).fitted_to is Base.fitted_to:
        return (base,) * x.shape[1]
    columns = x.tocsc()
    return tuple(
        base.fitted_to(columns[:, [node]].toarray().ravel(), weights) for node in range(x.shape[1])
    )


class Rows(NamedTuple):
    """The rows of a fit whose weight is positive; a row of weight 0 is as good as absent.

    x : CSR (m, p).  weights : (m,), mean 1.  offset : (m,).  covariates : (m, d).
    """

    x: sparse.csr_matrix
    weights: FloatArray
    offset: FloatArray
    covariates: FloatArray


def weighted_rows(
    x: sparse.csr_matrix,
    sample_weight: npt.ArrayLike | None,
    offset: npt.ArrayLike | None,
    covariates: npt.ArrayLike | None,
    base: Base,
) -> Rows:
    """Return the rows of x (n, p), with what belongs to them checked, that have a weight > 0.

    Raises InvalidInputError also if offsets are far apart in a fit whose ridge is at their mean.
    """
    n = x.shape[0]
    weights, shift = sample_weights(sample_weight, n), offsets(offset, n, base)
    z = row_covariates.checked(covariates, n)
    used = np.flatnonzero(weights)
    low, high = float(shift[used].min()), float(shift[used].max())
    if base.ridge and high - low > LARGEST_OFFSET:
        row = used[shift[used].argmin()]
        raise InvalidInputError(
            f"offset runs from {low:g} to {high:g}, and fits with the {base.name} base need "
            f"offsets within {LARGEST_OFFSET:g} nats; leave out the rows of negligible exposure "
            f"e^offset, such as row {row}"
        )
    if len(used) == n:
        return Rows(x, weights, shift, z)
    return Rows(x[used], sample_weights(weights[used], len(used)), shift[used], z[used])


def sample_weights(weights: npt.ArrayLike | None, samples: int) -> FloatArray:
    """Return the weights (n,) of the rows, scaled to mean 1; ones for None.

    Raises InvalidInputError for a negative weight, or if all are 0.
    """
    if weights is None:
        return np.ones(samples)
    if isinstance(weights, int | float):
        weights = np.full(samples, weights)
    array = checks.real_array("sample_weight", weights, (samples,))
    if (array < 0).any() or not array.any():
        raise InvalidInputError(
            f"sample_weight runs from {array.min()} to {array.max()}; give weights "
            ">= 0, not all zero"
        )
    array = array / array.max()  # the mean of the given weights may overflow
    return np.asarray(array / array.mean())


def offsets(offset: npt.ArrayLike | None, samples: int, base: Base) -> FloatArray:
    """Return the offsets (n,) of the rows, checked; zeros for None.

    Raises InvalidInputError for counts if they are too large for logarithms of exposures.
    """
    if offset is None:
        return np.zeros(samples)
    array = checks.real_array("offset", offset, (samples,))
    low, high = float(array.min()), float(array.max())
    if base.whole_numbers and low < LEAST_OFFSET:
        raise InvalidInputError(
            f"offset is {low:g} in row {array.argmin()}, and e^offset, the exposure of a row, is "
            "about 0 there; leave the row out"
        )
    if base.whole_numbers and high > LARGEST_OFFSET:
        raise InvalidInputError(
            f"offset runs from {low:g} to {high:g}, and e^offset is the exposure of a row; "
            f"give log(exposure), less a constant if that is above {LARGEST_OFFSET:g}"
        )
    return array


def varying_columns(x: sparse.csr_matrix, k: int) -> BoolArray:
    """Return which columns of x (n, p) vary, (p,) bool.

    Warns about constant columns if k > 1; they are kept without interactions.
    """
    spread = x.max(axis=0).toarray().ravel() - x.min(axis=0).toarray().ravel()
    constant = np.flatnonzero(spread == 0)
    if constant.size and k > 1:
        warnings.warn(
            f"{constant.size} column(s) of X are constant, the first is {constant[0]}; they are "
            "kept with no interactions",
            stacklevel=4,
        )
    return np.asarray(spread != 0)


def warn_of_means(base: Base, x: sparse.csr_matrix, weights: FloatArray) -> None:
    """Warn about columns of x (n, p) whose mean is far from 0, if the base has a mean of 0.

    weights : (n,), the weights of the rows
    """
    if base.name != "gaussian":
        return
    share = weights / weights.sum()
    mean = np.asarray(x.T @ share).ravel()
    deviation = np.sqrt(np.maximum(np.asarray(x.power(2).T @ share).ravel() - mean**2, 0.0))
    far = np.flatnonzero(np.abs(mean) > max(0.25, 4 / np.sqrt(x.shape[0])) * deviation)
    if far.size:
        s = far[0]
        warnings.warn(
            f"base 'gaussian' has mean 0, but {far.size} column(s) of X have not, the first is {s} "
            f"(mean {mean[s]:.3g}, standard deviation {deviation[s]:.3g}), so that sets stand for "
            "means; subtract the means of the columns",
            stacklevel=4,
        )


def candidates(
    sets: str | Sequence[Sequence[int | str]] | None, features: int, k: int, names: Sequence[str]
) -> dict[int, IntArray]:
    """Return the candidate sets (m, size) of each size from 2 to k, ascending.

    Returns an empty dict, which means all sets, for None and "stagewise".  Raises InvalidInputError
    for an unknown column or a set of fewer than two.
    """
    if sets is None or isinstance(sets, str):
        return {}
    number_of = {name: i for i, name in enumerate(names)}
    by_size: dict[int, set[tuple[int, ...]]] = {size: set() for size in range(2, k + 1)}
    for at, members_of_set in enumerate(members("candidate_sets", sets)):
        columns = members(f"candidate_sets[{at}]", members_of_set)
        unknown = [
            m
            for m in columns
            if not (m in number_of if isinstance(m, str) else checks.is_integer(m))
        ]
        if unknown:
            raise InvalidInputError(
                f"candidate_sets[{at}] names {unknown[0]!r}, which is not a column of X"
            )
        ids = sorted({number_of[m] if isinstance(m, str) else int(m) for m in columns})
        if len(ids) < 2 or ids[0] < 0 or ids[-1] >= features:
            raise InvalidInputError(
                f"candidate_sets[{at}] is {columns}; give two or more distinct columns "
                f"from 0 to {features - 1}"
            )
        for size in by_size:
            by_size[size].update(combinations(ids, size))
    return {
        size: np.array(sorted(distinct), dtype=np.int64).reshape(-1, size)
        for size, distinct in by_size.items()
    }
