"""`fstgrad grm` from file to file, and one line for every mistake."""

import io as streams
import re
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import io, sparse

import fstgrad as fg
from fstgrad.cli.commands.grm import grm
from fstgrad.cli.main import main
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.files import read_table

pytest.importorskip("sklearn")
NAMES = ["ape", "bee", "cat", "dog"]


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(0.4 + rng.gamma(1.0, size=(200, 1)) * np.array([1, 0.2, 1, 1])).astype(float)


def write(path, counts):
    """Write a table in the format of the ending; return the names that it carries."""
    if path.suffix == ".npz":
        sparse.save_npz(path, sparse.csr_matrix(counts))
    elif path.suffix == ".npy":
        np.save(path, counts)
    elif path.suffix == ".mtx":
        io.mmwrite(path, sparse.coo_matrix(counts))
    elif path.suffix == ".mat":
        labels = np.array(NAMES, dtype=object)[:, None]
        io.savemat(path, {"Xt": sparse.csc_matrix(counts), "labels": labels})
        return NAMES
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        np.savetxt(path, counts, fmt="%d", delimiter=delimiter, header=delimiter.join(NAMES),
                   comments="")  # fmt: skip
        return NAMES
    return None


@pytest.mark.parametrize("ending", ["npz", "npy", "mtx", "csv", "tsv", "mat"])
def test_every_format_is_read(tmp_path, counts, ending):
    path = tmp_path / f"counts.{ending}"
    names = write(path, counts)
    matrix, found, *_ = read_table(path)
    np.testing.assert_array_equal(matrix.toarray(), counts)
    assert found == names


def run(*arguments):
    done = CliRunner().invoke(grm, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done


def test_fit_top_sample_score(tmp_path, counts):
    table, model = tmp_path / "counts.csv", tmp_path / "model.npz"
    write(table, counts)
    done = run(
        "fit", table, "--k", 3, "--alpha", 0.02, "--features", 3, "--threads", 1, "-o", model
    )
    assert "3 columns" in done.output
    fitted = fg.GeneralizedRootModel.load(model)
    assert fitted.names_ == ["ape", "cat", "dog"]  # bee has the smallest total
    lines = run("top", model, "--size", 2, "--top", 2).output.splitlines()
    strongest = fitted.top_interactions(2, 2)
    assert lines[0] == f"2\t{strongest[0].value:.6g}\t" + " + ".join(strongest[0].names)
    score = float(run("score", model, table).stdout)
    assert score == pytest.approx(fitted.score(counts[:, [0, 2, 3]]), abs=1e-10)
    report = run("report", model, table, "-n", 200).stdout.splitlines()
    assert [line.split()[0] for line in report[:4]] == ["column", "ape", "cat", "dog"]
    assert "Spearman difference" in report[4]
    rows = run("sample", model, "-n", 4, "--seed", 1).stdout.splitlines()
    assert rows[0] == "ape,cat,dog"
    assert len(rows) == 5
    run("sample", model, "-n", 4, "--seed", 1, "-o", tmp_path / "draws.npz")
    many = run("sample", model, "-n", 40)
    assert "R-hat" in many.stderr
    assert "R-hat" not in many.stdout
    draws = sparse.load_npz(tmp_path / "draws.npz").toarray()
    assert rows[1] == ",".join(str(int(v)) for v in draws[0])


@pytest.mark.parametrize("ending", ["npz", "npy", "csv"])
def test_columns_kept_of_a_table_without_names(tmp_path, ending):
    """They have their places as names, and every command picks them from the table of the fit."""
    x = np.random.default_rng(6).poisson([0.2, 3, 0.3, 5, 0.1], size=(150, 5))
    table, other, model = (tmp_path / f"{name}.{ending}" for name in ("all", "two", "m"))
    model = model.with_suffix(".npz")
    for path, values in ((table, x), (other, x[:, [1, 3]])):
        if ending == "csv":
            np.savetxt(path, values, "%d", ",")
        else:
            write(path, values)
    layout = ["--no-header"] if ending == "csv" else []
    given = ("--features", 2, "--alpha", 0.05, "--threads", 1, "-o", model)
    done = run("fit", table, *given, *layout)
    assert "kept columns, counted from x0: x1, x3, of 5" in done.stderr
    fitted = fg.GeneralizedRootModel.load(model)
    assert fitted.names_ == ["x1", "x3"]
    expected = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x[:, [1, 3]])
    assert run("top", model, "--size", 1).stdout.split()[2::3] == ["x3", "x1"]
    score = float(run("score", model, table, *layout).stdout)
    assert score == pytest.approx(fitted.score(x[:, [1, 3]]), abs=1e-9)
    assert score == pytest.approx(expected.score(x[:, [1, 3]]), abs=1e-4)
    assert "x1" in run("report", model, table, "-n", 50, *layout).stdout
    run("stability", model, table, "-n", 2, *layout)
    assert run("sample", model, "-n", 2, "--seed", 0).stdout.startswith("x1,x3\n")
    short = main_errors("score", model, other, *layout)
    assert float(short[0]) == pytest.approx(score)
    assert "has no names of columns: they count as x1, x3, in this order" in short[1]


