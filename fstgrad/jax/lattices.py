"""Quantities of the paths of lattices, and objectives over them, on JAX arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.core.sequences import items as sequence
from fstgrad.jax import arguments
from fstgrad.jax.operators import gradients, values
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.lattices import (
    Kind,
    LatticeObjective,
    LatticeQuantity,
    Quantity,
    checked_lattices,
    lattice_items,
)
from fstgrad.objectives.sampling import Method, Options, Sampling, check_settings
from fstgrad.strings.lattices import Lattice


def lattice_softmax_margin(
    scores: Any,
    lattice: Lattice | Sequence[Lattice],
    gold: Any,
    loss: Any = None,
    *,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return log sum over paths of exp(L + score) - log sum over the paths of gold of exp(score).

    Parameters
    ----------
    scores : (A,) for one lattice; (B, A) padded, or B arrays, for a sequence of lattices
        Log-weights of the arcs; those of the lattices are not used.  `lattice.scatter(scores)`
        creates them from scores in the order in which the arcs, or hypotheses, were given.
    lattice : Lattice, or a sequence of B
        A compiled function keeps the lattices with which it was traced.
    gold : sequence, or a sequence of B
        A string of the lattice.
    loss : Loss, LatticeLoss, a sequence of B LatticeLoss, or None (L = 0)
    infeasible, cap, band, method, sampling
        As in `fstgrad.torch.lattice_softmax_margin`.

    Returns
    -------
    () or (B,) : nats

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> lattice = fg.Lattice.from_nbest(["ab", "abc"], np.zeros(2), fg.Alphabet("abc"))
    >>> scores = jnp.zeros(lattice.num_arcs)
    >>> round(float(jnp.exp(fgj.lattice_softmax_margin(scores, lattice, "ab"))), 4)
    2.0
    """
    options = Options(cap, band, method, sampling)
    return _evaluated("softmax-margin", scores, lattice, (gold, loss, infeasible), options)


