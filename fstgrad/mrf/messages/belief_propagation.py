"""Loopy belief propagation: sum-product, max-product and tree-reweighted.

The estimate of the log-partition is the Bethe free energy, computed from the messages as

    log Z = sum_i (1 - sum_j rho_ij) log Z_i + sum_ij rho_ij log Z_ij

with the normalizers Z_i and Z_ij of the node and edge beliefs (rho = 1: Bethe; Yedidia, Freeman and
Weiss 2005; rho from spanning trees: the upper bound of Wainwright, Jaakkola and Willsky 2005).  It
does not depend on how messages are scaled, and equals the free energy of the beliefs at a fixed
point.  For tree-reweighted messages, `messages.tree_cover` gives a bound that also holds before
they converge.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fstgrad.core.checks import FloatArray, one_of, positive_integer, positive_number, real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.mrf.factors import pairwise_form
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.hard_zeros import with_hard_zeros
from fstgrad.mrf.messages.grid import GridMessages, floats_can_hold
from fstgrad.mrf.messages.linear_domain import LinearMessages
from fstgrad.mrf.messages.log_domain import LogMessages, ResidualMessages
from fstgrad.mrf.messages.tree_cover import tree_cover
from fstgrad.mrf.messages.tree_reweighted import tree_messages
from fstgrad.mrf.result import EdgeSource, Inference, Kind
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible

Schedule = Literal["flooding", "residual"]
Progress = Callable[[int, float], None]
Messages = LogMessages | GridMessages | LinearMessages
FOREST_TOL = 1e-6  # nats; on forests, larger values of tol are replaced by it
SETTLED = 1e-10  # nats; on forests, iterations go on until all changes are as small


@dataclass(frozen=True)
class Settings:
    """The checked options of a run."""

    max_iter: int
    tol: float
    damping: float
    schedule: Schedule
    threads: int
    progress: Progress | None

    def __post_init__(self) -> None:
        vars(self).update(
            max_iter=positive_integer("max_iter", self.max_iter),
            tol=positive_number("tol", self.tol, allow_zero=True),
            damping=real_number("damping", self.damping),
        )
        if not 0 <= self.damping < 1:
            raise InvalidInputError(f"damping is {self.damping!r}; give a number in [0, 1)")
        one_of("schedule", self.schedule, ("flooding", "residual"))

    def on(self, graph: Graph) -> tuple["Settings", float]:
        """Return the options for this graph, and the change in nats at which to stop.

        Messages of a forest are exact after as many iterations as its longest path, however large
        `tol` is: they need no damping, and stop when they have settled.
        """
        if not graph.is_forest:
            return self, self.tol
        exact = replace(self, tol=min(self.tol, FOREST_TOL), damping=0.0)
        return exact, min(self.tol, SETTLED)


def belief_propagation(
    model: ScoredGraph,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    damping: float = 0.0,
    schedule: Schedule = "flooding",
    threads: int = 1,
    progress: Progress | None = None,
) -> Inference:
    """Return the marginals and the Bethe estimate of log Z of sum-product belief propagation.

    Exact on forests, whatever `tol` and `damping` are.  An iteration costs O(E C^2
    + sum over larger factors of arity * cells).  Hard zeros stay exactly zero.

    Parameters
    ----------
    max_iter : int
        Iterations of 2E messages each.
    tol : float
        Stop when no log message (with maximum 0) changes by more than this, in nats, before
        damping, and each has been sent.  0 stops early only at an exact fixed point.  On forests,
        iterations stop at 1e-10, and values above 1e-6 count as 1e-6.
    damping : float
        In [0, 1): new log message = (1 - damping) * computed + damping * old.  Messages of forests
        are not damped.
    schedule : "flooding" or "residual"
        Update all messages at once, or always the one that would change most.
    threads : int
        For flooding; the result does not depend on the number of threads.
    progress : callable
        Called with (iteration, residual), the residual being the largest change in nats.

    Raises
    ------
    InfeasibleError
        The messages show that no labeling is allowed.
    """
    settings = Settings(max_iter, tol, damping, schedule, threads, progress)
    return _run(model, "bp", 0, False, settings)


def max_product(
    model: ScoredGraph,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    damping: float = 0.0,
    schedule: Schedule = "flooding",
    threads: int = 1,
    progress: Progress | None = None,
) -> Inference:
    """Return max-marginals by max-product, each node's scaled to sum to 1.

    `log_partition` is the score, in nats, of the labeling of each node's best label; -inf if that
    labeling is forbidden, which says nothing of others: `decode("max-product")` looks for an
    allowed one, and raises InfeasibleError if there is none.  Parameters and errors as in
    `belief_propagation`.
    """
    settings = Settings(max_iter, tol, damping, schedule, threads, progress)
    return _run(model, "max-product", 1, False, settings)


def tree_reweighted(
    model: ScoredGraph,
    *,
    max_iter: int = 500,
    tol: float = 1e-6,
    damping: float = 0.5,
    schedule: Schedule = "flooding",
    threads: int = 1,
    progress: Progress | None = None,
) -> Inference:
    """Return tree-reweighted marginals and an upper bound on log Z.

    Parameters and errors as in `belief_propagation`.  The bound is the mean of log Z over spanning
    trees that use all edges about equally often; it holds for any messages, converged or not.
    """
    settings = Settings(max_iter, tol, damping, schedule, threads, progress)
    return _run(with_hard_zeros(model), "trw", 0, True, settings)


def _pairwise(model: ScoredGraph) -> ScoredGraph:
    """Return the model in pairwise form, cached in `model.cache`."""
    if model.factors.number == 0:
        return model
    if "pairwise" not in model.cache:
        model.cache["pairwise"] = pairwise_form(model)
    cached: ScoredGraph = model.cache["pairwise"]
    return cached


def _run(
    model: ScoredGraph, method: str, maximum: int, by_trees: bool, settings: Settings
) -> Inference:
    begun = time.perf_counter()
    inner = model if settings.schedule == "flooding" else _pairwise(model)
    settings, stop = settings.on(inner.links)
    cover = tree_cover(inner.links) if by_trees else None
    rho = None if cover is None else cover.rho
    for messages in _candidates(inner, maximum, rho, settings, stop):
        residuals = _iterate(messages, settings, stop)
        nodes = None if residuals is None else messages.node_beliefs()
        if residuals is not None and nodes is not None:
            break
    else:
        raise infeasible()
    factors, log_factors = messages.factor_beliefs()
    kind: Kind = "bethe"
    if maximum:
        value, kind = model.score(nodes[0][: model.num_nodes].argmax(axis=1)), "score"
    elif cover is not None and isinstance(messages, LogMessages):
        value, kind = messages.log_bound(cover), "upper bound"
        if residuals[-1] > settings.tol:  # unconverged messages may give a worse bound than none
            value = min(value, messages.first_bound(cover))
        value += model.offset
    else:
        value = nodes[1] + messages.log_edge_normalizers() + log_factors + model.offset
    node = nodes[0]
    edge_source: EdgeSource = messages.edge_beliefs
    if inner is not model:
        node, edge_source, factors = _of_variables(model, node, edge_source)
    return Inference(
        method, value, kind, node, edge_source, model.graph.num_edges, factors=factors,
        converged=residuals[-1] <= settings.tol, iterations=len(residuals),
        residuals=np.array(residuals), seconds=time.perf_counter() - begun,
    )  # fmt: skip


def _of_variables(
    model: ScoredGraph, node: FloatArray, edge_source: EdgeSource
) -> tuple[FloatArray, EdgeSource, FloatArray]:
    """Return the marginals of a model from those of its pairwise form."""
    variables, size = model.num_nodes, model.num_labels
    larger = [node[variables + f, : np.prod(model.factors.shape(f))]
              for f in range(model.factors.number)]  # fmt: skip

    def edges(low: int, high: int) -> FloatArray:
        return edge_source(low, high)[:, :size, :size].copy()

    return node[:variables, :size].copy(), edges, np.concatenate(larger)


def _candidates(
    model: ScoredGraph, maximum: int, rho: FloatArray | None, settings: Settings, stop: float
) -> Iterator[Messages]:
    """Yield messages to try, fastest first; use the next if they leave the float range."""
    if settings.schedule == "residual":
        yield ResidualMessages(model, maximum, stop, settings.damping, rho)
        return
    if rho is None and floats_can_hold(model):
        fastest = LinearMessages if model.graph.pixels is None else GridMessages
        yield fastest(model, maximum, settings.threads)
    if rho is None:
        yield LogMessages(model, maximum, settings.threads)
    else:
        yield tree_messages(model, settings.threads, rho)


def _iterate(messages: Messages, settings: Settings, stop: float) -> list[float] | None:
    """Return the residual of each iteration, or None if messages leave the float range."""
    history: list[float] = []
    for iteration in range(settings.max_iter):
        change = messages.sweep(settings.damping)
        if change is None:
            return None
        history.append(change)
        if settings.progress is not None:
            settings.progress(iteration + 1, history[-1])
        if history[-1] <= stop:
            break
    return history
