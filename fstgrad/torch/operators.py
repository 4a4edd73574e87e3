"""The bridge between the array passes and autograd: one custom operator for all objectives.

An objective is a Python object that computes B values and their exact gradients from numpy arrays.
`values` evaluates it on tensors:

- `float32` and `float64` scores are passed on unchanged.  `bfloat16` and `float16` scores, also
  those that autocast produces, are converted to `float32`, and so are the values, so that a scaled
  loss neither overflows nor loses its small gradients.  Gradients have the dtype of the scores.
- Scores on another device are an error: nothing moves them to the CPU.  Constants are copied.
- `torch.compile` keeps the operator in its graph: shapes come from fake kernels.  An objective is
  not a tensor, so the graph holds its key, a string, which `persistent` creates once per process.
- `torch.vmap` adds its axis to the batch.  The other transforms of `torch.func` need a rule for
  every order of derivative, so they raise an error that names the supported functions.
- A second derivative is the objective's Hessian product, or its `NotSupportedError`.

Objectives are classes of `fstgrad.objectives`.  `function_of` makes a function of one whose
arguments need no conversion.  The other functions of this package convert theirs, and call
`values(persistent(Class, settings), scores, constants)` if the settings are few (a loss, a graph,
numbers, strings), or `values(Class(...), scores, constants)` if every batch has its own objects
(lattices); the latter breaks a compiled graph.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter
from itertools import count
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import torch

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.infeasible import Infeasible
from fstgrad.objectives.base import Objective, check_objective
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.torch import arguments
from fstgrad.torch.arrays import per_item, require_cpu, to_numpy, to_tensor, upcast
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import autograd_only, refuse_transforms, uncompiled

_PERSISTENT: dict[str, Objective] = {}
_TRANSIENT: WeakValueDictionary[str, Objective] = WeakValueDictionary()
Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")
_numbers = count()
# whether this backward pass keeps its graph for another pass; True if PyTorch has no such function
_keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True
)


def persistent(
    make: Callable[..., Objective], *settings: Any, infeasible: Infeasible = "raise"
) -> str:
    """Return the key of `make(*settings)`, which is created once and lives as long as the process.

    It is the objective with the choice `infeasible` for infeasible items, as in `FeasibleItems`.
    Settings are equal if their fingerprints are equal.  Settings without a fingerprint are compared
    by value if they are numbers, strings or None, otherwise by identity.
    """
    if torch.compiler.is_compiling():  # a new number requires a new graph
        guarded = torch.fx.experimental.symbolic_shapes.guard_scalar
        settings = tuple(guarded(s) if isinstance(s, int | float) else s for s in settings)
    key: str = _key_of(make, infeasible, *settings)
    return key


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _key_of(make: Callable[..., Objective], infeasible: Infeasible, *settings: Any) -> str:
    key = f"{make.__module__}.{make.__qualname__}{tuple(map(_token, settings))} {infeasible!r}"
    if key not in _PERSISTENT:
        _PERSISTENT[key] = FeasibleItems(make(*settings), infeasible)
    return key


def values(
    objective: str | Objective,
    scores: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor] = (),
    *,
    alone: bool = False,
    axis: bool = True,
) -> torch.Tensor:
    """Return the values (B,) of an objective, differentiable in the scores.

    Parameters
    ----------
    objective : key from `persistent`, or an Objective
    scores : floating-point tensors (B, ...), on one device
    constants : tensors (B, ...), on any device
    alone : bool
        Return the value () of a batch of one.
    axis : bool
        Whether scores and constants have a batch axis.  If not, they belong to one item, and the
        value is ().

    Returns
    -------
    (B,), or () : in the dtype of scores[0], or `float32` if that is half precision.

    Raises
    ------
    NotSupportedError
        Within `torch.func.grad`, `vjp`, `jacrev`, `jvp` and `hessian`.
    """
    result = _outputs(objective, scores, constants, alone=alone or not axis, axis=axis)[0]
    return result[0] if result.ndim and (alone or not axis) else result


def gradients(
    objective: str | Objective,
    scores: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """Return the gradients of the values, like the scores: marginals, once more differentiable.

    Parameters and errors as in `values`; gradients of half-precision scores are `float32`.
    """
    return list(_outputs(objective, scores, constants)[1:])


def function_of(objective: type[Objective]) -> Callable[..., torch.Tensor]:
    """Return an objective as a function of tensors (B, ...), differentiable in its scores.

    Its parameters are the scores and the constants and, by keyword, the settings, `infeasible`
    ("raise" or "zero") and `reduction` ("mean", "sum" or "none").

    Parameters
    ----------
    objective : subclass of `fstgrad.objectives.base.Objective`
    """
    check_objective(objective)
    many = len(objective.score_names)

    def call(
        tensors: list[Any], settings: list[Any], infeasible: Infeasible, reduction: str
    ) -> torch.Tensor:
        for name, given in zip(objective.constant_names, tensors[many:], strict=True):
            arguments.tensor(name, given)
        for name, given in zip(objective.score_names, tensors[:many], strict=True):
            arguments.floating(name, given)
        objective.check_items(tensors)
        key = persistent(objective, *settings, infeasible=infeasible)
        return reduced(values(key, tensors[:many], tensors[many:]), reduction)

    options = (("infeasible", "raise"), ("reduction", "mean"))
    return objective.function(
        call, *(Parameter(name, Parameter.KEYWORD_ONLY, default=first) for name, first in options)
    )


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Return values () or (B,) as they are, their mean or their sum.

    Raises
    ------
    InvalidInputError
        If the mean of no values is requested.
    """
    if one_of("reduction", reduction, REDUCTIONS) == "none":
        return values
    if reduction == "mean" and values.shape == (0,):
        raise InvalidInputError(
            "scores have no items, so no mean; give a batch of at least one, or reduction='sum'"
        )
    return values.mean() if reduction == "mean" else values.sum()


