"""The house rules that a test can read off the files: layers, sizes, packages, quick imports."""

import ast
import configparser
import functools
import re
import subprocess
import sys

import pytest

from tests.helpers.sources import ROOT, SOURCES, import_graph, imports, module_name, parsed

# What each package may import beside itself.  Imports run one way: a package may also import
# whatever those import.
ALLOWED = {
    "core": set(),
    "io": {"core"},
    "openfst": {"io"},
    "plot": {"openfst"},
    "losses": {"plot"},
    "strings": {"losses"},
    "trees": {"plot"},
    "mrf": {"io"},
    "grm": {"plot"},
    "costs": {"strings"},
    "learning": {"strings"},
    "objectives": {"strings", "trees", "mrf"},
    "jax": {"objectives"},
    "torch": {"objectives", "costs"},
    "grammars": {"costs"},
    "cli": {"grammars", "learning", "trees", "mrf", "grm"},
}


@functools.cache
def allowed(package):
    """The packages that `package` may import."""
    direct = ALLOWED[package]
    return {"_version"} | direct | {name for other in direct for name in allowed(other)}


def forbidden(path):
    """The modules that a file imports against the table."""
    own = module_name(path).split(".")[1]
    for imported in imports(path):
        parts = imported.split(".")
        is_other = parts[0] == "fstgrad" and len(parts) > 1 and parts[1] != own
        if is_other and parts[1] not in allowed(own):
            yield f"{path.relative_to(ROOT)} must not import {imported}"


def test_layers():
    inside = [path for path in SOURCES if path != ROOT / "fstgrad/__init__.py"]
    assert not [line for path in inside for line in forbidden(path)]


def test_no_circle():
    graph = {name: set(found) for name, found in import_graph().items()}
    while free := [name for name, found in graph.items() if not found & graph.keys()]:
        for name in free:
            del graph[name]
    # what is left reaches a circle; drop what no member of a circle imports
    while tail := graph.keys() - {m for found in graph.values() for m in found}:
        for name in tail:
            del graph[name]
    assert not graph, "import circle among: " + ", ".join(sorted(graph))


def test_the_page_on_architecture_has_this_table():
    page = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
    table = {}
    for names, others in re.findall(r"^(.+?) +->  (.+)$", page.split("```")[1], re.MULTILINE):
        for name in names.split(", "):
            table[name] = set(others.split(", ")) - {"nothing"}
    assert table == ALLOWED


def test_few_rooms_on_few_floors():
    """A package stands above all that it may import."""
    floors = {}
    for package, below in ALLOWED.items():  # those below come first
        floors[package] = 1 + max((floors[other] for other in below), default=0)
    assert len(floors) <= 20
    assert max(floors.values()) <= 9


def reading_order(package):
    """The items of the reading order in the docstring of a package: a set of modules for each."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    section = re.search(r"Reading order\n-+\n(.*?)(?=\n\n|\Z)", text, re.DOTALL)
    assert section, f"{package} has no reading order"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    items = re.split(r"^- ", section[1], flags=re.MULTILINE)[1:]
    return [modules & set(re.findall(r"`(\w+)`", item)) for item in items], modules - {"__init__"}


PACKAGES = [
    path.parent
    for path in SOURCES
    if path.name == "__init__.py" and path.parent.name not in ("fstgrad", "kernels")
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_reading_order(package):
    """Every module is in one item, and imports only from its item and those before it."""
    items, modules = reading_order(package)
    places = {name: place for place, item in enumerate(items) for name in item}
    assert sum(map(len, items)) == len(places), "a module is in two items"
    assert places.keys() == modules
    own = module_name(package / "__init__.py") + "."
    for name, found in import_graph().items():
        for other in found:
            if name.startswith(own) and other.startswith(own):
                first, second = (m.removeprefix(own).split(".")[0] for m in (name, other))
                assert places[second] <= places[first], f"{first} imports {second}"


def test_stubs_list_the_kernels():
    for stub in ROOT.glob("fstgrad/**/kernels/__init__.pyi"):
        listed = set(re.findall(r"^from \. import (\w+) as \1$", stub.read_text(), re.MULTILINE))
        assert listed == {path.stem for path in stub.parent.glob("[!_]*.py")}, stub


def test_one_definition_of_empty_arrays():
    """So that the debug mode of `uninitialized` fills all of them."""
    for path in SOURCES:
        if path.name != "uninitialized.py":
            found = re.search(r"np\.empty\w*", path.read_text(encoding="utf-8"))
            assert not found, f"{path}: {found[0]}; import it from fstgrad.core.uninitialized"


def test_no_loose_files():
    assert {path.name for path in (ROOT / "fstgrad").glob("*.py")} == {"__init__.py", "_version.py"}


@pytest.mark.parametrize(
    "package, owner",
    [
        ("pynini", "fstgrad.openfst"),
        ("pywrapfst", "fstgrad.openfst"),
        ("torch", "fstgrad.torch"),
        ("jax", "fstgrad.jax"),
    ],
)
def test_one_importer(package, owner):
    for path in SOURCES:
        name = module_name(path)
        if package == "pynini" and name.startswith("fstgrad.grammars."):
            continue  # a grammar is written in pynini
        if any(module.split(".")[0] == package for module in imports(path)):
            assert name == owner or name.startswith(owner + ".")


def test_one_module_uses_private_parts_of_numba():
    public = {"numba", "numba.extending", "numba.njit", "numba.types"}
    for path in SOURCES:
        found = {name for name in imports(path) if name.split(".")[0] == "numba"}
        found -= {name for name in found if name.startswith("numba.extending.")} | public
        assert not found or path.name == "numba_internals.py", f"{path}: {found}"
    assert len((ROOT / "fstgrad/core/numba_internals.py").read_text().splitlines()) < 250


def test_sizes_of_files():
    folders = [ROOT / folder for folder in ("tests", "benchmarks", "examples")]
    paths = [*SOURCES, *(path for folder in folders for path in folder.rglob("*.py"))]
    lines = {path: len(path.read_text().splitlines()) for path in paths}
    assert not [f"{path} has {count} lines" for path, count in lines.items() if count > 800]


@functools.cache
def functions():
    """(File, function) for every function of the package."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ((path, node) for path in SOURCES for node in ast.walk(parsed(path)))
    return [(path, node) for path, node in nodes if isinstance(node, kinds)]


