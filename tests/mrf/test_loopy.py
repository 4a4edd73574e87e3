"""Loopy belief propagation, its schedules and bounds, and mean field."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.messages.grid import GridMessages
from fstgrad.mrf.messages.linear_domain import LinearMessages
from fstgrad.mrf.messages.log_domain import LogMessages, ResidualMessages
from fstgrad.mrf.messages.tree_cover import tree_cover
from tests.helpers.fields import assert_equal_sweeps, graph_of_hubs
from tests.helpers.selection import pairwise
from tests.mrf.models import SHAPES, masked_model, random_grid, random_model
from tests.oracles import mrf as oracle

FORESTS = ["one node", "no edges", "chain", "star", "two trees"]


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("build", [random_model, masked_model])
@pytest.mark.parametrize("schedule", ["flooding", "residual"])
@pytest.mark.parametrize("method", ["bp", "trw"])
def test_exact_on_forests(name, build, schedule, method):
    model = build(name, seed=4)
    result = model.infer(method, tol=1e-13, schedule=schedule, damping=0.0)
    assert result.converged
    assert result.log_partition == pytest.approx(model.log_partition(), rel=1e-11)
    np.testing.assert_allclose(result.node, model.marginals().node, atol=1e-11)
    np.testing.assert_allclose(result.edge, model.marginals().edge, atol=1e-11)


@pytest.mark.parametrize(
    "shared, maximum, damping, shape, connectivity",
    pairwise([True, False], [0, 1], [0.0, 0.3], [(4, 5), (1, 6), (5, 1), (1, 1), (2, 2)], [4, 8]),
)
def test_grid_kernels_equal_the_log_domain(shared, maximum, damping, shape, connectivity):
    model = random_grid(*shape, 3, 1, 1.5, shared, connectivity)
    tables = [cls(model, maximum, 1) for cls in (GridMessages, LogMessages)]
    assert_equal_sweeps(model, tables, damping, 1e-12)


@pytest.mark.parametrize("labels", [1, 2, 4, 10])
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("shared", [True, False])
def test_grids_have_the_messages_of_their_edge_lists(labels, connectivity, shared):
    """Rows longer than a vector register, two threads, and any number of labels."""
    grid = random_grid(70, 37, labels, 3, 1.0, shared, connectivity)
    edge_list = fg.PairwiseMRF(*grid.scores[:2], grid.graph.edges)
    found = [
        m.infer("bp", max_iter=6, tol=0.0, damping=0.2, threads=t)
        for m, t in ((grid, 1), (grid, 2), (edge_list, 1))
    ]
    for other in found[1:]:
        np.testing.assert_allclose(found[0].node, other.node, atol=1e-13)
        assert found[0].log_partition == pytest.approx(other.log_partition, rel=1e-12)
        assert found[0].residuals == pytest.approx(other.residuals, abs=1e-12)


@pytest.mark.parametrize("name", ["triangle", "complete"])
def test_flooding_equals_the_definition(name):
    model = masked_model(name)
    expected = oracle.flooding(*model.scores, model.graph.edges.tolist(), 7, damping=0.25)
    messages = LogMessages(model, 0, 1)
    for _ in range(7):
        messages.sweep(0.25)
    np.testing.assert_allclose(np.exp(messages.messages), expected, atol=1e-13)


@pytest.mark.parametrize("name", SHAPES)
def test_tree_reweighted_is_an_upper_bound_and_mean_field_a_lower_one(name):
    model = masked_model(name, seed=2)
    above = model.infer("trw", tol=1e-10, max_iter=5000)
    below = model.infer("mean-field")
    assert above.converged
    assert above.kind == "upper bound"
    assert below.kind == "lower bound"
    assert below.log_partition <= model.log_partition() + 1e-9
    assert model.log_partition() <= above.log_partition + 1e-9


def test_tree_weights_are_those_of_spanning_trees():
    graph = random_model("complete").graph
    weights = tree_cover(graph).rho
    assert weights.sum() == pytest.approx(3)  # a tree on 4 nodes has 3 edges
    assert weights.min() > 0
    bridges = masked_model("loop and tree").graph
    assert tree_cover(bridges).rho[3] == pytest.approx(1)  # an edge outside any cycle


def test_hard_zeros_stay_zero():
    # proper 3-colourings of a 6 x 6 board whose corner is fixed
    forbid = np.where(np.eye(3) == 1, -np.inf, 0.0)
    board = fg.PairwiseMRF.grid(6, 6, np.zeros((36, 3)), forbid).condition({0: 1})
    for method in ("bp", "trw", "max-product"):
        result = board.infer(method, damping=0.5, max_iter=300)
        assert result.node[0].tolist() == [0, 1, 0]
        assert result.node[1, 1] == 0
        assert (np.diagonal(result.edge, axis1=1, axis2=2) == 0).all()


def test_products_beyond_the_float_range_are_computed_in_logs():
    # five opinions of e^400 that cancel: no product of their exponentials is a float
    node = np.zeros((9, 2))
    node[4, 1] = 800.0
    node[[1, 3], 0] = 500.0
    model = fg.PairwiseMRF.grid(3, 3, node, 450.0 * np.eye(2))
    assert GridMessages(model, 0, 1).sweep(0.0) is not None  # the first messages fit
    result = model.infer("bp", max_iter=100)
    assert np.isfinite(result.log_partition)
    messages = LogMessages(model, 0, 1)
    for _ in range(result.iterations):
        messages.sweep(0.0)
    np.testing.assert_allclose(result.node, messages.node_beliefs()[0], atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), None])
def test_contradictions_are_found(shape):
    forbid = np.where(np.eye(2) == 1, -np.inf, 0.0)
    node = np.zeros((9, 2))
    node[0, 0] = node[1, 0] = -np.inf
    model = fg.PairwiseMRF.grid(3, 3, node, forbid)
    if shape is None:
        model = fg.PairwiseMRF(node, forbid, model.graph.edges)
    for schedule in ("flooding", "residual"):
        with pytest.raises(fg.InfeasibleError, match="Z = 0"):
            model.infer("bp", schedule=schedule)


@pytest.mark.parametrize("grid", [True, False])
def test_a_node_without_labels_is_infeasible(grid):
    node = np.zeros((4, 2))
    node[1] = -np.inf
    model = fg.PairwiseMRF.grid(1, 4, node, np.eye(2))
    if not grid:
        model = fg.PairwiseMRF(node, np.eye(2), model.graph.edges)
    for method in ("bp", "max-product"):
        with pytest.raises(fg.InfeasibleError, match="Z = 0"):
            model.infer(method)


@pytest.mark.parametrize("labels", [2, 10])
@pytest.mark.parametrize("shared", [True, False])
def test_marginals_do_not_depend_on_threads(labels, shared):
    model = random_grid(60, 70, labels, shared=shared)
    one, two, three = (model.infer("bp", max_iter=10, threads=t) for t in (1, 2, 3))
    np.testing.assert_array_equal(one.node, two.node)
    np.testing.assert_array_equal(one.residuals, three.residuals)
    assert one.log_partition == three.log_partition
    graph = fg.PairwiseMRF(*model.scores, model.graph.edges)
    one, two = (graph.infer("bp", max_iter=3, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one.node, two.node)


def test_what_a_result_says():
    model = random_grid(5, 5, 2, scale=1.0)
    seen = []
    result = model.infer("bp", max_iter=3, tol=0, progress=lambda k, r: seen.append((k, r)))
    assert not result.converged
    assert result.iterations == 3
    assert seen == list(zip([1, 2, 3], result.residuals, strict=True))
    assert result.kind == "bethe"
    assert result.seconds > 0
    np.testing.assert_allclose(result.edge_sum, result.edge.sum(axis=0), atol=1e-13)
    exact = model.infer("exact")
    assert (exact.kind, exact.converged) == ("exact", True)
    np.testing.assert_array_equal(exact.edge, model.marginals().edge)
    best = model.infer("max-product", damping=0.3)
    assert best.log_partition == pytest.approx(model.score(best.node.argmax(axis=1)))


@pytest.mark.parametrize(
    "method, options, message",
    [
        ("belief", {}, "method is 'belief'; choose one of exact, bp"),
        ("bp", {"steps": 3}, "method 'bp' has no option 'steps'; it has max_iter, tol, damping"),
        ("bp", {"damping": 1.0}, r"damping is 1.0; give a number in \[0, 1\)"),
        ("bp", {"max_iter": 0}, "max_iter is 0"),
        ("bp", {"schedule": "random"}, "schedule is 'random'"),
        ("bp", {"threads": 0}, "threads is 0"),
        ("exact", {"max_memory": 0}, "max_memory is 0"),
    ],
)
def test_bad_options(method, options, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        random_grid(60, 60, 10).infer(method, **options)


CHAIN = [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    "method, node, first, second",
    [
        ("bp", [[9, 0], [0, 14], [0, 16]], -18, -19),
        ("trw", [[26, 0], [0, 35], [0, 17]], -6, -18),
    ],
)
@pytest.mark.parametrize("schedule", ["flooding", "residual"])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_small_messages_that_still_move_are_sent(method, node, first, second, schedule, damping):
    """A message that goes from e^-15 to e^-30 changes what a later node hears."""
    edge = np.stack([first * np.eye(2), second * np.eye(2)])
    model = fg.PairwiseMRF(np.array(node, float), edge, CHAIN)
    found = model.infer(method, schedule=schedule, damping=damping)
    assert found.converged
    np.testing.assert_allclose(found.node, model.marginals().node, atol=1e-6)
    assert found.log_partition == pytest.approx(model.log_partition(), abs=1e-5)


def forests(count, seed=0):
    """Random forests with scores of standard deviation 3 to 50."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        nodes, labels = int(rng.integers(2, 9)), int(rng.integers(2, 4))
        scale = float(np.exp(rng.uniform(np.log(3), np.log(50))))
        edges = [(int(rng.integers(i)), i) for i in range(1, nodes) if rng.random() < 0.9]
        edges = [pair[::-1] if rng.random() < 0.5 else pair for pair in edges]
        node = scale * rng.normal(size=(nodes, labels))
        yield fg.PairwiseMRF(node, scale * rng.normal(size=(len(edges), labels, labels)), edges)


