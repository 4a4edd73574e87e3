"""Spanning trees in PyTorch: values of the array API, families, GPUs, dtypes, transforms."""

import numpy as np
import pytest

import fstgrad as fg
import fstgrad.torch as fgt
from tests.helpers.torch_trees import MODES, array_trees, tables, torch
from tests.oracles import trees as oracle

LENGTHS = [3, 2]


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


@MODES
@pytest.mark.parametrize("labels", [None, 2])
def test_nll_equals_the_arrays(single_root, labels):
    scores = tables(8, labels=labels)
    options = {"single_root": single_root, "lengths": LENGTHS, "labeled": labels is not None}
    gold = torch.tensor([[0, 1, 2], [2, 0, -1]])
    if labels:
        gold = torch.stack([gold, torch.tensor([[1, 0, 1], [0, 1, -1]])], dim=-1)
    values = fgt.spanning_tree_nll(scores, gold, **options)
    expected, gradient = array_trees(scores, **options).nll(gold.numpy())
    np.testing.assert_allclose(values.detach().numpy(), expected, atol=1e-12)
    values.sum().backward()
    np.testing.assert_allclose(scores.grad.numpy(), gradient, atol=1e-12)
    assert torch.autograd.gradgradcheck(
        lambda s: fgt.spanning_tree_nll(s, gold, **options), scores, fast_mode=True
    )


