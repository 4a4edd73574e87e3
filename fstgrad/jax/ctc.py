"""Objectives over alignments with blanks (CTC) on JAX arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fstgrad.core.infeasible import Infeasible
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import batched_callback, cached, shape_of, values
from fstgrad.jax.predictions import detached, integer, undifferentiable
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.ctc import (
    CTCKind,
    CTCLikelihood,
    CTCObjective,
    check_labels,
    ctc_options,
)
from fstgrad.objectives.sampling import Method, Options, Sampling


def ctc_nll(
    scores: Any,
    gold: Any,
    *,
    blank: int = 0,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return -log p(gold) in nats for each item, (B,), over all paths that collapse to gold.

    Parameters
    ----------
    scores : (B, T, n)
        Log-weights of labels; they need not be normalized.
    gold : (B, S) integers without blanks, `ignore_index` as padding
    blank : int
        The id of the blank.
    lengths : (B,), optional
        Numbers of positions of the items.
    ignore_index : int
    infeasible : {"raise", "zero"}
        What to do with items whose gold needs more frames, or has the probability 0.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> value = fgj.ctc_nll(jnp.zeros((1, 2, 2)), jnp.array([[1]]))
    >>> round(float(jnp.exp(-value[0])), 4)  # 3 of 4 paths: _a, a_, aa
    0.75
    """
    return _evaluated("nll", scores, (gold, lengths, ignore_index, infeasible), None, blank)


def ctc_softmax_margin(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method | None = None,
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return log sum over paths exp(L + score) minus the log-weight of gold, in nats, (B,).

    loss : a Loss over the n labels of the scores, including the blank.  cap, band, method, sampling
    : as in `fstgrad.torch.ctc_softmax_margin`.  Other parameters as in `ctc_nll`.
    """
    given = (gold, lengths, ignore_index, infeasible)
    options = ctc_options(cap, band, method, sampling)
    return _evaluated("softmax-margin", scores, given, loss, blank, options)


def ctc_risk(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method | None = None,
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return the expected loss of the collapsed path under exp(score) / Z, in nats, (B,).

    Parameters as in `ctc_softmax_margin`.
    """
    given = (gold, lengths, ignore_index, infeasible)
    options = ctc_options(cap, band, method, sampling)
    return _evaluated("risk", scores, given, loss, blank, options)


class CTCAlignment(NamedTuple):
    """The best path of each item.

    Attributes
    ----------
    labels : (B, T) integer
        The label of each frame, -100 beyond the frames of an item.
    start, end : (B, S) integer
        Label i of gold is read in the frames start[i] .. end[i] - 1; -100 where gold is padding.
    log_prob : (B,)
        log p(path) in nats among all paths.
    """

    labels: jax.Array
    start: jax.Array
    end: jax.Array
    log_prob: jax.Array


def ctc_align(
    scores: Any, gold: Any, *, blank: int = 0, lengths: Any = None, ignore_index: int = IGNORE_INDEX
) -> CTCAlignment:
    """Return the most probable path of each item that collapses to gold: forced alignment.

    Not differentiable: a derivative of `log_prob` is an error.  Parameters as in `ctc_nll`.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> best = fgj.ctc_align(jnp.array([[[2.0, 0], [0, 2], [0, 2]]]), jnp.array([[1]]))
    >>> best.labels.tolist(), best.start.tolist(), best.end.tolist()
    ([[0, 1, 1]], [[1]], [[3]])
    """
    table, constants = _arguments("nll", scores, (gold, lengths, ignore_index), None, blank)
    ids = constants[0]
    shapes = [shape_of(shape, integer()) for shape in (table.shape[:2], ids.shape, ids.shape)]
    shapes.append(shape_of(table.shape[:1], table.dtype))
    objective = cached(CTCLikelihood, blank)
    given = tuple(map(detached, (table, *constants)))
    labels, start, end, log_prob = batched_callback(
        lambda scores, *fixed: objective.align([scores], fixed), shapes, given
    )
    return CTCAlignment(labels, start, end, undifferentiable(table, log_prob))


def _evaluated(
    kind: CTCKind,
    scores: Any,
    given: tuple[Any, Any, int, Infeasible],
    loss: Loss | None,
    blank: int,
    options: Options | None = None,
) -> jax.Array:
    """Convert the arguments to a batch and evaluate.

    given : gold, lengths, ignore_index, infeasible.
    """
    *gold, infeasible = given
    table, constants = _arguments(kind, scores, gold, loss, blank)
    objective = (
        cached(CTCLikelihood, blank)
        if options is None
        else cached(CTCObjective, kind, loss, blank, *options)
    )
    return values(objective, [table], constants, infeasible)


def _arguments(
    kind: CTCKind, scores: Any, given: Sequence[Any], loss: Loss | None, blank: int
) -> tuple[jax.Array, list[Any]]:
    """Return scores, and gold and the numbers of frames."""
    table = arguments.table("scores", scores, 3, axes="(B, T, n)")
    check_labels(kind, loss, table.shape[2], blank)
    gold, lengths, ignore_index = given
    known = arguments.ids("gold", gold, (len(table), None), ignore_index)
    return table, [known, arguments.lengths(lengths, len(table), 0, table.shape[1])]
