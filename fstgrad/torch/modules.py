"""The objectives as modules, for those who put a loss into a network's definition."""

from collections.abc import Sequence

import torch

from fstgrad.checks import one_of
from fstgrad.losses import Loss
from fstgrad.torch.functions import REDUCTIONS
from fstgrad.torch.strings import Gold, Reduction, crf_nll, risk, softmax_margin


class _StringLoss(torch.nn.Module):
    """A string objective with its loss and reduction."""

    def __init__(self, loss: Loss | None = None, reduction: Reduction = "mean") -> None:
        super().__init__()
        one_of("reduction", reduction, REDUCTIONS)
        self.loss = loss
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Show the loss and the reduction."""
        return f"loss={type(self.loss).__name__}, reduction={self.reduction!r}"


class SoftmaxMarginLoss(_StringLoss):
    """Module of `fstgrad.torch.softmax_margin`."""

    def forward(
        self,
        scores: torch.Tensor,
        gold: Gold,
        lengths: torch.Tensor | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Return the softmax margin; shapes as in `fstgrad.torch.softmax_margin`."""
        return softmax_margin(scores, gold, self.loss, lengths=lengths, reduction=self.reduction)


class RiskLoss(_StringLoss):
    """Module of `fstgrad.torch.risk`."""

    def __init__(self, loss: Loss, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction)
        self.loss: Loss

    def forward(
        self,
        scores: torch.Tensor,
        gold: Gold,
        lengths: torch.Tensor | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Return the expected loss; shapes as in `fstgrad.torch.softmax_margin`."""
        return risk(scores, gold, self.loss, lengths=lengths, reduction=self.reduction)


class CRFLoss(_StringLoss):
    """Module of `fstgrad.torch.crf_nll`."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(None, reduction)

    def forward(
        self,
        scores: torch.Tensor,
        gold: Gold,
        lengths: torch.Tensor | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Return the negative log-likelihood; shapes as in `fstgrad.torch.softmax_margin`."""
        return crf_nll(scores, gold, lengths=lengths, reduction=self.reduction)
