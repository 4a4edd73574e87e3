"""Markov chains: right marginals within their stated error, seeds, threads, hard zeros.

Gibbs draws of whole colour classes are those of one node after the other.
"""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import kernels
from fstgrad.mrf.factors import Factor
from fstgrad.mrf.graph import Graph, grid_edges
from fstgrad.mrf.kernels.sites import gibbs_sites
from fstgrad.mrf.sampling.chains import (
    Chain,
    edge_strengths,
    forest_blocks,
    new_key,
    new_keys,
    start_labels,
)
from fstgrad.mrf.sampling.chromatic import ChromaticSweeps
from fstgrad.mrf.scored_graph import ScoredGraph
from tests.helpers.fields import graph_of_hubs
from tests.mrf.models import masked_model, random_grid, random_model
from tests.oracles import mrf as oracle

SAMPLERS = ["gibbs", "chromatic", "blocked", "metropolis", "swendsen-wang"]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_stated_errors_cover_95_percent(sampler):
    model = random_grid(3, 3, 2, scale=0.7)
    exact = model.marginals().node[:, 0]
    inside = []
    for seed in range(60):
        result = model.infer(sampler, samples=200, burn_in=20, chains=4, rng=seed)
        inside.append(np.abs(result.node[:, 0] - exact) <= result.margin[:, 0])
    # 9 marginals of 60 runs, counted as if only the runs were independent: 2 sigma below 95 percent
    assert np.mean(inside) >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / 60)
    assert np.mean(inside) <= 0.995  # an error that is stated too large is wrong too


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["complete", "two trees"])
def test_marginals_with_masks(sampler, name):
    model = masked_model(name)
    result = model.infer(sampler, samples=3000, rng=0)
    assert result.converged
    assert result.iterations == 4 * 3000
    for mine, exact in (
        (result.node, model.marginals().node),
        (result.edge, model.marginals().edge),
    ):
        assert (mine[exact == 0] == 0).all()
        np.testing.assert_allclose(mine, exact, atol=0.04)
    np.testing.assert_allclose(result.edge_sum, result.edge.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sweep_has_the_right_conditionals(sampler):
    # one node: every draw is from its conditional, whatever the sampler
    node = np.log([[0.5, 0.3, 0.2]])
    model = fg.PairwiseMRF(node, np.zeros((0, 3, 3)), [])
    result = model.infer(sampler, samples=20_000, chains=1, rng=0, burn_in=5)
    np.testing.assert_allclose(result.node[0], [0.5, 0.3, 0.2], atol=0.02)
    assert np.isnan(result.r_hat)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_depend_on_the_seed_alone(sampler):
    model = random_grid(180, 170, 2)
    runs = [
        model.infer(sampler, samples=4, batches=4, burn_in=2, chains=c, rng=3, threads=t)
        for c, t in ((1, 1), (1, 2), (3, 1), (3, 2))
    ]
    np.testing.assert_array_equal(runs[0].node, runs[1].node)
    np.testing.assert_array_equal(runs[2].node, runs[3].node)
    np.testing.assert_array_equal(runs[2].edge, runs[3].edge)


@pytest.mark.parametrize("labels", [2, 3])
def test_one_table_draws_as_a_table_for_each_edge(labels):
    model = random_grid(6, 7, labels, scale=2.0)
    start = start_labels(model, np.random.default_rng(0))
    fast = Chain(model, "chromatic", start, 11)
    own = model.with_scores(model.scores.node, np.repeat(model.edge_stack, 71, axis=0))
    slow = Chain(own, "chromatic", start, 11)
    assert fast._is_binary_grid == (labels == 2)
    assert not slow._is_binary_grid
    for _ in range(20):
        fast.advance(1)
        slow.advance(1)
        np.testing.assert_array_equal(fast.labels, slow.labels)


def test_one_gibbs_draw_equals_the_conditional():
    model = masked_model("complete")
    y = model.mode()
    p = oracle.conditional(y, 2, *model.scores, model.graph.edges.tolist(), 3)
    draws = []
    for key in range(4000):
        from fstgrad.mrf.kernels.sites import gibbs_sites

        labels = y.copy()
        gibbs_sites(0, 1, np.array([2]), key, 0, model.pieces, labels)
        draws.append(labels[2])
    share = np.bincount(draws, minlength=3) / 4000
    np.testing.assert_allclose(share, p, atol=4.5 * 0.5 / np.sqrt(4000))


def test_extreme_scores_on_the_grid():
    node = np.zeros((9, 2))
    node[4] = [0, 900]
    model = fg.PairwiseMRF.grid(3, 3, node, 300 * np.eye(2))
    result = model.infer("chromatic", samples=50, rng=0)
    assert result.node[4].tolist() == [0, 1]


@pytest.mark.parametrize("edges", [grid_edges(5, 4), grid_edges(4, 4, 8), grid_edges(1, 5)])
@pytest.mark.parametrize("grid", [True, False])
def test_blocks_are_forests_that_cover_all_nodes(edges, grid):
    nodes = int(edges.max()) + 1
    graph = Graph(nodes, edges, (5, 4) if grid and nodes == 20 else None)
    block, orders, _ = forest_blocks(ScoredGraph(graph, np.zeros((nodes, 2)), np.eye(2)))
    assert sorted(np.concatenate(orders).tolist()) == list(range(nodes))
    for b in range(block.max() + 1):
        inside = edges[(block[edges] == b).all(axis=1)]
        assert Graph(nodes, inside).is_forest


def test_colours_are_proper():
    for model in (
        random_model("complete"),
        masked_model("square with a chord"),
        random_grid(4, 5, 2),
    ):
        colour = model.graph.colour
        first, second = colour[model.graph.edges].T
        assert (first != second).all()


def test_start_is_an_allowed_labeling():
    forbid = np.where(np.eye(3) == 1, -np.inf, 0.0)
    board = fg.PairwiseMRF.grid(8, 8, np.zeros((64, 3)), forbid)
    for seed in range(5):
        assert board.score(start_labels(board, np.random.default_rng(seed))) > -np.inf
    with pytest.raises(fg.InvalidInputError, match="initial is a forbidden labeling"):
        board.infer("gibbs", initial=np.zeros(64, int))
    two = np.where(np.eye(2) == 1, -np.inf, 0.0)
    odd = fg.PairwiseMRF(np.zeros((3, 2)), two, [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(fg.InfeasibleError):
        odd.infer("gibbs")


def test_pairs_can_be_left_out():
    result = random_grid(3, 3, 2).infer("gibbs", samples=40, batches=4, edges=False, rng=0)
    with pytest.raises(fg.NotSupportedError, match="edges=True"):
        _ = result.edge


@pytest.mark.parametrize(
    "options, message",
    [
        ({"samples": 5}, "batches is 40 and samples 5"),
        ({"batches": 5}, "batches is 5 and samples 1000; use an even number"),
        ({"burn_in": -1}, "burn_in is -1"),
        ({"chains": 0}, "chains is 0"),
        ({"sampler": "gibbs"}, "no option 'sampler'"),
        ({"rng": "seed"}, "rng is 'seed'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        random_grid(3, 3, 2).infer("chromatic", **options)


@pytest.mark.parametrize("labels, shape", [(2, (4, 5)), (3, (3, 4))])
def test_annealed_log_partition_lies_within_its_error(labels, shape):
    model = random_grid(*shape, labels, seed=labels, scale=0.8)
    settings = {"rng": 1, "steps": 100, "runs": 60}
    found = model.infer("ais", **settings)
    assert found.kind == "estimate"
    assert 0 < found.log_partition_error < 0.2
    off = abs(found.log_partition - model.log_partition())
    assert off < 4.5 * found.log_partition_error
    far = np.abs(found.node - model.marginals().node) / found.standard_error
    assert 0.3 < np.sqrt((far**2).mean()) < 1.6
    assert model.infer("ais", **settings).log_partition == found.log_partition


def test_annealing_refuses_hard_zeros():
    with pytest.raises(fg.NotSupportedError, match="infer\\('bounds'\\)"):
        masked_model("complete").infer("ais")


@pytest.mark.slow
def test_tempering_moves_between_modes():
    """Two labelings of all equal labels: a chain alone stays with one of them."""
    model = fg.PairwiseMRF.grid(10, 10, np.zeros((100, 2)), 1.5 * np.eye(2))
    stuck = model.infer("chromatic", samples=200, chains=4, rng=3)
    assert not stuck.converged
    found = model.infer("tempered", samples=600, burn_in=50, chains=3, rng=0)
    assert found.r_hat < 1.3
    np.testing.assert_allclose(found.node[:, 0], 0.5, atol=0.2)


def test_tempering_leaves_the_distribution_as_it_is():
    model = random_grid(3, 3, 3, scale=1.0)
    found = model.infer("tempered", samples=500, rng=2)
    assert (np.abs(found.node - model.marginals().node) <= 2 * found.margin + 1e-3).all()


@pytest.mark.parametrize("labels, coupling", [(2, 3.0), (3, 1.5)])
def test_clusters_move_where_single_draws_stick(labels, coupling):
    """A strong Potts model with scores of its nodes: R-hat of single draws is 9 or infinite."""
    node = 0.2 * np.random.default_rng(0).normal(size=(100, labels))
    model = fg.PairwiseMRF.grid(10, 10, node, coupling * np.eye(labels))
    stuck = model.infer("chromatic", samples=400, rng=0)
    found = model.infer("swendsen-wang", samples=2000, rng=0)
    assert stuck.r_hat > 3
    assert found.r_hat < 1.02
    np.testing.assert_allclose(found.node, model.marginals().node, atol=0.03)


@pytest.mark.parametrize("labels, signs", [(2, [-1.0]), (3, [-1.0, 1.0])])
def test_clusters_of_edges_that_repel(labels, signs):
    """With two labels such an edge bonds labels that differ; with more it has no bond."""
    model = random_model("complete", labels, scale=0.5)
    sign = np.random.default_rng(0).choice(signs, size=6)[:, None, None]
    table = model.scores.edge + 1.5 * sign * np.eye(labels)
    model = model.with_scores(model.scores.node, table)
    found = model.infer("swendsen-wang", samples=20_000, rng=1)
    np.testing.assert_allclose(found.node, model.marginals().node, atol=0.012)
    np.testing.assert_allclose(found.edge, model.marginals().edge, atol=0.012)


def test_the_strength_of_a_potts_edge_is_its_coupling():
    table = np.stack([0.7 * np.eye(3), -0.4 * np.eye(3), np.where(np.eye(3) == 1, -np.inf, 0)])
    table[0] += np.arange(3)[:, None] + np.array([5.0, 1.0, 2.0])  # what nodes may carry
    model = fg.PairwiseMRF(np.zeros((3, 3)), table, [(0, 1), (1, 2), (2, 0)])
    np.testing.assert_allclose(edge_strengths(model), [0.7, 0, 0], atol=1e-15)
    repelled = fg.PairwiseMRF(np.zeros((2, 2)), -0.4 * np.eye(2), [(0, 1)])
    np.testing.assert_allclose(edge_strengths(repelled), [-0.4])
    single = fg.PairwiseMRF(np.zeros((2, 1)), np.ones((1, 1)), [(0, 1)])
    assert single.infer("swendsen-wang", samples=8, batches=4, rng=0).node.tolist() == [[1], [1]]


def test_clusters_need_pairs():
    factor = Factor((0, 1, 2), np.zeros((2, 2, 2)))
    model = fg.PairwiseMRF.from_factors([2, 2, 2], [factor])
    with pytest.raises(fg.NotSupportedError, match="use method 'tempered'"):
        model.infer("swendsen-wang")


@pytest.mark.parametrize("labels", [2, 3, 5])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_colour_tables_equal_the_general_kernel(labels, shared, scale):
    """The same numbers drawn, site by site, as from the sums of scores."""
    rng = np.random.default_rng(labels)
    pairs = [(i, j) if rng.random() < 0.5 else (j, i) for i in range(40) for j in range(i)
             if rng.random() < 0.1]  # fmt: skip
    node = scale * rng.normal(size=(40, labels))
    node[3, 1:] = node[9, 0] = -np.inf
    edge = scale * rng.normal(size=(labels, labels) if shared else (len(pairs), labels, labels))
    model = fg.PairwiseMRF(node, edge, pairs)
    start = start_labels(model, np.random.default_rng(0))
    chain, labels_now = Chain(model, "chromatic", start, 5), start.copy()
    for sweep in range(30):
        chain.advance(1)
        for k in range(model.graph.colour.max() + 1):
            sites = np.flatnonzero(model.graph.colour == k)
            gibbs_sites(0, len(sites), sites, 5, 120 * sweep, model.pieces, labels_now)
        np.testing.assert_array_equal(chain.labels, labels_now)


@pytest.mark.parametrize("sampler, times", [("chromatic", 1.0), ("gibbs", 1.47)])
def test_errors_without_edges_are_those_of_the_scan(sampler, times):
    """A sweep in order is an independent draw, of error sqrt(p (1 - p) / draws).

    One at random leaves a node alone with r = 1/e: (1 + r) / (1 - r) = 1.47^2 times its variance.
    """
    rng = np.random.default_rng(3)
    model = fg.PairwiseMRF(rng.normal(size=(60, 2)), np.zeros((0, 2, 2)), np.empty((0, 2), int))
    found = model.infer(sampler, samples=2000, chains=2, burn_in=1, rng=0)
    p = found.node
    ratio = found.standard_error / np.sqrt(p * (1 - p) / 4000)
    assert 0.85 * times < ratio.mean() < 1.25 * times
    error = np.abs(p - model.marginals().node) / np.sqrt(p * (1 - p) / 4000)
    assert 0.6 * times < np.sqrt((error**2).mean()) < 1.4 * times  # what was really missed


def test_streams_have_different_keys():
    rng = np.random.default_rng(0)
    keys = new_keys(rng, 5_000) + [new_key(rng) for _ in range(5_000)]
    assert len(set(keys)) == 10_000


def test_a_certain_label_leaves_the_other_samples_effective():
    node = np.array([[0.0, -np.inf], [0.0, 1.0]])  # the first label is certain, the second is not
    found = fg.PairwiseMRF(node, np.zeros((2, 2)), [(0, 1)]).infer("gibbs", rng=0)
    assert found.node[0].tolist() == [1.0, 0.0]
    assert found.effective_samples > 500


def test_annealed_runs_with_equal_weights_are_all_effective():
    free = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), [(0, 1), (1, 2)])
    found = free.infer("ais", rng=0, runs=50, steps=20)
    assert found.effective_samples == pytest.approx(50, rel=1e-12)


@pytest.mark.parametrize("shape, fixed", [((2, 1), 0), ((2, 1), 1), ((1, 2), 0), ((1, 2), 1)])
def test_a_pixel_is_drawn_in_logs_where_all_its_weights_underflow(shape, fixed):
    """Scores that are not symmetric, with the neighbour above, below, on the left, on the right."""
    node, edge = np.zeros((2, 2)), np.array([[-600.0, -603.0], [-1200.0, 0.0]])
    node[fixed, 0] = 2000.0
    given = edge[0] if fixed == 0 else edge[:, 0]
    found = fg.PairwiseMRF.grid(*shape, node, edge).infer("chromatic", samples=4000, rng=0).node
    expected = np.exp(given - np.logaddexp.reduce(given))
    np.testing.assert_allclose(found[1 - fixed], expected, atol=0.012)
    assert found[fixed].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("sign", [1, -1])
def test_clusters_of_either_sign_have_the_right_marginals(sign):
    """Neighbours that attract and neighbours that repel, with tables that no bond represents."""
    rng = np.random.default_rng(2)
    edges = [(0, 1), (2, 1), (2, 3), (0, 3), (1, 3)]
    edge = sign * 1.2 * np.eye(2) + 0.3 * rng.normal(size=(5, 2, 2))
    model = fg.PairwiseMRF(0.5 * rng.normal(size=(4, 2)), edge, edges)
    assert (np.sign(edge_strengths(model)) == sign).all()
    found = model.infer("swendsen-wang", samples=4000, rng=0)
    np.testing.assert_allclose(found.node, model.marginals().node, atol=0.03)
    np.testing.assert_allclose(found.edge, model.marginals().edge, atol=0.03)


def sequential(model, sweeps, key, room):
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
    ChromaticSweeps(model, threads, parallel).sweep(5, 17, 0, room, found)
    np.testing.assert_array_equal(found, sequential(model, 5, 17, room))


def test_draws_of_a_graph_without_edges():
    model = fg.PairwiseMRF(np.random.default_rng(1).normal(size=(700, 2)), np.eye(2), [])
    found = np.zeros(700, np.int64)
    ChromaticSweeps(model, 2, 1).sweep(2, 5, 0, 2100, found)
    np.testing.assert_array_equal(found, sequential(model, 2, 5, 2100))


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
    np.testing.assert_array_equal(chain.labels, sequential(model, 6, 3, 3 * 72))
    assert model.score(chain.labels) > -np.inf


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_draws_without_a_table(labels):
    node = np.random.default_rng(2).normal(size=(5, labels))
    model = fg.PairwiseMRF(node, np.empty((0, labels, labels)), [])
    found = np.zeros(5, np.int64)
    ChromaticSweeps(model, 1, 1).sweep(3, 7, 0, 15, found)
    np.testing.assert_array_equal(found, sequential(model, 3, 7, 15))


def test_annealed_runs_that_miss_the_best_labeling_have_not_converged():
    rng = np.random.default_rng(0)
    for scale, misses in ((1.0, False), (50.0, True)):
        node, edge = scale * rng.normal(size=(4, 2)), scale * rng.normal(size=(4, 2, 2))
        m = fg.PairwiseMRF(node, edge, [(0, 1), (1, 2), (2, 3), (0, 3)])
        found = m.infer("ais", steps=5, runs=5, rng=1)
        below = m.log_partition() - found.log_partition
        assert (below > 4 * found.log_partition_error) == misses
        assert found.converged != misses


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_blocks_of_a_row_reach_all_labelings(shape):
    """A grid without loops is one block, so that equalities of its pixels hold no chain."""
    node = np.log([[0.3, 0.7], [1, 1], [1, 1], [1, 1], [1, 1]])
    edge = np.where(np.eye(2) > 0, 0.0, -np.inf)
    found = fg.PairwiseMRF.grid(*shape, node, edge).infer("blocked", rng=0)
    np.testing.assert_allclose(found.node[:, 0], 0.3, atol=0.03)