def every_schedule_is_exact(model):
    exact, log_z, best = model.marginals(), model.log_partition(), model.score(model.mode())
    for schedule in ("flooding", "residual"):
        for damping in (0.0, 0.5):
            options = {"schedule": schedule, "damping": damping}
            for method in ("bp", "trw"):
                found = model.infer(method, **options)
                assert found.converged
                assert np.abs(found.node - exact.node).max() < 1e-6
                assert np.abs(found.edge - exact.edge).max(initial=0) < 1e-6
                assert found.log_partition == pytest.approx(log_z, abs=1e-6)
            found = model.infer("max-product", **options)
            assert found.converged
            assert found.log_partition == pytest.approx(best, abs=1e-6)
    assert model.decode("max-product").score == pytest.approx(best, abs=1e-6)


def test_every_schedule_is_exact_on_random_forests():
    for model in forests(60):
        every_schedule_is_exact(model)


@pytest.mark.nightly
def test_every_schedule_is_exact_on_2000_random_forests():
    for model in forests(2000, seed=1):
        every_schedule_is_exact(model)


def by_enumeration(model):
    """The node marginals, the max-marginals scaled to sum to 1, and log Z, from all labelings."""
    labelings = np.array(list(np.ndindex(*model.labels_per_node.tolist())))
    scores = np.array([model.score(labels) for labels in labelings])
    weights = np.exp(scores - scores.max())
    sums, best = np.zeros((2, *model.scores.node.shape))
    for labels, weight in zip(labelings, weights, strict=True):
        at = np.arange(len(labels)), labels
        sums[at] += weight
        best[at] = np.maximum(best[at], weight)
    log_z = scores.max() + np.log(weights.sum())
    return sums / weights.sum(), best / best.sum(axis=1, keepdims=True), log_z


