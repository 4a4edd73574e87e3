"""Capped, banded and sampled objectives: intervals that hold, and what is known of each item."""

import pickle
import warnings

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.torch.arrays import to_float64_tensor  # noqa: E402

ABC = fg.Alphabet("abcd")
EDIT = fg.EditDistance(ABC)
GOLD = torch.tensor([[0, 1, 2, 3, 0, 1], [2, 1, 0, 3, -100, -100]])


def scores(seed=0):
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(2, 6, 5, 4, generator=generator, dtype=torch.float64)
    return table.requires_grad_()


@pytest.mark.parametrize("function", [fgt.softmax_margin, fgt.risk])
def test_cap_band_and_prune_are_those_of_the_automata(function):
    for settings in ({"cap": 2.0}, {"band": 1}, {"prune": 1.0}):
        mine, other = scores(), scores()
        value = function(mine, GOLD, EDIT, **settings)
        automata = [EDIT.compile(g[g >= 0].numpy(), **settings) for g in GOLD]
        wanted = function(other, GOLD, automata)
        value.backward()
        wanted.backward()
        assert value.item() == wanted.item()
        assert torch.equal(mine.grad, other.grad)


def test_the_last_result_says_what_is_certain():
    exact = fgt.softmax_margin(scores(), GOLD, EDIT, reduction="none")
    capped = fgt.SoftmaxMarginLoss(EDIT, cap=2.0)
    banded = fgt.SoftmaxMarginLoss(EDIT, band=1)
    for module, end, how in ((capped, 0, "cap 2"), (banded, 1, "band 1")):
        module(scores(), GOLD)
        for known, value in zip(module.last, exact.tolist(), strict=True):
            assert known.interval[0] <= value <= known.interval[1]
            assert known.interval[end] == known.value
            assert known.how == how
        assert module.last[0].value != exact[0].item()  # six symbols: the cap and the band matter
    pruned = fgt.SoftmaxMarginLoss(EDIT, prune=1.0)
    pruned(scores(), GOLD)
    assert {known.how for known in pruned.last} == {"prune 1"}
    assert {known.interval for known in pruned.last} == {(-np.inf, np.inf)}
    whole = fgt.SoftmaxMarginLoss(EDIT, reduction="none")
    values = whole(scores(), GOLD).tolist()
    assert [known.interval for known in whole.last] == [(v, v) for v in values]


@pytest.mark.parametrize("kind", [fgt.SoftmaxMarginLoss, fgt.RiskLoss])
def test_sampled_modules(kind):
    exact, inputs = kind(EDIT, "none"), scores()
    exact(inputs, GOLD).sum().backward()
    module, mine = (
        kind(EDIT, "none", method="sampled", sampling=fgt.Sampling(4000, "plain")),
        scores(),
    )
    values = module(mine, GOLD)
    values.sum().backward()
    for known, value, wanted in zip(module.last, values.tolist(), exact.last, strict=True):
        assert known.value == value
        assert known.interval[0] <= wanted.value <= known.interval[1]
        assert known.is_reliable
        assert known.how.startswith("4000 samples (")
    assert (mine.grad - inputs.grad).abs().max() < 0.05
    assert not mine.grad[1, 4:].any()
    again = module(scores(), GOLD)
    assert not torch.equal(again, values)  # each batch draws anew
    fresh = kind(EDIT, "none", method="sampled", sampling=fgt.Sampling(4000, "plain"))
    assert torch.equal(fresh(scores(), GOLD), values)  # and the same from the same seed


def test_auto_samples_what_has_no_small_automaton(monkeypatch):
    monkeypatch.setattr("fstgrad.objectives.strings.AUTO_STATES", 60)
    module = fgt.SoftmaxMarginLoss(EDIT, "none", method="auto", sampling=fgt.Sampling(500))
    module(scores(), GOLD)
    assert [known.how.split()[0] for known in module.last] == ["500", "exact"]


