"""Binds cli/ and grammars/ to their installed names when fstgrad itself is not installed."""

import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent


def _bind(folder: str, name: str) -> None:
    """Load the package in `folder` under `name`, as the installed layout does."""
    spec = importlib.util.spec_from_file_location(
        name, ROOT / folder / "__init__.py", submodule_search_locations=[str(ROOT / folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


sys.path.insert(0, str(ROOT))
for folder, name in (("cli", "fstgrad.cli"), ("grammars", "fstgrad.grammars")):
    if importlib.util.find_spec(name) is None:
        _bind(folder, name)