def small_forests():
    """Random trees, a forest of factors over three variables, and a grid without loops."""
    rng = np.random.default_rng(7)
    for scale in (0.3, 1.0, 3.0):
        edges = [(int(rng.integers(i)), i) for i in range(1, 6)]
        pairs = scale * rng.normal(size=(5, 2, 2))
        yield fg.PairwiseMRF(scale * rng.normal(size=(6, 2)), pairs, edges)
    tables = [scope_and_scores(rng, scope) for scope in ([0, 1, 2], [2, 3, 4], [4, 5], [0])]
    yield fg.PairwiseMRF.from_factors([2] * 6, tables)
    yield random_grid(1, 6, 3, scale=1.5)
    yield masked_model("chain")


def scope_and_scores(rng, scope):
    return scope, rng.normal(size=(2,) * len(scope))


@pytest.mark.parametrize("tol", [1e-9, 0.1, 1, 10])
@pytest.mark.parametrize("damping", [0.0, 0.9])
@pytest.mark.parametrize("schedule", ["flooding", "residual"])
def test_forests_are_exact_whatever_the_tolerance(schedule, damping, tol):
    for model in small_forests():
        node, best, log_z = by_enumeration(model)
        for method in ("bp", "trw", "max-product"):
            found = model.infer(method, schedule=schedule, damping=damping, tol=tol)
            assert found.converged
            expected = best if method == "max-product" else node
            np.testing.assert_allclose(found.node, expected, atol=1e-8)
            if method != "max-product":
                assert found.log_partition == pytest.approx(log_z, abs=1e-8)


