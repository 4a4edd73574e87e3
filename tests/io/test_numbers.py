"""Tables of numbers in text: what the first line and the first column are, and where errors are."""

import gzip

import numpy as np
import pytest

from fstgrad.core.errors import FstgradError
from fstgrad.io import read_numbers

PANDAS = ",cat,dog\n0,5,2\n1,3,1\n2,4,0\n"  # df.to_csv()
R = '"cat","dog"\n"1",5,2\n"2",3,1\n"3",4,0\n'  # write.table(x, sep = ",")
VALUES = [[5, 2], [3, 1], [4, 0]]
NAMED = "id,cat,dog\n0,5,2\n1,3,1\n2,4,0\n"


def written(folder, text, name="t.csv"):
    data = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder / name


@pytest.mark.parametrize(
    "text, name, rows",
    [
        ("cat,dog\n5,2\n3,1\n4,0\n", "t.csv", None),
        ("cat,dog\n5,2\n3,1\n4,0\n", "t.csv.gz", None),
        ("\ufeffcat, dog\r\n5, 2\r\n3, 1\r\n4, 0\r\n", "t.CSV", None),
        ("\n \n\ncat;dog\n5;2\n\n3;1\n4;0\n\n", "t.csv", None),
        ("cat,dog\n\n \n5,2\n3,1\n4,0\n", "t.csv", None),
        ("cat\tdog\n5\t2\n3\t1\n4\t0", "t.tsv", None),
        ("cat\tdog\n5\t2\n3\t1\n4\t0", "t.csv", None),
        ("# cat dog\n5\n3\n4\n".replace(" dog", ",dog").replace("\n5", "\n5,2")
         .replace("\n3", "\n3,1").replace("\n4", "\n4,0"), "t.csv", None),
        (PANDAS, "t.csv", ["0", "1", "2"]),
        (R, "t.csv", ["1", "2", "3"]),
        (R.replace("\n", "\n\n"), "t.csv", ["1", "2", "3"]),
        (R.replace('"cat"', '"","cat"'), "t.csv", ["1", "2", "3"]),
        ("cat,dog\nx y,5,2\nb,3,1\nc,4,0\n", "t.csv", ["x y", "b", "c"]),
    ],
)  # fmt: skip
def test_tables_of_other_programs(tmp_path, text, name, rows):
    table = read_numbers(written(tmp_path, text, name))
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.names == ["cat", "dog"]
    assert table.rows == rows


def test_a_first_column_of_different_texts_names_the_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("document,cat,dog\nn1,1,2\nn2,0,3\n")
    table = read_numbers(path)
    assert (table.names, table.rows) == (["cat", "dog"], ["n1", "n2"])
    assert table.reading.endswith("; column 1 ('document') has the names of the rows")
    assert table.values.tolist() == [[1.0, 2.0], [0.0, 3.0]]
    for given in ({"index_column": "none"}, {"header": False}):
        with pytest.raises(FstgradError, match="not a number"):
            read_numbers(path, **given)


def test_names_keep_their_separators(tmp_path):
    path = written(tmp_path, '"a, ""b""",c d\n1,2.5e1\n')
    table = read_numbers(path)
    assert table.names == ['a, "b"', "c d"]
    assert table.values.tolist() == [[1.0, 25.0]]
    said = f"{path}: 1 row(s), 2 column(s); header ['a, \"b\"', 'c d']"
    assert table.reading == said


@pytest.mark.parametrize(
    "text", ["3,0,0\n1,2,2\n", "5\n", "1,2\n3,4\n", "0\n1\n2\n", "0,0\n1,5\n2,1\n"[4:]]
)
def test_a_first_line_of_numbers_is_a_row(tmp_path, text):
    table = read_numbers(written(tmp_path, text))
    expected = [[float(cell) for cell in line.split(",")] for line in text.split()]
    assert table.values.tolist() == expected
    assert table.names is None
    assert table.reading.endswith("no header")


