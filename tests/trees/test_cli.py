"""`fstgrad trees`: what is printed and written, and how it fails."""

import itertools
import json
import pathlib
import re

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.main import main
from fstgrad.core.errors import InvalidInputError
from fstgrad.trees import evaluation, treebank

WITHOUT_PUNCTUATION = "ignore:no word of the gold that counts has the UPOS PUNCT"
pytestmark = pytest.mark.filterwarnings(WITHOUT_PUNCTUATION)

CONLLU = """\
# sent_id = first
1-2\tWouldn't\t_\t_\t_\t_\t_\t_\t_\t_
1\tWould\t_\tAUX\t_\t_\t2\taux\t_\t_
2\tgo\t_\tVERB\t_\t_\t0\troot\t_\t_
2.1\tgone\t_\tVERB\t_\t_\t_\t_\t_\t_
3\thome\t_\tADV\t_\t_\t2\tadvmod\t_\t_

# sent_id = second
1\tYes\t_\tINTJ\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture
def run(capsys):
    """Run a command: (exit code, lines of JSON, standard error)."""

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main(["trees", *(str(a) for a in args)])
        captured = capsys.readouterr()
        return stop.value.code or 0, [*map(json.loads, captured.out.splitlines())], captured.err

    return call


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    return {"first": rng.normal(size=(4, 4)), "second": rng.normal(size=(2, 2))}


@pytest.fixture
def scores(tmp_path, tables):
    path = tmp_path / "scores.npz"
    np.savez(path, **tables)
    return path


@pytest.mark.parametrize("options", [(), ("--many-roots",), ("--projective",)])
def test_numbers_are_those_of_the_library(run, scores, tables, options, tmp_path):
    family = fg.ProjectiveTrees if "--projective" in options else fg.SpanningTrees
    expected = {
        name: family(table, single_root="--many-roots" not in options)
        for name, table in tables.items()
    }
    output = tmp_path / "out.npz"
    for command, value, gradient in (
        ("marginals", lambda d: d.log_partition(), lambda d: d.marginals()),
        ("entropy", lambda d: d.entropy(), lambda d: d.entropy_and_gradient()[1]),
    ):
        code, lines, _ = run(command, scores, "--output", output, *options)
        assert code == 0
        assert [line["id"] for line in lines] == list(tables)
        with np.load(output) as written:
            for line, (name, distribution) in zip(lines, expected.items(), strict=True):
                assert value(distribution) in line.values()
                np.testing.assert_array_equal(written[name], gradient(distribution))
    _, lines, _ = run("decode", scores, "-k", 2, *options)
    for line, distribution in zip(lines, expected.values(), strict=True):
        assert [tree["heads"] for tree in line["trees"]] == [
            tree.tolist() for tree, _ in distribution.kbest(2)
        ]
    _, lines, _ = run("sample", scores, "-n", 3, "--seed", 1, *options)
    assert lines == run("sample", scores, "-n", 3, "--seed", 1, *options)[1]
    for line, distribution in zip(lines, expected.values(), strict=True):
        for tree in line["trees"]:
            assert tree["log_prob"] == pytest.approx(distribution.log_prob(tree["heads"]))
    _, lines, _ = run("kl", scores, scores, *options)
    assert [line["kl"] for line in lines] == pytest.approx([0, 0], abs=1e-12)


def test_renyi_and_distinct_samples(run, scores, tables):
    first = fg.SpanningTrees(tables["first"], single_root=True)
    for order in (0, 2, np.inf):
        _, lines, _ = run("entropy", scores, "--order", order)
        assert lines[0]["entropy"] == first.renyi(order)
    _, lines, _ = run("sample", scores, "-n", 50, "--distinct")
    assert len(lines[0]["trees"]) == 9  # 3^2 trees of three words with one root arc
    assert len({tuple(tree["heads"]) for tree in lines[0]["trees"]}) == 9


def test_evaluation(run, scores, tables, tmp_path):
    gold = tmp_path / "gold.conllu"
    gold.write_text(CONLLU)
    code, lines, _ = run("evaluate", gold, "--scores", scores)
    assert code == 0
    heads = np.array([2, 0, 2])
    first = fg.SpanningTrees(tables["first"], single_root=True)
    right = (first.mode() == heads).sum()
    assert lines[0]["uas"] == right / 3
    assert lines[0]["gold_log_prob"] == pytest.approx(first.log_prob(heads))
    assert lines[0]["expected"] == pytest.approx((first.marginals() * first.parts(heads)).sum() / 3)
    assert lines[2]["words"] == 4
    assert lines[2]["uas"] == pytest.approx((right + 1) / 4)
    plain = tmp_path / "plain.conllu"
    plain.write_text("".join(line for line in CONLLU.splitlines(True) if "sent_id" not in line))
    _, by_order, said = run("evaluate", plain, "--scores", scores)
    assert by_order[2] == lines[2]
    assert said == (
        f"fstgrad: {plain} has no sent_ids: the tables of {scores} are taken in order\n"
    )


def test_labeled_evaluation(run, tmp_path):
    gold = tmp_path / "gold.conllu"
    gold.write_text(CONLLU)
    labels = tmp_path / "labels.txt"
    labels.write_text("root\naux\nadvmod\n")
    padded = np.random.default_rng(1).normal(size=(2, 4, 4, 3))
    for item, head, dependent, label in ((0, 2, 1, 1), (0, 0, 2, 0), (0, 2, 3, 1), (1, 0, 1, 0)):
        padded[item, head, dependent, label] += 50
    path = tmp_path / "padded.npz"
    np.savez(path, scores=padded, lengths=[3, 1])
    _, lines, _ = run("evaluate", gold, "--scores", path, "--labels", labels)
    # all heads are right, and all labels but that of word 3 of the first sentence
    assert lines[2]["uas"] == 1
    assert lines[2]["las"] == pytest.approx(3 / 4)
    code, _, error = run("evaluate", gold, "--scores", path)
    assert code == 1
    assert "--labels" in error


def test_a_bad_sentence_is_named_and_the_lines_before_it_stand(run, tmp_path, tables):
    path = tmp_path / "bad.npz"
    np.savez(path, **tables, third=np.full((3, 3), -np.inf))
    code, lines, error = run("entropy", path)
    assert code == 1
    assert [line["id"] for line in lines] == ["first", "second"]
    assert "sentence third" in error
    assert "no allowed head" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["marginals", "missing.npz"], 2, ["missing.npz"]),
        (["entropy", "SCORES", "--order", "-1"], 2, ["order"]),
        (["sample", "SCORES", "--distinct", "--projective"], 2, ["--projective"]),
        (["kl", "SCORES", "ONE"], 1, ["no table 'first', 'second'", "no table 'only'"]),
        (["kl", "ONE", "TWO"], 1, ["only of", "has shape (3, 3)", "(2, 2)"]),
        (["evaluate", "GOLD", "--scores", "ONE"], 1, ["no table 'first', 'second'"]),
        (["decode", "SCORES", "-o", "x.conllu"], 2, ["--conllu"]),
        (["decode", "SCORES", "--conllu", "GOLD"], 2, ["--output"]),
        (["decode", "SCORES", "--decode", "mbr", "-k", "2"], 2, ["--nbest"]),
        (["decode", "ONE", "--conllu", "GOLD", "-o", "OUT"], 1, ["no table 'first', 'second'"]),
        (["marginals", "GOLD"], 1, ["not an npz"]),
        (["marginals", "FLAT"], 1, ["(4,)"]),
        (["marginals", "SCORES", "--output", "no/such/folder.npz"], 2, ["folder"]),
    ],
)
def test_failures_are_one_line(run, scores, tmp_path, arguments, code, words):
    files = {name: tmp_path / name for name in ("ONE", "TWO", "GOLD", "FLAT", "OUT")}
    with open(files["ONE"], "wb") as file:
        np.savez(file, only=np.zeros((2, 2)))
    with open(files["TWO"], "wb") as file:
        np.savez(file, only=np.zeros((3, 3)))
    with open(files["FLAT"], "wb") as file:
        np.savez(file, only=np.zeros(4))
    files["GOLD"].write_text(CONLLU)
    files["SCORES"] = scores
    found, _, error = run(*(files.get(a, a) for a in arguments))
    assert found == code
    assert error.count("\n") == 1
    for word in words:
        assert word in error


CYCLE = "1\ta\t_\tX\t_\t_\t2\tx\t_\t_\n2\tb\t_\tX\t_\t_\t1\tx\t_\t_\n\n"


def test_a_parse_with_a_cycle_is_counted_with_a_word(run, tmp_path):
    """Gold with a cycle is an error, as in evaluate."""
    paths = [str(tmp_path / f"{name}.conllu") for name in ("gold", "first", "second")]
    for path, head in zip(paths, "010", strict=True):
        pathlib.Path(path).write_text(CYCLE.replace("\t1\tx", f"\t{head}\tx"))
    code, out, err = run("compare", *paths)
    assert (code, out[0]["uas"]["first"][0]) == (0, 0.5)
    assert err.count("\n") == 1
    assert "first.conllu: 1 of 1 parses are no trees; sentence 1 has a cycle of heads, 1 <-" in err
    code, out, err = run("compare", paths[1], paths[0], paths[2])
    assert (code, out, "first.conllu, sentence 1 has a cycle" in err) == (1, [], True)
    assert run("compare", paths[0], paths[2], paths[0])[2] == ""


def test_words_of_a_parse_without_a_head_are_counted(run, tmp_path):
    words = [f"{i}\tw\t_\tX\t_\t_\t{i - 1}\tx\t_\t_\n" for i in (1, 2, 3)]
    texts = {
        "gold": words,
        "first": [words[0], *(w.replace("\t1\tx", "\t_\tx") for w in words[1:])],
    }
    texts["second"] = [w.replace("\t0\tx", "\t_\tx").replace("\t2\tx", "\t_\tx") for w in words]
    paths = [tmp_path / f"{name}.conllu" for name in texts]
    for path, lines in zip(paths, texts.values(), strict=True):
        path.write_text("".join(lines) + "\n")
    code, (line,), err = run("compare", *map(str, paths))
    assert (code, line["uas"]["first"][0], line["uas"]["second"][0]) == (0, 2 / 3, 1 / 3)
    assert (
        "first.conllu: 1 word has no head (_), which counts as wrong; the first is word 2 of" in err
    )
    assert "second.conllu: 2 words have no head" in err
    assert (
        run("compare", str(paths[1]), str(paths[0]), str(paths[0]))[2] == ""
    )  # gold's _ are left out


def test_bad_treebanks(tmp_path):
    path = tmp_path / "bad.conllu"
    for text, words in (
        ("1\tYes\t_\tINTJ\t_\t_\t_\troot\t_\t_\n\n", "has the head None"),
        ("1 Yes\n\n", "sentence 1.* 1 columns"),
        ("# sent_id = b\n1\tYes\t_\tINTJ\t_\t_\t0\n\n", "sentence b.*Yes.* has 7 columns"),
        (CONLLU.replace("\n2\tgo", "\n²\tgo"), "sentence first.*ID '²'.*digits 0 to 9"),
        (CONLLU.replace("\t2\taux", "\t²\taux"), "sentence first.*head"),
        (CONLLU.replace("\t2\taux", "\tjoka\taux"), "first: word .*'joka'; heads are 0, the root,"),
        (CONLLU.replace("\t2\taux", "\t02\taux"), "first: word .*'02'; heads are 0, the root,"),
        ("# global.columns = ID HEAD\n1\t0\n", "its columns are 'ID HEAD'; convert it to CoNLL-U"),
        ("# sent_id = a\n" + CONLLU, "sentence a: it has another sent_id, 'first'; leave one out"),
        (CONLLU.replace("\n", "\r"), "a carriage return in .*; end all lines with"),
        (CYCLE, "bad.conllu, sentence 1 has a cycle of heads, 1 <- 2 <- 1"),
        (CYCLE.replace("\t1\tx", "\t2\tx"), "sentence 1 has a cycle of heads, 2 <- 2"),
        (CONLLU.replace("\n1\tYes", "\n1-2\tYes"), "sentence second: it has no words"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=words):
            list(treebank.read_conllu(path))
    path.write_text(CONLLU.replace("\t2\taux", "\t²\taux"))
    assert next(treebank.read_blocks(path)).heads() == [None, 0, 2]


def test_treebanks_are_trees(shared_data):
    for path in sorted((shared_data / "ud").glob("*/*.conllu")):
        for sentence in itertools.islice(treebank.read_conllu(path), 50):
            n = len(sentence.heads)
            distribution = fg.SpanningTrees(np.zeros((n + 1, n + 1)), single_root=True)
            value, _ = distribution.nll(sentence.heads)
            assert value == pytest.approx((n - 1) * np.log(n), abs=1e-9)  # Cayley


RICH = """# sent_id = b
# text = vamonos al mar
1-2\tvamonos\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tvamos\tir\tVERB\t_\t_\t0\troot\t0:root\t_
2\tnos\t_\tPRON\t_\t_\t1\tobj\t_\tGloss=us|Confidence=0.1
2.1\tempty\t_\t_\t_\t_\t_\t_\t1:dep\t_
3\t!\t_\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = a
1\tsi\t_\tINTJ\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture
def rich(tmp_path):
    """Tables in another order than the sentences, and the treebank."""
    treebank_file, npz = tmp_path / "rich.conllu", tmp_path / "rich.npz"
    treebank_file.write_text(RICH, encoding="utf-8")
    table = np.full((4, 4), 0.0)
    for head, dependent in ((0, 2), (2, 1), (1, 3)):
        table[head, dependent] = 3.0
    np.savez(npz, a=np.zeros((2, 2)), b=table)
    return treebank_file, npz


