"""String objectives in PyTorch: equal to the arrays API, differentiable, any dtype and shape."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from tests.tables import Column  # noqa: E402
from tests.torch import cases  # noqa: E402

ABC = fg.Alphabet("abc")
LOSS = fg.EditDistance(ABC)
GOLD = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0], [1, 1, 2, 2]])
LENGTHS = [4, 2, 3]


def number(tensor):
    return tensor.detach().item()


def random_scores(order, *, seed=0, requires_grad=True):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 4, *(4,) * (order - 1), 3)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores.requires_grad_(requires_grad)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("what", ["softmax_margin", "risk", "crf_nll"])
def test_equals_the_array_functions(order, what):
    scores = random_scores(order)
    arguments = () if what == "crf_nll" else (LOSS,)
    values = getattr(fgt, what)(scores, GOLD, *arguments, lengths=LENGTHS, reduction="none")
    upstream = torch.tensor([0.3, -2.0, 1.7], dtype=torch.float64)
    values.backward(upstream)
    for i, length in enumerate(LENGTHS):
        own, gold = scores[i, :length].detach().numpy(), GOLD[i, :length].numpy()
        b = LOSS.compile(gold)
        if what == "risk":
            value, gradient = fg.risk(own, b)
        else:
            value, gradient = fg.softmax_margin(own, gold, b if arguments else None)
        assert number(values[i]) == pytest.approx(value, abs=1e-12)
        expected = number(upstream[i]) * gradient
        np.testing.assert_allclose(scores.grad[i, :length].numpy(), expected, atol=1e-12)
        assert not scores.grad[i, length:].any()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradcheck(reduction):
    scores = random_scores(2)

    def function(s):
        return fgt.softmax_margin(s, GOLD, LOSS, lengths=LENGTHS, reduction=reduction)

    assert torch.autograd.gradcheck(function, scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, scores, fast_mode=True)


def test_gradcheck_of_risk_and_crf():
    scores = random_scores(1)
    assert torch.autograd.gradcheck(lambda s: fgt.risk(s, GOLD, LOSS), scores, fast_mode=True)
    assert torch.autograd.gradcheck(lambda s: fgt.crf_nll(s, GOLD), scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda s: fgt.crf_nll(s, GOLD), scores, fast_mode=True)


@pytest.mark.parametrize("order, loss", [(2, LOSS), (1, fg.NGram(ABC, 2))])
def test_second_derivatives_of_risk(order, loss):
    """The n-gram loss leaves out strings without a common bigram: L = +inf."""
    scores = random_scores(order)[:2, :3].detach().requires_grad_()
    forbidden = torch.zeros_like(scores, dtype=torch.bool)
    forbidden[1, 0, ..., 0] = True

    def function(s):
        s = s.masked_fill(forbidden, -torch.inf)
        return fgt.risk(s, GOLD[:2, :3], loss, lengths=[3, 2])

    assert torch.autograd.gradgradcheck(function, scores, fast_mode=True)


@pytest.mark.parametrize(
    "scores, said",
    [
        (random_scores(3), "order 3"),
        ((1000 * random_scores(2, requires_grad=False)).requires_grad_(), "range of floats"),
    ],
)
def test_where_risk_has_no_second_derivative_it_says_so(scores, said):
    (gradient,) = torch.autograd.grad(fgt.risk(scores, GOLD, LOSS), scores, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match=f"risk with .*{said}.* no second derivative"):
        gradient.sum().backward()


def test_one_item_without_a_batch():
    scores = random_scores(2)[0]
    value = fgt.softmax_margin(scores, "abca", LOSS)
    assert value.ndim == 0
    expected = fg.softmax_margin(scores.detach().numpy(), "abca", LOSS.compile("abca"))[0]
    assert number(value) == pytest.approx(expected, abs=1e-12)
    same = fgt.softmax_margin(scores, GOLD[0], LOSS.compile("abca"), reduction="none")
    assert number(same) == pytest.approx(expected, abs=1e-12)


def test_strings_as_gold():
    scores = random_scores(2)
    by_ids = fgt.softmax_margin(scores, GOLD, LOSS, lengths=[4, 4, 4])
    by_text = fgt.softmax_margin(scores, ["abca", "cbaa", "bbcc"], LOSS)
    by_automata = fgt.softmax_margin(scores, GOLD, [LOSS.compile(g.numpy()) for g in GOLD])
    assert number(by_ids) == number(by_text) == number(by_automata)


def test_float32_in_and_out():
    wide = random_scores(2)
    narrow = wide.detach().to(torch.float32).requires_grad_()
    value = fgt.softmax_margin(narrow, GOLD, LOSS)
    value.backward()
    assert value.dtype == narrow.grad.dtype == torch.float32
    exact = fgt.softmax_margin(narrow.detach().to(torch.float64), GOLD, LOSS)
    assert number(value) == pytest.approx(number(exact), rel=1e-6)


def test_non_contiguous_scores_and_expanded_upstream():
    base = random_scores(2, requires_grad=False)
    strided = base.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    assert not strided.is_contiguous()
    values = fgt.softmax_margin(strided, GOLD, LOSS, reduction="none")
    values.backward(torch.tensor(2.0, dtype=torch.float64).expand(3))
    plain = base.clone().requires_grad_()
    (2 * fgt.softmax_margin(plain, GOLD, LOSS, reduction="sum")).backward()
    torch.testing.assert_close(strided.grad, plain.grad, rtol=0, atol=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_second_backward_pass_does_not_see_what_was_done_to_the_first_gradient(reduction):
    scores = random_scores(2)
    value = fgt.softmax_margin(scores, GOLD, LOSS, lengths=LENGTHS, reduction=reduction)
    upstream = None if reduction == "mean" else torch.ones(3, dtype=torch.float64)
    (mine,) = torch.autograd.grad(value, scores, upstream, retain_graph=True)
    first = mine.clone()
    mine.fill_(7.0)
    (again,) = torch.autograd.grad(value, scores, upstream, retain_graph=True)
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    again.fill_(7.0)
    value.backward(upstream, retain_graph=True)
    value.backward(upstream)
    torch.testing.assert_close(scores.grad, 2 * first, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        value.backward(upstream)


def test_first_and_second_derivatives_from_one_graph():
    scores = random_scores(2)
    value = fgt.softmax_margin(scores, GOLD, LOSS)
    (plain,) = torch.autograd.grad(value, scores, retain_graph=True)
    (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
    torch.testing.assert_close(gradient, plain, rtol=0, atol=0)
    (again,) = torch.autograd.grad(value, scores, retain_graph=True)
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    (curvature,) = torch.autograd.grad(gradient.square().sum(), scores)
    covariance = torch.zeros_like(curvature)
    for i in range(3):
        own = scores[i].detach().numpy()
        b = LOSS.compile(GOLD[i].numpy())
        along = 2 * gradient[i].detach().numpy()
        covariance[i] = torch.tensor(fg.StringDistribution(own, b).covariance_product(along)) / 3
    torch.testing.assert_close(curvature, covariance, rtol=0, atol=1e-12)


def test_vectorized_jacobian():
    scores = random_scores(2)

    def function(s):
        return fgt.softmax_margin(s, GOLD, LOSS, reduction="none")

    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(
        jacobian(function, scores, vectorize=True), jacobian(function, scores)
    )
    mean = torch.autograd.grad(
        function(scores).sum(), scores, torch.tensor([1.0, 2.0]).double(), is_grads_batched=True
    )[0]
    torch.testing.assert_close(mean[1], 2 * mean[0])
    value = fgt.softmax_margin(scores, GOLD, LOSS)
    batched = torch.autograd.grad(
        value, scores, torch.tensor([1.0, 2.0]).double(), is_grads_batched=True
    )[0]
    torch.testing.assert_close(batched[1], 2 * batched[0])


def test_items_of_a_list_may_be_tensors():
    scores = random_scores(2)
    listed = [gold[:length] for gold, length in zip(GOLD, LENGTHS, strict=True)]
    expected = fgt.softmax_margin(scores, GOLD, LOSS, lengths=LENGTHS)
    assert number(fgt.softmax_margin(scores, listed, LOSS)) == number(expected)


def test_no_grad_and_determinism():
    scores = random_scores(2)
    with torch.no_grad():
        first = fgt.softmax_margin(scores, GOLD, LOSS)
    assert not first.requires_grad
    assert number(first) == number(fgt.softmax_margin(scores, GOLD, LOSS))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_equals_cpu():
    scores = random_scores(2)
    there = scores.detach().cuda().requires_grad_()
    for s in (scores, there):
        fgt.softmax_margin(s, GOLD, LOSS, lengths=LENGTHS).backward()
    torch.testing.assert_close(there.grad.cpu(), scores.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name, arguments", [("SoftmaxMarginLoss", (LOSS,)), ("CRFLoss", ())])
def test_modules(name, arguments):
    scores = random_scores(2)
    module = getattr(fgt, name)(*arguments, reduction="sum")
    function = fgt.softmax_margin if arguments else fgt.crf_nll
    expected = function(scores, GOLD, *arguments, lengths=LENGTHS, reduction="sum")
    assert number(module(scores, GOLD, LENGTHS)) == number(expected)
    assert "reduction='sum'" in repr(module)


def test_risk_module():
    scores = random_scores(2)
    expected = fgt.risk(scores, GOLD, LOSS)
    assert number(fgt.RiskLoss(LOSS)(scores, GOLD)) == number(expected)


def test_a_network_overfits_twenty_pairs():
    """A lookup of scores trained with the edit-distance margin reaches edit distance zero."""
    rng = np.random.default_rng(0)
    golds = torch.as_tensor(rng.integers(3, size=(20, 5)))
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Embedding(20, 32), torch.nn.Linear(32, 5 * 4 * 3))
    network = network.to(torch.float64)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    criterion = fgt.SoftmaxMarginLoss(LOSS)
    for _ in range(60):
        optimizer.zero_grad()
        scores = network(torch.arange(20)).reshape(20, 5, 4, 3)
        criterion(scores, golds).backward()
        optimizer.step()
    scores = network(torch.arange(20)).reshape(20, 5, 4, 3).detach().numpy()
    distances = [
        LOSS(fg.StringDistribution(own).mode(), gold.numpy())
        for own, gold in zip(scores, golds, strict=True)
    ]
    assert sum(distances) == 0


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda s: fgt.softmax_margin(s, GOLD[:2], LOSS), "3 items; gold has 2"),
        (lambda s: fgt.softmax_margin(s, GOLD, [LOSS.compile("abca")]), "has 1 automata"),
        (lambda s: fgt.softmax_margin(s, GOLD, LOSS.compile("abca")), "one automaton for 3"),
        (lambda s: fgt.softmax_margin(s, GOLD, LOSS, lengths=[4, 9, 1]), r"lengths\[1\] is 9"),
        (lambda s: fgt.crf_nll(s, ["abc", "abc", "abc"]), "integer ids"),
        (lambda s: fgt.softmax_margin(s, GOLD, LOSS, reduction="max"), "none, mean, sum"),
        (lambda s: fgt.softmax_margin(s, GOLD + 3, LOSS), r"gold\[0\]"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call(random_scores(2))


@pytest.mark.parametrize("what", ["softmax_margin", "risk"])
def test_bits_do_not_depend_on_threads(what, monkeypatch):
    monkeypatch.setattr("fstgrad.objectives.strings.SMALL", 0)
    scores, found = random_scores(2), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            value = getattr(fgt, what)(scores, GOLD, LOSS)
            found.append((value, *torch.autograd.grad(value, scores)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_padded_rows_of_a_list():
    """Rows of a list may be padded as the rows of one tensor are, here and in n-best lists."""
    scores, gold = torch.randn(2, 4, 3), cases.GOLD
    for objective, settings in ((fgt.risk, (cases.EDIT,)), (fgt.crf_nll, ())):
        expected = objective(scores, gold, *settings)
        assert objective(scores, list(gold), *settings) == expected
        assert objective(scores, gold.numpy(), *settings) == expected
    log_probs, beam = torch.randn(2, 2), cases.HYPOTHESES
    expected = fgt.nbest_risk(log_probs, beam, gold, cases.EDIT)
    assert fgt.nbest_risk(log_probs, list(map(list, beam)), list(gold), cases.EDIT) == expected
    with pytest.raises(
        fg.InvalidInputError, match=r"gold\[0\] has the shape \(1, 4\); give \(l,\)"
    ):
        fgt.crf_nll(scores, [gold[:1], gold[1:]])


@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.parametrize("what", [fgt.softmax_margin, fgt.risk])
def test_an_item_alone_has_the_bits_that_it_has_in_a_batch(what, spread):
    """A batch of one, and a string without a batch axis, go a shorter way to the same passes."""
    scores = (spread * random_scores(2).detach()).requires_grad_()
    values = what(scores, GOLD, LOSS, reduction="none")
    values.sum().backward()
    for i, gold in enumerate(GOLD):
        one = scores[i : i + 1].detach().clone().requires_grad_()
        value = what(one, gold[None], LOSS)
        value.backward()
        single = scores[i].detach().clone().requires_grad_()
        what(single, gold, LOSS).backward()
        assert value.shape == ()
        assert number(value) == number(values[i])
        assert torch.equal(one.grad[0], scores.grad[i])
        assert torch.equal(single.grad, scores.grad[i])


def test_lengths_of_a_column():
    scores, gold = torch.zeros(2, 2, 3), [[0, 1], [1, 2]]
    found = fgt.crf_nll(scores, gold, lengths=Column([2, 1], index=[7, 3]), reduction="none")
    np.testing.assert_allclose(found, [np.log(9), np.log(3)], rtol=1e-6)
    with pytest.raises(fg.InvalidInputError, match="lengths has masked entries"):
        fgt.crf_nll(scores, gold, lengths=np.ma.array([2, 1], mask=[0, 1]))


def test_a_list_of_str_has_strings_where_the_scores_have_a_batch_axis():
    """Whichever string is first: one of one letter is also a symbol."""
    abc = fg.Alphabet("abc")
    words = fg.WordErrorRate(fg.Alphabet(["the", "cat"]))
    scores = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for loss, shape, strings in (
        (fg.EditDistance(abc), (2, 5, 3), ["a", "bc"]),
        (fg.EditDistance(abc), (2, 5, 3), ["a", "b"]),
        (words, (2, 5, 2), ["the", "the cat"]),
    ):
        given, lists = scores[:, :, : shape[2]], [loss.alphabet.encode(each) for each in strings]
        found = fgt.risk(given, strings, loss, reduction="none")
        assert torch.equal(found, fgt.risk(given, lists, loss, reduction="none"))
    with pytest.raises(fg.InvalidInputError, match=r"2 symbols, .* one string or so many.*\[\['a'"):
        fgt.risk(scores[:, :4], ["a", "b"], fg.EditDistance(abc))
    assert fgt.risk(scores[0, :2], ["a", "b"], fg.EditDistance(abc)).ndim == 0
    assert fgt.risk(scores[:0], [], fg.EditDistance(abc), reduction="none").shape == (0,)
