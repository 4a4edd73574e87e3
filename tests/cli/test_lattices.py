"""`fstgrad risk` and `fstgrad grad` over lattices in archives and folders."""

import csv
import json
import pathlib
import warnings

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.main import main
from fstgrad.openfst import read_collection, to_arrays, write_archive

ABC = fg.Alphabet(["the", "cat", "cap", "sat"])
SLOTS = [[("the", 0.0), (None, -1.0)], [("cat", 0.3), ("cap", 0.5)], [("sat", 0.0)]]
LATTICE = fg.Lattice.from_confusion_network(SLOTS, ABC)
NBEST = fg.Lattice.from_nbest([["the", "cap"], ["cat", "sat"]], [0.2, 0.1], ABC)
TARGET = ["the", "cat", "sat"]


@pytest.fixture
def files(tmp_path):
    archive = tmp_path / "lattices.far"
    write_archive(archive, {"u1": LATTICE.to_fst(), "u2": NBEST.to_fst()})
    folder = tmp_path / "lattices"
    folder.mkdir()
    for name, lattice in (("u1", LATTICE), ("u2", NBEST)):
        lattice.to_fst().write(str(folder / f"{name}.fst"))
    pairs = tmp_path / "refs.tsv"
    pairs.write_text("u1\tthe cat sat\nu2\tcat sat\n")
    return {"far": str(archive), "folder": str(folder), "pairs": str(pairs), "path": tmp_path}


def run(capsys, *args):
    try:
        main([str(arg) for arg in args])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code or 0, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("source", ["far", "folder"])
def test_risk(files, capsys, source):
    posteriors = files["path"] / "posteriors.far"
    code, lines, err = run(
        capsys, "risk", files["pairs"], "--lattices", files[source], "--tokens-y", "words",
        "--loss", "edit-factored", "--posteriors", posteriors,
    )  # fmt: skip
    assert code == 0
    loss = fg.EditDistance(ABC)
    for line, lattice, target in zip(
        lines, (LATTICE, NBEST), (TARGET, ["cat", "sat"]), strict=True
    ):
        assert line["objective"] == pytest.approx(fg.risk(lattice, target, loss)[0], abs=1e-12)
        assert line["log_z"] == pytest.approx(lattice.log_partition(), abs=1e-12)
        assert line["least_loss"] == 0
        assert line["arcs"] == lattice.num_arcs
    assert "(in the unit of the loss) over 2 lattices" in err
    written = read_collection(posteriors)
    assert sorted(written) == ["u1", "u2"]
    cat = to_arrays(written["u1"])
    names = dict(cat.input_symbols)
    costs = {names[label]: cost for label, cost in zip(cat.ilabel, cat.weight, strict=True)}
    # "cat" has weight e^0.3 against e^0.5
    assert costs["cat"] == pytest.approx(np.log(1 + np.exp(0.2)), abs=1e-12)
    assert costs["sat"] == 0


def test_tables_of_posteriors_and_gradients(files, capsys):
    """The states are those of the file; epsilon arcs and final scores have no row."""
    lattices = files["path"] / "text"
    lattices.mkdir()
    arcs = "0 3 cat cat -0.3\n0 3 cap cap -0.5\n3 2 sat sat\n3 1 <eps> <eps> 2\n1 2 sat sat\n"
    (lattices / "u1.txt").write_text(arcs + "2 0.4\n")
    (lattices / "u2.txt").write_text('0 1 "a" "a"\n0 1 cat cat 1\n1\n')
    tables = [files["path"] / f"{name}.tsv" for name in ("posteriors", "gradients")]
    code, _, err = run(
        capsys, "risk", files["pairs"], "--lattices", lattices, "--tokens-y", "words",
        "--posteriors", tables[0], "--gradients", tables[1],
    )  # fmt: skip
    assert code == 0, err
    read = []
    for path, name in zip(tables, ("posterior", "gradient"), strict=True):
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file, delimiter="\t")
        assert header == ["lattice", "from", "to", "word", name]
        assert [row[:4] for row in rows] == [
            ["u1", "0", "3", "cat"], ["u1", "0", "3", "cap"], ["u1", "3", "2", "sat"],
            ["u1", "1", "2", "sat"], ["u2", "0", "1", '"a"'], ["u2", "0", "1", "cat"],
        ]  # fmt: skip
        read.append([float(row[4]) for row in rows])
    code, _, err = run(capsys, "risk", files["pairs"], "--lattices", lattices, "--posteriors", "p")
    assert (code, "'p': give a name that ends in .tsv (a table) or .far" in err) == (2, True)
    cat, skip, other = (1 / (1 + np.exp(x)) for x in (0.2, -2, -1))
    assert read[0] == pytest.approx([cat, 1 - cat, skip, 1 - skip, other, 1 - other], abs=1e-12)
    # the loss of u1 is 1 with cap, of u2 "cat sat" 2 with "a", else 1
    change = cat * (1 - cat)
    assert read[1][:4] == pytest.approx([-change, change, 0, 0], abs=1e-12)
    assert read[1][4] == pytest.approx(other * (1 - other), abs=1e-12)


