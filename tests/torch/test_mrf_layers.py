"""Pseudo-marginals and log Z of belief propagation as layers, differentiable by linear response."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.messages.linear_response import linear_response
from fstgrad.mrf.scored_graph import Table
from tests.mrf.models import masked_model, random_grid, random_model

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

OPTIONS = {"tol": 1e-13, "max_iter": 3000, "damping": 0.2}
LOOPY = pytest.mark.parametrize("method", ["bp", "trw"])
SQUARE = fg.PairwiseMRF(
    np.zeros((4, 3)), np.zeros((5, 3, 3)), [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
)


def scores(shared, batch=2, scale=0.6):
    rng = np.random.default_rng(3)
    node = torch.tensor(scale * rng.normal(size=(batch, 4, 3)), requires_grad=True)
    shape = (3, 3) if shared else (batch, 5, 3, 3)
    return node, torch.tensor(scale * rng.normal(size=shape), requires_grad=True)


@LOOPY
@pytest.mark.parametrize("shared", [True, False])
def test_pseudo_marginals_are_a_layer(method, shared):
    node, edge = scores(shared)

    def layer(n, e):
        return tuple(fgt.mrf_marginals(n, e, SQUARE, method=method, **OPTIONS))

    found = layer(node, edge)
    single = edge.detach().numpy() if shared else edge.detach().numpy()[1]
    own = SQUARE.with_scores(node[1].detach().numpy(), single).infer(method, **OPTIONS)
    np.testing.assert_allclose(found[0][1].detach().numpy(), own.node, atol=1e-12)
    if not shared:
        np.testing.assert_allclose(found[1][1].detach().numpy(), own.edge, atol=1e-12)
    assert torch.autograd.gradcheck(layer, (node, edge), atol=1e-6, fast_mode=not shared)


@LOOPY
def test_the_gradient_of_log_z_is_the_pseudo_marginals(method):
    node, edge = scores(shared=False)

    def value(n, e):
        return fgt.mrf_log_partition(n, e, SQUARE, method=method, **OPTIONS)

    assert torch.autograd.gradcheck(value, (node, edge), atol=1e-6, fast_mode=True)
    slopes = torch.autograd.grad(value(node, edge).sum(), (node, edge))
    for slope, own in zip(
        slopes, fgt.mrf_marginals(node, edge, SQUARE, method=method, **OPTIONS), strict=True
    ):
        torch.testing.assert_close(slope, own, rtol=0, atol=1e-12)


@LOOPY
def test_second_derivatives_of_losses_with_unknown_labels(method):
    node, edge = scores(shared=True)
    gold = torch.tensor([[0, -100, 2, 1], [1, 1, 0, 2]])

    def loss(n, e):
        return fgt.mrf_nll(n, e, gold, SQUARE, method=method, reduction="none", **OPTIONS)

    assert torch.autograd.gradgradcheck(loss, (node, edge), atol=1e-6, fast_mode=True)


@LOOPY
@pytest.mark.parametrize("build", [random_model, masked_model])
@pytest.mark.parametrize("name", ["no edges", "chain", "two trees"])
@pytest.mark.parametrize("tol", [1e-13, 10.0])
def test_the_response_is_the_covariance_product_on_forests(method, build, name, tol):
    """Also with forbidden labels and pairs, and with different numbers of labels."""
    model = build(name)
    rng = np.random.default_rng(0)
    direction = Table(*(rng.normal(size=table.shape) for table in model.marginals()))
    for mine, exact in zip(
        linear_response(model, method, direction, tol=tol),
        model.covariance_product(direction),
        strict=True,
    ):
        np.testing.assert_allclose(mine, exact, atol=1e-10 if tol < 1 else 1e-8)


@LOOPY
def test_hard_zeros_on_a_loop(method):
    """The response is the difference quotient of the pseudo-marginals, forbidden labels kept."""
    model = masked_model("square with a chord")
    rng = np.random.default_rng(1)
    direction = Table(*(rng.normal(size=table.shape) for table in model.scores))
    found = linear_response(model, method, direction, **OPTIONS)
    ends = []
    for step in (1e-5, -1e-5):
        moved = [s + step * d for s, d in zip(model.scores, direction, strict=True)]
        ends.append(model.with_scores(*moved).infer(method, **OPTIONS))
    np.testing.assert_allclose(found.node, (ends[0].node - ends[1].node) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(found.edge, (ends[0].edge - ends[1].edge) / 2e-5, atol=1e-7)


def test_what_does_not_converge_warns():
    frustrated = random_grid(5, 5, 2, scale=4.0, shared=False)
    node, edge = (torch.tensor(np.array(x), requires_grad=True) for x in frustrated.scores)
    with pytest.warns(RuntimeWarning, match="bp did not converge"):
        fgt.mrf_marginals(node.detach(), edge.detach(), frustrated, method="bp", max_iter=3)
    with pytest.warns(RuntimeWarning, match="its derivative did not converge"):
        linear_response(frustrated, "bp", Table(*frustrated.scores), max_iter=3)


def test_larger_factors_have_no_response():
    triple = fg.PairwiseMRF.from_factors([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(fg.NotSupportedError, match="larger factors"):
        linear_response(triple, "bp", Table(np.zeros((3, 2)), np.zeros((0, 2, 2))))
