"""JAX objectives: equal to the PyTorch ones, under grad, jit and vmap, float32 and float64."""

import subprocess
import sys

import numpy as np
import pytest

import fstgrad as fg

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
import jax.numpy as jnp  # noqa: E402

import fstgrad.jax as fgj  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402
from tests.helpers.selection import in_turn  # noqa: E402
from tests.jax.cases import EDIT, GOLD, GRAPH, OBJECTIVES, ONCE, WRITTEN, made  # noqa: E402

pytestmark = pytest.mark.usefixtures("double")
EVERY = pytest.mark.parametrize("name", OBJECTIVES)
# a row of each operator, for what depends on the operator alone
EACH_OPERATOR = ["softmax_margin", "linear_chain_nll", "ctc_risk", "lattice_risk", "mrf_nll"]
EACH_OPERATOR += ["spanning_tree_kl", "spanning_tree_marginals"]


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
    plain, compile_it = jax.grad(total, places), name in EACH_OPERATOR
    for function in (plain, jax.jit(plain)) if compile_it else (plain,):
        for found, expected in zip(function(*arrays), slopes, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    for function in (mine, jax.jit(mine)) if compile_it else (mine,):
        np.testing.assert_allclose(function(*arrays), value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", EACH_OPERATOR)
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


@pytest.mark.parametrize(
    ("name", "dtype"),
    in_turn(EACH_OPERATOR, [jnp.float32, jnp.bfloat16, jnp.float16], ["softmax_margin"]),
)
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


def test_every_function_has_a_row():
    others = {name for name in fgj.__all__ if hasattr(getattr(fgj, name), "decode")}
    rows = {name.split()[0] for name in OBJECTIVES}
    others |= {"Estimate", "Sampling", "CTCAlignment", "ctc_align"}
    others |= {"function_of"}  # tested in tests/objectives
    assert rows == set(fgj.__all__) - others


@EVERY
def test_second_derivatives_are_right_or_an_error(name):
    """Reverse over reverse; the marginals are first derivatives already."""
    arrays, mine, other = made(name)
    direction = np.random.default_rng(1).normal(size=arrays[0].shape)

    def slope(*scores):
        return (jax.grad(lambda *s: mine(*s).sum())(*scores) * direction).sum()

    if name == "linear_chain_nll" or ("marginals" in name and "dense" not in name):
        for place in range(len(arrays)):
            with pytest.raises(fg.NotSupportedError, match="derivative"):
                jax.grad(slope, place)(*arrays)
        return
    if name != "nbest_risk" and any(word in name for word in ONCE):
        with pytest.raises(fg.NotSupportedError, match=r"has no (second|further) derivative"):
            jax.grad(slope)(*arrays)
        return
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    first = torch.autograd.grad(other(*tensors).sum(), tensors[0], create_graph=True)[0]
    (expected,) = torch.autograd.grad((first * torch.tensor(direction)).sum(), tensors[0])
    for function in (jax.grad(slope), jax.jit(jax.grad(slope)))[: 1 + (name in EACH_OPERATOR)]:
        np.testing.assert_allclose(function(*arrays), expected.numpy(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "shape, function",
    [
        ((0, 4, 4, 3), lambda s: fgj.crf_nll(s, np.zeros((0, 4), int))),
        ((0, 4, 4), lambda s: fgj.spanning_tree_nll(s, np.zeros((0, 3), int), single_root=True)),
        ((0, 3, 2), lambda s: fgj.mrf_log_partition(s, np.zeros((2, 2, 2)), GRAPH)),
    ],
    ids=["strings", "trees", "fields"],
)
def test_no_items_have_both_derivatives(shape, function):
    def slope(scores):
        return jax.grad(lambda s: function(s).sum())(scores).sum()

    scores = jnp.zeros(shape)
    assert function(scores).shape == (0,)
    assert jax.grad(slope)(scores).shape == shape


def test_no_items_have_no_losses():
    risk = fgj.spanning_tree_risk(jnp.zeros((0, 4, 4)), np.zeros((0, 4, 4)), single_root=True)
    assert risk.shape == (0,)
    grid = fg.PairwiseMRF.grid(3, 2, np.zeros((6, 2)), np.zeros((2, 2)))
    images, gold = jnp.zeros((0, 2, 3, 2)), np.zeros((0, 3, 2), int)
    assert fgj.mrf_nll(images, np.zeros((2, 2)), gold, grid).shape == (0,)


def test_hessian_in_reverse_mode():
    """JAX refuses forward mode, and with it jax.hessian; jacrev of grad is the Hessian."""
    scores = np.random.default_rng(0).normal(size=(2, 4, 3))
    gold = np.zeros((2, 4), dtype=np.int64)

    def total(table):
        return fgj.crf_nll(table, gold).sum()

    def by_positions(table):  # without transitions, positions are independent
        return (jax.nn.logsumexp(table, axis=2) - table[..., 0]).sum()

    found = jax.jit(jax.jacrev(jax.grad(total)))(scores)
    expected = jax.hessian(by_positions)(scores)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.hessian(total)(scores)


def test_costs_and_features_have_gradients():
    """Those of the costs are the marginals, also where JAX compiles and the scores are fixed."""
    scores, costs = (np.random.default_rng(k).normal(size=(2, 4, 4)) for k in (0, 1))
    mu = fgj.spanning_tree_marginals(scores, single_root=True)

    def risk(given):
        return fgj.spanning_tree_risk(scores, given, single_root=True).sum()

    for slope in (jax.grad(risk)(costs), jax.jit(jax.grad(risk))(costs)):
        np.testing.assert_allclose(slope, mu, rtol=0, atol=1e-12)
    table = torch.tensor(costs, requires_grad=True)
    fgt.spanning_tree_risk(torch.tensor(scores), table, single_root=True).sum().backward()
    np.testing.assert_allclose(table.grad, mu, rtol=0, atol=1e-12)
    features, target = costs[..., None], np.zeros(1)
    slope = jax.grad(
        lambda f: fgj.spanning_tree_generalized_expectation(
            scores, f, target, single_root=True
        ).sum()
    )(features)
    gap = (np.asarray(mu) * costs).sum(axis=(1, 2))
    np.testing.assert_allclose(slope[..., 0], gap[:, None, None] * mu, rtol=0, atol=1e-12)


def test_third_derivatives_are_an_error():
    def twice(scores):
        return jax.grad(lambda s: fgj.crf_nll(s, GOLD).sum())(scores)

    with pytest.raises(fg.NotSupportedError, match="no further derivative"):
        jax.grad(lambda s: jax.grad(lambda x: (twice(x) ** 2).sum())(s).sum())(np.zeros((2, 4, 3)))


def test_loops_and_recomputation():
    """As training loops have it: scan, checkpoint, vmap over gold, cond."""
    scores = np.random.default_rng(0).normal(size=(2, 4, 3))

    def loss(s, gold):
        return fgj.softmax_margin(s, gold, EDIT).sum()

    def step(s, _):
        value, slope = jax.value_and_grad(loss)(s, GOLD)
        return s - 0.1 * slope, value

    final, losses = jax.lax.scan(step, scores, None, length=3)
    own = scores
    for value in losses:
        assert float(value) == pytest.approx(float(loss(own, GOLD)), abs=1e-10)
        own = own - 0.1 * jax.grad(loss)(own, GOLD)
    np.testing.assert_allclose(final, own, rtol=0, atol=1e-10)
    again = jax.grad(jax.checkpoint(lambda s: loss(jnp.tanh(s), GOLD)))(scores)
    plain = jax.grad(lambda s: loss(jnp.tanh(s), GOLD))(scores)
    np.testing.assert_allclose(again, plain, rtol=0, atol=1e-12)
    golds = jnp.stack([GOLD, GOLD[:, ::-1]])
    both = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(scores, golds)
    each = [jax.grad(loss)(scores, gold) for gold in np.asarray(golds)]
    np.testing.assert_allclose(both, each, rtol=0, atol=1e-12)


def test_pytorch_is_not_needed():
    """JAX alone is installed by the extra of JAX."""
    program = "import sys; sys.modules['torch'] = None; import fstgrad.jax"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_bytes_have_a_mark_of_their_own_for_padding():
    """The value of independent positions is a sum over those that are known."""
    scores = np.random.default_rng(0).normal(size=(2, 4, 3))
    gold = np.array([[0, 1, 2, 0], [2, 255, 255, 255]], dtype=np.uint8)
    known, steps = gold != 255, np.zeros((3, 3))
    logs = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    shares = np.take_along_axis(logs, np.where(known, gold, 0)[..., None], axis=-1)[..., 0]
    field = fg.PairwiseMRF(np.zeros((4, 3)), steps, np.array([[0, 1], [1, 2], [2, 3]]))
    for call in (
        lambda g: fgj.crf_nll(scores, g, ignore_index=np.int64(255)),
        lambda g: fgj.linear_chain_nll(scores, steps, g, ignore_index=255),
        lambda g: fgj.mrf_nll(scores, steps, g, field, ignore_index=255),
    ):
        for found in (call(gold), call(jnp.asarray(gold)), jax.jit(call)(gold)):
            np.testing.assert_allclose(found, -(shares * known).sum(axis=1), rtol=0, atol=1e-12)
    written = np.where(gold == 0, 1, gold).astype(np.uint8)
    padded = np.where(written == 255, -100, written.astype(int))
    for call in (
        lambda g, **o: fgj.risk(scores, g, EDIT, **o),
        lambda g, **o: fgj.ctc_nll(scores, g[:, :2], **o),
        lambda g, **o: fgj.nbest_risk(scores[:, 0, :1], g[:, None], g, EDIT, **o),
    ):
        np.testing.assert_array_equal(call(written, ignore_index=255), call(padded))


def test_alignments_are_those_of_torch():
    table, sizes = np.random.default_rng(3).normal(size=(2, 5, 3)), np.array([5, 4])
    align = jax.jit(lambda s: fgj.ctc_align(s, WRITTEN, lengths=sizes))
    other = fgt.ctc_align(torch.tensor(table), torch.tensor(WRITTEN), lengths=sizes)
    for mine, theirs in zip(align(table), other, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), atol=1e-10)
    with pytest.raises(fg.NotSupportedError, match="no derivative"):
        jax.grad(lambda s: fgj.ctc_align(s, WRITTEN).log_prob.sum())(table)


def test_ends_that_are_masked_as_a_whole_cost_no_digits():
    rng = np.random.default_rng(3)
    emissions, steps = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3))
    gold, ones = np.array([[0, 1, 2, 0], [1, 1, 0, 2]]), np.ones(3)

    def loss(start, end):
        return fgj.linear_chain_nll(emissions, steps, gold, start=start * ones, end=end * ones)

    np.testing.assert_allclose(loss(-1e30, -1e300), loss(0.0, 0.0), rtol=0, atol=1e-12)
