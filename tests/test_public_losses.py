"""The stubs list every public loss: `fstgrad/losses/__init__.pyi` and `fstgrad/__init__.pyi`.

The registration of a loss is its class: a public class in a module of `fstgrad/losses`, other than
`base`, that derives from `Loss`.  `python -m tests.test_public_losses` writes its lines.
"""

import ast
import re

import pytest

from tests.helpers.sources import ROOT, parsed

FOLDER = ROOT / "fstgrad/losses"
STUBS = {"fstgrad/losses/__init__.pyi": ".{module}", "fstgrad/__init__.pyi": ".losses"}
LINE = re.compile(r"from (\.\S*) import (\w+) as \2")


def public_losses():
    """Return {class: module}; `base` has sums and multiples, which operators make."""
    bases, modules = {}, {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base) for base in node.bases]
                modules[node.name] = path.stem

    def is_loss(name):
        return name == "Loss" or any(map(is_loss, bases.get(name, ())))

    return {
        name: module
        for name, module in modules.items()
        if is_loss(name) and not name.startswith("_") and module != "base"
    }


def expected(stub):
    """Return the text of a stub with one line for each public loss, in the order of ruff."""
    losses, source = public_losses(), STUBS[stub]
    lines = {
        tuple(LINE.fullmatch(line).groups()) for line in (ROOT / stub).read_text().split("\n")[:-1]
    }
    lines = {(module, name) for module, name in lines if name not in losses}
    lines |= {(source.format(module=module), name) for name, module in losses.items()}
    ordered = sorted(lines, key=lambda line: (line[0] != ".", line[0], order(line[1])))
    return "".join(f"from {module} import {name} as {name}\n" for module, name in ordered)


def order(name):
    """Return the key that sorts constants before classes before functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("stub", STUBS)
def test_the_stub_lists_every_public_loss(stub):
    assert (ROOT / stub).read_text() == expected(stub)


if __name__ == "__main__":
    for path in STUBS:
        (ROOT / path).write_text(expected(path))
