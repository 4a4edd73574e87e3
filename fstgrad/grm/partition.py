"""The log-partition of the joint model: exact if possible, otherwise annealed sampling."""

import warnings
from dataclasses import dataclass

import numpy as np

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, Seed
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.grm import kernels, normalization
from fstgrad.grm.families import CountBase
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.sampling import Chains

MOST_COUNTS = 2048  # counts of one variable in an exact sum
LOG_NEGLIGIBLE = np.log(1e-13)  # of a share of Z
LOOSE = 1e4  # nats: if the bound exceeds the independent log Z by more, a box is not summed
RELIABLE = 20.0  # with fewer effective samples, a warning is given


@dataclass(frozen=True)
class PartitionEstimate:
    """log Z, exact or estimated.

    value : float, log Z in nats.
    standard_error : float, of `value`, in nats; 0 if it is exact.
    effective_samples : float, (sum w)^2 / sum w^2 of the importance weights; inf if exact.
    exact : bool
    """

    value: float
    standard_error: float
    effective_samples: float
    exact: bool

    __repr__ = short_repr


def log_partition(
    parameters: Parameters, method: str, *, samples: int, steps: int, rng: Seed
) -> PartitionEstimate:
    """Return log Z by the method "exact", "ais", or "auto" (exact if possible, else "ais").

    samples, steps : chains and steps of annealing.  Raises InvalidInputError if "exact" is not
    possible, InfeasibleError if the model is known to have no normalizer.
    """
    checks.one_of("method", method, ("auto", "exact", "ais"))
    samples = checks.positive_integer("samples", samples, minimum=2)
    steps = checks.positive_integer("steps", steps)
    generator = checks.generator(rng)
    if method != "ais":
        value = _exact(parameters)
        if value is not None:
            return PartitionEstimate(value, 0.0, np.inf, exact=True)
        if method == "exact":
            raise InvalidInputError(
                'method is "exact", which needs independent variables, counts with p <= 3 or a '
                'Gaussian base with k <= 2; give "ais"'
            )
    return annealed(parameters, samples=samples, steps=steps, rng=generator)


def annealed(parameters: Parameters, *, samples: int, steps: int, rng: Seed) -> PartitionEstimate:
    """Return log Z by annealed importance sampling (Neal, Statistics and Computing 2001).

    The interactions are multiplied by a weight that grows from 0, where log Z = sum_s
    A(intercepts_s), to 1 in `steps` equal steps, with one Gibbs sweep at each.  The standard error
    is from the delta method.  Warns if there are few effective samples.
    """
    normalization.require(parameters, "log_partition")
    generator = checks.generator(rng)
    chains = Chains(parameters, samples)
    chains.sweep(generator, weight=0.0)
    log_weight = np.zeros(samples)
    for step in range(1, steps + 1):
        log_weight += _interaction_energy(parameters, chains.statistics) / steps
        if step < steps:
            chains.sweep(generator, weight=step / steps)
    start = independent_log_partition(parameters)
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    mean = weight.mean()
    effective = float(weight.sum() ** 2 / (weight**2).sum())
    if effective < min(RELIABLE, 0.5 * samples):
        warnings.warn(
            f"log Z is estimated from {effective:.1f} effective samples of {samples}: the value "
            "and its standard error are unreliable; raise steps, then samples",
            stacklevel=4,
        )
    return PartitionEstimate(
        value=float(start + top + np.log(mean)),
        standard_error=float(weight.std(ddof=1) / (mean * np.sqrt(samples))),
        effective_samples=effective,
        exact=False,
    )


def _interaction_energy(parameters: Parameters, statistics: FloatArray) -> FloatArray:
    energy = np.zeros(len(statistics))
    kernels.design.add_energies(statistics, *parameters.flat, energy)
    return energy


def _exact(parameters: Parameters) -> float | None:
    """Return log Z if there is a closed form or a small sum, else None."""
    if not parameters.flat.values.size:
        return independent_log_partition(parameters)
    if parameters.family.is_multivariate_normal(parameters.k):
        return _gaussian(parameters)
    if isinstance(parameters.family, CountBase) and parameters.features <= 3:
        return _count_sum(parameters)
    return None


def independent_log_partition(parameters: Parameters) -> float:
    """Return sum_s A(intercepts_s) in nats: log Z without the interactions."""
    return float(
        sum(
            family.log_partition(eta).value
            for family, eta in zip(parameters.families, parameters.intercepts, strict=True)
        )
    )


def _gaussian(parameters: Parameters) -> float:
    """Return p/2 log 2 pi - log det(P) / 2 + h' P^-1 h / 2 for the density exp(-x' P x / 2 + h' x).

    Raises InfeasibleError if P is not positive definite.
    """
    p, precision = parameters.features, -2.0 * normalization.pair_matrix(parameters)
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
    """Return log Z of counts by a sum over a box of all variables but the last.

    The sum over the last variable is A of its conditional.  Returns None if the bound on the mass
    outside the largest box is not negligible.
    """
    summed = parameters.features - 1
    total, size = -np.inf, 32
    while size < MOST_COUNTS:
        size *= 2
        outside = _log_mass_outside(parameters, size)
        if outside > independent_log_partition(parameters) + LOOSE:
            continue
        total = _box_sum(parameters, size, summed)
        if outside <= total + LOG_NEGLIGIBLE:
            return total
    return None


def _box_sum(parameters: Parameters, size: int, summed: int) -> float:
    """Return the log of the sum over {0, ..., size - 1}^summed and all counts of the last node."""
    axes = np.meshgrid(*[np.arange(float(size))] * summed, indexing="ij")
    x = np.stack([*(axis.ravel() for axis in axes), np.zeros(size**summed)], axis=1)
    last = parameters.families[-1]
    at_zero = last.statistics(0.0, parameters.k) @ parameters.intercepts[-1]
    total = -np.inf
    for rows in np.array_split(x, max(1, len(x) // 100_000)):
        value = parameters.conditional_log_partition(summed, rows)
        energy = parameters.log_potential(rows) - at_zero - last.log_base(0.0) + value
        total = np.logaddexp(total, np.logaddexp.reduce(energy))
    return float(total)


def _log_mass_outside(parameters: Parameters, size: int) -> float:
    """Return an upper bound on the log mass of states with a summed variable >= size.

    The product of l statistics t_j is at most the mean of T^(l/j) over its members, and T^(l/j) <=
    1 + T for l <= j.  So the unnormalised density is below that of an independent model.
    """
    extra = np.zeros(parameters.features)
    constant = 0.0
    for term in parameters.interactions:
        sets, values = term.sets, np.maximum(term.values, 0.0)
        np.add.at(extra, sets.ravel(), np.repeat(values / term.term.size, term.term.size))
        if term.term.size < term.term.root:
            constant += float(values.sum())
    bound = parameters.intercepts.copy()
    bound[:, 0] += extra
    log_masses, tails = [], []
    for family, eta in zip(parameters.families, bound, strict=True):
        table = family.table(parameters.k)  # type: ignore[attr-defined]
        height = table.log_base + table.statistics @ eta
        height += np.log(table.quadrature)
        log_masses.append(float(family.log_partition(eta).value))
        beyond = table.points >= size
        tails.append(float(np.logaddexp.reduce(height[beyond], initial=-np.inf)))
    log_total = sum(log_masses)
    log_outside = [
        log_total - a + tail for a, tail in zip(log_masses[:-1], tails[:-1], strict=True)
    ]
    return constant + float(np.logaddexp.reduce(log_outside))
