"""Exact inference: chooses the engine for a model and keeps its results."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

import numpy as np

from fstgrad.core.checks import IntArray, positive_integer
from fstgrad.core.errors import InfeasibleError, MemoryLimitError
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.forest import Forest
from fstgrad.mrf.exact.plan import ELIMINATION_MEMORY
from fstgrad.mrf.scored_graph import ScoredGraph, Table

# Beside scores below these, differences of 1e-7 and of 1e-4 nats are lost.  Models of a million
# nodes whose best labels have scores of -100 stay above.
LOWEST, LOWEST_ROUGH = -5e8, -1e12


class ExactEngine(Protocol):
    """The interface of an exact engine for one model (without the model's constant)."""

    def log_partition(self) -> float:
        """Return log Z in nats; raise InfeasibleError if every labeling is forbidden."""

    def marginals(self) -> Table:
        """Return node (I, C) and edge (E, C, C) marginals."""

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent labelings (k, I) int64."""

    def mode(self) -> IntArray:
        """Return a labeling (I,) int64 of the highest score."""


class Exact:
    """The exact results for one model, each computed when first read."""

    def __init__(self, model: ScoredGraph, max_memory: int = ELIMINATION_MEMORY) -> None:
        self.offset = model.offset
        self.engine: ExactEngine = (
            Forest(model) if model.is_forest else Elimination(model, max_memory)
        )

    @cached_property
    def log_partition(self) -> float:
        """Log Z in nats, with the model's offset."""
        return self.engine.log_partition() + self.offset

    @cached_property
    def precise_log_partition(self) -> float:
        """The same for differences of scores; InfeasibleError if they have lost their digits."""
        require_precision(self.engine.log_partition())
        return self.log_partition

    @cached_property
    def marginals(self) -> Table:
        """Marginals of nodes, edges and larger factors, read-only."""
        _ = self.precise_log_partition
        table = self.engine.marginals()
        for array in (*table, table.factors):
            array.flags.writeable = False
        return table


def exact(model: ScoredGraph, max_memory: int | None = None) -> Exact:
    """Return the exact results for a model, cached in `model.cache` without `max_memory` (bytes).

    max_memory : the limit on the tables of elimination (default 4 GiB); forests need no tables
    """
    if max_memory is not None and not model.is_forest:
        return Exact(model, positive_integer("max_memory", max_memory))
    if "exact" not in model.cache:
        model.cache["exact"] = Exact(model)
    cached: Exact = model.cache["exact"]
    return cached


@contextmanager
def remedy(advice: str) -> Iterator[None]:
    """Give the memory limit of elimination, which advises methods of `infer`, another remedy."""
    try:
        yield
    except MemoryLimitError as error:
        raise MemoryLimitError(f"{str(error).split('; ')[0]}; {advice}") from error


def best_labeling(model: ScoredGraph, max_memory: int | None = None) -> IntArray:
    """Return a labeling (I,) int64 of the highest score.

    Parameters
    ----------
    max_memory : int, optional
        Limit on the tables of elimination in bytes (default 4 GiB); forests need no tables.

    Raises
    ------
    MemoryLimitError
        Elimination needs more memory.
    InfeasibleError
        Every labeling is forbidden, or ties cannot be told.
    """
    with remedy("use decode('trw'), decode('max-product') or decode('icm')"):
        labels = exact(model, max_memory).engine.mode()
    require_precision(model.score(labels), LOWEST_ROUGH)
    return labels


def require_precision(nats: float, lowest: float = LOWEST) -> None:
    """Raise InfeasibleError if log Z or the score of a best labeling leaves differences no digits.

    nats : log Z or a score, without offsets (`ScoredGraph.recentered`); NaN and -inf pass.
    """
    if -math.inf < nats < lowest:
        raise InfeasibleError(
            f"labelings have scores of {nats:.3g} nats, without offsets of whole tables: every "
            "labeling has a mask such as -1e9, beside which other scores keep no digits; allow a "
            "labeling without masks, or give -inf for what is impossible"
        )
