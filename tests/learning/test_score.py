"""Error rates of corpora: totals of jiwer, counts of sclite, tests by hand, wrong arguments."""

import csv
import functools
import itertools
import math
import re
import warnings

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.comparison import matched_pairs, segment_errors
from fstgrad.learning.edits import Edits
from fstgrad.losses.automata.kernels.arguments import DELETE, INSERT, MATCH, SUBSTITUTE
from fstgrad.objectives.predictions import lattice_string_of_least_risk


def corpora(number):
    """Random corpora of a few sentences over a few words, also empty ones."""
    rng = np.random.default_rng(0)
    for _ in range(number):
        pairs = int(rng.integers(1, 5))
        words = np.array(["a", "b", "cc", "d", "é"])[: rng.integers(1, 6)]
        yield [
            [" ".join(rng.choice(words, rng.integers(0, 8))) for _ in range(pairs)]
            for _ in range(2)
        ]


@functools.cache
def least_cost(y, z, costs=(1, 1, 1)):
    """The recursive definition of the cost of an alignment (substitute, y alone, z alone)."""
    if not y or not z:
        return costs[1] * len(y) + costs[2] * len(z)
    return min(
        least_cost(y[1:], z[1:], costs) + costs[0] * (y[0] != z[0]),
        least_cost(y[1:], z, costs) + costs[1],
        least_cost(y, z[1:], costs) + costs[2],
    )


def test_an_interval_leaves_out_resamples_whose_references_have_no_words():
    found = fg.score(["a", "b c d"], ["a", ""], "wer", rng=0).rows[-1].error_rate
    assert (found.value, found.lower, found.upper) == (3.0, 0.0, 3.0)
    for seed in range(20):  # without another draw, the value stands for one
        found = fg.score(["a", "b c d"], ["a", ""], "wer", resamples=1, rng=seed).error_rate
        assert found.upper in (0.0, 3.0)


@pytest.mark.parametrize("loss", ["wer", "cer"])
def test_errors_of_a_corpus_are_those_of_the_definition_and_of_jiwer(loss):
    try:
        import jiwer
    except ImportError:
        jiwer = None
    for hypotheses, references in corpora(1000 if loss == "wer" or jiwer else 100):
        result = fg.score(hypotheses, references, loss, resamples=1)
        split = str.split if loss == "wer" else tuple
        ys, zs = ([tuple(split(text)) for text in side] for side in (hypotheses, references))
        pairs = list(zip(ys, zs, strict=True))
        errors = [least_cost(y, z) for y, z in pairs]
        assert result.errors.tolist() == errors
        symbols = sum(len(z) for _, z in pairs)
        assert result.error_rate.value == sum(errors) / max(1, symbols)
        if jiwer is not None:
            rate = (jiwer.wer if loss == "wer" else jiwer.cer)(references, hypotheses)
            assert result.error_rate.value == pytest.approx(rate, abs=1e-12)
        totals = result.rows[-1]
        assert totals.correct + totals.substitutions + totals.deletions == symbols
        assert (totals.errors, totals.pairs) == (sum(errors), len(pairs))


def test_white_space_at_the_ends_of_a_text_is_no_character():
    """As in files of transcripts, and as in jiwer."""
    result = fg.score(["\ta b ", " "], ["a  b", "c "], "cer")
    assert result.errors.tolist() == [1, 1]
    assert result.rows[-1].symbols == 5


@pytest.mark.parametrize("align", ["unit", "sclite"])
def test_alignments_are_cheapest_and_spell_both_strings(align):
    costs = (1, 1, 1) if align == "unit" else (4, 3, 3)
    for hypotheses, references in corpora(200):
        result = fg.score(hypotheses, references, "wer", align=align, resamples=1)
        for i, (y, z) in enumerate(zip(hypotheses, references, strict=True)):
            alignment = result.alignment(i)
            assert alignment.loss == least_cost(tuple(y.split()), tuple(z.split()), costs)
            steps = alignment.operations
            assert [step.y for step in steps if step.y is not None] == y.split()
            assert [step.target for step in steps if step.target is not None] == z.split()
            assert alignment.counts["delete"] == result.insertions[i]
            assert alignment.counts["insert"] == result.deletions[i]
            assert alignment.counts["substitute"] == result.substitutions[i]