def test_trees_are_written_into_the_treebank(run, rich, tmp_path):
    gold, scores = rich
    out = tmp_path / "out.conllu"
    code, lines, _ = run("decode", scores, "--conllu", gold, "-o", out)
    assert code == 0
    assert [line["id"] for line in lines] == ["b", "a"]  # the order of the sentences
    mu = fg.SpanningTrees(np.load(scores)["b"], single_root=True).marginals()
    expected = RICH.replace("\t0\troot\t0:root\t_", f"\t2\t_\t_\tConfidence={mu[2, 1]:.6f}")
    expected = expected.replace(
        "\t1\tobj\t_\tGloss=us|Confidence=0.1",
        f"\t0\t_\t_\tGloss=us|Confidence={mu[0, 2]:.6f}",
    )
    expected = expected.replace("punct\t_\t_", f"_\t_\tConfidence={mu[1, 3]:.6f}")
    expected = expected.replace("root\t_\t_", "_\t_\tConfidence=1.000000")
    assert out.read_text(encoding="utf-8") == expected
    again = {s.name: s for s in treebank.read_conllu(out)}
    assert again["b"].heads.tolist() == [2, 0, 1]

    run("marginals", scores, "--conllu", gold, "-o", out)
    kept = {s.name: s for s in treebank.read_conllu(out)}
    assert kept["b"].heads.tolist() == [0, 1, 1]
    assert "\t0\troot\t0:root\t" in out.read_text(encoding="utf-8")
    assert f"Confidence={mu[0, 1]:.6f}" in out.read_text(encoding="utf-8")

    run("sample", scores, "--conllu", gold, "-o", out, "-n", 3, "--seed", 1)
    text = out.read_text(encoding="utf-8")
    assert text.count("sent_id = b") == text.count("1-2\tvamonos") == 3
    assert [f"# sample = {i}" in text for i in (1, 2, 3, 4)] == [True, True, True, False]
    for count in (1, 2):
        run("sample", scores, "--conllu", gold, "-o", out, "-n", count, "--seed", 1)
        assert ("# sample = 1" in out.read_text(encoding="utf-8")) == (count == 2)


