"""Every loss of the library against enumeration: pairs, automata, caps, engines, gradients."""

import math

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import losses as by_hand
from tests.oracles import strings as oracle

AB = fg.Alphabet("ab")
COSTS = np.array([[-2.0, 0.5], [1.5, -1.0]])  # not symmetric: rows are the hypothesis
SHORT = [y for length in range(4) for y in oracle.all_strings(2, length)]


def minus_log(u, smoothing=0.0):
    return -math.log(u + smoothing) if u + smoothing else math.inf


def kernels(make, value):
    """The three readings of a kernel: (name, loss, oracle)."""
    yield "", make(), lambda y, z: minus_log(value(y, z))
    yield "-smooth", make(smoothing=0.25), lambda y, z: minus_log(value(y, z), 0.25)
    yield "-linear", make(log=False), lambda y, z: -value(y, z)


def alignments():
    """(name, loss, oracle) of alignments."""
    for ends, free in (("none", ""), ("y", "d"), ("target", "i"), ("both", "di")):
        for extend in (0.5, 1.25):
            yield (
                f"global-{ends}-{extend}",
                fg.GlobalAlignment(AB, -COSTS, 1.25, extend, free_ends=ends),
                lambda y, z, free=free, extend=extend: by_hand.affine_cost(
                    y, z, COSTS, gap_open=1.25, gap_extend=extend, free=free
                ),
            )
    yield (
        "global-costly-extension",
        fg.GlobalAlignment(AB, -COSTS, 0.25, 1.5),
        lambda y, z: by_hand.affine_cost(y, z, COSTS, gap_open=0.25, gap_extend=1.5),
    )
    yield (
        "local",
        fg.SmithWaterman(AB, matrix=-COSTS, gap_open=1.0, gap_extend=0.25),
        lambda y, z: by_hand.local_affine_cost(y, z, COSTS, gap_open=1.0, gap_extend=0.25),
    )
    yield (
        "local-match",
        fg.SmithWaterman(AB, match=-3.0, substitute=0.5, gap_open=1.0),
        lambda y, z: by_hand.local_affine_cost(
            y, z, [[-3.0, 0.5], [0.5, -3.0]], gap_open=1.0, gap_extend=1.0
        ),
    )


def edits():
    """(name, loss, oracle) of edit distances, and of sums and multiples of losses."""
    yield (
        "subsequence",
        fg.LongestCommonSubsequence(AB),
        lambda y, z: len(z) - by_hand.longest_common_subsequence(y, z),
    )
    yield (
        "transposition",
        fg.OptimalStringAlignment(AB, 1.0, 0.75, 1.5, 0.5),
        lambda y, z: by_hand.string_alignment(y, z, 1.0, 0.75, 1.5, 0.5),
    )
    yield (
        "word-error-rate",
        fg.WordErrorRate(AB, 1.0, 2.0, 1.5),
        lambda y, z: oracle.edit_distance(y, z, insert=1.0, delete=2.0, substitute=1.5) / len(z),
    )
    yield (
        "scaled",
        0.3 * fg.EditDistance(AB),
        lambda y, z: 0.3 * oracle.edit_distance(y, z),
    )
    yield (
        "sum",
        fg.EditDistance(AB, 0.5, 1.0, 0.75) + 2 * fg.SmithWaterman(AB),
        lambda y, z: (
            oracle.edit_distance(y, z, insert=0.5, delete=1.0, substitute=0.75)
            + 2 * oracle.smith_waterman(y, z)
        ),
    )
    yield (
        "sum-of-rates",
        fg.CharacterErrorRate(AB) + 0.5 * fg.Hamming(AB) + fg.EditDistance(AB, 0.1),
        lambda y, z: (
            oracle.edit_distance(y, z) / len(z)
            + 0.5 * oracle.hamming(y, z)
            + oracle.edit_distance(y, z, insert=0.1)
        ),
    )
    yield (
        "sum-with-kernel",
        fg.EditDistance(AB) + 0.5 * fg.NGram(AB, 2),
        lambda y, z: oracle.edit_distance(y, z) + 0.5 * oracle.ngram_loss(y, z, 2),
    )


