"""Columns of two tables are matched by name if both have names, otherwise by position."""

import re
import types
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")
from click.testing import CliRunner

import fstgrad as fg
from fstgrad.cli.commands.grm import grm
from fstgrad.core.errors import InvalidInputError
from tests.tables import Column, Labelled


class Frame:
    """What is needed of a data frame."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


NAMES = ["ape", "bee", "cat"]


def table(path, values, names=None):
    lines = [",".join(f"{x:g}" for x in row) for row in values]
    path.write_text("\n".join(([",".join(names)] if names else []) + lines) + "\n")
    return str(path)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 2)).round(3)
    return rng.poisson(np.exp(0.3 * z @ [[1, 0, -1], [0, 2, 1]])), z


def run(*arguments):
    done = CliRunner().invoke(grm, [str(a) for a in arguments])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("command", ["score", "report"])
def test_columns_of_counts(tmp_path, data, command):
    counts, _ = data
    model, other = tmp_path / "m.npz", tmp_path / "other.csv"
    given = table(tmp_path / "c.csv", counts, NAMES)
    run("fit", given, "--alpha", 0.05, "--threads", 1, "-o", model)
    expected = run(command, model, given)
    assert (
        run(command, model, table(other, counts[:, [2, 0, 1]], ["cat", "ape", "bee"])) == expected
    )
    wide = np.column_stack([counts[:, [2, 0, 1]], counts[:, 0]])
    assert run(command, model, table(other, wide, ["cat", "ape", "bee", "dog"])) == expected
    assert run(command, model, table(other, counts)) == expected  # no names: by position
    for names, said in (
        (["cat", "ape", "wasp"], "no column 'bee'"),
        (["x", "y", "z"], "no column 'ape', 'bee', 'cat'"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            run(command, model, table(other, counts[:, [2, 0, 1]], names))


def test_columns_of_frames_with_numbers_as_labels(data):
    """scikit-learn compares texts only."""
    counts, z = data
    model, turned = fg.GeneralizedRootModel(k=2, alpha=0.05), [2, 0, 1]
    for labels in ([0, 1, 2], [3, 7, 9], turned, [("a", 1), ("a", 2), ("b", 1)]):
        model.fit(Frame(counts, labels))
        expected = model.score(counts)
        assert model.score(Frame(counts, labels)) == expected
        others = Frame(counts[:, turned], [labels[i] for i in turned])
        with pytest.raises(InvalidInputError, match="in this order"):
            model.score(others)
        assert model.fit(others).score(others) == pytest.approx(expected, abs=1e-4)
        model.fit(counts, covariates=Frame(z, labels[:2]))
        with pytest.raises(InvalidInputError, match="in this order"):
            model.score(counts, covariates=Frame(z[:, ::-1], labels[1::-1]))
    with pytest.raises(InvalidInputError, match="in this order"):
        model.fit(Frame(counts, turned)).score(Frame(counts, [0, 1, 2]))
    assert model.fit(counts).score(Frame(counts, [3, 7, 9])) == model.score(counts)
    model.fit(Frame(counts, [float("nan"), 1.0, 2.0]))
    assert model.score(Frame(counts, [float("nan"), 1.0, 2.0])) == model.score(counts)


@pytest.mark.parametrize(
    "labels",
    [[0, 2, 1], [3.5, 7, 9], [("a", 1), ("a", None), ("b", 1)], list(np.arange(3, 6)),
     [np.datetime64("2024-01-01"), np.datetime64("2024-02-01"), 3], [True, "b", 3]],
)  # fmt: skip
def test_labels_are_in_files_of_models(tmp_path, data, labels):
    counts, z = data
    model, turned = fg.GeneralizedRootModel(k=2, alpha=0.05), [2, 0, 1]
    model.fit(Frame(counts, labels), covariates=Frame(z, labels[:2])).save(tmp_path / "m.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "m.npz")
    given = {"covariates": Frame(z, labels[:2])}
    assert loaded.score(Frame(counts, labels), **given) == model.score(counts, covariates=z)
    with pytest.raises(InvalidInputError, match="in this order"):
        loaded.score(Frame(counts[:, turned], [labels[i] for i in turned]), **given)
    with pytest.raises(InvalidInputError, match="in this order"):
        loaded.score(counts, covariates=Frame(z[:, ::-1], labels[1::-1]))


def test_a_set_has_one_line_whatever_its_names(tmp_path, data):
    counts, _ = data
    model, names = tmp_path / "m.npz", ['"a\nb"', '"c\td"', "é"]
    given = table(tmp_path / "c.csv", counts, names)
    run("fit", given, "--alpha", 0.05, "--threads", 1, "-o", model)
    rows = [line.split("\t") for line in run("top", model).splitlines()]
    assert {len(row) for row in rows} == {3}
    assert {row[2] for row in rows if row[0] == "1"} == {r"a\nb", r"c\td", "é"}


@pytest.mark.parametrize("saved", [False, True], ids=["fitted", "loaded"])
@pytest.mark.parametrize("way", ["argument", "labelled", "years", "tuples", "command"])
def test_columns_of_frames_are_those_of_a_fit_without_a_frame(tmp_path, data, way, saved):
    counts, _ = data
    path, turned, labels = tmp_path / "m.npz", [2, 0, 1], NAMES
    model = fg.GeneralizedRootModel(k=2, alpha=0.05)
    if way == "argument":
        model.fit(counts, feature_names=NAMES)
    elif way == "labelled":
        model.fit(Labelled(counts, NAMES))
    elif way == "command":
        run("fit", table(tmp_path / "c.csv", counts, NAMES), "--threads", 1, "-o", path)
    else:
        labels = [2001, 2002, 2003] if way == "years" else [("a", 1), ("a", 2), ("b", 1)]
        model.fit(Frame(counts, labels))
    if way != "command":
        model.save(path)
    if saved or way == "command":
        model = fg.GeneralizedRootModel.load(path)
    assert model.get_feature_names_out().tolist() == [str(label) for label in labels]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(Frame(counts, labels)) == model.score(counts)
        moved = [labels[i] for i in turned]
        tables = [Frame(counts[:, turned], moved)]
        if way in ("argument", "labelled", "command"):
            tables += [Labelled(counts[:, turned], moved), Frame(counts, [*NAMES[:2], "dog"])]
        for other in tables:
            with pytest.raises(InvalidInputError, match=r"that of the fit.*in this order"):
                model.score(other)
    written = table(tmp_path / "t.csv", counts[:, turned], [f'"{label}"' for label in moved])
    found = float(run("score", path, written, "--header"))
    assert found == pytest.approx(model.score(counts), abs=1e-10)


def test_columns_that_are_positions_match_any_names(data):
    counts, _ = data
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(counts, feature_names=["1", "2", "3"])
    for labels in ([0, 1, 2], ["column_0", "column_1", "column_2"], [7, 8, 9]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of scikit-learn, about texts
            assert model.score(Frame(counts, labels)) == model.score(counts)


def test_names_that_contradict_a_frame_are_an_error(data):
    with pytest.raises(InvalidInputError, match="leave feature_names out"):
        fg.GeneralizedRootModel(2).fit(Frame(data[0], NAMES), feature_names=NAMES[::-1])


def test_a_model_of_a_frame_is_scored_without_a_warning(tmp_path, data):
    counts, _ = data
    path = tmp_path / "m.npz"
    fg.GeneralizedRootModel(k=2, alpha=0.05).fit(Frame(counts, NAMES)).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("score", path, table(tmp_path / "c.csv", counts, NAMES))


def test_a_sparse_frame_may_leave_out_other_values_than_zero(data):
    counts, _ = data
    frame, model = Frame(counts, NAMES), fg.GeneralizedRootModel(k=2, alpha=0.05)
    frame.dtypes = [types.SimpleNamespace(fill_value=1, kind="O")] * 3
    frame.sparse = types.SimpleNamespace(to_dense=lambda: Frame(counts + 1, NAMES))
    assert model.fit(frame).score(counts + 1) == model.score(frame)


def test_a_report_names_the_rows_of_sets(tmp_path, data):
    counts, _ = data
    model, plain, named = (tmp_path / name for name in ("m.npz", "p.csv", "n.csv"))
    run("fit", table(plain, counts, NAMES), "--alpha", 0.05, "--threads", 1, "-o", model)
    head, *lines = plain.read_text().splitlines()
    named.write_text(f",{head}\n" + "".join(f"d{i},{row}\n" for i, row in enumerate(lines)))
    ours, theirs = (run("report", model, path, "-n", 20) for path in (plain, named))
    assert "(rows where it is largest, from 0)" in ours
    expected = re.sub(r"(?<= )(\d+)(?=[^(]*\)$)", r"d\1", ours.replace(", from 0", ""), flags=re.M)
    assert theirs == expected != ours


def test_a_model_without_names(tmp_path, data):
    counts, _ = data
    model, other = tmp_path / "m.npz", tmp_path / "other.csv"
    run("fit", table(tmp_path / "c.csv", counts), "--alpha", 0.05, "--threads", 1, "-o", model)
    expected = float(run("score", model, tmp_path / "c.csv"))
    assert float(run("score", model, table(other, counts, NAMES))) == expected
    shuffled = table(other, counts[:, [2, 0, 1]], ["x2", "x0", "x1"])  # the names of the model
    assert float(run("score", model, shuffled)) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(InvalidInputError, match="no column 'x1'"):
        run("score", model, table(other, counts, ["x2", "x0", "y"]))
    positions = table(other, counts[:, [2, 0, 1]], ["2", "0", "1"])
    found = float(run("score", model, positions, "--header"))
    assert found == pytest.approx(expected, abs=1e-12)


def test_columns_of_covariates(tmp_path, data):
    counts, z = data
    model, other = tmp_path / "m.npz", tmp_path / "z.csv"
    given, extra = table(tmp_path / "c.csv", counts, NAMES), table(other, z, ["age", "dose"])
    run("fit", given, "--covariates", extra, "--alpha", 0.05, "--threads", 1, "-o", model)
    assert fg.GeneralizedRootModel.load(model).covariate_names_ == ["age", "dose"]
    expected = float(run("score", model, given, "--covariates", extra))
    drawn = run(
        "sample", model, "-n", 3, "--seed", 1, "--covariates", table(other, z[:1], ["age", "dose"])
    )
    assert drawn == run(
        "sample", model, "-n", 3, "--seed", 1,
        "--covariates", table(other, z[:1, ::-1], ["dose", "age"]),
    )  # fmt: skip
    turned = table(other, z[:, ::-1], ["dose", "age"])
    assert float(run("score", model, given, "--covariates", turned)) == pytest.approx(expected)
    assert float(run("score", model, given, "--covariates", table(other, z))) == expected
    with pytest.raises(InvalidInputError, match="no column 'dose'"):
        run("score", model, given, "--covariates", table(other, z, ["age", "weight"]))


def test_covariates_in_a_data_Frame(tmp_path, data):
    counts, z = data
    model = fg.GeneralizedRootModel(2, alpha=0.05).fit(
        counts, covariates=Frame(z, columns=["age", "dose"])
    )
    model.save(tmp_path / "m.npz")
    for fitted in (model, fg.GeneralizedRootModel.load(tmp_path / "m.npz")):
        expected = fitted.score(counts, covariates=z)
        assert fitted.score(counts, covariates=Frame(z, columns=["age", "dose"])) == expected
        turned = Frame(z[:, ::-1], columns=["dose", "age"])
        with pytest.raises(InvalidInputError, match=r"covariates\[\['age', 'dose'\]\]"):
            fitted.score(counts, covariates=turned)
        assert fitted.score(counts, covariates=Frame(z, columns=["age", "dose"])) == expected


def test_covariates_with_numbers_as_labels(tmp_path, data):
    counts, z = data
    model = fg.GeneralizedRootModel(2, alpha=0.05).fit(counts, covariates=Frame(z, [2001, 2002]))
    model.save(tmp_path / "m.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "m.npz")
    expected = model.score(counts, covariates=z)
    assert loaded.score(counts, covariates=Frame(z, [2001, 2002])) == expected
    with pytest.raises(InvalidInputError, match="in this order"):
        loaded.score(counts, covariates=Frame(z[:, ::-1], [2002, 2001]))
    with pytest.raises(InvalidInputError, match="in their order"):
        loaded.at(Column(z[0, ::-1].tolist(), [2002, 2001]))
    given = table(tmp_path / "c.csv", counts, NAMES)
    turned = table(tmp_path / "z.csv", z[:, ::-1], ["2002", "2001"])
    found = run("score", tmp_path / "m.npz", given, "--covariates", turned, "--header")
    assert float(found) == pytest.approx(expected, abs=1e-10)


def test_a_row_with_labels_has_those_of_the_fit(data):
    counts, z = data
    model = fg.GeneralizedRootModel(2, alpha=0.05).fit(counts, feature_names=NAMES)
    conditional = fg.GeneralizedRootModel(2, alpha=0.05).fit(
        counts, covariates=Frame(z, columns=["age", "dose"])
    )
    row = counts[3] + np.arange(3)
    calls = {
        "x": (lambda x: model.node_conditional(1, x).mean(), row, NAMES),
        "v": (lambda v: model.radial_conditional(v).sample(2, rng=0), row, NAMES),
        "covariates": (lambda z: conditional.at(z).sample(2, rng=0), z[0], ["age", "dose"]),
    }
    for name, (call, values, labels) in calls.items():
        np.testing.assert_array_equal(call(Column(values.tolist(), labels)), call(values))
        moved = Column(values[::-1].tolist(), labels[::-1])
        with pytest.raises(InvalidInputError, match=f"^{name} has the labels.*of the fit are"):
            call(moved)


@pytest.mark.parametrize("name", [None, np.nan, np.datetime64("NaT"), b"bee"])
def test_what_is_no_name_is_an_error(data, name):
    with pytest.raises(InvalidInputError, match=r"^feature_names\[1\] is "):
        fg.GeneralizedRootModel(2).fit(data[0], feature_names=["ape", name, "cat"])
