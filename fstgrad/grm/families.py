"""The base families, by name and in files.

Unbounded counts (`Poisson`, `NegativeBinomial`, `Hurdle`) and bounded ones (`FiniteCounts`,
`Bernoulli`) are tables of points (`fstgrad.grm.count_tables`), over which the same compiled sums
run.  Their statistic T is x ("identity") or log(1 + x)^2 ("log").  With "log", pairs couple the
logarithms of counts, and every base with a tail that falls at least geometrically can be normalised
with any interactions.  Positive numbers (`Exponential`) and real numbers (`Gaussian`) are
integrated.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import count_tables, kernels
from fstgrad.grm.base import Base, Bounds, Derivatives, Method, empty_derivatives, mass_center
from fstgrad.grm.measures import ExponentialMeasure, GaussianMeasure, Integrand, PoissonMeasure

if TYPE_CHECKING:
    from fstgrad.grm.kernels.counts import Table

__all__ = [
    "BASES", "Base", "Bernoulli", "Bounds", "CountBase", "Exponential", "FiniteCounts", "Gaussian",
    "Hurdle", "Method", "NegativeBinomial", "Poisson", "from_description", "resolve",
    "to_description",
]  # fmt: skip

Scale = Literal["identity", "log"]
EMPTY = -100.0  # eta_1 of a column of zeros, in place of log 0
POISSON_LAST = 1 << 20  # last count of the Poisson table; for larger counts see `kernels.counts`
# With few distinct counts in a column, the likelihood is largest at infinite intercepts.  A ridge
# penalty with this weight, in units of Var[t], keeps them finite; it changes the fitted means by
# about a thousandth of a standard deviation.
RIDGE = 1e-3
TAIL = 400.0  # nats of decay over which the table of a geometric tail extends
FEW = 1000  # up to this many counts, roots are computed one by one
LARGEST_COUNT = 1_000_000  # allowed in data
LARGEST_DISPERSION = 1e4  # and at least 100 m: then the variance exceeds Poisson's by 1 percent
LARGE_DISPERSION = 100.0  # from here on, Stirling's formula has an error below 1e-17
SMALLEST_DISPERSION = 1e-3
SMALLEST_COUNT_MEAN = 1e-6  # of a negative binomial distribution
SMALLEST_MEAN = 1e-12  # of a positive or real variable that is always 0


class CountBase(Base):
    """Counts 0, 1, 2, ... with a table; subclasses define B and additional statistics."""

    scale: Scale = "identity"
    always_normalizable = True
    whole_numbers = True

    def exponents(self, k: int) -> FloatArray:
        """Return the powers of x, or of log(1 + x), in t_1, ..., t_k."""
        return (2 if self.scale == "log" else 1) / np.arange(1, k + 1)

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t_1, ..., t_k and the statistics of the family, (..., k + e), of counts x."""
        values = np.asarray(x, dtype=np.float64)
        if values.size > FEW:  # compute each distinct root once
            with np.errstate(invalid="ignore"):
                counts = values.astype(np.int64)
            if counts.min() >= 0 and counts.max() < values.size and (counts == values).all():
                return self._computed(np.arange(float(counts.max() + 1)), k)[counts]
        return self._computed(values, k)

    def _computed(self, x: FloatArray, k: int) -> FloatArray:
        """Return what `statistics` returns, computed for each count separately."""
        values = x[..., None]
        shared = (np.log1p(values) if self.scale == "log" else values) ** self.exponents(k)
        return np.concatenate([shared, self.extra_statistics(values)], axis=-1)

    def extra_statistics(self, x: FloatArray) -> FloatArray:
        """Return the e additional statistics of the family, (..., e), of counts x (..., 1)."""
        return np.zeros((*x.shape[:-1], 0))

    def free_coordinates(self, k: int) -> list[int]:
        """Return the coordinates with unpenalised intercepts.

        T, with scale "log" also its square root, and the e additional statistics.
        """
        shared = [0, 1] if self.scale == "log" and k > 1 else [0]
        return [*shared, *range(k, k + self.num_extra)]

    def independent_eta(self, mean: float) -> float:
        """Return 0: the search starts at B, which for fitted families is already the fit."""
        return 0.0

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (c,)."""
        table = self.table(eta.size - self.num_extra)
        height = table.log_base + table.statistics @ eta
        weight = table.quadrature * np.exp(height - height.max())
        return float(weight @ table.points / weight.sum())

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are whole numbers from 0 to a million."""
        wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
        if wrong.size:
            shown, remedy = values[wrong[0]], 'fractions need base="gaussian" or base="exponential"'
            if values.min() < 0:
                shown, remedy = values.min(), 'Negative values in data need base="gaussian"'
            raise InvalidInputError(
                f"X holds {shown}; the {self.name} base models counts 0, 1, 2, ...: {remedy}"
            )
        if values.size and values.max() > LARGEST_COUNT:
            raise InvalidInputError(
                f"X holds {values.max():g}; sums run over every count, up to {LARGEST_COUNT:,}: "
                'divide the counts, or use base="gaussian" or base="exponential"'
            )

    def table(self, k: int) -> "Table":
        """Return the points of the sums over counts; cached."""
        return _cached_table(self, k)

    @abstractmethod
    def build_table(self, k: int) -> "Table":
        """Return a new table with t_1, ..., t_k and the additional statistics."""

    def sweep(self, chains: Any, families: Sequence[Base], rng: np.random.Generator) -> int:
        """Draw every node of Gibbs chains given the others."""
        k = chains.statistics.shape[2] - self.num_extra
        return int(
            kernels.sampling.sweep_counts(
                chains, _stacked(tuple(families), k), rng.random(chains.state.shape)
            )
        )

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = empty_derivatives(eta)
        kernels.count_rows.derivatives(eta, self.table(eta.shape[1] - self.num_extra), *out)
        return out


