"""Distributions over trees as operators for autograd, torch.func and torch.compile.

log Z with the marginals mu, the product Cov v, and its derivative along a table u form a chain:
each is the derivative of the one before.  Values come from `fstgrad.trees`, on a device from
`device.trees`.  Arcs are (B, n+1, n+1) float64, lengths (B,) int64.

A large batch is sliced, one slice per thread.  If only autograd observes the tensors, functions
without a custom operator save half of the overhead.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import FstgradError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.objectives.trees import on_possible_arcs, tree_distribution
from fstgrad.torch.arrays import computes_on_device, to_float64, to_float64_tensor
from fstgrad.torch.device import trees as device
from fstgrad.torch.device.sums import finite
from fstgrad.torch.operators import scaled_in_place
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import autograd_only, has_tangent, refuse_transforms, vectorized
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.spanning import SpanningTrees

LARGE = 2**25  # with about fewer operations in a batch, a thread costs more than it saves


def tensor_trees(
    arcs: torch.Tensor, lengths: torch.Tensor | None, single_root: bool, projective: bool
) -> TreeDistribution:
    """Return the distribution over trees of unlabeled arcs, given as tensors."""
    sizes = None if lengths is None else lengths.cpu().numpy()
    return tree_distribution(to_float64(arcs), sizes, single_root, projective)


def is_large(arcs: torch.Tensor) -> bool:
    """Whether a batch (B, n+1, n+1) is worth several threads; False for one table."""
    return arcs.ndim == 3 and arcs.numel() * arcs.shape[1] > LARGE


def fill_slices(
    fill: Callable[[TreeDistribution, slice], None],
    arcs: torch.Tensor,
    lengths: torch.Tensor,
    *family: bool,
) -> None:
    """Call fill(trees, place) for slices of the batch, in threads if the batch is large."""
    table, sizes = to_float64(arcs), lengths.cpu().numpy()

    def run(low: int, high: int) -> None:
        place = slice(low, high)
        fill(tree_distribution(table[place], sizes[place], *family), place)

    if is_large(arcs):
        try:
            team().slices(len(table), run)
        except FstgradError:
            pass  # run the whole batch, so that the error names the item by its number
        else:
            return
    run(0, len(table))


def solved(
    arcs: torch.Tensor, lengths: torch.Tensor, single_root: bool, projective: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,) and the marginals."""
    if len(arcs) == 0:
        return arcs.new_empty(0), torch.empty_like(arcs)
    log_z, marginals = empty(len(arcs)), empty(tuple(arcs.shape))

    def fill(trees: TreeDistribution, place: slice) -> None:
        log_z[place], marginals[place] = trees.log_partition(), trees.marginals()

    fill_slices(fill, arcs, lengths, single_root, projective)
    return to_float64_tensor(log_z, arcs), to_float64_tensor(marginals, arcs)


def _filled(
    compute: Callable[[TreeDistribution, slice], FloatArray],
    arcs: torch.Tensor,
    lengths: torch.Tensor,
    *family: bool,
) -> torch.Tensor:
    """Return a table like the arcs, of which compute(trees, place) returns slices."""
    if len(arcs) == 0:
        return torch.empty_like(arcs)
    tables = empty(tuple(arcs.shape))

    def fill(trees: TreeDistribution, place: slice) -> None:
        tables[place] = compute(trees, place)

    fill_slices(fill, arcs, lengths, *family)
    return to_float64_tensor(tables, arcs)


_solve = torch.library.custom_op("fstgrad::tree_solve", solved, mutates_args=())


@torch.library.custom_op("fstgrad::tree_product", mutates_args=())
def _product(
    arcs: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor,
    single_root: bool,
    projective: bool,
) -> torch.Tensor:
    """Return Cov v, like the arcs.

    v is used only on arcs whose marginal is above zero, so it may be a table of scores with masks
    of any size.
    """

    def covariances(trees: TreeDistribution, place: slice) -> FloatArray:
        return trees.covariance_product(on_possible_arcs(trees, to_float64(v[place])))

    return _filled(covariances, arcs, lengths, single_root, projective)


