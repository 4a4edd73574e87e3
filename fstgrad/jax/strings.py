"""Objectives of strings, alignments and n-best lists on JAX arrays."""

from typing import Any

import jax
import jax.numpy as jnp

from fstgrad.core.checks import instance
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import cached, measured, values
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.nbest import NbestLosses
from fstgrad.objectives.sampling import Method, Options, Sampling, check_settings
from fstgrad.objectives.strings import Kind, StringObjective

_AXES = "(B, L, n), (B, L, n+1, n), ..."


def softmax_margin(
    scores: Any,
    gold: Any,
    loss: Loss | None = None,
    *,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    prune: float | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return log sum_y exp(L(y, gold) + w.Psi(y) - w.Psi(gold)) in nats for each item, (B,).

    Parameters
    ----------
    scores : (B, L, n), (B, L, n+1, n), ...
        Log-weights; index n of a context axis means "before the start".
    gold : (B, L') integers, L' <= L; positions equal to `ignore_index` are left out of the string
    loss : Loss or None (L = 0)
    lengths : (B,), optional
        Lengths of the items; positions beyond them get no gradient.
    ignore_index : int
    infeasible : {"raise", "zero"}
        What to do with items that have no string, or no gold string, of finite score, as in
        `fstgrad.torch.softmax_margin`.
    cap, band, prune
        As in `Loss.compile`.
    method, sampling
        As in `fstgrad.torch.softmax_margin`; `sampling.last` has the interval of every item.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> loss = fg.Hamming(fg.Alphabet("ab"))
    >>> gold = jnp.array([[0, 1, 0]])
    >>> f = lambda scores: fgj.softmax_margin(scores, gold, loss).mean()
    >>> gradient = jax.jit(jax.grad(f))(jnp.zeros((1, 3, 2)))
    >>> round(float(gradient[0, 2, 0]), 4)  # e^0 / (e^0 + e^1) - 1
    -0.7311
    """
    options = Options(cap, band, method, sampling, prune)
    given = (gold, lengths, ignore_index, infeasible)
    return _evaluated("softmax-margin", scores, given, loss, options)


def crf_nll(
    scores: Any,
    gold: Any,
    *,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return -log p(gold) in nats for each item, (B,): `softmax_margin` without a loss."""
    given = (gold, lengths, ignore_index, infeasible)
    return _evaluated("softmax-margin", scores, given, None, Options())


def risk(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    lengths: Any = None,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    prune: float | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return E[L(y, gold)] under exp(w.Psi(y)) / Z in nats for each item, (B,).

    Parameters as in `softmax_margin`, but a loss is required.
    """
    options = Options(cap, band, method, sampling, prune)
    return _evaluated("risk", scores, (gold, lengths, ignore_index, infeasible), loss, options)


def nbest_risk(
    log_probs: Any,
    hypotheses: Any,
    references: Any,
    loss: Loss,
    lengths: Any = None,
    *,
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return sum_j softmax(log_probs)_j L(hypothesis_j, reference) in nats for each list, (B,).

    Parameters
    ----------
    log_probs : (B, N)
    hypotheses : (B, N, L) integers, `ignore_index` at positions without a symbol
    references : (B, L') integers, padded likewise
    loss : Loss
        Hypotheses of infinite loss are excluded.
    lengths : (B,), optional
        Numbers of hypotheses.
    ignore_index : int
    infeasible : {"raise", "zero"}
        What to do with lists without a hypothesis of finite loss and a log-weight above -inf.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> hypotheses = jnp.array([[[0, 1], [0, 0]]])
    >>> loss = fg.EditDistance(fg.Alphabet("ab"))
    >>> float(fgj.nbest_risk(jnp.zeros((1, 2)), hypotheses, jnp.array([[0, 1]]), loss)[0])
    0.5
    """
    instance("loss", loss, Loss, "a Loss")
    scores = arguments.table("log_probs", log_probs, 2, axes="(B, N)")
    arguments.log_weights("log_probs", scores)
    every = arguments.ids("hypotheses", hypotheses, (*scores.shape, None), ignore_index)
    golds = arguments.ids("references", references, (len(scores), None), ignore_index)
    counts = arguments.lengths(lengths, len(scores), 0, scores.shape[1])
    objective = cached(NbestLosses, loss)
    losses = measured(objective, scores, [every, golds, counts], infeasible)
    usable = jnp.isfinite(losses)  # False outside of the lists, and in all of an infeasible list
    weights = jnp.where(usable, scores, -jnp.inf)
    weights = jnp.where(usable.any(axis=1, keepdims=True), weights, 0.0)
    shares = jax.nn.softmax(weights, axis=1)
    risks: jax.Array = (shares * jnp.where(usable, losses, 0.0)).sum(axis=1)
    return risks


def _evaluated(
    kind: Kind,
    scores: Any,
    given: tuple[Any, Any, int, Infeasible],
    loss: Loss | None,
    options: Options,
) -> jax.Array:
    """Convert the arguments to a batch and evaluate.

    given : gold, lengths, ignore_index, infeasible.
    """
    instance("loss", loss, Loss | None, "a Loss")
    check_settings(kind, loss, options)
    gold, lengths, ignore_index, infeasible = given
    table = arguments.table("scores", scores, *range(3, 12), axes=_AXES)
    known = arguments.ids("gold", gold, (len(table), None), ignore_index)
    if known.shape[1] > table.shape[1]:
        raise InvalidInputError(
            f"gold has the shape {known.shape}, scores {table.shape}; give scores for each "
            "position of gold"
        )
    constants = [known]
    if lengths is not None:
        constants.append(arguments.lengths(lengths, len(table), 0, known.shape[1]))
    return values(cached(StringObjective, kind, loss, *options), [table], constants, infeasible)
