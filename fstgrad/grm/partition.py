"""The log-partition of the joint model: exact where possible, else annealed sampling."""

from dataclasses import dataclass

import numpy as np

from fstgrad import checks
from fstgrad.checks import FloatArray, Seed
from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.sampling import Chains

MOST_COUNTS = 2048  # of one variable in an exact sum


@dataclass(frozen=True)
class PartitionEstimate:
    """log Z in nats.

    standard_error : float, of `value`; 0 where it is exact.
    effective_samples : float, (sum w)^2 / sum w^2 of the importance weights.
    """

    value: float
    standard_error: float
    effective_samples: float
    exact: bool


def log_partition(
    parameters: Parameters, method: str, *, samples: int, steps: int, rng: Seed
) -> PartitionEstimate:
    """Return log Z by "exact", "ais", or "auto": exact where that is possible."""
    checks.one_of("method", method, ("auto", "exact", "ais"))
    if method != "ais":
        value = _exact(parameters)
        if value is not None:
            return PartitionEstimate(value, 0.0, np.inf, exact=True)
        if method == "exact":
            raise InvalidInputError(
                'method is "exact", which needs independent variables, counts with p <= 3 or a '
                'Gaussian base with k <= 2; give "ais"'
            )
    return annealed(parameters, samples=samples, steps=steps, rng=rng)


def annealed(parameters: Parameters, *, samples: int, steps: int, rng: Seed) -> PartitionEstimate:
    """Return log Z by annealed importance sampling (Neal, Statistics and Computing 2001).

    The path scales the interactions from 0, where log Z = sum_s A(intercepts_s), to 1, with one
    Gibbs sweep at each of `steps` equal steps; the standard error is the delta method's.
    """
    checks.positive_integer("samples", samples, minimum=2)
    checks.positive_integer("steps", steps)
    generator = checks.generator(rng)
    chains = Chains(parameters, samples)
    chains.sweep(generator, weight=0.0)
    log_weight = np.zeros(samples)
    for step in range(1, steps + 1):
        log_weight += _interaction_energy(parameters, chains.statistics) / steps
        if step < steps:
            chains.sweep(generator, weight=step / steps)
    start = parameters.family.log_partition(parameters.intercepts).value.sum()
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    mean = weight.mean()
    return PartitionEstimate(
        value=float(start + top + np.log(mean)),
        standard_error=float(weight.std(ddof=1) / (mean * np.sqrt(samples))),
        effective_samples=float(weight.sum() ** 2 / (weight**2).sum()),
        exact=False,
    )


def _interaction_energy(parameters: Parameters, statistics: FloatArray) -> FloatArray:
    from fstgrad.grm.kernels.potentials import add_energies

    energy = np.zeros(len(statistics))
    add_energies(statistics, *parameters.flat, energy)
    return energy


def _exact(parameters: Parameters) -> float | None:
    """Return log Z where a closed form or a small sum gives it."""
    if not parameters.flat[3].size:
        return float(parameters.family.log_partition(parameters.intercepts).value.sum())
    if parameters.base == "gaussian" and parameters.k <= 2:
        return _gaussian(parameters)
    if parameters.base == "poisson" and parameters.features <= 3:
        return _count_sum(parameters)
    return None


def _gaussian(parameters: Parameters) -> float:
    """Return p/2 log 2 pi - log det(P) / 2 + h P^-1 h / 2 for exp(-x P x / 2 + h x)."""
    p = parameters.features
    precision = np.diag(-2.0 * parameters.intercepts[:, 0])
    for term in parameters.interactions:
        a, b = term.sets.T
        np.subtract.at(precision, (a, b), term.values)
        np.subtract.at(precision, (b, a), term.values)
    linear = parameters.intercepts[:, 1]
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError as error:
        raise InfeasibleError(
            "the precision matrix is not positive definite: the model has no normalizer; see "
            "is_normalizable()"
        ) from error
    solved = np.linalg.solve(factor, linear)
    log_det = 2.0 * np.log(np.diag(factor)).sum()
    return float(0.5 * p * np.log(2 * np.pi) - 0.5 * log_det + 0.5 * solved @ solved)


def _count_sum(parameters: Parameters) -> float | None:
    """Sum all but the last variable; the last has A of its conditional in closed sum."""
    summed = parameters.features - 1
    before, size = -np.inf, 64
    while size <= MOST_COUNTS:
        axes = np.meshgrid(*[np.arange(float(size))] * summed, indexing="ij")
        x = np.stack([*(axis.ravel() for axis in axes), np.zeros(size**summed)], axis=1)
        total = -np.inf
        for rows in np.array_split(x, max(1, len(x) // 100_000)):
            value = parameters.family.derivatives(np.ascontiguousarray(parameters.eta(rows)[:, -1]))
            energy = parameters.log_potential(rows) + value[0]  # the last variable adds 0 at 0
            total = np.logaddexp(total, np.logaddexp.reduce(energy))
        if abs(total - before) <= 1e-13 * max(1.0, abs(total)):
            return float(total)
        before, size = total, 2 * size
    return None
