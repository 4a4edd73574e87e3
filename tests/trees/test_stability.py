"""Scores on which determinants in plain float64 fail, against arithmetic in hundreds of digits."""

import math

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.kernels import elimination, matrix_tree, normal_form, stable
from fstgrad.trees.solution import solve
from tests.helpers.selection import in_turn
from tests.helpers.trees import KILLERS, mutual_heads, nested_pairs, normal
from tests.oracles import elimination as logarithmic
from tests.oracles import trees as oracle

GOAL = 1e-9


def digits_for(scores):
    """Decimal digits that outlast the cancellation in a determinant of these weights."""
    return 60 + int(1.5 * np.ptp(scores))


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("scores", KILLERS.values(), ids=KILLERS)
def test_known_killers(scores, single_root):
    distribution = fg.SpanningTrees(scores, single_root=single_root)
    digits = digits_for(scores)
    log_z, marginals = oracle.long_solution(scores, single_root=single_root, digits=digits)
    assert distribution.log_partition() == pytest.approx(log_z, abs=GOAL, rel=1e-14)
    np.testing.assert_allclose(distribution.marginals(), marginals, atol=GOAL)
    assert_probabilities(distribution.marginals())
    entropy = log_z - (marginals * scores).sum()
    assert distribution.entropy() == pytest.approx(entropy, abs=GOAL * (1 + np.ptp(scores)))


def assert_probabilities(marginals):
    assert marginals.min() >= 0
    assert marginals.max() <= 1
    np.testing.assert_allclose(marginals[:, 1:].sum(axis=0), 1, atol=GOAL)


