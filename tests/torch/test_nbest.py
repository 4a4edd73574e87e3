"""Risk over n-best lists: equal to sums one can see, whatever form the lists have."""

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
LISTS = [["ab", "abc", "", "b"], ["ca", "c"]]
REFERENCES = ["ab", "ca"]
LOSSES = [[0.0, 1.0, 2.0, 1.0], [0.0, 1.0]]
IDS = torch.full((2, 4, 3), -100)
for _i, _own in enumerate(LISTS):
    for _j, _y in enumerate(_own):
        IDS[_i, _j, : len(_y)] = torch.from_numpy(ABC.encode(_y))
GOLD = torch.tensor([[0, 1], [2, 0]])


def scores(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 4, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def expected(log_probs):
    rows = zip(log_probs, LOSSES, strict=True)
    return torch.stack(
        [torch.softmax(own[: len(costs)], 0) @ own.new_tensor(costs) for own, costs in rows]
    )


def test_hypotheses_may_all_be_empty():
    """A list of empty strings, as of a silent utterance, has the distance to its reference."""
    scores = torch.zeros(2, 2, requires_grad=True)
    value = fgt.nbest_risk(scores, [["", ""], ["", ""]], ["ab", ""], EDIT, reduction="none")
    assert value.tolist() == [2.0, 0.0]
    value.sum().backward()
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("form", ["lists", "tensors", "strided"])
def test_value_and_gradient_over_the_list(form):
    log_probs, same = scores(), scores()
    if form == "lists":
        values = fgt.nbest_risk(log_probs, LISTS, REFERENCES, EDIT, reduction="none")
    else:
        ids = IDS if form == "tensors" else IDS.transpose(0, 2).contiguous().transpose(0, 2)
        values = fgt.nbest_risk(log_probs, ids, GOLD, EDIT, [4, 2], reduction="none")
    upstream = torch.tensor([2.0, -0.5], dtype=torch.float64)
    values.backward(upstream)
    wanted = expected(same)
    wanted.backward(upstream)
    torch.testing.assert_close(values, wanted, rtol=0, atol=1e-14)
    torch.testing.assert_close(log_probs.grad, same.grad, rtol=0, atol=1e-14)


def test_both_derivatives():
    def function(log_probs):
        return fgt.nbest_risk(log_probs, LISTS, REFERENCES, EDIT)

    assert torch.autograd.gradcheck(function, scores(), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, scores(), fast_mode=True)


def test_one_list_and_the_other_objectives():
    """On one path for each hypothesis it is the risk of the lattice."""
    log_probs = scores()[0].detach()
    value = fgt.nbest_risk(log_probs, LISTS[0], "ab", EDIT)
    lattice = fg.Lattice.from_nbest(LISTS[0], log_probs.numpy(), ABC)
    assert value.item() == pytest.approx(fg.risk(lattice, "ab", EDIT)[0], abs=1e-12)
    module = fgt.NBestRiskLoss(EDIT, reduction="sum")
    both = module(scores(), LISTS, REFERENCES)
    assert both.item() == pytest.approx(expected(scores()).sum().item(), abs=1e-12)


def test_any_loss_and_what_has_none_is_left_out():
    """-log of the common bigrams: without one the loss is infinite."""
    loss = fg.NGram(ABC, order=2)
    log_probs = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    value = fgt.nbest_risk(log_probs, ["abab", "ab", "ca"], "aba", loss)
    shares = torch.softmax(log_probs[:2], 0)
    wanted = shares[0] * loss("abab", "aba") + shares[1] * loss("ab", "aba")
    assert value.item() == pytest.approx(wanted.item(), abs=1e-12)
    silent = fgt.nbest_risk(log_probs, ["abab", "ab", "ca"], "", EDIT)
    assert silent.item() == pytest.approx((torch.softmax(log_probs, 0)[0] * 2 + 2).item())
    with pytest.raises(fg.InfeasibleError, match=r"hypotheses\[0\] has no hypothesis of finite"):
        fgt.nbest_risk(log_probs[:1], ["ca"], "aba", loss)


def test_half_precision_and_a_whole_compiled_graph():
    half = scores(torch.bfloat16)
    value = fgt.nbest_risk(half, IDS, GOLD, EDIT, torch.tensor([4, 2]))
    value.backward()
    assert value.dtype == torch.float32
    assert half.grad.dtype == torch.bfloat16
    assert value.item() == pytest.approx(expected(half.float()).mean().item(), rel=1e-6)

    def function(log_probs):
        return fgt.nbest_risk(log_probs.exp(), IDS, GOLD, EDIT, torch.tensor([4, 2]))

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    log_probs = scores()
    mine = torch.autograd.grad(compiled(log_probs), log_probs)[0]
    torch.testing.assert_close(mine, torch.autograd.grad(function(log_probs), log_probs)[0])


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda s: fgt.nbest_risk(s, LISTS[:1], REFERENCES, EDIT), "hypotheses has 1"),
        (lambda s: fgt.nbest_risk(s, LISTS, REFERENCES[:1], EDIT), "references has 1"),
        (lambda s: fgt.nbest_risk(s[:, :3], LISTS, REFERENCES, EDIT), "4 hypotheses.*3 columns"),
        (lambda s: fgt.nbest_risk(s, IDS[:, :3], GOLD, EDIT), "hypotheses has the shape"),
        (lambda s: fgt.nbest_risk(s, IDS, GOLD, EDIT, [4, 9]), r"lengths\[1\] is 9"),
        (lambda s: fgt.nbest_risk(s, IDS, GOLD, EDIT, [0, 1]), r"hypotheses\[0\] is empty"),
        (lambda s: fgt.nbest_risk(s, IDS, GOLD + 2, EDIT), "the id 3|id 4"),
        (lambda s: fgt.nbest_risk(s - torch.inf, IDS, GOLD, EDIT), r"log_probs\[0\] is -inf"),
        (lambda s: fgt.nbest_risk(s[None], IDS, GOLD, EDIT), "log_probs has the shape"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.FstgradError, match=said):
        call(scores().detach())
