"""`fg.best_tree` against the mode of the distribution."""

import numpy as np
import pytest

import fstgrad as fg

both = pytest.mark.parametrize("single_root", [True, False])


@both
def test_the_best_tree_by_itself_is_the_mode(single_root):
    """Masks of any size, ties, other layouts and types, batches and empty sentences."""
    rng = np.random.default_rng(11)
    for trial in range(40):
        n = int(rng.integers(0, 9))
        scores = rng.normal(size=(n + 1, n + 1))
        if trial % 4 == 1:
            scores = np.round(scores)
        if trial % 4 == 2:
            mask = rng.choice([-1e4, -1e30, -1e300, np.finfo(np.float32).min])
            scores[rng.random(scores.shape) < 0.5] = mask
        expected = fg.SpanningTrees(scores, single_root=single_root).mode()
        for table in (scores, np.asfortranarray(scores), np.repeat(scores, 2, axis=1)[:, ::2]):
            found = fg.best_tree(table, single_root=single_root)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        fg.best_tree(scores.tolist(), single_root=np.bool_(single_root)), expected
    )
    batch = rng.normal(size=(2, 3, 5, 5))
    heads = fg.best_tree(batch, single_root=single_root)
    for place in np.ndindex(2, 3):
        np.testing.assert_array_equal(
            heads[place], fg.best_tree(batch[place], single_root=single_root)
        )


@pytest.mark.parametrize(
    "scores, single_root, error, words",
    [
        (np.full((3, 3), np.nan), True, fg.InvalidInputError, r"scores\[0, 1\] is nan"),
        ([[0, np.inf], [0, 0]], False, fg.InvalidInputError, r"scores\[0, 1\] is inf"),
        (np.zeros((3, 4)), True, fg.InvalidInputError, r"\(3, 4\)"),
        (np.zeros((0, 0)), True, fg.InvalidInputError, r"\(0, 0\)"),
        (np.zeros(3), True, fg.InvalidInputError, r"\(3,\)"),
        ("x", True, fg.InvalidInputError, "numbers"),
        (np.zeros((3, 3)), 1, fg.InvalidInputError, "single_root"),
        (np.full((3, 3), -np.inf), True, fg.InfeasibleError, r"dependents \[1, 2\]"),
    ],
)
def test_the_best_tree_of_bad_tables(scores, single_root, error, words):
    with pytest.raises(error, match=words):
        fg.best_tree(scores, single_root=single_root)
