"""The bases of unbounded counts: Poisson, negative binomial and hurdle.

All are tables of points (`fstgrad.grm.tables`), over which the same compiled sums run.  The
statistic T is x ("identity") or log(1 + x)^2 ("log").  With "log", pairs couple the logarithms of
counts, and every base with a tail that falls at least geometrically can be normalised with any
interactions.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import kernels, tables
from fstgrad.grm.base import Base, Derivatives, mass_center, outputs
from fstgrad.grm.dispersion import negative_binomial_fit
from fstgrad.grm.measures import Integrand, PoissonMeasure

if TYPE_CHECKING:
    from fstgrad.grm.kernels.counts import Table

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
                whole = values.astype(np.int64)
            if whole.min() >= 0 and whole.max() < values.size and (whole == values).all():
                return self._computed(np.arange(float(whole.max() + 1)), k)[whole]
        return self._computed(values, k)

    def _computed(self, x: FloatArray, k: int) -> FloatArray:
        """Return what `statistics` returns, computed for each count separately."""
        values = x[..., None]
        shared = (np.log1p(values) if self.scale == "log" else values) ** self.exponents(k)
        return np.concatenate([shared, self.own_statistics(values)], axis=-1)

    def own_statistics(self, x: FloatArray) -> FloatArray:
        """Return the e additional statistics of the family, (..., e), of counts x (..., 1)."""
        return np.zeros((*x.shape[:-1], 0))

    def free(self, k: int) -> list[int]:
        """Return the coordinates with unpenalised intercepts.

        T, with scale "log" also its square root, and the e additional statistics.
        """
        shared = [0, 1] if self.scale == "log" and k > 1 else [0]
        return [*shared, *range(k, k + self.own)]

    def independent(self, mean: float) -> float:
        """Return 0: the search starts at B, which for fitted families is already the fit."""
        return 0.0

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (c,)."""
        table = self.table(eta.size - self.own)
        height = table.log_base + table.statistics @ eta
        weight = table.quadrature * np.exp(height - height.max())
        return float(weight @ table.points / weight.sum())

    def check_values(self, values: FloatArray) -> None:
        """Raise InvalidInputError unless all values are whole numbers from 0 to a million."""
        wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
        if wrong.size:
            raise InvalidInputError(
                f"X holds {values[wrong[0]]}; the {self.name} base models counts 0, 1, 2, ...: "
                'Negative values in data, or fractions, need base="gaussian" or "exponential"'
            )
        if values.size and values.max() > LARGEST_COUNT:
            raise InvalidInputError(
                f"X holds {values.max():g}; sums run over every count, up to {LARGEST_COUNT:,}: "
                'divide the counts, or use base="gaussian" or "exponential"'
            )

    def table(self, k: int) -> "Table":
        """Return the points of the sums over counts; cached."""
        return _cached_table(self, k)

    @abstractmethod
    def build_table(self, k: int) -> "Table":
        """Return a new table with t_1, ..., t_k and the additional statistics."""

    def sweep(self, chains: Any, families: Sequence[Base], rng: np.random.Generator) -> int:
        """Draw every node of Gibbs chains given the others."""
        k = chains.statistics.shape[2] - self.own
        return int(
            kernels.sampling.sweep_counts(
                chains, _stacked(tuple(families), k), rng.random(chains.state.shape)
            )
        )

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = outputs(eta)
        kernels.count_rows.derivatives(
            np.ascontiguousarray(eta), self.table(eta.shape[1] - self.own), *out
        )
        return out


class Poisson(CountBase):
    """Counts: x = 0, 1, 2, ..., T = x, B = -log x!; every eta has a normalizer."""

    name = "poisson"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return -log x!."""
        from scipy.special import gammaln

        return -np.asarray(gammaln(np.asarray(x, dtype=np.float64) + 1.0))

    def independent(self, mean: float) -> float:
        """Return log mean, eta_1 of a Poisson distribution; -100 for a mean of 0."""
        return float(np.log(mean)) if mean > 0 else EMPTY

    def build_table(self, k: int) -> "Table":
        """Return a table of counts up to a million, in panels of a standard deviation."""
        return tables.smooth_table(
            self.log_base, lambda x: self.statistics(x, k), last=POISSON_LAST, width=np.sqrt,
            base_limit=-np.inf, linear=np.eye(k)[0],
        )  # fmt: skip

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (k,)."""
        return float(self.gradient(eta)[0])

    def sides(self, eta: FloatArray, a: float) -> list[Integrand]:
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
            more = outputs(rows)
            kernels.counts.wide_derivatives(rows, self.table(eta.shape[1]), *more)
            for whole, part in zip(out, more, strict=True):
                whole[beyond] = part
        return out


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

    def first_draw(self, intercepts: FloatArray) -> FloatArray:
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
        from scipy.special import gammaln

        mean, r = self._law()
        values = np.asarray(x, dtype=np.float64)
        choose = gammaln(values + r) - gammaln(r) - gammaln(values + 1.0)
        return np.asarray(choose - r * np.log1p(mean / r) - values * np.log1p(r / mean))

    def build_table(self, k: int) -> "Table":
        """Return a table that extends over TAIL nats of the geometric tail."""
        mean, r = self._law()
        decay = float(np.log1p(r / mean))
        return tables.smooth_table(
            self.log_base, lambda x: self.statistics(x, k),
            last=int(max(16 * tables.SINGLES, TAIL / decay)),
            width=lambda x: np.sqrt(x + 0.01 * x * x),
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
        self.own = inner.own + 1  # type: ignore[misc]

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

    def own_statistics(self, x: FloatArray) -> FloatArray:
        """Return the statistics of the inner family and 1[x = 0]."""
        return np.concatenate([self.inner.own_statistics(x), (x == 0).astype(float)], axis=-1)

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return B of the inner family."""
        return self.inner.log_base(x)

    def independent(self, mean: float) -> float:
        """Return eta_1 of the inner family."""
        return self.inner.independent(mean)

    def first_draw(self, intercepts: FloatArray) -> FloatArray:
        """Return the eta of the inner family, and 0 for the statistic 1[x = 0]."""
        return np.append(self.inner.first_draw(intercepts[:-1]), 0.0)

    def start(self, means: FloatArray) -> FloatArray:
        """Return the start of the inner family, and the log odds of zero relative to it."""
        inner = self.inner.start(means[:-1])
        log_zero = float(self.log_base(0.0)) - float(self.inner.derivatives(inner[None])[0][0])
        share = np.clip(means[-1], 1e-9, 1 - 1e-9)
        odds = np.log(share / (1 - share)) - (log_zero - np.log(-np.expm1(min(log_zero, -1e-12))))
        return np.append(inner, np.clip(odds, -50.0, 50.0))

    def build_table(self, k: int) -> "Table":
        """Return the table of the inner family with the statistic 1[x = 0] added."""
        return tables.with_zero_indicator(self.inner.table(k))


@lru_cache(maxsize=4096)
def _cached_table(base: CountBase, k: int) -> "Table":
    return base.build_table(k)


@lru_cache(maxsize=16)
def _stacked(families: tuple[CountBase, ...], k: int) -> Any:
    """Return the tables of all nodes as a TableSet; nodes with equal families share a table."""
    distinct = {family: number for number, family in enumerate(dict.fromkeys(families))}
    which = np.array([distinct[family] for family in families], dtype=np.int64)
    return kernels.sampling.stack_tables([family.table(k) for family in distinct], which)
