"""Acyclic graphs, and sums over all their paths.

A graph has states 0 .. S-1 in topological order, one start (0) and one end (S - 1).  Each arc e has
a log-weight w(e); the log-weight of a path is the sum over its arcs.  Let

    beta(s) = log sum over the paths from s to the end of exp(log-weight),    log Z = beta(0),
    p(e | s) = exp(w(e) + beta(s') - beta(s))    for the arc e = (s, s').

A random path is a walk from the start that follows each arc with probability p(e | s).  The
probability of passing e is P(e) = P(passing s) p(e | s).  Sums are computed in log space and the
rest as probabilities, so weights of any range are safe.  Everything is O(arcs).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    index_array,
    instance,
    log_weights,
    positive_integer,
    writable,
)
from fstgrad.core.distribution import FAR, may_have_offsets
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.strings.lattices import kernels

PUSHES = 3  # most rounds of weight pushing
NO_SYMBOL = -1  # the label of an arc that reads nothing


@dataclass(frozen=True, eq=False)
class Graph:
    """An acyclic graph with one start and one end.

    Parameters
    ----------
    source, nextstate : (A,) int64
        Arcs, sorted by source; source < nextstate.
    num_states : int
        The number of states S.
    """

    source: IntArray
    nextstate: IntArray
    num_states: int

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the arcs and make the arrays read-only."""
        states = positive_integer("num_states", self.num_states, minimum=0)
        for name in ("source", "nextstate"):
            given = getattr(self, name)
            instance(name, given, np.ndarray, "an array of states")
            index_array(name, given, states, (len(self.source),) if given.ndim else (None,))
        if (np.diff(self.source) < 0).any() or (self.source >= self.nextstate).any():
            raise InvalidInputError("arcs must be sorted by source, and lead to later states")
        self.source.flags.writeable = False
        self.nextstate.flags.writeable = False

    def check_arcs(self, label: IntArray, scores: FloatArray, alphabet: Alphabet) -> None:
        """Raise InvalidInputError unless each arc has a valid label and score.

        label : (A,), ids of symbols or -1 (epsilon); scores : (A,) float64 log-weights
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        index_array("label", label, len(alphabet), (self.num_arcs,), lower=NO_SYMBOL)
        given = log_weights("scores", scores, (self.num_arcs,))
        if np.asarray(scores).dtype != given.dtype:
            raise InvalidInputError(f"scores has dtype {np.asarray(scores).dtype}; give float64")

    @property
    def num_arcs(self) -> int:
        """Number of arcs A."""
        return len(self.source)

    @cached_property
    def first_out(self) -> IntArray:
        """(S + 1,) int64: the arcs from s are first_out[s] .. first_out[s + 1] - 1."""
        return np.searchsorted(self.source, np.arange(self.num_states + 1))

    @cached_property
    def arcs_in(self) -> IntArray:
        """(A,) int64: the arcs sorted by next state."""
        return np.argsort(self.nextstate, kind="stable")

    @cached_property
    def first_in(self) -> IntArray:
        """(S + 1,) int64: the arcs into s are arcs_in[first_in[s] : first_in[s + 1]]."""
        return np.searchsorted(self.nextstate[self.arcs_in], np.arange(self.num_states + 1))

    @cached_property
    def longest(self) -> int:
        """Number of arcs of the longest path."""
        return int(self.depths(np.ones(self.num_arcs, dtype=np.bool_))[-1, 1])

    @property
    def num_paths(self) -> int:
        """Number of paths."""
        return self.count_paths(np.ones(self.num_arcs, dtype=np.bool_))

    def count_paths(self, allowed: BoolArray) -> int:
        """Return the number of paths all of whose arcs are `allowed` (A,)."""
        count = [1] + [0] * (self.num_states - 1)
        arcs = zip(self.source[allowed].tolist(), self.nextstate[allowed].tolist(), strict=True)
        for source, nextstate in arcs:
            count[nextstate] += count[source]
        return count[-1]

    def depths(self, length: BoolArray) -> IntArray:
        """Return (S, 2) int64: the least and the greatest sum of `length` on paths to each state.

        length : (A,) bool, which arcs count
        """
        depth = np.zeros((self.num_states, 2), dtype=np.int64)
        depth[1:, 0] = self.num_arcs
        arcs = zip(self.source.tolist(), self.nextstate.tolist(), length.tolist(), strict=True)
        for source, nextstate, one in arcs:
            least, most = depth[source] + one
            depth[nextstate, 0] = min(depth[nextstate, 0], least)
            depth[nextstate, 1] = max(depth[nextstate, 1], most)
        return depth

    def beta(self, weight: FloatArray) -> FloatArray:
        """Return beta (S,), the log-sums over the paths to the end; `weight` (A,) in nats."""
        beta = np.zeros(self.num_states)
        kernels.sums.log_sums_ahead(beta, self.first_out, self.nextstate, writable(weight))
        return beta

    def pushed(self, weight: FloatArray) -> tuple[FloatArray, float]:
        """Return pushed log-weights (A,), and the constant subtracted from all paths, in nats.

        If all paths from some state have large sums, the weight of an arc from s to s' becomes
        w + beta(s') - beta(s) (weight pushing; Mohri 2009, Figure 12).  So digits survive if every
        path needs an arc that is masked by a large finite number.  Several masks in a row leave
        rounding errors, so pushing is repeated up to three times.  Other weights are returned
        unchanged, with the constant 0.
        """
        offset = 0.0
        for push in range(PUSHES if may_have_offsets(weight) else 0):
            if not ((np.abs(weight) > FAR) & (weight > -np.inf)).any():
                break
            beta = self.beta(weight)
            # no path at all, or none that needs a large weight
            if beta[0] == -np.inf or (push == 0 and np.abs(beta[beta > -np.inf]).max() <= FAR):
                break
            behind = np.where(beta > -np.inf, beta, 0.0)[self.source]
            terms = np.stack([weight, beta[self.nextstate], -behind])
            largest_first = np.argsort(-np.abs(terms), axis=0)  # the large ones cancel exactly
            first, second, third = np.take_along_axis(terms, largest_first, axis=0)
            weight, offset = (first + second) + third, offset + float(beta[0])
        return weight, offset


def sums_by(index: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Return (size,) float64: entry i is the sum of the `values` whose `index` is i."""
    return np.bincount(index, values, minlength=size).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Flow:
    """Sums over the paths of a graph with given log-weights, and the resulting probabilities.

    weight : (A,) float64, log-weights in nats
    beta : (S,) float64, log-sums of the paths from each state to the end
    """

    graph: Graph
    weight: FloatArray
    beta: FloatArray

    @classmethod
    def of(cls, graph: Graph, weight: FloatArray) -> "Flow":
        """Return the flow of a graph with log-weights (A,) in nats: run the backward pass.

        Raises
        ------
        InfeasibleError
            No path has a finite weight.
        """
        weight = writable(weight)
        flow = cls(graph, weight, graph.beta(weight))
        if flow.log_z == -np.inf:
            raise InfeasibleError(
                "no path of the lattice has a finite score and a finite loss (Z = 0); "
                "allow more arcs, or use a loss that is finite on some path"
            )
        return flow

    @property
    def log_z(self) -> float:
        """Log Z in nats."""
        return float(self.beta[0])

    @cached_property
    def share(self) -> FloatArray:
        """(A,) float64: p(e | s), the probability of each arc given its source."""
        graph, share = self.graph, empty(len(self.weight))
        # the kernel normalises: with masks of 1e38, beta is too coarse to count two arcs
        kernels.sums.shares(share, graph.first_out, graph.nextstate, self.weight, self.beta)
        return share

    @cached_property
    def visit(self) -> FloatArray:
        """(S,) float64: the probability of passing each state."""
        visit = np.zeros(self.graph.num_states)
        visit[0] = 1.0
        kernels.sums.visits(visit, self.graph.source, self.graph.nextstate, self.share)
        return visit

    @cached_property
    def posterior(self) -> FloatArray:
        """(A,) float64: P(e), the probability of passing each arc."""
        return np.minimum(self.visit[self.graph.source] * self.share, 1.0)

    def conditional_means(self, value: FloatArray) -> tuple[float, FloatArray]:
        """Return E[V] and E[V | e] (A,), where V is the sum of `value` (A,) along a path.

        E[V | e] = E[V before s | s] + value[e] + E[V after s' | s'] for e = (s, s'); 0 for arcs
        with probability 0.  This is the first-order expectation semiring (Eisner 2002), with
        weights and means stored separately.
        """
        before, after = self._means(value, value)
        given = before[self.graph.source] + value + after[self.graph.nextstate]
        return float(after[0]), np.where(self.posterior > 0, given, 0.0)

    def conditional_covariances(self, u: FloatArray, v: FloatArray) -> tuple[float, FloatArray]:
        """Return Cov[U, V] and Cov[U, V | e] (A,), where U and V are sums of `u` and `v` (A,).

        By the law of total covariance, an arc adds the product of its deviations from the means of
        the state that it enters, or leaves.  The parts of a path before and after e are independent
        given e.
        """
        source, nextstate = self.graph.source, self.graph.nextstate
        (u_before, u_after), (v_before, v_after) = self._means(u, u), self._means(v, v)
        before, after = self._means(
            (u_before[source] + u - u_before[nextstate])
            * (v_before[source] + v - v_before[nextstate]),
            (u + u_after[nextstate] - u_after[source]) * (v + v_after[nextstate] - v_after[source]),
        )
        given = before[source] + after[nextstate]
        return float(after[0]), np.where(self.posterior > 0, given, 0.0)

    def _means(self, before: FloatArray, after: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (S,) the means of the sums of `before` on the paths to each state, of `after` (A,)
        on those from it.
        """  # noqa: D205
        source, nextstate = self.graph.source, self.graph.nextstate
        arriving = np.divide(
            self.posterior,
            self.visit[nextstate],
            out=np.zeros(len(source)),
            where=self.posterior > 0,
        )
        means = np.zeros((2, self.graph.num_states))
        kernels.sums.means_before(means[0], source, nextstate, arriving, writable(before))
        kernels.sums.means_after(means[1], source, nextstate, self.share, writable(after))
        return means[0], means[1]

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent paths, (k, longest) int64: the arcs of each, then -1."""
        graph = self.graph
        steps = np.full((k, graph.longest), -1, dtype=np.int64)
        kernels.sums.walks(
            steps, rng.random(steps.shape), graph.first_out, graph.nextstate, self.share
        )
        return steps
