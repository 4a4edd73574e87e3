"""Users rely on the names and the defaults of arguments: `tests/signatures.txt` lists them.

A change of that file is one that users see and that CHANGELOG.md names.
`python -m tests.test_signatures` writes it.
"""

import inspect
import pathlib
import re

import click
import pytest

from tests.cli.test_help import LEAVES
from tests.test_api_pages import MODULES, NEEDED, public

FILE = pathlib.Path(__file__).parent / "signatures.txt"


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


def of_commands():
    """Yield the options of all commands, with their defaults."""
    for name, command in LEAVES.items():
        for option in command.params:
            if isinstance(option, click.Option) and option.name != "help":
                default = option.default  # without one, releases of click differ
                is_given = isinstance(default, int | float | str | tuple) and default is not False
                shown_default = repr(default) if is_given else ""
                yield f"fstgrad {name} {'/'.join(option.opts)}={shown_default}"


def lines_of(part):
    """Return the lines of a module or of the command line."""
    return list(of_commands() if part == "command line" else of_module(part))


@pytest.mark.parametrize("part", [*MODULES, "command line"])
def test_signatures_are_those_of_the_file(part):
    if part in NEEDED:
        pytest.importorskip(NEEDED[part])
    text = FILE.read_text(encoding="utf-8")
    expected = re.search(rf"^# {re.escape(part)}\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL)
    assert lines_of(part) == expected[1].split("\n")[:-1]


if __name__ == "__main__":
    parts = [
        f"# {part}\n" + "\n".join(lines_of(part)) + "\n" for part in [*MODULES, "command line"]
    ]
    FILE.write_text("".join(parts), encoding="utf-8")
