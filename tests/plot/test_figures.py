"""Figures: what they show, and that nothing global is touched."""

import itertools
import shutil
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


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_files_are_the_same_in_every_run(form, tmp_path, monkeypatch):
    for day in "12":
        monkeypatch.setenv("SOURCE_DATE_EPOCH", f"{day}00000000")
        panels = {"edit": {"ours": ([2, 3], [0.1, 0.2])}}
        plot.curves(panels, xlabel="l", ylabel="seconds").savefig(tmp_path / f"{day}.{form}")
    assert (tmp_path / f"1.{form}").read_bytes() == (tmp_path / f"2.{form}").read_bytes()


@pytest.mark.parametrize(
    "name, start", [("f.png", b"\x89PNG"), ("f.svg", b"<?xml"), ("f.pdf", b"%PDF")]
)
def test_files(tmp_path, name, start):
    plot.save(plot.curves({"a": {"b": ([1], [1])}}, xlabel="x", ylabel="y"), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_bad_input(tmp_path):
    figure = plot.curves({"a": {"b": ([1], [1])}}, xlabel="x", ylabel="y")
    with pytest.raises(fg.InvalidInputError, match=r"\.png, \.svg, \.pdf"):
        plot.save(figure, tmp_path / "f.doc")
    with pytest.raises(fg.InvalidInputError, match="panels is empty"):
        plot.curves({}, xlabel="x", ylabel="y")
    for panels, said in (({"a": {}}, "has no series"), ({"a": {"b": ([1], [0])}}, "log=False")):
        with pytest.raises(fg.InvalidInputError, match=said):
            plot.curves(panels, xlabel="x", ylabel="y")
    for shape, said in (((2, 2), "for 3 symbols"), ((0, 3), "no position")):
        with pytest.raises(fg.InvalidInputError, match=said):
            plot.marginals(np.zeros(shape), fg.Alphabet("abc"))


def test_pyplot_is_not_loaded():
    code = (
        "import sys; from fstgrad import plot;"
        "plot.curves({'a': {'b': ([1], [1])}}, xlabel='x', ylabel='y');"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_target_is_framed():
    d = fg.StringDistribution(np.random.default_rng(0).normal(size=(3, 2)))
    figure = plot.marginals(d.marginals(), fg.Alphabet("ab"), target="aba")
    corners = [patch.get_xy() for patch in figure.axes[0].patches]
    np.testing.assert_allclose(corners, [(-0.46, -0.46), (0.54, 0.54), (1.54, -0.46)])
    with pytest.raises(fg.InvalidInputError, match="target has 2 symbols, the table 3 positions"):
        plot.marginals(d.marginals(), fg.Alphabet("ab"), target="ab")


def test_an_alignment_says_its_operations():
    found = fg.EditDistance(fg.Alphabet("abcd")).align("abcd", "acc")
    figure = plot.alignment(found)
    assert figure.axes[0].get_title(loc="left") == (
        "loss 2: 2 matches, 1 substitutions (S), 1 deletions (D)"
    )
    shown = texts(figure)
    assert [shown.count(letter) for letter in "SDI"] == [1, 1, 0]
    assert shown.count("–") == 1


def test_arcs_of_a_sentence():
    table = np.array([[0, 0.9, 0.1], [0, 0, 0.9], [0, 0.1, 0]])
    figure = plot.trees(table, ["go", "home"], heads=[0, 1])
    widths = sorted(patch.get_linewidth() for patch in figure.axes[0].patches)
    np.testing.assert_allclose(widths, [0.8, 0.8, 3.2, 3.2])  # 0.5 + 3 p
    assert texts(figure) == [".90", ".90", "root", "go", "home"]
    assert len(plot.trees(table, threshold=0.5).axes[0].patches) == 2
    with pytest.raises(fg.InvalidInputError, match="for 2 words; words has 1"):
        plot.trees(table, ["go"])
    with pytest.raises(fg.InvalidInputError, match=r"give the .* table of one sentence"):
        plot.trees(np.zeros((2, 3, 3)))
    with pytest.raises(fg.InvalidInputError, match=r"give the .* table of one sentence"):
        plot.trees(np.zeros((3, 4)))
    with pytest.raises(fg.InvalidInputError, match="at most 80"):
        plot.trees(np.zeros((300, 300)))


def test_the_words_of_a_path_are_framed_and_shown():
    """The least probable word moves into the last row, with its text below."""
    abc = fg.Alphabet("abcd")
    slots = [[("a", 0.0), ("b", -1.0), ("c", -2.0)], [("d", 0.0), (None, 0.0)]]
    lattice = fg.Lattice.from_confusion_network(slots, abc)
    path = [int(np.flatnonzero(lattice.label == i)[0]) for i in (2, 3)]
    axes = plot.confusion_network(lattice, top=2, path=path, reference=["x", None]).axes[0]
    words = [text.get_text().split()[0] for text in axes.texts]
    assert sorted(words) == sorted(["a", "c", "x", "d", "–", "–"])
    widths = [patch.get_linewidth() for patch in axes.patches]
    assert sorted(widths) == [0.5, 0.5, 2, 2]
    with pytest.raises(fg.InvalidInputError, match="reference has 1 entries and path 2 words"):
        plot.confusion_network(lattice, path=path, reference=["x"])
    with pytest.raises(fg.InvalidInputError, match="no effect without path"):
        plot.confusion_network(lattice, reference=["x"])


def titles(figure):
    sides = [[axes.get_title(loc=side) for side in ("left", "right")] for axes in figure.axes]
    return [" | ".join(filter(None, pair)) for pair in sides]


def test_several_models_are_panels_of_one_figure():
    """Each panel shows its own table, and marks are the same in all."""
    abc = fg.Alphabet("ab")
    tables = {"before": np.full((2, 2), 0.5), "after": np.eye(2)}
    figure = plot.marginals(tables, abc, target="ab")
    assert titles(figure)[:2] == ["before | framed: the target", "after"]
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), np.eye(2))
    assert [len(axes.patches) for axes in figure.axes[:2]] == [2, 2]

    arcs = np.array([[0, 0.9, 0.1], [0, 0, 0.9], [0, 0.1, 0]])
    figure = plot.trees({"before": arcs, "after": np.round(arcs)}, heads=[0, 1])
    assert titles(figure) == [f"{name} | orange: the given tree" for name in ("before", "after")]
    assert [len(axes.patches) for axes in figure.axes] == [4, 2]

    lattice = fg.Lattice.from_nbest(["ab", "b"], np.log([3.0, 1.0]), abc)
    figure = plot.confusion_network(
        {"before": lattice, "after": lattice.with_scores(0.0 * lattice.scores)}
    )
    assert titles(figure) == ["before", "after"]
    shown = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    assert {"a  0.75", "a  0.50"} == {next(t for t in one if t[0] == "a") for one in shown}

    loss = fg.EditDistance(abc)
    figure = plot.alignment({"one": loss.align("ab", "ab"), "two": loss.align("a", "b")})
    assert titles(figure) == ["one: loss 0: 2 matches", "two: loss 1: 1 substitutions (S)"]

    for draw in (
        lambda one: plot.marginals(one, abc),
        plot.trees,
        plot.confusion_network,
        plot.alignment,
    ):
        with pytest.raises(fg.InvalidInputError, match="is empty; give at least one title"):
            draw({})
    with pytest.raises(fg.InvalidInputError, match="of one sentence"):
        plot.trees({"a": arcs, "b": np.zeros((4, 4))})
    with pytest.raises(fg.InvalidInputError, match="b has shape"):
        plot.marginals({"a": tables["after"], "b": np.zeros((2, 3))}, abc)