def test_a_line_says_which_totals_tie_for_the_last_column(tmp_path):
    """The totals are 9, 2, 2, 4, and without names those of x0 to x3."""
    table = tmp_path / "c.csv"
    values = np.array([[3, 2, 0, 0], [3, 0, 1, 4], [3, 0, 1, 0]])
    tie = "2 columns have the total 2, the least that --features 3 keeps: {}, {}; kept 1 of them, "
    for names, order in (("fbax", [0, 1, 2, 3]), ("fabx", [0, 2, 1, 3]), (None, [0, 1, 2, 3])):
        header = "" if names is None else ",".join(names)
        np.savetxt(table, values[:, order], "%d", ",", header=header, comments="")
        layout = ["--no-header"] if names is None else []
        one, two = ("x1", "x2") if names is None else names[1:3]
        for features in (1, 2, 3, 4):
            given = ("--features", features, "--k", 1, "--alpha", 0.1, "--quiet", "--threads", 1)
            done = run("fit", table, *given, *layout, "-o", tmp_path / "m.npz")
            lines = [line for line in done.stderr.splitlines() if "columns have the total" in line]
            said = f"fstgrad: {tie.format(one, two)}{one}; --features 4 keeps all"
            assert lines == ([said] if features == 3 else [])
        model = fg.GeneralizedRootModel.load(tmp_path / "m.npz")
        assert len(model.names_) == 4


def main_errors(*arguments):
    """Return standard output and standard error of `fstgrad grm`, as the program prints them."""
    out, err = streams.StringIO(), streams.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit):
        main(["grm", *map(str, arguments)])
    return out.getvalue(), err.getvalue()


def test_other_tables_for_columns_kept_without_names(tmp_path):
    """Names match in any order; other numbers of columns, and other names, are errors."""
    x = np.random.default_rng(6).poisson([3, 0.2, 5], size=(80, 3))
    table, model, other = (tmp_path / name for name in ("t.npy", "m.npz", "o.csv"))
    np.save(table, x)
    run("fit", table, "--features", 2, "--threads", 1, "-o", model)
    score = run("score", model, table).stdout
    for header, columns in (("x2,x0", [2, 0]), ("2,0,1", [2, 0, 1]), ("a,b,c", [0, 1, 2])):
        np.savetxt(other, x[:, columns], "%d", ",", header=header, comments="")
        assert run("score", model, other, "--header").stdout == score
    for header, columns, message in (
        ("a,b", [0, 2], "has no column 'x0', 'x2', which the model has"),
        (None, [0, 1, 2, 2], "has 4 columns without names, .* had 3, of which .* kept x0, x2"),
    ):
        np.savetxt(other, x[:, columns], "%d", ",", header=header or "", comments="")
        with pytest.raises(InvalidInputError, match=message):
            CliRunner().invoke(
                grm,
                ["score", str(model), str(other), "--header" if header else "--no-header"],
                catch_exceptions=False,
            )


@pytest.mark.parametrize(
    ("value", "remedy"),
    [(-1, r"Negative values in data need --base gaussian$"),
     (0.5, r"fractions need --base gaussian or --base exponential$")],
)  # fmt: skip
def test_values_that_are_no_counts_name_the_bases_that_take_them(tmp_path, value, remedy):
    x = np.random.default_rng(0).gamma(1.0, size=(30, 2))
    x[3, 1] = value
    x[:3] = [[1, 2], [0, 1], [2, 0]]
    x[4:] = np.round(x[4:])
    x[3, 0] = 0
    np.save(tmp_path / "x.npy", x)
    given = ("fit", tmp_path / "x.npy", "--k", 1, "-o", tmp_path / "m.npz", "--base")
    _, error = main_errors(*given, "poisson")
    assert re.search(remedy, error.strip())
    for base in ("gaussian", "exponential"):
        _, error = main_errors(*given, base)
        assert ("need" in error) == (base not in remedy)


