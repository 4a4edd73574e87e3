"""Sums over exponentials as operators that save little and add in a fixed order.

With v_j = log sum_i exp(u_i + w_ij), the derivative of v_j in u_i and in w_ij is
p_ij = exp(u_i + w_ij - v_j), a probability.  It is computed again in the backward pass, from u, w
and v.  With tangents u' and w', the tangent of v_j is sum_i p_ij (u'_i + w'_ij): expectations are
computed so.  `Weights` are u alone, or u and u'; sums of them have as many tables.  An item whose
value is NaN gets 0 where nothing arrives from above.
"""

from collections.abc import Iterator
from typing import Any

import torch

Weights = tuple[torch.Tensor, ...]
CELLS = 2**26  # the largest table of terms; larger ones are computed in parts


def log_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return log sum_i exp(left[..., s, i] + right[..., i, j]): (G, S, I), (G, I, J) -> (G, S, J).

    O(G S I J).  -inf where all terms are; every range of scores is right, because no term
    is exponentiated before the largest one is subtracted.
    """
    return products((left,), right)[0]


def products(left: Weights, right: torch.Tensor, step: torch.Tensor | None = None) -> Weights:
    """Return `log_product`, and its tangent if `left` has one; `step` is that of `right`, or 0.

    The tangent of a sum of 0 is 0.
    """
    tangent = left[1] if len(left) > 1 else None
    result: Weights = _Products.apply(left[0], right, tangent, step)  # type: ignore[no-untyped-call]
    return result


def log_sum(values: torch.Tensor) -> torch.Tensor:
    """Return the log of the sum of exp(values) over the last axis."""
    return totals((values,))[0]


def totals(weights: Weights) -> Weights:
    """Return the sums over the last axis."""
    *shape, size = weights[0].shape
    flat = tuple(table.reshape(1, -1, size) for table in weights)
    return tuple(t.reshape(shape) for t in products(flat, weights[0].new_zeros(1, size, 1)))


def finite(values: torch.Tensor) -> torch.Tensor:
    """Return the values with 0 for -inf; NaN and +inf stay."""
    return torch.where(values == -torch.inf, 0.0, values)


def is_used(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return where derivatives count: everywhere but at infinite values and NaN of weight 0.

    A finite value of weight 0 counts, because its weight may have derivatives.
    """
    return (weights != 0) | values.isfinite()


def valid(values: torch.Tensor) -> torch.Tensor:
    """Return log-weights of items with NaN for -inf, the sum over no structure."""
    return torch.where(values == -torch.inf, torch.nan, values)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        left: torch.Tensor,
        right: torch.Tensor,
        tangent: torch.Tensor | None,
        step: torch.Tensor | None,
    ) -> Weights:
        results, means = [], []
        for rows in _slices(left, right):
            terms = _terms(left[:, rows], right)
            results.append(terms.logsumexp(2))
            if tangent is not None:
                shares = (terms - finite(results[-1])[:, :, None]).exp()
                means.append((shares * _terms(tangent[:, rows], step)).sum(dim=2))
        output = tuple(_joined(parts) for parts in (results, means) if parts)
        ctx.save_for_backward(left, right, tangent, step, *output)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        left, right, tangent, step, *output = ctx.saved_tensors
        given = [*output, tangent] if tangent is not None else output
        used = torch.stack([table.abs() for table in upstream]).sum(dim=0)
        left, right, result, *means = _active(used, left, right, *given)
        by_left, by_tangent, by_right, by_step = [], [], torch.zeros_like(right), None
        for rows in _slices(left, right):
            shares = (_terms(left[:, rows], right) - result[:, rows, None, :]).exp()
            flow = shares * upstream[0][:, rows, None, :]
            if means:
                mean, tangent = means
                own = shares * upstream[1][:, rows, None, :]
                flow = flow + own * (_terms(tangent[:, rows], step) - mean[:, rows, None, :])
                by_tangent.append(own.sum(dim=3))
                if step is not None:
                    by_step = own.sum(dim=1) if by_step is None else by_step + own.sum(dim=1)
            by_left.append(flow.sum(dim=3))
            by_right = by_right + flow.sum(dim=1)
        return _joined(by_left), by_right, _joined(by_tangent) if means else None, by_step


def _active(
    weights: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *tables: torch.Tensor
) -> list[torch.Tensor]:
    """Return the arguments with -inf and 0 in rows that do not count, so that shares are 0."""
    tables = tuple(finite(table) for table in tables)
    sums = torch.stack([table.sum(dim=2) for table in tables]).sum(dim=0)  # finite if all are
    active = is_used(weights.abs().sum(dim=2), sums)[..., None]
    rest = [torch.where(active, table, 0.0) for table in tables]
    right = torch.where(active.any(dim=1, keepdim=True), right, 0.0)
    return [torch.where(active, left, -torch.inf), right, *rest]


def _terms(left: torch.Tensor, right: torch.Tensor | None) -> torch.Tensor:
    return left[..., None] if right is None else left[..., None] + right[:, None]


def _slices(left: torch.Tensor, right: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `left`, as many as fit into a table of CELLS terms."""
    size = max(1, CELLS // max(1, right.numel()))
    for low in range(0, max(1, left.shape[1]), size):
        yield slice(low, low + size)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
