"""Sums over the paths of a lattice."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def log_sums_ahead(
    beta: FloatArray, first: IntArray, nextstate: IntArray, weight: FloatArray
) -> None:
    """Fill beta[s] = log sum_e exp(weight[e] + beta[nextstate[e]]); the last beta is given.

    The arcs e that leave state s are first[s] .. first[s + 1] - 1.
    """
    for state in range(len(beta) - 2, -1, -1):
        largest = -np.inf
        for arc in range(first[state], first[state + 1]):
            largest = max(largest, weight[arc] + beta[nextstate[arc]])
        if largest > -np.inf:
            added = 0.0
            for arc in range(first[state], first[state + 1]):
                added += np.exp(weight[arc] + beta[nextstate[arc]] - largest)
            largest += np.log(added)
        beta[state] = largest


@kernel
def shares(
    share: FloatArray, first: IntArray, nextstate: IntArray, weight: FloatArray, beta: FloatArray
) -> None:
    """Write the probability of each arc given its source; of a source, they add up to 1."""
    for state in range(len(beta)):
        behind = beta[state] if beta[state] > -np.inf else 0.0
        total = 0.0
        for arc in range(first[state], first[state + 1]):
            share[arc] = np.exp(weight[arc] + beta[nextstate[arc]] - behind)
            total += share[arc]
        if total > 0.0:
            for arc in range(first[state], first[state + 1]):
                share[arc] /= total


@kernel
def visits(visit: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray) -> None:
    """Fill visit[s] = the sum over the arcs into s of visit[source] share; visit[0] is given.

    Arcs are sorted by source.
    """
    for arc in range(len(source)):
        visit[nextstate[arc]] += visit[source[arc]] * share[arc]


@kernel
def means_before(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Add up mean[nextstate] = sum_e share[e] (mean[source] + value[e]), arcs sorted by source."""
    for arc in range(len(source)):
        if share[arc] > 0.0:
            mean[nextstate[arc]] += share[arc] * (mean[source[arc]] + value[arc])


@kernel
def means_after(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Add up mean[source] = sum_e share[e] (value[e] + mean[nextstate]), arcs sorted by source."""
    for arc in range(len(source) - 1, -1, -1):
        if share[arc] > 0.0:
            mean[source[arc]] += share[arc] * (value[arc] + mean[nextstate[arc]])


@kernel
def walks(
    steps: IntArray, uniform: FloatArray, first: IntArray, nextstate: IntArray, share: FloatArray
) -> None:
    """Fill each row of `steps` with the arcs of a path drawn by `uniform`, then -1.

    Arcs are sorted by source; the shares of the arcs that leave a state sum to one.
    """
    # a path has at most as many arcs as the longest, the width of `steps` and of `uniform`
    end = len(first) - 2
    for k in range(len(steps)):
        state = 0
        depth = 0
        while state != end:
            left = uniform[k, depth]
            chosen = -1
            for arc in range(first[state], first[state + 1]):
                if share[arc] > 0.0:
                    chosen = arc
                    left -= share[arc]
                    if left < 0.0:
                        break
            steps[k, depth] = chosen
            state = nextstate[chosen]
            depth += 1