@pytest.mark.parametrize("names", [("b", "a"), ("a", "b"), None, "padded"])
def test_tables_are_matched_by_name_or_by_position(run, rich, tmp_path, names):
    """Names in any order; without names, the order of the sentences, even if sent_ids are 0, 1."""
    gold, scores, other = rich[0], tmp_path / "s.npz", tmp_path / "t.npz"
    tables = {"b": np.zeros((4, 4)), "a": np.zeros((2, 2))}
    for head, dependent in ((0, 1), (1, 2), (1, 3)):
        tables["b"][head, dependent] = 9.0
    if names == "padded":
        gold.write_text(RICH.replace("sent_id = b", "sent_id = 1").replace("= a", "= 0"))
        padded = np.zeros((2, 4, 4))
        padded[0] = tables["b"]
        np.savez(scores, scores=padded, lengths=[3, 1])
    elif names is None:
        np.savez(scores, *tables.values())
    else:
        np.savez(scores, **{name: tables[name] for name in names})
    _, lines, _ = run("evaluate", gold, "--scores", scores)
    assert [line["words"] for line in lines] == [3, 1, 4]
    assert lines[-1]["uas"] == 1
    np.savez(other, b=np.zeros((4, 4)), a=np.zeros((2, 2)))
    _, lines, _ = run("kl", scores, other)
    divergence = fg.SpanningTrees(tables["b"], single_root=True).kl(
        fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    )
    expected = [0, divergence] if names == ("a", "b") else [divergence, 0]
    assert [line["kl"] for line in lines] == pytest.approx(expected, abs=1e-12)


