"""Scores on a device: operations of PyTorch give what the compiled passes give.

The device is the CPU, within `use_device_paths`, or "meta", where reading a number raises.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.mrf.dense import Kernel  # noqa: E402
from tests.helpers.selection import in_turn, pairwise  # noqa: E402
from tests.torch import cases  # noqa: E402

# the rows of `cases.MODULES` that have a device path
ROWS = [
    "LinearChainLoss", "CRF", "CRF risk", "CRF kl", "SoftmaxMarginLoss", "SoftmaxMarginLoss cap",
    "SoftmaxMarginLoss band", "RiskLoss", "CRFLoss", "NBestRiskLoss", "SpanningTreeLoss",
    "SpanningTreeEntropyLoss", "SpanningTreeKLLoss", "SpanningTreeRiskLoss",
    "SpanningTreeGeneralizedExpectationLoss", "LatticeSoftmaxMarginLoss", "LatticeRiskLoss",
    "LatticeCRFLoss", "CTCLoss", "CTCSoftmaxMarginLoss", "CTCRiskLoss",
    "spanning_tree_log_partition", "spanning_tree_partial_nll",
    "spanning_tree_marginals",
]  # fmt: skip


def moved(name, dtype):
    return [tensor.detach().to("meta", dtype).requires_grad_() for tensor in cases.scores_of(name)]


@pytest.mark.parametrize("name", ROWS)
def test_equals_the_passes_on_the_cpu(name):
    module = cases.MODULES[name][1]()
    expected, slopes = cases.gradients(name, cases.scores_of(name), module)
    with fgt.use_device_paths():
        found, mine = cases.gradients(name, cases.scores_of(name), module)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-10)
    for own, other in zip(mine, slopes, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-10)


DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("name, dtype", in_turn(ROWS, DTYPES, ["CRF risk", "LatticeRiskLoss"]))
def test_nothing_waits_for_the_device(name, dtype):
    """A forward and a backward pass, twice with the same cached tables."""
    module = cases.MODULES[name][1]()
    for _ in range(2):
        scores = moved(name, dtype)
        with fgt.use_device_paths():
            value = cases.value(name, scores, module)
        value.sum().backward()
        assert value.device.type == "meta"
        assert all(s.grad.shape == s.shape and s.grad.dtype == dtype for s in scores)


def on_meta(*shape):
    return torch.empty(shape, device="meta", requires_grad=True)


def meta_field():
    return on_meta(2, 3, 2), on_meta(2, 2)


FLAGS = {"single_root": True, "projective": True}
# what has no row in `cases.MODULES`: tensors from tensors on the device meta
MORE = {
    "projective": lambda: fgt.spanning_tree_nll(on_meta(2, 4, 4), cases.HEADS.abs(), **FLAGS),
    "projective kl": lambda: fgt.spanning_tree_kl(on_meta(2, 4, 4), on_meta(2, 4, 4), **FLAGS),
    "auto": lambda: fgt.risk(on_meta(2, 4, 3), cases.GOLD, cases.EDIT, method="auto"),
    "decode": lambda: fgt.Strings(on_meta(2, 4, 4, 3), [4, 2]).decode(),
    "nbest": lambda: fgt.Strings(on_meta(2, 4, 3)).nbest(2),
    "sample": lambda: fgt.Strings(on_meta(2, 4, 3)).sample(2),
    "bp": lambda: fgt.mrf_marginals(*meta_field(), cases.GRAPH, method="bp", max_iter=3),
    "trw": lambda: fgt.mrf_nll(
        *meta_field(), cases.LABELS, cases.GRAPH, method="trw", infeasible="zero", max_iter=3
    ),
    "mean field": lambda: fgt.mrf_log_partition(
        *meta_field(), cases.GRAPH, method="mean-field", max_iter=3
    ),
    "mbr": lambda: fgt.RandomFields(*meta_field(), cases.GRAPH).mbr("mean-field", max_iter=3),
    "dense": lambda: fgt.mrf_dense_marginals(
        on_meta(2, 2, 3, 3), cases.PICTURES, [Kernel(0.5, 1.0, 0.5)]
    ),
}
# what is computed on the CPU only, for each row "CPU" of the table in the guide
REFUSED = {
    "order 3": lambda: fgt.crf_nll(on_meta(2, 4, 4, 4, 3), cases.GOLD),
    "order 3 predicted": lambda: fgt.Strings(on_meta(2, 4, 4, 4, 3)),
    "sampled": lambda: fgt.risk(on_meta(2, 4, 3), cases.GOLD, cases.EDIT, method="sampled"),
    "sampled ctc": lambda: fgt.ctc_risk(
        on_meta(2, 5, 3), cases.WRITTEN, cases.EDIT, method="sampled"),
    "sampled lattice": lambda: fgt.lattice_risk(
        [on_meta(size) for size in cases.SIZES], cases.LATTICES, cases.TEXTS, cases.EDIT,
        method="sampled"),
    "exact": lambda: fgt.mrf_nll(*meta_field(), cases.LABELS, cases.GRAPH),
    "cd": lambda: fgt.mrf_nll(*meta_field(), cases.LABELS, cases.GRAPH, method="cd"),
    "residual": lambda: fgt.mrf_marginals(
        *meta_field(), cases.GRAPH, method="bp", schedule="residual"),
    "labelings": lambda: fgt.RandomFields(*meta_field(), cases.GRAPH).decode(),
    "lattices": lambda: fgt.LatticeStrings(
        [on_meta(size) for size in cases.SIZES], cases.LATTICES),
    "trees": lambda: fgt.Trees(on_meta(2, 4, 4), single_root=True),
    "costs": lambda: fgt.TransducerCosts(fg.EditDistance(LETTERS)).to("meta")([("ab", "b")]),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_nothing_else_waits_for_the_device(name):
    with fgt.use_device_paths():
        results = MORE[name]()
    results = results if isinstance(results, tuple) else (results,)
    assert all(result.device.type == "meta" for result in results)
    if any(result.requires_grad for result in results):
        sum(result.sum() for result in results).backward()


@pytest.mark.parametrize("name", REFUSED)
def test_no_scores_are_copied_to_the_cpu(name):
    message = r"CPU only, .* are on meta; give their \.cpu\(\)"
    with fgt.use_device_paths(), pytest.raises(fg.NotSupportedError, match=message):
        REFUSED[name]()


MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]).bool()
GOLD = torch.tensor([[2, 1, 2, 2, 1], [2, 1, 0, 0, 0], [1, 1, 2, 2, 0], [0, 0, 0, 2, 0]])


def chain(scale, items=4, length=5, n=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(items, length, n), (n, n), (n,), (n,)]
    return [scale * torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


CHANGES = {
    "plain": lambda e, t, start, end: None,
    "a step of -inf": lambda e, t, start, end: t[1, 0].fill_(-torch.inf),
    "a step of -1e4": lambda e, t, start, end: t[1, 0].fill_(-1e4),
    "tags of -inf": lambda e, t, start, end: e[:, 2, 0].fill_(-torch.inf),
    "a masked position": lambda e, t, start, end: e[:, 3].fill_(torch.finfo(e.dtype).min),
    "far": lambda e, t, start, end: e.add_(1e7),
    "masked ends": lambda e, t, start, end: (start[:2].fill_(-1e9), end[:2].fill_(-torch.inf)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scale", [1.0, 500.0])
def test_chains(scale, change):
    """Values, gradients, marginals, best tags, k best."""

    def results():
        parts = chain(scale)
        CHANGES[change](*parts)
        emissions, transitions, start, end = (part.requires_grad_() for part in parts)
        crf = fgt.CRF(emissions, transitions, MASK, start=start, end=end)
        gold = torch.full_like(GOLD, 2) if change == "masked ends" else GOLD
        values = crf.nll(gold, reduction="none")
        weights = torch.tensor([0.3, -2.0, 1.7, 0.5], dtype=torch.float64)
        slopes = torch.autograd.grad(values @ weights, (emissions, transitions, start, end))
        return [crf.log_partition(), values, crf.marginals(), *slopes, *crf.nbest(3), crf.decode()]

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-10)


def test_ties_go_to_smaller_tags():
    emissions, transitions = torch.zeros(4, 5, 3), torch.zeros(3, 3)
    with fgt.use_device_paths():
        assert torch.equal(
            fgt.CRF(emissions, transitions, MASK).decode(), torch.where(MASK, 0, -100)
        )


def test_samples_of_chains_have_the_marginals():
    emissions, transitions, start, end = chain(1.0)
    with fgt.use_device_paths():
        crf = fgt.CRF(emissions, transitions, MASK, start=start, end=end)
        drawn = crf.sample(20_000, rng=0)
        assert torch.equal(drawn, crf.sample(20_000, rng=0))
        expected = crf.marginals()
    assert (drawn.transpose(1, 2)[~MASK] == -100).all()
    shares = torch.nn.functional.one_hot(drawn.clamp(min=0), 3).double().mean(dim=1)
    assert (shares - expected)[MASK].abs().max() < 0.015  # four standard errors
    pairs = (drawn[0, :, 0] == 1) & (drawn[0, :, 1] == 2)
    table = emissions[0].clone()
    table[0] += start
    table[-1] += end
    steps = torch.cat([transitions, torch.zeros(1, 3)])
    exact = fg.StringDistribution((table[:, None] + steps).numpy()).marginals()[1, 1, 2]
    assert abs(pairs.double().mean().item() - exact) < 0.015


@pytest.mark.parametrize(("items", "length", "n"), [(1, 1, 1), (2, 1, 5), (3, 4, 300), (2, 60, 7)])
def test_float32(items, length, n):
    """Values to 1e-5 of their size; marginals to 1e-6 for each position before and after."""
    emissions, transitions, *_ = chain(2.0, items, length, n)
    gold = torch.zeros(items, length, dtype=torch.int64)
    tight = fgt.CRF(emissions, transitions)
    expected, node = tight.nll(gold, reduction="none"), tight.marginals()
    with fgt.use_device_paths():
        crf = fgt.CRF(emissions.float(), transitions.float())
        torch.testing.assert_close(
            crf.nll(gold, reduction="none"), expected.float(), rtol=1e-5, atol=1e-5
        )
        assert (crf.marginals() - node).abs().max() < 1e-6 * length
        exact = fgt.CRF(emissions, transitions)
        torch.testing.assert_close(exact.marginals(), node, rtol=0, atol=1e-10)


def bad(emissions, transitions, gold, mask, kind):
    if kind == "nan":
        emissions[1, 0, 0] = torch.nan
    elif kind == "inf":
        emissions[1, 0, 0] = torch.inf
    elif kind == "no path":
        emissions[1, 1] = -torch.inf
    elif kind == "gold":
        gold[1, 0] = 3
    elif kind == "forbidden gold":
        emissions[1, 0, gold[1, 0]] = -torch.inf
    else:
        mask[1] = False


@pytest.mark.parametrize("kind", ["nan", "inf", "no path", "gold", "forbidden gold", "no position"])
def test_a_bad_item_is_nan_alone(kind):
    """Also its gradients; `validate=True` raises the error of the CPU."""
    emissions, transitions, *_ = chain(1.0)
    gold, mask = GOLD.clone(), MASK.clone()
    good = fgt.CRF(emissions, transitions, mask).nll(gold, reduction="none")
    bad(emissions, transitions, gold, mask, kind)
    emissions.requires_grad_()
    transitions.requires_grad_()
    with fgt.use_device_paths():
        values = fgt.CRF(emissions, transitions, mask).nll(gold, reduction="none")
    kept = [0, 2, 3]
    assert values.isnan().tolist() == [False, True, False, False]
    torch.testing.assert_close(values[kept], good[kept], rtol=1e-12, atol=0)
    # the items without a value can be left out of a sum, and leave no NaN in shared parameters
    values[kept].sum().backward()
    assert emissions.grad.isfinite().all()
    assert transitions.grad.isfinite().all()
    with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError):
        fgt.CRF(emissions, transitions, mask).nll(gold)


def test_padding_may_hold_nan():
    emissions, transitions, *_ = chain(1.0)
    expected = fgt.CRF(emissions, transitions, MASK).nll(GOLD)
    emissions[~MASK] = torch.nan
    emissions.requires_grad_()
    with fgt.use_device_paths():
        value = fgt.CRF(emissions, transitions, MASK).nll(GOLD)
    value.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    assert not emissions.grad[~MASK].any()


def test_second_derivatives_of_chains():
    parts = [part.requires_grad_() for part in chain(1.0)[:2]]

    def nll(*tensors):
        with fgt.use_device_paths():
            return fgt.CRF(*tensors, MASK).nll(GOLD, reduction="none")

    assert torch.autograd.gradgradcheck(nll, parts, fast_mode=True)


CTC_GOLD = torch.tensor([[1, 1, 2], [3, -100, 2], [-100] * 3, [-100, 1, -100]])
CTC_FRAMES = torch.tensor([9, 8, 7, 5])


def frames_of(scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(4, 9, 4, generator=generator, dtype=torch.float64)
    for i, count in enumerate(CTC_FRAMES):
        scores[i, count:] = torch.nan
    return scores


@pytest.mark.parametrize("scale", [1.0, 500.0])
def test_paths_with_blanks(scale):
    """Values, gradients and best paths of masked scores; repeats, holes, a silent item."""
    scores = frames_of(scale)
    scores[1, 2, 0], scores[2, 4] = -torch.inf, torch.finfo(torch.float32).min
    scores.requires_grad_()

    def results():
        value = fgt.ctc_nll(scores, CTC_GOLD, lengths=CTC_FRAMES, reduction="none")
        weights = torch.tensor([0.3, -2.0, 1.7, 0.5], dtype=torch.float64)
        best = fgt.ctc_align(scores, CTC_GOLD, lengths=CTC_FRAMES)
        return [value.detach(), *torch.autograd.grad(value @ weights, scores), *best]

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("kind", ["nan", "inf", "no path", "blank in gold", "too short"])
def test_a_bad_item_of_paths_is_nan_alone(kind):
    scores, gold, frames = frames_of(1.0), CTC_GOLD.clone(), CTC_FRAMES.clone()
    good = fgt.ctc_nll(scores, gold, lengths=frames, reduction="none")
    if kind == "blank in gold":
        gold[1, 0] = 0
    elif kind == "too short":
        frames[1] = 1
    else:
        scores[1, 2] = {"nan": torch.nan, "inf": torch.inf, "no path": -torch.inf}[kind]
    scores.requires_grad_()
    with fgt.use_device_paths():
        values = fgt.ctc_nll(scores, gold, lengths=frames, reduction="none")
        best = fgt.ctc_align(scores, gold, lengths=frames)
    kept = [0, 2, 3]
    for result in (values, best.log_prob):
        assert result.isnan().tolist() == [False, True, False, False]
    assert (best.labels[1] == -100).all()
    torch.testing.assert_close(values[kept], good[kept], rtol=1e-12, atol=0)
    values[kept].sum().backward()
    assert scores.grad.isfinite().all()
    with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError):
        fgt.ctc_nll(scores, gold, lengths=frames)
    with fgt.use_device_paths():
        values = fgt.ctc_nll(scores, gold, lengths=frames, reduction="none", infeasible="zero")
    if kind in ("no path", "too short"):
        assert values[1] == 0.0
        assert not torch.autograd.grad(values[1], scores)[0].any()
    else:
        assert values[1].isnan()


def test_second_derivatives_of_paths():
    scores = frames_of(1.0)[:, :5].contiguous().requires_grad_()

    def nll(scores):
        with fgt.use_device_paths():
            return fgt.ctc_nll(scores, CTC_GOLD, reduction="none")

    assert torch.autograd.gradgradcheck(nll, (scores,), fast_mode=True)


def test_float32_scores_of_long_paths():
    """The sums are float64, so the digits are those of the scores."""
    scores = 5.0 * torch.randn(2, 300, 6, generator=torch.Generator().manual_seed(1))
    gold = torch.arange(60)[None].repeat(2, 1) % 5 + 1
    scores.requires_grad_()
    expected = fgt.ctc_nll(scores, gold, reduction="none")
    with fgt.use_device_paths():
        value = fgt.ctc_nll(scores, gold, reduction="none")
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    (mine,), (other,) = (torch.autograd.grad(v.sum(), scores) for v in (value, expected))
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch's
def test_one_graph_for_the_compiler():
    parts = [part.requires_grad_() for part in chain(1.0, length=16)[:2]]
    gold = torch.zeros(4, 16, dtype=torch.int64).index_fill(1, torch.tensor([3, 15]), -100)

    def step(*tensors):
        return fgt.linear_chain_nll(*tensors, gold)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with fgt.use_device_paths():
        values = [function(*parts) for function in (step, compiled)]
        slopes = [torch.autograd.grad(value, parts) for value in values]
    for mine, other in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_terms_in_parts(monkeypatch):
    """Tables of terms beyond a limit are computed in parts, with the same result."""
    from fstgrad.torch.device import sums

    left = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    right = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for cells in (10**9, 48):
        monkeypatch.setattr(sums, "CELLS", cells)
        value = sums.log_product(left, right)
        found.append([value, *torch.autograd.grad(value.square().sum(), (left, right))])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(
        found[0][0].detach().exp(), left.detach().exp() @ right.detach().exp(), rtol=1e-13
    )


WORD = torch.tensor(
    [[0, 1, 2, 3, 0, 1, 1], [3, 3, -100, 2, 1, -100, -100], [2, -100, -100, -100, -100, -100, -100]]
)
LETTERS = fg.Alphabet("abcd")
LOSSES = {
    "edit": fg.EditDistance(LETTERS, 1.0, 0.5, 2.0),
    "bigrams": fg.NGram(LETTERS, 2, smoothing=0.5),
    "Hamming": fg.Hamming(LETTERS),
    "alignment": fg.SmithWaterman(LETTERS),
}
MASKS = {
    "plain": lambda scores: None,
    "-inf": lambda scores: scores[:, 1, ..., 0].fill_(-torch.inf),
    "a masked position": lambda scores: scores[:, 2].fill_(-1e30),
    "padding of NaN": lambda scores: scores[2, 1:].fill_(torch.nan),
}


@pytest.mark.parametrize("order, scale, loss, mask", pairwise([1, 2], [1.0, 300.0], LOSSES, MASKS))
def test_strings(order, scale, loss, mask):
    """Margins and risks, their gradients, and products with the Hessian where there is one."""
    shape = (3, 7, *[5] * (order - 1), 4)
    generator = torch.Generator().manual_seed(1)
    table = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    along = torch.randn(shape, generator=generator, dtype=torch.float64)
    MASKS[mask](table)
    gold = WORD.masked_fill(WORD == 0, 1)  # -inf forbids the letter a
    twice = scale == 1.0 and mask in ("plain", "padding of NaN")

    def results():
        scores = table.clone().requires_grad_()
        found = []
        for function in (fgt.softmax_margin, fgt.risk):
            values = function(scores, gold, LOSSES[loss], reduction="none")
            total = values @ torch.tensor([0.3, -2.0, 1.7], dtype=torch.float64)
            (slope,) = torch.autograd.grad(total, scores, create_graph=twice)
            found += [values, slope]
            if twice:
                found += torch.autograd.grad((slope * along).sum(), scores)
        return found

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("order", [1, 2])
def test_predictions_of_strings(order, mask):
    """Best and k best strings, samples, and a choice among them by a loss."""
    shape, sizes = (3, 7, *[5] * (order - 1), 4), [7, 4, 1]
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    MASKS[mask](scores)
    expected = fgt.Strings(scores, sizes)
    with fgt.use_device_paths():
        found = fgt.Strings(scores, sizes)
    assert torch.equal(found.decode(), expected.decode())
    lists, log_p = found.nbest(5)
    assert torch.equal(lists, expected.nbest(5)[0])
    torch.testing.assert_close(log_p, expected.nbest(5)[1], rtol=0, atol=1e-10)
    drawn = found.sample(20_000, rng=0)
    for i, size in enumerate(sizes):
        exact = fg.StringDistribution(scores[i, :size].numpy()).marginals()
        exact = torch.tensor(exact if order == 1 else exact.sum(axis=1))
        shares = torch.nn.functional.one_hot(drawn[i, :, :size], 4).double().mean(dim=0)
        assert (shares - exact).abs().max() < 0.015  # four standard errors
        assert (drawn[i, :, size:] == -100).all()
    chosen = found.mbr(LOSSES["edit"], candidates=5, samples=2000, rng=1)
    assert (chosen[:, None] == lists).all(dim=2).any(dim=1).all()


def test_strings_in_float32():
    scores = 2 * torch.randn(5, 12, 9, 8, generator=torch.Generator().manual_seed(0)).double()
    gold = torch.randint(8, (5, 12), generator=torch.Generator().manual_seed(1))
    loss = fg.EditDistance(fg.Alphabet("abcdefgh"))

    def results(dtype):
        table = scores.to(dtype).requires_grad_()
        values = [
            function(table, gold, loss, cap=4.0, reduction="none")
            for function in (fgt.softmax_margin, fgt.risk)
        ]
        return values, [torch.autograd.grad(value.sum(), table)[0] for value in values]

    values, slopes = results(torch.float64)
    with fgt.use_device_paths():
        narrow, mine = results(torch.float32)
    for own, other in zip(narrow, values, strict=True):
        torch.testing.assert_close(own, other.float(), rtol=1e-5, atol=1e-5)
    for own, other, most in zip(mine, slopes, (1e-6, 4e-6), strict=True):  # L is up to 4
        assert (own - other).abs().max() < most * 12


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_string_is_nan_alone(value):
    """A table of steps that all items share gets no NaN if that item counts for nothing."""
    emissions = torch.randn(3, 7, 1, 4, dtype=torch.float64)
    emissions[1, 3] = value
    steps = torch.zeros(5, 4, dtype=torch.float64, requires_grad=True)
    for function in (fgt.softmax_margin, fgt.risk):
        with fgt.use_device_paths():
            values = function(emissions + steps, WORD, LOSSES["edit"], reduction="none")
        assert values.isnan().tolist() == [False, True, False]
        assert torch.autograd.grad(values[[0, 2]].sum(), steps)[0].isfinite().all()
        with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError):
            function(emissions + steps, WORD, LOSSES["edit"])


def test_packed_automata_are_those_of_the_loss():
    """A batch stays on its device, but another loss of the same gold is another batch."""
    from fstgrad.torch.device import arcs

    scores, gold = torch.zeros(1, 4, 4, dtype=torch.float64), torch.tensor([[0, 1, 2, 3]])
    for cost in (1.0, 2.0, 1.0):
        b = fg.EditDistance(LETTERS, cost, cost, cost).compile([0, 1, 2, 3])
        expected = fgt.risk(scores, gold, [b])
        before = len(arcs._PACKED)
        with fgt.use_device_paths():
            assert fgt.risk(scores, gold, [b]).item() == pytest.approx(expected.item(), rel=1e-12)
            fgt.risk(scores, gold, [b])
        assert len(arcs._PACKED) == before + 1
        del b
    assert len(arcs._PACKED) < before + 1


def trees(kind, scale):
    """Tables of 1, 3 and 6 words."""
    generator = torch.Generator().manual_seed(5)
    scores = scale * torch.randn(3, 7, 7, generator=generator, dtype=torch.float64)
    if kind == "-inf":  # the only head of word 2 is the root
        scores[:, 1:, 2] = -torch.inf
    elif kind == "a masked word":
        scores[:, :, 1] = -1e30
    elif kind == "improbable roots":
        scores[:, 0] -= 60
    elif kind == "padding":
        scores[1, 4:], scores[1, :, 4:] = torch.nan, torch.nan
    return scores


SIZES = [1, 3, 6]


KINDS = ["plain", "-inf", "a masked word", "improbable roots", "padding"]
BOTH = [True, False]


@pytest.mark.parametrize(
    "kind, scale, projective, single_root", pairwise(KINDS, [1.0, 100.0], BOTH, BOTH)
)
def test_trees(kind, scale, projective, single_root):
    """log Z, likelihood, entropy, and their gradients, where a determinant has no digits too."""
    given = trees(kind, scale)
    options = {"single_root": single_root, "projective": projective, "lengths": SIZES}
    heads = torch.tensor([[0, -1, -1, 7, 0, 0], [2, 0, 2, 0, 0, 0], [2, 0, 1, 2, 2, 3]])
    if projective:
        heads[2] = torch.tensor([2, 0, 2, 2, 2, 5])  # which does not cross

    def results():
        scores = given.clone().requires_grad_()
        values = [
            fgt.spanning_tree_log_partition(scores, **options),
            fgt.spanning_tree_nll(scores, heads, **options),
            fgt.spanning_tree_entropy(scores, **options),
        ]
        weights = torch.tensor([0.3, -2.0, 1.7], dtype=torch.float64)
        slopes = [
            torch.autograd.grad(value @ weights, scores, create_graph=value is values[0])[0]
            for value in values
        ]
        along = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).reshape(scores.shape)
        return [*values, *slopes, *torch.autograd.grad((slopes[0] * along).sum(), scores)]

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
def test_derivatives_of_trees(single_root):
    scores, q = trees("plain", 1.0)[:1, :4, :4].requires_grad_(), trees("-inf", 1.0)[:1, :4, :4]

    def function(name, *given):
        with fgt.use_device_paths():
            return getattr(fgt, f"spanning_tree_{name}")(*given, single_root=single_root)

    assert torch.autograd.gradgradcheck(lambda s: function("marginals", s), scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda s: function("entropy", s), scores, fast_mode=True)
    with torch.no_grad():
        assert (function("kl", scores, q) == torch.inf).all()


def test_labels_of_trees_and_single_tables():
    generator = torch.Generator().manual_seed(6)
    scores = torch.randn(4, 4, 2, generator=generator, dtype=torch.float64)
    gold = torch.tensor([[2, 1], [0, 0], [2, 1]])
    options = {"single_root": True, "labeled": True}
    for function in (
        lambda: fgt.spanning_tree_nll(scores, gold, **options),
        lambda: fgt.spanning_tree_marginals(scores, **options),
        lambda: fgt.spanning_tree_partial_nll(scores, gold * 0 - 1, **options),
    ):
        expected = function()
        with fgt.use_device_paths():
            torch.testing.assert_close(function(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "heads, infeasible",
    [([2, 1, 0, 1], 0), ([0, 0, 1, 1], 1), ([1, 2, 3, 4], 0), ([0, 1, 2, 5], 0),
     ([0, 1, 2, -1], 0), ([2, 0, 2, 3], 0), ([3, 4, 0, 3], 1)],
    ids=["a cycle", "two roots", "loops", "beyond", "below", "a tree", "crossing arcs"],
)  # fmt: skip
def test_what_is_no_tree_is_nan_alone(heads, infeasible):
    """With several roots or crossing arcs it is a tree, which is infeasible."""
    scores = torch.zeros(2, 5, 5, requires_grad=True)
    gold, options = torch.tensor([heads, [0, 1, 2, 3]]), {"single_root": True, "projective": True}
    is_tree = heads == [2, 0, 2, 3]
    with fgt.use_device_paths():
        values = fgt.spanning_tree_nll(scores, gold, **options)
        assert values.isnan().tolist() == [not is_tree, False]
        values = fgt.spanning_tree_nll(scores, gold, infeasible="zero", **options)
        assert (values[0] == 0.0) == bool(infeasible)
    if not is_tree:
        with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError, match="gold"):
            fgt.spanning_tree_nll(scores, gold, **options)


@pytest.mark.parametrize("single_root", [True, False])
def test_a_sentence_without_a_tree_is_nan_alone(single_root):
    scores = torch.zeros(2, 4, 4, dtype=torch.float64)
    scores[0, :, 3] = -torch.inf
    with fgt.use_device_paths():
        log_z = fgt.spanning_tree_log_partition(scores, single_root=single_root)
        assert log_z[0].isnan()
        assert log_z[1].item() == pytest.approx(np.log(9 if single_root else 16), rel=1e-14)
    scores[0] = torch.nan
    with fgt.use_device_paths():
        mu = fgt.spanning_tree_marginals(scores, single_root=single_root)
    assert mu[0].isnan().any()
    assert mu[1].sum().item() == pytest.approx(3.0)


def test_lists_without_a_hypothesis_are_nan_alone():
    scores = torch.zeros(2, 2)
    scores[0] = -torch.inf
    with fgt.use_device_paths():
        values = fgt.nbest_risk(scores, cases.HYPOTHESES, cases.GOLD, cases.EDIT, reduction="none")
    assert values.isnan().tolist() == [True, False]


def networks():
    """A network with arcs that skip states, one of lists, and one of a single arc."""
    rng = np.random.default_rng(3)
    source = np.repeat(np.arange(6), 3)
    ends = source + rng.integers(1, 3, size=18)
    labels = np.where(rng.random(18) < 0.2, -1, rng.integers(4, size=18))
    return [
        fg.Lattice.from_arcs(source, np.minimum(ends, 6), labels, np.zeros(18), LETTERS, final=[6]),
        fg.Lattice.from_nbest(["abc", "abd", "b", "ccccc"], np.zeros(4), LETTERS),
        fg.Lattice.from_arcs([0], [1], [0], [0.0], LETTERS, final=[1]),
    ]


@pytest.mark.parametrize("mask", ["plain", "-inf", "masks", "far"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_lattices(scale, mask):
    """Margins, likelihoods and risks, whose losses of arcs skip levels."""
    lattices = networks()
    golds = [lattice.sample(1, 1)[0] for lattice in lattices]
    generator = torch.Generator().manual_seed(2)
    rows = [scale * torch.randn(x.num_arcs, generator=generator).double() for x in lattices]
    if mask == "-inf":
        rows[1][lattices[1].parts("abd") == 1] = -torch.inf
        golds[1] = LETTERS.encode("b")
    elif mask == "masks":
        rows[1][:] = -1e30
        rows[2][:] = torch.finfo(torch.float32).min
    elif mask == "far":
        rows[0] += 1e7

    def results():
        scores = [row.clone().requires_grad_() for row in rows]
        found = []
        for function, loss in (
            (fgt.lattice_softmax_margin, LOSSES["edit"]), (fgt.lattice_softmax_margin, None),
            (fgt.lattice_risk, LOSSES["edit"]), (fgt.lattice_risk, LOSSES["bigrams"]),
        ):  # fmt: skip
            values = function(scores, lattices, golds, loss, reduction="none")
            weights = torch.tensor([0.3, -2.0, 1.7], dtype=torch.float64)
            found += [values, *torch.autograd.grad(values @ weights, scores)]
        return found

    expected = results()
    with fgt.use_device_paths():
        found, again = results(), results()
    for mine, twice, other in zip(found, again, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
        assert torch.equal(mine, twice)


@pytest.mark.parametrize("mask", ["plain", "-inf", "masks"])
@pytest.mark.parametrize("name", ["log_partition", "entropy", "marginals"])
def test_quantities_of_lattices(name, mask):
    lattices = networks()
    rng = np.random.default_rng(1)
    rows = [torch.from_numpy(3 * rng.normal(size=lattice.num_arcs)) for lattice in lattices]
    if mask != "plain":
        rows[0][::4], rows[1][1] = (-torch.inf if mask == "-inf" else -1e30), -torch.inf
    function, results = getattr(fgt, f"lattice_{name}"), []
    for on_device in (False, True):
        given = [row.clone().requires_grad_() for row in rows]
        with fgt.use_device_paths(on_device):
            found = function(given, lattices)
        results.append(list(found))
        if name != "marginals":
            results[-1] += torch.autograd.grad((found * torch.arange(1, 4)).sum(), given)
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["log_partition", "entropy", "marginals"])
def test_quantities_of_a_lattice_without_paths(name):
    lattices = networks()[1:]
    rows = [torch.full((lattices[0].num_arcs,), -torch.inf), torch.zeros(1)]
    function = getattr(fgt, f"lattice_{name}")
    with fgt.use_device_paths():
        first, second = function(rows, lattices)
        assert bool(first.isnan().all() and second.isfinite().all())
        first, second = function(rows, lattices, infeasible="zero")
        assert not bool(first.any())
    meta = [row.to("meta") for row in rows]
    with fgt.use_device_paths():
        assert all(value.device.type == "meta" for value in function(meta, lattices))


def test_a_missing_derivative_of_lattices_is_an_error():
    lattice = networks()[0]
    scores = torch.zeros(lattice.num_arcs, dtype=torch.float64, requires_grad=True)
    with fgt.use_device_paths():
        shares = fgt.lattice_marginals(scores, lattice)
        with pytest.raises(fg.NotSupportedError, match="no second derivative on a device"):
            shares[0].backward()


def test_bad_lattices_are_nan_alone():
    lattices, golds = networks(), ["", "abc", "a"]
    golds[0] = networks()[0].sample(1, 1)[0]
    rows = [torch.zeros(lattice.num_arcs, requires_grad=True) for lattice in lattices]
    for value in (torch.nan, -torch.inf):
        given = [rows[0], rows[1] + value, rows[2]]
        for function in (fgt.lattice_softmax_margin, fgt.lattice_risk):
            with fgt.use_device_paths():
                values = function(given, lattices, golds, LOSSES["edit"], reduction="none")
            assert values.isnan().tolist() == [False, True, False]
            slopes = torch.autograd.grad(values[[0, 2]].sum(), rows)
            assert all(slope.isfinite().all() for slope in slopes)
            with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError):
                function(given, lattices, golds, LOSSES["edit"])
    with fgt.use_device_paths(), pytest.raises(fg.InfeasibleError, match="not among those"):
        fgt.lattice_crf_nll(rows, lattices, [golds[0], "abcd", "a"])


@pytest.mark.nightly
def test_the_program_for_a_gpu(tmp_path):
    """It needs nothing but a file of references, which it refuses for other sizes."""
    program = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/gpu.py"
    reference, rows = tmp_path / "reference.npz", tmp_path / "rows.json"

    def run(*options):
        command = [sys.executable, str(program), "--device", "cpu", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--quick", "--make-reference", str(reference)).returncode == 0
    done = run("--quick", "--reference", str(reference), "--json", str(rows), "--minutes", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(rows.read_text())["rows"]
    checked = [row for row in found if "error float64" in row]
    assert len(checked) == 8
    assert all(row["ok float64"] and row["ok float32"] for row in checked)
    assert any("seconds" in row for row in found)
    assert "make it again" in run("--reference", str(reference)).stderr


def test_estimates_of_an_earlier_batch_do_not_stay():
    module = fgt.RiskLoss(LOSSES["edit"])
    scores = torch.zeros(3, 7, 4)
    module(scores, WORD)
    assert len(module.last) == 3
    with fgt.use_device_paths():
        module(scores, WORD)
    assert module.last == ()
