"""Costs of transducers as PyTorch parameters."""

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
from fstgrad.torch import TransducerCosts  # noqa: E402

PAIRS = [("ab", "bb"), ("a", "ba"), ("", "a"), ("ba", "ba")]


@pytest.mark.parametrize("semiring", ["probability", "tropical"])
def test_values_and_gradients(semiring):
    loss = fg.EditDistance(fg.Alphabet("ab"))
    module = TransducerCosts(loss, semiring=semiring)
    with torch.no_grad():
        module.costs += 0.3 * torch.rand(len(module.names), generator=torch.manual_seed(0))
    other = fg.TransducerLoss(loss.transducer, loss.alphabet, semiring=semiring)
    fresh = TransducerCosts(other, semiring=semiring)
    for (y, target), value in zip(PAIRS, fresh(PAIRS).tolist(), strict=True):
        assert value == pytest.approx(other(y, target), abs=1e-12)

    def values(costs):
        return torch.func.functional_call(module, {"costs": costs}, (PAIRS,))

    costs = module.costs.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(values, (costs,), fast_mode=True)
    weight = torch.tensor([0.5, -2.0, 0.0, 3.0])
    (values(costs) * weight).sum().backward()  # an upstream gradient that is not 1
    single = TransducerCosts(loss, semiring=semiring)
    single.load_state_dict(module.state_dict())
    total = torch.zeros(len(module.names))
    for pair, share in zip(PAIRS, weight, strict=True):
        single.zero_grad()
        single([pair]).sum().backward()
        total = total + share * single.costs.grad
    torch.testing.assert_close(costs.grad, total)


def test_costs_learn_and_keep_their_dtype():
    module = TransducerCosts(fg.EditDistance(fg.Alphabet("ab"))).float()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(20):
        right, wrong = module([("a", "b")]), module([("b", "a")])
        objective = torch.nn.functional.softplus(right - wrong).mean()
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    assert module.costs.dtype == torch.float32
    assert module([("a", "b")]).item() < module([("b", "a")]).item() - 1.0


def test_a_checkpoint_knows_the_order_of_the_classes(tmp_path):
    first, other = (TransducerCosts(fg.EditDistance(fg.Alphabet(s))) for s in ("ab", "ba"))
    with torch.no_grad():
        first.costs.mul_(torch.arange(len(first.names)))
    torch.save(torch.nn.Sequential(first).state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    with pytest.raises(
        fg.InvalidInputError, match=r"0.costs: the classes .* another order: number"
    ):
        torch.nn.Sequential(other).load_state_dict(state)
    same = TransducerCosts(fg.EditDistance(fg.Alphabet("ab")))
    torch.nn.Sequential(same).load_state_dict(state)
    assert same([("ab", "b")]).item() == first([("ab", "b")]).item()
    other.load_state_dict({"costs": state["0.costs"]})  # without names, as before
    with pytest.raises(fg.InvalidInputError, match="number 1 is '0 -> b' there and"):
        TransducerCosts(fg.EditDistance(fg.Alphabet("a"))).load_state_dict(first.state_dict())


def test_costs_of_half_precision_and_second_derivatives():
    """The losses of bfloat16 costs are float32; a second derivative is an error, not zero."""
    narrow = TransducerCosts(fg.EditDistance(fg.Alphabet("ab"))).to(torch.bfloat16)
    value = narrow([("ab", "b"), ("a", "ba")]).sum()
    assert value.dtype == torch.float32
    value.backward()
    assert narrow.costs.grad.dtype == torch.bfloat16
    costs = TransducerCosts(fg.EditDistance(fg.Alphabet("ab")))
    value = costs([("ab", "b")]).sum()
    (slope,) = torch.autograd.grad(value, costs.costs, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="first derivatives only"):
        (value + slope.square().sum()).backward()


def test_pairs_of_padded_tensors():
    module = TransducerCosts(fg.EditDistance(fg.Alphabet("ab")))
    expected = module([("ab", "b"), ("a", "ba")])
    first, second = torch.tensor([[0, 1], [0, -100]]), torch.tensor([[1, -100], [1, 0]])
    torch.testing.assert_close(
        module(list(zip(first, second, strict=True))), expected, rtol=0, atol=0
    )
    with pytest.raises(fg.InvalidInputError, match=r"pairs\[0\]\[1\] is torch.float32"):
        module([(first[0], second[0].float())])
    with pytest.raises(fg.FstgradError, match=r"pairs\[0\]\[0\]\[0\] is 7"):
        module([(first[0] + 7, second[0])])