def kernel_losses():
    """(name, loss, oracle) of kernels of n-grams."""
    families = {
        "ngrams": (
            lambda **how: fg.NGramSum(AB, 3, [1.0, 2.0, 0.5], **how),
            lambda y, z: by_hand.ngram_sum(y, z, [1.0, 2.0, 0.5]),
        ),
        "gappy": (
            lambda **how: fg.GappyNGram(AB, 2, 0.5, **how),
            lambda y, z: by_hand.gappy_kernel(y, z, 2, 0.5),
        ),
        "gappy-3": (
            lambda **how: fg.GappyNGram(AB, 3, 0.7, **how),
            lambda y, z: by_hand.gappy_kernel(y, z, 3, 0.7),
        ),
        "mismatch": (
            lambda **how: fg.MismatchNGram(AB, 3, 1, **how),
            lambda y, z: by_hand.mismatch_kernel(y, z, 3, 1, 2),
        ),
    }
    for name, (make, value) in families.items():
        for reading, loss, losses in kernels(make, value):
            yield name + reading, loss, losses


LIBRARY = {
    name: (loss, losses) for name, loss, losses in (*alignments(), *edits(), *kernel_losses())
}
each_loss = pytest.mark.parametrize("loss, expected", LIBRARY.values(), ids=LIBRARY)


@each_loss
def test_pairs_of_any_lengths(loss, expected):
    for target in SHORT[1::3]:  # an error rate divides by the length of the target
        for y in SHORT:
            ids = np.array(y, dtype=np.int64)
            assert loss(ids, np.array(target)) == pytest.approx(expected(y, target), abs=1e-11)


@each_loss
@pytest.mark.parametrize("length", [2, 4])
def test_automata_and_gradients(loss, expected, length):
    target = (1, 0, 0, 1)
    strings = oracle.all_strings(2, length)
    losses = [expected(y, target) for y in strings]
    if not np.isfinite(losses).any():
        with pytest.raises(fg.InfeasibleError):
            loss.compile(np.array(target), length)
        return
    b = loss.compile(np.array(target), length)
    assert [b.loss(np.array(y)) for y in strings] == pytest.approx(losses, abs=1e-11)
    scores = np.random.default_rng(length).normal(size=(length, 3, 2))
    gold = strings[5 % len(strings)]
    value, gradient = fg.softmax_margin(scores, np.array(gold), b)
    expected_value, expected_gradient = oracle.softmax_margin(scores, gold, losses)
    assert value == pytest.approx(expected_value, abs=1e-11)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-11)
    risk, gradient = fg.risk(scores, b)
    expected_risk, expected_gradient = oracle.risk(scores, losses)
    assert risk == pytest.approx(expected_risk, abs=1e-11)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-11)


@each_loss
@pytest.mark.parametrize("cap", [-0.75, 0.4, 10.0])
def test_caps(loss, expected, cap):
    target = (1, 0, 0)
    if loss.semiring == "mixed":
        with pytest.raises(fg.NotSupportedError, match="cap, band or prune of a sum"):
            loss.compile(np.array(target), cap=cap)
        return
    b = loss.compile(np.array(target), cap=cap)
    for y in oracle.all_strings(2, 3):
        assert b.loss(np.array(y)) == pytest.approx(min(expected(y, target), cap), abs=1e-11)


@each_loss
def test_the_reference_engine_agrees(loss, expected):
    """OpenFst's tropical costs are float32."""
    target = np.array([1, 0, 0])
    b = loss.compile(target, engine="openfst")
    for y in oracle.all_strings(2, 3):
        value = expected(y, tuple(target))
        assert b.loss(np.array(y)) == pytest.approx(value, rel=2e-6, abs=2e-6)


def test_a_sum_is_as_small_as_its_minimal_automaton():
    abc = fg.Alphabet("abcdef")
    target = abc.encode("abcadeff")
    twice = fg.EditDistance(abc) + fg.EditDistance(abc)
    assert twice.compile(target).num_states == fg.EditDistance(abc).compile(target).num_states


def test_a_third_and_a_half_have_a_common_unit():
    third = fg.EditDistance(AB) * (1 / 3)
    machine = (third + 0.5 * fg.EditDistance(AB)).machine("ab")
    assert machine.unit == pytest.approx(1 / 6, rel=1e-15)
    assert third.compile("abab", cap=0.5).loss("bbbb") == 0.5  # one and a half thirds


