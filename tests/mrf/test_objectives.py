"""Training losses: gradients, the theorem on CD1, shared scores, bad labels."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.objectives import PersistentChains
from tests.mrf.models import masked_model, random_grid, random_model, random_scores
from tests.oracles import mrf as oracle

EXACT_GRADIENT = [
    ("exact", {}),
    ("pseudolikelihood", {}),
    ("bp", {"tol": 1e-13, "max_iter": 2000}),
    ("trw", {"tol": 1e-13, "max_iter": 5000}),
]


@pytest.mark.parametrize("method, options", EXACT_GRADIENT)
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_equals_central_differences(method, options, shared):
    node, edge, edges = random_scores("square with a chord", 3, seed=1, scale=0.7)
    edge = edge[0] if shared else edge
    gold, step = [0, 2, 1, 1], 1e-5

    def loss(node, edge):
        return fg.PairwiseMRF(node, edge, edges).nll(gold, method, **options)

    gradient = loss(node, edge)[1]
    assert gradient.edge.shape == edge.shape
    for which, table in enumerate((node, edge)):
        for cell in list(np.ndindex(table.shape))[::3]:
            ends = []
            for sign in (1, -1):
                moved = [node.copy(), edge.copy()]
                moved[which][cell] += sign * step
                ends.append(loss(*moved)[0])
            difference = (ends[0] - ends[1]) / (2 * step)
            assert gradient[which][cell] == pytest.approx(difference, abs=1e-8)


def test_mean_field_gradient_where_it_is_a_local_optimum():
    # the bound's gradient is E_q[t]: the derivative through q vanishes at an optimum
    model = random_model("triangle", scale=0.3)
    value, gradient = model.nll([0, 1, 2], "mean-field", tol=1e-14)
    node = model.scores.node.copy()
    node[1, 0] += 1e-5
    moved = model.with_scores(node, model.scores.edge).nll([0, 1, 2], "mean-field", tol=1e-14)[0]
    assert (moved - value) / 1e-5 == pytest.approx(gradient.node[1, 0], abs=1e-5)


def test_pseudolikelihood_equals_its_definition():
    model = masked_model("square with a chord")
    gold = model.mode()
    edges = model.graph.edges.tolist()
    expected, node, edge = 0.0, 0, 0
    for i in range(4):
        p = oracle.conditional(gold, i, *model.scores, edges, model.labels_per_node[i])
        expected -= np.log(p[gold[i]])
        for c, weight in enumerate(p):
            moved = gold.copy()
            moved[i] = c
            parts = oracle.parts(moved, model.scores.node.shape, edges)
            node, edge = node + weight * parts[0], edge + weight * parts[1]
    parts = oracle.parts(gold, model.scores.node.shape, edges)
    value, gradient = model.nll(gold, "pseudolikelihood")
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient.node, node - 4 * parts[0], atol=1e-12)
    np.testing.assert_allclose(gradient.edge, edge - 4 * parts[1], atol=1e-12)


def test_one_site_cd_is_pseudolikelihood_in_expectation():
    model = random_model("square with a chord", scale=0.6)
    gold = np.array([0, 2, 1, 1])
    expected = model.nll(gold, "pseudolikelihood")[1]
    rng = np.random.default_rng(0)
    draws = [model.nll(gold, "cd1", rng=rng)[1] for _ in range(6000)]
    for mine, goal in ((np.array([d[k] for d in draws]), expected[k]) for k in range(2)):
        error = mine.std(axis=0) / np.sqrt(len(mine))
        assert (np.abs(mine.mean(axis=0) - goal) <= 4.5 * error + 1e-12).all()
        assert (error < 0.1).all()


def test_steps_of_contrastive_divergence_are_draws_at_single_nodes():
    """The mean of t(y_k) - t(gold) by the transition matrix of the chain, to the power k = 2."""
    model = random_model("triangle", 2, scale=1.5)
    states = np.array(list(np.ndindex(2, 2, 2)))
    scores = np.array([model.score(y) for y in states])
    moves = np.zeros((8, 8))
    for a, y in enumerate(states):
        for i in range(3):
            alike = (np.delete(states, i, 1) == np.delete(y, i)).all(axis=1)
            moves[a, alike] += np.exp(scores[alike] - np.logaddexp.reduce(scores[alike])) / 3
    start = 5
    shares = np.linalg.matrix_power(moves, 2)[start]
    nodes = (states[..., None] == np.arange(2)).astype(float)
    expected = np.tensordot(shares, nodes, 1) - nodes[start]
    options = {"k": 2, "steps": "nodes", "chains": 5000, "rng": 0}
    value, gradient = model.nll(states[start], "cd", **options)
    np.testing.assert_allclose(gradient.node, expected, atol=4.5 * 0.5 / np.sqrt(5000))
    assert value == pytest.approx(shares @ scores - scores[start], abs=4.5 * 2 / np.sqrt(5000))
    one_sweep = model.nll(states[start], "cd", chains=5000, rng=0)[1].node
    assert np.abs(one_sweep - expected).max() > 0.05
    with pytest.raises(fg.InvalidInputError, match="sampler is 'metropolis' with steps='nodes'"):
        model.nll(states[start], "cd", steps="nodes", sampler="metropolis")


@pytest.mark.parametrize("sampler", ["gibbs", "chromatic", "blocked", "metropolis"])
def test_long_contrastive_divergence_is_the_likelihood_gradient(sampler):
    model = random_grid(3, 3, 2, scale=0.6)
    gold = np.array([0, 1, 0, 1, 1, 0, 0, 0, 1])
    exact = model.nll(gold)[1]
    gradient = model.nll(gold, "cd", k=60, chains=500, sampler=sampler, rng=1)[1]
    np.testing.assert_allclose(gradient.node, exact.node, atol=4.5 * 0.5 / np.sqrt(500))
    np.testing.assert_allclose(gradient.edge, exact.edge, atol=4.5 * 3 / np.sqrt(500))
    one, two = (model.nll(gold, "cd", k=5, chains=20, sampler=sampler, rng=1) for _ in range(2))
    assert one[0] == two[0]
    np.testing.assert_array_equal(one[1].edge, two[1].edge)


def test_gap_and_gradient_agree():
    model = random_grid(3, 4, 3)
    gold = model.sample(1, 0)[0]
    value, gradient = model.nll(gold, "cd", k=1, chains=3, rng=5)
    linear = (gradient.node * model.scores.node).sum() + (gradient.edge * model.scores.edge).sum()
    assert value == pytest.approx(linear, rel=1e-12)


def test_persistent_chains_go_on():
    model = random_grid(3, 3, 2, scale=0.4)
    chains = PersistentChains(model, chains=400, rng=0)
    first = chains.labels.copy()
    gold = np.zeros(9, int)
    for _ in range(30):
        _, gradient = model.nll(gold, "cd", persistent=chains)
    assert (chains.labels != first).any()
    exact = model.nll(gold)[1]
    np.testing.assert_allclose(gradient.node, exact.node, atol=4.5 * 0.5 / np.sqrt(400))
    with pytest.raises(fg.InvalidInputError, match="chains of 9 nodes, the model has 6"):
        random_grid(2, 3, 2).nll(np.zeros(6, int), "cd", persistent=chains)


@pytest.mark.parametrize("method", ["exact", "bp", "pseudolikelihood", "cd", "cd1"])
def test_bad_gold(method):
    with pytest.raises(fg.InvalidInputError, match=r"gold\[1\] is 2"):
        random_model("triangle", 2).nll([0, 2, 0], method)


def test_forbidden_gold_has_infinite_loss():
    model = random_model("triangle", 2)
    node = model.scores.node.copy()
    node[0, 0] = -np.inf
    model = model.with_scores(node, model.scores.edge)
    assert model.nll([0, 1, 1])[0] == np.inf
    assert model.nll([0, 1, 1], "pseudolikelihood")[0] == np.inf


def frustrated(side=6):
    """A grid in which every square has an odd number of negative couplings."""
    model = random_grid(side, side, 2, scale=0.1, shared=False)
    signs = np.random.default_rng(1).choice([-3.0, 3.0], size=model.graph.num_edges)
    return model.with_scores(model.scores.node, signs[:, None, None] * np.eye(2))


@pytest.mark.parametrize("method", ["bp", "trw", "mean-field"])
def test_a_loss_that_did_not_converge_says_so(method):
    model = frustrated()
    gold = np.zeros(36, int)
    with pytest.warns(RuntimeWarning, match=f"{method} did not converge"):
        value, _ = model.nll(gold, method, max_iter=2)
    assert not value.converged
    assert value.residual > 1e-6
    value, _ = random_model("triangle", scale=0.2).nll([0, 1, 2], method, max_iter=5000)
    assert value.converged
    assert value.kind == {"bp": "bethe", "trw": "upper bound"}.get(method, "lower bound")


@pytest.mark.parametrize("method", ["exact", "bp", "trw", "mean-field", "pseudolikelihood"])
def test_hard_zeros_in_a_shared_table(method):
    forbid = np.where(np.eye(3) == 1, -np.inf, 0.0)
    board = fg.PairwiseMRF.grid(3, 3, np.zeros((9, 3)), forbid)
    gold = np.add.outer(np.arange(3), np.arange(3)).ravel() % 2
    options = {"damping": 0.5, "max_iter": 2000} if method in ("bp", "trw") else {}
    value, gradient = board.nll(gold, method, **options)
    assert np.isfinite(value)
    for table in gradient:
        assert np.isfinite(table).all()


@pytest.mark.parametrize("method, options", EXACT_GRADIENT[:1] + EXACT_GRADIENT[2:])
@pytest.mark.parametrize("shared", [False, True])
def test_partial_labels(method, options, shared):
    """-log P(the labels that are known), a sum over the rest."""
    node, edge, edges = random_scores("square with a chord", 3, seed=4, scale=0.6)
    model = fg.PairwiseMRF(node, edge[0] if shared else edge, edges)
    gold = np.array([2, -1, 0, -1])
    value, gradient = model.nll(gold, method, **options)
    if method == "exact":
        scores = [model.score([2, a, 0, b]) for a in range(3) for b in range(3)]
        assert value == pytest.approx(model.log_partition() - np.logaddexp.reduce(scores))
        assert model.nll(np.full(4, -1), method)[0] == pytest.approx(0)
    for which in range(2):
        for cell in list(np.ndindex(model.scores[which].shape))[::4]:
            ends = []
            for sign in (1, -1):
                moved = [table.copy() for table in model.scores]
                moved[which][cell] += sign * 1e-5
                ends.append(model.with_scores(*moved).nll(gold, method, **options)[0])
            difference = (ends[0] - ends[1]) / 2e-5
            assert gradient[which][cell] == pytest.approx(difference, abs=1e-7)
    with pytest.raises(fg.NotSupportedError, match="2 are unknown; use 'exact'"):
        model.nll(gold, "pseudolikelihood")


def test_items_of_a_batch_have_chains_of_their_own():
    one = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    strong = np.zeros((2, 2, 2))
    strong[0, :, 1], strong[1, :, 0] = 4.0, 4.0  # the items want opposite labels
    batch = fg.PairwiseMRFBatch(one, strong, np.zeros((2, 2)))
    chains = PersistentChains(one, 300, 0, items=2)
    gold = np.array([[0, 0], [0, 0]])
    for _ in range(5):
        _, gradient = batch.nll(gold, "cd", persistent=chains)
    goal = np.exp(4) / (1 + np.exp(4))
    np.testing.assert_allclose(gradient.node[0, :, 1], goal, atol=0.05)
    np.testing.assert_allclose(gradient.node[1, :, 1], 1 - goal, atol=0.05)
    with pytest.raises(fg.InvalidInputError, match=r"for none of 2 items .*items=2\)"):
        batch.nll(gold, "cd", persistent=PersistentChains(one, 3))
    with pytest.raises(fg.InvalidInputError, match=r"give persistent\[item\]"):
        batch[0].nll(gold[0], "cd", persistent=chains)
    draws = batch.nll(gold, "cd", k=1, rng=0, chains=50)[1].node
    flipped = fg.PairwiseMRFBatch(one, strong[[0, 0]], np.zeros((2, 2)))
    draws = flipped.nll(gold, "cd", k=1, rng=0, chains=50)[1].node
    assert (draws[0] != draws[1]).any()


def test_every_labeling_follows_its_own_conditional():
    """Detailed balance: P(y) K(y -> z) = P(z) K(z -> y) for a Gibbs draw at one node."""
    model = random_model("triangle", 2, scale=0.8)
    edges = model.graph.edges.tolist()
    for y in oracle.labelings([2, 2, 2]):
        for i in range(3):
            z = y.copy()
            z[i] = 1 - y[i]
            p = oracle.conditional(y, i, *model.scores, edges, 2)
            there, back = model.log_prob(y) + np.log(p[z[i]]), model.log_prob(z) + np.log(p[y[i]])
            assert there == pytest.approx(back, abs=1e-12)


def test_pseudolikelihood_is_consistent():
    """Its expectation under P is least where the model is P (the slides' theorem)."""
    population = random_model("triangle", 2, scale=0.8)
    ys = oracle.labelings([2, 2, 2])
    p = np.exp([population.log_prob(y) for y in ys])

    def expected(model):
        found = [model.nll(y, "pseudolikelihood") for y in ys]
        value = sum(w * v for w, (v, _) in zip(p, found, strict=True))
        node = sum(w * g.node for w, (_, g) in zip(p, found, strict=True))
        edge = sum(w * g.edge for w, (_, g) in zip(p, found, strict=True))
        return value, node, edge

    least, node, edge = expected(population)
    np.testing.assert_allclose(node, 0, atol=1e-12)
    np.testing.assert_allclose(edge, 0, atol=1e-12)
    for seed in range(10):
        other = random_model("triangle", 2, seed=seed + 20, scale=0.8)
        assert expected(other)[0] > least + 1e-3


def test_contrastive_divergence_has_no_gradient_at_the_population():
    """Chains that start in P stay in P, whatever the number of sweeps (the slides' theorem)."""
    population = random_model("triangle", 2, scale=0.8)
    golds = population.sample(6000, 0)
    rng = np.random.default_rng(1)
    found = [population.nll(y, "cd", k=1, sampler="gibbs", rng=rng)[1] for y in golds]
    for table in ([g.node for g in found], [g.edge for g in found]):
        mean, error = np.mean(table, axis=0), np.std(table, axis=0) / np.sqrt(len(table))
        assert (np.abs(mean) <= 4.5 * error + 1e-12).all()
