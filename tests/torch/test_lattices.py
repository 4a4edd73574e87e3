"""Lattice objectives in PyTorch."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from tests.strings.lattices.random_lattice import RandomLattice  # noqa: E402
from tests.torch import cases  # noqa: E402

ABC = fg.Alphabet("abc")
LATTICE = fg.Lattice.from_nbest(["ab", "abc", "ca", "b"], [0.1, -0.3, 0.5, 0.0], ABC)
LOSS = LATTICE.compile(fg.EditDistance(ABC), "abb")
MARGIN = LATTICE.compile(fg.EditDistance(ABC), "abc")


def arcs():
    return torch.tensor(LATTICE.scores, dtype=torch.float64, requires_grad=True)


FUNCTIONS = {
    "risk": (lambda s: fgt.lattice_risk(s, LATTICE, loss=LOSS), lambda: fg.risk(LATTICE, LOSS)),
    "margin": (
        lambda s: fgt.lattice_softmax_margin(s, LATTICE, "abc", MARGIN),
        lambda: fg.softmax_margin(LATTICE, "abc", MARGIN),
    ),
    "nll": (
        lambda s: fgt.lattice_softmax_margin(s, LATTICE, "abc"),
        lambda: fg.softmax_margin(LATTICE, "abc"),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_the_arrays_and_gradcheck(name):
    function, expected = FUNCTIONS[name]
    scores = arcs()
    value = function(scores)
    (3 * value).backward()
    wanted, gradient = expected()
    assert value.detach().item() == pytest.approx(wanted, abs=1e-12)
    np.testing.assert_allclose(scores.grad.numpy(), 3 * gradient, atol=1e-12)
    assert torch.autograd.gradcheck(function, arcs(), fast_mode=True)


def test_float32_and_bad_shapes():
    scores = arcs().detach().to(torch.float32).requires_grad_()
    value = fgt.lattice_risk(scores, LATTICE, loss=LOSS)
    value.backward()
    assert value.dtype == scores.grad.dtype == torch.float32
    with pytest.raises(fg.InvalidInputError, match="arcs"):
        fgt.lattice_risk(scores[:1], LATTICE, loss=LOSS)
    value = fgt.lattice_risk(scores, LATTICE, loss=LOSS)
    (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="risk"):
        gradient.sum().backward()


def test_a_batch_of_lattices_with_a_loss_that_is_compiled_once(monkeypatch):
    other = fg.Lattice.from_nbest(["ca", "a"], [0.0, 1.0], ABC)
    scores = [arcs(), torch.tensor(other.scores, requires_grad=True)]
    edit = fg.EditDistance(ABC)
    values = fgt.lattice_risk(scores, [LATTICE, other], ["abb", "ca"], edit, reduction="none")
    values.backward(torch.tensor([2.0, -1.0], dtype=torch.float64))
    expected = [fg.risk(LATTICE, LOSS), fg.risk(other, other.compile(edit, "ca"))]
    np.testing.assert_allclose(values.detach().numpy(), [v for v, _ in expected], atol=1e-12)
    np.testing.assert_allclose(scores[0].grad.numpy(), 2 * expected[0][1], atol=1e-12)
    np.testing.assert_allclose(scores[1].grad.numpy(), -expected[1][1], atol=1e-12)
    monkeypatch.setattr(fg.Lattice, "compile", None)
    again = fgt.lattice_risk(scores, [LATTICE, other], ["abb", "ca"], edit, reduction="none")
    torch.testing.assert_close(again, values, rtol=0, atol=0)


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda s: fgt.lattice_risk([s], [LATTICE, LATTICE], loss=LOSS),
            "2 lattices; scores has 1",
        ),
        (lambda s: fgt.lattice_risk(s, LATTICE, loss=fg.EditDistance(ABC)), "gold is missing"),
        (lambda s: fgt.lattice_crf_nll(s, LATTICE, "ab", reduction="max"), "none, mean, sum"),
        (lambda s: fgt.lattice_crf_nll([s], [LATTICE], ["ab", "b"]), "gold has 2 items"),
        (lambda s: fgt.lattice_risk(s, LATTICE, "ab"), "loss is None"),
        (lambda s: fgt.lattice_risk(s, LATTICE, "ab", "ab"), "loss is a str; give a Loss"),
        (lambda s: fgt.lattice_softmax_margin(s, LATTICE, LOSS, "ab"), "loss is a str"),
        (lambda s: fgt.lattice_crf_nll(s, "ab", "ab"), r"lattice\[0\] is a str; give a Lattice"),
        (lambda s: fgt.lattice_crf_nll(LATTICE, s, "ab"), r"lattice\[0\] is a Tensor"),
    ],
)
def test_bad_batches(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call(arcs())


def test_scores_are_scattered_to_the_arcs_of_a_lattice():
    """Arcs given backwards, one of them on no path, a final score."""
    lattice = fg.Lattice.from_arcs(
        [1, 7, 0, 0], [2, 9, 1, 1], [2, 0, 1, 0], np.zeros(4), ABC, final={2: 0.25}
    )
    given = torch.tensor([5.0, 100.0, 3.0, 4.0], requires_grad=True)
    scores = lattice.scatter(given)
    assert sorted(scores.tolist()) == [0.25, 3.0, 4.0, 5.0]
    assert lattice.scatter(given.detach().numpy()).tolist() == scores.tolist()
    fgt.lattice_crf_nll(scores, lattice, "bc").backward()
    share = float(torch.sigmoid(torch.tensor(4.0 - 3.0)))
    assert given.grad.tolist() == pytest.approx([0.0, 0.0, -share, share])


def test_scores_of_hypotheses_are_scattered():
    given = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = fgt.lattice_crf_nll(LATTICE.scatter(given), LATTICE, "ca")
    assert value.item() == pytest.approx(-torch.log_softmax(given, 0)[2].item())
    for wrong in (given[:3], torch.cat([given, given])[:5], given[None]):
        with pytest.raises(fg.InvalidInputError, match="for each hypothesis"):
            LATTICE.scatter(wrong)


@pytest.mark.parametrize("kind", ["risk", "softmax-margin"])
def test_sampled_lattices_are_those_of_the_arrays(kind, monkeypatch):
    """With the seed of the item; "auto" samples what has too many states."""
    edit, scores = fg.EditDistance(ABC), arcs()
    module = {"risk": fgt.LatticeRiskLoss, "softmax-margin": fgt.LatticeSoftmaxMarginLoss}[kind]
    array = {"risk": fg.sampled_risk, "softmax-margin": fg.sampled_softmax_margin}[kind]
    drawn = module(edit, method="sampled", sampling=fgt.Sampling(samples=500, rng=4), band=1)
    value = drawn([scores, scores], [LATTICE, LATTICE], ["ab", "abc"])
    value.backward()
    results = [
        array(LATTICE, gold, edit, samples=500, rng=np.random.default_rng((4, 0, i)), band=1)
        for i, gold in enumerate(["ab", "abc"])
    ]
    assert value.item() == pytest.approx(np.mean([r.value for r in results]), abs=1e-12)
    slope = np.mean([r.gradient for r in results], axis=0)
    np.testing.assert_allclose(scores.grad, slope, rtol=0, atol=1e-12)
    assert [e.interval for e in drawn.last] == [r.interval for r in results]
    exact = module(edit, method="auto")(arcs(), LATTICE, "ab")
    assert torch.equal(exact, module(edit)(arcs(), LATTICE, "ab"))
    monkeypatch.setattr("fstgrad.objectives.lattices.AUTO_STATES", 1)
    fresh = fg.Lattice.from_nbest(["ab", "abc", "ca", "b"], [0.1, -0.3, 0.5, 0.0], ABC)
    auto = module(edit, method="auto", sampling=fgt.Sampling(samples=500, rng=4), band=1)
    auto(arcs(), fresh, "ab")
    assert auto.last[0] == drawn.last[0]
    monkeypatch.setattr(fg.Lattice, "compile", None)  # its size is not found out again
    auto(arcs(), fresh, "ab")


def test_banded_lattices():
    edit = fg.EditDistance(ABC)
    banded = LATTICE.compile(edit, "abb", band=1)
    given = fgt.lattice_risk(arcs(), LATTICE, "abb", edit, band=1)
    assert given.item() == fgt.lattice_risk(arcs(), LATTICE, loss=banded).item()
    with pytest.raises(fg.InvalidInputError, match="give cap and band to"):
        fgt.lattice_risk(arcs(), LATTICE, loss=banded, band=1)


def test_vmap_over_scores_of_a_batch():
    rows = torch.stack([arcs().detach() * factor for factor in (0.5, 1.0, 2.0)])

    def loss(s):
        return fgt.lattice_crf_nll([s, s + 1], [LATTICE, LATTICE], ["ab", "b"], reduction="none")

    expected = torch.stack([loss(row) for row in rows])
    torch.testing.assert_close(torch.vmap(loss)(rows), expected, rtol=0, atol=1e-12)


def test_padded_gold():
    """As a padded tensor, or as a list of padded rows, gold is what it is as strings."""
    scores = [torch.randn(size) for size in cases.SIZES]
    padded = torch.tensor([[0, 1, 2], [2, 1, -100]])
    for objective, settings in ((fgt.lattice_risk, (cases.EDIT,)), (fgt.lattice_crf_nll, ())):
        expected = objective(scores, cases.LATTICES, ["abc", "cb"], *settings)
        assert objective(scores, cases.LATTICES, padded, *settings) == expected
        assert objective(scores, cases.LATTICES, list(padded), *settings) == expected


def test_sentences_for_a_word_error_rate():
    words = fg.Alphabet(["the", "cat", "dog"])
    lattice = fg.Lattice.from_nbest([["the", "cat"], ["the", "dog"]], np.log([3, 1]), words)
    scores, rate = torch.tensor(lattice.scores), fg.WordErrorRate(words)
    assert fgt.lattice_risk(scores, lattice, "the dog", rate).item() == pytest.approx(3 / 4 / 2)
    both = ["the dog", "the cat"]
    found = fgt.lattice_risk([scores] * 2, [lattice] * 2, both, rate, reduction="none")
    np.testing.assert_allclose(found, [3 / 8, 1 / 8], rtol=1e-12)
    margin = fgt.lattice_softmax_margin(scores, lattice, "the dog", rate)
    assert margin.item() == pytest.approx(np.log(3 * np.exp(1 / 2) + 1))
    with pytest.raises(fg.AlphabetError, match=r"gold is the str 'the dog'.*gold\.split"):
        fgt.lattice_crf_nll(scores, lattice, "the dog")
    with pytest.raises(fg.AlphabetError, match=r"gold\[0\] is the str .*gold\[0\]\.split"):
        fgt.lattice_crf_nll([scores] * 2, [lattice] * 2, both)


def alignments(log_probs, labels):
    """The lattice of an RNN-T, of (T, U + 1) nodes, and its arcs (source, nextstate, label, score).

    log_probs : (T, U + 1, symbols), symbol 0 is the blank, which moves to the next frame.
    """
    frames, width = log_probs.shape[:2]
    arcs = []
    for i in range(frames):
        for u in range(width):
            node = i * width + u
            arcs.append((node, node + width, -1, log_probs[i, u, 0]))
            if u + 1 < width:
                arcs.append((node, node + 1, labels[u], log_probs[i, u, labels[u] + 1]))
    source, nextstate, label, scores = zip(*arcs, strict=True)
    end = frames * width + width - 1
    lattice = fg.Lattice.from_arcs(source, nextstate, label, np.zeros(len(arcs)), ABC, final=[end])
    return lattice, lattice.scatter(torch.stack(scores))


def log_prob_by_recursion(log_probs, labels):
    """Graves 2012, eqs. 16 and 18: alpha(t, u), and the last blank."""
    frames, width = log_probs.shape[:2]
    alpha = {(0, 0): torch.zeros((), dtype=log_probs.dtype)}
    for i in range(frames):
        for u in range(width):
            into = []
            if i > 0:
                into.append(alpha[i - 1, u] + log_probs[i - 1, u, 0])
            if u > 0:
                into.append(alpha[i, u - 1] + log_probs[i, u - 1, labels[u - 1] + 1])
            if into:
                alpha[i, u] = torch.logsumexp(torch.stack(into), dim=0)
    return alpha[frames - 1, width - 1] + log_probs[-1, -1, 0]


def test_the_log_partition_of_alignments_is_that_of_an_rnn_transducer():
    """Value, gradient and Hessian product, by autograd through the recursion."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 3, 4, dtype=torch.float64, generator=generator).requires_grad_()
    direction, labels = torch.randn(4, 3, 4, dtype=torch.float64, generator=generator), [2, 0]

    def derivatives(log_prob):
        (slope,) = torch.autograd.grad(log_prob, inputs, create_graph=True)
        return log_prob, slope, torch.autograd.grad((slope * direction).sum(), inputs)[0]

    lattice, scores = alignments(inputs.log_softmax(-1), labels)
    assert lattice.num_paths == 10  # two labels among three frames and the last: C(5, 2)
    found = derivatives(fgt.lattice_log_partition(scores, lattice))
    expected = derivatives(log_prob_by_recursion(inputs.log_softmax(-1), labels))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


