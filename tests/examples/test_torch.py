"""The PyTorch examples learn something, in a small form."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tagger():
    assert load("torch_tagger").main(train=100, epochs=8)[0] > 0.6  # by chance 1 / 4


def test_rerank():
    before, after, _ = load("torch_rerank").main(count=20, steps=10)
    assert after < before


def test_parser():
    assert load("torch_parser").main(labelled=8, unlabelled=8, steps=25)[0] > 0.4  # by chance 1 / 7


def test_pixels():
    alone, tied, _ = load("torch_pixels").main(count=8, steps=40)
    assert tied > alone


def test_minimum_word_errors_on_lists():
    rates = load("torch_mwer").main(steps=40)
    assert rates[40] < rates[0] - 0.1


@pytest.mark.slow
def test_minimum_word_errors_on_ctc_lattices():
    _, by_risk = load("torch_ctc_lattice").main(ctc_steps=20, risk_steps=10).values()
    assert by_risk[30] < by_risk[20]


def test_bigrams_of_ctc_labels():
    plain, with_bigrams = load("torch_ctc_bigrams").main(steps=60)[0].values()
    assert with_bigrams < plain - 0.05


def test_costs_of_rare_tags():
    plain, costly = load("torch_rare_tags").main(train=100, epochs=8)[0].values()
    assert costly > plain


@pytest.mark.parametrize("by", ["transformers", "PyTorch"])
def test_entities(by, monkeypatch):
    """On the interfaces of transformers where it is installed, and by a loop without it."""
    if by == "transformers":
        pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")
    else:
        monkeypatch.setitem(sys.modules, "transformers", None)
    assert load("torch_entities").main(count=800)[0] < 0.7  # untrained 1.7


@pytest.mark.slow
def test_segmentation():
    alone, tied, _ = load("torch_segmentation").main(count=6, steps=15)
    assert tied > alone


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # PyTorch's own
def test_mixed_precision():
    assert load("torch_finetune").main()[150] > 0.7  # by chance 1 / 3


@pytest.mark.nightly
def test_two_processes():
    program = subprocess.run(
        [sys.executable, EXAMPLES / "torch_ddp.py"], capture_output=True, text=True, timeout=300
    )
    assert program.returncode == 0, program.stderr
    assert float(program.stdout.split()[-1]) > 0.9  # by chance 1 / 4


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("torch_*.py")), ids=lambda p: p.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < 80
