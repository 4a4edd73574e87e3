"""Draw the marginals of strings as a map, and alignments of two strings."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import extra, instance, real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.plot.theme import MARK, blank, canvas, theme_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUMBERS = 12  # a map of at most this many positions shows its numbers
_KINDS = {  # kind of operation -> (colour number, letter)
    "match": (-1, ""), "substitute": (1, "S"), "delete": (5, "D"), "insert": (2, "I"),
    "transpose": (3, "T"), "skip": (-1, ""),
}  # fmt: skip


def marginals(
    table: npt.ArrayLike,
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
    values = real_array("table", table)
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    n = len(alphabet)
    if values.ndim < 2 or values.shape[-1] != n:
        raise InvalidInputError(
            f"table has shape {values.shape}; give (l, {n}) or more axes, the last for {n} symbols"
        )
    ids = None if target is None else alphabet.encode(target, name="target")
    if ids is not None and len(ids) != len(values):
        raise InvalidInputError(
            f"target has {len(ids)} symbols, the table {len(values)} positions; give equal lengths"
        )
    by_symbol = values.sum(axis=tuple(range(1, values.ndim - 1))).T
    theme = theme_of(dark)
    width, height = 0.42 * len(values) + 1.9, 0.32 * n + 1.1
    figure = blank(min(width, 24.0), min(height, 16.0), theme)
    axes = figure.add_subplot()
    image = axes.imshow(by_symbol, aspect="auto", cmap=theme.shades(), vmin=0, vmax=1)
    axes.set_yticks(range(n), alphabet.symbols)
    axes.set_xticks(*_positions(len(values)))
    axes.set_xlabel("position")
    axes.set_ylabel("symbol")
    if len(values) <= _NUMBERS:
        for (row, column), p in np.ndenumerate(by_symbol):
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
    bar = figure.colorbar(image, ax=axes, label="probability", pad=0.02)
    theme.style(axes)
    theme.style(bar.ax)
    if ids is not None:
        axes.set_title("framed: the target", fontsize=9, loc="left", color=MARK)
    return figure


def alignment(found: Any, *, dark: bool = False) -> "Figure":
    """Return a figure of an alignment: hypothesis above target, with the operations between them.

    Parameters
    ----------
    found : Alignment
        As `loss.align(y, target)` returns it.

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
    operations = getattr(found, "operations", None)
    if not isinstance(operations, tuple | list):
        raise InvalidInputError(f"found is a {type(found).__name__}; give what loss.align returns")
    if not operations:
        raise InvalidInputError("the alignment is empty; there is nothing to draw")
    widest = max(len(s or "") for op in operations for s in (op.y, op.target))
    step = 0.34 + 0.09 * max(0, widest - 1)
    theme = theme_of(dark)
    figure, axes = canvas(min(step * len(operations) + 1.0, 40.0), 1.5, theme)
    for name, height in (("y", 1.0), ("target", 0.0)):
        axes.text(-0.8, height, name, ha="right", va="center", color=theme.foreground, fontsize=9)
    for place, op in enumerate(operations):
        number, letter = _KINDS[op.kind]
        color = theme.faint if number < 0 else theme.color(number)
        for symbol, height in ((op.y, 1.0), (op.target, 0.0)):
            outside = op.kind == "skip"
            axes.text(
                place, height, symbol or "–", ha="center", va="center", fontsize=11,
                color=theme.faint if outside or symbol is None else theme.foreground,
                bbox=None if number < 0 or symbol is None else {
                    "boxstyle": "round,pad=0.25", "facecolor": "none", "edgecolor": color,
                },
            )  # fmt: skip
        if op.kind != "skip" and op.y is not None and op.target is not None:
            axes.plot([place, place], [0.28, 0.72], color=color, linewidth=1.2)
        if letter:
            axes.text(place + 0.12, 0.5, letter, ha="left", va="center", fontsize=8, color=color)
    axes.set(xlim=(-2.2, len(operations)), ylim=(-0.5, 1.5))
    axes.set_title(_summary(found), fontsize=9, color=theme.foreground, loc="left")
    return figure


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
