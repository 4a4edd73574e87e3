"""Images are (height, width) of the grid; other shapes are errors, even if their sizes fit."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.estimator import MRFClassifier

GRID = fg.PairwiseMRF.grid(2, 3, np.zeros((6, 2)), np.eye(2))
DIAGONAL = fg.PairwiseMRF.grid(2, 3, np.zeros((6, 2)), np.eye(2), connectivity=np.int64(8))
CHAIN = fg.PairwiseMRF(np.zeros((6, 2)), np.eye(2), [(i, i + 1) for i in range(5)])
IMAGES = np.random.default_rng(0).normal(size=(2, 2, 2, 3))  # items, labels, height, width
GOLD = np.array([[[0, 1, 1], [1, 0, 1]], [[1, 0, 0], [0, 0, 1]]])
NODES = IMAGES.reshape(2, 2, 6).transpose(0, 2, 1)
WRONG = {
    "width first": (IMAGES.transpose(0, 1, 3, 2), GOLD.transpose(0, 2, 1), GRID),
    "labels last": (IMAGES.transpose(0, 2, 3, 1), GOLD, GRID),
    "no grid": (IMAGES, GOLD, CHAIN),
}


def libraries():
    """The modules of PyTorch and JAX and their arrays, as far as they are installed."""
    torch = pytest.importorskip("torch")
    import fstgrad.torch as fgt

    yield fgt, lambda array: torch.tensor(array), {"reduction": "none"}
    jnp = pytest.importorskip("jax.numpy")
    import fstgrad.jax as fgj

    yield fgj, jnp.asarray, {}


def test_images_of_tensors():
    for module, array, options in libraries():
        edge = array(np.eye(2))
        for graph in (GRID, DIAGONAL):
            expected = [
                graph.with_scores(node, np.eye(2)).nll(gold.ravel())[0]
                for node, gold in zip(NODES, GOLD, strict=True)
            ]
            value = module.mrf_nll(array(IMAGES), edge, array(GOLD), graph, **options)
            np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-5)
        log_z = [GRID.with_scores(node, np.eye(2)).log_partition() for node in NODES]
        found = module.mrf_log_partition(array(IMAGES), edge, GRID)
        np.testing.assert_allclose(np.asarray(found), log_z, rtol=1e-5)
        assert module.mrf_marginals(array(IMAGES), edge, GRID).node.shape == (2, 6, 2)


@pytest.mark.parametrize("case", WRONG)
def test_other_shapes_of_tensors(case):
    nodes, gold, graph = WRONG[case]
    for module, array, _ in libraries():
        scores, edge = array(np.ascontiguousarray(nodes)), array(np.eye(2))
        labels = array(np.ascontiguousarray(gold))
        for call in (
            lambda: module.mrf_nll(scores, edge, labels, graph),  # noqa: B023
            lambda: module.mrf_log_partition(scores, edge, graph),  # noqa: B023
            lambda: module.mrf_marginals(scores, edge, graph),  # noqa: B023
            lambda: module.RandomFields(scores, edge, graph),  # noqa: B023
        ):
            with pytest.raises(fg.InvalidInputError, match=r"node_scores is an image of \(height"):
                call()


def test_gold_of_another_shape():
    turned = np.ascontiguousarray(GOLD.transpose(0, 2, 1))
    for module, array, _ in libraries():
        with pytest.raises(fg.InvalidInputError, match="gold is an image"):
            module.mrf_nll(array(IMAGES), array(np.eye(2)), array(turned), GRID)
    for graph, gold in ((GRID, turned[0]), (CHAIN, GOLD[0])):
        with pytest.raises(fg.InvalidInputError, match="gold is an image"):
            graph.nll(gold)
    assert GRID.nll(GOLD[0])[0] == GRID.nll(GOLD[0].ravel())[0]


def test_images_of_the_classifier():
    X, y = IMAGES.transpose(0, 2, 3, 1), GOLD
    fitted = MRFClassifier(GRID, max_iter=2).fit(X, y)
    assert fitted.score(X, y) == fitted.score(X.reshape(2, 6, 2), y.reshape(2, 6))
    turned = X.transpose(0, 2, 1, 3), y.transpose(0, 2, 1)
    for graph, features, labels, name in (
        (GRID, turned[0], turned[1], "X"), (GRID, X, turned[1], "y"), (GRID, IMAGES, y, "X"),
        (CHAIN, X, y, "X"),
    ):  # fmt: skip
        with pytest.raises(fg.InvalidInputError, match=f"{name} is an image"):
            MRFClassifier(graph).fit(features, labels)


def test_one_target_for_several_items():
    """A target or a table of costs is given to each item, or an error; nothing is broadcast."""
    torch = pytest.importorskip("torch")
    import fstgrad.torch as fgt

    frames, trees = torch.zeros(5, 4, 3), torch.zeros(2, 3, 3)
    edit = fg.EditDistance(fg.Alphabet("ab"))
    beams = torch.zeros(2, 1, 1, dtype=torch.int64)
    for call, words in (
        (lambda: fgt.ctc_nll(frames, torch.tensor([1, 2, 1, 2, 1])), r"gold has the shape \(5,\)"),
        (lambda: fgt.ctc_nll(frames[0], torch.tensor([[1, 2]])), r"gold has the shape \(1, 2\)"),
        (lambda: fgt.nbest_risk(trees[:, :1, 0], beams, torch.tensor([0, 1]), edit), "references"),
        (
            lambda: fgt.spanning_tree_partial_nll(trees, torch.tensor([0, 1]), single_root=True),
            r"allowed has the shape \(2,\)",
        ),
        (lambda: fgt.spanning_tree_risk(trees, torch.ones(3), single_root=True), "costs has"),
    ):
        with pytest.raises(fg.InvalidInputError, match=words):
            call()
    shared = fgt.spanning_tree_risk(trees, torch.ones(3, 3), single_root=True)
    assert shared.tolist() == pytest.approx([2, 2])
