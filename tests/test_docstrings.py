"""What the docstrings show is run."""

import doctest
import importlib

import numpy as np
import pytest

import fstgrad as fg
from tests.helpers.docstrings import MODULES, NEEDED


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
