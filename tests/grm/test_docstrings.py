"""What the docstrings show is run."""

import doctest
import importlib

import pytest

pytest.importorskip("sklearn")


@pytest.mark.parametrize("module", ["base", "finite_families", "model"])
def test_docstrings_run(module):
    found = importlib.import_module(f"fstgrad.grm.{module}")
    names = {"np": importlib.import_module("numpy"), **vars(found)}
    result = doctest.testmod(found, extraglobs=names)
    assert result.attempted > 0
    assert result.failed == 0