@torch.library.custom_op("fstgrad::tree_third", mutates_args=())
def _third(
    arcs: torch.Tensor,
    v: torch.Tensor,
    u: torch.Tensor,
    lengths: torch.Tensor,
    single_root: bool,
    projective: bool,
) -> torch.Tensor:
    """Return the derivative of Cov v along u, like the arcs."""
    if projective:
        raise NotSupportedError(
            "projective trees have no third derivative of log Z here, nor the second of entropies "
            "and risks; differentiate once less, or use projective=False"
        )

    def third_order(trees: TreeDistribution, place: slice) -> FloatArray:
        directions = [on_possible_arcs(trees, to_float64(x[place])) for x in (v, u)]
        return cast(SpanningTrees, trees).third_order(*directions)

    return _filled(third_order, arcs, lengths, single_root, projective)


@torch.library.custom_op("fstgrad::tree_entropy", mutates_args=())
def _entropy(
    arcs: torch.Tensor, lengths: torch.Tensor, single_root: bool, projective: bool
) -> torch.Tensor:
    """Return the entropy (B,) in nats."""
    if len(arcs) == 0:
        return arcs.new_empty(0)
    trees = tensor_trees(arcs, lengths, single_root, projective)
    return to_float64_tensor(trees.entropy(), arcs)


@torch.library.custom_op("fstgrad::tree_divergence", mutates_args=())
def _divergence(
    p: torch.Tensor, q: torch.Tensor, lengths: torch.Tensor, single_root: bool, projective: bool
) -> torch.Tensor:
    """Return KL(p || q) (B,) in nats, +inf if q forbids an arc that p allows."""
    if len(p) == 0:
        return p.new_empty(0)
    first, second = (tensor_trees(x, lengths, single_root, projective) for x in (p, q))
    return to_float64_tensor(first.kl(second), p)


_solve.register_fake(lambda arcs, *_: (arcs.new_empty(arcs.shape[:1]), torch.empty_like(arcs)))
for _like_arcs in (_product, _third):
    _like_arcs.register_fake(lambda arcs, *_: torch.empty_like(arcs))
for _per_item in (_entropy, _divergence):
    _per_item.register_fake(lambda arcs, *_: arcs.new_empty(arcs.shape[:1]))


class _Operator(torch.autograd.Function):
    """The derivative of an operator, for autograd and for the transforms of torch.func."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.single_root, ctx.projective = inputs
        saved = []
        if isinstance(output, tuple):
            saved = [output[1]]
            ctx.set_materialize_grads(False)  # zeros for mu would cost a product
        ctx.save_for_backward(*tensors, *saved)
        ctx.save_for_forward(*tensors, *saved)


def _call(function: type[_Operator], *inputs: Any) -> Any:
    if torch.compiler.is_compiling():
        return function.forward(*inputs)
    return function.apply(*inputs)  # type: ignore[no-untyped-call]


def _derivative_of(operator: str) -> Callable[[type[_Operator]], type[_Operator]]:
    """Return a decorator that gives a custom operator the derivative of a class, and reverse.

    The derivative is registered with the operator for torch.compile, and the class has it for all
    others, because neither of the two mechanisms serves both.
    """

    def joined(function: type[_Operator]) -> type[_Operator]:
        function.forward = staticmethod(getattr(torch.ops.fstgrad, operator))  # type: ignore[method-assign]
        function.vmap = staticmethod(vectorized(partial(_call, function)))  # type: ignore[method-assign]
        torch.library.register_autograd(
            f"fstgrad::{operator}", function.backward, setup_context=function.setup_context
        )
        return function

    return joined


@_derivative_of("tree_solve")
class _Solve(_Operator):
    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[Any, ...]:
        arcs, lengths, mu = ctx.saved_tensors
        by_log_z, by_mu = upstream
        slope = None if by_log_z is None else by_log_z[:, None, None] * mu
        if by_mu is not None:
            change = product(arcs, by_mu, lengths, ctx.single_root, ctx.projective)
            slope = change if slope is None else slope + change
        return slope, None, None, None

    @staticmethod
    def jvp(ctx: Any, along: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        arcs, lengths, mu = ctx.saved_tensors
        change = product(arcs, along, lengths, ctx.single_root, ctx.projective)
        return _inner(mu, along), change


class _AutogradOnlySolve(torch.autograd.Function):
    """The same if only autograd observes the operator, with half of the overhead."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = solved(*inputs)
        _Operator.setup_context(ctx, inputs, output)
        return output

    backward = _Solve.backward


