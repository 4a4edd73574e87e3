"""String objectives of a batch on the device of the scores, in tensor operations.

The automata of the items are padded level by level to the largest one; a level is one batched
product with exp(scores) and one scatter, for all items together.  log Z is a function of the
scores and of the scale of the loss, exp(scale L + w.Psi).  Marginals are the derivative of log Z in
the scores, the risk that in the scale; autograd takes these and the further ones.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import DEAD, LossAutomaton
from fstgrad.checks import IntArray
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights

_moved: set[str] = set()


def what_hinders(
    scores: torch.Tensor, automata: Sequence[LossAutomaton], *, scale: float
) -> str | None:
    """Return why the passes below cannot be taken, None where they can.

    scores : (B, L, n) or (B, L, n+1, n) float64.  Weights are plain floats here, so that those of
    an item may not span more than their range.
    """
    if scores.ndim > 4:
        return "strings of order 3 and higher"
    arrays = scores.detach().cpu().numpy()
    for own, b in zip(arrays, automata, strict=True):
        if not Passes(own[: b.length], loss_weights(b, scale=scale)).is_within_range():
            return "scores beyond the range of floats"
    return None


def warn_once(what: str) -> None:
    """Say that something is computed on the CPU, once in a process."""
    if what not in _moved:
        _moved.add(what)
        warnings.warn(f"{what} are computed on the CPU", RuntimeWarning, stacklevel=2)


def trivial(n: int, length: int) -> LossAutomaton:
    """Return the automaton of L = 0."""
    return LossAutomaton.trivial(Alphabet(str(i) for i in range(n)), length)


@dataclass(frozen=True)
class _PaddedLevel:
    """One position of all automata, (B, S, n): next states, costs L, and which arcs there are."""

    nextstate: torch.Tensor
    cost: torch.Tensor
    alive: torch.Tensor

    def weight(self, scale: torch.Tensor) -> torch.Tensor:
        """Return e^{scale L}, 0 where there is no arc."""
        return torch.where(self.alive, (scale * self.cost).exp(), 0.0)


class BatchedStrings:
    """Forward and backward over a padded batch; order q = 1 or 2, float64.

    An item that is shorter than the batch stays where it is: beyond its length it has one symbol of
    weight one in a single state, so that no pass needs a mask.
    """

    def __init__(self, scores: torch.Tensor, automata: Sequence[LossAutomaton]) -> None:
        self.n, self.order = scores.shape[-1], scores.ndim - 2
        self.automata, self.scores, self.device = automata, scores.detach(), scores.device
        self.levels = [self._padded(t) for t in range(scores.shape[1])]
        lengths = torch.as_tensor([b.length for b in automata], device=self.device)
        self.inside = torch.arange(scores.shape[1], device=self.device) < lengths[:, None]
        # The final weights are divided by their largest, which goes into the initial one.
        shape = (len(automata), self._states(len(self.levels)))
        final, ends = np.zeros(shape), np.zeros(shape, dtype=bool)
        for i, b in enumerate(automata):
            final[i, : len(b.final)] = b.final - b.final.max()
            ends[i, : len(b.final)] = True
        self.final, self.ends = self._tensor(final), torch.as_tensor(ends, device=self.device)
        self.initial = self._tensor([b.initial + b.final.max() for b in automata])

    def softmax_margin(self, golds: Sequence[IntArray]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log Z - score(gold) (B,) and Q - t(gold), shaped like the scores."""
        with torch.enable_grad():
            point, log_z = self._margin()
            (gradient,) = torch.autograd.grad(log_z.sum(), point)
        value = log_z.detach()
        for i, gold in enumerate(golds):
            context = np.append(self.n, gold[:-1])
            index = (np.arange(len(gold)), *((context, gold) if self.order == 2 else (gold,)))
            position = tuple(torch.as_tensor(x, device=self.device) for x in index)
            value[i] -= self.scores[i][position].sum()
            gradient[i][position] -= 1.0
        return value, gradient

    def margin_product(self, direction: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of log Z with the loss times the direction, like the scores."""
        with torch.enable_grad():
            point, log_z = self._margin()
            (gradient,) = torch.autograd.grad(log_z.sum(), point, create_graph=True)
            return _product(gradient, direction, point)

    def risk(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return E[L] (B,) under exp(w.Psi) / Z and Cov[L, t], shaped like the scores."""
        with torch.enable_grad():
            point, risk = self._risk()
            (gradient,) = torch.autograd.grad(risk.sum(), point)
        return risk.detach(), gradient

    def risk_product(self, direction: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of the risk times the direction, shaped like the scores."""
        with torch.enable_grad():
            point, risk = self._risk()
            (gradient,) = torch.autograd.grad(risk.sum(), point, create_graph=True)
            return _product(gradient, direction, point)

    def _margin(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores as a leaf, and log Z with the loss."""
        point = self.scores.clone().requires_grad_()
        return point, self._log_partition(point, torch.ones_like(self.initial))

    def _risk(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores as a leaf, and E[L]."""
        point = self.scores.clone().requires_grad_()
        scale = torch.zeros_like(self.initial).requires_grad_()
        log_z = self._log_partition(point, scale)
        (risk,) = torch.autograd.grad(log_z.sum(), scale, create_graph=True)
        return point, risk

    def _log_partition(self, scores: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Return log Z (B,) under exp(scale L + w.Psi), with a scale for each item."""
        size, contexts = len(self.automata), self.n + 1 if self.order == 2 else 1
        alpha = torch.zeros(size, 1, contexts, dtype=torch.float64, device=self.device)
        alpha[:, 0, -1] = 1.0
        log_z = scale * self.initial
        for t, level in enumerate(self.levels):
            weights, shift = self._score_weights(scores, t)
            arrived = torch.bmm(alpha, weights) * level.weight(scale[:, None, None])
            empty = arrived.new_zeros(size, self._states(t + 1), self.n)
            after = empty.scatter_add(1, level.nextstate, arrived)
            largest = after.amax(dim=(1, 2)).detach()
            log_z = log_z + shift + largest.log()
            alpha = self._by_context(after / largest[:, None, None])
        ends = torch.where(self.ends, (scale[:, None] * self.final).exp(), 0.0)
        return log_z + (alpha * ends[:, :, None]).sum(dim=(1, 2)).log()

    def _by_context(self, after: torch.Tensor) -> torch.Tensor:
        """Return weights by the last symbol as weights by the context of the next position."""
        if self.order == 1:
            return after.sum(dim=2, keepdim=True)
        return torch.nn.functional.pad(after, (0, 1))

    def _score_weights(self, scores: torch.Tensor, t: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return exp(scores_t - maximum) (B, X, n), and the maxima (B,), which are constants."""
        table = scores[:, t] if self.order == 2 else scores[:, t, None]
        used = torch.ones(table.shape[1:], dtype=torch.bool, device=self.device)
        if self.order == 2:
            used[self.n] = t == 0
            used[: self.n] = t > 0
        first = torch.zeros_like(used)
        first[:, 0] = True
        inside = self.inside[:, t, None, None]
        table = torch.where(inside, table, 0.0)
        table = torch.where(torch.where(inside, used, used & first), table, -torch.inf)
        shift = table.amax(dim=(1, 2)).detach()
        return (table - shift[:, None, None]).exp(), shift

    def _padded(self, t: int) -> _PaddedLevel:
        shape = (len(self.automata), self._states(t), self.n)
        nextstate, cost = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        alive = np.zeros(shape, dtype=bool)
        for i, b in enumerate(self.automata):
            if t >= b.length:
                states = b.level_sizes[-1]
                nextstate[i, :states], alive[i, :states] = np.arange(states)[:, None], True
                continue
            level = b.levels[t]
            own = level.nextstate[:, b.class_of]
            nextstate[i, : len(own)] = np.maximum(own, 0)
            alive[i, : len(own)] = own != DEAD
            cost[i, : len(own)] = np.where(own == DEAD, 0.0, level.cost[:, b.class_of])
        arrays = (torch.as_tensor(array, device=self.device) for array in (nextstate, cost, alive))
        return _PaddedLevel(*arrays)

    def _states(self, t: int) -> int:
        return max(b.level_sizes[min(t, b.length)] for b in self.automata)

    def _tensor(self, values: object) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)


def _product(gradient: torch.Tensor, direction: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    (product,) = torch.autograd.grad((gradient * direction).sum(), point)
    return product
