"""`fstgrad marginals --plot`: the picture, and names that are refused at once."""

import pytest

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    "ending, start", [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")]
)
def test_the_table_is_drawn(run, tmp_path, ending, start):
    (tmp_path / "pairs").write_text("ab\tba\n")
    path = tmp_path / f"q.{ending}"
    code, out, err = run("marginals", tmp_path / "pairs", "--plot", path)
    assert (code, err) == (0, "fstgrad: alphabet: 2 symbols from the data\n")
    assert out.startswith("position\tqgram\tprobability\n")
    assert path.read_bytes().startswith(start)


def test_other_names_are_refused(run, tmp_path):
    (tmp_path / "pairs").write_text("no pair\n")
    code, out, err = run("marginals", tmp_path / "pairs", "--plot", tmp_path / "q.gif")
    assert (code, out) == (1, "")
    assert ".png, .svg, .pdf" in err
    assert err.count("\n") == 1
