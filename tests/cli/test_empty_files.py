"""Files of pairs without a row: one line that names the file, whatever the command."""


def test_files_without_rows(run, tmp_path):
    pairs, empty, model = (tmp_path / name for name in ("pairs.tsv", "empty.tsv", "model"))
    pairs.write_text("ab\tx y\nba\ty x\n" * 3)
    empty.write_text("")
    assert run("train", pairs, "--tokens-y", "words", "--epochs", 1, "-o", model)[0] == 0
    other = "--tokens-y", "words", "-o", tmp_path / "other"
    for args in (
        ("train", empty, *other), ("train", pairs, "--validation", empty, *other),
        ("evaluate", model, empty), ("compare", model, model, empty), ("align", empty),
    ):  # fmt: skip
        wanted = f"fstgrad: {empty} has no rows; a row is x, one tab, y"
        code, _, err = run(*args)
        assert (code, err.splitlines()[-1]) == (1, wanted)
    assert "x, one tab, tags, one tab, y" in run("train", empty, "--tags", 2, *other)[2]
