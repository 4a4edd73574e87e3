"""On a device: items without a value that are left out of a sum leave no NaN in any gradient."""

import pytest

torch = pytest.importorskip("torch")
fgt = pytest.importorskip("fstgrad.torch")
from tests.torch import cases  # noqa: E402

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]).bool()
GOLD = torch.tensor([[2, 1, 2, 2, 1], [2, 1, 0, 0, 0], [1, 1, 2, 2, 0], [0, 0, 0, 2, 0]])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["entropy", "kl", "risk", "softmax_margin"])
def test_an_item_without_a_value_can_be_left_out(name, value):
    """Then it leaves no NaN in the scores and in the steps that all items share."""
    generator = torch.Generator().manual_seed(7)
    emissions, transitions = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((4, 5, 3), (3, 3))
    )
    other = fgt.CRF(emissions.flip(1).nan_to_num(), transitions, MASK)
    given = [other] if name == "kl" else []
    if name in ("risk", "softmax_margin"):
        given = [GOLD, 1 - torch.eye(emissions.shape[2], dtype=emissions.dtype)]
    options = {} if name in ("entropy", "kl") else {"reduction": "none"}

    def values():
        return getattr(fgt.CRF(emissions, transitions, MASK), name)(*given, **options)

    good = values()
    emissions[1, 1] = value
    leaves = [table.requires_grad_() for table in (emissions, transitions)]
    kept = [0, 2, 3]
    with fgt.use_device_paths():
        found = values()
    assert found.isnan().tolist() == [False, True, False, False]
    torch.testing.assert_close(found[kept], good[kept], rtol=1e-10, atol=1e-12)
    for slope in torch.autograd.grad(found[kept].sum(), leaves):
        assert slope.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize("name", ["marginals", "entropy", "kl", "risk", "expectation", "nll"])
def test_a_sentence_without_a_value_can_be_left_out(name, labels, value):
    """Its value is NaN, also where -inf leaves no tree; the scores get no NaN without it."""
    generator = torch.Generator().manual_seed(8)
    shape = (2, 4, 4, labels) if labels else (2, 4, 4)
    scores, costs = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    features, heads = torch.stack([costs, costs.square()], dim=-1), torch.tensor([[0, 1, 2]] * 2)
    gold = torch.stack([heads, 0 * heads], dim=-1) if labels else heads
    functions = {
        "marginals": fgt.spanning_tree_marginals,
        "entropy": fgt.spanning_tree_entropy,
        "kl": lambda s, **family: fgt.spanning_tree_kl(s, costs, **family),
        "risk": lambda s, **family: fgt.spanning_tree_risk(s, costs, **family),
        "expectation": lambda s, **family: fgt.spanning_tree_generalized_expectation(
            s, features, torch.zeros(2, dtype=torch.float64), **family
        ),
        "nll": lambda s, **family: fgt.spanning_tree_nll(s, gold, **family),
    }
    family = {"single_root": True, "labeled": bool(labels)}
    good = functions[name](scores, **family)
    scores[0] = value
    scores.requires_grad_()
    with fgt.use_device_paths():
        found = functions[name](scores, **family)
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], good[1], rtol=1e-10, atol=1e-12)
    assert torch.autograd.grad(found[1].square().sum(), scores)[0].isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_list_without_a_value_can_be_left_out(value):
    scores = torch.zeros(2, 2)
    scores[0] = value
    scores.requires_grad_()
    with fgt.use_device_paths():
        values = fgt.nbest_risk(scores, cases.HYPOTHESES, cases.GOLD, cases.EDIT, reduction="none")
    assert values.isnan().tolist() == [True, False]
    assert torch.autograd.grad(values[1], scores)[0].isfinite().all()
