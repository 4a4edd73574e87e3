"""Derivatives of spanning trees in PyTorch, of every promised order."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles.trees import long_third

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from tests.helpers.torch_trees import MODES, array_trees, tables  # noqa: E402


@MODES
@pytest.mark.parametrize(
    "name", ["log_partition", "marginals", "entropy", "kl", "risk", "generalized_expectation"]
)
def test_gradcheck_and_gradgradcheck(single_root, name):
    scores = tables(3)[:1].detach().requires_grad_()
    rng = np.random.default_rng(1)
    rest = {
        "kl": (tables(4)[:1].detach().requires_grad_(),),
        "risk": (torch.tensor(rng.normal(size=(1, 4, 4))),),
        "generalized_expectation": (
            torch.tensor(rng.normal(size=(1, 4, 4, 2))),
            torch.tensor(rng.normal(size=2)),
        ),
    }.get(name, ())

    def function(*inputs):
        return getattr(fgt, f"spanning_tree_{name}")(*inputs, single_root=single_root)

    assert torch.autograd.gradcheck(function, (scores, *rest), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (scores, *rest), fast_mode=True)


@MODES
@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("mask", [-1e4, -1e9, -1e30, -1e300, np.finfo(np.float32).min])
def test_masks_leave_derivatives_alone(mask, projective, single_root):
    """Gradients and second derivatives of tables with masks are those of the tables with -inf."""
    rng = np.random.default_rng(12)
    forbidden = rng.random((4, 5, 5)) < 0.4
    plain = rng.normal(size=(4, 5, 5))
    forbidden[:, [0, 1, 2, 3], [1, 2, 3, 4]] = False
    plain[2, 1, 2] += 30
    plain[2, 2, 1] += 30
    forbidden[2, 2, 1] = False
    other, v = torch.tensor(rng.normal(size=(2, 4, 5, 5)))
    options = {"single_root": single_root, "projective": projective}

    def derivatives(height):
        table = torch.tensor(np.where(forbidden, height, plain), requires_grad=True)
        rival = torch.where(torch.tensor(forbidden), height, other)
        values = [
            fgt.spanning_tree_entropy(table, **options),
            fgt.spanning_tree_kl(table, rival, **options),
            fgt.spanning_tree_risk(table, v, **options),
        ]
        found = []
        for value in values:
            (slope,) = torch.autograd.grad(value.sum(), table, create_graph=not projective)
            found.append(slope)
            if not projective:
                allowed = torch.where(torch.tensor(forbidden), 0.0, slope)
                found += torch.autograd.grad((allowed * v).sum(), table)
        return [x.detach().numpy() for x in found]

    for masked, infinite in zip(derivatives(mask), derivatives(-np.inf), strict=True):
        np.testing.assert_allclose(
            np.where(forbidden, 0, masked), np.where(forbidden, 0, infinite), atol=1e-8
        )


@MODES
def test_an_empty_sentence_has_no_derivatives(single_root):
    table = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    value = fgt.spanning_tree_log_partition(table, single_root=single_root)
    for _ in range(3):
        (slope,) = torch.autograd.grad(value.sum(), table, create_graph=True)
        assert not slope.any()
        value = slope


@MODES
def test_third_derivative_of_log_z(single_root):
    """log Z, marginals, Cov v, and the derivative of Cov v: the chain has no hidden end."""
    scores = tables(5)[:1].detach().requires_grad_()

    def second(s):
        log_z = fgt.spanning_tree_log_partition(s, single_root=single_root)
        (mu,) = torch.autograd.grad(log_z.sum(), s, create_graph=True)
        return mu

    assert torch.autograd.gradgradcheck(second, scores, fast_mode=True)


@MODES
@pytest.mark.parametrize("height", [20, 30, 40, "root"])
def test_third_derivatives_where_determinants_fail(single_root, height):
    """At mutual heads so far apart, and where root arcs are 800 lower, to 1e-8."""
    rng = np.random.default_rng(8)
    scores, v, u = rng.normal(size=(3, 6, 6))
    if height == "root":
        scores[0] -= 800
    else:
        scores[2, 3] += height
        scores[3, 2] += height
    table = torch.tensor(scores, requires_grad=True)
    direction, along = torch.tensor(v), torch.tensor(u)
    log_z = fgt.spanning_tree_log_partition(table, single_root=single_root)
    (mu,) = torch.autograd.grad(log_z, table, create_graph=True)
    (product,) = torch.autograd.grad((mu * direction).sum(), table, create_graph=True)
    (third,) = torch.autograd.grad((product * along).sum(), table)
    expected = long_third(scores, v, u, single_root=single_root)
    np.testing.assert_allclose(third.numpy(), expected, atol=1e-8)
    # the same for the Hessian of the entropy and the gradient of the risk's gradient
    entropy = fgt.spanning_tree_entropy(table, single_root=single_root)
    (slope,) = torch.autograd.grad(entropy, table, create_graph=True)
    (hessian,) = torch.autograd.grad((slope * along).sum(), table)
    regrets = scores - scores.max(axis=0)
    trees = array_trees(table, single_root=single_root)
    wanted = -long_third(scores, regrets, u, single_root=single_root) - trees.covariance_product(u)
    np.testing.assert_allclose(hessian.numpy(), wanted, atol=1e-8 * np.abs(regrets).max())


def test_projective_third_derivatives_are_refused():
    scores = tables(23).detach().requires_grad_()
    entropy = fgt.spanning_tree_entropy(scores, single_root=True, projective=True).sum()
    (slope,) = torch.autograd.grad(entropy, scores, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="third derivative"):
        torch.autograd.grad(slope.sum(), scores)
