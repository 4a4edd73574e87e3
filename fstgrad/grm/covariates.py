"""Covariates of the rows: shifts of the coefficient of T of every node, linear in z (n, d).

    eta_1 of node s at row i:  intercept_s + offset_i + sum_j z_ij slope_sj + (interactions).

In a fit, the columns of z are centered and scaled, and orthogonalized if there is no penalty, so
that coordinate descent converges fast.  The slopes and intercepts of a model are those of the
original z.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad.core import axis_labels, checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError

LARGEST = 1e100  # allowed covariate: its square, and sums of squares, are finite
DEPENDENT = 1e-8  # a column with a smaller share independent of the others counts as dependent


@dataclass(frozen=True)
class Covariates:
    """The columns of a fit: (z - center) @ basis, with a penalty for the coefficient of each.

    columns : (d, n) float64, transposed.  basis : (d, d).  center, penalties : (d,).
    """

    columns: FloatArray
    basis: FloatArray
    center: FloatArray
    penalties: FloatArray

    @property
    def count(self) -> int:
        """Return d."""
        return len(self.columns)

    def to_fit_basis(self, node_coefs: FloatArray) -> FloatArray:
        """Return f intercepts and d coefficients in the fit's columns from those of z.

        node_coefs : (..., f + d); the first intercept is that of T.
        """
        if not self.count:
            return node_coefs
        out, slopes = node_coefs.copy(), node_coefs[..., -self.count :]
        out[..., 0] += slopes @ self.center
        out[..., -self.count :] = np.linalg.solve(self.basis, slopes[..., None])[..., 0]
        return out

    def from_fit_basis(self, node_coefs: FloatArray) -> FloatArray:
        """Return f intercepts and d slopes of z from those in the fit's columns, (..., f + d)."""
        if not self.count:
            return node_coefs
        out, slopes = node_coefs.copy(), node_coefs[..., -self.count :] @ self.basis.T
        out[..., 0] -= slopes @ self.center
        out[..., -self.count :] = slopes
        return out


NONE = Covariates(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), np.zeros(0))


def checked(covariates: npt.ArrayLike | None, rows: int, count: int | None = None) -> FloatArray:
    """Return the covariates (n, d) of n rows, checked; (n, 0) for None.

    count : d of the fitted model, if there is one.

    Raises
    ------
    InvalidInputError
        The shape is wrong, or a value is NaN, infinite or beyond 1e100; or they are missing for a
        model with covariates, or given for one without.
    """
    if covariates is None:
        if count:
            raise InvalidInputError(
                f"the model was fitted with {count} covariate(s), and covariates is None; give "
                "those of the rows"
            )
        return np.zeros((rows, 0))
    if count == 0:
        raise InvalidInputError(
            "covariates is given, and the model was fitted without; leave it out, or fit with "
            "covariates"
        )
    z = checks.real_array("covariates", covariates, (rows, count), may_have_labels=True)
    largest = float(np.abs(z).max(initial=0.0))
    if largest > LARGEST:
        raise InvalidInputError(f"covariates holds {largest:.3g}; give values up to {LARGEST:.0e}")
    return z


def of_row(covariates: npt.ArrayLike | None, count: int, names: list[str] | None) -> FloatArray:
    """Return the covariates (d,) of one row, as `checked` does, after those of their labels."""
    axis_labels.check_names("covariates", covariates, names)
    z = None if covariates is None else checks.real_array("covariates", covariates, (None,))
    row: FloatArray = checked(z if z is None else z[None], 1, count)[0]
    return row


def prepare(z: FloatArray, weights: FloatArray, penalty: float) -> Covariates:
    """Return the columns of a fit from covariates z (n, d) and the weights (n,) of the rows.

    penalty : the weight of the l1 norm of the slopes, >= 0; 0 for no penalty.

    Raises
    ------
    InvalidInputError
        A column is constant or, without a penalty, a linear combination of others.
    """
    if not z.shape[1]:
        return NONE
    center = weights @ z / weights.sum()
    moved = z - center
    scale = np.sqrt(weights @ moved**2 / weights.sum())
    flat = np.flatnonzero(scale <= 1e-12 * np.maximum(np.abs(z).max(axis=0), 1e-300))
    if flat.size:
        raise InvalidInputError(
            f"covariates has the constant column {flat[0]}; leave it out, every node has an "
            "intercept"
        )
    basis = np.diag(1.0 / scale)
    if penalty == 0:
        root = np.sqrt(weights / weights.sum())
        factor = np.asarray(np.linalg.qr(root[:, None] * (moved / scale), mode="r"))
        left = np.abs(np.diagonal(factor))
        if factor.shape[0] < z.shape[1] or left.min() < DEPENDENT:
            raise InvalidInputError(
                f"covariates has column {int(left.argmin())}, a combination of the others; leave "
                "it out, or give covariate_alpha > 0"
            )
        basis = basis @ np.linalg.inv(factor)
    return Covariates(
        np.ascontiguousarray((moved @ basis).T),
        basis,
        center,
        penalty / scale * np.ones(len(scale)),
    )
