"""Draw spanning trees as arcs over a sentence, and lattices as confusion networks."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    extra,
    float_array,
    index_array,
    instance,
    positive_integer,
    real_number,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.plot.theme import MARK, Theme, add_title, panels_of, stack, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_WORDS = 80
_LEAST = 5e-3  # probability of what a confusion network shows
_ROUNDING = 1e-6  # tolerated rounding error of probabilities


def trees(
    marginals: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    words: Sequence[str] | None = None,
    *,
    heads: Sequence[int] | None = None,
    threshold: float = 0.05,
    dark: bool = False,
) -> "Figure":
    """Return a figure of a sentence's arcs from head to dependent, wider if more probable.

    Parameters
    ----------
    marginals : (n+1, n+1) float64
        Arc probabilities [head, dependent], root at 0, as `SpanningTrees.marginals` returns them;
        or {title: marginals} of several models, below each other.
    words : n strings, optional
        The default is the numbers 1 .. n.
    heads : (n,) ints, optional
        A tree to mark, such as the gold tree: the head of each word, 0 for the root.
    threshold : float
        Arcs of a smaller probability are not drawn.

    Raises
    ------
    InvalidInputError
        The sizes differ, a marginal is outside [0, 1], or there are more than 80 words.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> q = fg.SpanningTrees(np.zeros((3, 3)), single_root=True).marginals()
    >>> figure = fg.plot.trees(q, ["she", "sleeps"], heads=[2, 0])
    >>> len(figure.axes[0].patches)  # two arcs of the root, two between the words
    4
    """
    tables = {
        title: _arcs(title or "marginals", table)
        for title, table in panels_of("marginals", marginals).items()
    }
    sizes = {len(table) - 1 for table in tables.values()}
    if len(sizes) > 1:
        raise InvalidInputError(
            f"the tables are for {sorted(sizes)} words; give those of one sentence"
        )
    n = sizes.pop()
    names = [str(i + 1) for i in range(n)] if words is None else items("words", words)
    for name in names:
        instance("one of words", name, str, "a str")
    gold = None if heads is None else index_array("heads", heads, n + 1, (None,))
    threshold = real_number("threshold", threshold)
    if len(names) != n or (gold is not None and gold.shape != (n,)):
        raise InvalidInputError(
            f"marginals are for {n} words; words has {len(names)}"
            + ("" if gold is None else f" and heads has shape {gold.shape}")
        )
    if n > _MOST_WORDS:
        raise InvalidInputError(f"the sentence has {n} words; draw at most {_MOST_WORDS}")
    theme = theme_of(dark)
    x = _places(["root", *names])
    heights = [1.2 + 0.35 * min(n, 8)] * len(tables)
    figure, plots = stack(max(3.0, 0.105 * x[-1] + 0.8), heights, theme)
    for axes, (title, table) in zip(plots, tables.items(), strict=True):
        top = _add_sentence(
            axes, theme, ["root", *names], np.where(table < threshold, 0, table), gold
        )
        axes.set(xlim=(x[0] - 4, x[-1] + 4), ylim=(-3.2, top + 1.5))
        add_title(axes, theme, title, "" if gold is None else "orange: the given tree")
    return figure


def _arcs(name: str, marginals: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the arc probabilities of one sentence, within [0, 1]."""
    table = float_array(name, marginals)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InvalidInputError(
            f"{name} has shape {table.shape}; give the (n+1, n+1) table of one sentence"
        )
    if not ((table > -_ROUNDING) & (table < 1 + _ROUNDING)).all():
        raise InvalidInputError(
            f"{name} are from {table.min():g} to {table.max():g}; give probabilities, as "
            "marginals() of a tree distribution returns them"
        )
    return table.clip(0.0, 1.0)


