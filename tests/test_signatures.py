"""Users rely on the names and the defaults of arguments: `tests/signatures.txt` lists them.

A change of that file is one that users see and that CHANGELOG.md names.
`python -m tests.test_signatures` writes it.
"""

import contextlib
import importlib
import inspect
import pathlib
import re

import click
import pytest

from fstgrad.mrf import decoding, inference, objectives
from tests.helpers.commands import LEAVES
from tests.helpers.public import MODULES, NEEDED, public

FILE = pathlib.Path(__file__).parent / "signatures.txt"
DOCS = [*FILE.parents[1].glob("docs/**/*.md"), FILE.parents[1] / "README.md"]
IMPORT = re.compile(r"^from (fstgrad\.[\w.]+) import ([\w, ]+)", re.MULTILINE)
NAME = re.compile(r"`(fstgrad\.[\w.]+)\.(\w+)(?:\(.*?\))?`")


def shown(name, function):
    """Return a signature without annotations, from which no default is left out."""
    try:
        given = inspect.signature(function)
    except ValueError:  # of a class in C
        return f"{name}(...)"
    bare = [p.replace(annotation=p.empty) for p in given.parameters.values() if p.name != "self"]
    text = str(given.replace(parameters=bare, return_annotation=given.empty))
    return re.sub(r"<(\w+ )?([\w.]+)[^<>]*>", r"<\2>", name + text)


def of_module(module):
    """Yield the signatures of a module's public names, and of the methods of its classes."""
    for name, thing in sorted(public(module).items()):
        yield shown(f"{module}.{name}", thing)
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            for method, code in sorted(vars(thing).items()):
                code = getattr(code, "__func__", code)
                if inspect.isfunction(code) and not method.startswith("_"):
                    yield shown(f"{module}.{name}.{method}", code)


def of_documents():
    """Yield the signatures of what the documentation names in modules within the packages."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS)
    named = {(module, name) for module, names in IMPORT.findall(text) for name in names.split(", ")}
    for module, name in sorted(named | set(NAME.findall(text))):
        with contextlib.suppress(ModuleNotFoundError):  # the name of a method with its class
            thing = getattr(importlib.import_module(module), name, None)
            if module not in MODULES and (inspect.isfunction(thing) or inspect.isclass(thing)):
                yield shown(f"docs: {module}.{name}", thing)


def of_methods():
    """Yield the methods of random fields, whose arguments users give by the name of the method."""
    tables = {
        "infer": inference.METHODS, "decode": decoding.DECODERS, "nll": objectives.LOSSES,
    }  # fmt: skip
    for facade, table in tables.items():
        for name, method in table.items():
            yield shown(f"{facade} {name}: ", method.function)


def of_commands():
    """Yield the options of all commands, with their defaults."""
    for name, command in LEAVES.items():
        for option in command.params:
            if isinstance(option, click.Option) and option.name != "help":
                default = option.default  # without one, releases of click differ
                is_given = isinstance(default, int | float | str | tuple) and default is not False
                shown_default = repr(default) if is_given else ""
                yield f"fstgrad {name} {'/'.join(option.opts)}={shown_default}"


LISTED = {"documents": of_documents, "methods": of_methods, "command line": of_commands}
PARTS = [*MODULES, *LISTED]


def lines_of(part):
    """Return the lines of a module, or of another part."""
    return list(LISTED[part]() if part in LISTED else of_module(part))


@pytest.mark.parametrize("part", PARTS)
def test_signatures_are_those_of_the_file(part):
    if part in NEEDED:
        pytest.importorskip(NEEDED[part])
    text = FILE.read_text(encoding="utf-8")
    expected = re.search(rf"^# {re.escape(part)}\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL)
    assert lines_of(part) == expected[1].split("\n")[:-1]


if __name__ == "__main__":
    parts = [f"# {part}\n" + "\n".join(lines_of(part)) + "\n" for part in PARTS]
    FILE.write_text("".join(parts), encoding="utf-8")
