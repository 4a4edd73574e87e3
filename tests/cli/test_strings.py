"""The commands on string pairs: what they print, what they write, and how they fail."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.loss_options import LOSSES
from tests.oracles import strings as oracle

PAIRS = "x\tcab\ny\tab\nz\tbbca\n"
ABC = fg.Alphabet("abc")
MATRIX_ROWS = "a 7 -1 -1 -1\nb -1 7 -1 -1\nc -1 -1 7 -1\nx -1 -1 -1 7\n"


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS)
    return path


def load(path):
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


# loss


def test_loss_is_one_number_a_line(run):
    code, out, err = run("loss", "-", stdin="sitting\tkitten\nabc\tabc\n\tab\n")
    assert (code, out) == (0, "3.0\n0.0\n2.0\n")
    assert err == "fstgrad: alphabet: 10 symbols from the data\n"


@pytest.mark.filterwarnings("always")
def test_a_notice_is_shown_once_though_the_file_is_read_twice(run, tmp_path):
    (tmp_path / "p.csv").write_text("ab,b\ncd,d\n")
    code, out, err = run("loss", tmp_path / "p.csv")
    assert (code, out) == (0, "1.0\n")
    assert err.count("is taken as the header") == 1


def test_loss_of_words(run):
    code, out, _ = run(
        "loss", "-", "--tokens-x", "words", "--tokens-y", "words", stdin="K AE T\tK AA T S\n"
    )
    assert (code, out) == (0, "2.0\n")


@pytest.mark.parametrize(
    "options, expected",
    [
        (("edit", "--insert-cost", 2, "--delete-cost", 0.5, "--substitute-cost", 9), 2 + 0.5),
        (("edit-factored",), 1),
        (("smith-waterman",), -2 * 2),
        (("smith-waterman", "--match-cost", -5, "--substitute-cost", 3), -5 * 2),
        (("hamming", "--substitute-cost", 0.25), 0.25),
        (("ngram",), -np.log(1)),
        (("ngram", "--ngram-order", 1, "--smoothing", 0.5), -np.log(2 + 0.5)),
        (("ngram", "--no-log", "--ngram-order", 1), -2),
        (("none",), 0),
        (("osa", "--insert-cost", 2, "--delete-cost", 0.5, "--substitute-cost", 9), 2 + 0.5),
        (("lcs",), 1),
        (("wer", "--substitute-cost", 1.5), 1.5 / 1),
        (("cer",), 1 / 3),
        (("ngram-sum", "--ngram-order", 2, "--no-log"), -(2 + 1)),
        (("gappy", "--decay", 0.25, "--no-log"), -(0.25**4)),
        (("mismatch", "--ngram-order", 1, "--mismatches", 0, "--no-log"), -2),
        (("caseless",), 1),
        (("smith-waterman", "--match-cost", -5, "--gap-open", 3), -5 * 2),
        (("alignment", "--matrix", "MATRIX", "--gap-open", 3), -(2 * 7 - 1)),
        (("alignment", "--matrix", "MATRIX", "--gap-open", 3, "--free-ends", "both"), -2 * 7 + 1),
    ],
)
def test_loss_parameters(run, options, expected, tmp_path, monkeypatch):
    """abc against xbc: one substitution or an insertion and a deletion; one word for wer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MATRIX").write_text("  a b c x\n" + MATRIX_ROWS)
    code, out, _ = run("loss", "-", "--loss", *options, stdin="abc\txbc\n")
    assert code == 0
    assert float(out) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_loss_with_a_confusion_table(run, tmp_path):
    path = tmp_path / "costs.tsv"
    path.write_text("a\te\t0.25\n")
    options = ("--confusion", path, "--substitute-cost", 0.5)
    code, out, _ = run("loss", "-", *options, stdin="ab\teb\neb\tab\n")
    assert (code, out) == (0, "0.25\n0.5\n")
    code, _, err = run("loss", "-", "--loss", "hamming", "--confusion", path, stdin="a\te\n")
    assert code == 2
    assert "'hamming' has no --confusion" in err


def test_infinite_loss_is_inf(run):
    assert run("loss", "-", "--loss", "hamming", stdin="ab\ta\n")[:2] == (0, "inf\n")


