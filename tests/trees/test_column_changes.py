"""Updates of one column against solutions of the whole table."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.solution import change_column

both = pytest.mark.parametrize("single_root", [True, False])


def assert_same(found, expected):
    v = np.random.default_rng(0).normal(size=found.scores.shape)
    assert found.log_partition() == pytest.approx(expected.log_partition(), abs=1e-10)
    np.testing.assert_allclose(found.marginals(), expected.marginals(), atol=1e-10)
    assert found.entropy() == pytest.approx(expected.entropy(), abs=1e-10)
    np.testing.assert_allclose(
        found.covariance_product(v), expected.covariance_product(v), atol=1e-9
    )
    np.testing.assert_allclose(
        found.covariance_matrix() if len(v) < 8 else 0,
        expected.covariance_matrix() if len(v) < 8 else 0,
        atol=1e-9,
    )


@both
@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_a_chain_of_updates(n, single_root, monkeypatch):
    """Fifty changes, of a column or a score, some of them to -inf; most without a new solution."""
    rng = np.random.default_rng(n)
    solved = []
    original = fg.SpanningTrees._solve
    monkeypatch.setattr(fg.SpanningTrees, "_solve", lambda self: solved.append(0) or original(self))
    trees = fg.SpanningTrees(rng.normal(size=(n + 1, n + 1)), single_root=single_root)
    trees.log_partition()
    updated = 0
    for step in range(50):
        dependent = int(rng.integers(1, n + 1))
        if step % 3:
            head = int(rng.choice([h for h in range(n + 1) if h != dependent]))
            forbid = step % 5 == 0 and n > 2 and head > 0
            trees = trees.with_score(head, dependent, -np.inf if forbid else rng.normal())
        else:
            trees = trees.with_column(dependent, rng.normal(size=n + 1) + 3 * rng.normal())
        before = len(solved)
        trees.log_partition()
        updated += len(solved) == before
        assert_same(trees, fg.SpanningTrees(trees.scores, single_root=single_root))
    assert updated > 40


@both
@pytest.mark.parametrize("mask", [-1e4, -1e9, -1e30, -1e300, np.finfo(np.float32).min])
def test_columns_of_masks(mask, single_root):
    """All heads but one are masked, the root among those left or not."""
    rng = np.random.default_rng(14)
    for n in (2, 4):
        trees = fg.SpanningTrees(rng.normal(size=(n + 1, n + 1)), single_root=single_root)
        for dependent in range(1, n + 1):
            for head in set(range(n + 1)) - {dependent}:
                column = np.full(n + 1, mask)
                column[head] = 3 * rng.normal()
                found = trees.with_column(dependent, column)
                expected = fg.SpanningTrees(found.scores, single_root=single_root)
                assert found.log_partition() == pytest.approx(expected.log_partition(), abs=1e-9)
                np.testing.assert_allclose(found.marginals(), expected.marginals(), atol=1e-9)


@both
def test_what_is_not_safe_is_solved_anew(single_root):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(6, 6))
    trees = fg.SpanningTrees(scores, single_root=single_root)
    for column in (np.full(6, -np.inf), scores[:, 2] - 1e9, np.where(np.arange(6) == 3, 60, -1e30)):
        changed = trees.with_column(2, column)
        table = scores.copy()
        table[:, 2] = np.where(np.arange(6) == 2, scores[2, 2], column)
        expected = fg.SpanningTrees(table, single_root=single_root)
        if not np.isfinite(column).any():
            with pytest.raises(fg.InfeasibleError):
                changed.log_partition()
            continue
        assert changed.log_partition() == pytest.approx(expected.log_partition(), rel=1e-12)
        np.testing.assert_allclose(changed.marginals(), expected.marginals(), atol=1e-9)
        assert changed.entropy() == pytest.approx(expected.entropy(), abs=1e-9)
    scores[1, 2] += 40
    scores[2, 1] += 40
    hard = fg.SpanningTrees(scores, single_root=single_root)
    assert change_column(hard._solution, 3, scores[None] + 1) is None
    assert_same(hard.with_column(3, scores[:, 4]), hard.with_column(3, scores[:, 4]))


def test_bad_updates():
    trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    for call, words in (
        (lambda: trees.with_column(0, np.zeros(4)), "dependent"),
        (lambda: trees.with_column(1, np.zeros(3)), r"\(3,\)"),
        (lambda: trees.with_score(4, 1, 0.0), "head"),
        (lambda: trees.with_score(0, 1, np.nan), "nan"),
    ):
        with pytest.raises(fg.InvalidInputError, match=words):
            call()
    batch = fg.SpanningTrees(np.zeros((2, 4, 4)), single_root=True)
    with pytest.raises(fg.NotSupportedError, match="with_scores"):
        batch.with_column(1, np.zeros(4))
