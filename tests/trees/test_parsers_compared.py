"""Two parsers compared: shares by hand, intervals of evaluate, sentences by name, bad input."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.evaluation import compare_parsers
from fstgrad.trees.treebank import Sentence, read_conllu

WITHOUT_PUNCTUATION = "ignore:no word of the gold that counts has the UPOS PUNCT"
pytestmark = pytest.mark.filterwarnings(WITHOUT_PUNCTUATION)

# a sentence: its sent_id, and the words (form, tag, head, relation)
GOLD = {
    "s1": [("the", "DET", 2, "det"), ("dog", "NOUN", 0, "root"), ("!", "PUNCT", 2, "punct")],
    "s2": [("go", "VERB", 0, "root"), ("it", "PRON", "_", "obj"), ("is", "AUX", 1, "aux:pass")],
}
# heads and relations of two parsers: 4 and 3 of 5 heads are right, 2 and 3 with their relations
FIRST = {"s1": [(2, "det"), (0, "root"), (1, "punct")], "s2": [(0, "x"), (1, "obj"), (1, "aux")]}
SECOND = {
    "s1": [(2, "det"), (0, "root"), (2, "punct")],
    "s2": [(3, "root"), (0, "obj"), (3, "aux:pass")],
}


def write(path, parses=None, names=("s1", "s2")):
    lines = []
    for name in names:
        lines.append(f"# sent_id = {name}")
        given = [row[2:] for row in GOLD[name]] if parses is None else parses[name]
        for i, ((form, tag, *_), (head, relation)) in enumerate(
            zip(GOLD[name], given, strict=True), 1
        ):
            lines.append(f"{i}\t{form}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    return [
        write(tmp_path / "gold.conllu"),
        write(tmp_path / "first.conllu", FIRST, names=("s2", "s1")),  # in another order
        write(tmp_path / "second.conllu", SECOND),
    ]


def test_shares_by_hand(files, run):
    code, out, _ = run("trees", "compare", *files)
    found = json.loads(out)
    assert code == 0
    values = {
        name: [found[name][part][0] for part in ("first", "second", "difference")]
        for name in ("uas", "uas_no_punct", "las", "las_no_punct")
    }
    expected = {
        "uas": [4 / 5, 3 / 5, -1 / 5],
        "uas_no_punct": [4 / 4, 2 / 4, -2 / 4],
        "las": [2 / 5, 3 / 5, 1 / 5],
        "las_no_punct": [2 / 4, 2 / 4, 0],
    }
    for name, shares in expected.items():
        assert values[name] == pytest.approx(shares, abs=1e-12)
    found = json.loads(run("trees", "compare", *files, "--universal")[1])
    assert found["las"]["first"][0] == 3 / 5  # aux for aux:pass


def test_parses_without_relations_have_no_labeled_score(files, run, tmp_path):
    plain = {name: [(head, "_") for head, _ in rows] for name, rows in SECOND.items()}
    found = json.loads(run("trees", "compare", *files[:2], write(tmp_path / "p.conllu", plain))[1])
    assert set(found) == {"sentences", "uas", "uas_no_punct"}
    assert found["uas"]["second"][0] == 3 / 5


def test_intervals_are_those_of_sentences():
    """Sentences of one right or wrong word: a share with the error of a binomial."""
    gold, parses = [], []
    rng = np.random.default_rng(0)
    right = rng.random((2, 400)) < [[0.7], [0.9]]
    sentence = read_conllu_of_one_word()
    for i in range(400):
        gold.append(sentence)
        parses.append([sentence if ok else wrong_head(sentence) for ok in right[:, i]])
    first, second = zip(*parses, strict=True)
    found = compare_parsers(gold, first, second)["uas"]
    for share, interval in zip(right.mean(axis=1), (found.first, found.second), strict=True):
        assert interval.value == share
        error = 1.96 * np.sqrt(share * (1 - share) / 400)
        assert interval[1:] == pytest.approx([share - error, share + error], abs=0.01)
    assert found.difference.lower > 0
    assert found.p_value < 0.01
    assert compare_parsers(gold, first, first)["uas"].p_value == 1


def read_conllu_of_one_word():
    return Sentence("s", ("go",), ("VERB",), np.array([0]), ("root",))


def wrong_head(sentence):
    return replace(sentence, heads=np.array([1]))


def test_evaluate_has_intervals(files, tmp_path, run):
    tables = {name: np.eye(len(words) + 1) for name, words in GOLD.items()}
    np.savez(tmp_path / "scores.npz", **tables)
    lines = run("trees", "evaluate", files[0], "--scores", tmp_path / "scores.npz")[1].splitlines()
    *rows, total = map(json.loads, lines)
    ends = sorted(row["uas"] for row in rows)
    low, high = total["uas_interval"]
    assert ends[0] <= low <= total["uas"] <= high <= ends[1]
    assert "expected_interval" not in total


def test_intervals_leave_out_resamples_without_words_that_count(files, tmp_path, run):
    """A quarter of draws have the second sentence only: a full stop, or a word without a head."""
    text = "1\t{}\t_\t{}\t_\t_\t{}\troot\t_\t_\n\n"
    for word, tag, head, names in ((".", "PUNCT", 0, ("uas_no_punct", "las_no_punct")),
                                   ("y", "X", "_", ("uas", "las", "uas_no_punct"))):  # fmt: skip
        gold = tmp_path / "gold.conllu"
        gold.write_text(text.format("x", "X", 0) + text.format(word, tag, head))
        compared = json.loads(run("trees", "compare", gold, gold, gold)[1])
        np.savez(tmp_path / "s.npz", scores=np.zeros((2, 2, 2)), lengths=[1, 1])
        out = run("trees", "evaluate", gold, "--scores", tmp_path / "s.npz")[1]
        total = json.loads(out.splitlines()[-1])
        for name in names:
            assert compared[name]["first"] == compared[name]["second"] == [1, 1, 1]
            if name.startswith("uas"):
                assert (total[name], total[f"{name}_interval"]) == (1, [1, 1])
    right, wrong = (write_words(tmp_path / f"{head}.conllu", head) for head in (2, 3))
    found = json.loads(run("trees", "compare", right, wrong, right)[1])["uas_no_punct"]
    assert (found["first"], found["second"]) == ([0.5, 0.5, 0.5], [1, 1, 1])
    assert found["difference"][0] == 0.5


def write_words(path, head):
    """Write a sentence of two words and a full stop, of which word 1 has the head, and a stop."""
    stop = "{}\t.\t_\tPUNCT\t_\t_\t{}\tpunct\t_\t_\n"
    path.write_text(
        f"1\tx\t_\tX\t_\t_\t{head}\tdep\t_\t_\n2\ty\t_\tX\t_\t_\t0\troot\t_\t_\n"
        f"{stop.format(3, 2)}\n{stop.format(1, 0)}\n"
    )
    return path


def test_gold_without_a_head_is_refused(files, tmp_path, run):
    np.savez(tmp_path / "scores.npz", **{name: np.eye(4) for name in GOLD})
    unknown = {name: [("_", "dep")] * 3 for name in GOLD}
    gold = write(tmp_path / "gold.conllu", unknown)
    for command in (("compare", gold, *files[1:]),
                    ("evaluate", gold, "--scores", tmp_path / "scores.npz")):  # fmt: skip
        code, out, err = run("trees", *command)
        assert (code, out) == (1, "")
        assert "has a known head; there is nothing to compare, unless column 7" in err


def test_other_words_and_sentences_are_refused(files, tmp_path, run):
    gold, first, second = files
    one = write(tmp_path / "one.conllu", SECOND, names=("s1",))
    code, _, err = run("trees", "compare", gold, first, one)
    assert (code, "'s2'; add what it lacks, or leave it out of" in err) == (1, True)
    for form in ("cat", "dog "):  # a space that is not seen
        second.write_text(first.read_text().replace("dog", form))
        code, _, err = run("trees", "compare", gold, first, second)
        assert (code, f"s1 is 'dog', and in a parse of it {form!r}" in err) == (1, True)
    sentences = list(read_conllu(gold, partial=True))
    with pytest.raises(fg.InvalidInputError, match="2, 2 and 1 sentences"):
        compare_parsers(sentences, sentences, sentences[:1])
    with pytest.raises(fg.InvalidInputError, match="nothing to compare"):
        compare_parsers([], [], [])


@pytest.mark.parametrize("tag", ["PUNCT", "punct", "_", ","])
def test_a_line_says_that_no_word_is_punctuation(files, tmp_path, run, tag):
    """The tags of gold count; upper and lower case are alike, those of other tag sets are not."""
    gold, first, second = files
    gold.write_text(gold.read_text().replace("PUNCT", tag))
    np.savez(tmp_path / "scores.npz", **{name: np.eye(4) for name in GOLD})
    for command in (("compare", gold, first, second),
                    ("evaluate", gold, "--scores", tmp_path / "scores.npz")):  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code, out, err = run("trees", *command)
        found = json.loads(out.splitlines()[-1])
        is_left_out = tag.upper() == "PUNCT"
        assert (code, found["uas"] != found["uas_no_punct"]) == (0, is_left_out)
        lines = [line for line in err.splitlines() if "no word of the gold that counts" in line]
        assert len(lines) == (not is_left_out)
    sentences = list(read_conllu(gold, partial=True))
    if not is_left_out:
        with pytest.warns(UserWarning, match="uas_no_punct and las_no_punct leave nothing out"):
            compare_parsers(sentences, sentences, sentences)
