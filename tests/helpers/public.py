"""The public names of the packages."""

import importlib
import inspect

import pytest

import fstgrad as fg

NEEDED = {
    "fstgrad.torch": "torch", "fstgrad.torch.nn": "torch", "fstgrad.jax": "jax",
    "fstgrad.plot": "matplotlib",
}  # fmt: skip
MODULES = ["fstgrad", "fstgrad.costs", "fstgrad.grammars", "fstgrad.openfst", *NEEDED]


def public(module):
    """Return the classes and functions of a package by name."""
    pytest.importorskip(NEEDED.get(module, "numpy"))
    package = importlib.import_module(module)
    named = {name: getattr(package, name) for name in package.__all__}
    own = {k: v for k, v in named.items() if inspect.isclass(v) or inspect.isfunction(v)}
    if package is not fg:  # those are listed once
        own = {k: v for k, v in own.items() if getattr(fg, k, None) is not v}
    return {k: v for k, v in own.items() if v.__module__.startswith("fstgrad")}