def test_quantities_of_paths_are_those_of_all_paths():
    """The entropy is a softmax over the paths that autograd differentiates twice."""
    case = RandomLattice(5, states=5)
    lattice = case.lattice(ABC)
    table = torch.tensor(
        np.stack([np.bincount(path, minlength=lattice.num_arcs) for path in all_arcs(lattice)]),
        dtype=torch.float64,
    )
    assert len(table) == lattice.num_paths > 4
    scores = torch.tensor(lattice.scores).requires_grad_()
    logs = (table @ scores).log_softmax(0)
    for found, expected in (
        (fgt.lattice_log_partition(scores, lattice), torch.logsumexp(table @ scores, 0)),
        (fgt.lattice_entropy(scores, lattice), -(logs.exp() * logs).sum()),
        ((fgt.lattice_marginals(scores, lattice) ** 2).sum(), ((logs.exp() @ table) ** 2).sum()),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        slopes = [torch.autograd.grad(v, scores, create_graph=True)[0] for v in (found, expected)]
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)
    for quantity in (fgt.lattice_log_partition, fgt.lattice_entropy):
        assert torch.autograd.gradgradcheck(
            lambda s, q=quantity: q(s, lattice), scores, fast_mode=True
        )


def all_arcs(lattice):
    """The arcs of all paths, by depth-first search."""

    def walk(state):
        if state == lattice.num_states - 1:
            yield []
        for arc in np.flatnonzero(lattice.graph.source == state):
            for rest in walk(lattice.graph.nextstate[arc]):
                yield [arc, *rest]

    return list(walk(0))


