import io
import sys

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.io import (
    Items,
    Pair,
    arrays,
    check_writable,
    matched,
    read_alphabet,
    read_confusion,
    read_pairs,
    read_rows,
    read_weights,
    write_arrays,
)


def rows_of(tmp_path, content):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    return list(read_rows(path))


def test_pairs_of_characters_and_words(tmp_path):
    (row,) = rows_of(tmp_path, b"cat\tK AE T\n")
    assert row.pair("chars", "words") == Pair(("c", "a", "t"), ("K", "AE", "T"))
    assert row.pair("words", "chars") == Pair(("cat",), ("K", " ", "A", "E", " ", "T"))


@pytest.mark.parametrize(
    "content",
    [b"a\tb\nc\td\n", b"a\tb\nc\td", b"a\tb\r\nc\td\r\n", b"\xef\xbb\xbfa\tb\nc\td\n"],
    ids=["unix", "no end of line", "windows", "byte order mark"],
)
def test_line_ends(tmp_path, content):
    assert [row.columns() for row in rows_of(tmp_path, content)] == [["a", "b"], ["c", "d"]]


def test_code_points_are_symbols(tmp_path):
    (row,) = rows_of(tmp_path, "ä\tœß".encode())
    assert row.pair() == Pair(("ä",), ("œ", "ß"))


@pytest.mark.parametrize(
    "bad, said",
    [
        (b"one column", r"pairs.tsv:2: 1 column\(s\) in 'one column'; a row is x, one tab, y"),
        (b"a\tb\tc", r"pairs.tsv:2: 3 column\(s\)"),
        (b"", r"pairs.tsv:2: 1 column\(s\) in ''"),
        (b"a\t\xff", "pairs.tsv:2: not UTF-8 text.*convert the text"),
    ],
)
def test_malformed_rows_name_their_place_and_the_next_is_read(tmp_path, bad, said):
    rows = rows_of(tmp_path, b"a\tb\n" + bad + b"\nc\td\n")
    pairs = read_pairs(tmp_path / "pairs.tsv")
    assert next(pairs) == Pair(("a",), ("b",))
    with pytest.raises(fg.RowError, match=said):
        next(pairs)
    assert rows[2].columns() == ["c", "d"]


def test_reserved_symbol(tmp_path):
    (row,) = rows_of(tmp_path, b"a\tb <eps>")
    with pytest.raises(fg.InvalidInputError, match="'<eps>' means the empty string"):
        row.pair("chars", "words")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n")))
    (row,) = read_rows("-")
    assert (row.place, row.columns()) == ("<stdin>:1", ["a", "b"])


def test_alphabet_file(tmp_path):
    path = tmp_path / "abc.txt"
    path.write_text("T\nAH\n \n")
    assert read_alphabet(path).symbols == ("T", "AH", " ")


@pytest.mark.parametrize(
    "content, said",
    [
        ("a\n\nb\n", "abc.txt:2: an empty line"),
        ("a\nb\na\n", "abc.txt:3: 'a' is already on line 1"),
        ("", "abc.txt: symbols is empty"),
        ("<eps>\n", "abc.txt: symbols has '<eps>'"),
    ],
)
def test_bad_alphabet_files(tmp_path, content, said):
    path = tmp_path / "abc.txt"
    path.write_text(content)
    with pytest.raises(fg.AlphabetError, match=said):
        read_alphabet(path)


def test_files_compressed_otherwise_are_to_be_decompressed(tmp_path):
    (row,) = rows_of(tmp_path, b"PK\x03\x04\xff")
    with pytest.raises(fg.InvalidInputError, match=r"not UTF-8 text.*decompress the file"):
        row.text()


def test_confusion_table(tmp_path):
    path = tmp_path / "costs.tsv"
    path.write_text("a\tb\t0.25\nb\tb\t0.5\n")
    costs = read_confusion(path, fg.Alphabet("ab"), substitute_cost=2)
    np.testing.assert_array_equal(costs, [[0, 0.25], [2, 0.5]])
    path.write_text("\u03b5\t\u03b1\t0.25\n")  # in Greek, epsilon is a letter
    costs = read_confusion(path, fg.Alphabet("\u03b1\u03b5"))
    np.testing.assert_array_equal(costs, [[0, 1], [0.25, 0]])


