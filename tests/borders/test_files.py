"""Each form of a file, for each file that a command reads: the plain output, or one line."""

import re
import shutil

import pytest

from tests.borders.files import forms
from tests.fuzz.commands import TEMPLATES, fill
from tests.fuzz.judging import judged
from tests.fuzz.runner import captured
from tests.fuzz.seeds import write_seeds

# cells that are right otherwise: (commands, files, rows, why)
EXCEPTIONS = (
    ("predict|score|risk|grad", ".*", "empty file|white space|blank lines at the end",
     "a line is an item, an empty one too"),
    ("grad .*--alphabet", "alphabet.txt", "an index column|white space", "symbols of any kind"),
    ("grad .*--journal", "lines.jsonl", ".*", "a damaged journal is computed again"),
    ("score", ".*", "spaces for tabs", "a line without a tab is one sentence"),
    ("score .*--by speaker", "scored.csv", "an index column", "the error names the columns"),
    ("trees compare", "gold.conllu", "empty file|white space", "no word, so nothing to compare"),
    ("grammar", "words.txt", "white space", "a word of one space"),
)  # fmt: skip


def output(template, files, folder):
    """Run a command on files; return its end, its output and the files that it wrote."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    code, out, err = captured(fill(template, folder, folder).arguments)
    written = {
        p.name: p.read_bytes() for p in folder.glob("out*") if p.is_file() and p.suffix != ".svg"
    }
    return code, out, err, written


def wrong(template, name, got, plain, *, means_the_same, repeats):
    """Return what is wrong with the output for a form of a file, "" if nothing is."""
    code, out, err, written = got
    if found := judged(code, out, err, template.split()):
        return found
    if code:
        return "" if name in err else f"an error without the file: {err}"
    if not means_the_same:
        return f"taken: {out[:100]!r}"
    if repeats and (out, written) != (plain[1], plain[3]):
        return f"gives {out[:200]!r}, the plain file {plain[1][:200]!r}"
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as on a command line
def test_each_form_of_a_file(tmp_path, monkeypatch):
    seeds, work, found, seen = tmp_path / "seeds", tmp_path / "work", [], set()
    for folder in (seeds, work):
        folder.mkdir()
    monkeypatch.chdir(work)
    write_seeds(seeds, captured)
    for template in TEMPLATES:
        files = fill(template, seeds, work).files
        command = re.split(r" [-{]", template)[0]
        plain, again = (output(template, files, work) for _ in range(2))
        for name in files:
            for row, data, means_the_same in forms(name, files[name]):
                if (command, name, row) in seen or command == "report":  # which reads as others do
                    continue
                seen.add((command, name, row))
                got = output(template, {**files, name: data}, work)
                what = wrong(template, name, got, plain, means_the_same=means_the_same,
                             repeats=plain == again)  # fmt: skip
                is_right = any(
                    re.match(commands, template) and re.fullmatch(names, name)
                    and re.fullmatch(rows, row) for commands, names, rows, _ in EXCEPTIONS
                )  # fmt: skip
                if what and not is_right:
                    found.append(f"{template}, {name}, {row}: {what}")
    assert not found, "\n".join(found)
