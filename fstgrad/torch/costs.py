"""The costs of a transducer as parameters: losses of pairs with trainable costs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import FloatArray, one_of
from fstgrad.core.errors import NotSupportedError
from fstgrad.costs import Pairs, PairTransducer, pair_transducer
from fstgrad.costs.parameter_tying import ParameterTying, Tie
from fstgrad.costs.ranking import Semiring
from fstgrad.costs.transducer import TransducerSource
from fstgrad.torch import arguments
from fstgrad.torch.arrays import require_cpu, to_float64, to_tensor, upcast
from fstgrad.torch.state_names import check_names, write_names
from fstgrad.torch.strings import IGNORE_INDEX
from fstgrad.torch.transforms import no_vmap, refuse_transforms, uncompiled


class TransducerCosts(torch.nn.Module):
    """The loss of a transducer whose costs are parameters.

    Parameters
    ----------
    source : pynini.Fst, TransducerLoss or grammar
        Its costs are the initial values.
    tie : {"pair", "arc", "cost", "rule"} or callable
        Which arcs share a cost, as in `fg.fit_costs`; the initial cost of a class is the mean.
    semiring : {"probability", "tropical"}
        "probability": -log of the sum over alignments, differentiable everywhere.  "tropical": the
        cost of the best alignment.

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
    >>> value.tolist() == [1.0, 0.0], loss.costs.grad[loss.names.index("a -> b")].item()
    (True, 1.0)
    """

    def __init__(
        self, source: TransducerSource, *, tie: Tie = "pair", semiring: Semiring = "probability"
    ) -> None:
        super().__init__()
        one_of("semiring", semiring, ("tropical", "probability"))
        self.pair_transducer = pair_transducer(source)
        self.ties = ParameterTying.of(self.pair_transducer, tie, "nothing")
        self.semiring = semiring
        first = self.pair_transducer.cost[self.ties.events]
        mean = np.bincount(self.ties.class_of, first) / np.bincount(self.ties.class_of)
        self.costs = torch.nn.Parameter(torch.from_numpy(mean))

    @property
    def names(self) -> tuple[str, ...]:
        """The classes of arcs, in the order of `costs`."""
        return self.ties.names

    def forward(self, pairs: Sequence[Sequence[Any]]) -> torch.Tensor:
        """Return the losses (N,) of pairs (hypothesis, target); +inf without an alignment.

        Hypotheses and targets are strings, or integer tensors (l,) in which -100 is padding.
        """
        return self._losses(pairs)

    @uncompiled
    def _losses(self, pairs: Sequence[Sequence[Any]]) -> torch.Tensor:
        refuse_transforms([self.costs])
        no_vmap([self.costs])
        require_cpu("TransducerCosts", self.costs)
        given = _without_padding(pairs)
        encoded = Pairs.encode(self.pair_transducer.alphabet, given, name="pairs")
        problem = _Problem(self.pair_transducer, self.ties, encoded, self.semiring)
        result: torch.Tensor = _Losses.apply(upcast(self.costs), problem)  # type: ignore[no-untyped-call]
        return result

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        write_names(destination, prefix, self.names)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        check_names(f"{prefix}costs", local_metadata, self.names, "classes")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"classes={len(self.names)}, semiring={self.semiring!r}"


def _without_padding(pairs: Any) -> Any:
    """Return pairs with tensors replaced by arrays of their ids without padding."""
    if not isinstance(pairs, list | tuple):
        return pairs
    return [
        [_ids(f"pairs[{i}][{j}]", own) for j, own in enumerate(pair)]
        if isinstance(pair, list | tuple)
        else pair
        for i, pair in enumerate(pairs)
    ]


def _ids(name: str, given: Any) -> Any:
    if not isinstance(given, torch.Tensor):
        return given
    known = arguments.integers(name, given).detach().cpu().numpy()
    return known[known != IGNORE_INDEX]


class _Problem(NamedTuple):
    """Pairs, with the transducer and the classes of arcs that define their losses."""

    transducer: PairTransducer
    ties: ParameterTying
    pairs: Pairs
    semiring: Semiring

    def weights(self, costs: torch.Tensor) -> FloatArray:
        """Return the log-weights of the arcs."""
        weight = np.full(len(self.transducer.cost), -np.inf)
        weight[self.ties.events] = -to_float64(costs)[self.ties.class_of]
        return weight


class _Losses(torch.autograd.Function):
    """Losses of pairs; the gradient in a cost is the number of uses of the arcs that have it."""

    @staticmethod
    def forward(ctx: Any, costs: torch.Tensor, problem: _Problem) -> torch.Tensor:
        ctx.problem = problem
        ctx.save_for_backward(costs)
        transducer, weight = problem.transducer, problem.weights(costs)
        if problem.semiring == "tropical":
            return to_tensor(-transducer.best_counts(problem.pairs, weight)[0], costs)
        return to_tensor(-transducer.log_sums(problem.pairs, weight), costs)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        slope: torch.Tensor = _Counts.apply(*ctx.saved_tensors, upstream[0], ctx.problem)  # type: ignore[no-untyped-call]
        return slope, None


class _Counts(torch.autograd.Function):
    """The number of uses of the arcs of each class, summed over pairs with weights."""

    @staticmethod
    def forward(
        ctx: Any, costs: torch.Tensor, weights: torch.Tensor, problem: _Problem
    ) -> torch.Tensor:
        transducer, ties, pairs, semiring = problem
        count = transducer.best_counts if semiring == "tropical" else transducer.expected_counts
        counts = count(pairs, problem.weights(costs), to_float64(weights))[1]
        slope = np.bincount(ties.class_of, counts[ties.events], minlength=len(ties.names))
        return to_tensor(slope, costs)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> None:
        raise NotSupportedError(
            "TransducerCosts has first derivatives only: call backward() once, without a penalty "
            "on gradients"
        )
