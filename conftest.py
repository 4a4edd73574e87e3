"""Import cli/ and grammars/ under their installed names if fstgrad is not installed from here.

With FSTGRAD_WITHOUT=pynini, the tests run as if pynini were not installed: test modules that import
it are left out, and tests that raise the error of a missing pynini are skipped.  If pynini is in
fact installed, only the tests are run that can differ: those that name what OpenFst is used for, in
their code or their rows, and those of all losses.
"""

import importlib.util
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

ROOT = pathlib.Path(__file__).parent


def _bind(folder: str, name: str) -> None:
    """Load the package in `folder` under `name`, its name when installed."""
    spec = importlib.util.spec_from_file_location(
        name, ROOT / folder / "__init__.py", submodule_search_locations=[str(ROOT / folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    setattr(importlib.import_module("fstgrad"), folder, module)


def _is_here(spec: ModuleSpec) -> bool:
    """Return whether a package is in the folder of this file, not in another checkout."""
    return spec.origin is not None and pathlib.Path(spec.origin).is_relative_to(ROOT)


sys.path.insert(0, str(ROOT))
for folder, name in (("cli", "fstgrad.cli"), ("grammars", "fstgrad.grammars")):
    found = importlib.util.find_spec(name)
    if found is None or not _is_here(found):
        _bind(folder, name)

HIDDEN = os.environ.get("FSTGRAD_WITHOUT", "")
IS_MISSING = importlib.util.find_spec("pynini") is None
if HIDDEN == "pynini":
    for module in ("pynini", "pywrapfst", "_pynini", "_pywrapfst"):
        sys.modules[module] = None  # type: ignore[assignment]


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    """Leave out the test modules that need the hidden package."""
    if HIDDEN and collection_path.suffix == ".py":
        needs = rf"^(import|from) {HIDDEN}\b|^from tests.fuzz"
        return bool(re.search(needs, collection_path.read_text(), re.MULTILINE)) or None
    return None


TOUCHES = re.compile(r"openfst|_fst\b|Fst\b|\.f(st|ar)\b|rules|RuleLoss|Transducer|pair_transducer")
ALL_LOSSES = {"test_library.py", "test_losses.py"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that do not touch the hidden package."""
    if HIDDEN and not IS_MISSING:
        kept, left = [], []
        for item in items:
            text = inspect.getsource(getattr(item, "function", type(item))) + item.name
            differs = TOUCHES.search(text) or item.path.name in ALL_LOSSES
            (kept if differs else left).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that fails because the hidden package is missing."""
    from fstgrad.core.errors import MissingDependencyError

    try:
        return (yield)
    except MissingDependencyError as error:
        if HIDDEN and HIDDEN in str(error):
            pytest.skip(f"needs {HIDDEN}")
        raise
