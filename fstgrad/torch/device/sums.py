"""Sums over exponentials as operators that save little and add in a fixed order.

With v_j = log sum_i exp(u_i + w_ij), the derivative of v_j in u_i and in w_ij is
p_ij = exp(u_i + w_ij - v_j), a probability.  It is computed again in the backward pass, from u, w
and v.  With a tangent u' of u, the tangent of v_j is sum_i p_ij u'_i: expectations are computed so.
An item whose value is NaN gets 0 where nothing arrives from above.
"""

from collections.abc import Iterator
from typing import Any

import torch

CELLS = 2**26  # the largest table of terms; larger ones are computed in parts


def log_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return log sum_i exp(left[..., s, i] + right[..., i, j]): (G, S, I), (G, I, J) -> (G, S, J).

    O(G S I J).  -inf where all terms are; every range of scores is right, because no term
    is exponentiated before the largest one is subtracted.
    """
    result: torch.Tensor = _LogProduct.apply(left, right)  # type: ignore[no-untyped-call]
    return result


def log_sum(values: torch.Tensor) -> torch.Tensor:
    """Return the log of the sum of exp(values) over the last axis."""
    flat = values.reshape(1, -1, values.shape[-1])
    return log_product(flat, values.new_zeros(1, values.shape[-1], 1)).reshape(values.shape[:-1])


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


def expected_product(
    left: torch.Tensor, tangent: torch.Tensor, right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `log_product`, and its tangent if `left` has the given one; 0 where the sum is 0."""
    result: tuple[torch.Tensor, torch.Tensor] = _ExpectedProduct.apply(left, tangent, right)  # type: ignore[no-untyped-call]
    return result


class _LogProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        parts = [_terms(left[:, rows], right).logsumexp(2) for rows in _slices(left, right)]
        result = _joined(parts)
        ctx.save_for_backward(left, right, result)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right, result = ctx.saved_tensors
        (weights,) = upstream
        left, right, result = _active(weights, left, right, result)
        by_left, by_right = [], torch.zeros_like(right)
        for rows in _slices(left, right):
            flow = _shares(left, right, result, rows) * weights[:, rows, None, :]
            by_left.append(flow.sum(dim=3))
            by_right = by_right + flow.sum(dim=1)
        return _joined(by_left), by_right


class _ExpectedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, left: torch.Tensor, tangent: torch.Tensor, right: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        results, means = [], []
        for rows in _slices(left, right):
            terms = _terms(left[:, rows], right)
            results.append(terms.logsumexp(2))
            shares = (terms - finite(results[-1])[:, :, None]).exp()
            means.append((shares * tangent[:, rows, :, None]).sum(dim=2))
        result, mean = _joined(results), _joined(means)
        ctx.save_for_backward(left, tangent, right, result, mean)
        return result, mean

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, tangent, right, result, mean = ctx.saved_tensors
        weights, by_mean = upstream
        left, right, result, tangent, mean = _active(
            weights.abs() + by_mean.abs(), left, right, result, tangent, mean
        )
        by_left, by_tangent, by_right = [], [], torch.zeros_like(right)
        for rows in _slices(left, right):
            shares = _shares(left, right, result, rows)
            flow = shares * by_mean[:, rows, None, :]
            by_tangent.append(flow.sum(dim=3))
            change = tangent[:, rows, :, None] - mean[:, rows, None, :]
            flow = shares * weights[:, rows, None, :] + flow * change
            by_left.append(flow.sum(dim=3))
            by_right = by_right + flow.sum(dim=1)
        return _joined(by_left), _joined(by_tangent), by_right


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


def _shares(
    left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, rows: slice
) -> torch.Tensor:
    return (_terms(left[:, rows], right) - result[:, rows, None, :]).exp()


def _terms(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left[..., None] + right[:, None]


def _slices(left: torch.Tensor, right: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `left`, as many as fit into a table of CELLS terms."""
    size = max(1, CELLS // max(1, right.numel()))
    for low in range(0, max(1, left.shape[1]), size):
        yield slice(low, low + size)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
