"""The base families: counts (Poisson), positive numbers (exponential), real numbers (Gaussian).

A node conditional of a generalized root model is the univariate exponential family

    p(x) = exp( sum_{j<=k} eta_j t_j(x) + B(x) - A(eta) ),      t_j(x) = T(x)^(1/j),

    Poisson      x = 0, 1, 2, ...   T = x     B = -log x!
    exponential  x > 0              T = x     B = 0
    Gaussian     x real             T = x^2   B = 0    (an even root carries the sign of x: t_2 = x)

A, its gradient E[t] and its Hessian Cov[t] come from two independent routes: "direct" (a sum or a
quadrature in compiled loops, with the largest error it can have) and "bounds" (piecewise-linear
bounds, Section 5 of Inouye, Ravikumar and Dhillon 2016; `fstgrad.grm.bounds`).
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad import checks
from fstgrad.checks import FloatArray
from fstgrad.errors import InvalidInputError

Method = Literal["direct", "bounds"]
EMPTY = -100.0  # eta_1 of a count that never occurs, in place of log 0
SMALLEST_MEAN = 1e-12  # of a positive or real variable that is always 0


class Bounds(NamedTuple):
    """A value between two bounds, arrays of one shape (or floats)."""

    lower: FloatArray
    value: FloatArray
    upper: FloatArray


class Base(ABC):
    """A base family; instances hold no state and are equal when their families are."""

    name: ClassVar[str]

    def log_partition(
        self,
        eta: npt.ArrayLike,
        *,
        method: Method = "direct",
        domains: int = 10,
        tol: float | None = None,
    ) -> Bounds:
        """Return A(eta) in nats between a lower and an upper bound.

        Parameters
        ----------
        eta : (..., k) array-like
            The coefficients of T, T^(1/2), ..., T^(1/k).
        method : {"direct", "bounds"}
            "direct": the sum or the quadrature, whose bounds are its stated remainder and the
            rounding.  "bounds": piecewise-linear bounds; the value is the middle.
        domains : int
            How many subdomains the bounds have.
        tol : float, optional
            Split subdomains further until upper - lower <= tol (or 4096 of them).

        Returns
        -------
        Bounds
            (lower, value, upper), each (...) float64.

        Raises
        ------
        InvalidInputError
            eta is not finite, or has no normalizer: the first coefficient that is not zero must
            be negative for the exponential and the Gaussian base.

        Examples
        --------
        >>> interval = Poisson().log_partition([0.5])
        >>> bool(abs(interval.value - np.exp(0.5)) < 1e-12)
        True
        """
        array = self._checked(eta)
        rows = array.reshape(-1, array.shape[-1])
        checks.one_of("method", method, ("direct", "bounds"))
        if method == "bounds":
            from fstgrad.grm import bounds

            lower, upper = bounds.log_moment(self, rows, 0.0, domains=domains, tol=tol)
            return _shaped(Bounds(lower, 0.5 * (lower + upper), upper), array.shape[:-1])
        interval, _, _ = self._direct(rows, 1e-13)
        self._refuse_nan(interval[:, 0], rows)
        value, error = interval.T
        return _shaped(Bounds(value - error, value, value + error), array.shape[:-1])

    def gradient(self, eta: npt.ArrayLike) -> FloatArray:
        """Return E[t], the gradient of A, (..., k)."""
        array = self._checked(eta)
        _, mean, _ = self._direct(array.reshape(-1, array.shape[-1]), 1e-13)
        return mean.reshape(array.shape)

    def hessian(self, eta: npt.ArrayLike) -> FloatArray:
        """Return Cov[t], the Hessian of A, (..., k, k)."""
        array = self._checked(eta)
        _, _, covariance = self._direct(array.reshape(-1, array.shape[-1]), 1e-13)
        return covariance.reshape((*array.shape, array.shape[-1]))

    def gradient_bounds(
        self, eta: npt.ArrayLike, *, domains: int = 10, tol: float | None = None
    ) -> Bounds:
        """Return E[t], (..., k), between piecewise-linear bounds.

        E[T^a] = exp(M(a) - M(0)) with M(a) = log of the integral of T^a exp(<eta, t> + B).
        """
        from fstgrad.grm import bounds

        array = self._checked(eta)
        rows = array.reshape(-1, array.shape[-1])
        lower, upper = bounds.moments(self, rows, domains=domains, tol=tol)
        return _shaped(Bounds(lower, 0.5 * (lower + upper), upper), array.shape)

    def hessian_bounds(
        self, eta: npt.ArrayLike, *, domains: int = 10, tol: float | None = None
    ) -> Bounds:
        """Return Cov[t], (..., k, k), between bounds made of those of E[t t'] and E[t]."""
        from fstgrad.grm import bounds

        array = self._checked(eta)
        rows = array.reshape(-1, array.shape[-1])
        lower, upper = bounds.covariances(self, rows, domains=domains, tol=tol)
        return _shaped(Bounds(lower, 0.5 * (lower + upper), upper), (*array.shape, array.shape[-1]))

    def derivatives(self, eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return A (n,), E[t] (n, k) and Cov[t] (n, k, k) for the fit; A = +inf is infeasible."""
        interval, mean, covariance = self._direct(eta, 1e-8)
        return np.ascontiguousarray(interval[:, 0]), mean, covariance

    def exponents(self, k: int) -> FloatArray:
        """Return the powers of |x| in t_1, ..., t_k."""
        return self.power / np.arange(1, k + 1)

    power: ClassVar[int] = 1

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t(x), (..., k), of values x (...)."""
        values = np.asarray(x, dtype=np.float64)[..., None]
        return np.abs(values) ** self.exponents(k)

    @abstractmethod
    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return B(x)."""

    @abstractmethod
    def independent(self, mean: float) -> float:
        """Return eta_1 of the maximum likelihood with k = 1, given the mean of T."""

    @abstractmethod
    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are possible."""

    @abstractmethod
    def _direct(
        self, eta: FloatArray, tolerance: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return A with its error (n, 2), E[t] (n, k) and Cov[t] (n, k, k)."""

    def _checked(self, eta: npt.ArrayLike) -> FloatArray:
        array = checks.real_array("eta", eta)
        if array.ndim == 0 or array.shape[-1] == 0:
            raise InvalidInputError(f"eta has shape {array.shape}; the shape must be (..., k)")
        return np.ascontiguousarray(array)

    def _refuse_nan(self, value: FloatArray, rows: FloatArray) -> None:
        bad = np.flatnonzero(np.isnan(value))
        if bad.size:
            raise InvalidInputError(
                f"eta {rows[bad[0]].tolist()} passes what the direct sum can do; "
                'give method="bounds"'
            )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Poisson(Base):
    """Counts: x = 0, 1, 2, ..., T = x, B = -log x!; every eta has a normalizer."""

    name = "poisson"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return -log x!."""
        from scipy.special import gammaln

        return -np.asarray(gammaln(np.asarray(x, dtype=np.float64) + 1.0))

    def independent(self, mean: float) -> float:
        """Return log mean; -100 stands for log 0."""
        return float(np.log(mean)) if mean > 0 else EMPTY

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are whole numbers >= 0."""
        wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}; the Poisson base models counts 0, 1, 2, ...: "
                'Negative values in data, or fractions, need base="gaussian" or "exponential"'
            )

    def _direct(
        self, eta: FloatArray, tolerance: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        from fstgrad.grm.kernels.poisson import derivatives

        out = _outputs(eta)
        derivatives(eta, *tables(eta.shape[1]), *out)
        return out


class Exponential(Base):
    """Positive numbers: T = x, B = 0; the first eta_j that is not zero must be negative."""

    name = "exponential"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return 0."""
        return np.zeros(np.shape(x))

    def independent(self, mean: float) -> float:
        """Return -1 / mean."""
        return -1.0 / max(mean, SMALLEST_MEAN)

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are >= 0."""
        wrong = np.flatnonzero(values < 0)
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}; the exponential base models numbers >= 0: "
                'Negative values in data need base="gaussian"'
            )

    def _checked(self, eta: npt.ArrayLike) -> FloatArray:
        array = super()._checked(eta)
        rows = array.reshape(-1, array.shape[-1])
        leading = rows[np.arange(len(rows)), np.argmax(rows != 0, axis=1)]
        if (leading >= 0).any():
            worst = rows[np.argmax(leading >= 0)].tolist()
            raise InvalidInputError(
                f"eta {worst} cannot be normalised under the {self.name} base; the first "
                "coefficient that is not zero must be negative"
            )
        return array

    def _direct(
        self, eta: FloatArray, tolerance: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        from fstgrad.grm.kernels.halfline import derivatives

        out = _outputs(eta)
        derivatives(eta, False, tolerance, *out)
        return out


class Gaussian(Exponential):
    """Real numbers: T = x^2, t_j = |x|^(2/j) with the sign of x for even j; k = 2 is Gaussian."""

    name = "gaussian"
    power = 2

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t(x), (..., k), of values x (...)."""
        even = np.arange(1, k + 1) % 2 == 0
        sign = np.where(even, np.sign(np.asarray(x, dtype=np.float64)[..., None]), 1.0)
        return sign * super().statistics(x, k)

    def independent(self, mean: float) -> float:
        """Return -1 / (2 mean of x^2)."""
        return -0.5 / max(mean, SMALLEST_MEAN)

    def check_values(self, values: FloatArray) -> None:
        """Every finite number is possible."""

    def _direct(
        self, eta: FloatArray, tolerance: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        from fstgrad.grm.kernels.halfline import derivatives, gaussian_pair

        out = _outputs(eta)
        if eta.shape[1] <= 2:
            gaussian_pair(eta, *out)
        else:
            derivatives(eta, True, tolerance, *out)
        return out


BASES: dict[str, Base] = {base.name: base for base in (Poisson(), Exponential(), Gaussian())}


@cache
def tables(k: int) -> tuple[FloatArray, FloatArray]:
    """Return x^(1/j), (TABLE + 1, k), and log x! of the counts that are looked up."""
    from scipy.special import gammaln

    from fstgrad.grm.kernels.poisson import TABLE

    x = np.arange(TABLE + 1.0)
    return np.stack([x ** (1.0 / j) for j in range(1, k + 1)], axis=1), gammaln(x + 1.0)


def _outputs(eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    m, k = eta.shape
    return np.empty((m, 2)), np.empty((m, k)), np.empty((m, k, k))


def _shaped(interval: Bounds, shape: tuple[int, ...]) -> Bounds:
    """Reshape the three arrays; a single eta gives floats."""
    return Bounds(*(part.reshape(shape)[()] for part in interval))
