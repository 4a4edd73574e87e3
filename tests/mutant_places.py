"""The places of small defects in a source: operators, conditions, constants, statements."""

import ast
import pathlib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[1]
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax",
    "argmax": "argmin", "any": "all", "all": "any", "zeros": "ones", "ones": "zeros",
    "floor": "ceil", "ceil": "floor",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One defect: the text of a file between two byte offsets, and what takes its place."""

    path: str
    line: int
    function: str
    start: int
    stop: int
    old: str
    new: str
    number: int = 1  # among those of a function that read alike
    at_import: bool = False  # a constant, a class attribute or a default

    @property
    def is_kernel(self) -> bool:
        """Whether the mutant is compiled."""
        return "/kernels/" in self.path

    @property
    def key(self) -> str:
        """What names the mutant in the list of equivalent ones, wherever the line moves."""
        return f"{self.path}::{self.function}: {self.old} => {self.new} #{self.number}"


class Places(ast.NodeVisitor):
    """Collects the mutants of one file."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.data = source.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.names: list[str] = []
        self.bodies = 0  # of functions around the place
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def add(self, node: ast.AST, new: str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        stop = self.starts[node.end_lineno - 1] + node.end_col_offset
        old = " ".join(self.data[start:stop].decode().split())
        name = ".".join(self.names) or "module"
        alike = [m for m in self.found if (m.function, m.old, m.new) == (name, old, new)]
        place = node.lineno, name, start, stop
        at_import = self.bodies == 0
        self.found.append(Mutant(self.path, *place, old, new, 1 + len(alike), at_import))

    def replaced(self, node: ast.expr, **fields: object) -> None:
        changed = type(node)(**{**{k: getattr(node, k) for k in node._fields}, **fields})
        self.add(node, f"({ast.unparse(changed)})")

    def _named(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        marks = {ast.unparse(mark) for mark in node.decorator_list}
        bases = {ast.unparse(base) for base in getattr(node, "bases", ())}
        if marks & {"overload", "abstractmethod"} or any("Protocol" in base for base in bases):
            return
        self.names.append(node.name)
        if isinstance(node, ast.FunctionDef):
            defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
            for default in defaults:
                self.visit(default)
        self.bodies += isinstance(node, ast.FunctionDef)
        for statement in node.body:
            self.visit(statement)
        self.bodies -= isinstance(node, ast.FunctionDef)
        self.names.pop()

    visit_ClassDef = visit_FunctionDef = _named

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not (self.names == [] and ast.unparse(node.value).find("|") >= 0):  # a type alias
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "break")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if "warn" not in ast.unparse(node.value.func):
                self.add(node, "pass")
            self.generic_visit(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.add(node.test, f"(not ({ast.unparse(node.test)}))")
            self.generic_visit(node)

    visit_If = visit_IfExp = _condition

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, operator in enumerate(node.ops):
            if type(operator) in SWAPS:
                swapped = SWAPS[type(operator)]()
                self.replaced(node, ops=[*node.ops[:i], swapped, *node.ops[i + 1 :]])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        parts = (node.left, node.right)
        is_text = any(
            isinstance(p, ast.JoinedStr) or (isinstance(p, ast.Constant) and type(p.value) is str)
            for p in parts
        )
        if not is_text and type(node.op) in SWAPS:
            self.replaced(node, op=SWAPS[type(node.op)]())
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.replaced(node, op=SWAPS[type(node.op)]())
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self.add(node, f"({ast.unparse(node.operand)})")
        if not isinstance(node.operand, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1))
        elif isinstance(node.value, float):
            self.add(node, repr(node.value * 2 if node.value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in NAMES:
            self.add(function, NAMES[function.id])
        elif isinstance(function, ast.Attribute) and function.attr in NAMES:
            self.add(function, f"{ast.unparse(function.value)}.{NAMES[function.attr]}")
        self.generic_visit(node)


def mutants_of(folders: list[str], *, kernels: bool = False) -> list[Mutant]:
    """Return the mutants of all files below the folders, those of kernels or all others."""
    found: list[Mutant] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            is_alias = name.endswith("__init__.py") and not kernels
            if ("/kernels/" in name) == kernels and not is_alias:
                found += Places(name, path.read_text(encoding="utf-8")).found
    return found
