"""Figures: what they show, and that nothing global is touched."""

import subprocess
import sys

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import plot

matplotlib = pytest.importorskip("matplotlib")


def test_marginals_sum_the_contexts_out():
    d = fg.StringDistribution(np.random.default_rng(0).normal(size=(4, 3, 2)))
    figure = plot.marginals(d.marginals(), fg.Alphabet("ab"))
    axes = figure.axes[0]
    image = axes.images[0].get_array()
    assert image.shape == (2, 4)
    np.testing.assert_allclose(image.sum(axis=0), 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_curves_have_a_colour_for_each_name():
    panels = {
        "edit": {"naive": ([2, 3], [1.0, 10.0]), "ours": ([2, 3], [0.1, 0.2])},
        "bigram": {"ours": ([2], [0.1])},
    }
    figure = plot.curves(panels, xlabel="l", ylabel="seconds")
    first, second = figure.axes
    assert (first.get_title(), second.get_yscale()) == ("edit", "log")
    assert first.lines[1].get_color() == second.lines[0].get_color() != first.lines[0].get_color()
    assert first.lines[0].get_ydata().tolist() == [1, 10]


@pytest.mark.parametrize("name, start", [("f.png", b"\x89PNG"), ("f.svg", b"<?xml")])
def test_files(tmp_path, name, start):
    plot.save(plot.curves({"a": {"b": ([1], [1])}}, xlabel="x", ylabel="y"), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_bad_input(tmp_path):
    figure = plot.curves({"a": {"b": ([1], [1])}}, xlabel="x", ylabel="y")
    with pytest.raises(fg.InvalidInputError, match="png, svg"):
        plot.save(figure, tmp_path / "f.doc")
    with pytest.raises(fg.InvalidInputError, match="panels is empty"):
        plot.curves({}, xlabel="x", ylabel="y")
    with pytest.raises(fg.InvalidInputError, match="for 3 symbols"):
        plot.marginals(np.zeros((2, 2)), fg.Alphabet("abc"))


def test_pyplot_is_not_loaded():
    code = (
        "import sys; from fstgrad import plot;"
        "plot.curves({'a': {'b': ([1], [1])}}, xlabel='x', ylabel='y');"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