@pytest.mark.parametrize("kind", [fgt.SoftmaxMarginLoss, fgt.RiskLoss])
def test_auto_within_a_budget(kind):
    """Seconds say how many states an item may have; the width says how many strings are drawn."""
    exact = kind(EDIT, "none")
    exact(scores(), GOLD)
    tight, wide = (fg.Budget(seconds=s, width=0.2) for s in (1e-4, 10.0))
    assert tight.states(scores()[0].detach().numpy()) < EDIT.compile("abcdab").num_states
    small = kind(EDIT, "none", method="auto", sampling=fgt.Sampling(tight))
    large = kind(EDIT, "none", method="auto", sampling=fgt.Sampling(wide))
    small(scores(), GOLD)
    large(scores(), GOLD)
    assert [known.how for known in large.last] == ["exact", "exact"]
    assert "samples" in small.last[0].how
    for module in (small, large):
        for known, wanted in zip(module.last, exact.last, strict=True):
            assert known.interval[0] - 1e-9 <= wanted.value <= known.interval[1] + 1e-9
    with pytest.raises(fg.InvalidInputError, match="seconds"):
        fgt.Sampling(fg.Budget(seconds=0))


def test_unreliable_values_warn_once_and_name_the_remedy():
    peaked = 30 * scores().detach()
    sampling = fgt.Sampling(samples=50, proposal="plain")
    module = fgt.SoftmaxMarginLoss(EDIT, method="sampled", sampling=sampling)
    with pytest.warns(RuntimeWarning, match="effective samples.*draw more samples"):
        module(peaked, GOLD)
    assert not all(known.is_reliable for known in module.last)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(peaked, GOLD)


def test_second_derivatives_of_samples_are_an_error():
    table = scores()
    value = fgt.softmax_margin(table, GOLD, EDIT, method="sampled")
    (first,) = torch.autograd.grad(value, table, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="sampled"):
        first.sum().backward()


def test_settings_are_kept_in_files():
    module = fgt.RiskLoss(EDIT, method="sampled", sampling=fgt.Sampling(200, "plain", 3))
    other = pickle.loads(pickle.dumps(module))
    assert torch.equal(other(scores(), GOLD), module(scores(), GOLD))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fgt.softmax_margin(scores(), GOLD, EDIT, method="guess"), "method is 'guess'"),
        (lambda: fgt.Sampling(samples=1), "samples"),
        (lambda: fgt.Sampling(proposal="best"), "proposal"),
        (lambda: fgt.risk(scores(), GOLD, None), "loss is None"),
        (lambda: fgt.softmax_margin(scores()[0], "abc", EDIT.compile("abc"), cap=1.0), "cap, band"),
        (lambda: fgt.softmax_margin(scores()[0], "abc", EDIT.compile("abc"), prune=1.0), "prune"),
        (lambda: fgt.risk(scores(), GOLD, EDIT, prune=1.0, method="auto"), "prune is 1.0 with"),
    ],
)
def test_bad_settings(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call()


def test_trees_and_chains_are_always_exact():
    assert not hasattr(fgt.SpanningTreeLoss(single_root=True), "last")
    assert fgt.LatticeRiskLoss(EDIT).last == ()
    assert np.isfinite(fgt.Sampling().generator(0).random())


def test_values_of_a_network_are_float64_whatever_its_scores():
    found = to_float64_tensor(np.array([1 / 3]), torch.zeros(1, dtype=torch.float32))
    assert found.dtype == torch.float64
    assert found.item() == 1 / 3


def test_the_first_position_of_a_batch_that_forbids_every_symbol():
    table = scores().detach()
    table[0, 0] = -torch.inf
    with pytest.raises(fg.InfeasibleError, match=r"scores\[0\] forbids every symbol at position 0"):
        fgt.risk(table, GOLD, EDIT)


def test_exact_items_of_a_sampled_module_are_kept():
    module = fgt.SoftmaxMarginLoss(EDIT, "none", method="auto", sampling=fgt.Sampling(400))
    values = module(scores(), GOLD).tolist()
    assert [known.value for known in module.last] == values
    assert [known.interval for known in module.last] == [(v, v) for v in values]
