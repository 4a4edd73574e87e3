"""Constraints for each item of a batch, and likelihoods of partial annotation, by enumeration."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import trees as oracle

families = pytest.mark.parametrize(
    "family, single_root",
    [(f, s) for f in (fg.SpanningTrees, fg.ProjectiveTrees) for s in (True, False)],
)


def agreeing(scores, single_root, projective, fits):
    """log Z and marginals of the trees that fit."""
    structures, tables = oracle.tables(scores.shape, single_root=single_root, projective=projective)
    kept = [t for s, t in zip(structures, tables, strict=True) if fits(s)]
    totals = np.array([(t * scores).sum() for t in kept])
    log_z = np.logaddexp.reduce(totals)
    return log_z, np.tensordot(np.exp(totals - log_z), kept, axes=1)


@families
@pytest.mark.parametrize("labels", [None, 2])
def test_partial_likelihoods(family, single_root, labels):
    rng = np.random.default_rng(0)
    n = 3 if labels else 4
    shape = (2, n + 1, n + 1) + ((labels,) if labels else ())
    scores = rng.normal(size=shape)
    known = np.array([[-1, 1, -1, 2], [2, -1, -1, -1]])[:, :n]
    if labels:
        known = np.stack([known, [[1, -1, 0], [-1, -1, 1]]], axis=-1)
    trees = family(scores, single_root=single_root, labeled=labels is not None)
    value, gradient = trees.partial_nll(known)
    projective = family is fg.ProjectiveTrees
    for i in range(2):
        free = agreeing(scores[i], single_root, projective, lambda s: True)
        held = agreeing(
            scores[i], single_root, projective,
            lambda s, i=i: np.all((s == known[i]) | (known[i] == -1)),
        )  # fmt: skip
        assert value[i] == pytest.approx(free[0] - held[0], abs=1e-12)
        np.testing.assert_allclose(gradient[i], free[1] - held[1], atol=1e-12)
    # the same as a table of what is allowed
    mask = np.ones(shape, dtype=bool)
    for i, d in np.ndindex(2, n):
        head = known[i, d, 0] if labels else known[i, d]
        if head >= 0:
            mask[i, np.arange(n + 1) != head, d + 1] = False
        if labels and known[i, d, 1] >= 0:
            mask[i, :, d + 1, 1 - known[i, d, 1]] = False
    other = trees.partial_nll(mask)
    np.testing.assert_array_equal(other[0], value)
    np.testing.assert_array_equal(other[1], gradient)
    whole = trees.sample(1, 0)[0]
    np.testing.assert_allclose(trees.partial_nll(whole)[0], trees.nll(whole)[0], atol=1e-12)
    assert not trees.partial_nll(np.full_like(known, -1))[1].any()
    ignored = trees.partial_nll(np.where(known == -1, -100, known))
    np.testing.assert_array_equal(ignored[0], value)
    np.testing.assert_array_equal(ignored[1], gradient)


@families
def test_constraints_of_each_item(family, single_root):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3, 5, 5))
    required, forbidden = [[(3, 1)], [], [(0, 2), (2, 1)]], [[], [(0, 1), (2, 3)], [(1, 4)]]
    batch = family(scores, single_root=single_root)
    held = batch.with_arcs(required=required, forbidden=forbidden)
    for i in range(3):
        alone = family(scores[i], single_root=single_root).with_arcs(
            required=required[i], forbidden=forbidden[i]
        )
        assert held.log_partition()[i] == pytest.approx(alone.log_partition(), abs=1e-12)
        for head, dependent in required[i]:
            assert held.marginals()[i, head, dependent] == pytest.approx(1, abs=1e-12)
        for arc in forbidden[i]:
            assert held.marginals()[(i, *arc)] == 0


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda t: t.partial_nll([-1, 0]), ["shape (2,)", "-1 where nothing is known"]),
        (lambda t: t.partial_nll([-1, 0, 4]), ["known[2] is 4"]),
        (lambda t: t.partial_nll(np.ones((3, 3), bool)), ["(3, 3)", "(4, 4)"]),
        (lambda t: t.with_arcs(required=[[(0, 1)], [(1, 2)]]), ["required", "2 items", "has 1"]),
        (lambda t: t.with_arcs(allowed=[1, 2, 0.5]), ["dtype float64"]),
    ],
)
def test_bad_constraints(call, words):
    with pytest.raises(fg.InvalidInputError) as caught:
        call(fg.SpanningTrees(np.zeros((4, 4)), single_root=True))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("labels", [2, 5])
def test_labels_of_an_annotation_are_those_of_the_scores(labels):
    trees = fg.SpanningTrees(np.zeros((3, 3, labels)), single_root=True)
    nll, _ = trees.partial_nll([[0, labels - 1], [1, -1]])
    assert nll == pytest.approx(np.log(2 * labels), abs=1e-12)
    with pytest.raises(fg.InvalidInputError, match=f"is {labels}; indices run from -1 to"):
        trees.partial_nll([[0, labels], [1, -1]])


def test_annotation_that_no_tree_has():
    trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    for known, cycle in (([2, 1, -1], "1 <- 2 <- 1"), ([-1, 2, -100], "2 <- 2")):
        with pytest.raises(fg.InvalidInputError, match=f"known has a cycle of heads, {cycle};"):
            trees.partial_nll(known)
    with pytest.raises(fg.InfeasibleError):
        trees.partial_nll([0, 0, -1])
    assert fg.SpanningTrees([[0.0]], single_root=False).partial_nll([])[0] == 0.0
