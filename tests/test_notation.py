"""The page of notation: every row names code that is in the file to which it links."""

import importlib.util
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parent.parent / "docs/internals/notation.md"
PAPERS = ["Strings", "Spanning trees", "Markov random fields", "Generalized root models"]
CODE = PAGE.parent.parent / "code_lines.py"
SPEC = importlib.util.spec_from_file_location("code_lines", CODE)
code_lines = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(code_lines)
LINK = re.compile(r"\[[^]]*\]\(([^)#]+)\)")


def rows():
    """Yield (letter, names, file) of the rows of all tables."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and LINK.search(cells[3]):
            assert cells[4], f"{cells[0]} has no source"
            yield cells[0], re.findall(r"`([\w.]+)", cells[2]), LINK.search(cells[3])[1]


ROWS = list(rows())


def test_all_four_papers_have_a_table():
    text = PAGE.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(parts) == PAPERS
    assert all(len(LINK.findall(part)) > 8 for part in parts.values())


@pytest.mark.parametrize("letter, names, file", ROWS, ids=[f"{row[0][:30]}" for row in ROWS])
def test_the_file_has_the_name(letter, names, file):
    path = (PAGE.parent / file).resolve()
    assert path.is_file()
    code = path.read_text(encoding="utf-8")
    folder = path.parent if path.name == "__init__.py" else None
    if folder:  # a package: its modules
        code = "\n".join(part.read_text(encoding="utf-8") for part in folder.glob("*.py"))
    assert names or "never built" in PAGE.read_text(encoding="utf-8")
    for name in names:
        defined = rf"(?:def|class) {name}\b|\b{name}\b *[:=]|self\.{name}\b|\b{name},"
        assert re.search(defined, code), f"{name} of {letter} is not in {file}"


def test_every_file_that_architecture_names_is_there():
    text = (PAGE.parent / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", text))
    assert len(named) > 20
    root = PAGE.parent.parent.parent
    missing = []
    for name in named:
        bases = [root / name, root / "fstgrad" / name]
        if not any(base.exists() or base.with_suffix(".py").exists() for base in bases):
            missing.append(name)
    assert not missing


def test_the_site_names_the_line_of_each_row():
    text = code_lines.with_lines(PAGE.read_text(encoding="utf-8"), PAGE.parent)
    in_modules = [file for _, names, file in ROWS if names and file.endswith(".py")]
    assert text.count(", line ") == len(in_modules)


def test_a_line_is_that_of_the_definition():
    code = "from a import f\n\n\ndef g():\n    return f()\n\n\nclass f:\n    pass\n"
    assert code_lines.line_of(code, "g") == 4
    assert code_lines.line_of(code, "f") == 8
    assert code_lines.line_of(code, "h") is None
