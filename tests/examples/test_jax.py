"""The JAX example learns something, in a small form."""

import importlib.util
import pathlib

import pytest

pytest.importorskip("jax")
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "jax_tagger.py"


def test_tagger():
    spec = importlib.util.spec_from_file_location("jax_tagger", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(epochs=15)[-1] > 0.8  # by chance 1 / 4
    assert len(EXAMPLE.read_text().splitlines()) < 80
