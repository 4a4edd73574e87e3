"""The result types of inference and decoding."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.short_repr import short_repr
from fstgrad.mrf.scored_graph import NO_FACTORS, Table

Kind = Literal[
    "exact", "bethe", "upper bound", "lower bound", "bounds", "estimate", "score", "none"
]  # fmt: skip
EdgeSource = Callable[[int, int], FloatArray]

CHUNK_CELLS = 1 << 20

Found = TypeVar("Found", bound="Inference")


@dataclass(frozen=True, eq=False)
class Inference:
    """Marginals, and log Z or an estimate of it, with measures of their quality.

    Attributes
    ----------
    method : str
    log_partition : float
        In nats; NaN if the method has none (kind "none").
    kind : str
        What log_partition is.  "exact"; "bethe": the Bethe estimate; "upper bound"
        (tree-reweighted); "lower bound" (mean field); "score": the score of the labeling that
        max-product decodes; "bounds": see `Bounds`; "estimate": see `Annealed`; "none".
    node : (I, C) float64
        Node marginals (for max-product, max-marginals scaled to sum to 1).
    edge_source : callable
        edge_source(low, high) computes the marginals (high - low, C, C) of a range of edges.
    num_edges : int
    converged : bool
        Message passing, mean field: the last residual is at most the tolerance.  Sampling:
        r_hat < 1.05.
    iterations : int
        Message passing, mean field: sweeps.  Sampling: draws of all chains.  Annealing: steps times
        runs.  Bounds: parts.  0 if exact.
    residuals : (iterations,) float64
        Message passing: the largest |log new - log old| of a message in each iteration, in nats,
        with the largest entry of each message scaled to log 1 = 0.  Mean field: the largest change
        of a marginal.  Empty for other methods.
    seconds : float
    factors : (cells,) float64
        Marginals of the larger factors, as in `model.factors.table`; empty for sampling methods.
    standard_error : (I, C) float64 or None
        Sampling, annealing: the standard error of each node marginal.
    margin : (I, C) float64 or None
        Sampling: the exact marginal is within node +- margin with 95 percent confidence.
    effective_samples : float
        Sampling: the least value of variance / standard_error^2 over all node marginals between 0
        and 1; NaN for other methods.
    r_hat : float
        Sampling: the largest potential scale reduction (Gelman and Rubin 1992) of a node
        marginal; NaN for other methods.
    """

    method: str
    log_partition: float
    kind: Kind
    node: FloatArray
    edge_source: EdgeSource = field(repr=False)
    num_edges: int
    converged: bool = True
    iterations: int = 0
    residuals: FloatArray = field(default_factory=lambda: np.zeros(0))
    seconds: float = 0.0
    factors: FloatArray = field(default_factory=lambda: NO_FACTORS)
    standard_error: FloatArray | None = None
    margin: FloatArray | None = None
    effective_samples: float = float("nan")
    r_hat: float = float("nan")

    __repr__ = short_repr

    def shifted(self: Found, offset: float) -> Found:
        """Return the result after adding a constant (nats) to the score."""
        if offset == 0.0:
            return self
        names = ("log_partition", "lower", "upper")
        return replace(self, **{k: vars(self)[k] + offset for k in names if k in vars(self)})

    @cached_property
    def edge(self) -> FloatArray:
        """Edge marginals (E, C, C) float64, computed when first read because they may be large."""
        return self.edge_source(0, self.num_edges)

    @cached_property
    def edge_sum(self) -> FloatArray:
        """The sum (C, C) of the edge marginals over all edges, computed in little memory."""
        size = self.node.shape[1]
        step = max(1, CHUNK_CELLS // size**2)
        total = np.zeros((size, size))
        for low in range(0, self.num_edges, step):
            total += self.edge_source(low, min(low + step, self.num_edges)).sum(axis=0)
        return total


def _no_table() -> Table:
    return Table(np.zeros((0, 0)), np.zeros((0, 0, 0)))


@dataclass(frozen=True, eq=False)
class Bounds(Inference):
    """Certified bounds on log Z and on node marginals.

    `log_partition` is the middle of the bounds, and the marginals are its gradient; if `lower` is
    -inf, they are `upper` and its gradient.

    Attributes
    ----------
    lower, upper : float
        lower <= log Z <= upper, in nats.
    node_lower, node_upper : (I, C) float64
        Bounds on the marginals of nodes.
    lower_gradient, upper_gradient : Table
        The gradients of the two bounds by the scores, (E, C, C) for edges.  That of `lower` holds
        if mean field has converged, that of `upper` for fixed messages.
    parts : int
        The number of parts into which Z was split.
    converged : bool
        Whether upper - lower is at most the tolerance.
    """

    lower: float = float("-inf")
    upper: float = float("inf")
    node_lower: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    node_upper: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    lower_gradient: Table = field(default_factory=_no_table)
    upper_gradient: Table = field(default_factory=_no_table)
    parts: int = 1

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Annealed(Inference):
    """Log Z by annealed importance sampling.

    Attributes
    ----------
    log_partition_error : float
        The standard error of `log_partition`, in nats.
    effective_samples : float
        (sum of weights)^2 / (sum of squared weights) over the runs.  If this is near 1, the
        standard error is unreliable; use more steps.
    """

    log_partition_error: float = float("nan")

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Decoded:
    """A labeling, its score and its gap to the best score.

    Attributes
    ----------
    method : str
    labels : (I,) int64
    score : float
        s(labels) in nats.
    gap : float
        The best score is at most score + gap (nats): 0 for an exact method, inf if no bound is
        known.
    converged : bool
        Whether the method stopped by its tolerance, not by its limit of iterations.
    """

    method: str
    labels: IntArray
    score: float
    gap: float
    converged: bool = True

    __repr__ = short_repr
