"""The Hessian of the risk of one string times a direction, by autograd through log Z.

log Z(w, s) is the log of the sum of exp(s L + w.Psi) over strings; the risk is its derivative in s
at 0.  The Hessian of the risk thus needs three derivatives.  The compiled passes carry only one
tangent, so this pass uses tensor operations: a product with exp(scores) and a scatter per level.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import NotSupportedError
from fstgrad.losses.automata.automaton import DEAD, LossAutomaton
from fstgrad.strings.solve import score_table, used_contexts


def product(scores: FloatArray, b: LossAutomaton, direction: FloatArray) -> FloatArray:
    """Return the Hessian of E[L] under exp(w.Psi) / Z times the direction, like the scores.

    Parameters
    ----------
    scores, direction : (l, n) or (l, n+1, n) float64

    Raises
    ------
    NotSupportedError
        For strings of order 3 and higher, and for scores that span more than the range of floats.
    """
    hindrance = None
    if scores.ndim > 3:
        hindrance = "strings of order 3 and higher"
    elif not score_table(scores).is_within_range(0.0, is_complete=b.is_complete):
        hindrance = "scores beyond the range of floats"
    if hindrance is not None:
        raise NotSupportedError(
            f"risk with {hindrance} has no second derivative here; differentiate softmax_margin "
            "or crf_nll twice, or use first derivatives only"
        )
    # PyTorch records no operations within an operator, but it does so in another thread
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(_product, scores, b, direction).result()


def _product(scores: FloatArray, b: LossAutomaton, direction: FloatArray) -> FloatArray:
    point = torch.tensor(scores, requires_grad=True)
    scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    log_z = _log_partition(point, scale, b)
    (risk,) = torch.autograd.grad(log_z, scale, create_graph=True)
    (gradient,) = torch.autograd.grad(risk, point, create_graph=True)
    (product,) = torch.autograd.grad((gradient * torch.tensor(direction)).sum(), point)
    result: FloatArray = product.numpy()
    return result


def _log_partition(scores: torch.Tensor, scale: torch.Tensor, b: LossAutomaton) -> torch.Tensor:
    """Return log of the sum over y of exp(scale L + w.Psi)."""
    n, order = scores.shape[-1], scores.ndim - 1
    rows = scores.reshape(len(scores), -1, n)
    alpha = torch.zeros(1, rows.shape[1], dtype=torch.float64)
    alpha[0, -1] = 1.0
    log_z = scale * b.initial
    for t, level in enumerate(b.levels):
        used = torch.from_numpy(used_contexts(order, n)[min(t, order - 1)][:, None])
        table = torch.where(used, rows[t], -torch.inf)
        shift = table.max().detach()
        target, cost = level.nextstate[:, b.class_of], level.cost[:, b.class_of]
        alive = torch.from_numpy(target != DEAD)
        weight = (scale * torch.from_numpy(np.where(target == DEAD, 0.0, cost))).exp()
        arrived = (alpha @ (table - shift).exp()) * torch.where(alive, weight, 0.0)
        after = torch.zeros(b.level_sizes[t + 1], n, dtype=torch.float64)
        after = after.scatter_add(0, torch.from_numpy(np.maximum(target, 0)), arrived)
        largest = after.max().detach()
        after, log_z = after / largest, log_z + shift + largest.log()
        if order == 1:
            alpha = after.sum(dim=1, keepdim=True)
        else:
            alpha = torch.nn.functional.pad(after, (0, 1))
    ends = (scale * torch.tensor(b.final)).exp()
    return log_z + (alpha.sum(dim=1) * ends).sum().log()
