"""Base families: the univariate exponential family of one variable given the others.

    p(x) = exp( sum_{j<=k} eta_j t_j(x) + sum_{i<=e} eta_{k+i} u_i(x) + B(x) - A(eta) ),

with t_j(x) = T(x)^(1/j), through which the other variables act, and e additional statistics u_i
(for example the indicator of zero), which have only an intercept.  Below, t are all c = k + e
statistics.  There are two independent methods for A, its gradient E[t] and its Hessian Cov[t]:
"direct" (a sum or a quadrature in compiled loops, with a bound on its error) and "bounds"
(piecewise-linear bounds, section 4.2 of Inouye, Ravikumar and Dhillon 2016;
`fstgrad.grm.log_moments`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.grm import log_moments
from fstgrad.grm.measures import Integrand, Pair

Method = Literal["direct", "bounds"]
Derivatives = tuple[FloatArray, FloatArray, FloatArray]


class Bounds(NamedTuple):
    """A value between two bounds, lower <= value <= upper: arrays of one shape, or floats."""

    lower: FloatArray
    value: FloatArray
    upper: FloatArray


class Base(ABC):
    """A base family.  Two families of one class are equal if their parameters are equal."""

    name: ClassVar[str]
    num_extra: ClassVar[int] = 0  # e, the number of statistics besides t_1, ..., t_k
    allows_negative: ClassVar[bool] = False  # x may be negative; t_j has the sign of x for even j
    whole_numbers: ClassVar[bool] = False  # values are counts
    always_normalizable: ClassVar[bool] = False  # with any interactions
    ridge: ClassVar[float] = 0.0  # weight of half the squared intercepts in a fit, times Var[t]
    ridge_variance: ClassVar[float] = np.inf  # the largest Var[t] by which it is multiplied
    power: ClassVar[int] = 1  # T = |x|^power
    scale: str = "identity"  # "log" if T is a power of log(1 + x)

    def log_partition(
        self,
        eta: npt.ArrayLike,
        *,
        method: Method = "direct",
        domains: int = 10,
        tolerance: float | None = None,
    ) -> Bounds:
        """Return A(eta) in nats between a lower and an upper bound.

        Parameters
        ----------
        eta : (..., k + e) array-like
            The coefficients of T, T^(1/2), ..., T^(1/k) and of the e statistics of the family.
        method : {"direct", "bounds"}
            "direct": the sum or the quadrature, with bounds from its remainder and its rounding.
            "bounds": piecewise-linear bounds, with their middle as the value.
        domains : int
            The number of subdomains for "bounds".
        tolerance : float, optional
            Split subdomains further until upper - lower <= tolerance (nats), up to about 4096 of
            them.

        Returns
        -------
        Bounds
            (lower, value, upper), each (...) float64.

        Raises
        ------
        InvalidInputError
            eta is not finite, or has no normalizer: for the exponential and the Gaussian base, the
            first coefficient that is not zero must be negative.
        NotSupportedError
            The family has no piecewise-linear bounds.

        Examples
        --------
        >>> from fstgrad.grm.families import Poisson
        >>> interval = Poisson().log_partition([0.5])
        >>> bool(abs(interval.value - np.exp(0.5)) < 1e-12)
        True
        """
        rows, shape = self._checked(eta)
        checks.one_of("method", method, ("direct", "bounds"))
        if method == "bounds":
            pair = log_moments.log_moment(
                self.integrands(rows, 0.0), domains=domains, tolerance=tolerance
            )
            return _with_middle(pair, shape[:-1])
        value, error = self._finite(rows)[0].T
        return _shaped(Bounds(value - error, value, value + error), shape[:-1])

    def gradient(self, eta: npt.ArrayLike) -> FloatArray:
        """Return E[t], the gradient of A, (..., k + e) float64; errors as in `log_partition`."""
        rows, shape = self._checked(eta)
        return self._finite(rows)[1].reshape(shape)

    def hessian(self, eta: npt.ArrayLike) -> FloatArray:
        """Return Cov[t], the Hessian of A, (..., k + e, k + e); errors as in `log_partition`."""
        rows, shape = self._checked(eta)
        return self._finite(rows)[2].reshape((*shape, shape[-1]))

    def gradient_bounds(
        self, eta: npt.ArrayLike, *, domains: int = 10, tolerance: float | None = None
    ) -> Bounds:
        """Return E[t], (..., k), between piecewise-linear bounds.

        E[T^a] = exp(M(a) - M(0)) with M(a) = log of the integral of T^a exp(<eta, t> + B).
        Arguments and errors as in `log_partition`.
        """
        rows, shape = self._checked(eta)
        pair = log_moments.moments(
            lambda a: self.integrands(rows, a),
            self._signed(rows.shape[1]),
            domains=domains,
            tolerance=tolerance,
        )
        return _with_middle(pair, shape)

    def hessian_bounds(
        self, eta: npt.ArrayLike, *, domains: int = 10, tolerance: float | None = None
    ) -> Bounds:
        """Return Cov[t], (..., k, k), between bounds from those of E[t t'] and E[t].

        Arguments and errors as in `log_partition`.
        """
        rows, shape = self._checked(eta)
        pair = log_moments.covariances(
            lambda a: self.integrands(rows, a),
            self._signed(rows.shape[1]),
            domains=domains,
            tolerance=tolerance,
        )
        return _with_middle(pair, (*shape, shape[-1]))

    def derivatives(self, eta: FloatArray) -> Derivatives:
        """Return A (n,), E[t] (n, c) and Cov[t] (n, c, c) for eta (n, c), as fits need them.

        The accuracy is about 1e-8; A = +inf if eta has no normalizer.
        """
        rows = checks.writable(np.asarray(eta, dtype=np.float64))
        interval, mean, covariance = self._direct(rows, 1e-8)
        return np.ascontiguousarray(interval[:, 0]), mean, covariance

    def exponents(self, k: int) -> FloatArray:
        """Return the powers (k,) of |x| in t_1, ..., t_k."""
        return self.power / np.arange(1, k + 1)

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t_1, ..., t_k and the additional statistics, (..., k + e), of values x (...)."""
        values = np.asarray(x, dtype=np.float64)[..., None]
        return np.abs(values) ** self.exponents(k)

    def free_coordinates(self, k: int) -> list[int]:
        """Return the coordinates of eta, counted from 0, whose intercepts are never penalised."""
        return [0, *range(k, k + self.num_extra)]

    def starting_eta(self, means: FloatArray) -> FloatArray:
        """Return intercepts (c,) near those of independent variables, given the means of t (c,)."""
        out = np.zeros(means.shape)
        out[0] = self.independent_eta(float(means[0]))
        return out

    def chain_start(self, intercepts: FloatArray) -> FloatArray:
        """Return the eta (c,) of the first draws of Gibbs chains: a typical distribution."""
        return intercepts

    def modelled_values(self, values: FloatArray) -> FloatArray:
        """Return the values that the family models, for values of the data (for example x > 0)."""
        return values

    def fitted_to(self, values: FloatArray, weights: FloatArray | None = None) -> "Base":
        """Return the family with its own parameters, if any, fitted to one column (n,).

        weights : (n,), > 0, of the rows; ones for None.
        """
        return self

    def is_multivariate_normal(self, k: int) -> bool:
        """Return whether a model with this k is a multivariate normal distribution."""
        return False

    def describe(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name, to save them in files."""
        return {}

    @abstractmethod
    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return B(x) in nats, of the shape of x."""

    @abstractmethod
    def independent_eta(self, mean: float) -> float:
        """Return the maximum-likelihood eta_1 for k = 1, given the mean of T."""

    @abstractmethod
    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are possible."""

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (c,); here for families with T = x."""
        return float(self.gradient(eta)[0])

    @abstractmethod
    def sweep(self, chains: Any, families: Sequence["Base"], rng: np.random.Generator) -> int:
        """Draw every node of Gibbs chains given the others, once, in place.

        chains : fstgrad.grm.kernels.sampling.ChainArrays.  families : one for each node.
        Returns the number of the node whose conditional cannot be drawn, or -1.
        """

    @abstractmethod
    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        """Return (A, bound on its error) (n, 2), E[t] (n, c) and Cov[t] (n, c, c).

        tol : the relative error at which a quadrature stops.
        """

    def integrands(self, eta: FloatArray, a: float) -> list[Integrand]:
        """Return the integrands of T^a exp(<eta, t> + B) over x > 0 and, if needed, x < 0.

        eta : (m, k).  Raises NotSupportedError if the family has no piecewise-linear bounds.
        """
        raise NotSupportedError(
            f'the {self.name} base has no piecewise-linear bounds; give method="direct"'
        )

    def _signed(self, k: int) -> list[bool]:
        """Return for each of t_1, ..., t_k whether it has the sign of x."""
        return [self.allows_negative and j % 2 == 0 for j in range(1, k + 1)]

    def _checked(self, eta: npt.ArrayLike) -> tuple[FloatArray, tuple[int, ...]]:
        """Return the rows (m, k + e) of eta (..., k + e), checked, and the shape of eta."""
        array = checks.real_array("eta", eta)
        if array.ndim == 0 or array.shape[-1] <= self.num_extra:
            raise InvalidInputError(
                f"eta has shape {array.shape}; the shape must be (..., k"
                + (f" + {self.num_extra})" if self.num_extra else ")")
            )
        return checks.writable(array).reshape(-1, array.shape[-1]), array.shape

    def _finite(self, rows: FloatArray) -> Derivatives:
        """Return what `_direct` does, to all digits; raise InvalidInputError if A is not finite."""
        results = self._direct(rows, 1e-13)
        bad = np.flatnonzero(~np.isfinite(results[0][:, 0]))
        if bad.size:
            raise InvalidInputError(
                f"eta {rows[bad[0]].tolist()} is out of range of the direct sum of the {self.name} "
                "base (the mean is too large, or there is no normalizer); give smaller "
                'coefficients or method="bounds"'
            )
        return results

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def _key(self) -> tuple[Any, ...]:
        """Return the arguments that distinguish two families of one class."""
        return ()

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.describe().items())
        return f"{type(self).__name__}({arguments})"


def empty_derivatives(eta: FloatArray) -> Derivatives:
    """Return empty arrays for (A, error) (m, 2), E[t] (m, c) and Cov[t] (m, c, c); eta (m, c)."""
    m, c = eta.shape
    return empty((m, 2)), empty((m, c)), empty((m, c, c))


def mass_center(log_height: FloatArray, v: FloatArray) -> FloatArray:
    """Return x = e^v (m,) at which the log-heights (m, len(v)) on the grid v are largest."""
    return np.asarray(np.exp(v[np.argmax(np.nan_to_num(log_height, nan=-np.inf), axis=1)]))


def _with_middle(pair: Pair, shape: tuple[int, ...]) -> Bounds:
    """Return bounds (lower, upper) with their middle as the value, in this shape."""
    lower, upper = pair
    return _shaped(Bounds(lower, 0.5 * (lower + upper), upper), shape)


def _shaped(interval: Bounds, shape: tuple[int, ...]) -> Bounds:
    """Return the bounds with arrays of this shape; for shape (), floats."""
    return Bounds(*(part.reshape(shape)[()] for part in interval))