@_derivative_of("tree_product")
class _Product(_Operator):
    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        arcs, v, lengths = ctx.saved_tensors
        by_arcs = by_v = None
        if ctx.needs_input_grad[0]:
            by_arcs = third(arcs, v, upstream[0], lengths, ctx.single_root, ctx.projective)
        if ctx.needs_input_grad[1]:
            by_v = product(arcs, upstream[0], lengths, ctx.single_root, ctx.projective)
        return by_arcs, by_v, None, None, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> torch.Tensor:
        arcs, v, lengths = ctx.saved_tensors
        family = (lengths, ctx.single_root, ctx.projective)
        return third(arcs, v, along[0], *family) + product(arcs, along[1], *family)


@_derivative_of("tree_third")
class _Third(_Operator):
    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        raise NotSupportedError("trees have no fourth derivative of log Z; differentiate once less")

    jvp = backward


@_derivative_of("tree_entropy")
class _Entropy(_Operator):
    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        arcs, lengths = ctx.saved_tensors
        change = product(arcs, _centered(arcs), lengths, ctx.single_root, ctx.projective)
        return -upstream[0][:, None, None] * change, None, None, None

    @staticmethod
    def jvp(ctx: Any, along: torch.Tensor, *_: Any) -> torch.Tensor:
        arcs, lengths = ctx.saved_tensors
        change = product(arcs, _centered(arcs), lengths, ctx.single_root, ctx.projective)
        return -_inner(change, along)


@_derivative_of("tree_divergence")
class _Divergence(_Operator):
    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        p, q, lengths = ctx.saved_tensors
        weight, family = upstream[0][:, None, None], (lengths, ctx.single_root, ctx.projective)
        by_p = by_q = None
        if ctx.needs_input_grad[0]:
            by_p = weight * product(p, _centered(p) - _centered(q), *family)
        if ctx.needs_input_grad[1]:
            by_q = weight * (solve(q, *family)[1] - solve(p, *family)[1])
        return by_p, by_q, None, None, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> torch.Tensor:
        p, q, lengths = ctx.saved_tensors
        family = (lengths, ctx.single_root, ctx.projective)
        by_p = product(p, _centered(p) - _centered(q), *family)
        by_q = solve(q, *family)[1] - solve(p, *family)[1]
        return _inner(by_p, along[0]) + _inner(by_q, along[1])


def _centered(arcs: torch.Tensor) -> torch.Tensor:
    """Return scores minus each dependent's largest, 0 for -inf; covariances do not change."""
    known = torch.where(arcs > -torch.inf, arcs, -torch.inf)  # padding may hold NaN
    return finite(known - finite(known.detach().amax(dim=-2, keepdim=True)))