@pytest.mark.parametrize(
    "first, rest",
    [
        ("0,1,2", "0,2,1\n"),
        ("7,8,9", "10,2,1\n"),
        ("2019,2020", "5,2\n"),
        ("10,100,1000", "5,2,7\n"),
        ("1,5", "0.5,2.5\n"),
        ("0.1,0.5", "5,0\n"),
        ("0", "0.5\n1.5\n"),
        ("age,2019,2020", "5,2,1\n"),
    ],
)
def test_numbers_that_may_be_names_need_the_argument(tmp_path, first, rest):
    path = written(tmp_path, f"{first}\n{rest}")
    with pytest.raises(FstgradError, match=r"t.csv:1: .*header=True if .*header=False"):
        read_numbers(path)
    table = read_numbers(path, header=True)
    assert table.names == first.split(",")
    assert len(table.values) == rest.count("\n")
    if "age" not in first:
        table = read_numbers(path, header=False)
        assert table.names is None
        assert table.values[0].tolist() == [float(cell) for cell in first.split(",")]


@pytest.mark.parametrize(
    "text",
    [NAMED, NAMED[11:], *(f"{n},cat,dog\n7,5,2\n12,3,1\n9,4,0\n" for n in ("index", "user_id"))],
)
def test_a_column_that_numbers_the_rows_needs_the_argument(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(FstgradError, match=r'column 1.* may number .*index_column="1" if .*"none"'):
        read_numbers(path)
    table = read_numbers(path, index_column="1")
    assert table.values.tolist() == VALUES
    assert read_numbers(path, index_column="none").values.shape == (3, 3)
    if text == NAMED:
        assert read_numbers(path, index_column="id").rows == table.rows == ["0", "1", "2"]
        assert read_numbers(path, index_column=("x", "id")).index_names == ("id", "1")
        with pytest.raises(FstgradError, match=r"t\.csv:1: no column 'x'; give .*'id, cat, dog'"):
            read_numbers(path, index_column="x")


def test_a_line_with_an_empty_first_field_is_no_row(tmp_path):
    """pandas writes a series without a name, and columns of numbers, so."""
    path = written(tmp_path, ",0\n0,5\n1,2\n")
    with pytest.raises(FstgradError, match=r"t.csv:1: .*header=True if .*header=False"):
        read_numbers(path)
    table = read_numbers(path, header=True)
    assert (table.names, table.rows) == (["0"], ["0", "1"])
    assert table.values.tolist() == [[5], [2]]


def test_an_index_that_was_saved_twice_is_no_data(tmp_path):
    path = written(tmp_path, ",Unnamed: 0,cat\n0,7,5\n1,3,3\n2,4,2\n")
    with pytest.raises(
        FstgradError, match=r"column 2 \('Unnamed: 0'\).*delete it .*index_column=\"1\""
    ):
        read_numbers(path)
    assert read_numbers(path, index_column="1").values.tolist() == [[7, 5], [3, 3], [4, 2]]


@pytest.mark.parametrize(
    "text, message",
    [
        (",cat,dog\n,1,2\n0,5,6\n", ":2: column 1 .* is empty; name the row"),
        ('"1,000","2,000"\n3,4\n', ":1: .* may be names of columns; give header=True"),
        ("inf,-inf\n3,4\n", ":1: .* may be names of columns; give header=True"),
        ("cat,dog\n\xa01,2\n", r":2: column 1 \('cat'\) is '\\xa01', not a number"),
        ("cat,dog\r1,2\r", ":1: not CSV: a carriage return within a line; end lines with"),
        (
            'cat,dog\n"1,000",2\n',
            r":2: column 1 \('cat'\) is '1,000', .* nothing between thousands",
        ),
        ("cat,dog\n1,000,2\n", r":2: 3 field\(s\), and the lines before have 2"),
        ("cat;dog\n1,5;2\n", r":2: column 1 \('cat'\) is '1,5', .*decimal point"),
        ("cat;dog\n2;12.000\n3;1\n", r":2: column 2 \('dog'\) is '12.000', .*be 12000 where"),
        ("1,5;2,5\n", ":1: the line has ',' and ';'"),
        ("cat,dog\n1,2\n3\n", r":3: 1 field\(s\), and the lines before have 2"),
        ("1,2\n3\n", r":2: 1 field\(s\), and the lines before have 2"),
        ("cat,dog\n1,NaN\n", r":2: column 2 \('dog'\) is nan"),
        ("1,NA\n2,3\n", ":1: column 2 is 'NA'; fill in a number, or leave the row out"),
        ("cat,dog\n1,\n", r":2: column 2 \('dog'\) is empty"),
        ("cat\n\n1\n2\n", r":2: column 1 \('cat'\) is empty"),
        ("cat\n1\n\n2\n", r":3: column 1 \('cat'\) is empty"),
        ("cat,dog\n1,1e999\n", "column 2 .* is inf"),
        ("cat,dog\n1_0,2\n", "is '1_0', not a number"),
        ("cat,dog\n1,\uff12\n", "is '\uff12', not a number"),
        ("cat,dog\n1,TRUE\n", "is 'TRUE', not a number"),
        ("doc,dog\nx,1\ny,2\nx,3\n", r":4: .*'doc'\) is 'x', as in line 2.*index_column=\"1\" if"),
        ("doc,dog\nx,1\n7,2\n", r":3: column 1 \('doc'\) is '7', and texts.*index_column=\"1\""),
        ("doc,dog\nx,1\nNA,2\n", r":3: column 1 \('doc'\) is 'NA', and texts before"),
        ("doc,dog\n1,1\nx,2\n", r":3: column 1 .* is 'x', not a number; .*index_column=\"1\""),
        ("doc,dog\nx,y\n", r":2: column 1 .* is 'x', not a number; .*index_column=\"1\""),
        ("doc,2019\nx,1\n", ":1: 'doc' is a text and '2019' a number; .*header=True"),
        ("x,1,2\ny,2,3\n", ":1: 'x' is a text and '1' a number; .*index_column=\"1\""),
        (
            "cat,dog\n1,1\nTotal,1\n",
            r":3: .* 'Total', not a number; correct it, or give index_column",
        ),
        ("cat,dog\n1,1\nmissing,1\n", ":3: .* is 'missing'; fill in a number"),
        ("null,NA\n1,2\n", ":1: column 1 is 'null'; .*; give header=True if line 1 names"),
        ("doc,dog\nNA,1\nb,2\n", r":2: .*'doc'\) is 'NA'; fill in .*; give index_column=\"1\" if"),
        ("# made by x\ncat,dog,mat\n1,2,3\n", ":1: '# made by x' is a comment; delete the line"),
        ("cat|dog\n1|2\n", r":2: .* is '1\|2', not a number; separate fields by a comma"),
        ('"cat" "dog"\n"1" 5 2\n', ":1: blanks or bars separate the fields; separate"),
        ("sep=;\ncat;dog\n1;2\n", ":1: 'sep=;' is for Excel; delete the line"),
        ("cat,cat\n1,2\n", ":1: column 1 .* has the name of column 2"),
        ("cat,dog,\n1,2,\n", ":1: column 3 .* has no name"),
        ('cat,dog\n"1,2\n', ":2: not CSV: unexpected end"),
        ("cat,dog\n", "no row of numbers"),
        ("\n \n", "no row of numbers"),
        ("a\xe4,b\n".encode("latin-1"), ":1: not UTF-8"),
        ("cat,dog\n1,2\n".encode("utf-16"), ":1: "),
        ("# made by x\ncat,dog\n1,2\n", r":2: 2 field\(s\)"),
    ],
)
def test_errors_name_the_line_and_the_column(tmp_path, text, message):
    with pytest.raises(FstgradError, match=r"t\.csv.*" + message):
        read_numbers(written(tmp_path, text))
