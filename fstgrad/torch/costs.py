"""The costs of a transducer as parameters: losses of pairs that learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fstgrad.checks import one_of
from fstgrad.costs import Pairs, PairTransducer, pair_transducer
from fstgrad.costs.ranking import Semiring
from fstgrad.costs.source import Source
from fstgrad.costs.ties import Tie, Ties


class TransducerCosts(torch.nn.Module):
    """The loss of a transducer whose costs are parameters.

    Parameters
    ----------
    source : pynini.Fst, TransducerLoss or grammar
        Its costs are the first values.
    tie : {"pair", "arc", "cost", "rule"} or callable
        Which arcs share a cost, as in `fg.fit_costs`; the cost of a class begins as the mean.
    semiring : {"probability", "tropical"}
        -log of the sum over alignments, differentiable everywhere, or the cost of the best one.

    Attributes
    ----------
    costs : Parameter (K,) float64, in nats.
    names : tuple of str, the classes.

    Examples
    --------
    >>> import fstgrad as fg, torch
    >>> loss = TransducerCosts(fg.EditDistance(fg.Alphabet("ab")), semiring="tropical")
    >>> value = loss([("ab", "bb"), ("a", "a")])
    >>> value.sum().backward()
    >>> value.tolist(), loss.costs.grad[loss.names.index("a -> b")].item()
    ([1.0, 0.0], 1.0)
    """

    def __init__(
        self, source: Source, *, tie: Tie = "pair", semiring: Semiring = "probability"
    ) -> None:
        super().__init__()
        one_of("semiring", semiring, ("tropical", "probability"))
        self.pair_transducer = pair_transducer(source)
        self.ties = Ties.of(self.pair_transducer, tie, "nothing")
        self.semiring = semiring
        first = self.pair_transducer.cost[self.ties.events]
        mean = np.bincount(self.ties.class_of, first) / np.bincount(self.ties.class_of)
        self.costs = torch.nn.Parameter(torch.from_numpy(mean))

    @property
    def names(self) -> tuple[str, ...]:
        """The classes of arcs, in the order of `costs`."""
        return self.ties.names

    def forward(self, pairs: Sequence[Sequence[Any]]) -> torch.Tensor:
        """Return the losses (N,) of pairs (hypothesis, target); +inf without an alignment."""
        encoded = Pairs.encode(self.pair_transducer.alphabet, pairs)
        result: torch.Tensor = _Losses.apply(
            self.costs, self.pair_transducer, self.ties, encoded, self.semiring
        )  # type: ignore[no-untyped-call]
        return result

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"classes={len(self.names)}, semiring={self.semiring!r}"


class _Losses(torch.autograd.Function):
    """Losses of pairs; the gradient of one in a cost is how often its arcs are used."""

    @staticmethod
    def forward(
        ctx: Any,
        costs: torch.Tensor,
        transducer: PairTransducer,
        ties: Ties,
        pairs: Pairs,
        semiring: str,
    ) -> torch.Tensor:
        weight = np.full(len(transducer.cost), -np.inf)
        weight[ties.events] = -costs.detach().cpu().double().numpy()[ties.class_of]
        ctx.problem = transducer, ties, pairs, semiring, weight
        ctx.like = costs.detach()[:0]
        if semiring == "tropical":
            losses = -transducer.best_counts(pairs, weight)[0]
        else:
            losses = -transducer.log_sums(pairs, weight)
        return torch.from_numpy(losses).to(ctx.like)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        transducer, ties, pairs, semiring, weight = ctx.problem
        mass = np.ascontiguousarray(grad.detach().cpu().double().numpy())
        count = transducer.best_counts if semiring == "tropical" else transducer.expected_counts
        counts = count(pairs, weight, mass)[1]
        slope = np.bincount(ties.class_of, counts[ties.events], minlength=len(ties.names))
        return torch.from_numpy(slope).to(ctx.like), None, None, None, None
