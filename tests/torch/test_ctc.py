"""CTC objectives: against torch's own loss, enumeration of paths, and differences."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle
from tests.oracles.losses import collapse

torch = pytest.importorskip("torch")
fgt = pytest.importorskip("fstgrad.torch")

ABC = fg.Alphabet("ab_")  # the blank is label 2


def scores_for(seed, *shape, dtype=torch.float64):
    return torch.tensor(
        np.random.default_rng(seed).normal(size=shape), dtype=dtype, requires_grad=True
    )


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-6)])
def test_nll_is_that_of_torch_on_a_padded_batch(dtype, tolerance):
    raw = scores_for(0, 4, 9, 5, dtype=dtype)
    gold = torch.tensor([[1, 1, 2, 4], [3, -100, -100, -100], [2, 3, -100, -100], [-100] * 4])
    lengths = torch.tensor([9, 1, 7, 5])  # the last item is silent
    log_p = raw.log_softmax(-1)
    ours = fgt.ctc_nll(log_p, gold, lengths=lengths, reduction="none")
    theirs = torch.nn.functional.ctc_loss(
        log_p.transpose(0, 1), gold.clamp(min=0), lengths, (gold >= 0).sum(1), reduction="none"
    )
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    weights = torch.tensor([0.5, -2.0, 3.0, 1.5], dtype=dtype)
    (mine,) = torch.autograd.grad((weights * ours).sum(), raw, retain_graph=True)
    (other,) = torch.autograd.grad((weights * theirs).sum(), raw)
    torch.testing.assert_close(mine, other, atol=10 * tolerance, rtol=10 * tolerance)
    # scores that are not normalized: the same value
    again = fgt.ctc_nll(log_p + 3.0, gold, lengths=lengths, reduction="none")
    torch.testing.assert_close(again, ours, atol=10 * tolerance, rtol=tolerance)


def test_margin_and_risk_equal_enumeration_of_paths():
    raw, target, loss = scores_for(1, 4, 3), (0, 1), fg.EditDistance(ABC)
    paths = oracle.all_strings(3, 4)
    losses = [oracle.edit_distance(collapse(z, "ctc"), target) for z in paths]
    seen = [0.0 if collapse(z, "ctc") == target else np.inf for z in paths]
    table = raw.detach().numpy()
    value = fgt.ctc_softmax_margin(raw, list(target), loss, blank=2)
    expected = oracle.log_partition(table, losses) - oracle.log_partition(table, seen)
    assert value.item() == pytest.approx(expected, abs=1e-10)
    risk = fgt.ctc_risk(raw, list(target), loss, blank=2)
    (gradient,) = torch.autograd.grad(risk, raw)
    by_hand = oracle.risk(table, losses)
    assert risk.item() == pytest.approx(by_hand[0], abs=1e-10)
    np.testing.assert_allclose(gradient.numpy(), by_hand[1], atol=1e-10)


@pytest.mark.parametrize("name", ["ctc_nll", "ctc_softmax_margin", "ctc_risk"])
def test_gradients_pass_gradcheck(name):
    loss = () if name == "ctc_nll" else (fg.EditDistance(ABC),)
    gold = torch.tensor([[0, 1], [1, -100]])

    def function(scores):
        return getattr(fgt, name)(scores, gold, *loss, blank=2, lengths=[4, 3], reduction="none")

    assert torch.autograd.gradcheck(function, (scores_for(2, 2, 4, 3),))


def test_modules_are_their_functions():
    raw, gold = scores_for(4, 2, 4, 3), torch.tensor([[0, 1], [1, -100]])
    loss = fg.EditDistance(ABC)
    for module, function, given in (
        (fgt.CTCLoss(blank=2), fgt.ctc_nll, ()),
        (fgt.CTCSoftmaxMarginLoss(loss, blank=2), fgt.ctc_softmax_margin, (loss,)),
        (fgt.CTCRiskLoss(loss, blank=2), fgt.ctc_risk, (loss,)),
    ):
        found = module(raw, gold, lengths=[4, 3])
        assert found.item() == function(raw, gold, *given, blank=2, lengths=[4, 3]).item()


def test_a_cap_bounds_the_margin_of_long_items():
    raw, loss = scores_for(3, 2, 40, 6), fg.EditDistance(fg.Alphabet("_abcde"))
    gold = torch.tensor([[1, 2, 3, 1, 5, 5], [2, 2, 4, -100, -100, -100]])
    small, large = (
        fgt.ctc_softmax_margin(raw, gold, loss, cap=cap, reduction="none") for cap in (1.0, 2.0)
    )
    assert (small <= large + 1e-12).all()
    assert (large <= small + 1.0 + 1e-12).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"blank": 3}, "blank is 3; the scores are for the labels 0 to 2"),
        ({"gold": torch.tensor([[2]])}, "gold has the blank, 2"),
        ({"loss": fg.EditDistance(fg.Alphabet("ab"))}, "a loss over 2 symbols"),
        ({"scores": torch.zeros(3)}, r"give \(B, T, n\)"),
        ({"lengths": [9]}, "lengths"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {
        "scores": torch.zeros(1, 4, 3),
        "gold": torch.tensor([[0]]),
        "loss": fg.EditDistance(ABC),
        "blank": 2,
    } | change
    with pytest.raises(fg.InvalidInputError, match=message):
        fgt.ctc_softmax_margin(**given)
    with pytest.raises(fg.InfeasibleError):
        fgt.ctc_nll(torch.zeros(1, 2, 3), torch.tensor([[0, 0]]), blank=2)
