"""Losses as modules: equal to the functions, reduced as asked, copied and stored as modules are."""

import copy
import pickle

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from tests.helpers.selection import pairwise  # noqa: E402

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
GOLD = torch.tensor([[0, 1, 2], [2, 1, 0]])
LATTICES = [
    fg.Lattice.from_nbest(["ab", "abc", "ca"], [0.1, -0.3, 0.5], ABC),
    fg.Lattice.from_nbest(["b", "cb"], [0.0, 0.2], ABC),
]
TEXTS = ["abc", "cb"]
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))
HEADS = torch.tensor([[0, 1, 2], [2, 0, -1]])
LENGTHS = [3, 2]
TREES = {"single_root": True, "lengths": LENGTHS}


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def arcs(dtype):
    return [torch.tensor(lattice.scores, dtype=dtype) for lattice in LATTICES]


# name: settings, arguments of forward in a dtype, the values of the items from the function
MODULES = {
    "SoftmaxMarginLoss": (
        {"loss": EDIT},
        lambda d: (normal(2, 3, 4, 3, dtype=d), GOLD),
        lambda s, g: fgt.softmax_margin(s, g, EDIT, reduction="none"),
    ),
    "RiskLoss": (
        {"loss": EDIT},
        lambda d: (normal(2, 3, 4, 3, dtype=d), GOLD),
        lambda s, g: fgt.risk(s, g, EDIT, reduction="none"),
    ),
    "CRFLoss": (
        {},
        lambda d: (normal(2, 3, 4, 3, dtype=d), GOLD),
        lambda s, g: fgt.crf_nll(s, g, reduction="none"),
    ),
    "LatticeSoftmaxMarginLoss": (
        {"loss": EDIT},
        lambda d: (arcs(d), LATTICES, TEXTS),
        lambda s, lattices, texts: torch.stack(
            [
                fgt.lattice_softmax_margin(own, a, y, a.compile(EDIT, y))
                for own, a, y in zip(s, lattices, texts, strict=True)
            ]
        ),
    ),
    "LatticeRiskLoss": (
        {"loss": EDIT},
        lambda d: (arcs(d), LATTICES, TEXTS),
        lambda s, lattices, texts: torch.stack(
            [
                fgt.lattice_risk(own, a, y, EDIT)
                for own, a, y in zip(s, lattices, texts, strict=True)
            ]
        ),
    ),
    "LatticeCRFLoss": (
        {},
        lambda d: (arcs(d), LATTICES, TEXTS),
        lambda s, lattices, texts: torch.stack(
            [
                fgt.lattice_softmax_margin(own, a, y)
                for own, a, y in zip(s, lattices, texts, strict=True)
            ]
        ),
    ),
    "SpanningTreeLoss": (
        {"single_root": True},
        lambda d: (normal(2, 4, 4, dtype=d), HEADS, LENGTHS),
        lambda s, heads, _: fgt.spanning_tree_nll(s, heads, **TREES),
    ),
    "SpanningTreeEntropyLoss": (
        {"single_root": True},
        lambda d: (normal(2, 4, 4, dtype=d), LENGTHS),
        lambda s, _: fgt.spanning_tree_entropy(s, **TREES),
    ),
    "SpanningTreeKLLoss": (
        {"single_root": True},
        lambda d: (normal(2, 4, 4, dtype=d), normal(2, 4, 4, seed=1, dtype=d), LENGTHS),
        lambda p, q, _: fgt.spanning_tree_kl(p, q, **TREES),
    ),
    "SpanningTreeRiskLoss": (
        {"single_root": True},
        lambda d: (normal(2, 4, 4, dtype=d), normal(2, 4, 4, seed=1, dtype=d), LENGTHS),
        lambda s, costs, _: fgt.spanning_tree_risk(s, costs, **TREES),
    ),
    "SpanningTreeGeneralizedExpectationLoss": (
        {"single_root": True},
        lambda d: (normal(2, 4, 4, dtype=d), normal(2, 4, 4, 2, dtype=d), normal(2, 2), LENGTHS),
        lambda s, f, t, _: fgt.spanning_tree_generalized_expectation(s, f, t, **TREES),
    ),
    **{
        f"MRFLoss {method}": (
            {"graph": GRAPH, "method": method, **options},
            lambda d: (normal(2, 3, 2, dtype=d), normal(2, 2, dtype=d), GOLD % 2),
            lambda node, edge, gold, method=method, options=options: fgt.mrf_nll(
                node, edge, gold, GRAPH, method=method, reduction="none", **options
            ),
        )
        for method, options in [
            ("exact", {}),
            ("bp", {"max_iter": 20}),
            ("pseudolikelihood", {}),
            ("cd", {"rng": 0}),
        ]
    },
}
EVERY = pytest.mark.parametrize("name", MODULES)