def test_long_alignments_have_several_rows():
    found = fg.EditDistance(fg.Alphabet("ab")).align("a" * 50, "a" * 46 + "bbbb")
    figure = plot.alignment(found)
    assert texts(figure).count("target") == 2
    assert texts(figure).count("S") == 4
    heights = {text.get_position()[1] for text in figure.axes[0].texts if text.get_text() == "b"}
    assert heights == {-2.0}
    assert figure.get_size_inches()[1] == 3.0


def test_a_lattice_as_a_confusion_network():
    abc = fg.Alphabet(["a", "b", "c"])
    lattice = fg.Lattice.from_nbest([["a", "b"], ["c"]], np.log([3.0, 1.0]), abc)
    figure = plot.confusion_network(lattice)
    assert texts(figure) == ["a  0.75", "c  0.25", "b  0.75", "–  0.25"]
    with pytest.raises(fg.InvalidInputError, match="no word"):
        plot.confusion_network(fg.Lattice.from_nbest([[]], [0.0], abc))


def test_panels_of_a_grid():
    labels = np.array([[0, 1], [1, 0]])
    figure = plot.strip({"before": labels, "P(y)": labels / 2, "after": labels == 1})
    images = [axes.images[0] for axes in figure.axes[:3]]
    assert [image.get_cmap().name for image in images] == ["gray", "cividis", "gray"]
    for bad in ({}, {"a": np.zeros(3)}, {"a": np.full((2, 2), 1.5)}):
        with pytest.raises(fg.InvalidInputError):
            plot.strip(bad)


