"""Trees on JAX arrays.

All functions except `spanning_tree_marginals` return one value in nats per item, (B,).  The common
parameters are:

single_root : bool
    Whether exactly one arc leaves the root.
lengths : (B,), optional
    Numbers of dependents; default n for all items.
labeled : bool
    Whether the last axis of the scores holds labels.
projective : bool
    Whether to allow only trees without crossing arcs.
infeasible : {"raise", "zero"}
    What to do with items that have no tree, or no gold tree, of finite score: one error names them
    all, or their values and gradients are 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.checks import FloatArray, flag
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.jax import arguments
from fstgrad.jax.operators import cached, gradients, values
from fstgrad.objectives.trees import TreeKind, TreeObjective


def spanning_tree_log_partition(
    scores: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return log Z in nats, (B,); its gradient is the marginals.

    Parameters
    ----------
    scores : (B, n+1, n+1), with labels (B, n+1, n+1, y)
        score[head, dependent(, label)], log-weights; index 0 is the root; -inf forbids an arc.
    single_root, labeled, projective : bool
    infeasible : {"raise", "zero"}
    lengths : (B,), optional
        Numbers of dependents.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> log_z = fgj.spanning_tree_log_partition(jnp.zeros((1, 4, 4)), single_root=True)
    >>> round(float(jnp.exp(log_z[0])), 4)
    9.0
    """
    family = (single_root, labeled, projective, infeasible)
    return _evaluated("log-partition", [scores], lengths, [], family)