@pytest.mark.parametrize("mask", [-1e9, -1e30, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("labels", [None, 2])
def test_a_word_that_is_masked_whole_costs_no_digits(mask, labels):
    options = {"single_root": True, "labeled": labels is not None}
    scores, gold = tables(8, labels=labels).detach(), torch.tensor([[0, 1, 2], [2, 0, 1]])
    known = gold if labels is None else torch.stack([gold, gold * 0], dim=-1)
    scores[:, :, 1] = 0.0
    masked = scores.clone()
    masked[:, :, 1] = mask
    for function in (fgt.spanning_tree_nll, fgt.spanning_tree_partial_nll):
        found, expected = (function(table, known, **options) for table in (masked, scores))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mask", [-1e9, -1e30, torch.finfo(torch.float64).min, 1e12])
@pytest.mark.parametrize("projective", [False, True])
def test_a_masked_root_costs_no_digits(mask, projective):
    scores = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    options = {"single_root": True, "projective": projective}
    scores[:, 0] = 0.0
    masked = scores.clone()
    masked[:, 0] = mask
    for gold in ([0, 1, 2], [2, 0, 2]):
        found, expected = (
            fgt.spanning_tree_nll(t, torch.tensor([gold]), **options) for t in (masked, scores)
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_masks_in_every_tree_are_an_error():
    """Words 1 and 2 are cut off from the others by masks of arcs."""
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[:, [0, 0, 3, 3], [1, 2, 1, 2]] = -1e30
    gold = torch.tensor([[3, 1, 0]])
    for function in (fgt.spanning_tree_nll, fgt.spanning_tree_partial_nll):
        with pytest.raises(fg.InfeasibleError, match="every tree has a mask"):
            function(scores, gold, single_root=True)
    with fgt.use_device_paths():
        assert fgt.spanning_tree_nll(scores, gold, single_root=True).isnan()


def test_nll_of_what_is_no_tree():
    with pytest.raises(fg.InvalidInputError, match="cycle"):
        fgt.spanning_tree_nll(torch.zeros(3, 3), torch.tensor([2, 1]), single_root=True)


FAMILIES = pytest.mark.parametrize(
    "options",
    [
        {"single_root": single_root, "projective": projective}
        for single_root in (True, False)
        for projective in (True, False)
    ],
    ids=str,
)
QUANTITIES = ["log_partition", "marginals", "entropy", "kl", "risk", "generalized_expectation"]


def others(name, shape, seed=30):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    return {
        "kl": (draw(*shape).requires_grad_(),),
        "risk": (draw(*shape),),
        "generalized_expectation": (draw(*shape, 2), draw(2)),
    }.get(name, ())


@FAMILIES
@pytest.mark.parametrize("labels", [None, 2])
@pytest.mark.parametrize("name", QUANTITIES)
def test_every_family_equals_the_arrays(options, labels, name):
    """Values and first derivatives, labeled and projective ones too."""
    scores = tables(20, labels=labels)
    rest = others(name, scores.shape)
    family = fg.ProjectiveTrees if options["projective"] else fg.SpanningTrees
    settings = {"single_root": options["single_root"], "lengths": LENGTHS}
    p = family(scores.detach().numpy(), labeled=labels is not None, **settings)
    arrays = [x.detach().numpy() for x in rest]
    if name == "kl":
        arrays[0] = p.with_scores(arrays[0])
    expected = {
        "log_partition": lambda: (p.log_partition(), p.marginals()),
        "marginals": lambda: (p.marginals(), p.covariance_product(np.ones_like(p.scores))),
        "entropy": p.entropy_and_gradient,
        "kl": lambda: p.kl_and_gradients(*arrays)[:2],
        "risk": lambda: p.risk(*arrays),
        "generalized_expectation": lambda: p.generalized_expectation(*arrays),
    }[name]()
    value = getattr(fgt, f"spanning_tree_{name}")(
        scores, *rest, lengths=LENGTHS, labeled=labels is not None, **options
    )
    np.testing.assert_allclose(value.detach().numpy(), expected[0], atol=1e-11)
    (slope,) = torch.autograd.grad(value.sum(), scores)
    np.testing.assert_allclose(slope.numpy(), expected[1], atol=1e-11)


@FAMILIES
def test_gold_trees_of_every_family(options):
    scores, gold = tables(21), torch.tensor([[2, 0, 2], [0, 1, -1]])
    family = fg.ProjectiveTrees if options["projective"] else fg.SpanningTrees
    p = family(scores.detach().numpy(), single_root=options["single_root"], lengths=LENGTHS)
    value, gradient = p.nll(gold.numpy())
    found = fgt.spanning_tree_nll(scores, gold, lengths=LENGTHS, **options)
    np.testing.assert_allclose(found.detach().numpy(), value, atol=1e-12)
    (slope,) = torch.autograd.grad(found.sum(), scores)
    np.testing.assert_allclose(slope.numpy(), gradient, atol=1e-12)
    crossing = torch.tensor([0, 1, 1, 2])
    if options["projective"]:
        with pytest.raises(fg.InfeasibleError, match="crossing arcs"):
            fgt.spanning_tree_nll(torch.zeros(5, 5), crossing, **options)


@FAMILIES
@pytest.mark.parametrize("labels", [None, 2])
def test_partial_trees(options, labels):
    """All trees with the known heads, by enumeration."""
    size = 4 if labels else 5
    scores = tables(22, labels=labels, size=size)[0].detach().requires_grad_()
    partial = torch.tensor([-1, 1, -1, 2][: size - 1])
    if labels:
        partial = torch.stack([partial, torch.tensor([1, -1, 0])], dim=-1)
    settings = options | {"labeled": labels is not None}
    value = fgt.spanning_tree_partial_nll(scores, partial, **settings)
    structures, parts = oracle.tables(tuple(scores.shape), **options)
    totals = np.array([(t * scores.detach().numpy()).sum() for t in parts])
    wanted = partial.numpy()
    fits = [bool(np.all((s == wanted) | (wanted == -1))) for s in structures]
    expected = np.logaddexp.reduce(totals) - np.logaddexp.reduce(totals[fits])
    assert value.item() == pytest.approx(expected, abs=1e-12)
    ignored = torch.where(partial == -1, -100, partial)
    assert torch.equal(fgt.spanning_tree_partial_nll(scores, ignored, **settings), value)
    with pytest.raises(fg.InvalidInputError, match=r"allowed has 9; give heads 0 \.\. .*-1 if"):
        fgt.spanning_tree_partial_nll(scores, torch.where(partial == 1, 9, partial), **settings)
    assert torch.autograd.gradcheck(
        lambda s: fgt.spanning_tree_partial_nll(s, partial, **settings),
        scores,
        fast_mode=True,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("projective", [False, True])
def test_narrow_dtypes(dtype, projective):
    scores = tables(24).detach().to(dtype)
    scores[0, 1, 2] = torch.finfo(dtype).min
    scores.requires_grad_()
    options = {"single_root": True, "projective": projective}
    for name in QUANTITIES:
        rest = [x.detach().to(dtype) for x in others(name, scores.shape)]
        function = getattr(fgt, f"spanning_tree_{name}")
        value = function(scores, *rest, **options)
        (slope,) = torch.autograd.grad(value.float().sum(), scores)
        assert slope.dtype == dtype
        assert value.dtype == torch.float32
        wide = function(scores.detach().double(), *(x.double() for x in rest), **options)
        torch.testing.assert_close(value.detach().double(), wide, rtol=1e-2, atol=1e-2)
        assert torch.isfinite(slope).all()


def test_operators_have_the_laws_of_the_library():
    arcs, v, u = (tables(seed) for seed in (25, 26, 27))
    lengths = torch.tensor(LENGTHS)
    for single_root, projective in ((True, False), (False, False), (True, True)):
        family = (lengths, single_root, projective)
        for name, inputs in (
            ("solve", (arcs,)), ("product", (arcs, v)), ("entropy", (arcs,)),
            ("divergence", (arcs, v)), ("third", (arcs, v, u)),
        ):  # fmt: skip
            if name == "third" and projective:
                continue
            operator = getattr(torch.ops.fstgrad, f"tree_{name}").default
            tests = ("test_schema", "test_faketensor", "test_autograd_registration")
            torch.library.opcheck(operator, (*inputs, *family), test_utils=tests)


def test_transforms_of_torch_func():
    scores = tables(28).detach()
    single = lambda s: fgt.spanning_tree_log_partition(s, single_root=True)  # noqa: E731
    mu = torch.func.grad(single)(scores[0])
    trees = array_trees(scores, single_root=True)
    np.testing.assert_allclose(mu.numpy(), trees.marginals()[0], atol=1e-12)
    rows = torch.func.vmap(torch.func.grad(single))(scores)
    np.testing.assert_allclose(rows.numpy(), trees.marginals(), atol=1e-12)
    jacobian = torch.func.jacrev(torch.func.grad(single))(scores[0])
    np.testing.assert_allclose(jacobian.numpy(), trees.covariance_matrix()[0], atol=1e-12)


def test_compiled_without_breaks():
    scores, gold = tables(29).detach().requires_grad_(), torch.tensor([[2, 0, 2], [0, 1, 1]])

    def objective(s):
        nll = fgt.spanning_tree_nll(s, gold, single_root=True).sum()
        return nll + fgt.spanning_tree_entropy(s, single_root=True).sum()

    expected = objective(scores)
    (slope,) = torch.autograd.grad(expected, scores)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    value = compiled(scores)
    (other,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(other, slope)


@pytest.mark.parametrize("projective", [False, True])
def test_threads_change_no_bit(projective, monkeypatch):
    monkeypatch.setattr("fstgrad.torch.tree_operators.LARGE", 0)
    source = torch.Generator().manual_seed(0)
    arcs = torch.randn(7, 5, 5, generator=source, dtype=torch.float64)
    family = {"single_root": True, "projective": projective, "lengths": [4, 3, 4, 2, 1, 4, 4]}
    known = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            scores = arcs.clone().requires_grad_()
            value = fgt.spanning_tree_entropy(scores, **family)
            value = value + fgt.spanning_tree_log_partition(scores, **family)
            found.append((value, torch.autograd.grad(value.sum(), scores)[0]))
        for other in found[1:]:
            assert all(map(torch.equal, other, found[0]))
        arcs[5, :, 2] = -torch.inf
        with pytest.raises(fg.InfeasibleError, match="5"):
            fgt.spanning_tree_log_partition(arcs, **family)
    finally:
        torch.set_num_threads(known)


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
def test_one_table_is_an_item_of_a_batch(single_root, projective):
    """Values, gradients and Hessian products; a list of lengths goes the way of a batch."""
    options = {"single_root": single_root, "projective": projective}
    table, v = tables(size=5).detach()
    found = []
    for shape, lengths in (((5, 5), None), ((1, 5, 5), None), ((5, 5), [4])):
        scores = table.reshape(shape).clone().requires_grad_()
        value = fgt.spanning_tree_log_partition(scores, lengths=lengths, **options)
        (slope,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
        (product,) = torch.autograd.grad(slope, scores, v.reshape(shape))
        assert value.shape == shape[:-2]
        scores = scores.detach().requires_grad_()
        (3 * fgt.spanning_tree_log_partition(scores, lengths=lengths, **options).sum()).backward()
        torch.testing.assert_close(scores.grad, 3 * slope.detach(), rtol=0, atol=1e-12)
        found.append([x.detach().reshape(-1) for x in (value, slope, product)])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, same, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_label_of_an_arc_is_an_error(bad):
    """It makes its item NaN on a device."""
    scores = torch.zeros(2, 4, 4, 2, dtype=torch.float64)
    scores[0, 1, 2, 1] = bad
    options = {"single_root": True, "labeled": True}
    with pytest.raises(fg.InvalidInputError, match="scores"):
        fgt.spanning_tree_log_partition(scores, **options)
    with fgt.use_device_paths():
        log_z = fgt.spanning_tree_log_partition(scores, **options)
    assert log_z.isnan().tolist() == [True, False]


@pytest.mark.parametrize("unread", [np.nan, np.inf, 1e308, -1e308])
@pytest.mark.parametrize("labeled", [False, True])
@pytest.mark.parametrize("projective", [False, True])
def test_the_diagonal_and_column_0_are_not_read(unread, labeled, projective):
    rng, family = np.random.default_rng(0), (fg.SpanningTrees, fg.ProjectiveTrees)[projective]
    given = rng.normal(size=(2, 4, 4) + (2,) * labeled)
    heads = np.array([[0, 1, 2], [3, 3, 0]])
    gold = torch.tensor(np.stack([heads, heads % 2], -1) if labeled else heads)
    options = {"single_root": True, "projective": projective, "labeled": labeled}
    costs, other = torch.tensor(rng.normal(size=(2, *given.shape)))
    answers = []
    for value in (0.0, unread):
        scores = given.copy()
        scores[:, :, 0] = scores[:, range(4), range(4)] = value
        known = family(scores, single_root=True, labeled=labeled)
        answer = [known.log_partition(), known.marginals(), known.entropy(), known.mode()]
        answer += [known.entropy_and_gradient()[1], known.sample(3, 0)]
        for value_of in (
            lambda x: fgt.spanning_tree_nll(x, gold, **options),
            lambda x: fgt.spanning_tree_entropy(x, **options),
            lambda x: fgt.spanning_tree_risk(x, costs, **options),
            lambda x: fgt.spanning_tree_kl(x, other, **options),
            lambda x: fgt.spanning_tree_kl(other, x, **options),
        ):
            for forced in (False, True):
                tensor = torch.tensor(scores, requires_grad=True)
                with fgt.use_device_paths(forced):
                    result = value_of(tensor).sum()
                answer += [result.item(), torch.autograd.grad(result, tensor)[0].numpy()]
        answers.append(answer)
    for one, expected in zip(*answers[::-1], strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-10)
