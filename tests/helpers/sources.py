"""The modules of the package, and what each of them imports."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = [p for folder in ("fstgrad", "cli", "grammars") for p in (ROOT / folder).rglob("*.py")]


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path):
    relative = path.relative_to(ROOT).with_suffix("")
    inside = relative.parts[0] in ("fstgrad", "tests")
    parts = relative.parts if inside else ("fstgrad", *relative.parts)
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imports(path):
    """Every module that a file imports anywhere, in functions and under TYPE_CHECKING too."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


@functools.cache
def import_graph():
    """The modules that each module imports; a package is imported where a name of it is."""
    modules = {module_name(path): path for path in SOURCES}
    graph = {}
    for name, path in modules.items():
        found = {module for module in imports(path) if module in modules}
        # `from package import module` needs the module; the package itself only re-exports
        needless = {m for m in found if any(other.startswith(m + ".") for other in found)}
        graph[name] = found - needless - {name}
    return graph