def test_skipped_rows_keep_the_lines_aligned(run):
    code, out, err = run("loss", "-", "--skip-errors", stdin="a\tb\nbad\na\ta\n")
    assert (code, out) == (0, "1.0\nnan\n0.0\n")
    assert "<stdin>:2: 1 column(s) in 'bad'" in err
    assert "skipped 1 of 3 rows" in err


# grad


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("objective", ["softmax-margin", "risk", "crf"])
def test_grad_is_the_mean_over_the_pairs(run, pairs, tmp_path, objective, order):
    output = tmp_path / "g.npz"
    code, out, err = run(
        *("grad", pairs, "--objective", objective, "--order", order),
        *("--random-weights", 3, "--output", output),
    )
    assert code == 0
    written = load(output)
    w = np.random.default_rng(3).normal(size=(3,) * order)
    np.testing.assert_array_equal(written["weights"], w)
    assert written["symbols"].tolist() == ["a", "b", "c"]
    assert written["pairs"] == 3

    features, values, gradients = fg.QGramCounts(ABC, order), [], []
    for line, y in zip(map(json.loads, out.splitlines()), ["cab", "ab", "bbca"], strict=True):
        gold = tuple(int(i) for i in ABC.encode(y))
        scores = features.scores(w, None, len(y))
        losses = [oracle.edit_distance(z, gold) for z in oracle.all_strings(3, len(y))]
        if objective == "risk":
            value, table = oracle.risk(scores, losses)
        else:
            losses = None if objective == "crf" else losses
            value, table = oracle.softmax_margin(scores, gold, losses)
        values.append(value)
        gradients.append(features.gradient(table, None))
        assert line["y"] == y
        assert line["objective"] == pytest.approx(value, rel=1e-10)
        log_z = oracle.log_partition(scores, None if objective == "risk" else losses)
        assert line["log_z"] == pytest.approx(log_z, rel=1e-10)
        assert set(line) == {"line", "y", "objective", "log_z", "states", "method", "seconds"}
    assert written["objective"] == pytest.approx(np.mean(values), rel=1e-10)
    np.testing.assert_allclose(written["gradient"], np.mean(gradients, axis=0), atol=1e-12)
    unit = " (in the unit of the loss)" if objective == "risk" else " nats"
    assert f"mean {np.mean(values):.6f}{unit} over 3 pairs" in err


def test_the_reference_engine_gives_the_same(run, pairs):
    lines = [
        [json.loads(line) for line in run("grad", pairs, "--engine", engine)[1].splitlines()]
        for engine in ("layered", "openfst")
    ]
    for layered, reference in zip(*lines, strict=True):
        assert layered["objective"] == pytest.approx(reference["objective"], rel=1e-6)


def test_grad_reads_standard_input_and_words(run):
    code, out, _ = run("grad", "-", "--tokens-y", "words", stdin="cat\tK AE T\n")
    assert code == 0
    assert json.loads(out)["y"] == "K AE T"


def test_table_shows_the_largest_entries_and_says_exact_or_capped(run, pairs):
    _, _, err = run("grad", pairs, "--loss", "hamming", "--top", 2)
    assert "softmax-margin, hamming loss, exact" in err
    rows = [line.split("│")[1:3] for line in err.splitlines() if "│" in line]
    assert len(rows) == 2
    entries = {name.strip(): float(value) for name, value in rows}
    # With w = 0 a position is right with probability p = 1 / (1 + 2e), wrong with e p each way.
    # Six bigrams: ca 1-2 of cab and 3-4 of bbca, ab 2-3 of cab and 1-2 of ab, bb and bc of bbca.
    p = 1 / (1 + 2 * np.e)
    wrong = np.e * p
    # ab as gold: p p - 1, twice; else (ca, ca, bb, bc against ab): wrong wrong, or right at one end
    ab = 2 * (p * p - 1) + 2 * wrong * wrong + wrong * p + wrong * wrong
    assert entries["a b"] == pytest.approx(ab / 3, abs=1e-6)
    assert "capped at 1.5" in run("grad", pairs, "--cap", 1.5)[2]
    assert "pruned at 1.5" in run("grad", pairs, "--prune", 1.5)[2]
    assert "crf, no loss" in run("grad", pairs, "--objective", "crf")[2]


