"""The objectives as modules, for those who put a loss into a network's definition.

A module keeps what does not change from step to step (the loss, the graph, the reduction) and calls
the function that it is named after.  None has parameters: a `state_dict` is empty.
"""

from collections.abc import Sequence
from typing import Any

import torch

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import one_of
from fstgrad.losses import Loss
from fstgrad.mrf.model import PairwiseMRF
from fstgrad.torch import lattices, mrf, strings, trees
from fstgrad.torch.functions import REDUCTIONS, Reduction, reduced
from fstgrad.torch.lattices import Lattices, Scores
from fstgrad.torch.strings import Gold
from fstgrad.torch.trees import Lengths

Golds = SequenceLike | Sequence[SequenceLike]


class _Module(torch.nn.Module):
    """An objective with its reduction over the items of a batch."""

    def __init__(self, reduction: Reduction) -> None:
        super().__init__()
        one_of("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"reduction={self.reduction!r}"


class _WithLoss(_Module):
    """An objective with a loss of strings."""

    def __init__(self, loss: Loss | None, reduction: Reduction) -> None:
        super().__init__(reduction)
        self.loss = loss

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"loss={type(self.loss).__name__}, {super().extra_repr()}"


class SoftmaxMarginLoss(_WithLoss):
    """Module of `fstgrad.torch.softmax_margin`."""

    def __init__(self, loss: Loss | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction)

    def forward(
        self, scores: torch.Tensor, gold: Gold, lengths: torch.Tensor | Sequence[int] | None = None
    ) -> torch.Tensor:
        """Return the softmax margin; shapes as in `fstgrad.torch.softmax_margin`."""
        return strings.softmax_margin(
            scores, gold, self.loss, lengths=lengths, reduction=self.reduction
        )


class RiskLoss(_WithLoss):
    """Module of `fstgrad.torch.risk`."""

    def __init__(self, loss: Loss, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction)
        self.loss: Loss

    def forward(
        self, scores: torch.Tensor, gold: Gold, lengths: torch.Tensor | Sequence[int] | None = None
    ) -> torch.Tensor:
        """Return the expected loss; shapes as in `fstgrad.torch.softmax_margin`."""
        return strings.risk(scores, gold, self.loss, lengths=lengths, reduction=self.reduction)


class CRFLoss(_Module):
    """Module of `fstgrad.torch.crf_nll`."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)

    def forward(
        self, scores: torch.Tensor, gold: Gold, lengths: torch.Tensor | Sequence[int] | None = None
    ) -> torch.Tensor:
        """Return the negative log-likelihood; shapes as in `fstgrad.torch.softmax_margin`."""
        return strings.crf_nll(scores, gold, lengths=lengths, reduction=self.reduction)


class LatticeSoftmaxMarginLoss(_WithLoss):
    """Module of `fstgrad.torch.lattice_softmax_margin`."""

    def __init__(self, loss: Loss | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction)

    def forward(self, scores: Scores, lattice: Lattices, gold: Golds) -> torch.Tensor:
        """Return the softmax margin of one lattice or of B."""
        return lattices.lattice_softmax_margin(
            scores, lattice, gold, self.loss, reduction=self.reduction
        )


class LatticeRiskLoss(_WithLoss):
    """Module of `fstgrad.torch.lattice_risk`."""

    def __init__(self, loss: Loss, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction)
        self.loss: Loss

    def forward(self, scores: Scores, lattice: Lattices, gold: Golds) -> torch.Tensor:
        """Return the expected loss of one lattice or of B."""
        return lattices.lattice_risk(scores, lattice, self.loss, gold, reduction=self.reduction)


class LatticeCRFLoss(_Module):
    """Module of `fstgrad.torch.lattice_crf_nll`."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)

    def forward(self, scores: Scores, lattice: Lattices, gold: Golds) -> torch.Tensor:
        """Return -log p(gold) of one lattice or of B."""
        return lattices.lattice_crf_nll(scores, lattice, gold, reduction=self.reduction)


class _Trees(_Module):
    """An objective of unlabeled or, where it says so, labeled spanning trees."""

    def __init__(self, *, single_root: bool, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.single_root = single_root

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"single_root={self.single_root}, {super().extra_repr()}"


class _LabeledTrees(_Trees):
    def __init__(
        self, *, single_root: bool, labeled: bool = False, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(single_root=single_root, reduction=reduction)
        self.labeled = labeled

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"labeled={self.labeled}, {super().extra_repr()}"


class SpanningTreeLoss(_LabeledTrees):
    """Module of `fstgrad.torch.spanning_tree_nll`, the negative log-likelihood."""

    def forward(
        self, scores: torch.Tensor, gold: torch.Tensor, lengths: Lengths = None
    ) -> torch.Tensor:
        """Return -log p(gold); gold holds heads (B, n), with labels (B, n, 2)."""
        values = trees.spanning_tree_nll(
            scores, gold, single_root=self.single_root, lengths=lengths, labeled=self.labeled
        )
        return reduced(values, self.reduction)


class SpanningTreeEntropyLoss(_Trees):
    """Module of `fstgrad.torch.spanning_tree_entropy`."""

    def forward(self, scores: torch.Tensor, lengths: Lengths = None) -> torch.Tensor:
        """Return the entropy in nats."""
        values = trees.spanning_tree_entropy(scores, single_root=self.single_root, lengths=lengths)
        return reduced(values, self.reduction)


class SpanningTreeKLLoss(_Trees):
    """Module of `fstgrad.torch.spanning_tree_kl`."""

    def forward(
        self, p_scores: torch.Tensor, q_scores: torch.Tensor, lengths: Lengths = None
    ) -> torch.Tensor:
        """Return KL(p || q) in nats."""
        values = trees.spanning_tree_kl(
            p_scores, q_scores, single_root=self.single_root, lengths=lengths
        )
        return reduced(values, self.reduction)


class SpanningTreeRiskLoss(_LabeledTrees):
    """Module of `fstgrad.torch.spanning_tree_risk`."""

    def forward(
        self, scores: torch.Tensor, costs: torch.Tensor, lengths: Lengths = None
    ) -> torch.Tensor:
        """Return the expected costs of the arcs."""
        values = trees.spanning_tree_risk(
            scores, costs, single_root=self.single_root, lengths=lengths, labeled=self.labeled
        )
        return reduced(values, self.reduction)


class SpanningTreeGeneralizedExpectationLoss(_Trees):
    """Module of `fstgrad.torch.spanning_tree_generalized_expectation`."""

    def forward(
        self,
        scores: torch.Tensor,
        features: torch.Tensor,
        target: torch.Tensor,
        lengths: Lengths = None,
    ) -> torch.Tensor:
        """Return 1/2 |E f - target|^2."""
        values = trees.spanning_tree_generalized_expectation(
            scores, features, target, single_root=self.single_root, lengths=lengths
        )
        return reduced(values, self.reduction)


class MRFLoss(_Module):
    """Module of `fstgrad.torch.mrf_nll`: exact, by BP, pseudolikelihood or contrastive divergence.

    Parameters
    ----------
    graph : PairwiseMRF
        Its edges, label counts and grid are used.
    method, reduction, options
        As in `fstgrad.torch.mrf_nll`.
    """

    def __init__(
        self,
        graph: PairwiseMRF,
        method: str = "exact",
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__(reduction)
        self.graph = graph
        self.method = method
        self.options = options

    def forward(
        self, node_scores: torch.Tensor, edge_scores: torch.Tensor, gold: torch.Tensor
    ) -> torch.Tensor:
        """Return the training loss; shapes as in `fstgrad.torch.mrf_nll`."""
        return mrf.mrf_nll(
            node_scores,
            edge_scores,
            gold,
            self.graph,
            method=self.method,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"method={self.method!r}, {super().extra_repr()}"
