"""torch.func, torch.vmap, forward mode and torch.jit: right, or an error that says what works."""

import copy

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

import fstgrad.torch as fgt  # noqa: E402
from tests.torch import cases  # noqa: E402

# PyTorch's own forward mode uses what it calls deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

# trees and n-best lists are differentiable functions; the others have backward passes only
EVERYWHERE = ("NBest", "SpanningTree", "spanning_tree")
DIFFERENTIABLE = [name for name in cases.MODULES if name.startswith(EVERYWHERE)]
BACKWARD = [name for name in cases.MODULES if not name.startswith(EVERYWHERE)]
# one table of transitions, kernels or costs serves the whole batch, which has no further axis
SHARED = ("LinearChainLoss", "CRF", "CRF risk", "CRF kl", "nn CRF", "mrf_dense_marginals",
          "TransducerCosts")  # fmt: skip


def directions(scores):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(s.shape, generator=generator, dtype=s.dtype) for s in scores]


def tangent(name, scores, along):
    """The derivative of a row along `along`, in forward mode; None leaves scores constant."""
    with forward_ad.dual_level():
        duals = [
            s.detach() if d is None else forward_ad.make_dual(s.detach(), d)
            for s, d in zip(scores, along, strict=True)
        ]
        return forward_ad.unpack_dual(cases.value(name, duals)).tangent


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_mode(name):
    scores = cases.scores_of(name)
    along, slopes = directions(scores), cases.gradients(name, scores)[1]
    parts = [(s * d).sum() for s, d in zip(slopes, along, strict=True)]
    torch.testing.assert_close(tangent(name, scores, along), sum(parts), rtol=0, atol=1e-10)
    first = tangent(name, scores, [along[0], *[None] * (len(scores) - 1)])
    torch.testing.assert_close(first, parts[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", BACKWARD)
def test_forward_mode_is_never_silent(name):
    """A tangent that an operator drops would count as 0."""
    scores = cases.scores_of(name)
    along = directions(scores)
    for place in range(len(scores)):
        some = [d if i == place else None for i, d in enumerate(along)]
        with pytest.raises(fg.NotSupportedError, match=r"torch\.autograd\.grad"):
            tangent(name, scores, some)
    with pytest.raises(fg.NotSupportedError, match=r"torch\.autograd\.grad"):
        torch.func.jvp(
            lambda *s: cases.value(name, s), tuple(s.detach() for s in scores), tuple(along)
        )


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_hessian_of_torch_func(name):
    """jacfwd of jacrev, as torch.func.hessian takes it."""
    first, *others = [tensor.detach() for tensor in cases.scores_of(name)]
    found = torch.func.hessian(lambda s: cases.value(name, [s, *others]))(first)
    expected = torch.autograd.functional.hessian(lambda s: cases.value(name, [s, *others]), first)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in cases.MODULES if n not in SHARED])
def test_vmap(name):
    each = [[t.detach() for t in cases.scores_of(name, seed=seed)] for seed in (0, 1)]
    expected = torch.stack([cases.value(name, scores) for scores in each])
    stacked = [torch.stack(tables) for tables in zip(*each, strict=True)]
    found = torch.vmap(lambda *scores: cases.value(name, scores))(*stacked)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_vmap_says_why_not(name):
    stacked = [tensor.detach().expand(3, *tensor.shape) for tensor in cases.scores_of(name)]
    with pytest.raises(fg.NotSupportedError, match="merge its axis into the batch"):
        torch.vmap(lambda *scores: cases.value(name, scores))(*stacked)


CONSTANTS = {
    "ctc_nll": lambda s, gold, lengths: fgt.ctc_nll(s, gold, lengths=lengths, reduction="none"),
    "ctc_risk": lambda s, gold, lengths: fgt.ctc_risk(
        s, gold, cases.EDIT, lengths=lengths, reduction="none"
    ),
    "ctc_softmax_margin": lambda s, gold, lengths: fgt.ctc_softmax_margin(
        s, gold, cases.EDIT, lengths=lengths, reduction="none"
    ),
    "spanning_tree_risk": lambda s, *_: fgt.spanning_tree_risk(s, s.square(), single_root=True),
    "nbest_risk": lambda s, gold, lengths: fgt.nbest_risk(
        s[:, 0, :2], gold[:, None].repeat(1, 2, 1), gold, cases.EDIT, reduction="none"
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_vmap_over_gold_lengths_and_costs(name):
    size = len(cases.EDIT.alphabet)
    scores = torch.linspace(-1, 1, 2 * 2 * size**2, dtype=torch.float64).cos()
    scores = scores.reshape(2, 2, size, size)
    gold = torch.tensor([[[1, 2], [1, -100]], [[1, 2], [2, 2]]])
    lengths = torch.tensor([[size, size - 1], [size - 1, size]])
    expected = [CONSTANTS[name](*items) for items in zip(scores, gold, lengths, strict=True)]
    found = torch.vmap(CONSTANTS[name])(scores, gold, lengths)
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-12)


def test_vmap_checks_gold_with_blanks():
    with pytest.raises(fg.InvalidInputError, match="has the blank"):
        torch.vmap(fgt.ctc_nll)(torch.zeros(2, 1, 4, 3), torch.tensor([[[1]], [[0]]]))


@pytest.mark.parametrize(
    "predict",
    [
        lambda s, lengths: fgt.Strings(s).decode(),
        lambda s, lengths: fgt.Strings(s, lengths).decode(),
        lambda s, lengths: fgt.ctc_align(s, [[1]] * 2).labels,
    ],
    ids=["strings", "lengths", "alignments"],
)
def test_vmap_over_predictions_says_why_not(predict):
    with pytest.raises(fg.NotSupportedError, match="merge its axis into the batch"):
        torch.vmap(predict)(torch.zeros(3, 2, 4, 3), torch.full((3, 2), 4))


def test_vmap_over_gold_of_a_chain():
    crf, gold = fgt.CRF(torch.zeros(2, 4, 3), torch.zeros(3, 3)), torch.zeros(3, 2, 4).long()
    with pytest.raises(fg.NotSupportedError, match="merge its axis into the batch"):
        torch.vmap(crf.nll)(gold)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_vmap_of_gradients(name):
    scores = [tensor.detach() for tensor in cases.scores_of(name)]
    gradient = torch.func.grad(lambda *s: cases.value(name, s))
    found = torch.vmap(gradient)(*(tensor.expand(2, *tensor.shape) for tensor in scores))
    slope = cases.gradients(name, cases.scores_of(name))[1][0]
    torch.testing.assert_close(found, slope.expand_as(found), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", [n for n in cases.MODULES if n != "TransducerCosts"])
def test_jit_trace(name):
    module, call = copy.deepcopy(cases.MODULES[name][1]()), cases.MODULES[name][2]
    module.requires_grad_(False)
    first, second = (tuple(t.detach() for t in cases.scores_of(name, seed=seed)) for seed in (0, 1))

    def traced():
        return torch.jit.trace(lambda *scores: call(module, *scores), first, check_trace=False)

    if name.startswith(("Lattice", "lattice", "MRF", "mrf_log", "mrf_marginals")):
        with pytest.raises(fg.NotSupportedError, match=r"torch\.jit\.trace cannot hold"):
            traced()
        return
    torch.testing.assert_close(traced()(*second), call(module, *second), rtol=0, atol=1e-12)
