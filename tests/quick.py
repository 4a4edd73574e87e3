"""The tests closest to what differs from the branch main: `python -m tests.quick`, or `make quick`.

First come the changed test files and those that import a changed module, then those named after a
changed module or after a module that imports one, then the other tests of the changed packages.  It
ends after a minute, and says how many tests were left.
"""

import pathlib
import re
import subprocess
import sys
import time

import pytest

from tests.helpers.sources import ROOT, SOURCES, import_graph, imports, module_name

SECONDS = 50.0


def changed_files() -> set[pathlib.Path]:
    """Return the Python files that differ from main, committed or not."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")[:-1]

    try:
        start = git("merge-base", "main", "HEAD")[0]
    except subprocess.CalledProcessError:  # a clone without that branch
        start = "HEAD"
    names = [*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")]
    return {ROOT / name for name in names if name.endswith(".py") and (ROOT / name).exists()}


def closest_tests(changed: set[pathlib.Path]) -> list[pathlib.Path]:
    """Return the test files in the order in which they are run."""
    modules = {module_name(path): path for path in SOURCES}
    edited = {name for name, path in modules.items() if path in changed}
    edited |= {module_name(path) for path in changed if "tests" in path.parts}
    graph = import_graph()
    importers = {name for name, found in graph.items() if found & edited} | edited & modules.keys()
    packages = {name.split(".")[1] for name in edited & modules.keys() if "." in name}

    def distance(path: pathlib.Path) -> int:
        own = path.parent.name
        if path in changed or edited & set(imports(path)):
            return 0
        named = re.sub("^test_", "", path.stem)
        for name in sorted(importers, key=lambda name: name not in edited):
            parts = name.split(".")[1:]
            if named == parts[-1].strip("_") and own in (parts[0], "tests"):
                return 1 if name in edited else 2
        return 3 if own in packages else 4

    found = {path: distance(path) for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    return [path for path in sorted(found, key=found.__getitem__) if found[path] < 4]


class Minute:
    """A plugin of pytest that ends the session in time."""

    def __init__(self) -> None:
        self.end = time.monotonic() + SECONDS
        self.left = ""

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if time.monotonic() > self.end and not self.left:
            place = item.session.items.index(item)
            self.left = f"the minute is over: {len(item.session.items) - place} tests are left"
            item.session.shouldstop = self.left


def main() -> None:
    tests = [str(path.relative_to(ROOT)) for path in closest_tests(changed_files())]
    always = ["tests/test_architecture.py", "tests/test_signatures.py"]
    minute = Minute()
    code = pytest.main(["-q", "-x", *dict.fromkeys(tests + always)], plugins=[minute])
    sys.exit(0 if minute.left and code == pytest.ExitCode.INTERRUPTED else code)


if __name__ == "__main__":
    main()
