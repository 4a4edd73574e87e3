"""Directional derivatives of log Z and Q by the compiled passes: risks and covariances."""

from typing import Literal, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings import kernels
from fstgrad.strings.algebra import Log
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights
from fstgrad.strings.solve import no_string_message, score_table, used_contexts


class Tangent(NamedTuple):
    """log Z and the marginals, and their derivatives along one direction.

    Attributes
    ----------
    log_partition : float
        log Z in nats.
    slope : float
        The derivative of log Z, nats.
    marginals, change : float64 arrays like the scores
        The marginals and their derivatives.
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
    """Return log Z and Q under the weights e^{w.Psi + scale L}, and their derivatives.

    The derivatives along V = slope L + <direction, t> are E[V] and Cov[V, t].

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
        Log-weights in nats.
    b : LossAutomaton of the same length and alphabet
    scale : {0, 1}
        With 0 the weights are those of the scores alone, but strings of infinite loss still have
        weight 0.
    slope : {0, 1}
        With 1 the derivative is along the losses: `Tangent.slope` is E[L] in nats and `change` is
        Cov[L, t].
    direction : float64 array like the scores, optional
        A change of the scores, added to the direction.

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
    kernels.passes.exponentials(table.reshape(-1))
    layout = b.bigram_layout if order == 2 else b.plain_layout
    weight, final = layout.weight, layout.final
    if scale == 0:
        weight, final = layout.unweighted, layout.unweighted_final
    cost, final_cost = layout.cost, layout.final_cost
    if slope == 0:
        cost, final_cost = np.zeros_like(cost), np.zeros_like(final_cost)
    change = np.zeros(table.shape)
    if direction is not None:
        used = used_contexts(order, scores.shape[-1])
        np.multiply(table, direction.reshape(table.shape), out=change, where=table > 0)
        for t in range(min(order - 1, len(scores))):
            change[t, ~used[t]] = 0.0
    pairs = (table, change), layout.walk, (weight, cost), (final, final_cost)
    moved = direction is not None
    if order == 1:
        log_z, expected = kernels.order_one.forward_backward_with_tangents(*pairs, moved)
    else:
        log_z, expected = kernels.passes.forward_backward_with_tangents(*pairs, moved, order)
    if log_z == -np.inf:
        raise InfeasibleError(no_string_message(b.is_complete))
    return Tangent(
        log_z + weighed.shift + scale * (layout.shift + b.initial),
        expected + slope * b.initial,
        table.reshape(scores.shape),
        change.reshape(scores.shape),
    )


def _on_logarithms(
    scores: FloatArray, b: LossAutomaton, scale: int, slope: int, direction: FloatArray | None
) -> Tangent:
    """Return the same by numpy passes in log space, for weights beyond the range of float64."""
    paths = loss_weights(b, scale=scale, slope=slope)
    passes = Passes(scores, paths, direction, algebra=Log())
    log_z, expected = passes.forward()
    marginals, change = passes.backward()
    return Tangent(log_z, expected, marginals, np.zeros_like(scores) if change is None else change)
