"""Objectives over the paths of a lattice, in the scores of its arcs; once differentiable."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import FloatArray
from fstgrad.errors import InvalidInputError
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.torch.functions import evaluate, like, no_hessian, to_numpy


@dataclass(frozen=True)
class _LatticeObjective:
    """One function of a lattice with other scores."""

    what: str
    lattice: Lattice
    function: Callable[[Lattice], tuple[float, FloatArray]]

    def value_and_gradient(
        self, scores: torch.Tensor, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (1,) and (1, A)."""
        value, gradient = self.function(self.lattice.with_scores(to_numpy(scores[0])))
        return like([value], scores), like(weight * gradient[None], scores).to(scores.dtype)

    def hessian_product(self, scores: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """NotSupportedError."""
        raise no_hessian(self.what)


def lattice_softmax_margin(
    scores: torch.Tensor, lattice: Lattice, gold: SequenceLike, loss: LatticeLoss | None = None
) -> torch.Tensor:
    """Return log sum over paths of exp(L + score) - log sum over the paths of gold of exp(score).

    Parameters
    ----------
    scores : (A,) float32 or float64
        Log-weights of the arcs; those of `lattice` are not used.
    lattice : Lattice
    gold : sequence
        A string of the lattice.
    loss : LatticeLoss, optional
        `lattice.compile(loss, gold)`: compile once, use it in every step.  None: L = 0, and the
        value is -log p(gold).

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> abc = fg.Alphabet("abc")
    >>> lattice = fg.Lattice.from_nbest(["ab", "abc"], [0.0, 0.0], abc)
    >>> scores = torch.tensor(lattice.scores)
    >>> value = fstgrad.torch.lattice_softmax_margin(scores, lattice, "ab")
    >>> round(float(value.exp()), 9)
    2.0
    """
    return _evaluated(
        "softmax margin", scores, lattice, lambda own: array_softmax_margin(own, gold, loss)
    )


def lattice_risk(scores: torch.Tensor, lattice: Lattice, loss: LatticeLoss) -> torch.Tensor:
    """Return E[L] in nats over the paths of a lattice, exact: minimum-risk training.

    loss : `lattice.compile(loss, target)`; the other parameters as in `lattice_softmax_margin`.
    """
    return _evaluated("risk", scores, lattice, lambda own: array_risk(own, loss))


def _evaluated(
    what: str,
    scores: torch.Tensor,
    lattice: Lattice,
    function: Callable[[Lattice], tuple[float, FloatArray]],
) -> torch.Tensor:
    if scores.shape != (lattice.num_arcs,):
        raise InvalidInputError(
            f"scores has shape {tuple(scores.shape)}; the lattice has {lattice.num_arcs} arcs"
        )
    return evaluate(scores[None], _LatticeObjective(what, lattice, function), "sum")
