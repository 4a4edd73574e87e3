"""Replaces finite masks (scores like -1e9 or -1e30 that mean a hard zero) by hard zeros.

Bounds that add and subtract masks would lose all digits of the other scores.
"""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.scored_graph import Scored
from fstgrad.mrf.trw_s import tree_mode

MASK = 1e8  # nats below the best score of a table: there, floats resolve 1e-8 nats
NEGLIGIBLE = 40.0  # nats: e^-40 of Z is below the rounding of log Z


def with_hard_zeros(model: Scored) -> Scored:
    """Return the model with masks replaced by -inf, if this changes no digit of log Z.

    Let M be the sum of the best scores of all tables.  A labeling that uses a score D below the
    best of its table scores at most M - D.  All such labelings together weigh less than e^-40 times
    one labeling of score s if D > M - s + log(number of labelings) + 40.  Only such scores, at
    least MASK below the best, are replaced.  Returns the model itself if there are none, or if no
    allowed labeling without masks exists.
    """
    if all(map(_is_shallow, (model.scores.node, model.edge_stack, model.factors.table))):
        return model
    depths = [_depth(model.scores.node, (1,)), _depth(model.edge_stack, (1, 2))]
    larger = empty(len(model.factors.table))
    tops = [float(np.max(model.scores.node, axis=1).sum())]
    edge_tops = model.edge_stack.max(axis=(1, 2), initial=-np.inf)
    tops.append(float(edge_tops.sum()) * (model.graph.num_edges if model.shared else 1))
    for f in range(model.factors.number):
        table = model.factors.view(f)
        model.factors.view(f, larger)[...] = _depth(table, tuple(range(table.ndim)))
        tops.append(float(table.max()))
    if not any(((d > MASK) & (d < np.inf)).any() for d in (*depths, larger)):
        return model
    candidate = _cut(model, depths, larger, MASK)
    try:
        labels = tree_mode(candidate, max_iter=20, max_cells=0, restarts=1).labels
    except InfeasibleError:
        return model
    count = float(np.log(model.labels_per_node).sum())
    least = sum(tops) + model.offset - model.score(labels) + count + NEGLIGIBLE
    return candidate if least <= MASK else _cut(model, depths, larger, least)


def _is_shallow(table: FloatArray) -> bool:
    """Return whether a table spans at most MASK nats: then, quickly, no score can be a mask."""
    return table.size == 0 or bool(np.min(table) >= np.max(table) - MASK)


def _depth(table: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """Return how far each score is below the best along `axes`, in nats; inf for a hard zero."""
    top = table.max(axis=axes, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore"):
        deep = np.where(top > -np.inf, top, 0.0) - table
    return np.where(np.isneginf(table), np.inf, np.minimum(deep, np.finfo(float).max))


def _cut(model: Scored, depths: list[FloatArray], larger: FloatArray, least: float) -> Scored:
    """Return the model in which scores deeper than `least` are -inf."""
    node, edge = (
        np.where(deep > least, -np.inf, table)
        for deep, table in zip(depths, (model.scores.node, model.edge_stack), strict=True)
    )
    table = np.where(larger > least, -np.inf, model.factors.table)
    return model.with_scores(node, edge[0] if model.shared else edge, table)
