"""The operator that all objectives share, on a toy whose derivatives one can see."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fstgrad as fg  # noqa: E402
from fstgrad.torch import operators  # noqa: E402


class Cube(operators.Objective):
    """p * sum x^3 for each item."""

    what = "the cube"

    def __init__(self, factor=1.0):
        self.factor = factor

    def evaluate(self, scores, constants, threads=1):
        wide = scores[0].astype(np.float64)
        return self.factor * (wide**3).sum(axis=1), [3 * self.factor * wide**2]


class SmoothCube(Cube):
    def hessian_product(self, scores, constants, directions):
        return [6 * self.factor * scores[0] * directions[0]]


def cubes(scores, factor=2.0):
    return operators.values(operators.persistent(SmoothCube, factor), [scores])


@pytest.fixture
def scores():
    return torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64, requires_grad=True)


def test_value_and_both_derivatives(scores):
    assert cubes(scores).tolist() == [2 * (1 + 8), 2 * (27 - 1)]
    assert torch.autograd.gradcheck(cubes, scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(cubes, scores, fast_mode=True)


def test_one_item_without_an_axis_is_an_item_of_a_batch(scores):
    def one(item):
        return operators.values(operators.persistent(SmoothCube, 2.0), [item], axis=False)

    item = scores.detach()[1].clone().requires_grad_()
    assert one(item).shape == ()
    assert one(item).item() == cubes(scores)[1].item()
    assert torch.autograd.gradcheck(one, item, fast_mode=True)
    assert torch.autograd.gradgradcheck(one, item, fast_mode=True)
    compiled = torch.compile(one, fullgraph=True, backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(item), item)
    assert gradient.tolist() == [6 * 9, 6 * 1]


def test_a_graph_that_is_kept_keeps_its_gradients(scores):
    """Only the last backward pass scales them in place."""
    value = cubes(scores)  # the gradient is 6 x^2
    for weights in ([1.0, 1.0], [2.0, -3.0]):
        (gradient,) = torch.autograd.grad(
            value, scores, torch.tensor(weights).double(), retain_graph=True
        )
        assert gradient.tolist() == [
            [6 * weights[0], 24 * weights[0]],
            [54 * weights[1], 6 * weights[1]],
        ]
    value.sum().backward()
    assert scores.grad.tolist() == [[6, 24], [54, 6]]
    (5 * cubes(scores).sum()).backward()  # is added
    assert scores.grad.tolist() == [[36, 144], [324, 36]]


def test_operator_is_well_formed(scores):
    key = operators.persistent(SmoothCube, 1.0)
    torch.library.opcheck(operators._values, ([scores], [torch.arange(2)], key))


def test_missing_hessian_is_an_error(scores):
    (first,) = torch.autograd.grad(
        operators.values(Cube(), [scores]).sum(), scores, create_graph=True
    )
    with pytest.raises(fg.NotSupportedError, match="the cube has no second derivative"):
        torch.autograd.grad(first.sum(), scores)


def test_third_derivative_is_an_error(scores):
    (first,) = torch.autograd.grad(cubes(scores).sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), scores, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="third derivative"):
        torch.autograd.grad(second.sum(), scores)


def test_compiled_graph_is_whole_and_follows_the_settings(scores):
    compiled = torch.compile(cubes, fullgraph=True, backend="aot_eager")
    for factor in (2.0, 5.0, 7.0, 4, 3, 2):
        value = compiled(scores, factor)
        assert value.tolist() == [factor * 9, factor * 26]
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient.tolist() == (3 * factor * scores.detach() ** 2).tolist()


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("transform", ["grad", "jacrev", "jacfwd", "hessian"])
def test_torch_func_says_what_works(transform, scores):
    function = getattr(torch.func, transform)(lambda s: cubes(s).sum())
    with pytest.raises(fg.NotSupportedError, match="backward"):
        function(scores.detach())


def test_vmap_joins_the_batch(scores):
    stacked = torch.stack([scores.detach(), 2 * scores.detach()], dim=1)
    found = torch.func.vmap(cubes, in_dims=1)(stacked)
    assert found.tolist() == [[18.0, 52.0], [144.0, 416.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_wide(dtype, scores):
    small = (scores.detach() * 1e-3).to(dtype).requires_grad_()
    value = cubes(small)
    assert value.dtype == torch.float32
    # a scaled loss keeps gradients that half precision would round to zero
    (65536 * value.sum()).backward()
    assert small.grad.dtype == dtype
    torch.testing.assert_close(small.grad.double(), 65536 * 6 * small.detach().double() ** 2,
                               rtol=2**-7, atol=0)  # fmt: skip


@pytest.mark.parametrize("given", [torch.arange(4), np.zeros(3), None])
def test_only_floating_point_tensors(given):
    with pytest.raises(fg.InvalidInputError, match="floating-point"):
        cubes(given)


def test_what_is_lent_lives_with_the_graph(scores):
    value = operators.values(SmoothCube(3.0), [scores])
    (first,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), scores)
    assert second.tolist() == (18 * scores.detach()).tolist()