def test_a_word_graph_tells_pairs_from_larger_sets():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_edge("heat", "transfer", weight=2.0, sets=[])
    graph.add_edge("heat", "cell", weight=-0.5, sets=[])
    graph.add_edge("cell", "bone", weight=0.0, sets=[(("cell", "bone", "x"), 0.5)])
    graph.add_node("alone")
    axes = plot.word_graph(graph).axes[0]
    lines = [(line.get_linestyle(), line.get_linewidth()) for line in axes.lines[:3]]
    assert lines == [(":", 1.0), ("--", 2.1), ("-", 6.0)]  # in the order of the words
    assert len({line.get_color() for line in axes.lines[:3]}) == 3
    assert "alone" not in [text.get_text() for text in axes.texts]
    assert len(axes.get_legend().get_texts()) == 3
    with pytest.raises(fg.InvalidInputError, match="no edge"):
        plot.word_graph(networkx.Graph())


@pytest.mark.parametrize("words, height", [(4, 5.3), (36, 8.9), (144, 14.0)])
def test_a_word_graph_grows_with_its_words(words, height):
    networkx = pytest.importorskip("networkx")
    graph = networkx.cycle_graph(words)
    networkx.set_edge_attributes(graph, {edge: {"weight": 1.0, "sets": []} for edge in graph.edges})
    graph = networkx.relabel_nodes(graph, str)
    size = plot.word_graph(graph).get_size_inches()
    np.testing.assert_allclose(size, [1.35 * height, height])


@pytest.mark.parametrize("words", [20, 60])
def test_words_of_a_graph_do_not_cover_each_other(words):
    """The boxes of the words as they are drawn; a hub, a chain and pairs."""
    networkx = pytest.importorskip("networkx")
    hub = networkx.star_graph(words - 10)
    graph = networkx.disjoint_union_all(
        [hub, networkx.path_graph(5), *[networkx.path_graph(2)] * 2]
    )
    networkx.set_edge_attributes(graph, {edge: {"weight": 1.0, "sets": []} for edge in graph.edges})
    figure = plot.word_graph(networkx.relabel_nodes(graph, lambda i: f"hypothesis {i}"))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == words
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    place = {text.get_text(): np.array(text.xy) for text in axes.texts}
    ends = [
        np.diff([place[f"hypothesis {words - 9 + i + k}"] for k in (0, 1)], axis=0)[0]
        for i in range(3)
    ]
    cosines = [a @ b / np.hypot(*a) / np.hypot(*b) for a, b in itertools.pairwise(ends)]
    assert max(cosines) < 0.95  # the chain bends


class Epoch:
    def __init__(self, epoch, objective, validation):
        self.epoch, self.objective, self.validation = epoch, objective, validation
        self.gradient_norm = 1.0


def test_the_best_epoch_is_marked():
    history = [Epoch(1, 3.0, 0.5), Epoch(2, 2.0, 0.2), Epoch(3, 1.0, 0.4)]
    figure = plot.learning(history)
    assert [axes.lines[1].get_xdata()[0] for axes in figure.axes] == [2, 2, 2]
    without = plot.learning([Epoch(1, 3.0, None), Epoch(2, 2.0, None), Epoch(3, 1.0, None)])
    assert [axes.lines[1].get_xdata()[0] for axes in without.axes] == [3, 3]
    with pytest.raises(fg.InvalidInputError, match="no epoch"):
        plot.learning([])


def test_bounds_show_the_exact_value():
    (axes,) = plot.bounds([1, 2], [0.0, 0.4], [1.0, 0.6], exact=0.5).axes
    assert [line.get_label() for line in axes.lines] == ["upper bound", "lower bound", "exact"]
    assert set(axes.lines[2].get_ydata()) == {0.5}
    (axes,) = plot.bounds([1], [0.0], [1.0]).axes
    assert len(axes.lines) == 2


@pytest.mark.parametrize("length, step", [(30, 1), (31, 2), (60, 2), (61, 3)])
def test_long_strings_have_at_most_thirty_ticks(length, step):
    (axes, *_) = plot.marginals(np.full((length, 2), 0.5), fg.Alphabet("ab")).axes
    assert axes.get_xticks().tolist() == list(range(0, length, step))


def test_bounds_and_bars_need_values():
    with pytest.raises(fg.InvalidInputError, match="one bound each"):
        plot.bounds([1, 2], [0.0], [1.0])
    with pytest.raises(fg.InvalidInputError, match="groups is empty"):
        plot.bars({"a": {}}, xlabel="s")
    for value in (0.0, -1.0):
        with pytest.raises(fg.InvalidInputError, match=f"a value of groups is {value}"):
            plot.bars({"a": {"b": value}}, xlabel="s")
        assert plot.bars({"a": {"b": value}}, xlabel="s", log=False)


