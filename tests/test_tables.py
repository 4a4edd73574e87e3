"""Files of pairs: TSV, CSV with a header, FASTA, each compressed or not; standard alphabets."""

import gzip
import io
import re
import sys

import pytest

import fstgrad as fg
from fstgrad.io import Pair, read_alphabet, read_pairs, read_table

PAIRS = [Pair(("a", "b"), ("c",)), Pair(("d",), ("e", "f"))]
FILES = {
    "pairs.tsv": b"ab\tc\nd\tef\n",
    "pairs.csv": b"x,y\nab,c\nd,ef\n",
    "upper.csv": b"\xef\xbb\xbfHypothesis, Target\r\nab,c\r\n\r\nd,ef\r\n",
    "wide.csv": b'id,target,note,source\n1,c,"one, two",ab\n2,ef,"3\n4",d\n',
    "semicolons.csv": b'"x";"y"\nab;c\nd;"ef"\n',
    "columns.txt": b"y,x\nc,ab\nef,d\n",
    "pairs.fa": b">one\nab\n>two\nc\n>three\nd\n>four\ne\nf\n",
    "windows.fasta": b">one\r\na b\r\n\r\n>two\r\nc\r\n>three\r\nd\r\n>four\r\nef",
}


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_formats(tmp_path, name, compressed, monkeypatch):
    content = gzip.compress(FILES[name]) if compressed else FILES[name]
    path = written(tmp_path, name + (".gz" if compressed else ""), content)
    assert list(read_pairs(path)) == PAIRS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert list(read_pairs("-")) == PAIRS


def test_places_are_lines_of_the_file(tmp_path):
    lines = {
        name: [row.line for row in read_table(written(tmp_path, name, FILES[name]))]
        for name in FILES
    }
    assert lines["pairs.tsv"] == [1, 2]
    assert lines["pairs.csv"] == [2, 3]
    assert lines["wide.csv"] == [2, 3]
    assert lines["pairs.fa"] == [1, 5]


def test_a_header_with_other_names_is_told(tmp_path):
    path = written(tmp_path, "words.csv", b"word,phones\nab,c\n")
    with pytest.warns(UserWarning, match="words.csv:1 is taken as the header: x is 'word', y is"):
        assert list(read_pairs(path)) == PAIRS[:1]


@pytest.mark.parametrize(
    "header", ["reference,hypothesis", "ref,hyp", "output,input", "target,source", "y,x"]
)
def test_names_decide_which_column_is_x(tmp_path, header):
    assert list(read_pairs(written(tmp_path, "p.csv", f"{header}\nc,ab\n".encode()))) == PAIRS[:1]


@pytest.mark.parametrize("header", ["gold,pred", "label,text", "target,prediction", "word,input"])
def test_a_name_of_the_other_column_is_not_taken_by_position(tmp_path, header):
    with pytest.raises(fg.InvalidInputError, match="name 2 of them x, y"):
        list(read_pairs(written(tmp_path, "p.csv", f"{header}\nc,ab\n".encode())))


def test_a_csv_file_with_tabs_has_a_header(tmp_path):
    path = written(tmp_path, "p.csv", b"y\tx\nc\tab\nef\td\n")
    assert list(read_pairs(path)) == PAIRS
    path = written(tmp_path, "none.csv", b"ab\tc\nd\tef\n")
    with pytest.warns(UserWarning, match="none.csv:1 is read as a row: it does not name columns x"):
        assert list(read_pairs(path)) == PAIRS


def test_quotes_of_csv_in_tsv_are_told_once(tmp_path):
    """What pandas writes for a quote, with tabs between the columns."""
    content = b'"a ""b"""\tb\n""""\tc\n'
    path = written(tmp_path, "p.tsv", b'a\t""b""\n' + content)
    with pytest.warns(UserWarning, match=r'p.tsv:2: \'"a ""b"""\' has the quotes of CSV') as told:
        pairs = list(read_pairs(path, tokens_x="words"))
    assert len(told) == 1
    assert pairs[1].x == ('"a', '""b"""')
    named = list(read_pairs(written(tmp_path, "p.csv", b"x\ty\n" + content), tokens_x="words"))
    assert named[0].x == ("a", '"b"')


