"""Losses of pairs and alignments against the machines and against plain recursions."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.measures import errors, evaluate
from fstgrad.losses import pairwise
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.pairwise import losses_of_pairs
from fstgrad.openfst import to_arrays
from tests.helpers.losses import KINDS, make_loss
from tests.oracles import losses as alignments
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
MATRIX = np.array([[2.0, -1.0, 0.5], [-1.0, 3.0, -2.0], [0.5, -2.0, 1.0]])


def library():
    yield "edit", fg.EditDistance(ABC)
    yield "weighted", fg.EditDistance(ABC, 0.5, 1.25, 2.0)
    yield "factored", fg.EditDistance(ABC, 1.0, 2.0, 1.5, factored=True)
    yield "confusion", fg.EditDistance(ABC, confusion=np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0]]))
    yield "transpositions", fg.OptimalStringAlignment(ABC, 1.0, 1.0, 1.0, 0.5)
    yield "subsequence", fg.LongestCommonSubsequence(ABC)
    yield "hamming", fg.Hamming(ABC)
    yield "local", fg.SmithWaterman(ABC)
    yield "local, other gaps", fg.SmithWaterman(ABC, insert=0.5)
    yield "local affine", fg.SmithWaterman(ABC, matrix=MATRIX, gap_open=2.0, gap_extend=0.5)
    for ends in ("none", "y", "target", "both"):
        yield (
            f"global {ends}",
            fg.GlobalAlignment(ABC, MATRIX, gap_open=1.5, gap_extend=0.25, free_ends=ends),
        )
    yield "splitting", fg.GlobalAlignment(ABC, MATRIX, gap_open=0.5, gap_extend=1.5)
    yield "rate", fg.WordErrorRate(ABC)
    yield "scaled", 2.5 * fg.EditDistance(ABC)
    yield "sum", fg.EditDistance(ABC) + 0.5 * fg.SmithWaterman(ABC)
    yield "ngram", fg.NGram(ABC, 2)
    yield "ngram smooth", fg.NGram(ABC, 1, smoothing=0.5)


LIBRARY = dict(library())


@pytest.mark.parametrize("name", LIBRARY)
def test_pairs_equal_the_machine_of_the_target(name):
    loss = LIBRARY[name]
    rng = np.random.default_rng(0)
    sizes = [0, 1, 2, 5, 19] * 4
    ys = [rng.integers(3, size=size) for size in sizes]
    targets = [rng.integers(3, size=int(rng.integers(1, 22))) for _ in sizes]
    expected = [loss._unchecked(z).losses_of(y[None])[0] for y, z in zip(ys, targets, strict=True)]
    np.testing.assert_allclose(loss.pairwise(ys, targets), expected, atol=1e-11)
    assert [loss(y, z) for y, z in zip(ys, targets, strict=True)] == pytest.approx(
        expected, abs=1e-11
    )
    table = loss.matrix(ys, targets[:7], threads=2)
    assert table.shape == (20, 7)
    np.testing.assert_allclose(table[range(7), range(7)], expected[:7], atol=1e-11)


@pytest.mark.parametrize(
    "number, threads, largest", [(256, 2, 256), (1_001, 2, 125), (257, 100, 1)]
)
def test_threads_take_blocks_of_the_pairs(number, threads, largest):
    """At least four blocks for each thread; few pairs are one block, of the calling thread."""
    sizes = []

    def loss(y, z, pairs):
        sizes.append(len(pairs))
        return pairs[:, 0] - 2.0 * pairs[:, 1]

    empty = Strings(np.zeros(0, np.int64), np.zeros(1, np.int64))
    pairs = np.arange(2 * number).reshape(number, 2)
    np.testing.assert_array_equal(
        losses_of_pairs(loss, empty, empty, pairs, threads), loss(empty, empty, pairs)
    )
    sizes.pop()  # of the expected values
    assert (sum(sizes), max(sizes)) == (number, largest)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_equal_the_oracle(kind):
    rng = np.random.default_rng(1)
    target = tuple(int(i) for i in rng.integers(3, size=4))
    loss, by_hand = make_loss(kind, rng, ABC, target)
    strings = [y for size in (1, 3, 4) for y in oracle.all_strings(3, size)]
    ys = [np.array(y) for y in strings]
    values = loss.matrix(ys, [np.array(target)])[:, 0]
    np.testing.assert_allclose(values, [by_hand(y) for y in strings], atol=1e-11)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 129, 300])
def test_bit_parallel_words(size):
    """Distances over the borders of a word, in both directions."""
    rng = np.random.default_rng(size)
    loss = fg.EditDistance(ABC)
    target = rng.integers(3, size=size)
    near = np.delete(target, rng.integers(size, size=size // 9))
    for y in (target, near, rng.integers(3, size=size), rng.integers(3, size=7), target[:0]):
        assert loss(y, target) == oracle.edit_distance(y.tolist(), target.tolist())
        assert loss(target, y) == oracle.edit_distance(target.tolist(), y.tolist())


@pytest.mark.parametrize("gaps", [(2.0, 0.5), (1.0, 1.0)])
def test_affine_gaps_by_enumeration(gaps):
    rng = np.random.default_rng(2)
    opening, extending = gaps
    local = fg.SmithWaterman(ABC, matrix=MATRIX, gap_open=opening, gap_extend=extending)
    whole = fg.GlobalAlignment(ABC, MATRIX, opening, extending)
    for y, z in itertools.product([(0, 1, 2, 1), (2, 2), (1, 0, 1)], repeat=2):
        costs = dict(gap_open=opening, gap_extend=extending)
        expected = alignments.affine_cost(y, z, -MATRIX, **costs)
        assert whole(np.array(y), np.array(z)) == pytest.approx(expected, abs=1e-12)
        expected = alignments.local_affine_cost(y, z, -MATRIX, **costs)
        assert local(np.array(y), np.array(z)) == pytest.approx(expected, abs=1e-12)
    del rng


@pytest.mark.parametrize("name", [n for n in LIBRARY if "sum" not in n and "ngram" not in n])
def test_alignments_account_for_the_loss(name):
    loss = LIBRARY[name]
    rng = np.random.default_rng(3)
    for _ in range(25):
        y, z = rng.integers(3, size=int(rng.integers(0, 9))), rng.integers(3, size=6)
        if loss(y, z) == np.inf:
            with pytest.raises(fg.InfeasibleError):
                loss.align(y, z)
            continue
        a = loss.align(y, z)
        assert a.loss == pytest.approx(loss(y, z), abs=1e-11)
        assert sum(op.cost for op in a.operations) == pytest.approx(a.loss, abs=1e-11)
        assert [op.y for op in a.operations if op.y is not None] == ABC.decode(y)
        assert [op.target for op in a.operations if op.target is not None] == ABC.decode(z)
        assert a.matches + a.substitutions + a.deletions + 2 * a.counts["transpose"] + sum(
            op.kind == "skip" and op.y is not None for op in a.operations
        ) == len(y)
        for region in a.regions:
            assert 0 <= region.y_start <= region.y_stop <= len(y)
            assert 0 <= region.target_start <= region.target_stop <= len(z)


def test_an_alignment_in_words():
    words = fg.Alphabet(["a", "cat", "sat", "the", "mat", "hat"])
    a = fg.WordErrorRate(words).align(["the", "cat", "hat"], ["the", "cat", "sat", "mat"])
    assert a.loss == 0.5
    assert (a.matches, a.substitutions, a.insertions, a.deletions) == (2, 1, 1, 0)
    top, marks, bottom = str(a).splitlines()
    assert top.split() == ["the", "cat", "hat", "-"] or top.split() == ["the", "cat", "-", "hat"]
    assert sorted(marks.split()) == [".", ".", "I", "S"]
    assert bottom.split() == ["the", "cat", "sat", "mat"]


def test_a_local_alignment_by_hand():
    """Of ggacgg and tact the factor ac is aligned: two matches of -2."""
    a = fg.SmithWaterman(fg.Alphabet("acgt")).align("ggacgg", "tact")
    assert a.loss == -4.0
    assert a.regions == ((2, 4, 1, 3),)
    assert a.counts["skip"] == 6


def test_two_symbols_that_change_places():
    a = fg.OptimalStringAlignment(ABC).align("ca", "ac")
    assert [op.kind for op in a.operations] == ["transpose", "transpose"]
    assert a.counts["transpose"] == 1
    assert a.loss == 1.0


def test_what_pairs_are_refused():
    loss = fg.EditDistance(ABC)
    with pytest.raises(fg.InvalidInputError, match=r"ys has 2 .* targets 1"):
        loss.pairwise(["a", "b"], ["a"])
    with pytest.raises(fg.AlphabetError, match=r"targets\[1\]\[0\] is 'x'"):
        loss.pairwise(["a", "b"], ["a", "x"])
    with pytest.raises(fg.NotSupportedError, match="align"):
        fg.NGram(ABC, 2).align("ab", "ab")
    with pytest.raises(fg.NotSupportedError, match="losses"):
        (loss + loss).align("ab", "ab")
    assert loss.pairwise([], []).shape == (0,)
    assert loss.matrix(["a"], []).shape == (1, 0)


def test_errors_of_predictions_by_symbols():
    predictions, targets = ["cat", "dog", "dooog"], ["cart", "dug", "dog"]
    found = errors(predictions, targets)
    assert found.substituted == ((("o", "u"), 1),)
    assert found.missing == (((None, "r"), 1),)
    assert found.added == ((("o", None), 2),)
    assert found.symbols == 10
    assert "o for u" in str(found)
    assert evaluate(predictions, targets).error_rate == 4 / 10


def test_no_least_alignment_is_an_error():
    """Insertions and deletions that pay for themselves make alignments cheaper without end."""
    from fstgrad.core.errors import FstError
    from fstgrad.losses.pairwise import ArcCosts
    from fstgrad.openfst import FstArrays

    zero, one = np.array([0]), np.array([1])
    back_and_forth = FstArrays(
        "log64", 0, np.array([0.0, 0.0]), np.array([0, 1]), np.array([0, 0]), np.array([0, 0]),
        np.array([1, 0]), np.array([1.0, -2.0]),
    )  # fmt: skip
    with pytest.raises(FstError, match="negative cost"):
        ArcCosts.of(back_and_forth, 1).best_path(np.empty(0, np.int64), np.empty(0, np.int64))
    copy = FstArrays("log64", 0, np.zeros(1), zero, one, one, zero, np.zeros(1))
    cost, path = ArcCosts.of(copy, 1).best_path(zero, zero)
    assert (cost, path.tolist()) == (0.0, [0])


def test_single_precision_is_for_scores_on_a_grid():
    """Sums of eighths are exact in float32, those of tenths are not."""
    from fstgrad.losses.pairwise import AffineScores

    for unit, fits in ((1 / 8, True), (1 / 3, False), (0.1, False), (2.0**-9, False)):
        scores = np.array([[3.0, -1.0], [-1.0, 3.0]]) * unit
        assert AffineScores(scores, 4 * unit, unit, "local")._fits(9) is fits
    assert not AffineScores(np.full((2, 2), 2.0**18), 1.0, 1.0, "local")._fits(9)
    abc = fg.Alphabet("ab")
    loss = fg.SmithWaterman(abc, match=-0.3, substitute=0.1, insert=0.2, delete=0.2)
    assert loss.pairwise(["abab"], ["abab"])[0] == pytest.approx(-1.2, abs=1e-15)


def test_scores_of_long_strings_are_exact():
    """Sums of 400 gaps of 65,537 need more than the 24 bits of float32."""
    loss = fg.GlobalAlignment(fg.Alphabet("a"), [[65537.0]], 65537.0, 65537.0, free_ends="none")
    assert loss.pairwise(["a", "a" * 400], ["a", "a"]).tolist() == [-65537.0, 398 * 65537.0]
    assert loss.pairwise(["a", "a"], ["a", "a" * 400]).tolist() == [-65537.0, 398 * 65537.0]


def test_an_alignment_that_passes_the_memory(monkeypatch):
    monkeypatch.setattr(pairwise, "ALIGNMENT_MEMORY", 8 * 5 * 4 - 1)
    loss = fg.EditDistance(fg.Alphabet("ab"))
    assert loss.align("aba", "ab").loss == 1.0
    with pytest.raises(fg.MemoryLimitError, match="4 with 3 symbols needs 160 bytes"):
        loss.align("abab", "aba")


def test_losses_of_300_symbols_have_tables():
    fst = to_arrays(fg.EditDistance(fg.Alphabet([f"s{i}" for i in range(300)])).transducer)
    assert isinstance(pairwise.pair_loss(fst, 300), pairwise.LinearCosts)


def test_costs_are_summed_without_overflow_or_refused():
    """Sums and multiples of larger rewards or gap costs could be -inf or NaN."""
    abc, huge = fg.Alphabet("ab"), 1e151
    for make in (
        lambda: fg.EditDistance(abc, confusion=[[0, -huge], [1, 0]]),
        lambda: fg.Hamming(abc, [[0, -huge], [1, 0]]),
        lambda: fg.GlobalAlignment(abc, np.eye(2), 1e308),
        lambda: fg.GlobalAlignment(abc, np.eye(2), 1.0, huge),
        lambda: fg.GlobalAlignment(abc, huge * np.eye(2), 1.0),
        lambda: fg.SmithWaterman(abc, match=-huge),
        lambda: fg.SmithWaterman(abc, gap_open=huge),
        lambda: huge * fg.Hamming(abc),
        lambda: fg.TransducerLoss(
            fg.openfst.FstArrays("log64", 0, [0.0], [0], [1], [1], [0], [-huge]), abc
        ),
    ):
        with pytest.raises(fg.FstgradError, match=r"1e\+150"):
            make()
    for cost in (1e20, 1e31, 1e150):
        deleting, inserting = ["aaa", ""], ["", "bb"]
        found = [
            fg.EditDistance(abc, cost, cost, cost).pairwise(deleting, inserting),
            fg.GlobalAlignment(abc, np.eye(2), cost).pairwise(deleting, inserting),
            fg.GlobalAlignment(abc, np.eye(2), cost, 0.0).pairwise(deleting, inserting) * [3, 2],
        ]
        np.testing.assert_allclose(found, [[3 * cost, 2 * cost]] * 3, rtol=1e-15)
