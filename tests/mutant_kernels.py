"""Which lines of Python call a compiled kernel, whose own lines coverage does not see."""

import ast
import functools

from tests.helpers.sources import ROOT, SOURCES, parsed
from tests.mutant_places import Mutant


def names_in(tree: ast.AST) -> set[str]:
    """Return the names and attributes that occur in a piece of code."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@functools.cache
def callers_of(function: str) -> list[tuple[str, int]]:
    """Return the (file, line) of statements outside kernels that name a kernel function.

    A function counts, too, whose name a kernel contains that in turn is named, and so on.
    """
    kernels, others = [], []
    for path in SOURCES:
        (kernels if "kernels" in path.parts else others).append(path)
    definitions = [
        (node.name, names_in(node))
        for path in kernels
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef)
    ]
    reached = {function}
    while more := {name for name, inside in definitions if inside & reached} - reached:
        reached |= more
    return [
        (str(path.relative_to(ROOT)), line)
        for path in others
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.expr)
        and {getattr(node, "id", ""), getattr(node, "attr", "")} & reached
        for line in range(node.lineno, node.end_lineno + 1)
    ]


def calls(mutant: Mutant) -> list[tuple[str, int]]:
    """Return the lines from which a mutant is reached: its own, and those that call its kernel."""
    own = [(mutant.path, mutant.line)]
    return own + (callers_of(mutant.function.split(".")[0]) if mutant.is_kernel else [])
