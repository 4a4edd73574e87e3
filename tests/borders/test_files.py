"""Each form of a file, for each file that a command reads: the plain output, or one line."""

import re
import shutil

import click
import pytest

from fstgrad.cli.main import fstgrad
from fstgrad.cli.parameter_types import Input, NameOrFile, NameOrFileEntry
from tests.borders.files import forms
from tests.fuzz.commands import TEMPLATES, fill
from tests.fuzz.judging import judged
from tests.fuzz.runner import captured
from tests.fuzz.seeds import write_seeds

# cells that are right otherwise: (commands, files, rows, why)
EXCEPTIONS = (
    ("predict|score|risk|grad", ".*", "empty file|white space|blank lines at the end",
     "a line is an item, an empty one too"),
    ("(grad|grammar explain) .*--alphabet", "alphabet.txt", "an index column|white space",
     "symbols of any kind"),
    ("grad .*--journal", "lines.jsonl", ".*", "a damaged journal is computed again"),
    ("score", ".*", "spaces for tabs", "a line without a tab is one sentence"),
    ("score .*--by speaker", "scored.csv", "an index column", "the error names the columns"),
    ("trees compare", "gold.conllu", "empty file|white space", "no word, so nothing to compare"),
    ("trees decode .*--labels", "labels.txt", "empty file|an index column|white space",
     "the error names the option"),
    ("grammar", "words.txt", "white space", "a word of one space"),
    ("predict", "inputs.txt|tagged.txt", "an index column", "pairs, whose first column is x"),
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


READERS = (Input, NameOrFile, NameOrFileEntry)
ELSEWHERE = {"report": "reads what other commands read"}


def commands(command, path=()):
    """Yield the commands below a command, with their words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


def given_files(template):
    """Return (group, parameter) of the files of a command line; the words of a group are one."""
    words, found, path = [word for word in template.split() if word != "{small}"], fstgrad, []
    while isinstance(found, click.Group):
        path.append(words.pop(0))
        found = found.get_command(click.Context(found), path[-1])
    group = path[0] if path[1:] else ""
    values, _, _ = found.make_parser(click.Context(found)).parse_args(words)
    return {(group, name) for name, value in values.items() if "{" in str(value)}


def test_each_argument_that_names_a_file_has_a_template():
    """Commands of a group share the readers of their options, as do those outside groups."""
    covered = set().union(*map(given_files, TEMPLATES))
    every = {
        (path[0] if path[1:] else "", parameter.name): " ".join(path)
        for path, command in commands(fstgrad)
        for parameter in command.params
        if isinstance(parameter.type, READERS) and path[0] not in ELSEWHERE
    }
    missing = [f"{path}: {key[1]}" for key, path in every.items() if key not in covered]
    assert len(every) > 30
    assert not missing, missing


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