@pytest.mark.parametrize("name, single_root", in_turn(KILLERS, [True, False]))
def test_hessian_products_of_killers(name, single_root):
    """Against the difference quotient of marginals in long arithmetic."""
    scores = KILLERS[name]
    v = np.random.default_rng(1).normal(size=scores.shape)
    step = 1e-9
    digits = digits_for(scores)
    ends = [
        oracle.long_solution(scores + sign * step * v, single_root=single_root, digits=digits)[1]
        for sign in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    product = fg.SpanningTrees(scores, single_root=single_root).covariance_product(v)
    # float64 scores and marginals leave the quotient 1e-16 * (1 + max |score|) / step of noise
    np.testing.assert_allclose(product, expected, atol=1e-6 * (1 + np.abs(scores).max() / 10))


@pytest.mark.parametrize("n", [1, 2, 7, 31, 33, 60])
@pytest.mark.parametrize("rest", [-1e9, -np.inf])
@pytest.mark.parametrize("single_root", [True, False])
def test_one_allowed_tree_has_no_entropy(n, rest, single_root):
    rng = np.random.default_rng(n)
    order = rng.permutation(n) + 1
    scores = np.full((n + 1, n + 1), rest)
    total = 0.0
    for i, dependent in enumerate(order):
        head = 0 if i == 0 else order[rng.integers(i)]
        scores[head, dependent] = rng.normal()
        total += scores[head, dependent]
    distribution = fg.SpanningTrees(scores, single_root=single_root)
    assert distribution.log_partition() == pytest.approx(total, abs=GOAL)
    assert distribution.entropy() == pytest.approx(0, abs=GOAL)
    np.testing.assert_allclose(
        distribution.marginals(), distribution.parts(distribution.mode()), atol=GOAL
    )
    np.testing.assert_allclose(distribution.entropy_and_gradient()[1], 0, atol=GOAL)


@pytest.mark.parametrize("n", [2, 7, 40])
@pytest.mark.parametrize("rest", [-1e9, -np.inf])
@pytest.mark.parametrize("single_root", [True, False])
def test_arcs_back_up_the_one_tree_change_nothing(n, rest, single_root):
    """They make cycles, or trees with another root arc, which costs 1e9."""
    rng = np.random.default_rng(n)
    order = rng.permutation(n) + 1
    scores = np.full((n + 1, n + 1), rest)
    for i, dependent in enumerate(order):
        head = 0 if i == 0 else order[rng.integers(i)]
        scores[head, dependent] = rng.normal()
        if head > 0:
            scores[dependent, head] = rng.normal()
    distribution = fg.SpanningTrees(scores, single_root=single_root)
    best = distribution.parts(distribution.mode())
    assert distribution.log_partition() == pytest.approx(scores[best > 0].sum(), abs=GOAL)
    assert distribution.entropy() == pytest.approx(0, abs=GOAL)
    np.testing.assert_allclose(distribution.marginals(), best, atol=GOAL)
    np.testing.assert_allclose(distribution.entropy_and_gradient()[1], 0, atol=GOAL)


@pytest.mark.parametrize("n", [3, 6, 35])
def test_a_certain_root_arc_leaves_the_digits_of_the_rest(n):
    """Word 1 hangs on the root, 2 on 1; that 1 may hang on 2 is of no use to a tree but to -1e9."""
    scores = np.random.default_rng(n).normal(size=(n + 1, n + 1))
    scores[:, [1, 2]] = -1e9
    scores[0] = -1e9
    scores[0, 1] = scores[1, 2] = scores[2, 1] = 0.25
    forced = np.where(scores == -1e9, -np.inf, scores)
    forced[2, 1] = -np.inf
    expected = fg.SpanningTrees(forced, single_root=False)
    found = fg.SpanningTrees(scores, single_root=True)
    assert found.log_partition() == pytest.approx(expected.log_partition(), abs=GOAL)
    assert found.entropy() == pytest.approx(expected.entropy(), abs=GOAL)
    np.testing.assert_allclose(found.marginals(), expected.marginals(), atol=GOAL)
    for mine, theirs in zip(
        found.entropy_and_gradient(), expected.entropy_and_gradient(), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=GOAL)


@pytest.mark.parametrize("single_root", [True, False])
def test_eliminations_of_sparse_tables(single_root):
    """Tables on which the root's one dependent is forced on the way, against enumeration."""
    rng = np.random.default_rng(12)
    tried = 0
    for _ in range(40):
        n = int(rng.integers(2, 5))
        scores = rng.normal(size=(n + 1, n + 1))
        scores[1:][rng.random((n, n + 1)) < 0.5] = -np.inf
        if oracle.exact_count(scores > -np.inf, single_root=single_root) == 0:
            continue
        tried += 1
        v = rng.normal(size=scores.shape)
        log_z, mean, covariance = oracle.moments(np.maximum(scores, -1e4), single_root=single_root)
        table, closed = np.empty(scores.shape), np.empty(n + 1, dtype=bool)
        shift, child = normal_form.write_normal_form(scores, n, single_root, 0.0, table, closed)
        assert child > 0
        gradient, marginals, change = np.zeros((3, *scores.shape))
        value = elimination.solve(
            np.exp(table), v, n, single_root, closed, gradient, marginals, change
        )
        out = np.empty((2, *scores.shape))
        logs = elimination.solve_logs(table, v[None], n, single_root, closed, gradient, out)
        twin = logarithmic.solve(scores, v, single=single_root)
        for found in (
            (value + shift, marginals, change), (logs + shift, *out),
            (twin.log_partition, twin.marginals, twin.change),
        ):  # fmt: skip
            assert found[0] == pytest.approx(log_z, abs=1e-12)
            np.testing.assert_allclose(found[1], mean, atol=1e-12)
            np.testing.assert_allclose(found[2], np.tensordot(covariance, v), atol=1e-12)
    assert tried > 15


@pytest.mark.parametrize("n", [1, 2, 3, 10, 32, 33, 50])
def test_cayley_counts(n):
    allowed = np.ones((n + 1, n + 1))
    many, single = (n + 1) ** (n - 1), n ** (n - 1)
    assert oracle.exact_count(allowed, single_root=False) == many
    assert oracle.exact_count(allowed, single_root=True) == single
    offset = np.random.default_rng(n).normal(size=n + 1) * 100
    scores = np.zeros((n + 1, n + 1)) + offset
    for single_root, count in ((False, many), (True, single)):
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        expected = math.log(count) + offset[1:].sum()
        assert distribution.log_partition() == pytest.approx(expected, abs=GOAL)
        assert distribution.entropy() == pytest.approx(math.log(count), abs=GOAL)


@pytest.mark.parametrize("single_root", [True, False])
def test_two_hundred_dependents(single_root):
    n = 200
    flat = fg.SpanningTrees(np.full((n + 1, n + 1), -200.0), single_root=single_root)
    count = n ** (n - 1) if single_root else (n + 1) ** (n - 1)
    assert flat.log_partition() == pytest.approx(math.log(count) - 200 * n, abs=GOAL)
    scores = normal(20, n=n, seed=4)
    distribution = fg.SpanningTrees(scores, single_root=single_root)
    assert_probabilities(distribution.marginals())
    # raising every arc into one dependent by x raises log Z by x and moves nothing else
    scores[:, 77] += 13
    moved = fg.SpanningTrees(scores, single_root=single_root)
    assert moved.log_partition() - distribution.log_partition() == pytest.approx(13, abs=GOAL)
    np.testing.assert_allclose(moved.marginals(), distribution.marginals(), atol=GOAL)


@pytest.mark.parametrize("density", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("single_root", [True, False])
def test_sparse_tables_against_exact_counts(density, single_root):
    rng = np.random.default_rng(int(10 * density))
    feasible = 0
    for _ in range(30):
        n = int(rng.integers(2, 9))
        allowed = rng.random((n + 1, n + 1)) < density
        np.fill_diagonal(allowed, False)
        count = oracle.exact_count(allowed, single_root=single_root)
        distribution = fg.SpanningTrees(np.where(allowed, 0.0, -np.inf), single_root=single_root)
        if count == 0:
            with pytest.raises(fg.InfeasibleError):
                distribution.log_partition()
            with pytest.raises(fg.InfeasibleError):
                distribution.mode()
            continue
        feasible += 1
        assert distribution.log_partition() == pytest.approx(math.log(count), abs=1e-12)
        assert distribution.entropy() == pytest.approx(math.log(count), abs=1e-12)
    assert feasible > 3


@pytest.mark.parametrize("single_root", [True, False])
def test_the_levels_agree(single_root):
    """Inverse, elimination in floats and on logarithms, and the latter's twin in numpy."""
    rng = np.random.default_rng(8)
    for n in (1, 2, 3, 8, 21, 40):
        scores = rng.normal(size=(1, n + 1, n + 1))
        v, u = rng.normal(size=(2, n + 1, n + 1))
        first = solve(scores, np.array([n]), single_root=single_root)
        assert first.scores is scores
        log_w = first.log_weights(0)
        closed = np.zeros(n + 1, dtype=bool)
        gradient, marginals, change = np.zeros((3, n + 1, n + 1))
        second = elimination.solve(
            np.exp(log_w), v, n, single_root, closed, gradient, marginals, change
        )
        out, log_gradient = np.empty((4, n + 1, n + 1)), np.empty((n + 1, n + 1))
        third = elimination.solve_logs(
            log_w, np.stack([v, u]), n, single_root, closed, log_gradient, out
        )
        twin = logarithmic.solve(log_w, v, single=single_root)
        product = first.covariance_product(v[None].copy())[0]
        other = first.covariance_product(u[None].copy())[0]
        assert second == pytest.approx(twin.log_partition, abs=1e-12)
        assert third == pytest.approx(twin.log_partition, abs=1e-12)
        for mine in (first.marginals[0], out[0], marginals):
            np.testing.assert_allclose(mine, twin.marginals, atol=1e-13)
        for mine in (product, out[1], change):
            np.testing.assert_allclose(mine, twin.change, atol=1e-12)
        np.testing.assert_allclose(out[2], other, atol=1e-12)
        off = ~np.eye(n + 1, dtype=bool)
        off[:, 0] = False
        np.testing.assert_allclose(np.exp(log_gradient)[off], gradient[off], rtol=1e-12)
        step = 1e-5
        ends = [
            logarithmic.solve(log_w + sign * step * u, v, single=single_root).change
            for sign in (1, -1)
        ]
        np.testing.assert_allclose(out[3], (ends[0] - ends[1]) / (2 * step), atol=1e-8)


def one_root_dependent():
    """Word 1 alone can hang on the root, and no other word can be its head."""
    scores = normal(1, n=5)
    scores[0, 2:] = scores[2:, 1] = -np.inf
    return scores


def forced_heads():
    """Masks leave word 1 the root as its head, and word 2 word 1."""
    scores = normal(1, n=5)
    scores[:, [1, 2]] = -1e9
    scores[0, 1] = scores[1, 2] = 0.0
    return scores


RUNGS = {
    "inverse": (normal(1), [True, False], None),
    "inverse with the root's dependent last": (
        one_root_dependent(), [True], ["invert_with_last"]
    ),
    "inverse in normal form": (forced_heads(), [True], ["write_normal_form", "invert_with_last"]),
    "elimination": (
        mutual_heads(), [True, False], ["write_normal_form", "invert_with_last", "first_order"]
    ),
    "elimination on logarithms": (
        nested_pairs(), [True, False], ["write_normal_form", "invert_with_last", "solve_logs"]
    ),
}  # fmt: skip


def record(monkeypatch, *names):
    """Return a list to which calls of these functions of `kernels.stable` are added."""
    calls = []
    for name in names:
        function = getattr(stable, name)
        monkeypatch.setattr(
            stable, name, lambda *xs, name=name, f=function: calls.append(name) or f(*xs)
        )
    return calls


@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_has_tables_that_need_it(rung, monkeypatch):
    """The kernel as Python, its calls recorded: the last one is the method that is trusted."""
    scores, roots, expected = RUNGS[rung]
    n = len(scores) - 1
    calls = record(
        monkeypatch, "invert_with_last", "write_normal_form", "first_order", "solve_logs"
    )
    for single_root in roots:
        tables, (log_z, relative) = np.empty((2, 1, n + 1, n + 1)), np.empty((2, 1))
        untrusted = matrix_tree.solve_batch(
            scores[None], np.array([n]), single_root, tables, log_z, relative
        )
        assert untrusted == (expected is not None)
        marginals, value = tables[1, 0], log_z[0]
        if untrusted:
            calls.clear()
            work = np.empty((5, n + 1, n + 1))
            marginals = work[2]
            value, _, _ = stable.solve_item.py_func(
                scores, single_root, False, work[0], work[1], marginals, work[3:]
            )
            assert calls[-len(expected) :] == expected
        wanted = logarithmic.solve(scores, np.zeros_like(scores), single=single_root)
        assert value == pytest.approx(wanted.log_partition, rel=1e-14, abs=1e-11)
        np.testing.assert_allclose(marginals, wanted.marginals, atol=1e-11)


@pytest.mark.parametrize("table, last", [(mutual_heads(), "solve"), (nested_pairs(), "solve_logs")])
def test_each_rung_of_the_second_order_has_tables_that_need_it(table, last, monkeypatch):
    calls = record(monkeypatch, "solve", "solve_logs")
    v = normal(1, n=len(table) - 1, seed=5)
    for single_root in (True, False):
        change = np.empty_like(v)
        stable.covariance_product.py_func(table, single_root, v, change)
        assert calls[-1] == last
        wanted = logarithmic.solve(table, v, single=single_root)
        np.testing.assert_allclose(change, wanted.change, atol=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
def test_digits_as_two_words_become_mutual_heads(single_root):
    """The inverse loses a digit with each power of ten of the gradient; it gives up in time."""
    by_inverse, by_elimination = [], []
    for height in range(24):
        for seed in range(3):
            v, scores = np.random.default_rng(seed).normal(size=(2, 8, 8))
            scores[[2, 5], [5, 2]] += height
            found = solve(scores[None], np.array([7]), single_root=single_root)
            wanted = logarithmic.solve(scores, v, single=single_root)
            change = found.covariance_product(v[None].copy())[0]
            assert found.log_partition[0] == pytest.approx(wanted.log_partition, abs=5e-12)
            np.testing.assert_allclose(found.marginals[0], wanted.marginals, atol=5e-12)
            np.testing.assert_allclose(change, wanted.change, atol=1e-11)
            is_plain = found.scores is found.given and not found.ill_conditioned()[0]
            (by_inverse if is_plain else by_elimination).append(found.gradient.max())
    assert 5e3 < max(by_inverse) < min(by_elimination) < 5e4


def test_a_bad_item_leaves_the_batch_alone():
    tables = np.stack([normal(1, n=7), mutual_heads(), normal(50), normal(1, n=7, seed=9)])
    batch = fg.SpanningTrees(tables, single_root=True)
    for i, table in enumerate(tables):
        alone = fg.SpanningTrees(table, single_root=True)
        assert batch.log_partition()[i] == alone.log_partition()
        np.testing.assert_array_equal(batch.marginals()[i], alone.marginals())
        np.testing.assert_array_equal(
            batch.entropy_and_gradient()[1][i], alone.entropy_and_gradient()[1]
        )


@pytest.mark.parametrize("single_root", [True, False])
def test_long_sentences_keep_their_digits(single_root):
    """The inverse, without exchanges of rows, against the elimination without subtractions."""
    for n, sd in ((63, 2.0), (130, 1.0), (131, 3.0)):
        scores = normal(sd, n=n, seed=n)
        found = solve(scores[None], np.array([n]), single_root=single_root)
        assert found.scores.base is scores
        closed = np.zeros(n + 1, dtype=bool)
        gradient, marginals = np.zeros((2, n + 1, n + 1))
        value = elimination.first_order(
            np.exp(found.log_weights(0)), n, single_root, closed, gradient, marginals
        )
        top = np.where(np.eye(n + 1, dtype=bool), -np.inf, scores)[:, 1:].max(axis=0).sum()
        assert found.relative[0] == pytest.approx(found.log_partition[0] - top, abs=1e-11)
        log_z = logarithmic.solve(scores, 0 * scores, single=single_root).log_partition
        assert found.log_partition[0] == pytest.approx(log_z, abs=1e-11)
        assert np.isfinite(value)
        np.testing.assert_allclose(found.marginals[0], marginals, atol=1e-12)
