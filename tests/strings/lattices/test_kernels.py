"""The kernels of the lattices against their twins, and the bounds against enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fstgrad as fg
from fstgrad.losses.automata.semiring import INF
from fstgrad.strings.lattices import kernels, rows
from fstgrad.strings.lattices.graph import Flow
from tests.helpers.losses import make_loss
from tests.oracles import lattice_kernels as twins
from tests.oracles.lattices import all_paths
from tests.strings.lattices.random_lattice import ABC, RandomLattice

SETTINGS = settings(max_examples=20, deadline=None, derandomize=True)
SEEDS = st.integers(0, 2**32 - 1)
KINDS = ["edit", "factored", "confusion", "smith-waterman", "hamming", "user-tropical"]


def lattice_of(seed):
    case = RandomLattice(seed)
    return case.lattice() if case.paths.paths else None


@SETTINGS
@given(seed=SEEDS)
def test_passes(seed):
    lattice = lattice_of(seed)
    if lattice is None:
        return
    graph, weight = lattice.graph, lattice.scores
    flow = Flow.of(graph, weight)
    np.testing.assert_allclose(flow.beta, twins.log_sums_ahead(graph, weight), atol=1e-12)
    np.testing.assert_allclose(flow.visit, twins.visits(graph, flow.share), atol=1e-12)
    value = np.random.default_rng(seed).normal(size=lattice.num_arcs)
    for kernel, twin in (
        (kernels.sums.means_after, twins.means_after),
        (kernels.sums.means_before, twins.means_before),
    ):
        mean = np.zeros(lattice.num_states)
        kernel(mean, graph.source, graph.nextstate, flow.share, value)
        np.testing.assert_allclose(mean, twin(graph, flow.share, value), atol=1e-12)


def machine_of(kind, seed):
    rng = np.random.default_rng(seed)
    target = tuple(rng.integers(3, size=int(rng.integers(1, 5))).tolist())
    loss, _ = make_loss(kind, rng, ABC, target)
    return loss.against(np.array(target)).machine, rng


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(seed=SEEDS)
def test_rows_and_steps_of_pairs(kind, seed):
    machine, rng = machine_of(kind, seed)
    size, eps = machine.num_states, machine.epsilon
    row = np.where(rng.random((5, size)) < 0.3, INF, rng.integers(-9, 9, (5, size)))
    gap = np.where(rng.random((size, size)) < 0.2, INF, rng.integers(-9, 9, (size, size)))
    lower = np.where(rng.random(size) < 0.2, INF, rng.integers(0, 9, size))
    epsilons = twins.closure(size, eps.source, eps.nextstate, eps.weight)
    np.testing.assert_array_equal(
        kernels.rows.advance(row, eps.source, eps.nextstate, eps.weight, False),
        twins.advanced(row, epsilons),
    )
    scratch, before = np.empty((2, size, size), dtype=np.int64)
    for arcs in machine.arcs:
        step = twins.matrix(size, arcs.source, arcs.nextstate, arcs.weight)
        np.testing.assert_array_equal(
            kernels.rows.advance(row, arcs.source, arcs.nextstate, arcs.weight, True),
            twins.advanced(row, step),
        )
        kernels.rows.pair_step(
            gap, lower, arcs.source, arcs.nextstate, arcs.weight, scratch, before
        )
        np.testing.assert_array_equal(twins.saturated(before), twins.pair_bounds(gap, lower, step))
    closed = gap.copy()
    kernels.rows.pair_closure(closed, eps.source, eps.nextstate, eps.weight)
    np.testing.assert_array_equal(
        twins.saturated(closed), twins.pair_bounds(gap, np.zeros(size, dtype=np.int64), epsilons)
    )
    mine = row.copy()
    offset, alive = np.zeros(5, dtype=np.int64), np.zeros(5, dtype=bool)
    kernels.rows.prune(mine, gap, lower, offset, alive)
    for i in range(5):
        expected = twins.pruned(row[i], gap, lower)
        assert alive[i] == (expected is not None)
        if expected is not None:
            np.testing.assert_array_equal(mine[i], expected)


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(seed=SEEDS)
def test_bounds_hold_for_every_continuation(kind, seed):
    """c_k(y) - c_j(y) <= gap[q, j, k] and lower <= c_j(y) <= upper, for all paths from all q."""
    lattice = lattice_of(seed)
    if lattice is None:
        return
    machine, _ = machine_of(kind, seed)
    size, graph = machine.num_states, lattice.graph
    classes = np.where(lattice.label < 0, -1, machine.class_of[lattice.label])
    barred = np.zeros((graph.num_states, size), dtype=np.bool_)
    lower, gap = rows.pair_bounds(graph, classes, machine, barred)
    low, high = rows.cell_bounds(graph, classes, machine, barred)
    np.testing.assert_array_equal(low, lower)
    eps = machine.epsilon
    epsilons = twins.closure(size, eps.source, eps.nextstate, eps.weight)
    arcs = [
        (int(s), int(t), int(c), 0.0)
        for s, t, c in zip(graph.source, graph.nextstate, classes, strict=True)
    ]
    for state in range(graph.num_states):
        best = np.full(size, INF)
        for string in {path[1] for path in all_paths(arcs, state, {graph.num_states - 1: 0.0})}:
            cost = twins.saturated((epsilons + machine.final).min(axis=1))
            for c in reversed(string):
                own = machine.arcs[c]
                step = twins.matrix(size, own.source, own.nextstate, own.weight)
                cost = twins.saturated((twins.advanced(epsilons, step) + cost).min(axis=1))
            best = np.minimum(best, cost)
            finite = cost < INF
            assert np.all(cost <= twins.saturated(high[state]))
            difference = np.where(finite[None, :], cost[None, :] - cost[:, None], INF)
            assert np.all(difference[finite] <= twins.saturated(gap[state])[finite])
        np.testing.assert_array_equal(twins.saturated(lower[state]), best)


@pytest.mark.parametrize("kind", KINDS)
def test_without_room_for_pairs_the_result_is_the_same(kind, monkeypatch):
    rng = np.random.default_rng(0)
    target = np.array([0, 1, 2, 0])
    loss, _ = make_loss(kind, rng, ABC, tuple(target.tolist()))
    slots = [[("a", 0.1), ("b", 0.4)], [("b", 0.0), ("c", 0.2)]] * 2
    lattice = fg.Lattice.from_confusion_network(slots, ABC)
    with_pairs, gradient = fg.risk(lattice, target, loss)
    monkeypatch.setattr(rows, "_GAP_MEMORY", 0)
    value, other = fg.risk(lattice, target, loss)
    assert value == pytest.approx(with_pairs, abs=1e-12)
    np.testing.assert_allclose(gradient, other, atol=1e-12)


def test_pairs_keep_long_lattices_linear():
    """200 words, three of them possible at each position: one row a state where none repeats."""
    rng = np.random.default_rng(1)
    words = fg.Alphabet(f"w{i}" for i in range(2000))
    order = rng.permutation(2000)[:600].reshape(200, 3)
    slots = [[(words.symbols[w], 0.0) for w in alternatives] for alternatives in order]
    lattice = fg.Lattice.from_confusion_network(slots, words)
    b = lattice.compile(fg.EditDistance(words, factored=True), order[:, 0])
    assert b.num_states == lattice.num_states
    # each position is wrong with probability 2/3
    value, _ = fg.risk(lattice, b)
    assert value == pytest.approx(200 * 2 / 3, abs=1e-10)


def test_a_mask_that_a_path_avoids_is_not_pushed():
    lattice = fg.Lattice.from_text("0 1 a 0.5\n1 2 b\n0 2 b 1\n2", fg.Alphabet("ab"))
    weight = np.array([-1e12, 0.3, 0.2])
    pushed, offset = lattice.graph.pushed(weight)
    assert offset == 0.0
    np.testing.assert_array_equal(pushed, weight)


@SETTINGS
@given(seed=SEEDS, size=st.integers(1, 7))
def test_rows_pruned_by_single_cells_keep_every_least_cost(seed, size):
    rng = np.random.default_rng(seed)
    row = np.where(rng.random((20, size)) < 0.2, INF, rng.integers(0, 6, (20, size)))
    lower = np.where(rng.random(size) < 0.1, INF, rng.integers(0, 4, size))
    upper = np.where(rng.random(size) < 0.1, INF, np.minimum(lower + rng.integers(0, 3, size), INF))
    pruned, offset, alive = row.copy(), np.zeros(20, np.int64), np.zeros(20, np.bool_)
    kernels.rows.prune_by_cells(pruned, lower, upper, offset, alive)
    finite = (row < INF) & (lower < INF)
    np.testing.assert_array_equal(alive, finite.any(axis=1))
    np.testing.assert_array_equal(np.where(pruned < INF, 0, INF)[~finite], INF)
    assert (pruned[alive].min(axis=1) == 0).all()
    for ahead in (lower, upper, np.where(rng.random(size) < 0.5, lower, upper)):
        before = np.where(finite, row + np.minimum(ahead, INF // 2), INF).min(axis=1)
        after = np.where(pruned < INF, pruned + np.minimum(ahead, INF // 2), INF).min(axis=1)
        np.testing.assert_array_equal(before[alive], (after + offset)[alive])
    # by the table of pairs as many cells stay
    table = np.clip(upper - lower[:, None], -INF, INF)
    by_pairs = row.copy()
    kernels.rows.prune(by_pairs, table, lower, np.zeros(20, np.int64), np.zeros(20, np.bool_))
    np.testing.assert_array_equal((by_pairs < INF).sum(axis=1), (pruned < INF).sum(axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_losses_along_a_lattice_without_a_table_of_pairs(kind, monkeypatch):
    for seed in range(10):
        lattice, rng = lattice_of(seed), np.random.default_rng(seed)
        if lattice is None:
            continue
        target = rng.integers(3, size=4)
        loss, _ = make_loss(kind, rng, ABC, tuple(target.tolist()))
        try:
            wanted = fg.risk(lattice, lattice.compile(loss, target))
        except fg.InfeasibleError:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(rows, "_GAP_MEMORY", 0)
            found = fg.risk(lattice, lattice.compile(loss, target))
        assert found[0] == pytest.approx(wanted[0], abs=1e-10)