def test_costs_of_words_and_scales(files, capsys):
    """As if the scores of the slots were lower; the scales are those of Kaldi's two costs."""
    (files["path"] / "costs").write_text("cap 0.7\nunused 1\n")
    options = ("--tokens-y", "words", "--loss", "edit")
    code, lines, err = run(
        capsys, "risk", files["pairs"], "--lattices", files["far"], *options,
        "--word-costs", files["path"] / "costs", "--word-penalty", 0.2,
    )  # fmt: skip
    assert "fstgrad: --word-costs: no scored text or lattice has 'unused'\n" in err
    slots = [[("the", -0.2), (None, -1.0)], [("cat", 0.1), ("cap", -0.4)], [("sat", -0.2)]]
    loss = fg.EditDistance(ABC)
    expected = fg.risk(fg.Lattice.from_confusion_network(slots, ABC), TARGET, loss)[0]
    assert (code, lines[0]["objective"]) == (0, pytest.approx(expected, abs=1e-12))
    (files["path"] / "k.lat").write_text("u\n0 1 the 1.0,4.0,\n0 1 cat 2.0,1.0,\n1\n")
    pairs = files["path"] / "k.tsv"
    pairs.write_text("u\tthe\n")
    source = files["path"] / "k.lat"
    scales = ("--acoustic-scale", 0.5, "--lm-scale", 3)  # 3 + 2, 6 + 0.5
    code, lines, _ = run(capsys, "risk", pairs, "--lattices", source, *options, *scales)
    assert (code, lines[0]["objective"]) == (0, pytest.approx(1 / (1 + np.exp(1.5)), abs=1e-12))
    code, _, err = run(capsys, "risk", pairs, *options, "--word-penalty", 1)
    assert (code, "--word-penalty has no effect without --lattices" in err) == (2, True)


@pytest.mark.parametrize("objective", ["softmax-margin", "crf", "risk"])
def test_grad(files, capsys, objective):
    gradients = files["path"] / "gradients.far"
    code, lines, _ = run(
        capsys, "grad", files["pairs"], "--lattices", files["far"], "--tokens-y", "words",
        "--objective", objective, "--gradients", gradients,
    )  # fmt: skip
    assert code == 0
    loss = fg.EditDistance(ABC)
    value, gradient = {
        "softmax-margin": lambda: fg.softmax_margin(LATTICE, TARGET, loss),
        "crf": lambda: fg.softmax_margin(LATTICE, TARGET),
        "risk": lambda: fg.risk(LATTICE, TARGET, loss),
    }[objective]()
    assert lines[0]["objective"] == pytest.approx(value, abs=1e-12)
    written = to_arrays(read_collection(gradients)["u1"])
    np.testing.assert_allclose(np.sort(written.weight), np.sort(gradient), atol=1e-12)


@pytest.mark.parametrize(
    "row, message",
    [
        ("u3\tthe cat sat\n", "no lattice 'u3'; --lattices has u1, u2"),
        ("u1\tsat the cat\n", "closest"),
        ("u1\n", "one tab"),
    ],
)
def test_bad_rows_are_one_line(files, capsys, row, message):
    bad = files["path"] / "bad.tsv"
    bad.write_text(row)
    code, lines, err = run(
        capsys, "grad", bad, "--lattices", files["far"], "--tokens-y", "words",
    )  # fmt: skip
    assert (code, lines) == (1, [])
    assert message in err
    assert "bad.tsv:1" in err
    assert len(err.splitlines()) == 1