def test_counts_of_sclite(shared_data):
    """NIST's own counts of the 51 sentences of its test data, 6 of them with alternatives."""
    path = shared_data / "asr_sctk" / "csrnab.tsv"
    if not path.exists():
        pytest.skip("no test data of SCTK")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    hypotheses, references = ([r[side] for r in rows] for side in ("hyp", "ref"))
    result = fg.score(hypotheses, references, align="sclite", alternatives=True)
    found = [result.correct, result.substitutions, result.deletions, result.insertions]
    expected = [[int(r[name]) for r in rows] for name in ("corr", "sub", "del", "ins")]
    assert [column.tolist() for column in found] == expected
    assert len(rows) == 51


# hypothesis, reference, sclite's numbers of correct, substituted, deleted and inserted words with
# its option -D; the last ones have alternatives and optional words in the hypothesis
SCLITE = """
a b c d e f g | a b { c d / c / e } e f g | 7 0 0 0
a b c d e f g | a b { c / e / c d } f g | 6 0 0 1
a gh i bd e i th f | a { b / cd / { g h i / gh i / g ih} bd } { e { i n / th } f / ef } | 7 0 0 1
a c i d | a { c / @ } d | 3 0 0 1
a d | a { c / @ } d | 2 0 0 0
a d e | a d @ e | 3 0 0 0
b e | b (c) d | 2 1 0 0
b c e | b (c) d | 2 1 0 0
b s i e | b (c) d | 1 2 0 1
s s s | (a) (c) b d e | 2 3 0 0
s s s | a c b (d) (e) | 2 3 0 0
 | (uh) { a / @ } (um) | 2 0 0 0
th { {e / @} is {w as / i / s / @ } / d is } is {th/t} en | {the / this} is the tea | 1 3 0 1
a {d / @} d | a { c / @ } d | 2 0 0 0
a (uh) b | a b | 3 0 0 0
"""


def test_alternatives_and_optional_words_count_as_in_sclite():
    for line in SCLITE.strip("\n").splitlines():
        y, z, counts = line.split("|")
        row = fg.score([y], [z], align="sclite", alternatives=True, resamples=1).rows[0]
        assert row[4:8] == tuple(map(int, counts.split())), line


def random_items(rng, depth=0):
    """Return items of a text: a word, [readings], or (word,) if it is optional."""
    items = []
    for kind in rng.random(rng.integers(depth > 0, 4 - depth)):
        if kind < 0.3 and depth < 2:
            items.append([random_items(rng, depth + 1) for _ in range(rng.integers(1, 4))])
        else:
            word = str(rng.choice(["a", "b", "cc", "@"]))
            items.append((word,) if kind > 0.85 else word)
    return items


def text_of(items):
    return " ".join(
        f"({one[0]})" if isinstance(one, tuple)
        else one if isinstance(one, str)
        else f"{{ {' / '.join(text_of(own) for own in one)} }}"
        for one in items
    )  # fmt: skip


def readings_of(items):
    """Return (words, optional words that are left out) of each reading."""
    found = [((), ())]
    for one in items:
        if isinstance(one, list):
            own = [pair for reading in one for pair in readings_of(reading)]
        else:
            word = () if "@" in one else (one,) if isinstance(one, str) else one
            own = [(word, ()), *([((), word)] if isinstance(one, tuple) and word else [])]
        found = [(a + c, b + d) for a, b in found for c, d in own]
    return found