def test_a_cap_in_another_unit_is_the_same_cap():
    """0.9 / 0.3 is 3.0000000000000004 in floats, and means 3."""
    abc, target = fg.Alphabet("abcde"), "abcdeabc"
    scaled = (0.3 * fg.EditDistance(abc)).compile(target, cap=0.9)
    assert scaled.num_states == fg.EditDistance(abc).compile(target, cap=3).num_states
    assert scaled.loss("eeeeeeee") == pytest.approx(0.9, abs=1e-15)


def test_references_of_one_length_are_rated_together():
    rate = fg.CharacterErrorRate(AB)
    references = union_of("abab", "bbbb")
    assert rate("abbb", references) == 1 / 4
    assert rate.compile(references, 4).loss("abbb") == 1 / 4
    with pytest.raises(fg.NotSupportedError, match=r"lengths \[2, 3\].*EditDistance"):
        rate("ab", union_of("ab", "aba"))


def union_of(*strings):
    from fstgrad import openfst
    from fstgrad.losses import transducers

    acceptors = [transducers.string_acceptor(AB, s, arc_type="log64") for s in strings]
    return openfst.union(*acceptors)


@pytest.mark.parametrize(
    "make",
    [
        lambda table: fg.GlobalAlignment(AB, table, 1.25),
        lambda table: fg.GlobalAlignment(AB, table, 1.25, free_ends="both"),
        lambda table: fg.SmithWaterman(AB, matrix=table, gap_open=1.25),
        lambda table: fg.EditDistance(AB, confusion=table),
        lambda table: fg.Hamming(AB, table),
    ],
)
def test_a_loss_keeps_the_costs_that_it_was_made_with(make):
    """An array that the caller changes later changes no loss."""
    table = np.abs(COSTS)
    loss, expected = make(table), make(table.copy())("abb", "bab")
    table[...] = 9.0
    assert loss("abb", "bab") == loss.compile("bab").loss("abb") == pytest.approx(expected)
    assert loss.pairwise(["abb"], ["bab"]) == pytest.approx([expected])


@pytest.mark.parametrize(
    "build, error, said",
    [
        (lambda: -1 * fg.Hamming(AB), fg.InvalidInputError, "factor is -1"),
        (lambda: fg.Hamming(AB) + fg.Hamming(fg.Alphabet("ac")), fg.AlphabetError, "same alphabet"),
        (lambda: (2 * fg.Hamming(AB)).transducer, fg.NotSupportedError, r"\.loss\.transducer"),
        (
            lambda: (fg.Hamming(AB) + fg.Hamming(AB)).transducer,
            fg.NotSupportedError,
            r"\.losses",
        ),
        (
            lambda: (fg.Hamming(AB) + fg.NGram(AB)).machine("ab"),
            fg.NotSupportedError,
            "one semiring",
        ),
        (
            lambda: fg.SmithWaterman(AB, matrix=COSTS),
            fg.InvalidInputError,
            "gap_open is missing",
        ),
        (
            lambda: fg.GlobalAlignment(AB, COSTS, 1.0, free_ends="local"),
            fg.InvalidInputError,
            "free_ends is 'local'",
        ),
        (
            lambda: fg.GlobalAlignment(AB, COSTS, -1.0),
            fg.InvalidInputError,
            "gap_open is -1.0",
        ),
        (lambda: fg.GlobalAlignment(AB, np.eye(3), 1.0), fg.InvalidInputError, r"\(3, 3\)"),
        (lambda: fg.GappyNGram(AB, decay=1.5), fg.InvalidInputError, "decay is 1.5"),
        (lambda: fg.MismatchNGram(AB, 2, 2), fg.InvalidInputError, "mismatches is 2"),
        (lambda: fg.NGramSum(AB, 2, [1.0, 0.0]), fg.InvalidInputError, "weights"),
        (
            lambda: (fg.EditDistance(AB) + fg.NGram(AB)).compile("abab", max_states=3),
            fg.StateLimitError,
            "max_states=3",
        ),
    ],
)
def test_bad_input(build, error, said):
    with pytest.raises(error, match=said):
        build()