def test_what_is_no_archive(files, capsys):
    code, _, err = run(capsys, "risk", files["pairs"], "--lattices", files["pairs"])
    assert code == 1
    assert "FAR archive" in err
    empty = files["path"] / "empty"
    empty.mkdir()
    code, _, err = run(capsys, "risk", files["pairs"], "--lattices", empty)
    assert code == 1
    assert "no FST" in err


def test_risk_of_pairs_is_that_of_grad(files, capsys):
    pairs = files["path"] / "pairs.tsv"
    pairs.write_text("x\tab\ny\tba\n")
    code, lines, _ = run(capsys, "risk", pairs, "--loss", "hamming", "--order", 1)
    assert code == 0
    # two positions of two symbols, each wrong with probability one half
    assert [line["objective"] for line in lines] == pytest.approx([1.0, 1.0], abs=1e-12)


@pytest.mark.parametrize("kind", ["hinge", "raml", "direct"])
def test_other_objectives(files, capsys, kind):
    option = {"hinge": [], "raml": ["--temperature", 0.5], "direct": ["--epsilon", 0.2]}[kind]
    gradients = files["path"] / "gradients.far"
    code, lines, _ = run(
        capsys, "grad", files["pairs"], "--lattices", files["far"], "--tokens-y", "words",
        "--objective", kind, *option, "--gradients", gradients,
    )  # fmt: skip
    assert code == 0
    loss, written = fg.EditDistance(ABC), read_collection(gradients)
    for name, line, lattice, target in zip(
        ("u1", "u2"), lines, (LATTICE, NBEST), (TARGET, ["cat", "sat"]), strict=True
    ):
        b = lattice.compile(loss, target)
        value, gradient = {
            "hinge": lambda b=b, lattice=lattice, target=target: fg.hinge(lattice, target, b),
            "raml": lambda b=b, lattice=lattice: fg.raml(lattice, b, 0.5),
            "direct": lambda b=b, lattice=lattice: fg.direct_loss(lattice, b, 0.2),
        }[kind]()
        assert line["objective"] == pytest.approx(value, abs=1e-12)
        total = np.abs(to_arrays(written[name]).weight).sum()
        assert total == pytest.approx(np.abs(gradient).sum(), rel=1e-6)
    code, lines, err = run(
        capsys, "grad", files["pairs"], "--lattices", files["far"], "--tokens-y", "words",
        "--objective", kind, "--loss", "none",
    )  # fmt: skip
    assert (code, lines) == (2, [])
    assert "give --loss" in err


TEXTS = {"u1.txt": "0 1 cat 0.5\n0 1 cap\n1\n", "u2.att": "0 1 cat cat 0.5\n0 1 cap cap\n1\n"}


def test_text_with_one_label_and_with_two(tmp_path, capsys):
    (tmp_path / "lattices").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "lattices" / name).write_text(text)
    (tmp_path / "refs.tsv").write_text("u1\tcat\nu2\tcat\n")
    code, lines, _ = run(
        capsys, "risk", tmp_path / "refs.tsv", "--lattices", tmp_path / "lattices",
        "--tokens-y", "words",
    )  # fmt: skip
    assert code == 0
    value = fg.risk(fg.Lattice.from_text(TEXTS["u1.txt"], ABC), ["cat"], fg.EditDistance(ABC))[0]
    for line in lines:  # p(cap) = 1 / (1 + exp(-0.5))
        assert line["objective"] == pytest.approx(1 / (1 + np.exp(-0.5)), abs=1e-12) == value


@pytest.mark.parametrize("is_archive", [True, False])
def test_fsts_without_a_table_have_the_symbols_that_are_given(tmp_path, capsys, is_archive):
    fst = LATTICE.to_fst()
    fst.set_input_symbols(None)
    fst.set_output_symbols(None)
    source = tmp_path / ("x.far" if is_archive else "x")
    if is_archive:
        write_archive(source, {"u1": fst})
    else:
        source.mkdir()
        fst.write(str(source / "u1.fst"))
    (tmp_path / "refs.tsv").write_text("u1\tthe cat sat\n")
    words = "".join(f"{word} {label}\n" for label, word in enumerate(["<eps>", *ABC]))
    (tmp_path / "words.txt").write_text(words)
    risk = ("risk", tmp_path / "refs.tsv", "--lattices", source, "--tokens-y", "words")
    code, _, err = run(capsys, *risk)
    assert (code, "has no symbol table; give --symbols" in err) == (1, True)
    code, (line,), _ = run(capsys, *risk, "--symbols", tmp_path / "words.txt")
    exact, _ = fg.risk(LATTICE, TARGET, fg.EditDistance(ABC))
    assert line["objective"] == pytest.approx(exact, abs=1e-12)


