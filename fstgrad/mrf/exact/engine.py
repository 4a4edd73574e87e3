"""Exact inference: which engine a model gets."""

from typing import Protocol

import numpy as np

from fstgrad.checks import IntArray
from fstgrad.errors import InfeasibleError
from fstgrad.mrf.model import PairwiseMRF
from fstgrad.mrf.table import Table


class ExactEngine(Protocol):
    """What an exact engine answers for one model (without the model's constant)."""

    def log_partition(self) -> float:
        """Return log Z in nats or raise InfeasibleError."""

    def marginals(self) -> Table:
        """Return node (I, C) and edge (E, C, C) marginals."""

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k labelings (k, I)."""

    def mode(self) -> IntArray:
        """Return a labeling (I,) of the highest score."""


def engine(model: PairwiseMRF) -> ExactEngine:
    """Return message passing for a forest, elimination for any other graph."""
    if model.graph.is_forest:
        from fstgrad.mrf.exact.forest import Forest

        return Forest(model)
    from fstgrad.mrf.exact.elimination import Elimination

    return Elimination(model)


def infeasible() -> InfeasibleError:
    """Return the error of a model whose every labeling is forbidden."""
    return InfeasibleError(
        "every labeling has the score -inf, so Z = 0; remove contradictory evidence or hard zeros"
    )