def test_a_numerator_graph_in_a_denominator():
    """MMI: log p of the hypotheses that a graph of transcripts accepts is a difference of log Z."""
    hypotheses = ["ab", "abc", "ca", "b"]
    given = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor([1, 3])
    numerator = fg.Lattice.from_nbest([hypotheses[i] for i in chosen], np.zeros(2), ABC)
    batch = [numerator.scatter(given[chosen]), LATTICE.scatter(given)]
    of_transcripts, of_all = fgt.lattice_log_partition(batch, [numerator, LATTICE])
    log_prob = of_transcripts - of_all
    expected = given.log_softmax(0)[chosen].logsumexp(0)
    torch.testing.assert_close(log_prob, expected, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(log_prob, given)
    torch.testing.assert_close(slope, torch.autograd.grad(expected, given)[0], rtol=0, atol=1e-12)
    shares = fgt.lattice_marginals(batch, [numerator, LATTICE])
    assert [share.shape for share in shares] == [scores.shape for scores in batch]


def test_bad_scores_of_quantities():
    for call in (fgt.lattice_log_partition, fgt.lattice_marginals, fgt.lattice_entropy):
        for scores, lattice, error, said in (
            (arcs()[:2], LATTICE, fg.InvalidInputError, "the lattice has"),
            ([arcs()], [LATTICE] * 2, fg.InvalidInputError, "2 lattices; scores has 1"),
            ([], [], fg.InvalidInputError, "lattice has no items"),
            (arcs(), "ab", fg.InvalidInputError, r"lattice\[0\] is a str"),
            (arcs() - np.inf, LATTICE, fg.InfeasibleError, "allow more arcs"),
        ):
            with pytest.raises(error, match=said):
                call(scores, lattice)
    half = fgt.lattice_marginals(arcs().detach().bfloat16(), LATTICE)
    assert half.dtype == fgt.lattice_entropy(arcs().detach().half(), LATTICE).dtype == torch.float32
