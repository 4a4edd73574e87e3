"""Edge appearance probabilities for tree-reweighted message passing."""

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.mrf.graph import Graph


def spanning_tree_weights(graph: Graph) -> FloatArray:
    """Return edge appearance probabilities (E,) of a distribution over spanning forests.

    The forests are minimum spanning forests in which the edges used least come first; at least 16
    of them, and as many as it takes to cover every edge.  Any such average is valid for the bound
    of Wainwright, Jaakkola and Willsky (2005).
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import minimum_spanning_tree

    rng = np.random.default_rng(0)
    used = np.zeros(graph.num_edges)
    low, high = np.sort(graph.edges, axis=1).T
    number = {pair: e for e, pair in enumerate(zip(low.tolist(), high.tolist(), strict=True))}
    trees = 0
    while trees < 16 or (used == 0).any():
        weights = used + 1 + 0.5 * rng.random(graph.num_edges)
        matrix = csr_matrix((weights, (low, high)), shape=(graph.num_nodes, graph.num_nodes))
        rows, columns = minimum_spanning_tree(matrix).nonzero()
        kept = np.sort(np.stack((rows, columns)), axis=0)
        used[[number[pair] for pair in zip(*kept.tolist(), strict=True)]] += 1
        trees += 1
    return used / trees
