"""Second derivatives in operations of PyTorch, where gradients of 0 arrive."""

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
