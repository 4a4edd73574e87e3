"""Linear response: the derivative of the pseudo-marginals of belief propagation.

At a fixed point of sum-product or tree-reweighted message passing

    m_ij(y_j) = log sum_(y_i) exp(edge_ij / rho_ij + t_i - m_ji),
    t_i = node_i + sum_k rho_ki m_ki

the messages respond to a change of the scores by the linear system

    dm_ij(y_j) = sum_(y_i) b(y_i | y_j) [dedge_ij / rho_ij + dt_i - dm_ji],

where b(y_i | y_j) is the belief of the edge given y_j.  The system is solved by the same iteration,
which converges if message passing does.  The pseudo-marginals are the gradient of the Bethe
(tree-reweighted) free energy, so their derivative is its Hessian, which is symmetric.

Source: M. Welling and Y. W. Teh (2004), "Linear response algorithms for approximate inference in
graphical models", Neural Computation 16.
"""

import warnings
from typing import Any

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import NotSupportedError
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.messages.belief_propagation import (
    Settings,
    belief_propagation,
    tree_reweighted,
)
from fstgrad.mrf.messages.tree_cover import tree_cover
from fstgrad.mrf.scored_graph import ScoredGraph, Table

RUNS = {"bp": belief_propagation, "trw": tree_reweighted}


def linear_response(model: ScoredGraph, method: str, direction: Table, **options: Any) -> Table:
    """Return the derivative of the pseudo-marginals along `direction`, (I, C) and (E, C, C).

    An iteration costs O(E C^2).  On forests the result is exact and equals the covariance product.
    If message passing or its derivative does not converge, a RuntimeWarning says so.

    Parameters
    ----------
    method : "bp" or "trw"
    direction : Table
        Shaped like the scores; its edge part is (C, C), shared, or (E, C, C).
    options
        Those of `belief_propagation` or `tree_reweighted`; `max_iter`, `tol` and `damping` apply to
        message passing and to its derivative.

    Raises
    ------
    NotSupportedError
        A factor over three or more nodes.
    """
    if model.factors.number:
        raise NotSupportedError(
            f"the marginals of method {method!r} have derivatives only for pairs, but the model "
            "has larger factors; use method='exact'"
        )
    run, graph = RUNS[method], model.graph
    result = run(model.recentered[0], **options)  # a masked node would cost the others their digits
    rho = tree_cover(graph).rho if method == "trw" else np.ones(graph.num_edges)
    changes = _Changes(graph, rho, result.node, result.edge, direction)
    used = (run.__kwdefaults__ or {}) | options
    exact, stop = Settings(**used).on(graph)
    derivative_converged = changes.iterate(exact.max_iter, stop, exact.damping)
    if not (result.converged and derivative_converged):
        warnings.warn(
            f"{method} or its derivative did not converge; the derivative is not that of the "
            "marginals: raise max_iter or damping",
            RuntimeWarning,
            stacklevel=2,
        )
    return changes.marginals()


class _Changes:
    """Derivatives of the messages, (2E, C); arc 2e runs along edge e, arc 2e + 1 back."""

    def __init__(
        self, graph: Graph, rho: FloatArray, node: FloatArray, edge: FloatArray, direction: Table
    ) -> None:
        from scipy.sparse import csr_matrix

        self.node, self.edge, self.direction = node, edge, direction.node
        arcs = 2 * len(rho)
        self.source, self.head = graph.source, graph.source[np.arange(arcs) ^ 1]
        weights = np.repeat(rho, 2)
        shape = (graph.num_nodes, arcs)
        self.incoming = csr_matrix((weights, (self.head, np.arange(arcs))), shape)
        self.along = np.broadcast_to(direction.edge, edge.shape) / rho[:, None, None]
        joint = _from_head(edge)
        self.at_head = joint.sum(axis=2)
        mass = self.at_head[:, :, None]
        self.given = np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
        self.forced = (self.given * _from_head(self.along)).sum(axis=2)
        self.messages = np.zeros((arcs, node.shape[1]))

    def cavity(self) -> FloatArray:
        """Return dt_i - dm_ji for each arc i -> j, (2E, C)."""
        total = self.direction + self.incoming @ self.messages
        back = self.messages.reshape(-1, 2, total.shape[1])[:, ::-1]
        return np.asarray(total[self.source] - back.reshape(self.messages.shape))

    def iterate(self, max_iter: int, tol: float, damping: float) -> bool:
        """Iterate; return whether the last step was at most tol * max(1, largest derivative)."""
        for _ in range(max_iter):
            fresh = self.forced + np.einsum("ahs,as->ah", self.given, self.cavity())
            # adding a constant to a message changes no belief, but constants grow along loops
            fresh -= (self.at_head * fresh).sum(axis=1, keepdims=True)
            step = np.abs(fresh - self.messages).max(initial=0.0)
            self.messages = damping * self.messages + (1 - damping) * fresh
            if step <= tol * max(1.0, float(np.abs(fresh).max(initial=0.0))):
                return True
        return False

    def marginals(self) -> Table:
        """Return the derivatives of the beliefs of nodes and edges."""
        total = self.direction + self.incoming @ self.messages
        node = self.node * (total - (self.node * total).sum(axis=1, keepdims=True))
        sides = self.cavity()
        score = self.along + sides[::2, :, None] + sides[1::2, None, :]
        mean = (self.edge * score).sum(axis=(1, 2), keepdims=True)
        return Table(node, self.edge * (score - mean))


def _from_head(table: FloatArray) -> FloatArray:
    """Return edge tables (E, C, C) as tables (2E, C, C) of arcs, [label of head, of tail]."""
    both = np.stack((table.transpose(0, 2, 1), table), axis=1)
    return both.reshape(-1, *table.shape[1:])
