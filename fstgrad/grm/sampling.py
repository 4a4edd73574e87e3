"""Gibbs sampling over the node conditionals, with diagnostics."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.estimates import lugsail_variance, r_hat, variance_of_mean
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.grm import kernels, normalization
from fstgrad.grm.parameters import Parameters

_ENOUGH = 400  # draws whose R-hat is told from 1
_UNMIXED = 1.2  # R-hat


@dataclass(frozen=True, eq=False)
class GibbsSample:
    """Draws with diagnostics.

    values : (k, p) float64, the draws of the first chain, then those of the next, and so on.
    r_hat : (p,) float64, the split R-hat of each variable, near 1 if the chains have mixed; NaN
        with fewer than 4 draws per chain.
    effective : (p,) float64, the effective number of independent draws for the mean of each
        variable, from means of batches; NaN with too few draws.
    """

    values: FloatArray
    r_hat: FloatArray
    effective: FloatArray

    __repr__ = short_repr


class Chains:
    """c independent Gibbs chains.

    state : (c, p) float64, the values; all 0 at first.
    statistics : (c, p, k + e) float64, the statistics of the state.
    shift : (c, p) float64, added to the first intercept of every node; 0 at first.
    """

    def __init__(self, parameters: Parameters, chains: int) -> None:
        self.parameters = parameters
        self.state = np.zeros((chains, parameters.features))
        self.statistics = np.broadcast_to(
            parameters.family.statistics(0.0, parameters.k),
            (chains, *parameters.intercepts.shape),
        ).copy()
        self.shift = np.zeros(self.state.shape)
        self.pointer, self.touching = _incidence(parameters)

    def sweep(self, rng: np.random.Generator, weight: float = 1.0) -> None:
        """Draw every variable of every chain once, given the others, in place.

        weight : multiplies the interactions, for annealing.
        Raises NotSupportedError if a conditional cannot be drawn.
        """
        sizes, roots, members, values = self.parameters.flat
        arrays = kernels.sampling.ChainArrays(
            self.state, self.statistics, self.parameters.intercepts, self.shift, self.pointer,
            self.touching, sizes, roots, members, weight * values,
        )  # fmt: skip
        failed = self.parameters.family.sweep(arrays, self.parameters.families, rng)
        if failed >= 0:
            raise NotSupportedError(
                f"the conditional of node {failed} cannot be drawn: its mean exceeds a million or "
                "it has no normalizer; see is_normalizable()"
            )


def gibbs(
    parameters: Parameters, k: int, rng: Seed = None, *, burn_in: int, thin: int, chains: int
) -> GibbsSample:
    """Return k draws from min(chains, k) chains, each after `burn_in` sweeps, `thin` sweeps apart.

    Raises InfeasibleError if the model is known to have no normalizer.
    """
    count = checks.positive_integer("k", k)
    many = min(checks.positive_integer("chains", chains), count)
    thin = checks.positive_integer("thin", thin)
    burn_in = checks.positive_integer("burn_in", burn_in, minimum=0)
    generator = checks.generator(rng)
    normalization.require(parameters, "sample")
    running = started(parameters, many, generator)
    for _ in range(burn_in):
        running.sweep(generator)
    each = -(-count // many)
    draws = empty((many, each, parameters.features))
    for number in range(each):
        for _ in range(thin):
            running.sweep(generator)
        draws[:, number] = running.state
    return GibbsSample(
        draws.reshape(-1, parameters.features)[:count], _split_r_hat(draws), _effective(draws)
    )


def one_each(parameters: Parameters, shift: FloatArray, sweeps: int, rng: Seed) -> FloatArray:
    """Return one draw (c, p) for each row of `shift` (c, p), each from its own chain.

    shift : added to the first intercept of each node.  sweeps : of each chain.
    """
    normalization.require(parameters, "sample")
    generator = checks.generator(rng)
    running = started(parameters, len(shift), generator)
    running.shift = np.ascontiguousarray(shift)
    for _ in range(sweeps):
        running.sweep(generator)
    return running.state


def started(parameters: Parameters, chains: int, rng: np.random.Generator) -> Chains:
    """Return chains that start at draws of independent variables (`Base.chain_start`)."""
    rows = zip(parameters.families, parameters.intercepts, strict=True)
    typical = np.array([family.chain_start(eta) for family, eta in rows])
    running = Chains(replace(parameters, intercepts=typical), chains)
    running.sweep(rng, weight=0.0)
    running.parameters = parameters
    return running


def warn_if_unmixed(drawn: GibbsSample) -> None:
    """Warn if there are enough draws to see that the chains have not mixed."""
    worst = np.nanmax(drawn.r_hat, initial=1.0)
    if len(drawn.values) >= _ENOUGH and worst > _UNMIXED:
        warnings.warn(
            f"the chains have not mixed: the largest R-hat is {worst:.3g}, and 1 if they have; "
            "give gibbs(k, burn_in=, thin=) larger numbers until its r_hat is near 1",
            UserWarning,
            stacklevel=3,
        )


def _split_r_hat(draws: FloatArray) -> FloatArray:
    """Return the split R-hat (p,) of draws (chains, draws, p); NaN below 4 draws per chain.

    Source: Gelman et al., Bayesian Data Analysis, section 11.4.
    """
    half = draws.shape[1] // 2
    if half < 2:
        return np.full(draws.shape[2], np.nan)
    parts = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    return r_hat(parts.mean(axis=1), parts.var(axis=1, ddof=1).mean(axis=0), half)


def _effective(draws: FloatArray) -> FloatArray:
    """Return the effective sample size (p,) of the means, from batches of about sqrt(n) draws.

    draws : (chains, n, p).  The long-run variance has the lugsail correction, from batches of twice
    the length.
    """
    chains, each, p = draws.shape
    size = max(1, int(np.sqrt(each)))
    number = each // (2 * size)  # pairs of batches per chain
    if chains * number < 4:
        return np.full(p, np.nan)
    pairs = draws[:, : 2 * number * size].reshape(chains * number, 2, size, p).mean(axis=2)
    mean = pairs.mean(axis=(0, 1))
    long_run = lugsail_variance(
        variance_of_mean(mean, (pairs**2).sum(axis=(0, 1)), 2 * len(pairs)),
        variance_of_mean(mean, (pairs.mean(axis=1) ** 2).sum(axis=0), len(pairs)),
    )
    variance = draws.reshape(-1, p).var(axis=0, ddof=1)
    total = np.full(p, float(chains * each))
    ratio = np.divide(variance, long_run, out=total.copy(), where=long_run > 0)
    return np.asarray(np.minimum(total, ratio))


def _incidence(parameters: Parameters) -> tuple[IntArray, IntArray]:
    """Return pointer (p + 1,) and list: node s is in the sets list[pointer[s]:pointer[s + 1]]."""
    sizes, _, members, _ = parameters.flat
    number = np.repeat(np.arange(len(sizes)), sizes)
    node = members[members >= 0]
    order = np.argsort(node, kind="stable")
    counts = np.bincount(node, minlength=parameters.features)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), number[order].astype(np.int64)
