"""Which defects the tests would miss: `python tests/mutants.py --sample 300`, or `make mutants`.

A mutant is the package with one small defect: a comparison that excludes its bound, a plus for a
minus, a condition turned round, a statement left out.  Mutants are sampled from all such places
outside the compiled kernels; for each one the tests that reach its line are run, quick ones first,
and a mutant under which all of them pass has survived.  Survivors are printed with their line;
`tests/equivalent_mutants.txt` lists those that change nothing, with the reason.

mutmut leaves out decorated functions, which here are most, and cosmic-ray runs one command for all
mutants; neither samples.  Hence this program, on coverage's contexts.
"""

import argparse
import ast
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[1]
EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
COPIED = ("fstgrad", "cli", "grammars", "tests", "data", "examples", "benchmarks", "docs")
FILES = ("conftest.py", "pyproject.toml", "setup.cfg", "README.md", "CHANGELOG.md", "Makefile")
MEMORY = 12 * 2**30
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
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def add(self, node: ast.AST, new: str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        stop = self.starts[node.end_lineno - 1] + node.end_col_offset
        old = " ".join(self.data[start:stop].decode().split())
        name = ".".join(self.names) or "module"
        alike = [m for m in self.found if (m.function, m.old, m.new) == (name, old, new)]
        place = node.lineno, name, start, stop
        self.found.append(Mutant(self.path, *place, old, new, 1 + len(alike)))

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
        for statement in node.body:
            self.visit(statement)
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


def mutants_of(folders: list[str]) -> list[Mutant]:
    """Return the mutants of all files below the folders, kernels and aliases left out."""
    found: list[Mutant] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "kernels" not in name and not name.endswith("__init__.py"):
                found += Places(name, path.read_text(encoding="utf-8")).found
    return found


class Reach:
    """Which tests reach a line, and how long each test takes."""

    def __init__(self, folder: pathlib.Path, tests: list[str]) -> None:
        self.durations: dict[str, float] = {}
        self.lines: dict[str, dict[int, list[str]]] = {}
        report, log = folder / "reach", folder / "durations.json"
        environment = {**os.environ, "COVERAGE_FILE": str(report), "MUTANTS_LOG": str(log)}
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants",
                   "--cov=.", "--cov-context=test", "--cov-report=", *tests]  # fmt: skip
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, check=False)
        if done.returncode:
            sys.exit("the tests fail before any mutant is made")
        self.durations = json.loads(log.read_text())
        from coverage import CoverageData

        data = CoverageData(str(report))
        data.read()
        for file in data.measured_files():
            contexts = data.contexts_by_lineno(file)
            name = os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
            self.lines[name] = {
                line: [context.split("|")[0] for context in found if context]
                for line, found in contexts.items()
            }

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the mutant's line, quick ones first.

        A line that runs at import is reached by all tests that reach its file.
        """
        lines = self.lines.get(mutant.path, {})
        tests = set(lines.get(mutant.line, ()))
        if not tests and mutant.line in lines:
            tests = {test for found in lines.values() for test in found}
        known = tests & self.durations.keys()
        return sorted(known, key=lambda test: self.durations[test])


def pytest_runtest_logreport(report: object) -> None:
    """Note the duration of a test (as a plugin of pytest, in the run that measures coverage)."""
    durations = _DURATIONS
    durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write the durations."""
    if "MUTANTS_LOG" in os.environ:
        pathlib.Path(os.environ["MUTANTS_LOG"]).write_text(json.dumps(_DURATIONS))


_DURATIONS: dict[str, float] = {}


def outcome(folder: pathlib.Path, tests: list[str], seconds: float) -> str:
    """Run the tests in a child process: "killed", "survived" or "timeout"."""
    child = os.fork()
    if child == 0:
        _run_tests(folder, tests)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _run_tests(folder: pathlib.Path, tests: list[str]) -> None:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.chdir(folder)
        sys.path[:1] = [str(folder)]  # the folder of this program was there
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def copy_of_the_tree(folder: pathlib.Path) -> None:
    """Copy what the tests need, with the compiled kernels."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)


@contextlib.contextmanager
def planted(folder: pathlib.Path, mutant: Mutant) -> Iterator[None]:
    """Write the mutant into the copy, and take it out again."""
    path = folder / mutant.path
    whole = path.read_bytes()
    path.write_bytes(whole[: mutant.start] + mutant.new.encode() + whole[mutant.stop :])
    try:
        yield
    finally:
        path.write_bytes(whole)


def equivalent_mutants() -> dict[str, str]:
    """Return the reasons why mutants change nothing, by their keys."""
    if not EQUIVALENT.exists():
        return {}
    rows = [line.split("\t") for line in EQUIVALENT.read_text().splitlines() if "\t" in line]
    return {row[0]: row[1] for row in rows}


def main() -> None:
    """Sample mutants, run their tests, print the survivors and the share that was killed."""
    parser = argparse.ArgumentParser(description="Which defects would the tests miss?")
    parser.add_argument("folders", nargs="*", default=["fstgrad", "cli", "grammars"])
    parser.add_argument("--sample", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", default=["tests"], help="what may kill them")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest run for a mutant")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    known = equivalent_mutants()
    every = mutants_of(options.folders)
    sample = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    counts = dict.fromkeys(("killed", "survived", "timeout", "unreached", "equivalent"), 0)
    import numba  # noqa: F401 - loaded once, before the forks
    import pytest  # noqa: F401
    import scipy.sparse  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copy_of_the_tree(folder)
        reach = Reach(folder, options.tests)
        quick = sorted(reach.durations, key=lambda test: reach.durations[test])[:100]
        if outcome(folder, quick, options.seconds) != "survived":
            sys.exit("tests fail in a child process without a mutant")
        for mutant in sorted(sample, key=lambda m: (m.path, m.line)):
            tests = reach.tests_of(mutant)
            if mutant.key in known:
                result = "equivalent"
            elif not tests:
                result = "unreached"
            else:
                with planted(folder, mutant):
                    result = outcome(folder, tests, options.seconds)
            counts[result] += 1
            if result in ("survived", "unreached"):
                print(f"{result} {mutant.path}:{mutant.line} {mutant.key}", flush=True)
    tried = len(sample) - counts["equivalent"]
    killed = counts["killed"] + counts["timeout"]
    print(", ".join(f"{number} {result}" for result, number in counts.items()))
    print(f"killed {killed} of {tried} ({100 * killed / max(1, tried):.1f} percent)")


if __name__ == "__main__":
    main()