MATRIX = """# two letters
   a  b
a  2 -1
b -1  3.5
"""


def test_a_matrix_is_read_by_symbol(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text(MATRIX)
    matrix = fg.SubstitutionMatrix.read(path)
    np.testing.assert_array_equal(matrix.over(fg.Alphabet("ba")), [[3.5, -1], [-1, 2]])
    assert fg.GlobalAlignment(fg.Alphabet("ba"), path, 2.0)("abb", "ab") == -(2 + 3.5) + 2
    with pytest.raises(fg.AlphabetError, match="no score for c; it has a b"):
        matrix.over(fg.Alphabet("abc"))


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "no scores"),
        ("  a b\na 1 2 3\nb 1 2\n", r":2: 3 scores after 'a' for 2 columns"),
        ("  a b\na 1 x\nb 1 2\n", ":2: .*one number for each column"),
        ("  a b\na 1 1_0\nb 1 2\n", ":2: .*one number for each column"),
        ("  a a\na 1 1\nb 1 2\n", "a symbol twice"),
        ("  a b\na 1 nan\nb 1 2\n", "nan"),
    ],
)
def test_a_bad_matrix_names_the_line(tmp_path, text, said):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(fg.InvalidInputError, match=said):
        fg.SubstitutionMatrix.read(path)


def test_reports():
    samples = ["ab", "a", "bbab"]
    edit = fg.EditDistance(AB, insert_cost=2.0).check(samples)
    assert (edit.accepts_identity, edit.zero_at_identity, edit.symmetric) == (True, True, False)
    assert (edit.negative, edit.finite) == (False, True)
    assert (edit.least, edit.greatest) == (0.0, 3 * 2.0)  # a becomes bbab by three insertions
    assert edit.machine_states == len("ab") + 1  # the median of |s| + 1: 3, 2, 5
    local = fg.SmithWaterman(AB).check(samples)
    assert (local.zero_at_identity, local.symmetric, local.negative) == (False, True, True)
    assert (local.least, local.greatest) == (4 * -2.0, -2.0)
    assert not fg.Hamming(AB).check(samples).finite
    grams = fg.NGram(AB, 2).check(samples)
    assert not grams.accepts_identity  # "a" has no bigram
    mixed = fg.EditDistance(AB) + fg.NGram(AB)
    parts = [loss.machine("ab").num_states for loss in mixed.losses]
    assert mixed.check(["ab"]).machine_states == parts[0] * parts[1]
    table = str(edit).splitlines()
    assert len(table) == 7
    assert table[2].split()[:2] == ["symmetric", "no"]
    with pytest.raises(fg.InvalidInputError, match="samples is empty"):
        fg.Hamming(AB).check([])


def test_a_report_refuses_a_cycle_of_negative_cost():
    from fstgrad.losses.transducers.builder import ArcGroup, final_at, machine

    label = np.array([1, 2])
    fst = machine(
        "log64",
        final_at(1, 0),
        [ArcGroup(0, label, label, 0.0, 0), ArcGroup(0, 0, 0, -1.0, 0)],
    )
    with pytest.raises(fg.FstError, match="cycle of insertions or deletions with negative cost"):
        fg.TransducerLoss(fst, AB).check(["ab"])


@each_loss
def test_lattices_take_every_loss(loss, expected):
    """Risk over an n-best list of strings of several lengths, by enumeration."""
    target, strings = (1, 0, 0), [(1, 0), (1, 0, 1), (0, 0, 1, 1), (1,)]
    scores = np.array([0.5, -0.25, 1.0, 0.0])
    lattice = fg.Lattice.from_nbest([np.array(y) for y in strings], scores, AB)
    losses = np.array([expected(y, target) for y in strings])
    kept = np.isfinite(losses)
    if not kept.any():
        with pytest.raises(fg.InfeasibleError):
            fg.risk(lattice, np.array(target), loss)
        return
    p = np.exp(scores[kept]) / np.exp(scores[kept]).sum()
    value, _ = fg.risk(lattice, np.array(target), loss)
    assert value == pytest.approx(p @ losses[kept], abs=1e-11)
