"""Spanning trees in PyTorch: values of the arrays API, derivatives of every promised order."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import trees as oracle

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.torch.trees import native_log_partition  # noqa: E402

LENGTHS = [3, 2]
MODES = pytest.mark.parametrize("single_root", [True, False])


def tables(seed=0, *, labels=None, size=4):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, size, size) + ((labels,) if labels else ())
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def array_trees(scores, **options):
    return fg.SpanningTrees(scores.detach().numpy(), **options)


@MODES
@pytest.mark.parametrize("labels", [None, 2])
def test_log_partition_and_marginals_equal_the_arrays(single_root, labels):
    scores = tables(labels=labels)
    options = {"single_root": single_root, "lengths": LENGTHS, "labeled": labels is not None}
    trees = array_trees(scores, **options)
    log_z = fgt.spanning_tree_log_partition(scores, **options)
    np.testing.assert_allclose(log_z.detach().numpy(), trees.log_partition(), atol=1e-12)
    mu = fgt.spanning_tree_marginals(scores, **options)
    np.testing.assert_allclose(mu.detach().numpy(), trees.marginals(), atol=1e-12)
    log_z.backward(torch.tensor([2.0, -1.0], dtype=torch.float64))
    expected = trees.marginals() * np.array([2.0, -1.0]).reshape(2, *(1,) * (scores.ndim - 1))
    np.testing.assert_allclose(scores.grad.numpy(), expected, atol=1e-12)


@MODES
def test_other_quantities_equal_the_arrays(single_root):
    scores, other = tables(1), tables(2)
    options = {"single_root": single_root, "lengths": LENGTHS}
    p, q = array_trees(scores, **options), array_trees(other, **options)
    rng = np.random.default_rng(0)
    costs, features = rng.normal(size=(2, 4, 4)), rng.normal(size=(2, 4, 4, 3))
    target = rng.normal(size=3)
    pairs = [
        (fgt.spanning_tree_entropy(scores, **options), p.entropy_and_gradient()),
        (fgt.spanning_tree_kl(scores, other, **options), p.kl_and_gradients(q)[:2]),
        (fgt.spanning_tree_risk(scores, torch.tensor(costs), **options), p.risk(costs)),
        (
            fgt.spanning_tree_generalized_expectation(
                scores, torch.tensor(features), torch.tensor(target), **options
            ),
            p.generalized_expectation(features, target),
        ),
    ]
    for mine, (value, gradient) in pairs:
        np.testing.assert_allclose(mine.detach().numpy(), value, atol=1e-12)
        (slope,) = torch.autograd.grad(mine.sum(), scores)
        np.testing.assert_allclose(slope.numpy(), gradient, atol=1e-11)
    (slope,) = torch.autograd.grad(fgt.spanning_tree_kl(scores, other, **options).sum(), other)
    np.testing.assert_allclose(slope.numpy(), p.kl_and_gradients(q)[2], atol=1e-12)


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

    assert torch.autograd.gradcheck(function, (scores, *rest))
    assert torch.autograd.gradgradcheck(function, (scores, *rest))


@MODES
def test_third_derivative_of_log_z(single_root):
    """log Z, marginals, Cov v, and the derivative of Cov v: the chain has no hidden end."""
    scores = tables(5)[:1].detach().requires_grad_()

    def second(s):
        log_z = fgt.spanning_tree_log_partition(s, single_root=single_root)
        (mu,) = torch.autograd.grad(log_z.sum(), s, create_graph=True)
        return mu

    assert torch.autograd.gradgradcheck(second, scores)


@MODES
def test_native_equals_enumeration(single_root):
    scores = tables(6)
    expected = [
        oracle.moments(item.detach().numpy(), single_root=single_root)[0] for item in scores
    ]
    mine = native_log_partition(scores, single_root=single_root)
    np.testing.assert_allclose(mine.detach().numpy(), expected, atol=1e-12)


def test_masks_dtypes_and_single_tables():
    scores = tables(7)[0].detach()
    scores[1, 2] = -torch.inf
    scores.requires_grad_()
    value = fgt.spanning_tree_log_partition(scores, single_root=True)
    value.backward()
    assert value.ndim == 0
    assert scores.grad[1, 2] == 0
    narrow = scores.detach().to(torch.float32).requires_grad_()
    entropy = fgt.spanning_tree_entropy(narrow, single_root=True)
    entropy.backward()
    assert entropy.dtype == narrow.grad.dtype == torch.float32
    exact = array_trees(narrow.to(torch.float64), single_root=True).entropy()
    assert entropy.item() == pytest.approx(exact, rel=1e-6)


def test_stable_where_a_determinant_is_not():
    scores = np.full((4, 4), -1e9)
    scores[0, 1] = scores[1, 2] = scores[2, 3] = 0.0
    table = torch.tensor(scores, requires_grad=True)
    entropy = fgt.spanning_tree_entropy(table, single_root=True)
    entropy.backward()
    assert entropy.item() == 0
    assert not table.grad.any()


def test_bad_shapes():
    with pytest.raises(fg.InvalidInputError, match=r"\(3,\)"):
        fgt.spanning_tree_log_partition(torch.zeros(3), single_root=True)