class Poisson(CountBase):
    """Counts: x = 0, 1, 2, ..., T = x, B = -log x!; every eta has a normalizer."""

    name = "poisson"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return -log x!."""
        from scipy.special import gammaln

        return -np.asarray(gammaln(np.asarray(x, dtype=np.float64) + 1.0))

    def independent_eta(self, mean: float) -> float:
        """Return log mean, eta_1 of a Poisson distribution; -100 for a mean of 0."""
        return float(np.log(mean)) if mean > 0 else EMPTY

    def build_table(self, k: int) -> "Table":
        """Return a table of counts up to a million, in panels of a standard deviation."""
        return count_tables.smooth_table(
            self.log_base, lambda x: self.statistics(x, k), last=POISSON_LAST, width=np.sqrt,
            base_limit=-np.inf, linear=np.eye(k)[0],
        )  # fmt: skip

    mean = Base.mean  # E[T] = E[x], also beyond the table

    def integrands(self, eta: FloatArray, a: float) -> list[Integrand]:
        """Return the integrand over x = 1, 2, ..., with the term of x = 0 separate."""
        powers = self.exponents(eta.shape[1])
        v = np.linspace(-60, 60, 1201)
        with np.errstate(over="ignore", invalid="ignore"):
            height = eta @ (np.exp(v) ** powers[:, None]) + (1 + a) * v + self.log_base(np.exp(v))
        return [
            Integrand(
                PoissonMeasure(eta), eta[:, 1:], powers[1:], a, mass_center(height, v),
                at_zero=0.0 if a == 0 else -np.inf,
            )
        ]  # fmt: skip

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = super()._direct(eta, tol)
        beyond = np.isinf(out[0][:, 0])
        if beyond.any():
            rows = np.ascontiguousarray(eta[beyond])
            more = empty_derivatives(rows)
            kernels.counts.wide_derivatives(rows, self.table(eta.shape[1]), *more)
            for results, of_beyond in zip(out, more, strict=True):
                results[beyond] = of_beyond
        return out


def negative_binomial_fit(
    values: FloatArray, weights: FloatArray | None = None, *, positive_only: bool
) -> tuple[float, float]:
    """Return the mean m and the dispersion r (variance m + m^2 / r) fitted to counts (n,).

    weights : (n,), > 0; ones for None.
    positive_only : fit the distribution given x > 0 to the counts above 0.
    Returns (1e-6, 1) if there is no count above 0.
    """
    from scipy import optimize

    used = values > 0 if positive_only else np.ones(len(values), dtype=bool)
    counts, which = np.unique(values[used], return_inverse=True)
    if not counts.size or counts[-1] == 0:
        return SMALLEST_COUNT_MEAN, 1.0
    sums = np.bincount(which, None if weights is None else weights[used])
    share = sums / sums.sum()
    mean = max(float(share @ counts), SMALLEST_COUNT_MEAN)
    excess = float(share @ (counts - mean) ** 2) - mean
    largest = max(LARGEST_DISPERSION, 100 * mean)
    r = np.clip(mean**2 / excess if excess > 0 else largest, 0.05, largest)
    low, high = float(np.log(SMALLEST_DISPERSION)), float(np.log(largest))
    if not positive_only:  # the mean of the fit is the mean of the data
        best = optimize.minimize_scalar(
            lambda v: _negative_binomial_cost(np.log(mean), v, counts, share, False)[0],
            bounds=(low, high), method="bounded", options={"xatol": 1e-6},
        )  # fmt: skip
        return mean, float(np.exp(best.x))
    limits = optimize.Bounds([np.log(mean) - 12, low], [np.log(mean) + 3, high])
    done = optimize.minimize(  # type: ignore[call-overload]
        lambda v: _negative_binomial_cost(float(v[0]), float(v[1]), counts, share, True),
        np.array([np.log(mean), np.log(r)]), method="L-BFGS-B", bounds=limits, jac=True,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    return float(np.exp(done.x[0])), float(np.exp(done.x[1]))


def _negative_binomial_cost(
    log_mean: float, log_r: float, counts: FloatArray, share: FloatArray, positive_only: bool
) -> tuple[float, FloatArray]:
    """Return the mean negative log-likelihood in nats, and its gradient (2,) in both logarithms.

    counts, share : (m,), the distinct counts and their relative frequencies.
    """
    from scipy.special import digamma

    mean, r = np.exp(log_mean), np.exp(log_r)
    at_zero = -r * np.log1p(mean / r)
    value = share @ _negative_binomial_log_mass(counts, mean, r)
    zero_slope = np.array([-r * mean / (r + mean), at_zero + r * mean / (r + mean)])
    slope = zero_slope + share @ np.stack(
        [counts * r / (r + mean), r * (digamma(counts + r) - digamma(r) - counts / (r + mean))], 1
    )
    if positive_only:
        value -= np.log(-np.expm1(at_zero))
        with np.errstate(over="ignore"):  # 0 for a zero of vanishing probability
            slope += zero_slope / np.expm1(-at_zero)
    return -float(value), -slope


def _negative_binomial_log_mass(x: FloatArray, mean: float, r: float) -> FloatArray:
    """Return log [Gamma(x + r) / (Gamma(r) x!) (r / (r + m))^r (m / (r + m))^x], in nats.

    The terms of Stirling's formula for Gamma(x + r) / Gamma(r) that would cancel are left out.
    """
    from scipy.special import gammaln

    if r < LARGE_DISPERSION:
        choose = gammaln(x + r) - gammaln(r) - gammaln(x + 1.0)
        return np.asarray(choose - r * np.log1p(mean / r) - x * np.log1p(r / mean))
    poisson = x * np.log(mean) - x - gammaln(x + 1.0)
    corrections = [1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) for z in (r + x, r)]
    spread = (r + x) * np.log1p((x - mean) / (r + mean)) - 0.5 * np.log1p(x / r)
    return np.asarray(poisson + spread + corrections[0] - corrections[1])


class NegativeBinomial(CountBase):
    """Overdispersed counts: B = log of a negative binomial distribution, T = log(1 + x)^2.

    The distribution has mean m and variance m + m^2 / r.  A fit estimates m and r from each column,
    and tilts the distribution by the interactions and by intercepts of T and its square root.  The
    tail falls geometrically, faster than any exp(c log(1 + x)^2) grows, so every model has a
    normalizer.

    Parameters
    ----------
    law_mean, dispersion : float, optional
        m and r, both > 0; by default, a fit estimates them.
    """

    name = "negative-binomial"
    scale: Scale = "log"
    ridge = RIDGE

    def __init__(self, law_mean: float | None = None, dispersion: float | None = None) -> None:
        if law_mean is not None:
            law_mean = checks.positive_number("law_mean", law_mean)
        if dispersion is not None:
            dispersion = checks.positive_number("dispersion", dispersion)
        self.law_mean = law_mean
        self.dispersion = dispersion

    def describe(self) -> dict[str, Any]:
        """Return the mean and the dispersion of the distribution."""
        return {"law_mean": self.law_mean, "dispersion": self.dispersion}

    def _key(self) -> tuple[Any, ...]:
        return (self.law_mean, self.dispersion)

    def chain_start(self, intercepts: FloatArray) -> FloatArray:
        """Return 0: B itself; the intercepts without the interactions may be far from the data."""
        return np.zeros(intercepts.shape)

    def _law(self) -> tuple[float, float]:
        if self.law_mean is None or self.dispersion is None:
            raise InvalidInputError(
                f"{self!r} has no distribution yet; give law_mean and dispersion, or call "
                "fitted_to(values)"
            )
        return float(self.law_mean), float(self.dispersion)

    def fitted_to(
        self, values: FloatArray, weights: FloatArray | None = None
    ) -> "NegativeBinomial":
        """Return the base with m and r of the maximum-likelihood fit to counts (n,) with weights.

        Returns the base itself if both are given.
        """
        if self.law_mean is not None and self.dispersion is not None:
            return self
        return NegativeBinomial(*negative_binomial_fit(values, weights, positive_only=False))

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return log [Gamma(x + r) / (Gamma(r) x!) (r / (r + m))^r (m / (r + m))^x], in nats."""
        return _negative_binomial_log_mass(np.asarray(x, dtype=np.float64), *self._law())

    def build_table(self, k: int) -> "Table":
        """Return a table that extends over TAIL nats of the geometric tail, and beyond the mean."""
        mean, r = self._law()
        decay = float(np.log1p(r / mean))
        return count_tables.smooth_table(
            self.log_base, lambda x: self.statistics(x, k),
            last=int(max(16 * count_tables.SINGLES, TAIL / decay, 16 * mean)),
            width=lambda x: np.sqrt(x + min(0.01, 1 / r) * x * x),
            base_limit=-decay, linear=np.zeros(k),
        )  # fmt: skip


