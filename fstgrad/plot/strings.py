"""Draw the marginals of strings as a map, and alignments of two strings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import extra, instance, real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.plot.theme import MARK, Theme, add_title, blank, panels_of, stack, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PER_ROW = 30  # operations of an alignment in one row
_NUMBERS = 12  # a map of at most this many positions shows its numbers
_KINDS = {  # kind of operation -> (colour number, letter)
    "match": (-1, ""), "substitute": (1, "S"), "delete": (5, "D"), "insert": (2, "I"),
    "transpose": (3, "T"), "skip": (-1, ""),
}  # fmt: skip


def marginals(
    table: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    alphabet: Alphabet,
    *,
    target: SequenceLike | None = None,
    dark: bool = False,
) -> "Figure":
    """Return a map of marginals: positions from left to right, symbols from top to bottom.

    Parameters
    ----------
    table : (l, n), (l, n+1, n), ... float64
        The marginals Q, as `StringDistribution.marginals` returns them; contexts are summed out.
        Or {title: table} of several models, side by side.
    alphabet : Alphabet of n symbols
    target : string of length l, optional
        A string whose cells to frame.

    Raises
    ------
    InvalidInputError
        The table does not fit the alphabet, or the target does not have length l.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> abc = fg.Alphabet("ab")
    >>> q = fg.StringDistribution(np.zeros((3, 2))).marginals()
    >>> figure = fg.plot.marginals(q, abc, target="aba")
    >>> len(figure.axes[0].patches)  # the framed cells
    3
    """
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    ids = None if target is None else alphabet.encode(target, name="target")
    maps = {
        title: _map(title or "table", one, len(alphabet), ids)
        for title, one in panels_of("table", table).items()
    }
    theme = theme_of(dark)
    width = sum(0.42 * values.shape[1] + 0.6 for values in maps.values()) + 1.3
    figure = blank(min(width, 24.0), min(0.32 * len(alphabet) + 1.1, 16.0), theme)
    plots = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (title, values) in zip(plots, maps.items(), strict=True):
        image = _add_map(axes, theme, values, ids)
        axes.set_yticks(range(len(alphabet)), alphabet.symbols)
        axes.set_xticks(*_positions(values.shape[1]))
        axes.set_xlabel("position")
        theme.style(axes)
        is_first = axes is plots[0]
        add_title(axes, theme, title, "framed: the target" if ids is not None and is_first else "")
    plots[0].set_ylabel("symbol")
    theme.style(plots[0])
    bar = figure.colorbar(image, ax=list(plots), label="probability", pad=0.02)
    theme.style(bar.ax)
    return figure


def _map(
    name: str, table: npt.ArrayLike, n: int, ids: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.float64]:
    """Return the probabilities (n, l) of symbols by position."""
    values = real_array(name, table)
    if values.ndim < 2 or values.shape[-1] != n:
        raise InvalidInputError(
            f"{name} has shape {values.shape}; give (l, {n}) or more axes, the last for {n} symbols"
        )
    if not len(values):
        raise InvalidInputError(f"{name} has no position; give (l, {n}) with l > 0")
    if ids is not None and len(ids) != len(values):
        raise InvalidInputError(
            f"target has {len(ids)} symbols, the {name} {len(values)} positions; give equal lengths"
        )
    by_symbol: npt.NDArray[np.float64] = values.sum(axis=tuple(range(1, values.ndim - 1))).T
    return by_symbol


def _add_map(
    axes: "Axes",
    theme: Theme,
    values: npt.NDArray[np.float64],
    ids: npt.NDArray[np.int64] | None,
) -> Any:
    """Add the map of probabilities (n, l), with the cells of a target framed; return its image."""
    image = axes.imshow(values, aspect="auto", cmap=theme.shades(), vmin=0, vmax=1)
    if values.shape[1] <= _NUMBERS:
        for (row, column), p in np.ndenumerate(values):
            if p >= 0.005:
                axes.text(
                    column, row, f"{p:.2f}".lstrip("0"), ha="center", va="center", fontsize=7,
                    color=theme.on(float(p)),
                )  # fmt: skip
    patches = extra("matplotlib.patches", "plot", "fstgrad.plot")
    for position, symbol in enumerate([] if ids is None else ids):
        axes.add_patch(
            patches.Rectangle(
                (position - 0.46, symbol - 0.46),
                0.92,
                0.92,
                fill=False,
                edgecolor=MARK,
                linewidth=2,
            )
        )
    return image


def alignment(found: Any, *, dark: bool = False) -> "Figure":
    """Return a figure of an alignment: hypothesis above target, with the operations between them.

    Parameters
    ----------
    found : Alignment
        As `loss.align(y, target)` returns it; or {title: alignment} of several losses, below each
        other.  Long alignments have several rows.

    Raises
    ------
    InvalidInputError
        `found` is not an alignment, or it is empty.

    Examples
    --------
    >>> import fstgrad as fg
    >>> found = fg.EditDistance(fg.Alphabet("abc")).align("abc", "acc")
    >>> figure = fg.plot.alignment(found)
    >>> [text.get_text() for text in figure.axes[0].texts][:3]
    ['y', 'target', 'a']
    """
    alignments = panels_of("found", found)
    for one in alignments.values():
        if not isinstance(getattr(one, "operations", None), tuple | list):
            raise InvalidInputError(
                f"found is a {type(one).__name__}; give what loss.align returns"
            )
        if not one.operations:
            raise InvalidInputError("the alignment is empty; there is nothing to draw")
    every = [op for one in alignments.values() for op in one.operations]
    widest = max(len(symbol or "") for op in every for symbol in (op.y, op.target))
    step = 0.34 + 0.09 * max(0, widest - 1)
    length = min(_PER_ROW, max(len(one.operations) for one in alignments.values()))
    rows = [-(-len(one.operations) // length) for one in alignments.values()]
    theme = theme_of(dark)
    figure, plots = stack(min(step * length + 1.0, 40.0), [1.5 * count for count in rows], theme)
    for axes, (title, one), count in zip(plots, alignments.items(), rows, strict=True):
        for row in range(count):
            _add_row(axes, theme, one.operations[row * length : (row + 1) * length], -2.0 * row)
        axes.set(xlim=(-2.2, length), ylim=(1.5 - 2.0 * count, 1.5))
        add_title(axes, theme, f"{title}: {_summary(one)}" if title else _summary(one))
    return figure


def _add_row(axes: "Axes", theme: Theme, operations: Sequence[Any], base: float) -> None:
    """Add a row of operations, whose target is at the height `base`."""
    for name, height in (("y", 1.0), ("target", 0.0)):
        axes.text(
            -0.8, base + height, name, ha="right", va="center", color=theme.foreground, fontsize=9
        )
    for place, op in enumerate(operations):
        number, letter = _KINDS[op.kind]
        color = theme.faint if number < 0 else theme.color(number)
        for symbol, height in ((op.y, 1.0), (op.target, 0.0)):
            outside = op.kind == "skip"
            axes.text(
                place, base + height, symbol or "–", ha="center", va="center", fontsize=11,
                color=theme.faint if outside or symbol is None else theme.foreground,
                bbox=None if number < 0 or symbol is None else {
                    "boxstyle": "round,pad=0.25", "facecolor": "none", "edgecolor": color,
                },
            )  # fmt: skip
        if op.kind != "skip" and op.y is not None and op.target is not None:
            axes.plot([place, place], [base + 0.28, base + 0.72], color=color, linewidth=1.2)
        if letter:
            axes.text(
                place + 0.12, base + 0.5, letter, ha="left", va="center", fontsize=8, color=color
            )


def _summary(found: Any) -> str:
    names = {
        "match": "matches", "substitute": "substitutions (S)", "delete": "deletions (D)",
        "insert": "insertions (I)", "transpose": "transpositions (T)",
    }  # fmt: skip
    shown = [f"{found.counts[kind]} {name}" for kind, name in names.items() if found.counts[kind]]
    return f"loss {found.loss:.6g}: " + ", ".join(shown)


def _positions(length: int) -> tuple[list[int], list[str]]:
    step = max(1, -(-length // 30))
    places = list(range(0, length, step))
    return places, [str(place + 1) for place in places]