def lines_below_the_docstring(function):
    first = function.body[0]
    before = first.end_lineno if ast.get_docstring(function) else first.lineno - 1
    return function.end_lineno - before


def test_sizes_of_functions():
    lines = [(path, node.name, lines_below_the_docstring(node)) for path, node in functions()]
    assert not [f"{path}: {name} has {count} lines" for path, name, count in lines if count > 60]


# Options of commands, estimators, models and objectives are parameters; the kernel moves along.
MANY_PARAMETERS = {"cli.commands.grm.fit", "cli.commands.train.train", "grm.model.__init__"}
MANY_PARAMETERS |= {"learning.sequence.__init__", "mrf.sampling.marginals.sample_marginals"}
MANY_PARAMETERS |= {"mrf.kernels.bp_linear.sweep_two_labels", "cli.commands.mrf.denoise"}
MANY_PARAMETERS |= {"learning.score.score", "torch.ctc.ctc_softmax_margin", "torch.ctc.ctc_risk"}
MANY_PARAMETERS |= {"torch.strings.softmax_margin", "torch.strings.risk"}
MANY_PARAMETERS |= {"jax.ctc.ctc_softmax_margin", "jax.ctc.ctc_risk"}
MANY_PARAMETERS |= {"jax.strings.softmax_margin", "jax.strings.risk"}
MANY_PARAMETERS |= {"torch.fused.ctc.backward_kernel", "torch.fused.fields.sweep_kernel"}


def test_few_parameters():
    found = set()
    for path, node in functions():
        given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        if len(given) - (given[:1] != [] and given[0].arg in ("self", "cls")) > 10:
            found.add(f"{module_name(path).removeprefix('fstgrad.')}.{node.name}")
    assert found - MANY_PARAMETERS == set()


def test_every_package_is_listed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {module_name(p) for p in SOURCES if p.name == "__init__.py"}
    assert listed == found


def test_no_test_module_imports_another():
    """What several of them use is in `tests/helpers`, or in a module of their folder."""
    paths = (ROOT / "tests").rglob("*.py")
    imported = re.compile(
        r"^ *(from tests\S* import .*\btest_|(from|import) tests\S*\.test_)", re.M
    )
    assert not [path for path in paths if imported.search(path.read_text(encoding="utf-8"))]


def test_no_assert_for_input():
    for path in SOURCES:
        assert not any(isinstance(n, ast.Assert) for n in ast.walk(parsed(path)))


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


def stores_and_adds_up(loop):
    """Whether an innermost loop writes into an array and adds to a number that is no counter."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    if any(isinstance(node, ast.For) for node in inside):
        return False
    added = [node for node in inside if isinstance(node, ast.AugAssign)]
    targets = [node.target for node in added]
    targets += [t for node in inside if isinstance(node, ast.Assign) for t in node.targets]
    stores = any(isinstance(part, ast.Subscript) for t in targets for part in ast.walk(t))
    return stores and any(
        isinstance(node.target, ast.Name) and not isinstance(node.value, ast.Constant)
        for node in added
    )


def test_sums_have_loops_of_their_own():
    """See `fstgrad.core.compiler.sum_kernel`: the bits would depend on where memory lies."""
    seen = 0
    for path, node in functions():
        if any(ast.unparse(d) in ("sum_kernel", "sum_part_kernel") for d in node.decorator_list):
            seen += 1
            for loop in ast.walk(node):
                if isinstance(loop, ast.For) and stores_and_adds_up(loop):
                    pytest.fail(f"{path}:{loop.lineno}: {node.name} stores and adds up at once")
    assert seen >= 10