class Hurdle(CountBase):
    """A family of counts with a separate probability of zero (zero-inflated counts).

    It adds the statistic 1[x = 0] to the inner family.  Its coefficient is positive if there are
    more zeros than in the inner family, and negative if there are fewer.

    Parameters
    ----------
    inner : CountBase
    """

    ridge = RIDGE

    def __init__(self, inner: CountBase) -> None:
        if not isinstance(inner, CountBase):
            raise InvalidInputError(f"inner is {inner!r}; give a base of counts")
        self.inner = inner
        self.name = f"hurdle-{inner.name}"  # type: ignore[misc]
        self.scale = inner.scale
        self.num_extra = inner.num_extra + 1  # type: ignore[misc]
        if self.scale == "identity":  # the intercept of T, about log m, is far from 0
            self.ridge_variance = 1.0  # type: ignore[misc]

    def describe(self) -> dict[str, Any]:
        """Return the inner family."""
        return {"inner": self.inner}

    def _key(self) -> tuple[Any, ...]:
        return (self.inner,)

    def fitted_to(self, values: FloatArray, weights: FloatArray | None = None) -> "Hurdle":
        """Return the hurdle family whose inner family is fitted to the counts above 0."""
        if isinstance(self.inner, NegativeBinomial) and self.inner.dispersion is None:
            law = negative_binomial_fit(values, weights, positive_only=True)
            return Hurdle(NegativeBinomial(*law))
        return Hurdle(self.inner.fitted_to(values, weights))  # type: ignore[arg-type]

    def extra_statistics(self, x: FloatArray) -> FloatArray:
        """Return the statistics of the inner family and 1[x = 0]."""
        return np.concatenate([self.inner.extra_statistics(x), (x == 0).astype(float)], axis=-1)

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return B of the inner family."""
        return self.inner.log_base(x)

    def independent_eta(self, mean: float) -> float:
        """Return eta_1 of the inner family."""
        return self.inner.independent_eta(mean)

    def chain_start(self, intercepts: FloatArray) -> FloatArray:
        """Return the eta of the inner family, and 0 for the statistic 1[x = 0]."""
        return np.append(self.inner.chain_start(intercepts[:-1]), 0.0)

    def starting_eta(self, means: FloatArray) -> FloatArray:
        """Return the start of the inner family, and the log odds of zero relative to it."""
        inner = self.inner.starting_eta(means[:-1])
        log_zero = float(self.log_base(0.0)) - float(self.inner.derivatives(inner[None])[0][0])
        share = np.clip(means[-1], 1e-9, 1 - 1e-9)
        odds = np.log(share / (1 - share)) - (log_zero - np.log(-np.expm1(min(log_zero, -1e-12))))
        return np.append(inner, np.clip(odds, -50.0, 50.0))

    def build_table(self, k: int) -> "Table":
        """Return the table of the inner family with the statistic 1[x = 0] added."""
        return count_tables.with_zero_indicator(self.inner.table(k))


class FiniteCounts(CountBase):
    """Counts 0, ..., m - 1 with a given log measure.

    Parameters
    ----------
    log_measure : (m,) array-like, or a function of counts
        B(x) in nats up to a constant, -inf for counts that cannot occur.
    largest : int, optional
        m - 1, if `log_measure` is a function.
    scale : {"identity", "log"}
        T = x or T = log(1 + x)^2.

    Raises
    ------
    InvalidInputError
        Fewer than two counts are allowed, or `log_measure` is a function and `largest` is missing.

    Examples
    --------
    >>> dice = FiniteCounts([-np.inf, 0, 0, 0, 0, 0, 0])
    >>> bool(abs(dice.log_partition([0.0]).value - np.log(6)) < 1e-12)
    True
    """

    name = "finite"

    def __init__(
        self,
        log_measure: npt.ArrayLike | Callable[[FloatArray], npt.ArrayLike],
        largest: int | None = None,
        scale: Scale = "identity",
    ) -> None:
        values = log_measure
        if callable(log_measure):
            if largest is None:
                raise InvalidInputError("log_measure is a function; give largest, the last count")
            values = log_measure(np.arange(checks.positive_integer("largest", largest) + 1.0))
        measure = checks.log_weights("log_measure", values, (None,))  # type: ignore[arg-type]
        self.log_measure = measure.copy()
        if len(self.log_measure) < 2 or not np.isfinite(self.log_measure).sum() > 1:
            raise InvalidInputError("log_measure allows fewer than two counts; give more")
        self.log_measure.flags.writeable = False
        self.scale = checks.one_of("scale", scale, ("identity", "log"))  # type: ignore[assignment]

    def describe(self) -> dict[str, Any]:
        """Return the log measure and the scale."""
        return {"log_measure": self.log_measure.tolist(), "scale": self.scale}

    def _key(self) -> tuple[Any, ...]:
        return (self.log_measure.tobytes(), self.scale)

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return the log measure; -inf beyond the last count."""
        values = np.asarray(x, dtype=np.float64)
        at = np.clip(values, 0, len(self.log_measure) - 1).astype(np.int64)
        return np.where(values < len(self.log_measure), self.log_measure[at], -np.inf)

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless the measure allows all values."""
        super().check_values(values)
        wrong = np.flatnonzero(np.isneginf(self.log_base(values)))
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}, which the measure of the {self.name} base forbids; "
                f"its counts run from 0 to {len(self.log_measure) - 1}"
            )

    def build_table(self, k: int) -> "Table":
        """Return a table with all counts as single points."""
        x = np.arange(float(len(self.log_measure)))
        return count_tables.finite_table(self.log_measure.copy(), self.statistics(x, k))


class Bernoulli(FiniteCounts):
    """Absence and presence: x = 0 or 1, T = x, B = 0; counts above 0 are replaced by 1."""

    name = "bernoulli"

    def modelled_values(self, values: FloatArray) -> FloatArray:
        """Return 1 for counts above 0; raise InvalidInputError unless values are counts."""
        CountBase.check_values(self, values)
        return (values > 0).astype(np.float64)

    def __init__(self) -> None:
        super().__init__(np.zeros(2))

    def describe(self) -> dict[str, Any]:
        """Return an empty dict: the constructor has no arguments."""
        return {}

    def independent_eta(self, mean: float) -> float:
        """Return the log odds of the mean; -100 for a mean of 0, 100 for a mean of 1."""
        if mean <= 0 or mean >= 1:
            return EMPTY if mean <= 0 else -EMPTY
        return float(np.log(mean / (1 - mean)))


class Exponential(Base):
    """Numbers x >= 0 with T = x, B = 0; the first nonzero eta_j must be negative."""

    name = "exponential"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return 0."""
        return np.zeros(np.shape(x))

    def independent_eta(self, mean: float) -> float:
        """Return -1 / mean, the eta_1 of an exponential distribution."""
        return -1.0 / max(mean, SMALLEST_MEAN)

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are >= 0."""
        wrong = np.flatnonzero(values < 0)
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}; the exponential base models numbers >= 0: "
                'Negative values in data need base="gaussian"'
            )

    def sweep(self, chains: Any, families: Sequence[Base], rng: np.random.Generator) -> int:
        """Draw every node of Gibbs chains given the others."""
        return int(kernels.sampling.sweep_positive(chains, rng.random(chains.state.shape)))

    def integrands(self, eta: FloatArray, a: float) -> list[Integrand]:
        """Return the integrand over x > 0; raise InvalidInputError unless all eta_1 < 0."""
        self._refuse_growing(eta)
        return [self._side(ExponentialMeasure(eta), eta, 1, a)]

    def _side(
        self, measure: ExponentialMeasure | GaussianMeasure, eta: FloatArray, held: int, a: float
    ) -> Integrand:
        """Return the integrand of one half-line.

        held : how many of the first coefficients of eta the measure contains.  a : the power of T.
        """
        powers, q = self.exponents(eta.shape[1]), a * self.power
        v = np.linspace(-60, 60, 1201)
        with np.errstate(over="ignore", invalid="ignore"):
            height = eta @ (np.exp(v) ** powers[:, None]) + (1 + q) * v
        return Integrand(measure, eta[:, held:], powers[held:], q, mass_center(height, v))

    def _refuse_growing(self, eta: FloatArray) -> None:
        if not (eta[:, 0] < 0).all():
            raise InvalidInputError(
                f"eta_1 is {eta[:, 0].max()}; the bounds need a base that decays, eta_1 < 0: "
                'give method="direct"'
            )

    def _checked(self, eta: npt.ArrayLike) -> tuple[FloatArray, tuple[int, ...]]:
        rows, shape = super()._checked(eta)
        leading = rows[np.arange(len(rows)), np.argmax(rows != 0, axis=1)]
        if (leading >= 0).any():
            worst = rows[np.argmax(leading >= 0)].tolist()
            raise InvalidInputError(
                f"eta {worst} cannot be normalised under the {self.name} base; the first "
                "coefficient that is not zero must be negative"
            )
        return rows, shape

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = empty_derivatives(eta)
        kernels.integrals.derivatives(eta, False, tol, *out)
        return out


class Gaussian(Exponential):
    """Real numbers with T = x^2, B = 0; t_j = |x|^(2/j), with the sign of x for even j.

    With k <= 2, the model is a multivariate normal distribution of mean 0: t_2 = x.  Subtract the
    means of columns before a fit, which warns of others.  The sign of t_4 is a convention of this
    package.
    """

    name = "gaussian"
    power = 2
    allows_negative = True

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t(x), (..., k), of values x (...)."""
        even = np.arange(1, k + 1) % 2 == 0
        sign = np.where(even, np.sign(np.asarray(x, dtype=np.float64)[..., None]), 1.0)
        return sign * super().statistics(x, k)

    def independent_eta(self, mean: float) -> float:
        """Return -1 / (2 mean), with the mean of x^2: eta_1 of a centered normal distribution."""
        return -0.5 / max(mean, SMALLEST_MEAN)

    def is_multivariate_normal(self, k: int) -> bool:
        """Return whether k <= 2."""
        return k <= 2

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (k,)."""
        return float(self.gradient(eta)[1]) if eta.size > 1 else 0.0

    def check_values(self, values: FloatArray) -> None:
        """Accept every finite number."""

    def sweep(self, chains: Any, families: Sequence[Base], rng: np.random.Generator) -> int:
        """Draw every node of Gibbs chains given the others."""
        if chains.statistics.shape[2] <= 2:
            return int(
                kernels.sampling.sweep_normal(chains, rng.standard_normal(chains.state.shape))
            )
        return int(kernels.sampling.sweep_real(chains, rng.random(chains.state.shape)))

    def integrands(self, eta: FloatArray, a: float) -> list[Integrand]:
        """Return the integrands over x > 0 and x < 0; raise InvalidInputError unless eta_1 < 0."""
        self._refuse_growing(eta)
        k = eta.shape[1]
        mirrored = eta * np.where(np.arange(1, k + 1) % 2 == 0, -1.0, 1.0)
        return [
            self._side(
                GaussianMeasure(eta, side[:, 1] if k > 1 else np.zeros(len(eta))), side, 2, a
            )
            for side in (eta, mirrored)
        ]

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = empty_derivatives(eta)
        if eta.shape[1] <= 2:
            kernels.integrals.gaussian_pair(eta, *out)
        else:
            kernels.integrals.derivatives(eta, True, tol, *out)
        return out


BASES: dict[str, Base] = {
    base.name: base
    for base in (
        Poisson(), Exponential(), Gaussian(), NegativeBinomial(), Hurdle(Poisson()),
        Hurdle(NegativeBinomial()), Bernoulli(),
    )
}  # fmt: skip
CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Poisson, Exponential, Gaussian, NegativeBinomial, Hurdle, Bernoulli, FiniteCounts)
}


def resolve(base: "str | Base") -> Base:
    """Return the family with the name `base`, or `base` if it is a family.

    Raises InvalidInputError for anything else.
    """
    if isinstance(base, Base):
        return base
    if not isinstance(base, str) or base not in BASES:
        raise InvalidInputError(
            f"base is {base!r}; choose one of {', '.join(BASES)} or give a family such as "
            "FiniteCounts(log_measure)"
        )
    return BASES[base]


def to_description(base: Base) -> dict[str, Any]:
    """Return {"class": name, "arguments": dict} of a family, in types of JSON."""
    arguments = {
        name: to_description(value) if isinstance(value, Base) else value
        for name, value in base.describe().items()
    }
    return {"class": type(base).__name__, "arguments": arguments}


def from_description(description: Any) -> Base:
    """Return the family that `to_description` described; raise InvalidInputError otherwise."""
    if not isinstance(description, dict) or set(description) != {"class", "arguments"}:
        raise InvalidInputError("a base family is not described by its class and its arguments")
    kind, described = description["class"], description["arguments"]
    if kind not in CLASSES or not isinstance(described, dict):
        raise InvalidInputError(f"{str(kind)[:40]!r} is not a base family")
    arguments = {
        name: from_description(value) if isinstance(value, dict) else value
        for name, value in described.items()
    }
    try:
        family: Base = CLASSES[kind](**arguments)
    except TypeError as error:
        raise InvalidInputError(f"{kind} does not have these arguments: {error}") from error
    return family


@lru_cache(maxsize=4096)
def _cached_table(base: CountBase, k: int) -> "Table":
    return base.build_table(k)


@lru_cache(maxsize=16)
def _stacked(families: tuple[CountBase, ...], k: int) -> Any:
    """Return the tables of all nodes as a TableSet; nodes with equal families share a table."""
    distinct = {family: number for number, family in enumerate(dict.fromkeys(families))}
    which = np.array([distinct[family] for family in families], dtype=np.int64)
    return kernels.sampling.stack_tables([family.table(k) for family in distinct], which)