@pytest.mark.parametrize("rho", [None, np.full(6, 0.5)])
def test_no_message_is_missing_when_the_residual_schedule_stops(rho):
    """On loops, a tolerance that no first message exceeds is that of one pass of flooding."""
    model = random_model("complete", scale=0.3)
    residual, flooded = ResidualMessages(model, 0, 100.0, 0.0, rho), LogMessages(model, 0, 1, rho)
    change = residual.sweep(0.0)
    flooded.sweep(0.0)
    np.testing.assert_allclose(residual.messages, flooded.messages, atol=1e-12)
    assert change == pytest.approx(flooded.sweep(0.0))
    found = model.infer("bp", schedule="residual", tol=100.0)
    assert np.abs(found.node - 1 / 3).max() > 1e-3
    assert found.converged


def test_max_product_decodes_the_best_labeling_of_a_chain():
    node = np.array([[34, 0], [0, 28], [13, 0]], float)
    model = fg.PairwiseMRF(node, np.stack([18 * np.eye(2), 17 * np.eye(2)]), CHAIN)
    assert model.decode("max-product").score == 82


def test_residuals_do_not_depend_on_damping():
    """The residual is how far the undamped message would move."""
    model = random_grid(4, 4, 3, scale=2.0)
    own = fg.PairwiseMRF(*model.scores, model.graph.edges)
    for one in (model, own):
        plain, damped = (one.infer("bp", max_iter=1, damping=d).residuals for d in (0.0, 0.7))
        assert plain == pytest.approx(damped, rel=1e-12)


@pytest.mark.parametrize("damping", [0.0, 0.6])
def test_the_residual_schedule_stops_when_no_message_would_move(damping):
    model = random_model("complete", scale=1.5)
    messages = ResidualMessages(model, 0, 1e-7, damping)
    for _ in range(500):
        change = messages.sweep(damping)
        if change <= 1e-7:
            break
    assert change <= 1e-7
    flooded = LogMessages(model, 0, 1)
    flooded.messages = messages.messages.copy()
    assert flooded.sweep(0.0) == pytest.approx(change, rel=1e-6)  # the largest of all, as told


def test_the_largest_change_goes_first():
    model = random_model("star", scale=3.0)
    messages = ResidualMessages(model, 0, 0.0, 0.0)
    first = int(messages.queue.heap[0])
    assert messages.queue.priority[first] == messages.queue.priority.max()
    gaps = np.abs(messages.queue.pending - messages.messages).max(axis=1)
    np.testing.assert_allclose(messages.queue.priority, gaps)


@pytest.mark.parametrize("seed", range(10))
def test_the_tree_bound_holds_for_messages_that_have_not_converged(seed):
    model = random_model("complete", seed=seed, scale=6.0)
    for iterations in (1, 3, 10):
        found = model.infer("trw", max_iter=iterations, damping=0.0)
        assert found.kind == "upper bound"
        assert found.log_partition >= model.log_partition() - 1e-9