def test_sentences_without_an_id_have_no_place_among_names(run, rich, tmp_path):
    gold, scores = rich
    gold.write_text(RICH.replace("# sent_id = a\n", ""))
    code, _, error = run("evaluate", gold, "--scores", scores)
    assert code == 1
    assert "no sent_id for sentence 2" in error


def test_labels_become_relations(run, rich, tmp_path):
    gold, _ = rich
    labels, scores, out = tmp_path / "labels", tmp_path / "labeled.npz", tmp_path / "out.conllu"
    labels.write_text("root obj punct")
    table, other = np.zeros((4, 4, 3)), np.zeros((2, 2, 3))
    for head, dependent, label in ((0, 1, 0), (1, 2, 2), (1, 3, 2)):
        table[head, dependent, label] = 9.0
    other[0, 1, 0] = 9.0
    np.savez(scores, a=other, b=table)
    code, _, _ = run("decode", scores, "--conllu", gold, "-o", out, "--labels", labels)
    assert code == 0
    found, _ = treebank.read_conllu(out)
    assert found.heads.tolist() == [0, 1, 1]
    assert found.relations == ("root", "punct", "punct")
    _, lines, _ = run("evaluate", gold, "--scores", scores, "--labels", labels)
    total = lines[-1]
    assert (total["uas"], total["uas_no_punct"]) == (1, 1)
    assert total["las"] == pytest.approx(3 / 4)
    assert total["las_no_punct"] == pytest.approx(2 / 3)


