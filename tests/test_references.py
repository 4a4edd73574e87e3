"""Every reference to a place in a source (Eq. 1, Figure 2a, section 4.2) is in a table of checks.

`references.txt` has a line for each reference and file: the file, the reference, its source, what
is there, and what it was checked against.  `python -m
tests.test_references` prints the lines that are missing.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "references.txt"
NUMBER = r"[A-Z]?\d+(?:\.\d+)*[a-z]?"
PLACES = rf"{NUMBER}(?:(?:, and|,| and| to|-|–) ?{NUMBER})*"
LETTERS = r"[A-Z](?:(?:, and|,| and| to|-) ?[A-Z])*"
REFERENCE = re.compile(
    r"\b(?:(?:[Ee]qs?\.|[Ee]quations?|[Ss]ections?|[Ff]igures?|[Ff]igs?\.|[Tt]ables?|[Tt]heorems?"
    rf"|[Aa]lgorithms?|[Ll]emmas?|[Pp]ropositions?|[Cc]hapters?) \(?{PLACES}"
    rf"|[Aa]ppendi(?:x|ces) \(?(?:{PLACES}|{LETTERS}))\b"
)


def references():
    """Return the pairs (file, reference) of docstrings, comments and documents, in order."""
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for folder in ("fstgrad", "cli", "grammars"):
        paths += (p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".rules", ".pyi"))
    found = set()
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("docs/papers/"):  # these pages are the papers' own
            text = re.sub(r"\s*\n[\s#]*", " ", path.read_text(encoding="utf-8"))
            found |= {(name, match.group().replace("(", "")) for match in REFERENCE.finditer(text)}
    return sorted(found)


def lines():
    """Return the lines of the table without comments, as lists of fields."""
    text = TABLE.read_text(encoding="utf-8")
    return [line.split(" | ") for line in text.splitlines() if line and line[0] != "#"]


def test_every_reference_is_in_the_table():
    listed = [(file, reference) for file, reference, *_ in lines()]
    assert set(references()) - set(listed) == set(), "look it up, then add it"
    assert set(listed) - set(references()) == set(), "gone: remove the line"
    assert listed == sorted(set(listed))


def test_a_line_says_the_source_what_is_there_and_how_it_was_checked():
    for line in lines():
        assert len(line) == 5, line
        assert all(line), line
        assert line[-1] != "-", line


def test_references_of_all_forms_are_found():
    text = "Eqs. 7 and 8, Figures 2a, 4a; (Section 4.2), appendices C and D, Table 1; table (C, 3)"
    assert [match.group() for match in REFERENCE.finditer(text)] == [
        "Eqs. 7 and 8", "Figures 2a, 4a", "Section 4.2", "appendices C and D", "Table 1",
    ]  # fmt: skip


if __name__ == "__main__":
    known = {(file, reference) for file, reference, *_ in lines()}
    for pair in references():
        if pair not in known:
            print(*pair, "SOURCE", "WHAT IS THERE", "-", sep=" | ")