def test_trees_cover_every_edge_and_bound_every_label():
    model = random_model("complete", seed=3)
    cover = tree_cover(model.graph)
    assert cover.rho.sum() == pytest.approx(3)  # a tree on 4 nodes has 3 edges
    bound = LogMessages(model, 0, 1, cover.rho).tree_bound(cover)
    for i, c in np.ndindex(4, 3):
        assert bound.node[i, c] >= model.condition({i: c}).log_partition() - 1e-9
    np.testing.assert_allclose(bound.marginals.node.sum(axis=1), 1)
    np.testing.assert_allclose(bound.marginals.edge.sum(axis=(1, 2)), 1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("maximum", [0, 1])
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("labels", [2, 3])
def test_weights_equal_the_log_domain(shared, maximum, damping, labels):
    rng = np.random.default_rng(1)
    pairs = [(i, j) if rng.random() < 0.5 else (j, i) for i in range(9) for j in range(i)
             if rng.random() < 0.5]  # fmt: skip
    node = rng.normal(size=(10, labels))  # the last node has no neighbour
    node[2, 0] = -np.inf
    edge = 1.5 * rng.normal(size=(labels, labels) if shared else (len(pairs), labels, labels))
    model = fg.PairwiseMRF(node, edge, pairs)
    tables = [cls(model, maximum, 1) for cls in (LinearMessages, LogMessages)]
    assert_equal_sweeps(model, tables, damping, 1e-11)


@pytest.mark.parametrize(("shared", "symmetric"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("maximum", [0, 1])
@pytest.mark.parametrize("labels", [2, 3, 20])
def test_blocks_of_nodes_of_any_degree_equal_the_log_domain(shared, symmetric, maximum, labels):
    model = graph_of_hubs(np.random.default_rng(2), labels, shared=shared, symmetric=symmetric)
    tables = [cls(model, maximum, 2) for cls in (LinearMessages, LogMessages)]
    assert_equal_sweeps(model, tables, 0.2, 1e-11)


def test_trees_of_a_graph_whose_pairs_exceed_32_bits():
    chain = np.stack((np.arange(49_999), np.arange(1, 50_000)), axis=1)
    graph = Graph(50_000, np.concatenate((chain[::-1], [[49_997, 49_999]])))
    cover = tree_cover(graph)
    assert len(cover.orders) == 16
    assert cover.rho.sum() == pytest.approx(49_999)


def test_sweeps_of_mean_field_one_by_one_are_those_of_one_call():
    """A caller that follows the progress is called after each of them."""
    rng = np.random.default_rng(5)
    model = fg.PairwiseMRF.grid(
        3, 4, node_scores=rng.normal(size=(12, 3)), edge_scores=rng.normal(size=(3, 3))
    )
    followed: list[tuple[int, float]] = []
    single = model.infer("mean-field", progress=lambda *step: followed.append(step))
    together = model.infer("mean-field")
    assert single.converged
    assert single.residuals[-1] <= 1e-8 < single.residuals[-2]
    assert followed == [(i + 1, change) for i, change in enumerate(together.residuals.tolist())]
    assert single.node.tobytes() == together.node.tobytes()
    for limit in (1, 3):
        cut = model.infer("mean-field", max_iter=limit)
        assert cut.residuals.tolist() == together.residuals[:limit].tolist()
        assert (cut.iterations, cut.converged) == (limit, False)


def moved_between_tables(model, rng, by=700.0):
    """The same distribution: each end of an edge may add -by to a label there and +by to its node.

    Weights of the edge tables, and messages across them, then span far more than floats.
    """
    node, edge = model.scores.node.copy(), model.edge_stack.copy()
    for e, (i, j) in enumerate(model.graph.edges):
        first, second = rng.integers(node.shape[1], size=2)
        edge[e, first] -= by
        node[i, first] += by
        edge[e, :, second] -= by
        node[j, second] += by
    return model.with_scores(node, edge)


@pytest.mark.parametrize("name", FORESTS[2:])
@pytest.mark.parametrize("labels", [2, 3])
def test_messages_that_underflow_are_sums_of_logs(name, labels):
    """All cells of some labels of a message are below e^-575: two of them count."""
    rng = np.random.default_rng(labels)
    base = random_model(name, labels, seed=labels)
    log_z, node, edge, best = oracle.solve(*base.scores, base.graph.edges)
    model = moved_between_tables(base, rng)
    assert model.log_partition() == pytest.approx(log_z, abs=1e-10)
    for found in (
        model.marginals(),
        *(model.infer(method, schedule=schedule, damping=damping, tol=1e-11, max_iter=300)
          for method in ("bp", "trw") for schedule in ("flooding", "residual")
          for damping in (0.0, 0.3)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.node, node, atol=1e-9)
        np.testing.assert_allclose(found.edge, edge, atol=1e-9)
    for schedule in ("flooding", "residual"):
        found = model.infer("max-product", schedule=schedule)
        assert found.log_partition == pytest.approx(best, abs=1e-10)
    assert model.score(model.mode()) == pytest.approx(best, abs=1e-10)


@pytest.mark.parametrize("method", ["bp", "trw"])
def test_a_damped_message_is_sent_until_it_arrives(method):
    """Nothing else moves: the other node has nothing to say, and no message comes back."""
    model = fg.PairwiseMRF(np.array([[3.0, 0.0], [0.0, 0.0]]), 2.0 * np.eye(2), [(0, 1)])
    found = model.infer(method, schedule="residual", damping=0.5, tol=1e-9)
    assert found.converged
    np.testing.assert_allclose(found.node, model.marginals().node, atol=1e-8)