def test_universal_relations_end_at_the_colon(run, rich, tmp_path):
    """The gold relation of word 2 is obj:y; obj:x and obj are right, punct is not."""
    gold, scores, labels = rich[0], tmp_path / "s.npz", tmp_path / "labels"
    gold.write_text(RICH.replace("\tobj\t", "\tobj:y\t"))
    labels.write_text("root obj punct obj:x")
    results = []
    for relation in (1, 2, 3):
        table, other = np.zeros((4, 4, 4)), np.zeros((2, 2, 4))
        for head, dependent, label in ((0, 1, 0), (1, 2, relation), (1, 3, 2)):
            table[head, dependent, label] = 9.0
        other[0, 1, 0] = 9.0
        np.savez(scores, a=other, b=table)
        arguments = ("evaluate", gold, "--scores", scores, "--labels", labels)
        plain, universal = (run(*arguments, *more)[1][0] for more in ((), ("--universal",)))
        results.append((plain["las"], universal["las"]))
        assert plain["gold_log_prob"] is None
        trees = fg.SpanningTrees(table, single_root=True, labeled=True)
        expected = trees.log_prob([[0, 0], [1, 1], [1, 2]])  # the universal relation, obj
        assert universal["gold_log_prob"] == pytest.approx(expected, abs=1e-12)
    assert results == [(2 / 3, 1), (2 / 3, 2 / 3), (2 / 3, 1)]
    code, _, error = run("evaluate", gold, "--scores", scores, "--universal")
    assert (code, "--labels" in error) == (2, True)


