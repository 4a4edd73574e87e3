"""Draw the strongest sets of words of a root model of counts as a graph."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import extra, instance, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.plot.theme import PALETTE, canvas, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POSITIVE, _NEGATIVE, _LARGER = PALETTE[0], PALETTE[5], PALETTE[7]
_LETTER, _LINE = 0.08, 0.3  # inches: the width of a letter; the height of a word with its dot
_ROUNDS = 300  # of moving words apart


def word_graph(graph: Any, *, dark: bool = False, seed: int = 0) -> "Figure":
    """Return the graph of a root model: which words occur together, and which avoid each other.

    The width of a line grows with the absolute value of the pair's parameter.  A dashed line is a
    negative parameter; a grey dotted line is a pair that occurs only in a set of three or more
    words.

    Parameters
    ----------
    graph : networkx.Graph
        As `GeneralizedRootModel.to_networkx(top)` returns it; words without an edge are not drawn.
    seed : int
        The seed of the layout.

    Raises
    ------
    InvalidInputError
        The graph has no edge.
    """
    networkx = extra("networkx", "grm", "fstgrad.plot.word_graph")
    instance("graph", graph, networkx.Graph, "a Graph of networkx")
    seed = positive_integer("seed", seed, minimum=0)
    drawn = graph.edge_subgraph(graph.edges)
    if not drawn.number_of_edges():
        raise InvalidInputError("the graph has no edge; fit with a smaller alpha, or use more sets")
    theme = theme_of(dark)
    size = min(14.0, 3.5 + 0.9 * drawn.number_of_nodes() ** 0.5)
    figure, axes = canvas(1.35 * size, size, theme)
    add_word_graph(axes, drawn, dark=dark, seed=seed)
    return figure


def add_word_graph(axes: "Axes", drawn: Any, *, dark: bool = False, seed: int = 0) -> None:
    """Draw a graph into axes, as `word_graph` does."""
    networkx = extra("networkx", "grm", "fstgrad.plot.word_graph")
    effects = extra("matplotlib.patheffects", "plot", "fstgrad.plot")
    theme = theme_of(dark)
    axes.set_axis_off()
    if not drawn.number_of_nodes():
        return
    drawn = _in_order(networkx, drawn)
    inches = np.array(axes.get_window_extent().size) / axes.figure.dpi
    place = _apart(_layout(networkx, drawn, seed), inches)
    weights = [abs(data["weight"]) for *_, data in drawn.edges(data=True)]
    largest = max(weights, default=0.0) or 1.0
    kinds = set()
    for a, b, data in drawn.edges(data=True):
        weight = data["weight"]
        kind = "larger set" if weight == 0 else ("together" if weight > 0 else "apart")
        kinds.add(kind)
        color, dash = _STYLE[kind]
        axes.plot(
            *zip(place[a], place[b], strict=True), color=color, linestyle=dash, alpha=0.75,
            linewidth=1.0 if weight == 0 else 0.8 + 5.2 * abs(weight) / largest,
            solid_capstyle="round", zorder=1,
        )  # fmt: skip
    xy = np.array(list(place.values()))
    axes.scatter(xy[:, 0], xy[:, 1], s=26, color=theme.foreground, zorder=2)
    halo = [effects.withStroke(linewidth=3, foreground=theme.background)]
    for word, (x, y) in place.items():
        axes.annotate(
            word, (x, y), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=9,
            color=theme.foreground, path_effects=halo, zorder=3,
        )  # fmt: skip
    for kind in ("together", "apart", "larger set"):
        if kind in kinds:
            axes.plot([], [], color=_STYLE[kind][0], linestyle=_STYLE[kind][1], label=_SAID[kind])
    axes.margins(0.12)
    axes.legend(loc="lower left", fontsize=8, framealpha=0.9)
    theme.style(axes)


_STYLE = {"together": (_POSITIVE, "-"), "apart": (_NEGATIVE, "--"), "larger set": (_LARGER, ":")}
_SAID = {
    "together": "occur together (positive)",
    "apart": "keep apart (negative)",
    "larger set": "in a set of three or more",
}


def _in_order(networkx: Any, graph: Any) -> Any:
    """Return a copy with sorted words and pairs; networkx views have the order of hashes."""
    copy = networkx.Graph()
    copy.add_nodes_from(sorted(graph, key=str))
    pairs = ((*sorted(pair[:2], key=str), pair[2]) for pair in graph.edges(data=True))
    copy.add_edges_from(sorted(pairs, key=lambda pair: (str(pair[0]), str(pair[1]))))
    return copy


def _layout(networkx: Any, graph: Any, seed: int) -> dict[Any, Any]:
    """Lay out each component separately and place them on a grid, the largest first."""
    found = networkx.connected_components(graph)
    parts = sorted(found, key=lambda part: (-len(part), min(map(str, part))))
    columns = max(1, round(len(parts) ** 0.5))
    place, x, y, row_height = {}, 0.0, 0.0, 0.0
    for number, part in enumerate(parts):
        if number and number % columns == 0:
            x, y, row_height = 0.0, y - row_height, 0.0
        width = 0.6 + len(part) ** 0.5
        own = _in_order(networkx, graph.subgraph(part))
        if max(degree for _, degree in own.degree) <= 2:  # a pair or a chain would be a line
            near = networkx.circular_layout(own)
        else:
            near = networkx.spring_layout(
                own, seed=seed, weight=None, k=2.2 / len(part) ** 0.5, iterations=200
            )
        for word, (dx, dy) in near.items():
            place[word] = (x + width * (1 + dx) / 2, y - width * (1 - dy) / 2)
        x += 1.35 * width
        row_height = max(row_height, 1.2 * width)
    return place


def _apart(place: dict[Any, Any], inches: npt.NDArray[np.float64]) -> dict[Any, Any]:
    """Return the places in a box of `inches`, moved apart until no word covers another one.

    Words that overlap move along the axis of the smaller overlap.
    """
    xy = np.array(list(place.values()))
    low, span = xy.min(axis=0), np.ptp(xy, axis=0)
    xy = (xy - low) / np.where(span > 0, span, 1.0) * 0.8 * inches
    half = np.array([(_LETTER * len(str(word)) / 2, _LINE / 2) for word in place])
    before = np.tri(len(xy), k=-1) - np.tri(len(xy), k=-1).T  # breaks ties: equal places
    for _ in range(_ROUNDS):
        gap = xy[:, None] - xy
        overlap = half[:, None] + half - np.abs(gap)
        hit = (overlap > 0).all(axis=2)
        np.fill_diagonal(hit, False)
        if not hit.any():
            break
        chosen = hit[..., None] & (overlap.argmin(axis=2)[..., None] == np.arange(2))
        side = np.where(gap == 0, before[..., None], np.sign(gap))
        moves = (chosen * side * (overlap + 0.01)).sum(axis=1)
        xy = xy + 0.5 * moves / np.maximum(chosen.sum(axis=1), 1)
    return dict(zip(place, xy, strict=True))