@pytest.mark.parametrize(
    "content, said",
    [
        ("a\tb\n", "costs.tsv:1: 2 column"),
        ("a\tb\t1\na\tx\t1\n", r"costs.tsv:2: pair\[1\] is 'x'"),
        ("b\ta\t1\na\t@0@\t.2\n", "costs.tsv:2: the pair has '@0@', .* insert_cost= and delete_"),
        ("@_EPSILON_SYMBOL_@\ta\t1\n", "the pair has '@_EPS.* or rules such as c -> 0 0.2"),
        ("<eps>\ta\t1\n", "the pair has '<eps>', which stands for no symbol"),
        ("a\t\t1\n", "the pair has '', which stands for no symbol"),
        ("a\t\u03b5\t1\n", "the pair has '\u03b5', which stands for no symbol"),
        ("a\tb\tmuch\n", "costs.tsv:1: cost is not"),
        ("a\tb\tnan\n", "costs.tsv:1: cost"),
        ("a\tb\t1_0\n", "costs.tsv:1: cost is not a number: '1_0'"),
        ("a\tb\t\u0661\n", "costs.tsv:1: cost is not a number"),
        ("a\tb\t1\na\tb\t2\n", "costs.tsv:2: the pair 'a', 'b' has a cost before"),
    ],
)
def test_bad_confusion_tables(tmp_path, content, said):
    path = tmp_path / "costs.tsv"
    path.write_text(content)
    with pytest.raises(fg.RowError, match=said):
        read_confusion(path, fg.Alphabet("ab"))


def test_numbered_items_that_match_by_position_are_in_order():
    sentences = Items([None, None], "gold", "sentence", "sent_id")
    assert matched(sentences, Items(["1", "2"], "scores", "table")) == [0, 1]
    with pytest.raises(fg.InvalidInputError, match="scores has the tables '2', '1' in this order"):
        matched(sentences, Items(["2", "1"], "scores", "table"))


def test_weights_round_trip(tmp_path):
    path = tmp_path / "w.npz"
    weights = np.random.default_rng(0).normal(size=(3, 3))
    write_arrays(path, weights=weights, symbols=["a", "b", "c"])
    read, alphabet = read_weights(path)
    np.testing.assert_array_equal(read, weights)
    assert alphabet == fg.Alphabet("abc")
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "w.npz"
    write_arrays(path, weights=[1.0])

    class Broken:
        def __array__(self, *_args, **_kwargs):
            raise OSError("disk full")

    with pytest.raises(fg.InvalidInputError, match="other is not an array: disk full"):
        write_arrays(path, weights=[2.0], other=Broken())
    assert read_weights(path)[0] == [1.0]
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_is_said_first(tmp_path, monkeypatch):
    path = tmp_path / "w.npz"
    write_arrays(path, weights=[1.0])
    for output, said in (
        (tmp_path, "is a folder; give a file"),
        (tmp_path / "no" / "w", "does not exist; create it first"),
        (path / "w", "does not exist; create it first"),
        ("/dev/null", "is a device or a pipe; give a regular file"),
        (tmp_path / ("a" * 300), "cannot be written: "),
    ):
        with pytest.raises(fg.InvalidInputError, match=f"the copy '.*' {said}"):
            check_writable(output, "the copy")
    check_writable(path)
    monkeypatch.setattr("os.access", lambda place, _: place != path)  # root may write anywhere
    with pytest.raises(fg.InvalidInputError, match=r"output '.*' exists and is read-only"):
        check_writable(path)
    monkeypatch.setattr("os.access", lambda place, _: place != tmp_path)
    with pytest.raises(fg.InvalidInputError, match=r"the folder of output '.*' is not writable"):
        check_writable(path)


def test_bad_weight_files(tmp_path):
    text = tmp_path / "text.npz"
    text.write_text("not an archive")
    with pytest.raises(fg.InvalidInputError, match=r"text.npz: not an npz file"):
        read_weights(text)
    array = tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    with pytest.raises(fg.InvalidInputError, match=r"array.npy: not an npz file"):
        read_weights(array)
    other = tmp_path / "other.npz"
    np.savez(other, w=np.zeros(3))
    with pytest.raises(fg.InvalidInputError, match=r"no array 'weights' among w"):
        read_weights(other)
    words = tmp_path / "words.npz"
    np.savez(words, weights=np.array(["a"]))
    with pytest.raises(fg.InvalidInputError, match="give floats"):
        read_weights(words)


def test_text_is_not_written_as_bytes(tmp_path):
    path = tmp_path / "whole"
    path.write_bytes(b"whole")
    with pytest.raises(fg.InvalidInputError, match="data"):
        fg.io.write_bytes(path, "text")
    assert path.read_bytes() == b"whole"


def test_arrays_of_just_the_allowed_size_are_read(monkeypatch):
    monkeypatch.setattr(arrays, "memory_limit", lambda: 100)
    arrays._check_total(100)
    with pytest.raises(fg.MemoryLimitError, match="need 101 bytes"):
        arrays._check_total(101)


@pytest.mark.parametrize("values", [[0, 4], [-1, 3], [4, 4]])
def test_numbers_outside_of_their_range_are_an_error(tmp_path, values):
    schema = {"ids": arrays.Field("integer", (None,), lower=0, upper=3)}
    path = tmp_path / "read.npz"
    np.savez(path, ids=[0, 3])
    assert arrays.read_arrays(path, schema, what="a table")["ids"].tolist() == [0, 3]
    np.savez(path, ids=values)
    with pytest.raises(fg.InvalidInputError, match=r"ids runs from .*, outside 0 .. 3"):
        arrays.read_arrays(path, schema, what="a table")