def test_relations_outside_the_list_and_unknown_heads(run, rich, tmp_path):
    """Relation obj of word 2 is not in the list; then the head of word 2 is unknown."""
    gold, scores, labels = rich[0], tmp_path / "s.npz", tmp_path / "labels"
    labels.write_text("root punct")
    table, other = np.zeros((4, 4, 2)), np.zeros((2, 2, 2))
    for head, dependent, label in ((0, 1, 0), (1, 2, 1), (1, 3, 1)):
        table[head, dependent, label] = 9.0
    other[0, 1, 0] = 9.0
    np.savez(scores, a=other, b=table)
    arguments = ("evaluate", gold, "--scores", scores, "--labels", labels)
    _, lines, _ = run(*arguments)
    assert (lines[0]["uas"], lines[0]["las"], lines[0]["gold_log_prob"]) == (1, 2 / 3, None)
    assert lines[-1]["impossible_gold_trees"] == 1
    gold.write_text(RICH.replace("\t1\tobj\t", "\t_\tobj\t"))
    _, lines, _ = run(*arguments)
    assert (lines[0]["words"], lines[0]["words_no_punct"]) == (2, 1)
    assert (lines[0]["uas"], lines[0]["las"], lines[-1]["words"]) == (1, 1, 3)
    trees = fg.SpanningTrees(table, single_root=True)
    expected = -trees.partial_nll([[0, 0], [-1, -1], [1, 1]])[0]
    assert lines[0]["gold_log_prob"] == pytest.approx(expected, abs=1e-12)


def test_sentences_without_heads_have_no_gold_probability(run, tmp_path):
    """Tables of zeros: trees of two words under one root are 0 -> 1 -> 2 and 0 -> 2 -> 1."""
    gold, scores = tmp_path / "gold.conllu", tmp_path / "scores.npz"
    sentences = [(0, 1), ("_", "_"), (0, "_"), ("_", "_")]
    words = "{}\tw\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
    gold.write_text(
        "".join("".join(map(words.format, (1, 2), heads)) + "\n" for heads in sentences)
    )
    np.savez(scores, scores=np.zeros((4, 3, 3)), lengths=[2] * 4)
    _, lines, _ = run("evaluate", gold, "--scores", scores)
    found = [row["gold_log_prob"] for row in lines[:-1]]
    assert found[1] is found[3] is None
    assert (found[0], found[2]) == pytest.approx((-np.log(2), -np.log(2)))
    total = lines[-1]
    assert (total["sentences_without_heads"], total["impossible_gold_trees"]) == (2, 0)
    assert total["mean_gold_log_prob"] == pytest.approx(-np.log(2))


def test_crossing_gold_trees_are_counted(run, tmp_path):
    gold, scores = tmp_path / "gold.conllu", tmp_path / "scores.npz"
    crossing = [0, 1, 1, 2]
    words = "\n".join(
        f"{i}\tw\t_\tX\t_\t_\t{head}\tdep\t_\t_" for i, head in enumerate(crossing, start=1)
    )
    gold.write_text(f"{words}\n\n1\tw\t_\tX\t_\t_\t0\troot\t_\t_\n\n")
    np.savez(scores, x=np.zeros((5, 5)), y=np.zeros((2, 2)))
    _, lines, _ = run("evaluate", gold, "--scores", scores, "--projective")
    assert lines[0]["gold_log_prob"] is None
    assert lines[-1]["impossible_gold_trees"] == 1
    assert lines[-1]["mean_gold_log_prob"] == 0
    _, lines, _ = run("evaluate", gold, "--scores", scores)
    assert lines[-1]["impossible_gold_trees"] == 0


def test_gold_trees_with_several_roots_are_counted(run, tmp_path):
    """Both words under the root: of the three trees with many roots, the one with score 0.5 + 1."""
    gold, scores = tmp_path / "gold.conllu", tmp_path / "scores.npz"
    gold.write_text("".join(f"{i}\tw\t_\tX\t_\t_\t0\tdep\t_\t_\n" for i in (1, 2)))
    np.savez(scores, x=np.array([[0, 0.5, 1.0], [0, 0, 2.0], [0, 3.0, 0]]))
    _, lines, _ = run("evaluate", gold, "--scores", scores)
    assert (lines[0]["uas"], lines[0]["gold_log_prob"]) == (0.5, None)  # the mode is 0 -> 2 -> 1
    assert lines[-1]["impossible_gold_trees"] == 1
    _, lines, _ = run("evaluate", gold, "--scores", scores, "--many-roots")
    log_z = np.log(np.exp(0.5 + 1.0) + np.exp(0.5 + 2.0) + np.exp(1.0 + 3.0))
    assert lines[0]["gold_log_prob"] == pytest.approx(1.5 - log_z, abs=1e-12)


