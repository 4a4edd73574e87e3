"""JAX objectives: equal to the PyTorch ones, under grad, jit and vmap, float32 and float64."""

import numpy as np
import pytest

import fstgrad as fg

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
import jax.numpy as jnp  # noqa: E402

import fstgrad.jax as fgj  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
GOLD = np.array([[0, 1, 2, 0], [2, -100, 1, -100]])
HYPOTHESES = np.array([[[0, 1, 2], [0, 1, -100]], [[2, 1, -100], [1, -100, -100]]])
HEADS = np.array([[0, 1, 2], [2, 0, 2]])
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


# name: shapes of the scores, the JAX function, the PyTorch function
OBJECTIVES = {
    "softmax_margin": (
        [(2, 4, 4, 3)],
        lambda s: fgj.softmax_margin(s, GOLD, EDIT),
        lambda s: fgt.softmax_margin(s, torch.tensor(GOLD), EDIT, reduction="none"),
    ),
    "capped": (
        [(2, 4, 3)],
        lambda s: fgj.softmax_margin(s, GOLD, EDIT, cap=1.0),
        lambda s: fgt.softmax_margin(s, torch.tensor(GOLD), EDIT, reduction="none", cap=1.0),
    ),
    "risk": (
        [(2, 4, 4, 3)],
        lambda s: fgj.risk(s, GOLD, EDIT),
        lambda s: fgt.risk(s, torch.tensor(GOLD), EDIT, reduction="none"),
    ),
    "crf_nll": (
        [(2, 4, 4, 3)],
        lambda s: fgj.crf_nll(s, GOLD),
        lambda s: fgt.crf_nll(s, torch.tensor(GOLD), reduction="none"),
    ),
    "linear_chain_nll": (
        [(2, 4, 3), (3, 3)],
        lambda e, t: fgj.linear_chain_nll(e, t, GOLD),
        lambda e, t: fgt.linear_chain_nll(e, t, torch.tensor(GOLD), reduction="none"),
    ),
    "nbest_risk": (
        [(2, 2)],
        lambda s: fgj.nbest_risk(s, HYPOTHESES, GOLD, EDIT),
        lambda s: fgt.nbest_risk(
            s, torch.tensor(HYPOTHESES), torch.tensor(GOLD), EDIT, reduction="none"
        ),
    ),
    "spanning_tree_nll": (
        [(2, 4, 4)],
        lambda s: fgj.spanning_tree_nll(s, HEADS, single_root=True),
        lambda s: fgt.spanning_tree_nll(s, torch.tensor(HEADS), single_root=True),
    ),
    "mrf_nll": (
        [(2, 3, 2), (2, 2)],
        lambda n, e: fgj.mrf_nll(n, e, np.array([[0, 1, 1], [1, 0, 0]]), GRAPH),
        lambda n, e: fgt.mrf_nll(
            n, e, torch.tensor([[0, 1, 1], [1, 0, 0]]), GRAPH, reduction="none"
        ),
    ),
}
EVERY = pytest.mark.parametrize("name", OBJECTIVES)


def made(name, seed=0):
    rng = np.random.default_rng(seed)
    shapes, mine, other = OBJECTIVES[name]
    return [rng.normal(size=shape) for shape in shapes], mine, other


def by_torch(arrays, function, weights):
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    values = function(*tensors)
    (values * torch.tensor(weights)).sum().backward()
    return values.detach().numpy(), [tensor.grad.numpy() for tensor in tensors]


@EVERY
def test_equals_pytorch_plain_and_compiled(name):
    arrays, mine, other = made(name)
    weights = np.array([2.0, -0.5])
    value, slopes = by_torch(arrays, other, weights)

    def total(*scores):
        return (mine(*scores) * weights).sum()

    places = tuple(range(len(arrays)))
    for function in (jax.grad(total, places), jax.jit(jax.grad(total, places))):
        for found, expected in zip(function(*arrays), slopes, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    for function in (mine, jax.jit(mine)):
        np.testing.assert_allclose(function(*arrays), value, rtol=0, atol=1e-10)


@EVERY
def test_vmap_is_a_loop(name):
    sets = [made(name, seed)[0] for seed in range(3)]
    mine = OBJECTIVES[name][1]
    stacked = [np.stack(parts) for parts in zip(*sets, strict=True)]
    values = jax.jit(jax.vmap(mine))(*stacked)
    np.testing.assert_allclose(values, [mine(*own) for own in sets], rtol=0, atol=1e-12)

    def gradient(*scores):
        return jax.grad(lambda *s: mine(*s).sum(), 0)(*scores)

    slopes = jax.vmap(gradient)(*stacked)
    np.testing.assert_allclose(slopes, [gradient(*own) for own in sets], rtol=0, atol=1e-12)


@EVERY
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_narrow_scores(name, dtype):
    arrays, mine, _ = made(name)
    narrow = [jnp.asarray(array).astype(dtype) for array in arrays]
    value, slope = jax.value_and_grad(lambda *s: mine(*s).sum())(*narrow)
    wide = [array.astype(jnp.float64) for array in narrow]
    exact, expected = jax.value_and_grad(lambda *s: mine(*s).sum())(*wide)
    assert value.dtype == jnp.float32
    assert slope.dtype == dtype
    np.testing.assert_allclose(float(value), float(exact), rtol=1e-5)
    np.testing.assert_allclose(
        slope.astype(jnp.float64), expected, rtol=0, atol=float(jnp.finfo(dtype).eps) * 2
    )


@EVERY
def test_second_derivatives_are_an_error(name):
    arrays, mine, _ = made(name)
    if name == "nbest_risk":
        return  # plain JAX but for its constants
    with pytest.raises(ValueError, match="JVP"):
        jax.hessian(lambda *s: mine(*s).sum())(*arrays)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fgj.softmax_margin(np.zeros((4, 3)), GOLD, EDIT),
        lambda: fgj.risk(np.zeros((2, 4, 3)), GOLD, None),
        lambda: fgj.linear_chain_nll(np.zeros((2, 4, 3)), np.zeros((2, 2)), GOLD),
        lambda: fgj.nbest_risk(np.zeros((2, 3)), HYPOTHESES, GOLD, EDIT),
        lambda: fgj.spanning_tree_nll(np.zeros((4, 4)), HEADS, single_root=True),
        lambda: fgj.mrf_nll(np.zeros((3, 2)), np.zeros((2, 2)), HEADS, GRAPH),
    ],
)
def test_bad_shapes(call):
    with pytest.raises(fg.InvalidInputError):
        call()


def test_a_loss_that_is_none():
    with pytest.raises(fg.InvalidInputError, match="loss is a str; give a Loss"):
        fgj.risk(np.zeros((1, 2, 2)), np.zeros((1, 2), int), "edit")
