"""`fstgrad train`, `predict` and `evaluate`."""

import json
import re
import signal
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from fstgrad.cli.main import main
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning import trainer
from fstgrad.learning.sequence import SequenceModel

WORDS = ["abc", "cab", "bca", "aab", "ccb", "bbb", "cba", "acb"] * 5
ROWS = [(x, " ".join(x.upper())) for x in WORDS]
OPTIONS = ("--tokens-y", "words", "--window", 1, "--batch-size", 16, "--learning-rate", 0.3)


@pytest.fixture
def run(capsys):
    """Run a command: (exit code, standard output, standard error)."""

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, args)])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


# killed once the third checkpoint is there
KILLED = """
import os, signal
from fstgrad.cli.main import main
replace, places = os.replace, []
def killed(old, new):
    replace(old, new)
    places.append(str(new))
    if sum(place.endswith("model.checkpoint") for place in places) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = killed
main()
"""


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{x}\t{y}\n" for x, y in ROWS))
    return path


def test_train_predict_evaluate(run, pairs, tmp_path):
    pytest.importorskip("matplotlib")
    model, curves = tmp_path / "model", tmp_path / "curves.svg"
    code, out, err = run(
        "train", pairs, *OPTIONS, "-o", model, "--validation", pairs, "--plot", curves,
        "--epochs", 10, "--patience", 10,
    )  # fmt: skip
    assert (code, out) == (0, "")
    assert len(err.splitlines()) == 11
    assert "alphabet: 3 symbols from the data" in err
    assert "objective" in err
    assert "gradient norm" in err
    assert curves.read_text().startswith("<?xml")
    assert len(json.loads((tmp_path / "curves.json").read_text())) == 10
    assert not (tmp_path / "model.checkpoint").exists()
    (tmp_path / "x").write_text("abca\nc\n")
    assert run("predict", model, tmp_path / "x")[1] == "abca\tA B C A\nc\tC\n"
    (tmp_path / "gaps").write_text("abca\n\nc\n\n")
    assert run("predict", model, tmp_path / "gaps")[1:] == ("abca\tA B C A\n\nc\tC\n\n", "")
    (tmp_path / "new").write_text("abC\n\nzaC\n")
    new = run("predict", model, tmp_path / "new")[2]
    assert new == "fstgrad: not in the pairs of the training: the symbols 'C', 'z'\n"
    (tmp_path / "c.csv").write_text("y,x\nA,abca\n,c\n")
    assert run("predict", model, tmp_path / "c.csv")[1] == "abca\tA B C A\nc\tC\n"
    (tmp_path / "i.csv").write_text("output,input\nA,zca\n,c\n")
    assert run("predict", model, tmp_path / "i.csv")[1].endswith("\nc\tC\n")
    for args in (("evaluate", model), ("compare", model, model)):
        assert "training: the symbols 'z'\n" in run(*args, tmp_path / "i.csv")[2]
    (tmp_path / "two").write_text("abca\tA B\nc\tB\nc\n")
    code, out, err = run("predict", model, tmp_path / "two")
    assert (code, out) == (1, "abca\tA B C A\nc\tC\n")
    assert "two:3: 1 column(s)" in err
    said = f"fstgrad: {pairs} has pairs: column 1 is x, and column 2, y, is not read\n"
    assert run("predict", model, pairs)[2] == said
    lines = run("predict", model, tmp_path / "x", "--nbest", 2)[1].splitlines()
    assert [line.split("\t")[0] for line in lines] == ["abca", "abca", "c", "c"]
    measures = json.loads(run("evaluate", model, pairs)[1])
    assert measures == {"pairs": 40, "accuracy": 1.0, "loss": 0.0, "error_rate": 0.0, "unknown": 0}
    loaded = SequenceModel.load(model)  # has the default loss, too
    X, Y = [x for x, _ in ROWS], [y.split() for _, y in ROWS]
    assert loaded.evaluate(X, Y)._asdict() == measures
    with pytest.raises(InvalidInputError, match="loss is None"):
        SequenceModel.load(model, loss=None).score(X, Y, "neg_loss")


