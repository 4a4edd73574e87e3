"""Tables on the command line: how they are read, their options, and rows matched by name."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.main import main

pytest.importorskip("sklearn")
X = np.array([[5.0, 2], [3, 1], [4, 0], [0, 3], [2, 2]])
OFFSET = [0.3, 0.1, -0.2, 0.4, 0.0]
WEIGHT = [1.0, 2, 0, 1, 1]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"d{i},{a:g},{b:g}" for i, (a, b) in enumerate(X)]
    (tmp_path / "counts.csv").write_text("\n".join([",cat,dog", *lines]))
    turned = [f"d{i},{OFFSET[i]}" for i in (3, 1, 0, 4, 2)]
    (tmp_path / "offset.csv").write_text("\n".join([",o", *turned]))
    (tmp_path / "weights.csv").write_text("\n".join(["w", *map(str, WEIGHT)]))
    return tmp_path


def failed(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code in (1, 2)
    return capsys.readouterr().err.splitlines()[-1]


FIT = ("grm", "fit", "counts.csv", "--alpha", "0.1", "--threads", "1", "-o", "m.npz")


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0


def test_offsets_by_name_and_weights_by_position(here, capsys):
    run(*FIT, "--tol", "1e-9", "--offset", "offset.csv", "--weights", "weights.csv")
    said = capsys.readouterr().err.splitlines()
    names = "column 1 ('') has the names of the rows"
    assert said == [
        f"counts.csv: 5 row(s), 2 column(s); header ['cat', 'dog']; {names}",
        f"offset.csv: 5 row(s), 1 column(s); header ['o']; {names}",
        "weights.csv: 5 row(s), 1 column(s); header ['w']",
    ]
    model = fg.GeneralizedRootModel(alpha=0.1, tol=1e-9)
    model.fit(X, offset=OFFSET, sample_weight=WEIGHT)
    run("grm", "score", "m.npz", "counts.csv", "--offset", "offset.csv", "--weights", "weights.csv")
    score = float(capsys.readouterr().out)
    assert score == pytest.approx(model.score(X, offset=OFFSET, sample_weight=WEIGHT), abs=1e-8)


def test_rows_that_cannot_be_matched(here, capsys):
    text = (here / "offset.csv").read_text()
    for old, new, message in (
        (
            "d3",
            "d9",
            "offset.csv has no row 'd3'; counts.csv has no row 'd9'; use the names of counts.csv "
            "as names in offset.csv, or delete the column of names in one",
        ),
        ("d3", "d1", "offset.csv has the name 'd1' more than once; make them different"),
        ("d3", "d3,0\nd9", "counts.csv has no row 'd9'"),
    ):
        (here / "offset.csv").write_text(text.replace(old, new))
        assert message in failed(capsys, *FIT, "--offset", "offset.csv")
    assert "--offset has 2 columns" in failed(capsys, *FIT, "--offset", "counts.csv")


def test_options_of_errors_work(here, capsys):
    (here / "counts.csv").write_text("0,1\n5,2\n3,1\n4,0\n0,3\n2,2\n")
    assert failed(capsys, *FIT).endswith("give --header if they are, --no-header if they are a row")
    run(*FIT, "--no-header")
    assert fg.GeneralizedRootModel.load("m.npz").names_ == ["x0", "x1"]
    run(*FIT, "--header")
    assert fg.GeneralizedRootModel.load("m.npz").names_ == ["0", "1"]
    (here / "counts.csv").write_text("doc,cat,dog\n1,5,2\n2,3,1\n3,4,0\n")
    assert '"' not in failed(capsys, *FIT)
    for column in ("1", "doc"):
        run(*FIT, "--index-column", column)
        assert fg.GeneralizedRootModel.load("m.npz").names_ == ["cat", "dog"]
    run(*FIT, "--index-column", "none")
    assert fg.GeneralizedRootModel.load("m.npz").names_ == ["doc", "cat", "dog"]
    assert "--index-column x is not a column" in failed(
        capsys, *FIT, "--index-column", "none", "--index-column", "x"
    )
    np.save("counts.npy", X)
    given = [part.replace(".csv", ".npy") for part in FIT]
    assert "no effect without a .csv or .tsv" in failed(capsys, *given, "--header")
