"""Random models for the tests."""

import numpy as np

import fstgrad as fg
from fstgrad.mrf.graph import grid_edges

SHAPES = {
    "one node": (1, []),
    "no edges": (3, []),
    "chain": (4, [(0, 1), (2, 1), (2, 3)]),
    "star": (4, [(1, 0), (1, 2), (3, 1)]),
    "two trees": (5, [(0, 4), (2, 1), (4, 3)]),
    "triangle": (3, [(0, 1), (1, 2), (2, 0)]),
    "square with a chord": (4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]),
    "complete": (4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    "loop and tree": (5, [(0, 1), (1, 2), (2, 0), (3, 4)]),
}


def random_scores(name, labels, seed, scale=1.0):
    """Node and edge scores for one of SHAPES."""
    rng = np.random.default_rng(seed)
    nodes, edges = SHAPES[name]
    node = scale * rng.normal(size=(nodes, labels))
    edge = scale * rng.normal(size=(len(edges), labels, labels))
    return node, edge, edges


def random_model(name, labels=3, seed=0, scale=1.0):
    return fg.PairwiseMRF(*random_scores(name, labels, seed, scale))


def masked_model(name, seed=0):
    """Different label counts and hard zeros in nodes and edges; some labeling is allowed."""
    node, edge, edges = random_scores(name, 3, seed)
    sizes = np.array([3, 2, 3, 2, 3])[: len(node)]
    node[0, 1] = -np.inf
    if len(edges):
        edge[0, 0, 1] = edge[-1, 0, 0] = edge[-1, 1, 2] = -np.inf
    return fg.PairwiseMRF(node, edge, edges, sizes)


def random_grid(height, width, labels, seed=0, scale=0.5, shared=True, connectivity=4):
    rng = np.random.default_rng(seed)
    edges = len(grid_edges(height, width, connectivity))
    shape = (labels, labels) if shared else (edges, labels, labels)
    return fg.PairwiseMRF.grid(
        height, width, scale * rng.normal(size=(height * width, labels)),
        scale * rng.normal(size=shape), connectivity=connectivity,
    )  # fmt: skip
