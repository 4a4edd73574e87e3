"""One-dimensional views of a model: a node given the others, and rays from the origin."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.axis_labels import check_names
from fstgrad.core.checks import FloatArray, Seed
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.grm.base import Base, Bounds
from fstgrad.grm.parameters import Parameters

TAIL = 50.0  # a ray is cut off this many nats below its highest point
CELLS = 4096  # of a table over log z
MOST_POINTS = 2**22  # of a sum along a ray


@dataclass(frozen=True, eq=False)
class NodeConditional:
    """p(x_s | all other x): the family `base` with natural parameters eta (k + e,)."""

    base: Base
    eta: FloatArray

    def log_partition(self) -> Bounds:
        """Return A(eta) in nats with lower and upper bounds."""
        return self.base.log_partition(self.eta)

    def log_prob(self, x: npt.ArrayLike) -> FloatArray:
        """Return the log of the mass (counts) or of the density at x (...), in nats.

        Raises InvalidInputError if the family does not allow a value.
        """
        given = checks.real_array("x", x)
        values = self.base.modelled_values(given.ravel()).reshape(given.shape)
        self.base.check_values(values.ravel())
        fit = self.base.statistics(values, self.eta.size - self.base.num_extra) @ self.eta
        return np.asarray(fit + self.base.log_base(values) - self.log_partition().value)

    def mean(self) -> float:
        """Return E[x_s]."""
        return self.base.mean(self.eta)

    def sample(self, k: int, rng: Seed = None) -> FloatArray:
        """Return k draws, (k,) float64, by inversion of the distribution function.

        For continuous families, the density is a table over log T, linear in each of 1,024 cells; a
        Gaussian family with k <= 2 is sampled as a normal distribution.
        """
        count = checks.positive_integer("k", k)
        alone = Parameters((self.base,), self.eta.size - self.base.num_extra, self.eta[None, :], ())
        from fstgrad.grm.sampling import Chains

        chains = Chains(alone, count)
        chains.sweep(checks.generator(rng))
        return chains.state[:, 0].copy()


@dataclass(frozen=True, eq=False)
class RadialConditional:
    """The model along x = z v, z > 0.

    Its unnormalised log-density is sum_r eta_r(v) z^r + sum_s B(z v_s), with r = l / j for sets of
    size l and root j (2 l / j for the Gaussian base).

    Attributes
    ----------
    direction : (p,) float64
        v.
    exponents : (m,) float64
        r, decreasing.
    coefficients : (m,) float64
        eta_r(v).
    """

    parameters: Parameters
    direction: FloatArray
    exponents: FloatArray
    coefficients: FloatArray

    def log_density(self, z: npt.ArrayLike) -> FloatArray:
        """Return the unnormalised log-density at z (...), in nats."""
        ray = checks.real_array("z", z)
        if (ray < 0).any():
            raise InvalidInputError(f"z holds {ray.min()}; a ray has z >= 0")
        points = ray.reshape(-1, 1) * self.direction
        powers = (ray[..., None] ** self.exponents) @ self.coefficients
        return np.asarray(powers + self.parameters.log_base(points).sum(axis=1).reshape(ray.shape))

    def is_normalizable(self) -> bool:
        """Return whether the density can be normalised along the ray.

        It can if the leading nonzero coefficient is negative, or with any coefficients for counts.
        """
        if self.parameters.family.always_normalizable:
            return True
        leading = self.coefficients[self.coefficients != 0]
        return bool(leading.size and leading[0] < 0)

    def sample(self, k: int, rng: Seed = None) -> FloatArray:
        """Return k draws z v of the model given the direction, (k, p) float64.

        For counts, the direction must consist of integers.  The draws are points of the ray with
        integer entries, by an exact sum over all points that are not negligible.  For positive and
        real numbers, z > 0 is drawn from its density, a table of 4,096 cells of log z.  The cost is
        O(m p) for m points or cells.

        Raises
        ------
        InvalidInputError
            The model is one of counts, and the direction does not consist of integers.
        InfeasibleError
            The density has no normalizer along the ray.
        NotSupportedError
            The sum would need more than 2^22 points.

        Examples
        --------
        >>> from fstgrad import GeneralizedRootModel
        >>> X = np.random.default_rng(0).poisson(2.0, size=(200, 3))
        >>> model = GeneralizedRootModel(k=2, alpha=0.1).fit(X)
        >>> model.radial_conditional([1, 2, 0]).sample(5, rng=0).shape
        (5, 3)
        """
        count = checks.positive_integer("k", k)
        generator = checks.generator(rng)
        if not self.is_normalizable():
            raise InfeasibleError(
                f"the density along v = {self.direction.tolist()} has no normalizer: its leading "
                "coefficient is not negative; give another direction"
            )
        z = self._of_counts if self.parameters.family.whole_numbers else self._of_reals
        return np.asarray(z(count, generator)[:, None] * self.direction)

    def _of_counts(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws z >= 0, (count,), for which z v consists of integers."""
        integers = self.direction.astype(np.int64)
        if (integers != self.direction).any():
            raise InvalidInputError(
                f"v is {self.direction.tolist()}; draws of counts need a direction of whole numbers"
            )
        step, points = 1.0 / float(np.gcd.reduce(integers)), 64
        while True:
            z = step * np.arange(points)
            height = self.log_density(z)
            best = int(height.argmax())
            if 2 * best < points and height[-1] < height[best] - TAIL:
                weight = np.cumsum(np.exp(height - height[best]))
                drawn = np.searchsorted(weight, rng.random(count) * weight[-1], side="right")
                return np.asarray(z[drawn])
            points *= 2
            if points > MOST_POINTS:
                raise NotSupportedError(
                    f"the counts along v = {self.direction.tolist()} exceed {MOST_POINTS:,} "
                    "points; give another direction"
                )

    def _of_reals(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws z (count,) > 0."""
        low, high = -46.0, 46.0  # log z
        for _ in range(3):
            v = np.linspace(low, high, CELLS + 1)
            height = self.log_density(np.exp(v)) + v
            near = np.flatnonzero(height > height.max() - TAIL)
            low, high = v[max(near[0] - 1, 0)], v[min(near[-1] + 1, CELLS)]
        density = np.exp(height - height.max())
        mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        return np.asarray(np.exp(np.interp(rng.random(count) * mass[-1], mass, v)))


def node_conditional(
    parameters: Parameters, s: int, x: npt.ArrayLike, names: Sequence[str] | None = None
) -> NodeConditional:
    """Return the conditional of node s given the other entries of x (p,); x[s] is not used.

    names : those of the columns, which the labels of x must be if it has any.
    """
    check_names("x", x, names)
    values = checks.real_array("x", x, (parameters.features,)).copy()
    values[s] = 0.0
    values = parameters.family.modelled_values(values)
    parameters.family.check_values(np.delete(values, s))
    eta = parameters.eta(values[None, :])[0, s]
    return NodeConditional(parameters.families[s], eta)


def radial_conditional(
    parameters: Parameters, v: npt.ArrayLike, names: Sequence[str] | None = None
) -> RadialConditional:
    """Return the model along x = z v, for v (p,); `names` as for `node_conditional`.

    Raises
    ------
    InvalidInputError
        v is zero, or has negative entries and the variables are positive.
    NotSupportedError
        The base has T = log(1 + x)^2.
    """
    check_names("v", v, names)
    direction = checks.real_array("v", v, (parameters.features,))
    if not np.abs(direction).sum() > 0:
        raise InvalidInputError("v is zero; give a direction")
    family = parameters.family
    if not family.allows_negative and (direction < 0).any():
        raise InvalidInputError(
            f"v has negative entries, but {family.name} variables are >= 0; give v >= 0"
        )
    if family.scale == "log":
        raise NotSupportedError(
            f"the {family.name} base has T = log(1 + x)^2, which is not a power along a ray; use "
            "the Poisson, the exponential or the Gaussian base"
        )
    statistics = family.statistics(direction, parameters.k)
    amount_of: dict[float, float] = {}
    for j in range(1, parameters.k + 1):
        power = float(family.exponents(parameters.k)[j - 1])
        amount = float(statistics[:, j - 1] @ parameters.intercepts[:, j - 1])
        amount_of[power] = amount_of.get(power, 0.0) + amount
    for term in parameters.interactions:
        power = float(family.exponents(1)[0]) * term.term.size / term.term.root
        products = statistics[term.sets, term.term.root - 1].prod(axis=1)
        amount_of[power] = amount_of.get(power, 0.0) + float(term.values @ products)
    exponents = np.array(sorted(amount_of, reverse=True))
    return RadialConditional(
        parameters, direction, exponents, np.array([amount_of[r] for r in exponents.tolist()])
    )
