"""Gibbs draws of whole colour classes are those of one node after the other."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import kernels
from fstgrad.mrf.graph import grid_edges
from fstgrad.mrf.sampling.chains import Chain
from fstgrad.mrf.sampling.chromatic import ColourDraws
from tests.helpers.fields import graph_of_hubs


def one_by_one(model, sweeps, key, room):
    """Draw the labels of all nodes, colour after colour, each given the scores of its labels."""
    labels = np.zeros(model.num_nodes, np.int64)
    for sweep in range(sweeps):
        for colour in range(model.graph.colour.max() + 1):
            sites = np.flatnonzero(model.graph.colour == colour)
            kernels.sites.gibbs_sites(0, len(sites), sites, key, sweep * room, model.pieces, labels)
    return labels


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("labels", [2, 3, 10])
@pytest.mark.parametrize(("threads", "parallel"), [(1, 9), (2, 100), (3, 1)])
def test_draws_of_blocks(shared, scale, labels, threads, parallel):
    """Nodes without neighbours, hubs with hundreds, dead labels, more nodes than a block has."""
    model = graph_of_hubs(np.random.default_rng(8), labels, shared=shared, symmetric=False)
    node = np.append(model.scores.node, np.ones((3, labels)), axis=0)
    node[4, 0] = node[9, 1] = -np.inf
    model = fg.PairwiseMRF(node, scale * model.scores.edge, model.graph.edges)
    found, room = np.zeros(model.num_nodes, np.int64), 3 * model.num_nodes
    ColourDraws(model, threads, parallel).sweep(5, 17, 0, room, found)
    np.testing.assert_array_equal(found, one_by_one(model, 5, 17, room))


def test_draws_of_a_graph_without_edges():
    model = fg.PairwiseMRF(np.random.default_rng(1).normal(size=(700, 2)), np.eye(2), [])
    found = np.zeros(700, np.int64)
    ColourDraws(model, 2, 1).sweep(2, 5, 0, 2100, found)
    np.testing.assert_array_equal(found, one_by_one(model, 2, 5, 2100))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("labels", [1, 2, 3])
@pytest.mark.parametrize("grid", [True, False])
def test_draws_with_hard_zeros(shared, labels, grid):
    """Forbidden pairs have no logarithm of a weight; label 0 beside label 0 is always allowed."""
    rng = np.random.default_rng(labels)
    pairs = grid_edges(9, 8)
    edge = rng.normal(size=(labels, labels) if shared else (len(pairs), labels, labels))
    hard = rng.random(edge.shape) < 0.4
    hard[..., 0, 0] = False
    edge = np.where(hard, -np.inf, edge)
    node = rng.normal(size=(72, labels))
    model = fg.PairwiseMRF.grid(9, 8, node, edge) if grid else fg.PairwiseMRF(node, edge, pairs)
    chain = Chain(model, "chromatic", np.zeros(72, np.int64), 3)
    chain.advance(6)
    np.testing.assert_array_equal(chain.labels, one_by_one(model, 6, 3, 3 * 72))
    assert model.score(chain.labels) > -np.inf


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_draws_without_a_table(labels):
    node = np.random.default_rng(2).normal(size=(5, labels))
    model = fg.PairwiseMRF(node, np.empty((0, labels, labels)), [])
    found = np.zeros(5, np.int64)
    ColourDraws(model, 1, 1).sweep(3, 7, 0, 15, found)
    np.testing.assert_array_equal(found, one_by_one(model, 3, 7, 15))
