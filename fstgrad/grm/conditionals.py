"""One-dimensional views of a model: a node given the others, and the rays from the origin."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad import checks
from fstgrad.checks import FloatArray, Seed
from fstgrad.errors import InvalidInputError
from fstgrad.grm.families import Base, Bounds
from fstgrad.grm.parameters import Parameters


@dataclass(frozen=True)
class NodeConditional:
    """p(x_s | all other x), the univariate family of `base` with natural parameters eta (k,)."""

    base: Base
    eta: FloatArray

    def log_partition(self) -> Bounds:
        """Return A(eta) in nats between its bounds."""
        return self.base.log_partition(self.eta)

    def log_prob(self, x: npt.ArrayLike) -> FloatArray:
        """Return the log of the mass (Poisson) or of the density at x (...), in nats."""
        values = checks.real_array("x", x)
        self.base.check_values(values.ravel())
        fit = self.base.statistics(values, self.eta.size) @ self.eta
        return np.asarray(fit + self.base.log_base(values) - self.log_partition().value)

    def mean(self) -> float:
        """Return E[x_s]."""
        mean = self.base.gradient(self.eta)
        if self.base.name != "gaussian":
            return float(mean[0])
        return float(mean[1]) if self.eta.size > 1 else 0.0

    def sample(self, k: int, rng: Seed = None) -> FloatArray:
        """Return k draws, (k,) float64, by the inverse of the distribution function.

        Continuous families use a table of 1,024 cells of log T, linear in each.
        """
        count = checks.positive_integer("k", k)
        alone = Parameters(self.base.name, self.eta[None, :], ())
        from fstgrad.grm.sampling import Chains

        chains = Chains(alone, count)
        chains.sweep(checks.generator(rng))
        return chains.state[:, 0].copy()


@dataclass(frozen=True)
class RadialConditional:
    """The model along x = z v, z > 0.

    Its unnormalised log-density is sum_r coefficient_r z^r + sum_s B(z v_s), with r = l / j
    (2 l / j for the Gaussian base).

    Attributes
    ----------
    exponents, coefficients : (m,) float64, r falling, and eta_r(v).
    """

    base: Base
    direction: FloatArray
    exponents: FloatArray
    coefficients: FloatArray

    def log_density(self, z: npt.ArrayLike) -> FloatArray:
        """Return the unnormalised log-density at z (...), in nats."""
        ray = checks.real_array("z", z)
        powers = (ray[..., None] ** self.exponents) @ self.coefficients
        return np.asarray(powers + self.base.log_base(ray[..., None] * self.direction).sum(axis=-1))

    def is_normalizable(self) -> bool:
        """Return whether the leading coefficient that is not zero lets the ray be normalised."""
        if self.base.name == "poisson":
            return True
        leading = self.coefficients[self.coefficients != 0]
        return bool(leading.size and leading[0] < 0)


def node_conditional(parameters: Parameters, s: int, x: npt.ArrayLike) -> NodeConditional:
    """Return the conditional of node s given the other entries of x (p,); x[s] is not used."""
    values = checks.real_array("x", x, (parameters.features,)).copy()
    values[s] = 0.0
    parameters.family.check_values(values)
    eta = parameters.eta(values[None, :])[0, s]
    return NodeConditional(parameters.family, eta)


def radial_conditional(parameters: Parameters, v: npt.ArrayLike) -> RadialConditional:
    """Return the family of z along x = z v."""
    direction = checks.real_array("v", v, (parameters.features,))
    if not np.abs(direction).sum() > 0:
        raise InvalidInputError("v is zero; give a direction")
    if parameters.base != "gaussian" and (direction < 0).any():
        raise InvalidInputError(f"v has negative entries; {parameters.base} variables are positive")
    family = parameters.family
    statistics = family.statistics(direction, parameters.k)
    found: dict[float, float] = {}
    for j in range(1, parameters.k + 1):
        power = family.power / j
        amount = float(statistics[:, j - 1] @ parameters.intercepts[:, j - 1])
        found[power] = found.get(power, 0.0) + amount
    for term in parameters.interactions:
        power = family.power * term.term.size / term.term.root
        products = statistics[term.sets, term.term.root - 1].prod(axis=1)
        found[power] = found.get(power, 0.0) + float(term.values @ products)
    exponents = np.array(sorted(found, reverse=True))
    return RadialConditional(
        family, direction, exponents, np.array([found[r] for r in exponents.tolist()])
    )