def _add_sentence(
    axes: "Axes",
    theme: Theme,
    shown: Sequence[str],
    table: npt.NDArray[np.float64],
    gold: npt.NDArray[np.int64] | None,
) -> float:
    """Add words, root first, and the arcs of positive probability; return the largest height."""
    patches = extra("matplotlib.patches", "plot", "fstgrad.plot")
    x, top = _places(shown), 0.0
    for head, dependent in np.argwhere(table > 0):
        if dependent == 0 or head == dependent:
            continue
        is_gold = gold is not None and gold[dependent - 1] == head
        height = _add_arc(axes, patches, x[head], x[dependent], float(table[head, dependent]),
                          MARK if is_gold else theme.strong)  # fmt: skip
        top = max(top, height)
    for place, name in zip(x, shown, strict=True):
        axes.text(
            place, -0.6, name, ha="center", va="top", fontsize=9,
            color=theme.foreground if place else theme.faint,
        )  # fmt: skip
    return top


def _places(words: Sequence[str]) -> list[float]:
    """Return the x coordinates of the words' centres; the unit is the width of a letter."""
    places, edge = [], 0.0
    for word in words:
        places.append(edge + len(word) / 2)
        edge += len(word) + 2.5
    return places


def _add_arc(axes: Any, patches: Any, start: float, end: float, p: float, color: str) -> float:
    """Add an arrow from the head to the dependent; return its height."""
    height: float = 0.9 + 0.30 * abs(end - start) ** 0.85
    shift = 0.35 if start < end else -0.35
    path = extra("matplotlib.path", "plot", "fstgrad.plot").Path(
        [(start + shift, 0), (start + shift, 4 * height / 3), (end, 4 * height / 3), (end, 0)],
        [1, 4, 4, 4],
    )
    axes.add_patch(
        patches.FancyArrowPatch(
            path=path, arrowstyle="-|>", mutation_scale=7, linewidth=0.5 + 3 * p, color=color,
            alpha=0.25 + 0.75 * p,
        )
    )  # fmt: skip
    if p >= 0.15:
        axes.text(
            (start + end) / 2, height + 0.15, f"{p:.2f}".lstrip("0"), ha="center", va="bottom",
            fontsize=7, color=color,
        )  # fmt: skip
    return height


def confusion_network(
    lattice: Any,
    *,
    top: int = 5,
    path: Sequence[int] | npt.NDArray[np.integer] | None = None,
    reference: Sequence[str | None] | None = None,
    dark: bool = False,
) -> "Figure":
    """Return a figure of a lattice's words, shaded by posterior, the likeliest on top.

    All paths are aligned to one, as in `Lattice.to_confusion_network`.  "–" is the event that a
    path has no word in this column; columns with words of less than 0.005 are left out.

    Parameters
    ----------
    lattice : Lattice
        Or {title: lattice}, such as one with its scores before and after training, below each
        other.
    top : int
        The number of rows: the most words to show in one column.
    path : arc numbers, optional
        A path whose words to frame, such as the best one, or the oracle; the others are aligned to
        it.  By default, they are aligned to the most probable one.
    reference : sequence of str or None, optional
        A text to write below each word of `path`, such as the word of a reference that is aligned
        with it.

    Raises
    ------
    InvalidInputError
        The lattice has no word, or `reference` does not have an entry for each word of `path`.

    Examples
    --------
    >>> import fstgrad as fg
    >>> abc = fg.Alphabet(["a", "an", "old", "cold"])
    >>> lattice = fg.Lattice.from_nbest([["a", "cold"], ["an", "old"]], [0.0, 0.0], abc)
    >>> figure = fg.plot.confusion_network(lattice)
    >>> sorted(text.get_text() for text in figure.axes[0].texts)
    ['a  0.50', 'an  0.50', 'cold  0.50', 'old  0.50']
    """
    top = positive_integer("top", top)
    networks = {
        title: _network(one, top, path, reference)
        for title, one in panels_of("lattice", lattice).items()
    }
    theme = theme_of(dark)
    width = max(network.edges[-1] for network in networks.values())
    heights = [0.32 * (net.rows + any(net.below)) + 0.5 for net in networks.values()]
    figure, plots = stack(min(0.105 * width + 0.4, 40.0), heights, theme)
    for axes, (title, network) in zip(plots, networks.items(), strict=True):
        _add_network(axes, theme, network)
        axes.set(xlim=(-0.5, width + 0.5), ylim=(-network.rows + 0.4 - any(network.below), 0.6))
        add_title(axes, theme, title)
    return figure


