"""The PyTorch examples learn something, in a small form."""

import importlib.util
import pathlib

import pytest

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tagger():
    assert load("torch_tagger").main(train=100, epochs=8) > 0.6  # by chance 1 / 4


def test_rerank():
    before, after = load("torch_rerank").main(count=20, steps=10)
    assert after < before


def test_parser():
    assert load("torch_parser").main(labelled=8, unlabelled=8, steps=25) > 0.4  # by chance 1 / 7


def test_pixels():
    alone, tied = load("torch_pixels").main(count=8, steps=40)
    assert tied > alone


@pytest.mark.parametrize("name", ["torch_tagger", "torch_rerank", "torch_parser", "torch_pixels"])
def test_examples_are_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 85