def test_comments_that_stand_alone_are_no_sentences(run, scores, tables, tmp_path):
    gold, output = tmp_path / "gold.conllu", tmp_path / "out.conllu"
    first, second = CONLLU.split("\n\n")[:2]
    gold.write_text(f"# one\n\n{first}\n\n# two\n\n# three\n\n{second}\n\n# four\n\n")
    np.savez(scores, *tables.values())  # no names: by position
    code, lines, _ = run("evaluate", gold, "--scores", scores)
    assert (code, [line["words"] for line in lines]) == (0, [3, 1, 4])
    assert run("marginals", scores, "--conllu", gold, "-o", output)[0] == 0
    without = re.sub(r"Confidence=[0-9.]+", "_", output.read_text())
    assert without == gold.read_text()
    gold.write_text(re.sub("# sent_id.*\n", "", gold.read_text()))
    names = [block.name for block in treebank.read_blocks(gold) if block.words]
    assert names == [str(i) for i in range(1, len(names) + 1)]


def test_minimum_risk_decoding(run, scores, tables):
    _, lines, _ = run("decode", scores, "--decode", "mbr")
    first = fg.SpanningTrees(tables["first"], single_root=True)
    assert lines[0]["trees"][0]["heads"] == first.minimum_risk_tree().tolist()


@pytest.mark.parametrize(
    "names, words",
    [
        ({"b": 3, "c": 1}, ["no table 'a'", "no sentence 'c'", "sent_id", "`lengths`"]),
        ({"b": 3}, ["no table 'a'"]),
        ({"arr_0": 3}, ["2 sentences", "1 table,"]),
    ],
)
def test_tables_that_match_no_sentence(run, rich, tmp_path, names, words):
    gold, _ = rich
    path = tmp_path / "other.npz"
    np.savez(path, **{name: np.zeros((n + 1, n + 1)) for name, n in names.items()})
    code, _, error = run("decode", path, "--conllu", gold, "-o", tmp_path / "out")
    assert code == 1
    for word in words:
        assert word in error


def test_the_confidence_of_a_head_is_summed_over_labels(run, rich, tmp_path):
    gold, scores, out = rich[0], tmp_path / "labeled.npz", tmp_path / "out.conllu"
    labels = tmp_path / "labels"
    labels.write_text("root obj")
    table = np.random.default_rng(0).normal(size=(4, 4, 2))
    np.savez(scores, a=np.zeros((2, 2, 2)), b=table)
    trees = fg.SpanningTrees(table, single_root=True, labeled=True)
    mu = trees.marginals().sum(axis=-1)
    for command, heads in (("marginals", [0, 1, 1]), ("decode", trees.mode()[:, 0])):
        code, _, _ = run(command, scores, "--conllu", gold, "-o", out, "--labels", labels)
        assert code == 0
        for dependent, head in enumerate(heads, start=1):
            assert f"Confidence={mu[head, dependent]:.6f}" in out.read_text(encoding="utf-8")


def test_relations_of_the_label_axis_differ(run, rich, tmp_path):
    """The probability of a gold relation would be that of one of its two labels."""
    gold, scores, labels = rich[0], tmp_path / "labeled.npz", tmp_path / "labels"
    np.savez(scores, a=np.zeros((2, 2, 3)), b=np.zeros((4, 4, 3)))
    labels.write_text("root obj root")
    for command in (["evaluate", gold, "--scores", scores],
                    ["decode", scores, "--conllu", gold, "-o", tmp_path / "out"]):  # fmt: skip
        code, _, error = run(*command, "--labels", labels)
        assert code == 1
        assert "'root' more than once" in error


def test_a_tree_of_least_risk_is_compared():
    """A random table whose most probable tree is not the tree of most expected heads."""
    for seed in itertools.count():
        scores = np.random.default_rng(seed).normal(size=(5, 5))
        trees = fg.SpanningTrees(scores, single_root=True)
        heads = trees.minimum_risk_tree()
        if (heads != trees.mode()).any():
            break
    words = ("w",) * 4
    sentence = treebank.Sentence("s", words, words, heads, words)
    assert evaluation.sentence_scores(trees, sentence, None, minimum_risk=True)["uas"] == 1.0
    assert evaluation.sentence_scores(trees, sentence, None)["uas"] < 1.0
