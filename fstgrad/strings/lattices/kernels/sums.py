"""Sums over the paths of a lattice; the arcs (A,) are sorted by source."""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel


@kernel
def log_sums_ahead(
    beta: FloatArray, first: IntArray, nextstate: IntArray, weight: FloatArray
) -> None:
    """Fill beta[s] = log sum_e exp(weight[e] + beta[nextstate[e]]) over the arcs e from s.

    These are the arcs first[s] .. first[s + 1] - 1.  The last beta is given; beta is (S,).
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
    """Write share[e] = exp(weight[e] + beta[nextstate] - beta[source]): p(e | source).

    The shares of the arcs of a source are normalised to the sum 1, or are all 0.
    """
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
    """Fill visit[s] = sum over the arcs e into s of visit[source] share[e]: P(passing s).

    visit[0] is given; the other entries are 0 at first.
    """
    for arc in range(len(source)):
        visit[nextstate[arc]] += visit[source[arc]] * share[arc]


@kernel
def means_before(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Fill mean[s] = sum over the arcs e into s of share[e] (mean[source] + value[e]).

    share[e] is P(e | nextstate); mean (S,) is 0 at first.
    """
    for arc in range(len(source)):
        if share[arc] > 0.0:
            mean[nextstate[arc]] += share[arc] * (mean[source[arc]] + value[arc])


@kernel
def means_after(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Fill mean[s] = sum over the arcs e from s of share[e] (value[e] + mean[nextstate]).

    share[e] is P(e | source); mean (S,) is 0 at first.
    """
    for arc in range(len(source) - 1, -1, -1):
        if share[arc] > 0.0:
            mean[source[arc]] += share[arc] * (value[arc] + mean[nextstate[arc]])


@kernel
def walks(
    steps: IntArray, uniform: FloatArray, first: IntArray, nextstate: IntArray, share: FloatArray
) -> None:
    """Fill each row of `steps` (k, longest), -1 at first, with the arcs of a random path.

    Each arc is drawn by inversion from share[e] = p(e | source) with an entry of `uniform`
    (k, longest) in [0, 1).
    """
    # depth < longest, the width of `steps` and `uniform`: no path has more arcs
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