def test_spaces_after_the_commas_of_a_header_are_no_symbols(tmp_path):
    assert list(read_pairs(written(tmp_path, "p.csv", b"x, y\nab, c\n"))) == PAIRS[:1]
    assert next(read_pairs(written(tmp_path, "q.csv", b"x,y\nab, c\n"))).y == (" ", "c")


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("p.csv", b"a,b,c\n1,2,3\n", r"p.csv:1: the header has the columns 'a', 'b', 'c'; name 2"),
        ("p.csv", b"x,x,y\n1,2,3\n", "the header has the columns 'x', 'x', 'y'"),
        ("p.csv", b"\n", "the header has the columns none"),
        ("p.csv", b"x,y\na\n", r"p.csv:2: 1 column\(s\) in 'a'"),
        ("p.csv", b"x,y\na,b,c\n", r"p.csv:2: 3 column\(s\)"),
        ("p.csv", b'x,y\na,"b\n', "p.csv:2: not CSV: unexpected end of data"),
        ("p.csv", b"x,y\na,\xff\n", "p.csv:2: not UTF-8 text"),
        ("p.csv", "x,y\na,b\n".encode("utf-16"), "p.csv:1: not UTF-8 text"),
        ("p.csv", b"x,y\ra,b\r", "p.csv:1: not CSV: a carriage return within a line"),
        ("p.tsv", b"Target\thypothesis\nab\tc\n", r"p.tsv:1: .* are names of columns.* delete"),
        ("p.fa", b">1\nab\n>2\nc\n>3\nd\n", "p.fa:5: a sequence without a partner"),
        ("p.fa", b">1", "p.fa:1: a sequence without a partner"),
        ("p.tsv", b"> a\n", "without a partner"),
        ("p.tsv", b"hello, world\n", r"p.tsv:1: 1 column\(s\)"),
        ("p.gz", gzip.compress(b"ab\tc\n" * 99, mtime=0)[:-9], "p.gz: the gzip data are damaged"),
        ("p.gz", b"\x1f\x8bnothing", "p.gz: the gzip data are damaged"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, content, said):
    with pytest.raises(fg.FstgradError, match=said):
        list(read_pairs(written(tmp_path, name, content)))


def test_an_empty_file_has_no_rows(tmp_path):
    assert list(read_table(written(tmp_path, "p.csv", b""))) == []


def test_a_tsv_row_that_begins_with_a_sign_is_no_fasta(tmp_path):
    path = written(tmp_path, "p.tsv", b">a\tb\n>c\td\n")
    assert [row.columns() for row in read_table(path)] == [[">a", "b"], [">c", "d"]]


@pytest.mark.parametrize(
    "content",
    [
        b"\n>a\nAC\n>b\nAG\n",
        b"; of Pearson's programs\n;\n>a\nAC\n; a note\n>b\n\nAG\n",
        b">a\tthe first\nAC\n>b\nA\nG\n",
        b">a\nAC\n>b\tthe second\nAG\n",
    ],
)
def test_blank_lines_comments_and_tabs_of_headers_are_no_sequences(tmp_path, content):
    assert list(read_pairs(written(tmp_path, "p.fa", content))) == [(("A", "C"), ("A", "G"))]


def test_a_semicolon_or_a_blank_line_first_does_not_make_fasta(tmp_path):
    rows = list(read_table(written(tmp_path, "p.tsv", b";\ta\n>\tb\n")))
    assert [row.columns() for row in rows] == [[";", "a"], [">", "b"]]
    first, *_ = read_table(written(tmp_path, "p.tsv", b"\nab\tc\n"))
    assert (first.line, first.raw) == (1, b"")


@pytest.mark.parametrize("line", ["a\t1", "b # a comment", "c "])
def test_ids_and_comments_are_no_symbols(tmp_path, line):
    """No symbol of data has white space beside other characters; a space alone may be one."""
    assert read_alphabet(written(tmp_path, "s.txt", b" \n#\nab\n")).symbols == (" ", "#", "ab")
    path = written(tmp_path, "s.txt", f"x\n{line}\n".encode())
    with pytest.raises(fg.AlphabetError, match=f"s.txt:2: {re.escape(repr(line))} has white space"):
        read_alphabet(path)


def test_alphabets_by_name(tmp_path, monkeypatch):
    assert "".join(read_alphabet("rna")) == "ACGU"
    assert len(fg.Alphabet.named("protein")) == 20
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "dna", b"a\nb\n")
    assert read_alphabet("./dna").symbols == ("a", "b")
    assert read_alphabet("dna") == fg.Alphabet("ACGT")
    said = "name is 'greek'; choose one of protein, dna, rna"
    with pytest.raises(fg.AlphabetError, match=said):
        fg.Alphabet.named("greek")
