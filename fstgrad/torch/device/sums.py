"""Sums over exponentials as operators that save little and add in a fixed order.

With v_j = log sum_i exp(u_i + w_ij), the derivative of v_j in u_i and in w_ij is
exp(u_i + w_ij - v_j), a probability.  It is computed again in the backward pass, from u, w and v.
Where nothing arrives from above, the backward pass gives 0, also for an item whose value is NaN.
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


def valid(values: torch.Tensor) -> torch.Tensor:
    """Return log-weights of items with NaN for -inf, the sum over no structure."""
    return torch.where(values == -torch.inf, torch.nan, values)


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
        active = (weights != 0).any(dim=-1, keepdim=True)
        left = torch.where(active, left, -torch.inf)
        result = torch.where(active, finite(result), 0.0)
        by_left, by_right = [], torch.zeros_like(right)
        for rows in _slices(left, right):
            shares = (_terms(left[:, rows], right) - result[:, rows, None, :]).exp()
            flow = shares * weights[:, rows, None, :]
            by_left.append(flow.sum(dim=3))
            by_right = by_right + flow.sum(dim=1)
        return _joined(by_left), by_right


def _terms(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left[..., None] + right[:, None]


def _slices(left: torch.Tensor, right: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `left`, as many as fit into a table of CELLS terms."""
    size = max(1, CELLS // max(1, right.numel()))
    for low in range(0, max(1, left.shape[1]), size):
        yield slice(low, low + size)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