def _outputs(
    objective: str | Objective,
    scores: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
    *,
    alone: bool = False,
    axis: bool = True,
) -> Sequence[torch.Tensor]:
    for tensor in scores:
        arguments.floating("scores", tensor)
    if not torch.compiler.is_compiling():
        refuse_transforms(scores)
        require_cpu(objective_of(objective).what, *scores)
    tables = [upcast(tensor) for tensor in scores]
    fixed = [tensor.detach() if tensor.requires_grad else tensor for tensor in constants]
    outputs: Sequence[torch.Tensor]
    if autograd_only(*tables, *fixed):
        evaluated = objective_of(objective)
        outputs = _AutogradOnly.apply(evaluated, len(tables), alone, axis, *tables, *fixed)  # type: ignore[no-untyped-call]
        return outputs
    key = objective if isinstance(objective, str) else _transient(objective)
    if not axis:
        tables, fixed = [t[None] for t in tables], [t[None] for t in fixed]
    outputs = _values(tables, fixed, key)
    return outputs


def are_feasible(
    objective: str, scores: Sequence[torch.Tensor], constants: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return which items of an objective from `persistent` are feasible, (B,) bool."""
    fixed = [[tensor.detach() for tensor in tensors] for tensors in (scores, constants)]
    mask: torch.Tensor = _are_feasible(*fixed, objective)
    return mask


def measured(objective: str, like: torch.Tensor, constants: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return an objective's `measure`: a float64 table of the shape and on the device of `like`."""
    table: torch.Tensor = _measured(like.detach(), [c.detach() for c in constants], objective)
    return table


@uncompiled
def _transient(objective: Objective) -> str:
    """Return the key of an objective that lives only as long as its caller or a graph holds it."""
    if torch._C._get_tracing_state() is not None:  # within torch.jit.trace
        raise NotSupportedError(
            "torch.jit.trace cannot hold lattices, random fields or compiled automata; trace the "
            "network without its objective, or use torch.compile"
        )
    key = f"transient {next(_numbers)}"
    _TRANSIENT[key] = objective
    return key


def _token(setting: Any) -> str:
    if setting is None or isinstance(setting, bool | int | float | str):
        return repr(setting)
    if isinstance(setting, tuple):
        return repr(tuple(map(_token, setting)))
    mark = getattr(setting, "fingerprint", None)
    return f"{type(setting).__qualname__} {mark if isinstance(mark, str) else id(setting)}"


def objective_of(key: str | Objective) -> Objective:
    """Return an objective of a key from `persistent`, or itself."""
    if isinstance(key, Objective):
        return key
    objective = _PERSISTENT.get(key) or _TRANSIENT.get(key)
    if objective is None:
        raise NotSupportedError(
            f"the objective {key} is not known in this process; a compiled graph that holds "
            "objectives cannot be moved to another process: compile it there"
        )
    return objective


# the operators are the same for all objectives, which differ only in the key


@torch.library.custom_op(
    "fstgrad::measured",
    mutates_args=(),
    schema="(Tensor like, Tensor[] constants, str key) -> Tensor",
)
def _measured(like: torch.Tensor, constants: Sequence[torch.Tensor], key: str) -> torch.Tensor:
    table = objective_of(key).measure([to_numpy(t) for t in constants], team())
    return to_tensor(table, torch.empty(0, dtype=torch.float64, device=like.device))


@_measured.register_fake
def _(like: torch.Tensor, constants: Sequence[torch.Tensor], key: str) -> torch.Tensor:
    return like.new_empty(like.shape, dtype=torch.float64)


@torch.library.custom_op(
    "fstgrad::are_feasible",
    mutates_args=(),
    schema="(Tensor[] scores, Tensor[] constants, str key) -> Tensor",
)
def _are_feasible(
    scores: Sequence[torch.Tensor], constants: Sequence[torch.Tensor], key: str
) -> torch.Tensor:
    objective = cast(FeasibleItems, objective_of(key))
    arrays, fixed = [to_numpy(t) for t in scores], [to_numpy(t) for t in constants]
    return torch.from_numpy(objective.are_feasible(arrays, fixed))


@_are_feasible.register_fake
def _(scores: Sequence[torch.Tensor], constants: Any, key: str) -> torch.Tensor:
    return scores[0].new_empty(scores[0].shape[:1], dtype=torch.bool)


@torch.library.custom_op(
    "fstgrad::values",
    mutates_args=(),
    schema="(Tensor[] scores, Tensor[] constants, str key) -> Tensor[]",
)
def _values(
    scores: Sequence[torch.Tensor], constants: Sequence[torch.Tensor], key: str
) -> list[torch.Tensor]:
    arrays, fixed = [to_numpy(t) for t in scores], [to_numpy(t) for t in constants]
    results, gradients = objective_of(key).evaluate(arrays, fixed, team())
    tables = [to_tensor(table, like) for table, like in zip(gradients, scores, strict=True)]
    return [to_tensor(results, scores[0]), *tables]


@_values.register_fake
def _(
    scores: Sequence[torch.Tensor], constants: Sequence[torch.Tensor], key: str
) -> list[torch.Tensor]:
    return [scores[0].new_empty(scores[0].shape[:1]), *(s.new_empty(s.shape) for s in scores)]


@torch.library.custom_op(
    "fstgrad::hessian_product",
    mutates_args=(),
    schema="(Tensor[] scores, Tensor[] constants, Tensor[] directions, str key) -> Tensor[]",
)
def _hessian_product(
    scores: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
    directions: Sequence[torch.Tensor],
    key: str,
) -> list[torch.Tensor]:
    arrays, along = (
        [to_numpy(t.to(torch.float64)) for t in tensors] for tensors in (scores, directions)
    )
    products = objective_of(key).hessian_product(arrays, [to_numpy(t) for t in constants], along)
    return [to_tensor(product, like) for product, like in zip(products, scores, strict=True)]


@_hessian_product.register_fake
def _(
    scores: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
    directions: Sequence[torch.Tensor],
    key: str,
) -> list[torch.Tensor]:
    return [s.new_empty(s.shape) for s in scores]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    scores, constants, ctx.key = inputs
    ctx.sizes, ctx.axis, ctx.scaled = (len(scores), len(constants)), True, scaled
    # a transient objective lives as long as this reference
    ctx.objective = _PERSISTENT.get(ctx.key) or _TRANSIENT.get(ctx.key)
    ctx.save_for_backward(*scores, *constants, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, upstream: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """Scale the gradients of the values; differentiate the gradients by the Hessian product.

    The gradients are outputs of the operator.  After a backward pass with `create_graph=True`, a
    second one calls this function again, with an upstream gradient of the gradients.
    """
    many, fixed = ctx.sizes
    saved = ctx.saved_tensors
    scores, constants, gradients = saved[:many], saved[many : many + fixed], saved[many + fixed :]
    total: list[torch.Tensor | None] = [None] * many
    if upstream[0] is not None:
        total = ctx.scaled(upstream[0], gradients)
    if any(direction is not None for direction in upstream[1:]):
        directions = [
            torch.zeros_like(s) if d is None else d
            for s, d in zip(scores, upstream[1:], strict=True)
        ]
        given = [list(scores), list(constants), directions]
        if not ctx.axis:
            given = [[tensor[None] for tensor in tensors] for tensors in given]
        products = _hessian_product(*given, ctx.key)
        products = products if ctx.axis else [product[0] for product in products]
        total = [p if t is None else t + p for p, t in zip(products, total, strict=True)]
    return total, [None] * fixed, None


def scaled(weights: torch.Tensor, tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients multiplied by weights (B,) or ()."""
    return [per_item(weights, table) * table for table in tables]


def scaled_in_place(weights: torch.Tensor, tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return `scaled`; in the last backward pass through a graph, the tables are overwritten."""
    if torch.is_grad_enabled() or _keeps_graph() or not autograd_only(weights):
        return scaled(weights, tables)
    detached = [table.detach() for table in tables]
    try:
        if weights.ndim or weights.item() != 1.0:
            for table in detached:
                table.mul_(per_item(weights, table))
    except RuntimeError:  # several upstream gradients at once: is_grads_batched, or a vmap
        return scaled(weights, tables)
    return detached


_values.register_autograd(_backward, setup_context=_remember)


class _AutogradOnly(torch.autograd.Function):
    """The same operator if only autograd observes it, with a fraction of the overhead.

    It takes the objective itself instead of its key, and accepts one item without a batch axis.
    """

    @staticmethod
    def forward(
        ctx: Any, objective: Objective, many: int, alone: bool, axis: bool, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Evaluate the objective at the first `many` tensors; the others are constants."""
        arrays = [to_numpy(t) for t in tensors] if axis else [to_numpy(t)[None] for t in tensors]
        results, tables = objective.evaluate(arrays[:many], arrays[many:], team())
        gradients = [
            to_tensor(table if axis else table[0], like)
            for table, like in zip(tables, tensors[:many], strict=True)
        ]
        ctx.objective, ctx.axis, ctx.scaled = objective, axis, scaled_in_place
        ctx.sizes = many, len(tensors) - many
        ctx.save_for_backward(*tensors, *gradients)
        ctx.set_materialize_grads(False)
        return to_tensor(results.reshape(()) if alone else results, tensors[0]), *gradients

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[Any, ...]:
        """Scale the gradients, or differentiate them (see `_backward`)."""
        ctx.key = _transient(ctx.objective) if any(d is not None for d in upstream[1:]) else ""
        total, none, _ = _backward(ctx, upstream)
        return (None, None, None, None, *total, *none)


def _no_third_derivative(ctx: Any, upstream: Any) -> None:
    raise NotSupportedError("objectives have no third derivative here")


_hessian_product.register_autograd(_no_third_derivative)


def _joined(info: Any, tensors: Sequence[torch.Tensor], axes: Sequence[int | None]) -> list[Any]:
    """Return tensors with the axis of `torch.vmap` merged into their batch axis."""
    size = info.batch_size
    moved = [
        t.expand(size, *t.shape) if axis is None else t.movedim(axis, 0)
        for t, axis in zip(tensors, axes, strict=True)
    ]
    return [t.reshape(-1, *t.shape[2:]) for t in moved]


@_values.register_vmap
def _(info: Any, axes: Any, scores: Any, constants: Any, key: str) -> tuple[list[Any], list[int]]:
    found = _values(_joined(info, scores, axes[0]), _joined(info, constants, axes[1]), key)
    return [t.reshape(info.batch_size, -1, *t.shape[1:]) for t in found], [0] * len(found)


@_are_feasible.register_vmap
def _(info: Any, axes: Any, scores: Any, constants: Any, key: str) -> tuple[Any, int]:
    found = _are_feasible(_joined(info, scores, axes[0]), _joined(info, constants, axes[1]), key)
    return found.reshape(info.batch_size, -1), 0


@_measured.register_vmap
def _(info: Any, axes: Any, like: Any, constants: Any, key: str) -> tuple[Any, int]:
    (joined,) = _joined(info, [like], [axes[0]])
    found = _measured(joined, _joined(info, constants, axes[1]), key)
    return found.reshape(info.batch_size, -1, *found.shape[1:]), 0
