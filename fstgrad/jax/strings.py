"""String objectives on JAX arrays."""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.automata.band import Band
from fstgrad.checks import instance
from fstgrad.errors import InvalidInputError
from fstgrad.jax.operators import Array, Arrays, called, kept, shape_of, values, widened
from fstgrad.losses import Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin

IGNORE_INDEX = -100

_COMPILED = AutomatonCache()


def softmax_margin(
    scores: Any,
    gold: Any,
    loss: Loss | None = None,
    *,
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> jax.Array:
    """Return log sum_y exp(L(y, gold) + w.Psi(y) - w.Psi(gold)) in nats for each item, (B,).

    Parameters
    ----------
    scores : (B, L, n), (B, L, n+1, n), ...
        Log-weights; index n of a context axis means "before the start".
    gold : (B, L) integers; `ignore_index` leaves a position out of the string
    loss : Loss or None (L = 0)
    ignore_index : int
    cap, band
        As in `Loss.compile`.

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
    return _objective("margin", scores, gold, loss, ignore_index, cap, band)


def crf_nll(scores: Any, gold: Any, *, ignore_index: int = IGNORE_INDEX) -> jax.Array:
    """Return -log p(gold) in nats for each item, (B,): `softmax_margin` without a loss."""
    return _objective("margin", scores, gold, None, ignore_index, None, None)


def risk(
    scores: Any,
    gold: Any,
    loss: Loss,
    *,
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> jax.Array:
    """Return E[L(y, gold)] under exp(w.Psi(y)) / Z in nats for each item, (B,).

    Parameters as in `softmax_margin`, but a loss is needed.
    """
    if loss is None:
        raise InvalidInputError("loss is None; risk is the expected loss: give one")
    return _objective("risk", scores, gold, loss, ignore_index, cap, band)


def nbest_risk(
    log_probs: Any,
    hypotheses: Any,
    references: Any,
    loss: Loss,
    lengths: Any = None,
    *,
    ignore_index: int = IGNORE_INDEX,
) -> jax.Array:
    """Return sum_j softmax(log_probs)_j L(hypothesis_j, reference) in nats for each list, (B,).

    Parameters
    ----------
    log_probs : (B, N)
    hypotheses : (B, N, L) integers, `ignore_index` where there is no symbol
    references : (B, L') integers, the same
    loss : Loss
        A hypothesis of infinite loss is left out.
    lengths : (B,), optional
        Numbers of hypotheses.
    ignore_index : int
    """
    scores, ids = widened(log_probs), jnp.asarray(hypotheses)
    if ids.ndim != 3 or ids.shape[:2] != scores.shape:
        raise InvalidInputError(
            f"hypotheses has the shape {ids.shape}, log_probs {scores.shape}; give (B, N, L) and "
            "(B, N)"
        )
    measure = kept(_ListLosses, loss, ignore_index)
    shape = shape_of(scores.shape, scores.dtype)
    (losses,) = called(measure, [shape], [ids, jnp.asarray(references)])
    usable = jnp.isfinite(losses)
    if lengths is not None:
        usable &= jnp.arange(scores.shape[1]) < jnp.asarray(lengths)[:, None]
    shares = jax.nn.softmax(jnp.where(usable, scores, -jnp.inf), axis=1)
    return (shares * jnp.where(usable, losses, 0.0)).sum(axis=1)


class _Strings:
    """The softmax margin or the risk of each item."""

    def __init__(
        self,
        kind: Literal["margin", "risk"],
        loss: Loss | None,
        ignore_index: int,
        cap: float | None,
        band: Band | None,
    ) -> None:
        self.kind, self.loss, self.ignored = kind, loss, ignore_index
        self.cap, self.band = cap, band

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Run both passes for each item."""
        (table,), (gold,) = scores, constants
        found, gradient = np.empty(len(table)), np.zeros(table.shape)
        for i, own in enumerate(gold):
            place = np.flatnonzero(own != self.ignored)
            target = own[place].astype(np.int64)
            if len(target) == 0:
                raise InvalidInputError(f"gold[{i}] is empty; give at least one symbol")
            b = None
            if self.loss is not None:
                b = _COMPILED.automaton(self.loss, target, cap=self.cap, band=self.band)
            part = np.ascontiguousarray(table[i, place])
            if self.kind == "risk" and b is not None:
                found[i], gradient[i, place] = array_risk(part, b)
            else:
                found[i], gradient[i, place] = array_softmax_margin(part, target, b)
        return found, [gradient]


class _ListLosses:
    """The losses (B, N) of hypotheses (B, N, L) against references (B, L')."""

    def __init__(self, loss: Loss, ignore_index: int) -> None:
        self.loss, self.ignored = loss, ignore_index

    def __call__(self, table: Array, references: Array) -> tuple[Array]:
        """Return the losses in nats."""
        losses = np.empty(table.shape[:2])
        for i, reference in enumerate(references):
            target = reference[reference != self.ignored].astype(np.int64)
            if len(target) == 0:
                raise InvalidInputError(f"references[{i}] is empty; give at least one symbol")
            against = _COMPILED.target_loss(self.loss, target)
            for j, own in enumerate(table[i]):
                losses[i, j] = against.losses_of(own[own != self.ignored][None].astype(np.int64))[0]
        return (losses,)


def _objective(
    kind: Literal["margin", "risk"],
    scores: Any,
    gold: Any,
    loss: Loss | None,
    ignore_index: int,
    cap: float | None,
    band: Band | None,
) -> jax.Array:
    instance("loss", loss, Loss | None, "a Loss")
    array, ids = jnp.asarray(scores), jnp.asarray(gold)
    check_batch(array.shape, ids.shape)
    return values(kept(_Strings, kind, loss, ignore_index, cap, band), [array], [ids])


def check_batch(scores: Sequence[int], gold: Sequence[int]) -> None:
    """InvalidInputError unless gold (B, L) belongs to scores (B, L, ...)."""
    if len(scores) < 3 or tuple(scores[:2]) != tuple(gold):
        raise InvalidInputError(
            f"scores has the shape {tuple(scores)}, gold {tuple(gold)}; give (B, L, ...) and (B, L)"
        )
