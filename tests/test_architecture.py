"""The house rules that a test can read off the files: layers, sizes, packages, quick imports."""

import ast
import configparser
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = [p for folder in ("fstgrad", "cli", "grammars") for p in (ROOT / folder).rglob("*.py")]

# A module may import only from layers with a smaller number.  A package stands for its modules.
LAYERS = {
    "_version": 0, "errors": 0,
    "checks": 1, "alphabet": 2, "semiring": 2, "kernels": 2,
    "openfst": 3, "layout": 3,
    "transducers": 4,
    "pipeline": 5, "machine": 5, "matching": 5, "automaton": 5,
    "futures": 6, "determinize": 6, "reduction": 7, "evaluation": 6, "minimize": 7, "bounds": 8,
    "losses": 9,
    "distribution": 3,
    "trees": 10, "mrf": 10, "grm": 10, "strings": 10,
    "features": 11, "cache": 11,
    "objective": 11.5,
    "batch": 12,
    "torch": 13, "plot": 13, "io": 13,
    "models": 14,
    "cli": 20, "grammars": 19,
}  # fmt: skip


def module_name(path):
    return ".".join(
        ["fstgrad", *path.relative_to(ROOT).with_suffix("").parts]
        if path.parts[len(ROOT.parts)] != "fstgrad"
        else path.relative_to(ROOT).with_suffix("").parts
    ).removesuffix(".__init__")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    name = module_name(path)
    if name == "fstgrad":
        return
    own = name.split(".")[1]
    for imported in imports(path):
        parts = imported.split(".")
        if parts[0] != "fstgrad" or len(parts) == 1:
            continue
        if parts[1] != own:
            assert LAYERS[parts[1]] < LAYERS[own], f"{name} must not import {imported}"


@pytest.mark.parametrize(
    "package, owner",
    [("pynini", "fstgrad.openfst"), ("pywrapfst", "fstgrad.openfst"), ("torch", "fstgrad.torch")],
)
def test_one_importer(package, owner):
    for path in SOURCES:
        name = module_name(path)
        if package == "pynini" and name.startswith("fstgrad.grammars."):
            continue  # a grammar is written in pynini
        if any(module.split(".")[0] == package for module in imports(path)):
            assert name == owner or name.startswith(owner + ".")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.body[0].lineno + 1
            if ast.get_docstring(node):
                length = node.end_lineno - node.body[0].end_lineno
            assert length <= 60, f"{node.name} has {length} lines"


def test_every_package_is_listed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {module_name(p) for p in SOURCES if p.name == "__init__.py"}
    assert listed == found


def test_no_assert_for_input():
    for path in SOURCES:
        assert not any(isinstance(n, ast.Assert) for n in ast.walk(ast.parse(path.read_text())))


def test_import_is_light():
    code = (
        "import sys, fstgrad; heavy = {'torch', 'matplotlib', 'numba', 'sklearn', 'scipy'}"
        " & set(sys.modules); sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_loads():
    import fstgrad

    for name in fstgrad.__all__:
        assert getattr(fstgrad, name) is not None