def test_dark_figures_have_dark_paper_and_light_labels():
    figure = plot.curves({"a": {"b": ([1], [1])}}, xlabel="x", ylabel="y", dark=True)
    assert "<svg" in figure._repr_svg_()
    assert sum(figure.get_facecolor()[:3]) < 0.5
    label = figure.axes[0].xaxis.label.get_color()
    assert sum(matplotlib.colors.to_rgb(label)) > 2.5


def test_one_edge_for_each_pair_of_states():
    b = fg.Hamming(fg.Alphabet("abcdefghijkl")).compile("ab")
    source = plot.automaton_source(b, title='say "ab"')
    assert source.count("->") == 3  # that of the start too
    assert '0 -> 1 [label="a\\nb–l / 1"];' in source
    assert 'label="say \\"ab\\""' in source
    assert "start -> 0;" in source
    with pytest.raises(fg.InvalidInputError, match="more than max_edges=1"):
        plot.automaton_source(b, max_edges=1)


def test_the_empty_symbol_is_a_letter():
    from fstgrad.losses.transducers import edit_transducer

    abc = fg.Alphabet("ab")
    source = plot.automaton_source(edit_transducer(abc), abc)
    assert '[label="a, b\\na:b, b:a, a:ε, b:ε, ε:a, ε:b / 1"]' in source


def test_labels_of_loops_beside_each_other_are_narrow():
    from fstgrad.losses.transducers import smith_waterman_transducer

    abc = fg.Alphabet("ab")
    source = plot.automaton_source(smith_waterman_transducer(abc), abc)
    assert source.count('[label="a:ε, b:ε\\nε:a, ε:b"]') == 2  # loops 0 and 2


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
@pytest.mark.parametrize("form, start", [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_dot_draws(form, start):
    b = fg.EditDistance(fg.Alphabet("ab")).compile("ab")
    assert plot.render(plot.automaton_source(b), form).startswith(start)


def test_pictures_of_other_forms_are_refused():
    with pytest.raises(fg.InvalidInputError, match="form is 'gif'; choose one of svg, pdf, png"):
        plot.render("digraph {}", "gif")


def test_notebooks_show_what_fits():
    abc = fg.Alphabet("ab")
    small = [
        fg.StringDistribution(np.zeros((3, 2))),
        fg.Lattice.from_nbest(["ab", "b"], [0.0, 0.0], abc),
        fg.SpanningTrees(np.zeros((41, 41)), single_root=True),
        fg.EditDistance(abc).align("ab", "b"),
    ]
    assert all("<svg" in shown._repr_svg_() for shown in small)
    large = [
        fg.StringDistribution(np.zeros((61, 2))),
        fg.SpanningTrees(np.zeros((2, 4, 4)), single_root=True, labeled=False),
        fg.SpanningTrees(np.zeros((42, 42)), single_root=True),
        fg.EditDistance(abc).compile("ab" * 20, cap=3),
    ]
    assert [shown._repr_svg_() for shown in large] == [None] * 4
    assert fg.SpanningTrees(np.full((3, 3), -np.inf), single_root=True)._repr_svg_() is None


def test_subpackages_are_loaded_on_use():
    code = (
        "import sys, fstgrad; assert 'plot' in dir(fstgrad) and 'plot' not in fstgrad.__all__;"
        "assert not {'torch', 'matplotlib', 'fstgrad.plot'} & set(sys.modules);"
        "fstgrad.plot.curves; assert 'fstgrad.plot' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bars_of_one_group_need_no_name():
    named = plot.bars({"": {"before": 1.0, "after": 2.0}}, xlabel="errors", log=False)
    plain = plot.bars({"before": 1.0, "after": 2.0}, xlabel="errors", log=False)
    widths = [[bar.get_width() for bar in f.axes[0].patches] for f in (named, plain)]
    assert widths == [[1.0, 2.0]] * 2
    with pytest.raises(fg.InvalidInputError, match="groups is empty or mixed"):
        plot.bars({"before": 1.0, "more": {"after": 2.0}}, xlabel="errors")


def test_pictures_of_sentences_grow_up_to_eight_words():
    heights = [plot.trees(np.full((n + 1, n + 1), 0.5)).get_size_inches()[1] for n in (2, 4, 8, 12)]
    assert heights[0] < heights[1] < heights[2] == heights[3]