def test_a_killed_run_resumes_to_the_same_weights(run, pairs, tmp_path):
    def weights(path):
        with np.load(path) as archive:
            return archive["coef"].tobytes()

    options = [*OPTIONS, "--epochs", 9]
    assert run("train", pairs, *options, "-o", tmp_path / "whole")[0] == 0
    command = ["train", pairs, *options, "-o", tmp_path / "model"]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, command)], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    code, _, err = run(*command, "--resume")
    assert (code, err.partition(":")[0]) == (0, "epoch 4 (crf)")
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    "text, args, code, message",
    [
        ("a\tb\nc\n", (), 1, ":2: 1 column"),
        ("a\tb\nc\t\n", (), 1, ":2: y is empty"),
        ("a\tb\n", ("--loss", "edt"), 2, "did you mean edit"),
        ("a\tb\n", ("--min-count", 5), 1, "--min-count 5"),
        ("ab\tb\n", ("--alignment", "given"), 1, "not aligned"),
    ],
)
def test_errors_are_one_line(run, tmp_path, text, args, code, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    stopped, _, err = run("train", path, *args, "-o", tmp_path / "model")
    assert stopped == code
    assert message in err
    assert len(err.splitlines()) == 1


def test_caps_that_are_raised_train_as_the_whole_loss_does(run, pairs, tmp_path):
    """Tolerance 0: every value is that of the whole loss, and so are the weights."""
    options = (*OPTIONS, "--epochs", 2, "--objective", "softmax-margin")
    exact = ("--method", "exact")
    assert run("train", pairs, *options, *exact, "-o", tmp_path / "whole")[0] == 0
    raised = ("--cap", "auto", "--tolerance", 0)
    assert run("train", pairs, *options, *raised, "-o", tmp_path / "raised")[0] == 0
    whole, raised = (np.load(tmp_path / name)["coef"] for name in ("whole", "raised"))
    assert np.abs(whole).max() > 0.1
    np.testing.assert_allclose(raised, whole, atol=1e-10)


def test_a_file_that_is_no_model(run, pairs):
    code, _, err = run("predict", pairs, pairs)
    assert code == 1
    assert "is not a model" in err


PROGRAM = """
import pathlib
pathlib.Path({mark!r}).touch()
def build(alphabet=None):
    raise SystemExit(3)
"""


def with_choice(model, **changes):
    """Rewrite what a model file says of its loss."""
    with np.load(model) as archive:
        arrays = dict(archive)
    text = json.loads(str(arrays.pop("text")))
    text["about"]["choice"] |= changes
    with model.open("wb") as file:
        np.savez(file, **arrays, text=json.dumps(text))


@pytest.fixture
def model(run, pairs, tmp_path):
    path = tmp_path / "model"
    assert run("train", pairs, *OPTIONS, "--epochs", 1, "-o", path)[0] == 0
    return path


@pytest.mark.parametrize("name", ["{}", "{}:build", "{}:system"])
def test_a_model_runs_no_code_that_it_names(run, model, pairs, tmp_path, name):
    program, mark = tmp_path / "evil.py", tmp_path / "mark"
    program.write_text(PROGRAM.format(mark=str(mark)))
    with_choice(model, loss=name.format(program))
    assert run("predict", model, pairs.with_name("none"))[0] == 2
    code, out, err = run("evaluate", model, pairs)
    assert (code, out) == (1, "")
    assert "a file that the model does not contain; give it with --loss" in err
    (tmp_path / "x").write_text("abc\n")
    assert run("predict", model, tmp_path / "x")[0] == 0
    assert not mark.exists()


@pytest.mark.parametrize("name", ["matrix", "confusion"])
def test_a_model_reads_no_file_that_it_names(run, model, pairs, tmp_path, name):
    (tmp_path / "secret").write_text("root:secret words\n")
    with_choice(model, **{name: str(tmp_path / "secret")})
    code, out, err = run("evaluate", model, pairs)
    assert (code, out) == (1, "")
    assert "secret words" not in err
    assert f"--{name}" in err


@pytest.mark.parametrize(
    "changes",
    [{"loss": ["edit"]}, {"loss": None}, {"insert_cost": "1"}, {"insert_cost": True}, {"x": 1},
     {"confusion": [[1, 2], [3]]}, {"confusion": {}}, {"log": 1}, {"ngram_order": 1.5}],
)  # fmt: skip
def test_a_loss_in_a_model_is_names_and_numbers(run, model, pairs, changes):
    with_choice(model, **changes)
    code, out, err = run("evaluate", model, pairs)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1


def test_costs_of_a_file_are_in_the_model(run, pairs, tmp_path):
    (tmp_path / "confusion").write_text("A\tB\t0.25\nB\tC\t0.5\n")
    costs = ("--confusion", tmp_path / "confusion", "--substitute-cost", 2)
    assert run("train", pairs, *OPTIONS, "--epochs", 1, *costs, "-o", tmp_path / "m")[0] == 0
    given = run("evaluate", tmp_path / "m", pairs, "--loss", "edit", *costs)
    (tmp_path / "confusion").unlink()
    assert given[0] == 0
    assert run("evaluate", tmp_path / "m", pairs) == given


def test_rules_are_in_the_model(run, pairs, tmp_path):
    rules = tmp_path / "own.rules"
    rules.write_text("A -> B 0.25\nB -> C 0.5\n", encoding="utf-8")
    given = ("--loss", rules)
    assert run("train", pairs, *given, *OPTIONS, "--epochs", 1, "-o", tmp_path / "m")[0] == 0
    expected = run("evaluate", tmp_path / "m", pairs, *given)
    rules.unlink()
    assert expected[0] == 0
    assert run("evaluate", tmp_path / "m", pairs) == expected


@pytest.mark.parametrize("text", ["a ->", 3, None, ["a -> b 1"], "alphabet = a\nb -> c 1"])
def test_rules_in_a_model_are_checked(run, model, pairs, text):
    with np.load(model) as archive:
        arrays = dict(archive)
    stored = json.loads(str(arrays.pop("text")))
    stored["about"] |= {"rules": text}
    with model.open("wb") as file:
        np.savez(file, **arrays, text=json.dumps(stored))
    code, out, err = run("evaluate", model, pairs)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "rules" in err


def test_outputs_of_any_length_and_tags(run, tmp_path):
    """Verbs with their forms: the tag decides the suffix, a word of another length is answered."""
    rows = [
        (stem, tag, stem + end)
        for stem in ("walk", "talk", "jump", "look", "call", "open", "ask", "play")
        for tag, end in (("PST;V", "ed"), ("PRS", ""), ("GER|V", "ing"))
    ]
    path, model = tmp_path / "forms.tsv", tmp_path / "model"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    code, _, err = run(
        "train",
        path,
        "--tags",
        2,
        "--objective",
        "crf",
        "--window",
        0,
        "--order",
        1,
        "--batch-size",
        8,
        "--epochs",
        30,
        "-o",
        model,
    )
    assert (code, "objective" in err) == (0, True)
    (tmp_path / "wrong").write_text("ask\tGER|V\tasked\ntalk\tPRS\ttalk\n")
    assert run("report", model, "--pairs", tmp_path / "wrong", "-o", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert re.search(r"a s k(<[^>]*>)+GER V", page)
    (tmp_path / "lists").write_text(run("predict", model, path, "--nbest", 2)[1])
    given = ("score", tmp_path / "lists", path, "--loss", "cer", "--json")
    rows = [json.loads(line) for line in run(*given)[1].splitlines()]
    assert [(row["pairs"], row["errors"]) for row in rows] == [(24, 0)]
    (tmp_path / "new").write_text("jumpwalk\tPST;V\n\n")
    code, out, err = run("predict", model, tmp_path / "new")
    assert code == 1  # the empty line lacks the column of tags
    assert ":2: 1 column" in err
    (tmp_path / "new").write_text("jumpwalk\tPST;V\n\tPRS\nlooktalk\tGER|V\n")
    code, out, _ = run("predict", model, tmp_path / "new")
    assert out.splitlines() == ["jumpwalk\tPST;V\tjumpwalked", "", "looktalk\tGER|V\tlooktalking"]
    (tmp_path / "gold").write_text("walk\tPRS\twalk\nwalk\tPRS\twölk\n")
    measures = json.loads(run("evaluate", model, tmp_path / "gold")[1])
    assert (measures["pairs"], measures["accuracy"], measures["unknown"]) == (2, 0.5, 1)
    code, _, err = run("train", path, "--tags", 5, "-o", model)
    assert (code, "--tags is 5" in err) == (1, True)


def test_errors_by_symbols(run, pairs, tmp_path):
    """Of targets that were changed: one substitution, one missing and one added symbol."""
    model = tmp_path / "model"
    assert run("train", pairs, *OPTIONS, "-o", model)[0] == 0
    rows = [line.split("\t") for line in pairs.read_text().splitlines()]
    x, y = rows[0][0], rows[0][1].split()
    other = next(symbol for symbol in rows[1][1].split() if symbol != y[0])
    changed = [[x, " ".join(z)] for z in ([other, *y[1:]], [*y, y[-1]], y[:-1])]
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("".join(f"{x}\t{target}\n" for x, target in [*changed, *rows]))
    code, out, err = run("evaluate", model, wrong, "--errors")
    assert code == 0
    symbols = sum(len(target.split()) for _, target in [*changed, *rows])
    assert json.loads(out)["error_rate"] == pytest.approx(3 / symbols, abs=1e-12)
    found = [line.split() for line in err.splitlines()]
    for line in (
        ["substituted", "1", f"{1 / symbols:.2%}"], [y[0], "for", other, "1"],
        ["missing", "1", f"{1 / symbols:.2%}"], ["-", "for", y[-1], "1"],
        ["added", "1", f"{1 / symbols:.2%}"], [y[-1], "for", "-", "1"],
    ):  # fmt: skip
        assert line in found
    assert " for " not in run("evaluate", model, wrong)[2]


def test_defaults_hold_out_pairs_and_train_by_likelihood(run, pairs, tmp_path):
    """Sixty pairs: six validate, and a model with risk behind has the epochs of both."""
    path, model = tmp_path / "more.tsv", tmp_path / "model"
    path.write_text(pairs.read_text() + "".join(f"{x}\t{y}\n" for x, y in ROWS[:20]))
    code, _, err = run("train", path, "--tokens-y", "words", "-o", model)
    assert (code, "validation" in err) == (0, True)
    assert json.loads(run("evaluate", model, pairs)[1])["accuracy"] == 1.0
    args = ("--objective", "crf-then-risk", "--epochs", 2, "--held-out", 0)
    code, _, err = run("train", path, "--tokens-y", "words", *args, "-o", tmp_path / "both")
    assert code == 0
    assert len([line for line in err.splitlines() if line.startswith("epoch ")]) == 4
    assert "validation" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["both", "model", "more.tsv", "pairs.tsv"]
    args = ("--held-out", 0.5, "--validation", pairs)
    assert "has no effect with --validation" in run("train", path, *args, "-o", model)[2]


def test_a_model_goes_on_from_another(run, pairs, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    base = ("train", pairs, "--tokens-y", "words", "--window", 1, "--epochs", 3)
    assert run(*base, "-o", first)[0] == 0
    go_on = ("train", pairs, "--tokens-y", "words", "--warm-start", first, "--objective", "risk")
    code, _, err = run(*go_on, "--epochs", 1, "-o", second)
    assert (code, "from zero weights" in err) == (0, False)
    assert json.loads(run("compare", first, second, pairs)[1])["pairs"] == 40
    code, _, err = run(*go_on, "--window", 2, "-o", second)
    assert (code, "--window has no effect with --warm-start" in err) == (2, True)
    other = tmp_path / "other.tsv"
    other.write_text("ab\tX Y\nba\tY X\n")
    code, _, err = run("train", other, *go_on[2:], "-o", second)
    assert (code, "y[0] is 'X', which is not in the alphabet" in err) == (1, True)


def test_risk_from_zero_weights_names_a_better_start(run, pairs, tmp_path):
    args = ("train", pairs, "--tokens-y", "words", "--epochs", 1, "-o", tmp_path / "model")
    code, _, err = run(*args, "--objective", "risk")
    assert code == 0
    assert "use --objective crf-then-risk" in err
    for objective in ("crf-then-risk", "softmax-margin"):
        assert "from zero weights" not in run(*args, "--objective", objective)[2]


def test_syllables_are_taken_apart(run, tmp_path):
    """Korean: each syllable of two letters is one character, and two where it is decomposed."""
    syllables = [chr(0xAC00 + 588 * i + 28 * j) for i in range(6) for j in range(4)]
    path, model = tmp_path / "pairs.tsv", tmp_path / "model"
    letters = {s: unicodedata.normalize("NFD", s) for s in syllables}
    names = {c: chr(97 + k) for k, c in enumerate(sorted({c for s in letters.values() for c in s}))}
    latin = {s: "".join(names[c] for c in letters[s]) for s in syllables}
    new = syllables[5::7]
    known = [s for s in syllables if s not in new]
    path.write_text("".join(f"{latin[a]}{latin[b]}\t{a}{b}\n" for a in known for b in known))
    args = ("--decompose", "nfd", "--window", 0, "--order", 1, "--held-out", 0)
    assert run("train", path, *args, "-o", model)[0] == 0
    (tmp_path / "x").write_text("".join(f"{latin[s]}\n" for s in new) + "\n")
    out = run("predict", model, tmp_path / "x")[1]
    assert out == "".join(f"{latin[s]}\t{s}\n" for s in new) + "\n"


@pytest.mark.filterwarnings("always")
def test_a_slow_epoch_is_announced_with_a_remedy(run, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "SLOW_EPOCH", 0.0)
    words = ("--tokens-y", "words", "--epochs", 1, "-o", tmp_path / "m")
    loss = ("--loss", "hamming", "--objective", "risk", *words)
    code, _, err = run("train", pairs, *loss, "--seconds", 0.5)
    remedy = "min; --method capped with --cap 1 instead of --method auto, whose limits are for a "
    remedy += "pair, is faster: losses above 1 count as 1"
    assert (code, err.count(remedy)) == (0, 1)
    assert err.index(remedy) < err.index("epoch 1 (risk)")
    for capped in (("--method", "capped", "--cap", 1), ("--cap", 1)):
        assert "--cap 0.5 instead of 1 is faster" in run("train", pairs, *loss, *capped)[2]
    for steps in (("--optimizer", "lbfgs"), ("--batch-size", 10**4)):  # of all pairs
        assert run("train", pairs, *loss, *steps)[2].count("instead of --method auto") == 1
    assert "is faster" not in run("train", pairs, *words)[2]


@pytest.mark.parametrize(
    ("objective", "loss", "constant"),
    [("raml", "edit", ("temperature", 0.2)), ("direct", "hamming", ("epsilon", 0.05))],
)
def test_constants_of_an_objective_train_what_the_library_trains(
    run, pairs, tmp_path, objective, loss, constant
):
    name, value = constant
    args = (*OPTIONS, "--order", 1, "--objective", objective, "--loss", loss)
    args = (*args, "--epochs", 2, "--cap", 2, "--held-out", 0, "--l2", 1)
    path = tmp_path / "model"
    weights = []
    for given in ((f"--{name}", value), ()):
        assert run("train", pairs, *args, *given, "-o", path)[0] == 0
        weights.append(SequenceModel.load(path).coef_)
    assert np.abs(weights[0] - weights[1]).max() > 1e-3
    model = SequenceModel(
        loss, "unaligned", 1, objective, 1, alignment="auto", window=1, learning_rate=0.3,
        epochs=2, cap=2.0, **{name: value},
    )  # fmt: skip
    model.fit([x for x, _ in ROWS], [y.split() for _, y in ROWS])
    assert np.array_equal(model.coef_, weights[0])
    for options in (("--objective", "hinge"), ()):
        code, _, err = run("train", pairs, *options, f"--{name}", value, "-o", path)
        assert code == 2
        assert f"--{name} has no effect without --objective {objective}" in err


def test_objectives_that_are_exact_alone_train_on_every_loss(run, pairs, tmp_path):
    for objective in ("hinge", "raml", "direct"):
        args = (*OPTIONS, "--objective", objective, "--loss", "hamming", "--epochs", 1)
        code, _, err = run("train", pairs, *args, "-o", tmp_path / objective)
        assert code == 0, err


def test_inputs_with_tags_may_be_aligned(run, tmp_path):
    (tmp_path / "t").write_text("ab\tba\tN\n")
    aligned = ("--tags", 3, "--alignment", "given", "--epochs", 1)
    assert run("train", tmp_path / "t", *aligned, "-o", tmp_path / "m")[0] == 0


def test_a_model_of_ids_writes_their_numbers(run, tmp_path):
    """Labels 0 and 10 for the letters a and b: words in files."""
    path, pairs = tmp_path / "model.npz", tmp_path / "pairs.tsv"
    X, Y = ["ab", "ba", "aab"] * 4, [[0, 10], [10, 0], [0, 0, 10]] * 4
    SequenceModel(features="aligned", epochs=10).fit(X, Y).save(path)
    pairs.write_text("ab\t0 10\nba\t10 10\n")
    (tmp_path / "x.txt").write_text("ab\nba\n")
    assert run("predict", path, tmp_path / "x.txt")[:2] == (0, "ab\t0 10\nba\t10 0\n")
    code, out, _ = run("evaluate", path, pairs)
    measured = json.loads(out)
    assert (code, measured["accuracy"], measured["error_rate"]) == (0, 0.5, 0.25)


def test_a_new_training_says_that_it_replaces_a_checkpoint(run, pairs, tmp_path):
    (tmp_path / "model.checkpoint").write_bytes(b"the state of an unfinished training")
    code, _, err = run("train", pairs, *OPTIONS, "--epochs", 1, "-o", tmp_path / "model")
    assert code == 0
    assert "model.checkpoint of an unfinished training is replaced; --resume continues it" in err
