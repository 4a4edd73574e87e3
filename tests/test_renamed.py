"""Old module names work for one release, with a warning."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    "old, new, name",
    [
        ("fstgrad.models", "fstgrad.training.sequence", "sequence"),
        ("fstgrad.grm.bases", "fstgrad.grm.families", "Poisson"),
    ],
)
def test_old_name_warns_and_works(old, new, name, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="renamed"):
        module = importlib.import_module(old)
    current = importlib.import_module(new)
    assert getattr(module, name) is (current if name == "sequence" else getattr(current, name))