def test_prune_is_that_of_the_automata_and_excludes_caps_samples_and_files(run, pairs):
    abc = fg.Alphabet("abc")
    weights = np.random.default_rng(3).normal(size=(3, 3))
    line = json.loads(run("risk", pairs, "--random-weights", 3, "--prune", 1)[1].splitlines()[0])
    scores = fg.QGramCounts(abc, 2).scores(weights, "", len(line["y"]))
    b = fg.EditDistance(abc).compile(line["y"], prune=1.0)
    assert line["objective"] == pytest.approx(fg.risk(scores, b)[0], abs=1e-12)
    assert (line["method"], line["states"]) == ("pruned", b.num_states)
    assert run("marginals", pairs, "--prune", 1)[0] == 0
    for more, said in (
        (("--cap", 1), "--prune is 1 with a cap"),
        (("--method", "auto"), "--prune is 1 with a cap or a method"),
        (("--method", "sampled"), "--prune has no effect with --method sampled"),
        (("--cache", "folder"), "with --prune, whose automata are not cached"),
        (("--loss", "ngram"), "leave --prune out"),
        (("--loss", "none"), "with --loss none"),
    ):
        code, _, err = run("grad", pairs, "--prune", 1, *more)
        assert code in (1, 2)
        assert said in " ".join(err.split())


def test_weights_bring_their_alphabet_and_come_back(run, pairs, tmp_path):
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    (tmp_path / "abc.txt").write_text("c\nb\na\nd\n")
    run("grad", pairs, "--alphabet", tmp_path / "abc.txt", "--random-weights", 1, "--output", first)
    code, _, _ = run("grad", pairs, "--weights", first, "--output", second)
    assert code == 0
    for name in ("weights", "gradient", "symbols"):
        np.testing.assert_array_equal(load(first)[name], load(second)[name])
    assert load(second)["symbols"].tolist() == ["c", "b", "a", "d"]
    np.savez(second, weights=np.zeros((2, 2)), symbols=["a", "a"])
    code, _, err = run("grad", pairs, "--weights", second)
    said = f"fstgrad: {second}: its array symbols has 'a' more than once; list each symbol once\n"
    assert (code, err) == (1, said)


def test_skip_errors_goes_on_and_counts(run, tmp_path):
    path, output = tmp_path / "pairs.tsv", tmp_path / "g.npz"
    path.write_text("x\tcab\nbad\ny\t\nz\tab\n")
    code, out, err = run("grad", path, "--skip-errors", "--output", output)
    assert code == 0
    assert [json.loads(line)["line"] for line in out.splitlines()] == [1, 4]
    assert "pairs.tsv:2: 1 column(s)" in err
    assert "pairs.tsv:3: y is empty" in err
    assert "skipped 2 of 4 rows" in err
    assert load(output)["pairs"] == 2


def test_rows_before_a_bad_one_stay_done(run, tmp_path):
    path, output = tmp_path / "pairs.tsv", tmp_path / "g.npz"
    path.write_text("x\tcab\nz\tab\nbad\nz\tab\n")
    code, out, err = run("grad", path, "--output", output)
    assert code == 1
    assert [json.loads(line)["line"] for line in out.splitlines()] == [1, 2]
    assert err == f"fstgrad: {path}:3: 1 column(s) in 'bad'; a row is x, one tab, y\n"
    assert not output.exists()


# marginals


def test_marginals_of_one_line(run, pairs, tmp_path):
    output = tmp_path / "q.npz"
    code, out, _ = run(
        *("marginals", pairs, "--line", 2, "--random-weights", 0, "--output", output, "--top", 3)
    )
    assert code == 0
    w = np.random.default_rng(0).normal(size=(3, 3))
    scores = fg.QGramCounts(ABC, 2).scores(w, None, 2)
    losses = [oracle.edit_distance(z, (0, 1)) for z in oracle.all_strings(3, 2)]
    expected = oracle.marginals(scores, losses)
    written = load(output)
    np.testing.assert_allclose(written["marginals"], expected, atol=1e-12)
    assert written["log_z"] == pytest.approx(oracle.log_partition(scores, losses))
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert header == ["position", "qgram", "probability"]
    assert [float(row[2]) for row in rows] == pytest.approx(
        sorted(expected.ravel(), reverse=True)[:3], rel=1e-5
    )
    position, qgram, _ = rows[0]
    index = np.unravel_index(expected.argmax(), expected.shape)
    assert int(position) == index[0] + 1
    assert qgram.split() == ["abc^"[i] for i in index[1:]]


