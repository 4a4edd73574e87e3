"""Decoding, n-best lists, samples and minimum Bayes risk of every family, batched on tensors."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

ABC = fg.Alphabet("ab")
EDIT = fg.EditDistance(ABC)
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))
LATTICES = [
    fg.Lattice.from_nbest(["ab", "abb", "ba"], np.zeros(3), ABC),
    fg.Lattice.from_nbest(["b", "ab"], np.zeros(2), ABC),
]


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def lattice_scores():
    return [LATTICES[0].scatter(normal(3)), LATTICES[1].scatter(normal(2, seed=1))]


def arrays(tensors):
    return [tensor.double().numpy() for tensor in tensors]


FAMILIES = {
    "strings": (
        lambda: fgt.Strings(normal(2, 3, 3, 2), [3, 2]),
        lambda: [fg.StringDistribution(own[:size]) for own, size in
                 zip(arrays(normal(2, 3, 3, 2)), [3, 2], strict=True)],
    ),
    "lattices": (
        lambda: fgt.LatticeStrings(lattice_scores(), LATTICES),
        lambda: [lattice.with_scores(own) for lattice, own in
                 zip(LATTICES, arrays(lattice_scores()), strict=True)],
    ),
    "trees": (
        lambda: fgt.Trees(normal(2, 4, 4), single_root=True, lengths=[3, 2]),
        lambda: [fg.SpanningTrees(own[: size + 1, : size + 1], single_root=True, labeled=False)
                 for own, size in zip(arrays(normal(2, 4, 4)), [3, 2], strict=True)],
    ),
    "labeled trees": (
        lambda: fgt.Trees(normal(2, 4, 4, 2), single_root=False, labeled=True),
        lambda: [fg.SpanningTrees(own, single_root=False, labeled=True)
                 for own in arrays(normal(2, 4, 4, 2))],
    ),
    "random fields": (
        lambda: fgt.RandomFields(normal(2, 3, 2), normal(2, 2), GRAPH),
        lambda: [GRAPH.with_scores(own, normal(2, 2).double().numpy())
                 for own in arrays(normal(2, 3, 2))],
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", FAMILIES)


def cut(structure):
    """A padded structure as nested lists without its padding."""
    rows = structure.tolist()
    return [row for row in rows if np.max(row) >= 0]


@EVERY
def test_the_best_and_the_k_best(name):
    predictions, distributions = (make() for make in FAMILIES[name])
    decoded = predictions.decode()
    assert decoded.dtype == torch.int64
    for own, d in zip(decoded, distributions, strict=True):
        assert cut(own) == d.mode().tolist()
    lists, log_probs = predictions.nbest(4)
    for own, known, d in zip(lists, log_probs, distributions, strict=True):
        best = d.kbest(4)
        assert [cut(y) for y in own[: len(best)]] == [y.tolist() for y, _ in best]
        np.testing.assert_allclose(known[: len(best)], [p for _, p in best], atol=1e-6)
        assert (known[len(best) :] == -torch.inf).all()
        assert (own[len(best) :] == -100).all()


def test_predictions_are_as_wide_as_the_scores():
    """So that they can be compared with padded gold; lattices have no width."""
    strings = fgt.Strings(normal(2, 5, 2), [3, 2])
    assert strings.decode().shape == strings.mbr(EDIT).shape == (2, 5)
    assert (strings.sample(4, rng=0)[:, :, 3:] == -100).all()
    assert fgt.Trees(normal(2, 6, 6), single_root=True, lengths=[3, 2]).nbest(2)[0].shape == (
        2,
        2,
        5,
    )
    labeled = fgt.Trees(normal(2, 6, 6, 2), single_root=True, lengths=[3, 2], labeled=True)
    assert labeled.decode().shape == (2, 5, 2)


@pytest.mark.parametrize("labels", [(), (2,)])
def test_a_sentence_without_words_has_one_tree(labels):
    """As in the losses of a padded batch."""
    scores, given = normal(3, 4, 4, *labels), {"single_root": True, "labeled": bool(labels)}
    trees = fgt.Trees(scores, lengths=[3, 0, 2], **given)
    others = fgt.Trees(scores[[0, 2]], lengths=[3, 2], **given)
    for found, expected in (
        (trees.decode(), others.decode()),
        (trees.mbr(), others.mbr()),
        (trees.nbest(2)[0], others.nbest(2)[0]),
    ):
        assert (found[1] == -100).all()
        assert torch.equal(found[[0, 2]], expected)
    assert (trees.sample(2, rng=0)[1] == -100).all()
    assert trees.nbest(2)[1][1].tolist() == [0, -torch.inf]


def test_images():
    grid = fg.PairwiseMRF.grid(2, 3, np.zeros((6, 2)), np.zeros((2, 2)))
    images, edges = normal(2, 2, 2, 3), normal(2, 2)
    flat = fgt.RandomFields(images.flatten(2).transpose(1, 2), edges, grid)
    given = fgt.RandomFields(images, edges, grid)
    assert torch.equal(given.decode(), flat.decode().reshape(2, 2, 3))
    assert torch.equal(given.mbr(), flat.mbr().reshape(2, 2, 3))
    assert torch.equal(given.nbest(3)[0], flat.nbest(3)[0].reshape(2, 3, 2, 3))
    assert torch.equal(given.sample(3, rng=0), flat.sample(3, rng=0).reshape(2, 3, 2, 3))
    with pytest.raises(fg.InvalidInputError, match="or images"):
        fgt.RandomFields(images[0, 0], edges, grid)


@EVERY
def test_samples_are_drawn_from_the_distribution(name):
    predictions, distributions = (make() for make in FAMILIES[name])
    drawn = predictions.sample(4000, rng=0)
    assert torch.equal(drawn, FAMILIES[name][0]().sample(4000, rng=0))
    for own, d in zip(drawn, distributions, strict=True):
        best = d.mode()
        share = np.mean([cut(y) == best.tolist() for y in own])
        p = float(np.exp(d.log_prob(best)))
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 4000) + 1e-9


@pytest.mark.filterwarnings("ignore:all candidates have an infinite:UserWarning")
@pytest.mark.parametrize(
    "loss",
    [
        EDIT,
        fg.EditDistance(EDIT.alphabet, insert_cost=2.0, delete_cost=0.2, substitute_cost=1.5),
        fg.Hamming(EDIT.alphabet, 3.0 * np.triu(np.ones((len(EDIT.alphabet),) * 2), 1)),
        fg.WordErrorRate(EDIT.alphabet),
    ],
    ids=["edit", "edit costs", "hamming costs", "wer"],
)
@pytest.mark.parametrize("name", ["strings", "lattices"])
def test_strings_and_lattices_of_least_expected_loss(name, loss):
    """Against the sum over all strings, which are the targets: a loss need not be symmetric."""
    predictions, distributions = (make() for make in FAMILIES[name])
    options = {"samples": 20_000, "rng": 0} if name == "strings" else {}
    chosen = predictions.mbr(loss, candidates=8, **options)
    for own, d in zip(chosen, distributions, strict=True):
        strings = d.kbest(8)
        risks = [sum(np.exp(p) * loss(c, y) for y, p in strings) for c, _ in strings]
        if np.isfinite(min(risks)):
            assert cut(own) == strings[int(np.argmin(risks))][0].tolist()


def test_trees_and_labelings_of_fewest_expected_errors():
    predictions, distributions = (make() for make in FAMILIES["trees"])
    for own, d in zip(predictions.mbr(), distributions, strict=True):
        trees, shares = [y for y, _ in d.kbest(16)], d.marginals()
        right = [sum(shares[h, i + 1] for i, h in enumerate(y)) for y in trees]
        assert cut(own) == trees[int(np.argmax(right))].tolist()
    fields, models = (make() for make in FAMILIES["random fields"])
    expected = [m.marginals().node.argmax(axis=1).tolist() for m in models]
    assert fields.mbr().tolist() == expected


def test_bad_input():
    with pytest.raises(fg.InvalidInputError, match="batch"):
        fgt.Strings(normal(3, 2))
    with pytest.raises(fg.InvalidInputError, match="2 lattices"):
        fgt.LatticeStrings(lattice_scores()[:1], LATTICES)
    with pytest.raises(fg.InvalidInputError, match="batch"):
        fgt.Trees(normal(4, 4), single_root=True)
    with pytest.raises(fg.InvalidInputError, match="k"):
        fgt.Strings(normal(1, 3, 2)).nbest(0)


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_log_probabilities_have_all_digits(default):
    scores = torch.randn(1, 3, 3, dtype=torch.float64)
    nll = fgt.crf_nll(scores, fgt.Strings(scores).decode()).item()
    torch.set_default_dtype(default)
    try:
        log_probs = fgt.Strings(scores).nbest(1)[1]
    finally:
        torch.set_default_dtype(torch.float32)
    assert log_probs.item() == pytest.approx(-nll, abs=1e-13)


def test_flags_of_trees():
    for name in ("labeled", "single_root"):
        with pytest.raises(fg.InvalidInputError, match=name):
            fgt.Trees(torch.zeros(1, 3, 3), **{"single_root": True, name: torch.zeros(2)})


def test_edges_of_other_items():
    with pytest.raises(fg.InvalidInputError, match=r"edge_scores has shape \(3, .*for 2 items"):
        fgt.RandomFields(normal(2, 3, 2), normal(3, len(GRAPH.graph.edges), 2, 2), GRAPH)