def made(name, **options):
    settings, arguments, values = MODULES[name]
    return getattr(fgt, name.split()[0])(**settings, **options), arguments, values


@pytest.mark.parametrize(
    ("name", "dtype", "reduction"),
    pairwise(MODULES, [torch.float64, torch.float32], ["none", "mean", "sum"]),
)
def test_equals_the_function(name, dtype, reduction):
    module, arguments, values = made(name, reduction=reduction)
    inputs = arguments(dtype)
    mine, expected = module(*inputs), values(*inputs)
    assert mine.dtype == dtype
    assert expected.shape == (2,)
    if reduction != "none":
        expected = expected.sum() / (2 if reduction == "mean" else 1)
    rounding = {torch.float64: 1e-12, torch.float32: 1e-6}[dtype]
    torch.testing.assert_close(mine, expected, rtol=rounding, atol=rounding)


@EVERY
def test_the_gradient_is_that_of_the_function(name):
    module, arguments, values = made(name, reduction="sum")
    slopes = []
    for function in (module, lambda *inputs: values(*inputs).sum()):
        inputs = arguments(torch.float64)
        first = inputs[0] if isinstance(inputs[0], list) else [inputs[0]]
        for tensor in first:
            tensor.requires_grad_()
        (3 * function(*inputs)).backward()
        slopes.append([tensor.grad for tensor in first])
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)
    assert all(slope.any() for slope in slopes[0])


@EVERY
def test_copies_and_files_hold_the_module(name):
    module, arguments, _ = made(name, reduction="sum")
    expected = module(*arguments(torch.float64))
    assert module.state_dict() == {}
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), module.to("cpu")):
        assert other(*arguments(torch.float64)).item() == expected.item()
        assert repr(other) == repr(module)
    assert "reduction='sum'" in repr(module)


@EVERY
def test_a_wrong_reduction_is_named_at_once(name):
    with pytest.raises(fg.InvalidInputError, match=r"reduction is 'max'.*none, mean, sum"):
        made(name, reduction="max")


@EVERY
def test_one_item_without_a_batch(name):
    module, arguments, _ = made(name)
    inputs = arguments(torch.float64)
    whole = module(*inputs)
    ones = []
    for i in range(2):
        shared = 1 if name.startswith("MRF") else None  # the edge scores
        one = [part if k == shared else part[i] for k, part in enumerate(inputs)]
        if "Tree" in name:
            size = LENGTHS[i]
            one = [cut(part, size) for part in one[:-1]]
        ones.append(module(*one))
    assert all(value.ndim == 0 for value in ones)
    torch.testing.assert_close(torch.stack(ones).mean(), whole, rtol=0, atol=1e-12)


def cut(part, size):
    """One table (n+1, n+1, ...), or heads (n,), of a tree of fewer dependents."""
    if part.shape[:2] == (4, 4):
        return part[: size + 1, : size + 1]
    return part[:size] if part.dtype == torch.int64 else part
