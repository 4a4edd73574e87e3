"""Intercepts by maximum likelihood: a model whose samples have the statistics of the data.

A pseudo-likelihood fits the conditionals of the nodes.  Where the family is wrong for the data (a
Poisson law for counts with many zeros, say) the joint law of these conditionals has other means.
The gradient of the log-likelihood in the intercepts is E_data[t] - E_model[t]; stochastic
approximation with persistent Gibbs chains takes it to zero (Younes, Stochastics 65, 1999), with the
interactions kept.
"""

from dataclasses import dataclass, replace

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.grm import normalization
from fstgrad.grm.parameters import Parameters
from fstgrad.grm.sampling import Chains, started

FIRST = 0.5  # the step of the first half of the sweeps, times the preconditioned gradient
LARGEST = 0.1  # change of an intercept in one sweep, times the standard deviation of its statistic


@dataclass(frozen=True)
class Calibration:
    """The parameters and how far their statistics still are from the data.

    gap : (p, c) float64, |E_model[t] - E_data[t]| in standard deviations of the data, with
        expectations over the last quarter of the sweeps of chains that start from the data.
    """

    parameters: Parameters
    gap: FloatArray


def calibrate(
    parameters: Parameters,
    x: FloatArray,
    coordinates: IntArray,
    *,
    sweeps: int,
    chains: int,
    rng: np.random.Generator,
) -> Calibration:
    """Return the intercepts at which the statistics of samples are those of x (n, p).

    coordinates : the entries of the intercepts of a node that are free.
    """
    normalization.require(parameters, "calibrate")
    observed = parameters.family.statistics(x, parameters.k)[:, :, coordinates]
    goal, spread = observed.mean(axis=0), observed.std(axis=0)
    bound = LARGEST / np.where(spread > 0, spread, np.inf)
    scale = _majorant(observed)
    running = _both_starts(parameters, x, chains, rng)
    heads = parameters.intercepts.copy()
    total, gap, tail = np.zeros(goal.shape), np.zeros(goal.shape), 0
    for sweep in range(sweeps):
        running.parameters = replace(parameters, intercepts=heads.copy())
        running.sweep(rng)
        slope = goal - running.statistics[:, :, coordinates].mean(axis=0)
        gain = FIRST * min(1.0, 0.5 * sweeps / (sweep + 1))
        heads[:, coordinates] += np.clip(gain * slope / scale, -bound, bound)
        if sweep >= sweeps // 2:
            total += heads[:, coordinates]
            gap += slope
            tail += 1
    averaged = parameters.intercepts.copy()
    averaged[:, coordinates] = total / tail
    safe = np.where(spread > 0, spread, 1.0)
    return Calibration(replace(parameters, intercepts=averaged), np.abs(gap / tail) / safe)


def _both_starts(
    parameters: Parameters, x: FloatArray, chains: int, rng: np.random.Generator
) -> Chains:
    """Return chains of which every second starts at a row of x, the others at independent draws."""
    running = started(parameters, chains, rng)
    rows = x[rng.integers(len(x), size=len(running.state[::2]))]
    running.state[::2] = rows
    running.statistics[::2] = parameters.family.statistics(rows, parameters.k)
    return running


def _majorant(observed: FloatArray) -> FloatArray:
    """Return the sums of absolute covariances with all statistics, a diagonal above the matrix."""
    flat = observed.reshape(len(observed), -1)
    covariance = np.atleast_2d(np.cov(flat, rowvar=False))
    sums = np.abs(covariance).sum(axis=1)
    return np.asarray(np.where(sums > 0, sums, np.inf)).reshape(observed.shape[1:])
