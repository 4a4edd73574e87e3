"""On a device: second derivatives where gradients of 0 arrive, empty sides, masks."""

from contextlib import nullcontext

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
fgt = pytest.importorskip("fstgrad.torch")
EDIT, GOLD = fg.EditDistance(fg.Alphabet("abcd")), torch.tensor([[0, 1, 2, 3]])
FIELD = fg.PairwiseMRF(np.zeros((4, 3)), np.zeros((3, 3)), [[0, 1], [1, 2], [2, 3], [0, 3]])
TABLE = torch.randn(3, 3, generator=torch.Generator().manual_seed(4)).double()
ONE = {"reduction": "none"}
FUNCTIONS = {
    "strings": (lambda s: fgt.crf_nll(s, GOLD, **ONE), (1, 4, 4)),
    "bigrams": (lambda s: fgt.softmax_margin(s, GOLD, EDIT, **ONE), (1, 4, 5, 4)),
    "risk": (lambda s: fgt.risk(s, GOLD, EDIT, **ONE), (1, 4, 4)),
    "chain": (lambda s: fgt.CRF(s, TABLE).log_partition(), (1, 4, 3)),
    "ctc": (lambda s: fgt.ctc_nll(s, torch.tensor([[1, 1, 2]]), **ONE), (1, 6, 3)),
    "trees": (lambda s: fgt.spanning_tree_entropy(s, single_root=True), (1, 4, 4)),
    "fields": (lambda s: fgt.mrf_log_partition(s, TABLE, FIELD, method="bp"), (1, 4, 3)),
    "mean field": (
        lambda s: fgt.mrf_log_partition(s, TABLE, FIELD, method="mean-field"), (1, 4, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_is_differentiable_where_its_weight_is_zero(name):
    """`torch.autograd.functional.jvp` weights the values by 0, and differentiates these weights."""
    function, shape = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(7)
    scores, along = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    with fgt.use_device_paths():
        _, moved = torch.autograd.functional.jvp(function, scores, along)
        _, slope = torch.autograd.functional.vjp(function, scores, torch.ones(1).double())
    assert moved.item() == pytest.approx((slope * along).sum().item(), abs=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("words", [2, 4])
def test_second_derivatives_of_entropies_with_a_head_that_is_certain(words, single_root):
    scores = torch.randn(1, words + 1, words + 1, generator=torch.Generator().manual_seed(1))
    scores = scores.double()
    scores[:, 1:, 1] = -torch.inf
    along = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).reshape(scores.shape)
    results = []
    for on_device in (False, True):
        given = scores.clone().requires_grad_()
        with fgt.use_device_paths(on_device):
            value = fgt.spanning_tree_entropy(given, single_root=single_root)
            (slope,) = torch.autograd.grad(value, given, create_graph=True)
            results += torch.autograd.grad((slope * along).sum(), given)
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (2, 3, 5, 3), (2, 3, 1, 3)])
def test_shapes_of_predictions_are_checked_on_a_device_too(shape):
    messages = []
    for on_device in (False, True):
        with fgt.use_device_paths(on_device), pytest.raises(fg.InvalidInputError) as caught:
            fgt.Strings(torch.zeros(shape))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_no_label_in_no_frame_is_certain():
    """Labels without a frame have no path."""
    scores, gold = torch.zeros(3, 2, 3), torch.tensor([[-100], [1], [-100]])
    with fgt.use_device_paths():
        values = fgt.ctc_nll(scores, gold, lengths=torch.tensor([0, 0, 2]), reduction="none")
    assert values[0] == 0.0
    assert values[1].isnan()
    assert values[2].item() == pytest.approx(2 * np.log(3), rel=1e-6)


@pytest.mark.parametrize("on_device", [False, True])
def test_ends_that_are_masked_as_a_whole_cost_no_digits(on_device):
    generator = torch.Generator().manual_seed(3)
    emissions, transitions = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 4, 3), (3, 3))
    )
    gold, ones = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2]]), torch.ones(3, dtype=torch.float64)

    def loss(start, end):
        return fgt.linear_chain_nll(
            emissions, transitions, gold, start=start * ones, end=end * ones
        )

    with fgt.use_device_paths() if on_device else nullcontext():
        torch.testing.assert_close(loss(-1e30, -1e300), loss(0.0, 0.0), rtol=0, atol=1e-12)
