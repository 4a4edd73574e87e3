"""The softmax margin of a batch of strings on the device of the scores, in tensor operations.

The automata of the items are padded level by level to the largest one; a level is one batched
product with exp(scores) and one scatter, for all items together.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fstgrad.alphabet import Alphabet
from fstgrad.automaton import DEAD, LossAutomaton
from fstgrad.checks import IntArray
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights

_moved: set[str] = set()


def on_device(
    scores: torch.Tensor,
    golds: Sequence[IntArray],
    automata: Sequence[LossAutomaton | None],
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the softmax margins (B,) and their gradients, or None if the CPU has to do it.

    scores : (B, L, n) or (B, L, n+1, n) float64.  The CPU is asked for higher orders, and where the
    weights of an item span more than the range of floats.
    """
    if scores.ndim > 4:
        _warn_once("strings of order 3 and higher")
        return None
    alphabet = Alphabet(str(i) for i in range(scores.shape[-1]))
    full = [
        b if b is not None else LossAutomaton.trivial(alphabet, len(gold))
        for b, gold in zip(automata, golds, strict=True)
    ]
    arrays = scores.detach().cpu().numpy()
    for own, gold, b in zip(arrays, golds, full, strict=True):
        if not Passes(own[: len(gold)], loss_weights(b, scale=1.0)).is_within_range():
            _warn_once("scores beyond the range of floats")
            return None
    return BatchedStrings(scores, golds, full).softmax_margin()


def _warn_once(what: str) -> None:
    if what not in _moved:
        _moved.add(what)
        warnings.warn(f"{what} are computed on the CPU", RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class _PaddedLevel:
    """One position of all automata: target (B, S, n) and weight e^L (B, S, n), 0 where dead."""

    target: torch.Tensor
    weight: torch.Tensor


class BatchedStrings:
    """Forward and backward over a padded batch; order q = 1 or 2, float64.

    An item that is shorter than the batch stays where it is: beyond its length it has one symbol of
    weight one in a single state, so that no pass needs a mask.
    """

    def __init__(
        self,
        scores: torch.Tensor,
        golds: Sequence[IntArray],
        automata: Sequence[LossAutomaton],
    ) -> None:
        self.n, self.order = scores.shape[-1], scores.ndim - 2
        self.golds, self.automata, self.device = golds, automata, scores.device
        self.scores = scores
        self.levels = [self._padded(t) for t in range(scores.shape[1])]
        self.weights, self.shift = self._score_weights()

    def softmax_margin(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log Z - score(gold) (B,) and Q - t(gold), shaped like the scores."""
        alphas, log_z = self._forward()
        gradient = self._backward(alphas)
        value = log_z
        for i, gold in enumerate(self.golds):
            context = np.append(self.n, gold[:-1])
            index = (np.arange(len(gold)), *((context, gold) if self.order == 2 else (gold,)))
            position = tuple(torch.as_tensor(x, device=self.device) for x in index)
            value[i] -= self.scores[i][position].sum()
            gradient[i][position] -= 1.0
        return value, gradient

    def _forward(self) -> tuple[list[torch.Tensor], torch.Tensor]:
        size, contexts = len(self.golds), self.n + 1 if self.order == 2 else 1
        alpha = torch.zeros(size, 1, contexts, dtype=torch.float64, device=self.device)
        alpha[:, 0, -1] = 1.0
        offset = self.shift.sum(dim=1) + self._tensor([b.initial for b in self.automata])
        alphas = [alpha]
        for t, level in enumerate(self.levels):
            arrived = torch.bmm(alpha, self.weights[t]) * level.weight
            after = torch.zeros(
                size, self._states(t + 1), self.n, dtype=torch.float64, device=self.device
            )
            after.scatter_add_(1, level.target, arrived)
            scale = after.amax(dim=(1, 2))
            offset = offset + scale.log()
            alpha = self._by_context(after / scale[:, None, None])
            alphas.append(alpha)
        ends = (alpha * self._ends()[:, :, None]).sum(dim=(1, 2))
        return alphas, offset + ends.log() + self._end_shift()

    def _backward(self, alphas: list[torch.Tensor]) -> torch.Tensor:
        gradient = torch.zeros_like(self.scores)
        beta = self._ends()[:, :, None].expand(-1, -1, self.n)
        for t in reversed(range(len(self.levels))):
            level = self.levels[t]
            ahead = torch.gather(beta, 1, level.target) * level.weight
            pairs = torch.bmm(alphas[t].transpose(1, 2), ahead) * self.weights[t]
            shares = pairs / pairs.sum(dim=(1, 2), keepdim=True)
            inside = self._tensor([float(t < len(gold)) for gold in self.golds])
            table = shares * inside[:, None, None]
            gradient[:, t] = table if self.order == 2 else table[:, 0]
            back = torch.bmm(ahead, self.weights[t].transpose(1, 2))
            back = back / back.amax(dim=(1, 2), keepdim=True)
            beta = back[..., : self.n] if self.order == 2 else back.expand(-1, -1, self.n)
        return gradient

    def _by_context(self, after: torch.Tensor) -> torch.Tensor:
        """Return weights by the last symbol as weights by the context of the next position."""
        if self.order == 1:
            return after.sum(dim=2, keepdim=True)
        return torch.nn.functional.pad(after, (0, 1))

    def _score_weights(self) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return exp(scores - maximum) by position (B, X, n), and the maxima (B, L)."""
        weights, shifts = [], []
        for t in range(self.scores.shape[1]):
            table = self.scores[:, t] if self.order == 2 else self.scores[:, t, None]
            used = torch.ones_like(table, dtype=torch.bool)
            if self.order == 2:
                used[:, self.n] = t == 0
                used[:, : self.n] = t > 0
            table = table.masked_fill(~used, -torch.inf)
            for i, gold in enumerate(self.golds):
                if t >= len(gold):
                    table[i] = torch.where(used[i], 0.0, -torch.inf)
                    table[i, :, 1:] = -torch.inf
            shift = table.amax(dim=(1, 2))
            weights.append((table - shift[:, None, None]).exp())
            shifts.append(shift)
        return weights, torch.stack(shifts, dim=1)

    def _padded(self, t: int) -> _PaddedLevel:
        shape = (len(self.golds), self._states(t), self.n)
        target, weight = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        for i, b in enumerate(self.automata):
            if t >= b.length:
                states = b.level_sizes[-1]
                target[i, :states], weight[i, :states] = np.arange(states)[:, None], 1.0
                continue
            level = b.levels[t]
            own = level.target[:, b.class_of]
            target[i, : len(own)] = np.maximum(own, 0)
            weight[i, : len(own)] = np.where(own == DEAD, 0.0, np.exp(level.cost[:, b.class_of]))
        return _PaddedLevel(
            torch.as_tensor(target, device=self.device), torch.as_tensor(weight, device=self.device)
        )

    def _states(self, t: int) -> int:
        return max(b.level_sizes[min(t, b.length)] for b in self.automata)

    def _ends(self) -> torch.Tensor:
        """Return e^final - its maximum, (B, S)."""
        ends = np.zeros((len(self.golds), self._states(len(self.levels))))
        for row, b in zip(ends, self.automata, strict=True):
            row[: len(b.final)] = np.exp(b.final - b.final.max())
        return self._tensor(ends)

    def _end_shift(self) -> torch.Tensor:
        return self._tensor([float(b.final.max()) for b in self.automata])

    def _tensor(self, values: object) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)
