"""`fstgrad align`."""


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
    assert "raise --max-x or --max-y" in err
    path.write_text("ab\tx\nabc\txy\n")
    args = ("--max-y", 1, "--no-empty-x", "--no-empty-y", "--normalization", "conditional")
    code, out, err = run("align", path, *args)
    assert (code, out.splitlines()[0], "nan" in err) == (0, "a+b:x", False)
    assert out.splitlines()[1] in ("a:x b+c:y", "a+b:x c:y")
