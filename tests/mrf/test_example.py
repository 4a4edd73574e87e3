"""The denoising example: every way of training restores most of the noise."""

import importlib.util
import pathlib

import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "denoise.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("denoise", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_denoise(example, capsys):
    _, noise, accuracies = example.main([])
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(accuracies)
    for found in accuracies.values():
        for accuracy, before in zip(found, noise.values(), strict=True):
            assert 1 - accuracy < (1 - before) / 2


@pytest.mark.nightly
def test_denoise_on_real_images(example, shared_data, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "figure.png"
    _, noise, accuracies = example.main(
        ["--data", str(shared_data / "grids"), "--figure", str(figure)]
    )
    for found in accuracies.values():
        assert all(a > b for a, b in zip(found, noise.values(), strict=True))
    assert figure.stat().st_size > 10_000


@pytest.mark.slow
def test_contrast_sensitive_edges_win_on_a_photograph():
    """A real photograph, whose truth is measured depth; settings come from the other half."""
    pytest.importorskip("skimage")
    spec = importlib.util.spec_from_file_location(
        "segmentation", EXAMPLE.with_name("segmentation.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _, *scene = module.scene()
    found = {way: np.mean(shares) for way, shares in module.accuracies(*scene).items()}
    best = found.pop("contrast-sensitive")
    assert all(best > other + 0.01 for other in found.values())
