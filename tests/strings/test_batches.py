"""Batches of strings in one call: every item has the bits that it has alone."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.strings import batches
from fstgrad.strings.batches import Strings
from fstgrad.strings.solve import no_loss

ABC = fg.Alphabet("abcd")
EDIT = fg.EditDistance(ABC)
LENGTHS = [5, 1, 7, 3, 6]


def batch(order, *, make=None, scale=1.0, seed=0):
    """Ragged items, one of which has scores beyond the range of floats."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    scores = scale * rng.normal(size=(starts[-1], *(5,) * (order - 1), 4))
    scores[starts[2] : starts[3]] *= 500.0
    golds = [rng.integers(4, size=length) for length in LENGTHS]
    automata = [no_loss(4, len(y)) if make is None else make(y) for y in golds]
    return Strings(scores, starts, automata), golds


LOSSES = {
    "none": None,
    "exact": EDIT.compile,
    "cap": lambda y: EDIT.compile(y, cap=2.0),
    "band": lambda y: EDIT.compile(y, band=1),
    "hamming": fg.Hamming(ABC).compile,
}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_single_strings(name, order):
    strings, golds = batch(order, make=LOSSES[name])
    strings.check()
    places = strings.gold_index(np.concatenate(golds))
    log_z, terms = strings.log_partitions()
    score = strings.score_of(places)
    terms.reshape(-1)[places] -= 1.0
    risks = strings.risks()
    for i, (b, gold) in enumerate(zip(strings.automata, golds, strict=True)):
        rows = slice(strings.starts[i], strings.starts[i + 1])
        value, gradient = fg.softmax_margin(strings.item(i), gold, b)
        assert log_z[i] - score[i] == pytest.approx(value, rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(terms[rows], gradient, rtol=0, atol=1e-12)
        value, gradient = fg.risk(strings.item(i), b)
        assert risks[0][i] == pytest.approx(value, rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(risks[1][rows], gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("what", ["log_partitions", "risks"])
def test_bits_do_not_depend_on_the_cuts(order, what, monkeypatch):
    strings, _ = batch(order, make=EDIT.compile)
    whole = getattr(strings, what)()
    parts = [getattr(strings.part(i, i + 1), what)() for i in range(len(LENGTHS))]
    monkeypatch.setattr(batches, "BLOCK", 1)
    for found in (getattr(strings, what)(), tuple(map(np.concatenate, zip(*parts, strict=True)))):
        assert found[0].tobytes() == whole[0].tobytes()
        assert found[1].tobytes() == whole[1].tobytes()


def test_errors_name_the_item_and_the_position():
    strings, golds = batch(2, make=EDIT.compile)
    strings.scores[strings.starts[3] + 1] = -np.inf
    with pytest.raises(fg.InfeasibleError, match=r"scores\[3\] .* at position 1: no string"):
        strings.log_partitions()
    with pytest.raises(fg.InfeasibleError, match=r"gold\[3\] .* at position 1, so its prob"):
        strings.score_of(strings.gold_index(np.concatenate(golds)))
    with pytest.raises(fg.InfeasibleError, match=r"scores\[3\] .* at position 1"):
        strings.part(2, 5).risks()
    strings.scores[strings.starts[4]] = np.nan
    with pytest.raises(fg.InvalidInputError, match="position 0 of item 4 is nan"):
        strings.check()
    other = Strings(np.zeros((5, 5, 4)), np.array([0, 5]), [EDIT.compile("abc")])
    with pytest.raises(fg.InvalidInputError, match="item 0 are for 5 positions and 4 symbols; its"):
        other.check()
    with pytest.raises(fg.InvalidInputError, match="context axes have 5"):
        other._replace(scores=np.zeros((5, 4, 4))).check()
    y = fg.ExactMatch(ABC).compile("ab")
    blocked = Strings(np.array([[-np.inf, 0, 0, 0], [0, 0, 0, 0]]), np.array([0, 2]), [y])
    with pytest.raises(fg.InfeasibleError, match="item 0: no string"):
        blocked.log_partitions()
