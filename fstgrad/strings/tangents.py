"""Derivatives of log Z and Q along one direction by the compiled passes: risks and covariances."""

from typing import Literal, NamedTuple

import numpy as np

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import FloatArray
from fstgrad.errors import InfeasibleError
from fstgrad.strings import kernels
from fstgrad.strings.algebra import Log
from fstgrad.strings.kernels.arrays import Dual
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights
from fstgrad.strings.solve import NO_STRING, score_table, used_contexts


class Tangent(NamedTuple):
    """log Z and the marginals, and their derivatives along one direction.

    log_partition, slope : float, nats
    marginals, change : like the scores
    """

    log_partition: float
    slope: float
    marginals: FloatArray
    change: FloatArray


def tangent(
    scores: FloatArray,
    b: LossAutomaton,
    *,
    scale: Literal[0, 1],
    slope: Literal[0, 1] = 0,
    direction: FloatArray | None = None,
) -> Tangent:
    """Return log Z and Q under the weights e^{scale L}, and their derivatives.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
    b : LossAutomaton of the same length and alphabet
    scale : {0, 1}
        0 leaves the losses out of the weights; strings of infinite loss stay out.
    slope : {0, 1}
        1 takes the derivative along the losses: `slope` is E[L] and `change` is Cov[L, t].
    direction : like the scores
        Takes the derivative along these, in addition.

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.

    Notes
    -----
    Cost: about twice `solve`.
    """
    order, weighed = scores.ndim - 1, score_table(scores)
    table = weighed.table
    if not weighed.is_within_range(scale * b.spread, is_complete=b.is_complete):
        return _on_logarithms(scores, b, scale, slope, direction)
    np.exp(table, out=table)
    layout = b.bigram_layout if order == 2 else b.plain_layout
    weight, final = layout.weight, layout.final
    if scale == 0:
        weight, final = layout.unweighted, np.ones(len(final))
    cost, final_cost = layout.cost, layout.final_cost
    if slope == 0:
        cost, final_cost = np.zeros_like(cost), np.zeros_like(final_cost)
    change = np.zeros(table.shape)
    if direction is not None:
        used = used_contexts(order, scores.shape[-1])
        np.multiply(table, direction.reshape(table.shape), out=change, where=table > 0)
        for t in range(min(order - 1, len(scores))):
            change[t, ~used[t]] = 0.0
    log_z, expected = kernels.tangents.tangent_pass(
        Dual(table, change),
        layout.walk,
        Dual(weight, cost),
        Dual(final, final_cost),
        direction is not None,
        order,
    )
    if log_z == -np.inf:
        raise InfeasibleError(NO_STRING)
    return Tangent(
        log_z + weighed.shift + scale * (layout.shift + b.initial),
        expected + slope * b.initial,
        table.reshape(scores.shape),
        change.reshape(scores.shape),
    )


def _on_logarithms(
    scores: FloatArray, b: LossAutomaton, scale: int, slope: int, direction: FloatArray | None
) -> Tangent:
    """Take the passes in numpy on logarithms, for weights beyond the range of floats."""
    paths = loss_weights(b, scale=scale, slope=slope)
    passes = Passes(scores, paths, direction, algebra=Log())
    log_z, expected = passes.forward()
    marginals, change = passes.backward()
    return Tangent(log_z, expected, marginals, np.zeros_like(scores) if change is None else change)
