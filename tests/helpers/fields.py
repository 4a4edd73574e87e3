"""Random fields with the scores of all their labelings, and comparisons of messages."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.factors import Factor

SIZES = [2, 3, 2, 3, 2]
SCOPES = [(0,), (3,), (0, 1), (4, 3), (2, 0, 1), (1, 3, 4, 2)]


def random_factors(seed, scopes=SCOPES, sizes=SIZES, scale=1.0, zeros=0.0):
    rng = np.random.default_rng(seed)
    found = []
    for scope in scopes:
        table = scale * rng.normal(size=[sizes[v] for v in scope])
        table[rng.random(table.shape) < zeros] = -np.inf
        found.append(Factor(scope, table))
    return found


def enumerated(factors, sizes=SIZES):
    """All labelings and their scores, from the factors as they were given."""
    ys = np.array(list(itertools.product(*map(range, sizes))))
    return ys, np.array([sum(f.table[tuple(y[list(f.scope)])] for f in factors) for y in ys])


def model_of(seed, **options):
    factors = random_factors(seed, **options)
    return fg.PairwiseMRF.from_factors(SIZES, factors), *enumerated(factors)


def models(count, seed=0):
    """Random models of up to eight nodes, any graph, some with hard zeros."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        nodes, labels = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        pairs = [(i, j) for i in range(nodes) for j in range(i) if rng.random() < 0.6]
        scale = float(np.exp(rng.uniform(-1, 2.5)))
        node = scale * rng.normal(size=(nodes, labels))
        edge = scale * rng.normal(size=(len(pairs), labels, labels))
        if rng.random() < 0.3:
            edge[rng.random(edge.shape) < 0.15] = -np.inf
        yield fg.PairwiseMRF(node, edge, pairs)


def assert_equal_sweeps(model, tables, damping, tolerance):
    """Two implementations of the messages agree for nine sweeps, and in what follows from them."""
    for _ in range(9):
        changes = [table.sweep(damping) for table in tables]
        assert changes[0] == pytest.approx(changes[1], abs=tolerance)
    (node, log_nodes), (other_node, other_log_nodes) = (t.node_beliefs() for t in tables)
    np.testing.assert_allclose(node, other_node, atol=1e-13)
    values = [
        log_nodes + tables[0].log_edge_normalizers(),
        other_log_nodes + tables[1].log_edge_normalizers(),
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    edges = [table.edge_beliefs(0, model.graph.num_edges) for table in tables]
    np.testing.assert_allclose(*edges, atol=1e-13)


def graph_of_hubs(rng, labels, *, shared, symmetric):
    """Two nodes with hundreds of neighbours among nodes with a few, arcs both ways round."""
    nodes = 1500
    ends = np.stack((rng.integers(nodes, size=2500), rng.integers(nodes, size=2500)), axis=1)
    hubs = np.stack((np.repeat([3, 700], 600), rng.integers(nodes, size=1200)), axis=1)
    pairs = np.concatenate((ends, hubs))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    _, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
    pairs = pairs[np.sort(first)]
    edge = 0.05 * rng.normal(size=(labels, labels) if shared else (len(pairs), labels, labels))
    edge = edge + edge.T if shared and symmetric else edge
    return fg.PairwiseMRF(rng.normal(size=(nodes, labels)), edge, pairs)


PAIR = np.array([[1.0, 0.0], [-0.5, 0.8]])
FACTORS = [Factor((0, 1), PAIR), Factor((1, 2), PAIR), Factor((0, 2), PAIR)]
OFFSET = 3.7
