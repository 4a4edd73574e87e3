"""What the docstrings show is run."""

import doctest
import importlib
import pathlib
import re

import numpy as np
import pytest

import fstgrad as fg

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.glob("fstgrad/**/*.py")
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
)
NEEDED = {"torch": ["torch"], "jax": ["jax"], "plot": ["matplotlib"], "grm": ["sklearn"]}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_run(name):
    """Every example sees the names of its module, `np` and `fg`."""
    for package in NEEDED.get(name.split(".")[1], []):
        pytest.importorskip(package)
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, extraglobs={"np": np, "fg": fg}, optionflags=flags)
    assert result.attempted > 0
    assert result.failed == 0