def test_stages_and_a_checkpoint(tmp_path, counts):
    table, kept = tmp_path / "counts.mat", tmp_path / "kept.npz"
    write(table, counts)
    given = [
        "fit",
        table,
        "--variable",
        "Xt",
        "--k",
        3,
        "--alpha",
        0.05,
        "--stagewise",
        "--threads",
        2,
    ]
    run(*given, "--checkpoint", kept, "-o", tmp_path / "a.npz")
    assert kept.exists()
    run(*given, "--checkpoint", kept, "-o", tmp_path / "b.npz")
    run(*given, "-o", tmp_path / "c.npz")
    scores = [run("score", tmp_path / f"{name}.npz", table).output for name in "abc"]
    assert len(set(scores)) == 1


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("counts.txt", "1,2", "ends with"),
        ("counts.csv", "1,2\n3", "counts.csv:2: 1 field(s)"),
        ("counts.csv", "1,-2\n3,4\n", "counts 0, 1, 2"),
        ("model.npz", "text", "cannot be read"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["grm", "fit", str(tmp_path / name), "-o", str(tmp_path / "out.npz")])
    *how, error = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert error.startswith("fstgrad: ")
    assert how == ([f"{tmp_path / name}: 2 row(s), 2 column(s); no header"] if "-2" in text else [])
    assert message in error


def test_too_many_features(tmp_path, counts):
    write(tmp_path / "counts.npy", counts)
    done = CliRunner().invoke(
        grm, ["fit", str(tmp_path / "counts.npy"), "--features", "9", "-o", "out.npz"]
    )
    assert isinstance(done.exception, InvalidInputError)
    assert "4 columns" in str(done.exception)


def test_an_array_that_is_not_there(tmp_path):
    np.savez(tmp_path / "a.npz", first=np.eye(2), text=np.array("a"))
    np.testing.assert_array_equal(read_table(tmp_path / "a.npz")[0].toarray(), np.eye(2))
    with pytest.raises(InvalidInputError, match="has no 'second', only 'first"):
        read_table(tmp_path / "a.npz", "second")


def test_alpha_by_a_criterion_and_stability(tmp_path, request):
    run = request.getfixturevalue("run")  # of all commands; that of this module is of grm
    rng = np.random.default_rng(0)
    z = rng.gamma(2.0, 1.0, (60, 1))
    rows = rng.poisson(np.hstack([2 * z, 2 * z, np.ones((60, 1))]))
    table, model = tmp_path / "counts.csv", tmp_path / "model.npz"
    np.savetxt(table, rows, fmt="%d", delimiter=",", header="a,b,c", comments="")
    for criterion, text in (("cv", "held-out score"), ("ebic", "EBIC")):
        code, out, _ = run("grm", "fit", table, "--alpha", criterion, "--quiet", "-o", model)
        assert code == 0
        chosen = re.search(r"^ *(\S+)  \S+  chosen$", out, re.M)[1]
        fitted = fg.GeneralizedRootModel.load(model)
        assert text in out
        assert float(chosen) == pytest.approx(fitted.alpha, rel=1e-4)
    code, out, _ = run("grm", "stability", model, table, "-n", 3)
    shares = fitted.stability(rows, samples=3, feature_names=["a", "b", "c"])
    assert out.splitlines()[0] == "1\ta + b"
    assert len(out.splitlines()) == len(shares)
    assert run("grm", "fit", table, "--alpha", 1e9, "--quiet", "-o", tmp_path / "empty")[0] == 0
    code, out, said = run("grm", "stability", tmp_path / "empty", table, "-n", 2)
    assert (code, out, "no set was selected in any half" in said) == (0, "", True)
    page = tmp_path / "page.html"
    assert run("report", model, "--counts", table, "-o", page)[0] == 0
    assert fitted.report(rows, top=0).verdict in page.read_text()
    code, _, said = run("grm", "fit", table, "--alpha", "best", "-o", model)
    assert (code, "give a number > 0, cv or ebic" in said) == (2, True)
    code, _, said = run("report", model, "--header", "-o", page)
    assert (code, "--header has no effect without --counts" in said) == (2, True)


def test_a_fit_tells_counts_that_vary_more_than_their_base(request, tmp_path):
    run = request.getfixturevalue("run")  # of all commands; that of this module is of grm
    rng = np.random.default_rng(0)
    for name, rows in (
        ("wide", rng.negative_binomial(0.6, 0.3, (200, 4))),
        ("right", rng.poisson(1.4, (200, 4))),
    ):
        table, model = tmp_path / f"{name}.csv", tmp_path / f"{name}.npz"
        np.savetxt(table, rows, fmt="%d", delimiter=",", header="a,b,c,d", comments="")
        code, _, err = run("grm", "fit", table, "--quiet", "-o", model)
        assert (code, "the base poisson allows" in err) == (0, name == "wide")
        code, out, _ = run("grm", "report", model, table, "-n", 100)
        found = [line for line in out.splitlines() if line.startswith("verdict")]
        assert ("the base poisson allows" in found[0]) == (name == "wide")