def lattice_crf_nll(
    scores: Any,
    lattice: Lattice | Sequence[Lattice],
    gold: Any,
    *,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return -log p(gold) in nats, () or (B,): `lattice_softmax_margin` without a loss."""
    return _evaluated("softmax-margin", scores, lattice, (gold, None, infeasible), Options())


def lattice_risk(
    scores: Any,
    lattice: Lattice | Sequence[Lattice],
    gold: Any = None,
    loss: Any = None,
    *,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> jax.Array:
    """Return E[L] in nats over the paths of a lattice, () or (B,): minimum-risk training.

    Parameters as in `lattice_softmax_margin`, but a loss is required.  `gold` may be omitted if the
    loss is the result of `lattice.compile(loss, target)`.
    """
    options = Options(cap, band, method, sampling)
    return _evaluated("risk", scores, lattice, (gold, loss, infeasible), options)


def lattice_log_partition(
    scores: Any, lattice: Lattice | Sequence[Lattice], *, infeasible: Infeasible = "raise"
) -> jax.Array:
    """Return log Z of the paths in nats, () or (B,); twice differentiable.

    The gradient is `lattice_marginals`.  A difference of two is the log-probability of a graph of
    transcripts in one of hypotheses, as in MMI, or of the alignments of an RNN-T.  Parameters as in
    `lattice_softmax_margin`; InfeasibleError if every path has the score -inf.

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> lattice = fg.Lattice.from_nbest(["ab", "abc"], np.zeros(2), fg.Alphabet("abc"))
    >>> log_z = fgj.lattice_log_partition(jnp.zeros(lattice.num_arcs), lattice)
    >>> round(float(jnp.exp(log_z)), 4)
    2.0
    """
    return _quantity("log-partition", scores, lattice, infeasible)


def lattice_marginals(
    scores: Any, lattice: Lattice | Sequence[Lattice], *, infeasible: Infeasible = "raise"
) -> Any:
    """Return the posteriors of the arcs, like the scores: an array, or a list of B of them.

    They are once differentiable; 0 in the padding.  Parameters and errors as in
    `lattice_log_partition`.
    """
    members, table = _table(scores, lattice)
    objective = LatticeQuantity("log-partition", members)
    (shares,) = gradients(objective, [table], [np.arange(len(members))], infeasible)
    if isinstance(lattice, Lattice):
        return shares[0]
    if isinstance(scores, list | tuple):
        return [shares[i, : member.num_arcs] for i, member in enumerate(members)]
    return shares


def lattice_entropy(
    scores: Any, lattice: Lattice | Sequence[Lattice], *, infeasible: Infeasible = "raise"
) -> jax.Array:
    """Return the entropy of the paths in nats, () or (B,); twice differentiable.

    It is that of the strings if each has one path.  Parameters and errors as in
    `lattice_log_partition`.
    """
    return _quantity("entropy", scores, lattice, infeasible)


def _quantity(kind: Quantity, scores: Any, lattice: Any, infeasible: Infeasible) -> jax.Array:
    members, table = _table(scores, lattice)
    objective = LatticeQuantity(kind, members)
    per_item = values(objective, [table], [np.arange(len(members))], infeasible)
    return per_item[0] if isinstance(lattice, Lattice) else per_item


def _table(scores: Any, lattice: Any) -> tuple[list[Lattice], jax.Array]:
    """Return the lattices, and the scores (B, A) of their arcs."""
    members = checked_lattices(lattice)
    if not isinstance(lattice, Lattice):
        return members, arc_scores(scores, members)
    arcs = lattice.num_arcs
    table = arguments.table("scores", scores, 1, axes=f"({arcs},)")[None]
    if table.shape[1] != arcs:
        raise InvalidInputError(
            f"scores has the shape {table.shape[1:]}; the lattice has {arcs} arcs"
        )
    return members, table


def _evaluated(
    kind: Kind, scores: Any, lattice: Any, given: tuple[Any, Any, Infeasible], options: Options
) -> jax.Array:
    """Convert the arguments to a batch and evaluate; given : gold, loss, infeasible."""
    gold, loss, infeasible = given
    check_settings(kind, loss, options)
    items = lattice_items(lattice, gold, loss, options)
    _, table = _table(scores, lattice)
    objective = LatticeObjective(kind, items, options)
    per_item = values(objective, [table], [np.arange(len(items))], infeasible)
    return per_item[0] if isinstance(lattice, Lattice) else per_item


def arc_scores(scores: Any, lattices: Sequence[Lattice]) -> jax.Array:
    """Return scores (B, A), padded to all arcs, from a table or from one array per lattice."""
    if not isinstance(scores, list | tuple):
        axes = "(B, A), or a sequence of B arrays (A_i,)"
        table = arguments.table("scores", scores, 2, axes=axes)
    else:
        rows = [arguments.table(f"scores[{i}]", s, 1, axes="(A,)") for i, s in enumerate(scores)]
        if len(sequence("scores", rows)) != len(lattices):
            raise InvalidInputError(
                f"there are {len(lattices)} lattices; scores has {len(rows)} items"
            )
        for i, (row, lattice) in enumerate(zip(rows, lattices, strict=True)):
            if len(row) != lattice.num_arcs:
                raise InvalidInputError(
                    f"scores[{i}] has the shape {row.shape}; lattice[{i}] has "
                    f"{lattice.num_arcs} arcs"
                )
        width = max(map(len, rows), default=0)
        padded = [jnp.pad(row, (0, width - len(row))) for row in rows]
        table = jnp.stack(padded) if padded else jnp.zeros((0, 0))
    arcs = max((lattice.num_arcs for lattice in lattices), default=0)
    if table.shape[0] != len(lattices) or table.shape[1] < arcs:
        raise InvalidInputError(
            f"scores has the shape {table.shape}; there are {len(lattices)} lattices with up to "
            f"{arcs} arcs"
        )
    return table