def spanning_tree_nll(
    scores: Any,
    heads: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return -log p(tree) in nats for each item, (B,).

    heads : (B, n) integers, with labels (B, n, 2).  Other parameters as in
    `spanning_tree_log_partition`.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> value = fgj.spanning_tree_nll(
    ...     jnp.zeros((1, 4, 4)), jnp.array([[0, 1, 2]]), single_root=True
    ... )
    >>> round(float(jnp.exp(value[0])), 4)  # one of 9 trees
    9.0
    """
    table = _table("scores", scores, labeled)
    shape = (len(table), table.shape[1] - 1)
    gold = arguments.integers("heads", heads, (*shape, 2) if labeled else shape)
    return _evaluated(
        "nll", [table], lengths, [gold], (single_root, labeled, projective, infeasible)
    )


def spanning_tree_partial_nll(
    scores: Any,
    allowed: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return -log of the probability of the trees that `allowed` permits, in nats, (B,).

    allowed : bool like the scores, or integer trees as in `spanning_tree_nll` with -1 or -100 for
    an unknown head (or label).  Other parameters as in `spanning_tree_log_partition`.
    """
    table, known = _table("scores", scores, labeled), arguments.real("allowed", allowed)
    if known.dtype == bool:
        known = _like("allowed", known, table.shape)
    else:
        shape = (len(table), table.shape[1] - 1)
        known = arguments.integers("allowed", known, (*shape, 2) if labeled else shape)
    family = (single_root, labeled, projective, infeasible)
    return _evaluated("partial-nll", [table], lengths, [known], family)


def spanning_tree_marginals(
    scores: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return the probability of every arc (and label), like the scores; once differentiable.

    Parameters as in `spanning_tree_log_partition`.
    """
    table = _table("scores", scores, labeled)
    objective = _family("log-partition", single_root, labeled, projective)
    return gradients(objective, [table], [_lengths(lengths, table)], infeasible)[0]


def spanning_tree_entropy(
    scores: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return the entropy in nats, (B,).  Parameters as in `spanning_tree_log_partition`."""
    return _evaluated(
        "entropy", [scores], lengths, [], (single_root, labeled, projective, infeasible)
    )


def spanning_tree_kl(
    p_scores: Any,
    q_scores: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return KL(p || q) in nats, (B,).  Parameters as in `spanning_tree_log_partition`."""
    p, q = _table("p_scores", p_scores, labeled), _table("q_scores", q_scores, labeled)
    for name, own in (("p_scores", p), ("q_scores", q)):
        arguments.log_weights(name, own)
    if p.shape != q.shape:
        raise InvalidInputError(
            f"p_scores has the shape {p.shape} and q_scores {q.shape}; a divergence is between "
            "distributions over the same sentences and labels"
        )
    return _evaluated("kl", [p, q], lengths, [], (single_root, labeled, projective, infeasible))


def spanning_tree_risk(
    scores: Any,
    costs: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return E[sum of the costs of the arcs], (B,).

    costs : like the scores; their gradient is the marginals.  Other parameters as in
    `spanning_tree_log_partition`.
    """
    table = _table("scores", scores, labeled)
    known = _like("costs", arguments.finite("costs", costs), table.shape)
    family: dict[str, Any] = {"labeled": labeled, "projective": projective, "lengths": lengths}
    family |= {"single_root": single_root, "infeasible": infeasible}
    shares = spanning_tree_marginals(table, **family)
    return jnp.sum(shares * jnp.asarray(known, shares.dtype), axis=range(1, table.ndim))


def spanning_tree_generalized_expectation(
    scores: Any,
    features: Any,
    target: Any,
    *,
    single_root: bool,
    lengths: Any = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return 1/2 |E f - target|^2, (B,).

    features : scores.shape + (F,); target : (F,) or (B, F).  Other parameters as in
    `spanning_tree_log_partition`.
    """
    table, known = _table("scores", scores, labeled), arguments.finite("features", features)
    if known.ndim == 0:
        raise InvalidInputError(f"features has the shape (); give {(*table.shape, 'F')}")
    known = _like("features", known, (*table.shape, *known.shape[-1:]))
    goal = _like("target", arguments.finite("target", target), (len(table), known.shape[-1]))
    family: dict[str, Any] = {"labeled": labeled, "projective": projective, "lengths": lengths}
    family |= {"single_root": single_root, "infeasible": infeasible}
    shares = spanning_tree_marginals(table, **family)
    parts = shares[..., None] * jnp.asarray(known, shares.dtype)
    gap = parts.sum(axis=tuple(range(1, table.ndim))) - jnp.asarray(goal, shares.dtype)
    is_empty = jnp.asarray(_lengths(lengths, table)) == 0
    is_feasible = is_empty | (shares != 0).any(axis=tuple(range(1, table.ndim)))
    return jnp.where(is_feasible, 0.5 * jnp.square(gap).sum(axis=1), 0.0)


def _evaluated(
    kind: TreeKind,
    scores: list[Any],
    lengths: Any,
    constants: list[Any],
    family: tuple[bool, bool, bool, Infeasible],
) -> jax.Array:
    tables = [_table("scores", table, family[1]) for table in scores]
    *flags, infeasible = family
    objective = _family(kind, *flags)
    return values(objective, tables, [_lengths(lengths, tables[0]), *constants], infeasible)


class _OfHeads(TreeObjective):
    """The objective whose gold trees are the argument `heads`."""

    def evaluate(self, *given: Any, **named: Any) -> Any:
        """Return the values and gradients; errors name `heads`."""
        try:
            return super().evaluate(*given, **named)
        except InfeasibleError as error:
            reasons = {i: why.replace("gold", "heads", 1) for i, why in error.reasons.items()}
            raise InfeasibleError.of_items(reasons) from error
        except InvalidInputError as error:
            raise InvalidInputError(str(error).replace("gold", "heads", 1)) from error


def _family(kind: TreeKind, *flags: bool) -> TreeObjective:
    for name, value in zip(("single_root", "labeled", "projective"), flags, strict=True):
        flag(name, value)
    objective: TreeObjective = cached(_OfHeads if kind == "nll" else TreeObjective, kind, *flags)
    return objective


def _table(name: str, scores: Any, labeled: bool) -> jax.Array:
    axes = "(B, n+1, n+1, y)" if flag("labeled", labeled) else "(B, n+1, n+1)"
    table = arguments.table(name, scores, 4 if labeled else 3, axes=axes)
    if table.shape[1] != table.shape[2] or table.shape[1] == 0:
        raise InvalidInputError(f"{name} has the shape {table.shape}; give {axes}")
    return table


def _lengths(lengths: Any, table: jax.Array) -> Any:
    return arguments.lengths(lengths, len(table), 0, table.shape[1] - 1)


def _like(name: str, given: Any, shape: tuple[int, ...]) -> Any:
    """Return a constant of a shape; one without the axis of the items serves for all of them."""
    if given.shape not in (shape, shape[1:]):
        raise InvalidInputError(
            f"{name} has the shape {given.shape}; give {shape}, or {shape[1:]} for all items"
        )
    if isinstance(given, np.ndarray):
        known: FloatArray = np.broadcast_to(given, shape)
        return known
    return jnp.broadcast_to(given, shape)