class _Network(NamedTuple):
    """What is drawn of a lattice: words by column, the likeliest first.

    slots : (word, posterior) pairs of each column.
    framed : the word to frame in each column, or "".
    below : the text below each column, or "".
    rows : most words to show in one column.
    edges : (columns + 1,) left and right sides of the columns, in widths of letters.
    """

    slots: list[list[tuple[str, float]]]
    framed: list[str]
    below: list[str]
    rows: int
    edges: npt.NDArray[np.float64]


def _network(lattice: Any, top: int, path: Any, reference: Sequence[str | None] | None) -> _Network:
    if not hasattr(lattice, "to_confusion_network"):
        raise InvalidInputError(f"lattice is a {type(lattice).__name__}; give a Lattice")
    aligned, pivot = lattice.to_confusion_network(path)
    texts = _framed(lattice, path, reference)
    columns, framed, below = [], [], []
    for k, alternatives in enumerate(aligned):
        p_none = math.exp(dict(alternatives).get(None, -math.inf))
        slot = [
            ("–" if word is None else word, math.exp(score))
            for word, score in alternatives
            if word is not None or p_none > _LEAST
        ]
        if k in pivot and texts:
            word, text = texts.pop(0)
        elif 1.0 - p_none < _LEAST:
            continue
        else:
            word, text = "", ""
        at = next((i for i, (other, _) in enumerate(slot) if other == word), 0)
        slot.insert(min(at, top - 1), slot.pop(at))
        columns.append(slot)
        framed.append(word)
        below.append(text)
    if not columns:
        raise InvalidInputError("the lattice has no word; there is nothing to draw")
    rows = min(top, max(map(len, columns)))
    widths = [
        max(5, *(len(text) + 5 for text in (*(word for word, _ in slot[:rows]), text_below)))
        for slot, text_below in zip(columns, below, strict=True)
    ]
    return _Network(columns, framed, below, rows, np.concatenate([[0.0], np.cumsum(widths)]))


def _add_network(axes: "Axes", theme: Theme, network: _Network) -> None:
    patches, shades = extra("matplotlib.patches", "plot", "fstgrad.plot"), theme.shades()
    edges = network.edges
    for left, right, slot, framed, below in zip(
        edges[:-1], edges[1:], network.slots, network.framed, network.below, strict=True
    ):
        if below:
            axes.text(
                (left + right) / 2, -network.rows, below, ha="center", va="center", fontsize=8,
                color=MARK,
            )  # fmt: skip
        for row, (word, p) in enumerate(slot[: network.rows]):
            axes.add_patch(
                patches.Rectangle(
                    (left + 0.15, -row - 0.45), right - left - 0.3, 0.9, facecolor=shades(p),
                    edgecolor=MARK if framed == word else theme.faint,
                    linewidth=2 if framed == word else 0.5, zorder=2 if framed == word else 1,
                )
            )  # fmt: skip
            axes.text(
                (left + right) / 2, -row, f"{word}  {p:.2f}", ha="center", va="center",
                fontsize=8, color=theme.on(p),
            )  # fmt: skip


def _framed(
    lattice: Any, path: Any, reference: Sequence[str | None] | None
) -> list[tuple[str, str]]:
    """Return the words of a path and the texts below them."""
    if path is None:
        if reference is not None:
            raise InvalidInputError("reference has no effect without path; give both")
        return []
    words = lattice.alphabet.decode(lattice.string(path))
    texts = [""] * len(words) if reference is None else [text or "–" for text in reference]
    if len(texts) != len(words):
        raise InvalidInputError(
            f"reference has {len(texts)} entries and path {len(words)} words; give one for each"
        )
    return list(zip(words, texts, strict=True))
