"""The bases of positive numbers (exponential) and real numbers (Gaussian)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import kernels
from fstgrad.grm.base import Base, Derivatives, mass_center, outputs
from fstgrad.grm.measures import ExponentialMeasure, GaussianMeasure, Integrand

SMALLEST_MEAN = 1e-12  # of a positive or real variable that is always 0


class Exponential(Base):
    """Numbers x >= 0 with T = x, B = 0; the first nonzero eta_j must be negative."""

    name = "exponential"

    def log_base(self, x: npt.ArrayLike) -> FloatArray:
        """Return 0."""
        return np.zeros(np.shape(x))

    def independent(self, mean: float) -> float:
        """Return -1 / mean, the eta_1 of an exponential distribution."""
        return -1.0 / max(mean, SMALLEST_MEAN)

    def mean(self, eta: FloatArray) -> float:
        """Return E[x] for one eta (k,)."""
        return float(self.gradient(eta)[0])

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

    def sides(self, eta: FloatArray, a: float) -> list[Integrand]:
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

    def _direct(self, eta: FloatArray, tol: float) -> Derivatives:
        out = outputs(eta)
        kernels.integrals.derivatives(eta, False, tol, *out)
        return out


class Gaussian(Exponential):
    """Real numbers with T = x^2, B = 0; t_j = |x|^(2/j), with the sign of x for even j.

    With k <= 2, the model is a multivariate normal distribution.
    """

    name = "gaussian"
    power = 2
    whole_line = True

    def statistics(self, x: npt.ArrayLike, k: int) -> FloatArray:
        """Return t(x), (..., k), of values x (...)."""
        even = np.arange(1, k + 1) % 2 == 0
        sign = np.where(even, np.sign(np.asarray(x, dtype=np.float64)[..., None]), 1.0)
        return sign * super().statistics(x, k)

    def independent(self, mean: float) -> float:
        """Return -1 / (2 mean), with the mean of x^2: eta_1 of a centered normal distribution."""
        return -0.5 / max(mean, SMALLEST_MEAN)

    def is_normal(self, k: int) -> bool:
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

    def sides(self, eta: FloatArray, a: float) -> list[Integrand]:
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
        out = outputs(eta)
        if eta.shape[1] <= 2:
            kernels.integrals.gaussian_pair(eta, *out)
        else:
            kernels.integrals.derivatives(eta, True, tol, *out)
        return out