def _inner(table: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    """Return the inner product (B,) of two tables."""
    return (table * along).sum(dim=(1, 2))


def solve(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,) and marginals; inputs : arcs, lengths, single_root, projective."""
    if on_device(inputs[0]):
        return device.solve(inputs[0], inside(*inputs[:2]), *inputs[2:])
    if autograd_only(*inputs[:2]) and not has_tangent(inputs[0]):
        solution: tuple[torch.Tensor, torch.Tensor] = _AutogradOnlySolve.apply(*inputs)  # type: ignore[no-untyped-call]
        return solution
    result: tuple[torch.Tensor, torch.Tensor] = _call(_Solve, *inputs)
    return result


def product(*inputs: Any) -> torch.Tensor:
    """Return Cov v; inputs : arcs, v, lengths, single_root, projective."""
    return cast(torch.Tensor, _call(_Product, *inputs))


def third(*inputs: Any) -> torch.Tensor:
    """Return the derivative of Cov v along u; inputs : arcs, v, u, lengths, and the two flags."""
    return cast(torch.Tensor, _call(_Third, *inputs))


def entropy(*inputs: Any) -> torch.Tensor:
    """Return entropies (B,); inputs : arcs, lengths, single_root, projective."""
    if on_device(inputs[0]):
        return device.entropy(inputs[0], inside(*inputs[:2]), *inputs[2:])
    return cast(torch.Tensor, _call(_Entropy, *inputs))


def divergence(*inputs: Any) -> torch.Tensor:
    """Return KL(p || q) (B,); inputs : arcs p, arcs q, lengths, single_root, projective."""
    if on_device(inputs[0]):
        p, q, lengths, *flags = inputs
        return device.divergence(p, q, inside(p, lengths), *flags)
    return cast(torch.Tensor, _call(_Divergence, *inputs))


def log_partition(arcs: torch.Tensor, lengths: torch.Tensor | None, *flags: bool) -> torch.Tensor:
    """Return log Z (B,) of arcs, or () of one table.

    Without lengths, all tables have n dependents.  flags : single_root, projective.
    """
    if on_device(arcs):
        batch = arcs if arcs.ndim == 3 else arcs[None]
        known = inside(batch, _lengths(batch) if lengths is None else lengths)
        log_z = device.log_partition(batch, known, *flags)
        return log_z if arcs.ndim == 3 else log_z[0]
    if autograd_only(arcs) and not has_tangent(arcs):
        value: torch.Tensor = _LogPartition.apply(arcs, lengths, *flags)  # type: ignore[no-untyped-call]
        return value
    log_z = _batched(arcs, lengths, *flags)[0]
    return log_z if arcs.ndim == 3 else log_z[0]


def on_device(arcs: torch.Tensor) -> bool:
    """Whether to compute in operations of PyTorch."""
    if not computes_on_device(arcs):
        return False
    refuse_transforms([arcs])
    return True


def inside(arcs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return a mask (B, n) of the dependents of each item, on the device of the arcs."""
    places = torch.arange(1, arcs.shape[1], device=arcs.device)
    return places <= lengths.to(arcs.device, non_blocking=True)[:, None]


class _LogPartition(torch.autograd.Function):
    """log Z if only autograd observes it; marginals are solved again for a second derivative.

    Arcs are (B, n+1, n+1), or one table (n+1, n+1); without lengths, all have n dependents.
    """

    @staticmethod
    def forward(ctx: Any, arcs: torch.Tensor, lengths: torch.Tensor | None, *flags: bool) -> Any:
        if is_large(arcs) or len(arcs) == 0:
            log_z, mu = solved(arcs, _lengths(arcs) if lengths is None else lengths, *flags)
        else:
            trees = tensor_trees(arcs, lengths, *flags)
            log_z, mu = (
                to_float64_tensor(trees.log_partition(), arcs),
                to_float64_tensor(trees.marginals(), arcs),
            )
        ctx.flags = flags
        ctx.save_for_backward(arcs, lengths, mu)
        return log_z

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        arcs, lengths, mu = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True requires differentiable marginals
            mu = _batched(arcs, lengths, *ctx.flags)[1].reshape(arcs.shape)
        return *scaled_in_place(upstream[0], [mu]), *[None] * (1 + len(ctx.flags))


def _batched(
    arcs: torch.Tensor, lengths: torch.Tensor | None, *flags: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `solve` of a batch, or of one table as a batch of one."""
    batch = arcs if arcs.ndim == 3 else arcs[None]
    return solve(batch, _lengths(batch) if lengths is None else lengths, *flags)


def _lengths(batch: torch.Tensor) -> torch.Tensor:
    """Return n for each table of a batch."""
    return torch.full((len(batch),), batch.shape[1] - 1, dtype=torch.int64)
