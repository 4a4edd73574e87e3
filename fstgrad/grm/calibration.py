"""Maximum-likelihood intercepts: a model whose samples have the statistics of the data.

A pseudo-likelihood fits the conditionals of the nodes.  If the family is wrong for the data (for
example a Poisson distribution for counts with many zeros), the joint distribution of these
conditionals has other means.  The gradient of the log-likelihood with respect to the intercepts is
E_data[t] - E_model[t].  Stochastic approximation with persistent Gibbs chains (Younes, Stochastics
65, 1999) reduces it to zero, with fixed interactions.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.grm import normalization
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.sampling import Chains, started

STEPS = (0.5, 0.05, 0.0)  # step sizes to try in turn, relative to a Newton step; 0: no change
ENOUGH = 0.1  # standard deviations: with a gap of at most this, no smaller steps are tried
LARGEST = 0.1  # change of an intercept in one sweep, times the standard deviation of its statistic


@dataclass(frozen=True)
class Calibration:
    """Calibrated parameters, and the remaining distance of their statistics from the data.

    gap : (p, c) float64, |E_model[t] - E_data[t]| in standard deviations of the data, with
        expectations over the second half of the sweeps.
    """

    parameters: Parameters
    gap: FloatArray


class _Data(NamedTuple):
    """Means, standard deviations and preconditioners of the free statistics, (p, f) each."""

    goal: FloatArray
    spread: FloatArray
    scale: FloatArray


def calibrate(
    parameters: Parameters,
    x: FloatArray,
    weights: FloatArray,
    coordinates: IntArray,
    *,
    sweeps: int,
    chains: int,
    rng: Seed,
) -> Calibration:
    """Return the parameters with intercepts at which samples have the mean statistics of x (n, p).

    Several step sizes are tried; the result with the smallest gap is returned, which may be
    `parameters` itself.

    weights : (n,), >= 0, of the rows.
    coordinates : (f,), the entries of a node's intercepts that are free.
    Raises InfeasibleError if the model is known to have no normalizer.
    """
    sweeps = checks.positive_integer("sweeps", sweeps)
    chains = checks.positive_integer("chains", chains)
    generator = checks.generator(rng)
    normalization.require(parameters, "calibrate")
    observed = parameters.family.statistics(x, parameters.k)[:, :, coordinates]
    share = weights / weights.sum()
    goal = np.einsum("n,npf->pf", share, observed)
    spread = np.sqrt(np.einsum("n,npf->pf", share, (observed - goal) ** 2))
    data = _Data(goal, spread, _majorant(observed, share))
    best = Calibration(parameters, np.full(data.goal.shape, np.inf))
    for first in STEPS:
        running = _both_starts(parameters, x, share, chains, generator)
        calibrated = _approximated(running, data, coordinates, first, sweeps, generator)
        if calibrated.gap.max() < best.gap.max():
            best = calibrated
        if best.gap.max() <= ENOUGH:
            break
    return best


def _approximated(
    running: Chains,
    data: _Data,
    coordinates: IntArray,
    first: float,
    sweeps: int,
    rng: np.random.Generator,
) -> Calibration:
    """Return the mean intercepts over the second half of the sweeps, and their gap.

    first : the step size during the first half of the sweeps; it decreases as 1 / sweep after that;
        0 keeps the intercepts.
    """
    start = running.parameters
    bound = LARGEST / np.where(data.spread > 0, data.spread, np.inf)
    heads = start.intercepts.copy()
    total, gap, tail = np.zeros(data.goal.shape), np.zeros(data.goal.shape), 0
    for sweep in range(sweeps):
        running.parameters = replace(start, intercepts=heads.copy())
        running.sweep(rng)
        slope = data.goal - running.statistics[:, :, coordinates].mean(axis=0)
        gain = first * min(1.0, 0.5 * sweeps / (sweep + 1))
        heads[:, coordinates] += np.clip(gain * slope / data.scale, -bound, bound)
        if 2 * sweep >= sweeps - 1:
            total += heads[:, coordinates]
            gap += slope
            tail += 1
    averaged = start.intercepts.copy()
    averaged[:, coordinates] = total / tail
    safe = np.where(data.spread > 0, data.spread, 1.0)
    return Calibration(replace(start, intercepts=averaged), np.abs(gap / tail) / safe)


def _both_starts(
    parameters: Parameters,
    x: FloatArray,
    share: FloatArray,
    chains: int,
    rng: np.random.Generator,
) -> Chains:
    """Return chains; every second one starts at a random row of x, the others at independent draws.

    The rows are drawn from x (n, p) with replacement, with the probabilities `share` (n,).
    """
    running = started(parameters, chains, rng)
    rows = x[rng.choice(len(x), size=len(running.state[::2]), p=share)]
    running.state[::2] = rows
    running.statistics[::2] = parameters.family.statistics(rows, parameters.k)
    return running


def _majorant(observed: FloatArray, share: FloatArray) -> FloatArray:
    """Return the sum of |covariances| of each statistic with all: a diagonal majorant, (p, f).

    inf for a constant statistic.  observed : (n, p, f).  share : (n,), the weights of the rows.
    """
    flat = observed.reshape(len(observed), -1)
    covariance = np.atleast_2d(np.cov(flat, rowvar=False, bias=True, aweights=share))
    sums = np.abs(covariance).sum(axis=1)
    return np.asarray(np.where(sums > 0, sums, np.inf)).reshape(observed.shape[1:])
