"""`fstgrad align`."""

import itertools
import json
from urllib.parse import unquote

import fstgrad as fg
from fstgrad.learning.align import Aligner


def test_a_conditional_log_probability_may_exceed_0(run, tmp_path):
    """Several places for an empty side, each of which has p(v | u) near 1."""
    path = tmp_path / "pairs.tsv"
    path.write_text("ab\tc\na\tc\nab\tc\n")
    options = ("--json", "--normalization", "conditional", "--max-y", 1)
    lines = map(json.loads, run("align", path, *options)[1].splitlines())
    assert max(line["log_probability"] for line in lines) > 0
    assert "log_probability may exceed 0" in " ".join(run("align", "--help")[1].split())


def test_align_writes_links(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("ax\taks\nxa\tksa\na\ta\n")
    code, out, err = run("align", path, "--max-x", 1, "--no-empty-x")
    assert (code, out) == (0, "a:a x:k+s\nx:k+s a:a\na:a\n")
    assert err.startswith("iteration 1: ")
    code, out, _ = run("align", path, "--max-x", 1, "--no-empty-x", "--with-posteriors")
    assert out.splitlines()[2] == "a:a:1.000"
    path.write_text("a\tbcd\n")
    code, out, err = run("align", path, "--max-x", 1, "--max-y", 1, "--no-empty-x")
    assert (code, out) == (1, "")
    assert f"{path}:1: y has 3 symbols" in err
    assert "raise --max-y to 3, or leave out --no-empty-x" in err
    path.write_text("ab\tx\nabc\txy\n")
    args = ("--max-y", 1, "--no-empty-x", "--no-empty-y", "--normalization", "conditional")
    code, out, err = run("align", path, *args)
    assert (code, out.splitlines()[0], "nan" in err) == (0, "a+b:x", False)
    assert out.splitlines()[1] in ("a:x b+c:y", "a+b:x c:y")


def test_symbols_that_separate_links_are_escaped(run, tmp_path):
    """Fields are split first and read by the standard library then: the pairs come back."""
    path = tmp_path / "pairs.tsv"
    pairs = [(":+_%", "a b"), ("_", "%5F"), ("\u3000\u2028é", "_:"), ("ab", "\u00a0+")]
    path.write_text("".join(f"{x}\t{y}\n" for x, y in pairs))
    code, out, _ = run("align", path, "--with-posteriors")
    assert code == 0
    for line, pair in zip(out.split("\n")[:-1], pairs, strict=True):
        fields = [link.split(":") for link in line.split(" ")]
        assert [len(link) for link in fields] == [3] * len(fields)
        for side, string in enumerate(pair):
            symbols = [link[side].split("+") for link in fields if link[side] != "_"]
            assert [unquote(symbol) for symbol in itertools.chain(*symbols)] == list(string)


def test_json_lines_are_those_of_the_library(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a: b\ta _\nb\t_ b\n")
    words = ("--tokens-x", "words", "--tokens-y", "words")
    code, out, _ = run("align", path, "--json", *words)
    pairs = [(("a:", "b"), ("a", "_")), (("b",), ("_", "b"))]
    aligned = Aligner(2, 2).fit(pairs).align_all(pairs)
    assert code == 0
    for line, expected in zip(out.splitlines(), aligned, strict=True):
        links = [[list(u), list(v)] for u, v in expected.links]
        posterior, log_probability = list(expected.posterior), expected.log_probability
        assert json.loads(line) == {
            "links": links, "posterior": posterior, "log_probability": log_probability
        }  # fmt: skip
    code, _, err = run("align", path, "--json", "--with-posteriors")
    assert (code, "--with-posteriors" in err) == (2, True)


def test_bad_rows_are_named_or_skipped(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tx\na\t\n\tx\na\na\tbcd\nb\ty\n")
    code, out, err = run("align", path, "--max-y", 1)
    assert (code, out) == (1, "")
    assert err == f"fstgrad: {path}:2: y is empty; give at least one symbol\n"
    args = ("--no-empty-x", "--max-y", 1, "--skip-errors")
    code, out, err = run("align", path, *args)
    assert (code, out) == (0, "a:x\n\n\n\n\nb:y\n")
    assert f"{path}:3: x is empty" in err
    assert f"{path}:4: 1 column" in err
    assert f"{path}:5: y has 3 symbols and x has 1" in err
    assert "raise --max-y to 3, or leave out --no-empty-x" in err
    assert "skipped 4 of 6 rows" in err
    assert run("align", path, "--json", *args)[1].splitlines()[1] == "null"


def test_pairs_that_no_link_aligns_are_those_of_the_library(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    sizes = list(itertools.product(range(1, 6), range(1, 6)))
    path.write_text("".join("a" * m + "\t" + "b" * n + "\n" for m, n in sizes))
    for most_x, most_y, empty_x, empty_y in itertools.product((1, 2), (1, 3), (0, 1), (0, 1)):
        args = ["--max-x", most_x, "--max-y", most_y, "--max-iter", 1, "--skip-errors"]
        args += ["--no-empty-x"] * (not empty_x) + ["--no-empty-y"] * (not empty_y)
        lines = run("align", path, *args)[1].splitlines()
        aligner = Aligner(most_x, most_y, empty_x=bool(empty_x), empty_y=bool(empty_y), max_iter=1)
        for line, (m, n) in zip(lines, sizes, strict=True):
            try:
                aligner.fit([(("a",) * m, ("b",) * n)])
            except fg.InfeasibleError:
                assert not line
            else:
                assert line