def test_numbers_that_may_be_labels_of_a_table_are_named(tmp_path, capsys):
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "u1.att").write_text("0\t1\t4\n1\n")
    (tmp_path / "refs.tsv").write_text("u1\tthe\n")
    options = ("--lattices", tmp_path / "l", "--tokens-y", "words")
    code, _, err = run(capsys, "risk", tmp_path / "refs.tsv", *options)
    assert (code, "give it as --symbols" in err) == (0, True)


def test_an_error_names_the_lattice_and_its_file(tmp_path, capsys):
    (tmp_path / "u1.txt").write_text("0 1 cat cat\n1 0 cat cat\n1\n")
    (tmp_path / "refs.tsv").write_text("u1\tcat\n")
    for command in (
        ("risk", "--tokens-y", "words", "--lattices"),
        ("score", "--format", "lattices"),
    ):
        paths = [tmp_path / "u1.txt", tmp_path / "refs.tsv"]
        code, _, err = run(capsys, *command, *paths)
        assert (code, "u1.txt: lattice 'u1': fst is cyclic" in err) == (1, True)


@pytest.mark.parametrize(
    "text, said",
    [
        ("0 1 1 0.5\n1 2 -1 0\n2\n", ":1: labels are numbers; give "),
        ("0 1 cat cat\n1\n--\n0 1 cap cap\n1\n", "several FSTs"),
        ("0 1 a b\n1\n", "transducer"),
    ],
)
def test_text_that_is_no_lattice_is_one_line(tmp_path, capsys, text, said):
    (tmp_path / "u1.txt").write_text(text)
    (tmp_path / "refs.tsv").write_text("u1\tcat\n")
    code, lines, err = run(
        capsys, "risk", tmp_path / "refs.tsv", "--lattices", tmp_path / "u1.txt",
        "--tokens-y", "words",
    )  # fmt: skip
    assert (code, lines) == (1, [])
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    with pytest.raises(fg.FstError, match=said):
        fg.Lattice.from_text(text, fg.Alphabet(["a", "b", "cat", "cap"]))


def test_lattices_of_words_have_targets_of_words(files, capsys):
    code, lines, err = run(capsys, "risk", files["pairs"], "--lattices", files["folder"])
    assert (code, lines) == (2, [])
    assert "the lattices have words such as 'cap'" in err
    assert "give --tokens-y words" in err
    letters = {"u1.txt": "0 1 a 0.5\n0 1 <unk>\n1\n"}
    (files["path"] / "letters").mkdir()
    (files["path"] / "letters" / "u1.txt").write_text(letters["u1.txt"])
    (files["path"] / "a.tsv").write_text("u1\ta\n")
    code, lines, _ = run(
        capsys, "risk", files["path"] / "a.tsv", "--lattices", files["path"] / "letters"
    )
    assert code == 0
    # costs 0.5 of a and 0 of <unk>, whose loss is 1
    assert lines[0]["objective"] == pytest.approx(1 / (1 + np.exp(-0.5)), abs=1e-10)


def test_score_names_lattices_without_a_path(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("l").mkdir()
    pathlib.Path("l/u1.att").write_text("0 1 the the 0.5\n1 2 cat cat\n2\n")
    pathlib.Path("l/u2.att").write_text("0 1 cat cat inf\n1 2 sat sat\n2\n")
    pathlib.Path("refs.tsv").write_text("u1\tthe cat\nu2\tcat sat\n")
    for decode in ("best", "oracle", "mbr"):
        code, _, err = run("score", "l", "refs.tsv", "--decode", decode)
        assert (code, "item u2 of l: no path of the lattice has a finite weight" in err) == (
            1,
            True,
        )


def test_score_says_that_expected_losses_are_infinite(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("n.tsv").write_text("a\t-1\tthe cat\nb\t-1\tcat\nb\t-2\ton a mat\n")
    pathlib.Path("r.tsv").write_text("a\tthe cat\nb\tdog\n")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        given = ("score", "n.tsv", "r.tsv", "--loss", "hamming", "--decode", "mbr")
        code, out, err = run(*given, "--html", "page.html")
    assert (code, len(out.splitlines())) == (0, 3)
    assert err.count("item b of n.tsv, has an infinite expected loss, so that --decode mbr") == 1
