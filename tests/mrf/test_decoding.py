"""Labelings of the highest score: exact, the k best, graph cut, max-product, ICM, trees."""

import itertools
import re

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import uai
from fstgrad.mrf.factors import Factor
from fstgrad.mrf.kernels import trw_s
from fstgrad.mrf.objectives import PersistentChains
from fstgrad.mrf.trw_s import _Best
from tests.helpers.fields import model_of
from tests.mrf.models import masked_model, random_grid, random_model
from tests.oracles import mrf as oracle


def submodular_grid(height, width, seed):
    """Random binary model with s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0) on every edge."""
    model = random_grid(height, width, 2, seed=seed, scale=2.0, shared=False)
    edge = model.scores.edge.copy()
    excess = edge[:, 0, 1] + edge[:, 1, 0] - edge[:, 0, 0] - edge[:, 1, 1]
    edge[:, 0, 0] += np.maximum(excess, 0)
    return model.with_scores(model.scores.node, edge)


@pytest.mark.parametrize("score", [-5.0, 5.0])
def test_a_labeling_closes_the_gap_only_at_the_upper_bound(score):
    best = _Best(random_grid(2, 2, 2))
    best.score = score
    assert best.closes(score)
    assert not best.closes(score + 1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_graph_cut_equals_elimination(seed):
    model = submodular_grid(5, 6, seed)
    best = model.decode("graph-cut")
    assert best.score == pytest.approx(model.score(model.mode()), rel=1e-9)
    assert best.score == model.score(best.labels)
    assert 0 <= best.gap < 1e-6


def test_graph_cut_keeps_hard_zeros():
    model = submodular_grid(4, 4, 1)
    node, edge = model.scores.node.copy(), model.scores.edge.copy()
    node[3, 0] = node[7, 1] = -np.inf
    edge[5, 0, 1] = edge[6, 1, 0] = edge[8, 0, 1] = edge[8, 1, 0] = -np.inf
    hard = model.with_scores(node, edge)
    best = hard.decode("graph-cut")
    assert best.score == pytest.approx(hard.score(hard.mode()), rel=1e-9)
    assert best.gap < 1e-5
    # a chain of equalities between two nodes that must differ
    tie = np.where(np.eye(2) == 1, 0.0, -np.inf)
    ends = np.array([[0, -np.inf], [0, 0], [-np.inf, 0]])
    with pytest.raises(fg.InfeasibleError):
        fg.PairwiseMRF(ends, tie, [(0, 1), (1, 2)]).decode("graph-cut")


@pytest.mark.parametrize("way", [0, 1])
def test_an_edge_that_forbids_one_way_is_cut(way):
    """One of the two arcs has no bound, in every third edge."""
    for seed in range(5):
        model = submodular_grid(4, 4, seed)
        edge = model.scores.edge.copy()
        edge[::3, way, 1 - way] = -np.inf
        hard = model.with_scores(model.scores.node, edge)
        best = hard.decode("graph-cut")
        assert best.score == pytest.approx(hard.score(hard.mode()), rel=1e-9)


def test_graph_cut_says_what_it_cannot_do():
    with pytest.raises(fg.NotSupportedError, match="the model has 3"):
        random_model("triangle").decode("graph-cut")
    with pytest.raises(fg.NotSupportedError, match="submodular"):
        fg.PairwiseMRF(np.zeros((2, 2)), -np.eye(2), [(0, 1)]).decode("graph-cut")


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("potts", [False, True])
@pytest.mark.parametrize("labels", [2, 3])
def test_methods_that_an_error_advises_apply(labels, potts, larger):
    rng, ring = np.random.default_rng(0), [(0, 1), (1, 2), (2, 3), (0, 3)]
    size = (labels, labels)
    factors = [(pair, np.eye(labels) if potts else rng.normal(size=size)) for pair in ring]
    factors += [((i,), rng.normal(size=labels)) for i in range(4)]
    factors += [((0, 1, 2), rng.normal(size=(*size, labels)))] if larger else []
    model = fg.PairwiseMRF.from_factors([labels] * 4, factors)
    gold, others = model.mode(), {"exact", "trw", "max-product", "icm"}
    for method in ("graph-cut", "expansion"):
        if potts and not larger and (labels == 2 or method == "expansion"):
            assert np.isfinite(model.decode(method).score)
            continue
        with pytest.raises(fg.NotSupportedError, match="use method") as raised:
            model.decode(method)
        advised = re.findall(r"'([\w-]+)'", str(raised.value))
        assert set(advised) == others | ({"expansion"} if potts and not larger else set())
        for other in advised:
            assert np.isfinite(model.decode(other).score)
        with pytest.raises(fg.NotSupportedError, match="give decoder=") as raised:
            model.nll(gold, "hinge", decoder=method)
        assert re.findall(r"'([\w-]+)'", str(raised.value)) == advised
        for other in advised:
            assert np.isfinite(model.nll(gold, "hinge", decoder=other)[0])


def test_methods_that_a_limit_of_memory_advises_apply(monkeypatch):
    nodes = 40
    pairs = list(itertools.combinations(range(nodes), 2))
    rng = np.random.default_rng(0)
    model = fg.PairwiseMRF(rng.normal(size=(nodes, 2)), 0.01 * np.eye(2), pairs)
    gold = np.zeros(nodes, dtype=np.int64)
    for call in (model.mode, lambda: model.decode("exact", max_memory=1000)):
        with pytest.raises(fg.MemoryLimitError, match="; use decode") as raised:
            call()
    advised = re.findall(r"'([\w-]+)'", str(raised.value))
    assert advised == ["trw", "max-product", "icm"]
    with pytest.raises(fg.MemoryLimitError, match="give decoder='trw', 'max-product' or 'icm'"):
        model.nll(gold, "hinge", decoder="exact")
    for other in advised:
        assert np.isfinite(model.decode(other).score)
        assert np.isfinite(model.nll(gold, "hinge", decoder=other)[0])
    with pytest.raises(fg.MemoryLimitError, match="use method 'bp', 'trw' or 'pseudolikelihood'"):
        model.nll(gold)
    for other in ("bp", "trw", "pseudolikelihood"):
        assert np.isfinite(model.nll(gold, other)[0])
    small = random_model("triangle")
    assert small.decode("exact", max_memory=10**6).labels.tolist() == small.mode().tolist()

    monkeypatch.setattr("fstgrad.mrf.sampling.chains._repairs", lambda *_: iter(()))
    apart = model.with_scores(model.scores.node, np.where(np.eye(2), 0.0, -np.inf))
    with pytest.raises(fg.NotSupportedError, match="from; use method 'exact' with a larger"):
        apart.decode("icm")
    with pytest.raises(fg.NotSupportedError, match="from; pass one as initial=, or use method"):
        apart.infer("gibbs")
    assert apart.infer("gibbs", initial=gold, samples=40, burn_in=0).node.shape == (nodes, 2)
    with pytest.raises(fg.NotSupportedError, match="leave persistent= out"):
        PersistentChains(apart, 2)


@pytest.mark.parametrize("name", ["chain", "star", "two trees", "no edges"])
def test_max_product_is_exact_on_forests(name):
    model = masked_model(name, seed=3)
    assert model.decode("max-product").score == pytest.approx(model.score(model.mode()))
    assert model.decode().gap == 0


def test_icm_is_a_local_optimum():
    model = random_grid(4, 5, 3, scale=1.0)
    found = model.decode("icm", rng=0)
    assert found.converged
    best = model.score(model.mode())
    assert found.score <= best + 1e-12
    for i in range(20):
        for c in range(3):
            moved = found.labels.copy()
            moved[i] = c
            assert model.score(moved) <= found.score + 1e-12
    again = model.decode("icm", rng=0, restarts=50)
    assert found.score <= again.score <= best + 1e-12


def test_a_seed_does_not_change_the_cut_elsewhere():
    """One pixel with a score of 1e9 leaves all other pixels at the best labeling."""
    model = submodular_grid(6, 6, 3)
    for label in (0, 1):
        node = model.scores.node.copy()
        node[7, label] += 1e9
        best = model.with_scores(node, model.scores.edge).decode("graph-cut")
        goal = model.condition({7: label})
        assert goal.score(best.labels) == pytest.approx(goal.score(goal.mode()), rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_certifies_itself(seed):
    rng = np.random.default_rng(seed)
    height, width = (int(x) for x in rng.integers(1, 5, 2))
    model = submodular_grid(height, width, seed)
    best = model.decode("graph-cut")
    assert best.score == pytest.approx(model.score(model.mode()), abs=1e-10)
    assert best.gap <= 1e-10


def test_a_gap_is_the_distance_to_the_bound(monkeypatch):
    """With a flow that is too large by 0.25 the labeling may be that far from the best."""
    from fstgrad.mrf.kernels import max_flow

    model, true = submodular_grid(4, 4, 0), max_flow.max_flow
    monkeypatch.setattr(max_flow, "max_flow", lambda *arguments: true(*arguments) - 0.25)
    assert model.decode("graph-cut").gap == pytest.approx(0.25, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_expansion_is_near_the_best_for_potts(seed):
    rng = np.random.default_rng(seed)
    model = fg.PairwiseMRF.grid(4, 4, 1.5 * rng.normal(size=(16, 4)), 0.8 * np.eye(4))
    found, best = model.decode("expansion"), model.score(model.mode())
    assert found.converged
    # costs are counted from the best that nodes and edges could have alone
    ceiling = model.scores.node.max(axis=1).sum() + 0.8 * model.graph.num_edges
    assert ceiling - found.score <= 2 * (ceiling - best) + 1e-9
    assert found.score <= best + 1e-9


def test_expansion_refuses_what_is_no_metric():
    model = fg.PairwiseMRF(np.zeros((2, 3)), -np.eye(3), [(0, 1)])
    with pytest.raises(fg.NotSupportedError, match="expansion needs edges"):
        model.decode("expansion")


@pytest.mark.parametrize("seed", range(20))
def test_the_gap_of_trees_is_certified(seed):
    model = random_model("complete", seed=seed, scale=2.0)
    found, best = model.decode("trw"), model.score(model.mode())
    assert found.score <= best + 1e-9 <= found.score + found.gap + 2e-9
    assert found.gap < np.inf


def test_the_gap_of_trees_closes_where_the_relaxation_is_tight():
    model = submodular_grid(5, 5, 2)
    found = model.decode("trw", max_iter=2000)
    assert found.score == pytest.approx(model.score(model.mode()), abs=1e-6)
    assert found.gap < 0.05


@pytest.mark.parametrize("options", [{}, {"max_cells": 0, "restarts": 0}])
@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(8))
def test_the_gap_of_larger_factors_is_certified(seed, zeros, options):
    model = model_of(seed, scale=1.5, zeros=zeros)[0]
    try:
        best = model.score(model.mode())
    except fg.InfeasibleError:
        with pytest.raises((fg.InfeasibleError, fg.NotSupportedError)):
            model.decode("trw", **options)
        return
    found = model.decode("trw", **options)
    assert model.score(found.labels) == found.score
    assert found.score <= best + 1e-9 <= found.score + found.gap + 2e-9


def test_the_sweeps_are_exact_on_a_tree_of_factors():
    rng = np.random.default_rng(0)
    factors = [Factor((v,), rng.normal(size=3)) for v in range(7)]
    factors += [
        Factor(s, 3 * rng.normal(size=(3,) * len(s))) for s in ((0, 1, 2), (2, 5), (6, 5, 3, 4))
    ]
    model = fg.PairwiseMRF.from_factors([3] * 7, factors)
    found = model.decode("trw", max_cells=0, restarts=0)
    assert found.score == pytest.approx(model.score(model.mode()), rel=1e-12)
    assert found.gap < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_no_sweep_raises_the_bound(seed):
    model = model_of(seed, scale=2.0)[0]
    m = model.pieces._replace(node=model.scores.node.copy())
    messages = (  # from edges, from larger factors
        np.zeros((len(m.outgoing.source), model.num_labels)),
        np.zeros((len(m.factors.scope), model.num_labels)),
    )
    share = np.empty(model.num_nodes)
    trw_s.node_shares(m, share)
    values = [trw_s.dual(m, *messages)]
    for number in range(12):
        assert trw_s.sweep(m, share, number % 2 == 0, *messages)
        values.append(trw_s.dual(m, *messages))
    assert (np.diff(values) <= 1e-12 * np.abs(values[0])).all()
    assert values[-1] + model.offset >= model.score(model.mode()) - 1e-9


def test_a_wide_frustrated_grid_is_labeled_within_its_gap():
    """20 x 20 couplings of either sign: too wide for the mini-buckets, solved all the same."""
    rng = np.random.default_rng(3)
    signs = rng.normal(size=760)[:, None, None]
    model = fg.PairwiseMRF.grid(20, 20, 0.1 * rng.normal(size=(400, 2)), 2 * signs * np.eye(2))
    found = model.decode("trw", max_cells=1 << 10)
    swept = model.decode("trw", max_cells=0, restarts=0)
    assert found.score > swept.score
    assert found.score + found.gap <= swept.score + swept.gap
    assert found.gap < 0.1 * found.score


SLOW = pytest.param("CSP_12", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [SLOW, "Grids_11", "Segmentation_12"])
def test_published_labelings_are_reached(shared_data, name):
    path = shared_data / "uai" / f"{name}.uai"
    file = uai.read_model(path)
    model = file.to_mrf().condition(uai.read_evidence(f"{path}.evid", file.sizes))
    words = path.with_name(f"{name}.uai.MAP").read_text().split()[-model.num_nodes :]
    found = model.decode("trw")
    assert found.score >= model.score(np.array(words, int)) - 1e-9
    best = model.score(model.mode())
    assert found.score == pytest.approx(best, rel=1e-9)
    assert found.score + found.gap >= best - 1e-9


@pytest.mark.parametrize(
    "options", [{"max_iter": 0}, {"tol": -1.0}, {"max_cells": -1}, {"restarts": -1}]
)
def test_bad_options_of_trees(options):
    with pytest.raises(fg.InvalidInputError, match=next(iter(options))):
        random_model("triangle").decode("trw", **options)


@pytest.mark.parametrize("ways", [[(0, 1)], [(1, 0)], [(0, 1), (1, 0)]])
def test_cuts_of_forbidden_pairs_equal_enumeration(ways):
    """Also where the pair (1, 1) scores less than the way that is allowed."""
    rng = np.random.default_rng(len(ways))
    edges = [(0, 1), (1, 2), (3, 2), (3, 0), (0, 2)]
    for _ in range(20):
        node, edge = 2.0 * rng.normal(size=(4, 2)), 2.0 * rng.normal(size=(5, 2, 2))
        for way in ways:
            edge[:, way[0], way[1]] = -np.inf
        found = fg.PairwiseMRF(node, edge, edges).decode("graph-cut")
        assert found.score == pytest.approx(oracle.solve(node, edge, edges)[3], abs=1e-10)
        assert found.gap == pytest.approx(0.0, abs=1e-10)


def small_models():
    rng = np.random.default_rng(0)
    chain = fg.PairwiseMRF(
        rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), [(0, 1), (1, 2), (2, 3)]
    )
    grid = fg.PairwiseMRF.grid(2, 3, rng.normal(size=(6, 2)), rng.normal(size=(7, 2, 2)))
    node = rng.normal(size=(4, 3))
    node[0, 1] = node[2, :2] = -np.inf
    edge = rng.normal(size=(3, 3))
    edge[0, 1] = -np.inf
    masked = fg.PairwiseMRF(node, edge, [(0, 1), (1, 2), (2, 3), (3, 0)])
    pair = (0, 1, 2), rng.normal(size=(2, 3, 2))
    ragged = fg.PairwiseMRF.from_factors([2, 3, 2], [pair, ((0,), rng.normal(size=2))])
    lone = fg.PairwiseMRF(rng.normal(size=(1, 4)), np.zeros((4, 4)), np.zeros((0, 2), dtype=int))
    return {"chain": chain, "grid": grid, "masked": masked, "factors": ragged, "one node": lone}


@pytest.mark.parametrize("name", small_models())
@pytest.mark.parametrize("k", [1, 7, 200])
def test_the_best_labelings_equal_enumeration(name, k):
    model = small_models()[name]
    sizes = model.labels_per_node
    every = [(model.log_prob(y), y) for y in itertools.product(*map(range, sizes))]
    expected = sorted((p for p, _ in every if p > -np.inf), reverse=True)[:k]
    found = model.kbest(k)
    np.testing.assert_allclose([p for _, p in found], expected, rtol=0, atol=1e-10)
    assert len({tuple(y) for y, _ in found}) == len(found)
    np.testing.assert_allclose([model.log_prob(y) for y, _ in found], expected, rtol=0, atol=1e-10)


def test_ties_are_different_labelings():
    model = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), [(0, 1), (1, 2)])
    assert len({tuple(y) for y, _ in model.kbest(100)}) == 8


def test_k_is_checked():
    with pytest.raises(fg.InvalidInputError, match="k is 0"):
        small_models()["chain"].kbest(0)
