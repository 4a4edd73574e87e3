"""Objectives over alignments with blanks (CTC) on JAX arrays."""

from typing import Any

import jax

from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import cached, values
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.ctc import CTCKind, CTCObjective, check_labels


def ctc_nll(
    scores: Any, gold: Any, *, blank: int = 0, lengths: Any = None, ignore_index: int = IGNORE_INDEX
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

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> value = fgj.ctc_nll(jnp.zeros((1, 2, 2)), jnp.array([[1]]))
    >>> round(float(jnp.exp(-value[0])), 4)  # 3 of 4 paths: _a, a_, aa
    0.75
    """
    return _evaluated("nll", scores, (gold, lengths, ignore_index), None, blank)


def ctc_softmax_margin(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> jax.Array:
    """Return log sum over paths exp(L + score) minus the log-weight of gold, in nats, (B,).

    loss : a Loss over the n labels of the scores, including the blank.  cap, band : as in
    `Loss.compile`.  Other parameters as in `ctc_nll`.
    """
    given = (gold, lengths, ignore_index)
    return _evaluated("softmax-margin", scores, given, loss, blank, cap, band)


def ctc_risk(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> jax.Array:
    """Return the expected loss of the collapsed path under exp(score) / Z, in nats, (B,).

    Parameters as in `ctc_softmax_margin`.
    """
    return _evaluated("risk", scores, (gold, lengths, ignore_index), loss, blank, cap, band)


def _evaluated(
    kind: CTCKind,
    scores: Any,
    given: tuple[Any, Any, int],
    loss: Loss | None,
    blank: int,
    *options: Any,
) -> jax.Array:
    """Convert the arguments to a batch and evaluate; given : gold, lengths, ignore_index."""
    table = arguments.table("scores", scores, 3, axes="(B, T, n)")
    n = table.shape[2]
    check_labels(kind, loss, n, blank)
    gold, lengths, ignore_index = given
    known = arguments.ids("gold", gold, (len(table), None), ignore_index)
    sizes = arguments.lengths(lengths, len(table), 1, table.shape[1])
    return values(cached(CTCObjective, kind, loss, n, blank, *options), [table], [known, sizes])
