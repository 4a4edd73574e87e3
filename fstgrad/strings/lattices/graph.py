"""Acyclic graphs, and sums over all their paths.

A graph has states 0 .. S-1 in topological order, one start (0) and one end (S - 1).  Arcs have
log-weights w(e); a path has the sum of those of its arcs.  With

    alpha(s) = log sum over paths from the start to s,    beta(s) = the same from s to the end,

the arc e = (s, s') has the posterior P(e) = exp(alpha(s) + w(e) + beta(s') - log Z).  Everything is
computed with logarithms, so that no range of weights is too wide; O(arcs).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InfeasibleError


@dataclass(frozen=True, eq=False)
class Graph:
    """An acyclic graph with one start and one end.

    Parameters
    ----------
    source, target : (A,) int64
        Arcs, sorted by source; source < target.
    num_states : int
        The number of states S.
    """

    source: IntArray
    target: IntArray
    num_states: int

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        self.source.flags.writeable = False
        self.target.flags.writeable = False

    @property
    def num_arcs(self) -> int:
        """Number of arcs A."""
        return len(self.source)

    @cached_property
    def first_out(self) -> IntArray:
        """(S + 1,) bounds: the arcs that leave s are first_out[s] .. first_out[s + 1] - 1."""
        return np.searchsorted(self.source, np.arange(self.num_states + 1))

    @cached_property
    def arcs_in(self) -> IntArray:
        """(A,) the arcs in the order of their targets."""
        return np.argsort(self.target, kind="stable")

    @cached_property
    def first_in(self) -> IntArray:
        """(S + 1,) bounds: the arcs into s are arcs_in[first_in[s] : first_in[s + 1]]."""
        return np.searchsorted(self.target[self.arcs_in], np.arange(self.num_states + 1))

    @cached_property
    def longest(self) -> int:
        """Number of arcs of the longest path."""
        depth = np.zeros(self.num_states, dtype=np.int64)
        for source, target in zip(self.source.tolist(), self.target.tolist(), strict=True):
            depth[target] = max(depth[target], depth[source] + 1)
        return int(depth[-1])

    def alpha(self, weight: FloatArray) -> FloatArray:
        """Return the log-sums (S,) over paths from the start; `weight` (A,) in nats."""
        from fstgrad.kernels.lattices import log_sums

        total = np.zeros(self.num_states)
        total[1:] = -np.inf
        log_sums(total, self.arcs_in, self.first_in, self.source, weight)
        return total

    def beta(self, weight: FloatArray) -> FloatArray:
        """Return the log-sums (S,) over paths to the end."""
        from fstgrad.kernels.lattices import log_sums

        total = np.zeros(self.num_states)
        total[1:] = -np.inf
        log_sums(total, *self._reversed, weight)
        return total[::-1]

    @cached_property
    def _reversed(self) -> tuple[IntArray, IntArray, IntArray]:
        """The graph read from its end: the arcs of state S-1-s, their bounds, their other ends."""
        last = self.num_states - 1
        bounds = self.num_arcs - self.first_out[::-1]
        return np.arange(self.num_arcs)[::-1].copy(), bounds.copy(), last - self.target


def sums_by(index: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Return the sums (size,) of the values with each index."""
    return np.bincount(index, values, minlength=size).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Flow:
    """The sums of one graph under one set of log-weights.

    log_z : float; alpha, beta : (S,); posterior : (A,), the probability of passing each arc.
    """

    graph: Graph
    weight: FloatArray
    alpha: FloatArray
    beta: FloatArray

    @classmethod
    def of(cls, graph: Graph, weight: FloatArray) -> "Flow":
        """Run both passes.

        Raises
        ------
        InfeasibleError
            No path has a finite weight.
        """
        flow = cls(graph, weight, graph.alpha(weight), graph.beta(weight))
        if flow.log_z == -np.inf:
            raise InfeasibleError(
                "no path of the lattice has a finite score and a finite loss (Z = 0); "
                "allow more arcs, or use a loss that is finite on some path"
            )
        return flow

    @property
    def log_z(self) -> float:
        """Log Z in nats."""
        return float(self.alpha[-1])

    @cached_property
    def posterior(self) -> FloatArray:
        """(A,) the probability of passing each arc."""
        total = self.alpha[self.graph.source] + self.weight + self.beta[self.graph.target]
        return np.asarray(np.exp(total - self.log_z))

    def conditional_means(self, value: FloatArray) -> tuple[float, FloatArray]:
        """Return E[V] and E[V | e] (A,) for V = the sum of `value` (A,) along a path.

        Arcs that no path passes have 0.  First-order expectation semiring (Eisner 2002), with the
        weight and the mean kept apart.
        """
        from fstgrad.kernels.lattices import means

        graph = self.graph
        before, after = np.zeros(graph.num_states), np.zeros(graph.num_states)
        means(before, self.alpha, graph.arcs_in, graph.first_in, graph.source, self.weight, value)
        means(after, self.beta[::-1].copy(), *graph._reversed, self.weight, value)
        means_given = before[graph.source] + value + after[::-1][graph.target]
        return float(before[-1]), np.where(self.posterior > 0, means_given, 0.0)

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k paths (k, longest): the arcs of each, then -1."""
        from fstgrad.kernels.lattices import walks

        graph = self.graph
        steps = np.full((k, graph.longest), -1, dtype=np.int64)
        walks(
            steps,
            rng.random(steps.shape),
            graph.first_out,
            graph.target,
            self.weight,
            self.beta.copy(),
        )
        return steps