@pytest.mark.parametrize("loss", ["wer", "cer"])
def test_the_chosen_reading_has_the_fewest_errors_of_all(loss):
    """Of all pairs of readings; of these, it is the cheapest for sclite, apart from @."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        sides = [random_items(rng) for _ in range(2)]
        result = fg.score(
            [text_of(sides[0])], [text_of(sides[1])], loss, alternatives=True, resamples=1
        )
        joined = (lambda words: words) if loss == "wer" else (lambda words: tuple(" ".join(words)))
        found = set()
        for (y, own), (z, other) in itertools.product(*map(readings_of, sides)):
            skipped = len(joined(own)) + len(joined(other))
            cost = least_cost(joined(y), joined(z), (4, 3, 3))
            errors = least_cost(joined(y), joined(z))
            found.add((errors, cost + 2 * skipped, len(joined(z)) + skipped))
        fewest = min(errors for errors, _, _ in found)
        row = result.rows[0]
        assert row.errors == fewest, sides
        if loss == "wer":
            least = min(cost for errors, cost, _ in found if errors == fewest)
            sizes = {size for errors, cost, size in found if (errors, cost) == (fewest, least)}
            assert row.symbols in sizes
        assert row.correct + row.substitutions + row.deletions == row.symbols


def test_alternatives_of_lattices_rules_and_comparisons():
    references = ["{ a / b } uh c (d)", "x { y z / w } x"]
    lattice = fg.Lattice.from_nbest([["a", "d"], ["b", "c"]], [0.0, -1.0], fg.Alphabet("abcd"))
    settings = {"alternatives": True, "drop": ["uh"]}
    for how, errors in (("best", 1), ("oracle", 0), ("mbr", 1)):
        found = fg.score([lattice], references[:1], decode=how, **settings)
        assert (found.errors.tolist(), found.symbols.tolist()) == ([errors], [3])
    loss = fg.EditDistance(lattice.alphabet)
    with pytest.raises(fg.NotSupportedError, match="fewest errors"):
        fg.score([lattice], references[:1], loss, decode="oracle", **settings)
    first, second = (
        fg.score(ys, references, **settings) for ys in (["b c", "x y x"], ["c", "x w x"])
    )
    # errors: none and z missing; a or b missing and none
    assert [first.errors.tolist(), second.errors.tolist()] == [[0, 1], [1, 0]]
    assert [first.symbols.tolist(), second.symbols.tolist()] == [[3, 4], [3, 3]]
    found = first.compare(second)
    assert [rate.value for rate in found.symbol_error] == [1 / 7, 1 / 6]
    assert (found.matched_pairs.segments, found.matched_pairs.difference) == (2, 0.0)
    with pytest.raises(fg.InvalidInputError, match="other references"):
        first.compare(fg.score(["b c", "x y x"], ["b c", "x y z x"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a { b / c", "references.0.: a { without its }"),
        ("a b } c", "'}': alternatives are { a / b }"),
        ("a{b / c}", "'a{b'"),
        ("a { b / }", "an empty alternative; write @"),
        ("{ }", "an empty alternative; write @"),
        ("{ " * 200 + "a", "more than 100 times"),
    ],
)
def test_wrong_alternatives(text, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        fg.score(["a"], [text], alternatives=True)


def test_of_equal_costs_a_substitution_comes_first_from_the_end():
    """Of two errors: substitute both, or leave the first out and add the second."""
    assert fg.score(["a b"], ["b x"]).substitutions.tolist() == [2]
    # 3 + 3 for the first "a", or for the last: from the end, "a" matches "a"
    steps = fg.score(["a a"], ["a"], align="sclite").alignment(0).operations
    assert [step.kind for step in steps] == ["delete", "match"]


def test_rows_of_groups_add_up_and_intervals_are_those_of_pairs():
    hypotheses = ["a b", "a c", "x", "", "a a a a"] * 20
    references = ["a b", "a b", "y", "z", "a b a b"] * 20
    by = ["ann", "ann", "bob", "bob", "cid"] * 20
    result = fg.score(hypotheses, references, by=by, resamples=400)
    assert [row.group for row in result.rows] == ["ann", "bob", "cid", "all"]
    for name in ("pairs", "errors", "symbols", "substitutions", "deletions", "insertions"):
        values = [getattr(row, name) for row in result.rows]
        assert values[-1] == sum(values[:-1])
    assert result.rows[0].error_rate.value == 1 / 4
    # with one kind of pair in a group, all resamples have its rate
    assert result.rows[2].error_rate == (0.5, 0.5, 0.5)
    rng, n = np.random.default_rng(5), len(references)
    drawn = rng.integers(n, size=(4000, n))
    rates = result.errors[drawn].sum(axis=1) / result.symbols[drawn].sum(axis=1)
    expected = np.quantile(rates, [0.025, 0.975])
    assert np.abs(np.array(result.error_rate[1:]) - expected).max() < 0.012


def test_matched_pairs_by_hand():
    """d = -1, 0, -1, -2: mean -1, squared deviations 0 + 1 + 0 + 1, n - 1 = 3."""
    test = matched_pairs(np.array([2, 1, 1, 3]), np.array([1, 1, 0, 1]))
    z = -1 / (math.sqrt(2 / 3) / math.sqrt(4))
    assert (test.segments, test.difference) == (4, -1.0)
    assert test.z == pytest.approx(z, abs=1e-12)
    assert test.p_value == pytest.approx(1 - math.erf(-z / math.sqrt(2)), abs=1e-12)
    same = matched_pairs(np.array([1, 2]), np.array([1, 2]))
    assert (same.z, same.p_value) == (0.0, 1.0)
    for n in (1, 2):  # no variance: the statistic is not defined
        alike = matched_pairs(np.ones(n, dtype=int), np.zeros(n, dtype=int))
        assert (alike.difference, alike.z, alike.p_value) == (-1.0, None, None)
        assert "not defined" in str(alike)


@pytest.mark.parametrize(
    ("first", "second", "reference", "segments"),
    [
        ("a b c d e f", "a b c d e f", "a b c d e f", []),
        ("x b c d e f", "a b c d e y", "a b c d e f", [(1, 0), (0, 1)]),
        ("x b c", "a b y", "a b c", [(1, 1)]),  # one right symbol does not separate
        ("x b c d", "a b c y", "a b c d", [(1, 0), (0, 1)]),  # two do
        ("x b z c d", "a b c y", "a b c d", [(2, 1)]),  # unless something is between them
        ("a b z", "a b", "a b", [(1, 0)]),  # at the end
        ("a b", "z a b", "a b", [(0, 1)]),
        ("", "a", "a b", [(2, 1)]),
        ("x", "", "", [(1, 0)]),
    ],
)
def test_segments_of_matched_pairs(first, second, reference, segments):
    ours, theirs = (Edits.of([own.split()], [reference.split()]) for own in (first, second))
    assert list(zip(*map(np.ndarray.tolist, segment_errors(ours, theirs)), strict=True)) == segments


def test_segments_hold_all_errors_and_end_with_their_reference():
    found = list(corpora(300))
    references = [z for _, zs in found for z in zs]
    hypotheses = [y for ys, _ in found for y in ys]
    others = [re.sub("a", "b", z) for z in references]
    ours, theirs = (
        Edits.of([y.split() for y in ys], [z.split() for z in references])
        for ys in (hypotheses, others)
    )
    one, two = segment_errors(ours, theirs)
    assert (one.sum(), two.sum()) == (ours.errors.sum(), theirs.errors.sum())
    alone = [
        segment_errors(*(Edits.of([y.split()], [z.split()]) for y in pair))
        for *pair, z in zip(hypotheses, others, references, strict=True)
    ]
    assert one.tolist() == np.concatenate([a for a, _ in alone]).tolist()
    assert two.tolist() == np.concatenate([b for _, b in alone]).tolist()


def test_comparison_of_scores_is_that_of_predictions():
    references = ["a b c", "b c a", "c a", "a"] * 10
    ours, theirs = ["a b", "b c a", "a a", "a"] * 10, ["a b c", "b c", "c a", "b"] * 10
    scores = [fg.score(y, references) for y in (ours, theirs)]
    found = scores[0].compare(scores[1])
    assert [rate.value for rate in found.symbol_error] == [20 / 90, 20 / 90]
    assert found.symbol_error == tuple(score.error_rate for score in scores)
    loss = fg.EditDistance(fg.Alphabet("abc "))
    with_loss = [fg.score(y, references, loss) for y in (ours, theirs)]
    rates = with_loss[0].compare(with_loss[1]).symbol_error
    assert rates == tuple(score.error_rate for score in with_loss)
    assert found.symbol_difference.value == 0
    assert found.matched_pairs.segments == 40
    # errors of a period: (1, 0), (0, 1), (1, 0), (0, 1)
    assert found.matched_pairs.difference == 0.0
    with pytest.raises(fg.InvalidInputError, match="other references"):
        scores[0].compare(fg.score(["a"], ["b"]))
    with pytest.raises(fg.InvalidInputError, match="same loss and align"):
        scores[0].compare(fg.score(theirs, references, "cer"))


def test_losses_and_lattices():
    abc = fg.Alphabet(["the", "cat", "sat", "sad", "a"])
    nbest = [["the", "cat", "sad"], ["a", "cat", "sat"], ["the", "cat", "sat"]]
    lattices = [
        fg.Lattice.from_nbest(nbest, [0.0, -0.5, -1.0], abc),
        fg.Lattice.from_nbest([["a"], []], [0.0, 1.0], abc),
    ]
    references = ["the cat sat", "a"]
    errors = {how: fg.score(lattices, references, decode=how) for how in ("best", "oracle", "mbr")}
    assert errors["best"].errors.tolist() == [1, 1]
    assert errors["oracle"].errors.tolist() == [0, 0]
    p = np.exp([0.0, -0.5, -1.0])  # expected errors 2 p_2 + p_3, 2 p_1 + p_3, p_1 + p_2
    risks = [2 * p[1] + p[2], 2 * p[0] + p[2], p[0] + p[1]]
    assert errors["mbr"].edits.counts[0, MATCH] == [2, 2, 3][int(np.argmin(risks))]
    rate = fg.WordErrorRate(abc)
    result = fg.score(["the cat", "a sat"], references, rate)
    assert result.losses.tolist() == [1 / 3, 1.0]
    assert result.rows[-1].loss.value == 2 / 3
    assert result.unit == "words"
    result = fg.score(["ab", "a"], ["abb", "a"], fg.Hamming(fg.Alphabet("ab")))
    assert result.rows[-1].loss == (np.inf, np.inf, np.inf)


def test_the_oracle_is_an_allowed_path():
    lattice = fg.Lattice.from_nbest(["ab", "b"], [-np.inf, 0.0], fg.Alphabet("ab"))
    assert fg.score([lattice], ["ab"], "cer", decode="oracle").errors.tolist() == [1]
    with pytest.raises(fg.InvalidInputError, match="lattices and strings; give one kind"):
        fg.score([lattice, "ab"], ["ab", "ab"], "cer")
    with pytest.raises(fg.InvalidInputError, match="hypotheses 1, references 2"):
        fg.score([lattice], ["ab", "ab"], "cer")
    with pytest.raises(fg.AlphabetError, match=r"a reference\[1\] is 'x'"):
        fg.score([lattice], ["ax"], "cer", decode="oracle")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a b", "a b"), "hypotheses is the str"),
        ((["a"], ["a", "b"]), "hypotheses 1, references 2"),
        (([], []), "have no items; give at least one"),
        ((["a"], [None]), r"references\[0\] is None"),
        ((["a"], [float("nan")]), r"references\[0\] is nan"),
        (([["a", 1]], ["a"]), r"symbol of hypotheses\[0\] is a int"),
        (([["ab"]], ["a"], "cer"), "cer counts characters"),
        (([["a", ""]], ["a"], "cer"), r"hypotheses\[0\]\[1\] is '', which is no symbol; leave"),
        (
            (["a"], [["a", "b"], ["a", "", "b"]]),
            r"references\[1\]\[1\] is '', .*\.split\(\)",
        ),
        (([["a", ""]], ["a"], fg.WordErrorRate(fg.Alphabet("a"))), r"hypotheses\[0\]\[1\] is ''"),
        ((["a"], ["a"], "ter"), "choose one of wer, cer"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        fg.score(*arguments)


def test_a_loss_of_words_refuses_a_text_as_it_does_itself():
    """Also one whose characters are all symbols; the rules of words come first."""
    loss = fg.EditDistance(fg.Alphabet(["the", "cat"]))
    for pair, name in (
        ((["the cat"], [["the"]]), "hypotheses"),
        (([["the"]], ["the"]), "references"),
    ):
        with pytest.raises(fg.AlphabetError, match=rf"{name}\[0\] is the str .*\.split\(\)"):
            fg.score(*pair, loss)
    assert fg.score([["the"]], [["the", "cat"]], loss).errors.tolist() == [1]
    letters = fg.EditDistance(fg.Alphabet(["a", "b", "ch"]))
    assert fg.score(["ab"], ["bb"], letters).errors.tolist() == [1]


def test_wrong_options():
    with pytest.raises(fg.InvalidInputError, match="by 2"):
        fg.score(["a"], ["a"], by=["x", "y"])
    with pytest.raises(fg.InvalidInputError, match=r"by\[0\] is a NoneType"):
        fg.score(["a"], ["a"], by=[None])
    with pytest.raises(fg.InvalidInputError, match="by is 'xy'; give a list of groups"):
        fg.score(["a", "b"], ["a", "b"], by="xy")
    with pytest.raises(fg.InvalidInputError, match="no hypothesis is a Lattice"):
        fg.score(["a"], ["a"], decode="mbr")
    with pytest.raises(fg.InvalidInputError, match="align is 'nist'"):
        fg.score(["a"], ["a"], align="nist")


def test_kinds_of_steps_are_numbered_as_costs():
    assert (SUBSTITUTE, DELETE, INSERT, MATCH) == (0, 1, 2, 3)


FILLERS = ["uh", re.compile(r"\[.*\]"), "<unk>"]


def test_dropped_and_replaced_words_are_those_of_both_sides():
    """Random strings equal those from which the words were taken before, by another way."""
    rng = np.random.default_rng(0)
    words = ["uh", "[x]", "<unk>", "gonna", "going", "to", "a", "b"]
    texts = [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(400)]
    plain = []
    for text in texts:
        spaced = re.sub(r"(?<!\S)gonna(?!\S)", "going to", text)
        plain.append(" ".join(re.sub(r"(?<!\S)(uh|\[x\]|<unk>)(?!\S)", "", spaced).split()))
    ys, zs = texts[::2], texts[1::2]
    for loss in ("wer", "cer"):
        found = fg.score(ys, zs, loss, drop=FILLERS, replace={"gonna": "going to"})
        expected = fg.score(plain[::2], plain[1::2], loss)
        assert found.rows == expected.rows
    lists = fg.score([y.split() for y in ys], [z.split() for z in zs], drop=FILLERS)
    assert lists.rows == fg.score(ys, zs, drop=FILLERS).rows
    with pytest.warns(UserWarning, match="replace: no text has 'so' to replace"):
        longest = fg.score(["so long as"], ["x"], replace={"so": "y", "so long": "", "as": "x"})
    assert longest.errors.tolist() == [0]  # the longest match first


def test_words_to_drop_and_to_replace_that_no_text_has_are_warned_about():
    """A dropped word may be the result of a replacement; a lattice has those of its arcs."""
    drop = ["uh", "um", re.compile("z+"), re.compile("a+")]
    replace = {"x": "um", "x y": "b", "c": "d", "a": "a"}
    lattice = fg.Lattice.from_nbest([["a", "x"]], [0.0], fg.Alphabet(["a", "c", "um", "x"]))
    for hypothesis in ("a x", ["a", "x"], lattice):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fg.score([hypothesis], ["a"], drop=drop, replace=replace)
        assert [str(one.message) for one in caught] == [
            "drop: no text has 'uh', 'z+' to drop", "replace: no text has 'x y', 'c' to replace",
        ]  # fmt: skip
        assert {one.filename for one in caught} == {__file__}
        fg.score([hypothesis], ["a c"], drop=["um", "d"], replace={"x": "um", "c": "d"})


def test_words_dropped_from_a_lattice_are_empty_before_it_is_decoded():
    """uh a, a: two paths of one string, which outweighs b together."""
    abc = fg.Alphabet(["a", "A", "b", "uh"])
    lattice = fg.Lattice.from_nbest([["uh", "a"], ["a"], ["b"]], np.log([0.3, 0.3, 0.4]), abc)
    found = {
        how: fg.score([lattice], [["uh", "A"]], decode=how, drop=["uh"], replace={"a": "A"})
        for how in ("best", "oracle", "mbr")
    }
    assert [one.errors.tolist() for one in found.values()] == [[1], [0], [0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drop": "uh"}, "give a list of words"),
        ({"drop": ["uh uh"]}, "is not one word"),
        ({"drop": [re.compile(b"a")]}, "is a bytes; give a str"),
        ({"replace": {"": "a"}}, "no words become 'a'"),
        ({"replace": {"a": "b", "b": "c"}}, "another rule turns into 'c'"),
        ({"replace": [("a", "b")]}, "is a list; give a dict"),
        ({"replace": {"a b": "b"}}, "one word may become one word"),
        ({"replace": {"a": "c"}}, "not in the alphabet"),
    ],
)
def test_wrong_words(settings, message):
    lattice = fg.Lattice.from_nbest(["a", "b"], [0.0, 0.0], fg.Alphabet("ab"))
    with pytest.raises(fg.FstgradError, match=message):
        fg.score([lattice], ["a"], **settings)


def test_a_list_of_a_sentence_is_no_list_of_words():
    for hyps, refs in ((["a b"], [["a b"]]), ([["a b", "c"]], [["a"]])):
        with pytest.raises(fg.InvalidInputError, match="list with the sentence 'a b'; give a str"):
            fg.score(hyps, refs)
    cities = fg.Alphabet(["new york", "rome"])
    lattice = fg.Lattice.from_nbest([["new york"], ["rome"]], [1.0, 0.0], cities)
    assert fg.score([lattice], [["new york"]]).error_rate.value == 0
    assert fg.score([["rome"]], [["new york"]], fg.EditDistance(cities)).error_rate.value == 1


@pytest.mark.parametrize("decode", ["best", "oracle", "mbr"])
def test_lattices_without_a_path_are_named(decode):
    alphabet = fg.Alphabet("ab")
    good = fg.Lattice.from_nbest(["a", "ba"], [-1.0, -2.0], alphabet)
    bad = good.with_scores(np.full(good.num_arcs, -np.inf))
    message = r"2 items are infeasible: item 1: no path.*; item 3: no path.*; leave these items out"
    with pytest.raises(fg.InfeasibleError, match=message):
        fg.score([good, bad, good, bad], ["a"] * 4, "cer", decode=decode)
    if decode == "oracle":
        with pytest.raises(fg.InfeasibleError, match=r"item 1: every string .* infinite loss"):
            fg.score([good, good], ["a", "aab"], fg.Hamming(alphabet), decode=decode)


def test_infinite_expected_losses_are_said():
    """The Hamming loss of a and ba is infinite, that of aa and ba is 1."""
    alphabet = fg.Alphabet("ab")
    hamming = fg.Hamming(alphabet)
    apart = fg.Lattice.from_nbest(["a", "ba"], [-1.0, -2.0], alphabet)
    near = fg.Lattice.from_nbest(["aa", "ba"], [-1.0, -2.0], alphabet)
    with pytest.warns(UserWarning, match=r"every string of 1 of .* item 1, has an infinite"):
        found = fg.score([near, apart], ["aa", "a"], hamming, decode="mbr")
    assert found.errors.tolist() == [0, 0]
    with pytest.warns(UserWarning, match="all candidates have an infinite expected loss"):
        assert fg.mbr(apart, hamming).risk == np.inf
    with pytest.warns(UserWarning, match="all candidates have an infinite expected loss"):
        assert lattice_string_of_least_risk(apart, hamming, 2).tolist() == [0]
    assert fg.mbr(near, hamming).risk < np.inf