# doctor


# bad input: one line, the right code, no traceback


@pytest.mark.parametrize(
    "code, said, args",
    [
        (2, "no loss 'edti'; did you mean edit?", ["grad", "PAIRS", "--loss", "edti"]),
        (2, "no loss 'qqq'; did you mean edit, edit-factored", ["loss", "PAIRS", "--loss", "qqq"]),
        (2, "did you mean keyboard?", ["loss", "PAIRS", "--loss", "keybard"]),
        (2, "'alignment' needs --matrix and --gap-open", ["loss", "PAIRS", "--loss", "alignment"]),
        (2, "'dna' has no --smoothing", ["loss", "PAIRS", "--loss", "dna", "--smoothing", 1]),
        (2, "'edit' has no --smoothing", ["grad", "PAIRS", "--smoothing", 1]),
        (2, "does not exist", ["grad", "absent.tsv"]),
        (2, "'bpe' is not one of", ["grad", "PAIRS", "--tokens-y", "bpe"]),
        (2, "the folder of", ["grad", "PAIRS", "--output", "absent/g.npz"]),
        (2, "exclude each other", ["grad", "PAIRS", "--weights", "W", "--random-weights", 1]),
        (2, "give --loss", ["grad", "PAIRS", "--objective", "risk", "--loss", "none"]),
        (2, "no command 'gard'; did you mean grad", ["gard"]),
        (1, "PAIRS:1: y[0] is 'c', which is not in", ["grad", "PAIRS", "--alphabet", "AB"]),
        (1, "W: --weights has shape (2, 2); the", ["grad", "PAIRS", "--weights", "W"]),
        (1, "N: weights[0, 1] is nan", ["grad", "PAIRS", "--weights", "N"]),
        (1, "PAIRS: not an npz file", ["grad", "PAIRS", "--weights", "PAIRS"]),
        (1, "E: no row has a symbol", ["grad", "E"]),
        (1, "no rows", ["grad", "E", "--alphabet", "AB"]),
        (1, "--line is 9, but PAIRS has fewer pairs", ["marginals", "PAIRS", "--line", 9]),
        (1, "PAIRS:1: ", ["grad", "PAIRS", "--max-states", 3]),
        (1, "--max-states 3", ["grad", "PAIRS", "--max-states", 3]),
        (2, "nan is not allowed", ["grad", "PAIRS", "--insert-cost", "nan"]),
        (1, "AB:2: 'a' is already on line 1", ["grad", "PAIRS", "--alphabet", "TWICE"]),
        (1, "PAIRS:2: ", ["grad", "PAIRS", "--loss", "ngram", "--ngram-order", 3]),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(run, pairs, tmp_path, monkeypatch, code, said, args):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PAIRS").write_text(PAIRS)
    (tmp_path / "AB").write_text("a\nb\n")
    (tmp_path / "E").write_text("")
    for name, array in (("W", np.zeros((2, 2))), ("N", [[0, np.nan, 0]] * 3)):
        with (tmp_path / name).open("wb") as file:
            np.savez(file, weights=array)
    if "TWICE" in args:
        (tmp_path / "TWICE").write_text("a\na\n")
        said = said.replace("AB", "TWICE")
    found, _, err = run(*args)
    assert found == code
    assert said in err
    assert err.startswith("fstgrad: ")
    assert err.count("\n") == 1


def test_all_rows_bad_is_a_failure_even_when_skipped(run):
    code, out, err = run("loss", "-", "--skip-errors", stdin="bad\nbad\n")
    assert (code, out) == (1, "")
    assert "<stdin>:1: 1 column(s)" in err  # the error of the row, not that no symbol was found
    code, out, err = run("grad", "-", "--skip-errors", "--max-states", 2, stdin="x\tab\nx\tba\n")
    assert (code, out) == (1, "")
    assert err.endswith("fstgrad: all 2 rows failed\n")


def test_every_loss_is_built_from_its_name(run, pairs):
    for name in LOSSES.keys() - {"alignment"}:  # which needs a matrix
        assert run("loss", pairs, "--loss", name)[0] == 0


# as a program


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_progress_bar_on_a_terminal_only(run):
    command = [sys.executable, "-c", "from fstgrad.cli.main import main; main()", "loss", "-"]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs
    ) as program:
        out, _ = program.communicate(b"a\tb\n" * 20)
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert out == b"1.0\n" * 20
    assert b"loss" in shown
    assert b"100%" in shown
    _, _, err = run("loss", "-", stdin="a\tb\n" * 20)
    assert err == "fstgrad: alphabet: 2 symbols from the data\n"


def test_a_closed_pipe_is_not_an_error():
    command = f'"{sys.executable}" -c "from fstgrad.cli.main import main; main()" loss - | head -1'
    done = subprocess.run(
        ["bash", "-c", command], input=b"a\tb\n" * 20000, capture_output=True, check=False
    )
    assert done.stdout == b"1.0\n"
    assert done.stderr == b""


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; from fstgrad.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'numpy', 'pynini', 'numba', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "marginals" in done.stdout


def test_loss_shows_alignments(run):
    code, out, _ = run("loss", "-", "--align", stdin="sitting\tkitten\nab\tab\n")
    assert code == 0
    assert out == "3.0\nsitting\nS...S.D\nkitten-\n\n0.0\nab\n..\nab\n\n"
    code, out, err = run("loss", "-", "--align", "--loss", "ngram", stdin="ab\tab\n")
    assert (code, out) == (1, "")
    assert "no single best alignment" in err


# what a person meets


@pytest.mark.parametrize("command", ["loss", "grad", "marginals", "align", "train"])
def test_where_no_row_can_be_used_the_first_one_says_why(run, command, tmp_path):
    more = ["-o", tmp_path / "model.npz"] if command == "train" else []
    code, out, err = run(command, "-", *more, stdin="a b\nc d\n")
    assert (code, out) == (1, "")
    assert "<stdin>:1: 1 column(s) in 'a b'; a row is x, one tab, y" in err


def test_the_alphabet_of_the_data_is_told(run):
    _, _, err = run("grad", "-", stdin="x\tab\n")
    assert "fstgrad: alphabet: 2 symbols from the data\n" in err
    _, _, err = run("grad", "-", "--alphabet", "latin", stdin="x\tab\n")
    assert "alphabet" not in err


def test_few_effective_samples_are_told(run):
    options = ("grad", "-", "--method", "sampled", "--samples")
    code, out, err = run(*options, 50, stdin="x\tcbcbcb\ny\tab\n")
    assert code == 0
    least = min(json.loads(line)["effective_samples"] for line in out.splitlines())
    assert least <= 50
    assert f"2 have fewer than 100 effective samples, the least {least:.1f}" in err
    _, _, err = run(*options, 1000, stdin="x\tab\n")
    assert "effective samples" not in err


def test_curves_need_matplotlib_before_training(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("fstgrad.learning.sequence.SequenceModel.fit", None)
    options = ("train", "-", "-o", tmp_path / "m.npz", "--plot", tmp_path / "curves.png")
    code, _, err = run(*options, stdin="a\tb\n")
    assert code == 1
    assert "needs the package 'matplotlib', which is not installed: pip install" in err


def test_gap_costs_whose_sums_overflow_are_refused(run, tmp_path):
    (tmp_path / "p.tsv").write_text("AW\tAWWW\n")
    args = ("loss", tmp_path / "p.tsv", "--loss", "alignment", "--matrix", "BLOSUM62")
    code, out, err = run(*args, "--gap-open", "1e308")
    assert (code, out) == (1, "")
    assert err.endswith("--gap-open is 1e+308; give a finite number >= 0, at most 1e+150\n")
    # A with A 4, W with W 11, a gap of two W
    assert run(*args, "--gap-open", "1e9")[1] == f"{2e9 - 15:.1f}\n"
