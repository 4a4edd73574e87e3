"""Figures: gradient terms as a map, and curves of benchmarks.  Needs the extra `plot`.

Figures are made without pyplot, so that no window, backend or global state is touched.

Index
-----
- `marginals` : Q by position and symbol.
- `curves` : series over a common axis, one panel each.
- `save` : to PNG or SVG, by the name of the file.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy.typing as npt

from fstgrad.alphabet import Alphabet
from fstgrad.checks import extra, one_of, real_array
from fstgrad.errors import InvalidInputError
from fstgrad.io import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = tuple[Sequence[float], Sequence[float]]
_FORMATS = ("png", "svg")
_MARKERS = "osD^vx"


def marginals(table: npt.ArrayLike, alphabet: Alphabet) -> "Figure":
    """Return a map of the gradient terms: positions from left to right, symbols from top to bottom.

    Parameters
    ----------
    table : (l, n), (l, n+1, n), ... float64
        Q, as `StringDistribution.marginals` gives it; contexts are summed out.
    alphabet : Alphabet of n symbols

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> figure = marginals(fg.StringDistribution(np.zeros((3, 2))).marginals(), fg.Alphabet("ab"))
    >>> save(figure, "marginals.svg")  # doctest: +SKIP
    """
    values = real_array("table", table)
    n = len(alphabet)
    if values.ndim < 2 or values.shape[-1] != n:
        raise InvalidInputError(
            f"table has shape {values.shape}; for {n} symbols the last of two or more axes has {n}"
        )
    by_symbol = values.sum(axis=tuple(range(1, values.ndim - 1)))
    figure = _figure(0.35 * len(by_symbol) + 1.8, 0.25 * n + 1.2)
    axes = figure.add_subplot()
    image = axes.imshow(by_symbol.T, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    axes.set_yticks(range(n), alphabet.symbols)
    axes.set_xlabel("position")
    figure.colorbar(image, ax=axes, label="probability")
    return figure


def curves(
    panels: Mapping[str, Mapping[str, Series]], *, xlabel: str, ylabel: str, log: bool = True
) -> "Figure":
    """Return one panel for each title, with a line for each named series (x, y).

    Parameters
    ----------
    panels : {title: {name: (x, y)}}
        A name has the same colour in all panels.
    log : bool
        Whether the y axis is logarithmic.
    """
    if not panels:
        raise InvalidInputError("panels is empty; give at least one title with its series")
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    figure = _figure(4.2 * len(panels), 3.6)
    plots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, series) in zip(plots, panels.items(), strict=True):
        for name, (x, y) in series.items():
            number = names.index(name)
            axes.plot(
                x, y, f"{_MARKERS[number % len(_MARKERS)]}-", color=f"C{number}", ms=4, label=name
            )
        axes.set(title=title, xlabel=xlabel, yscale="log" if log else "linear")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    plots[0].set_ylabel(ylabel)
    return figure


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG (150 dots an inch) or SVG, by the ending of the name."""
    target = pathlib.Path(path)
    one_of("the ending of path", target.suffix.removeprefix("."), _FORMATS)
    with replacing(target) as stream:
        figure.savefig(stream, format=target.suffix[1:], dpi=150, bbox_inches="tight")


def _figure(width: float, height: float) -> "Figure":
    module = extra("matplotlib.figure", "plot", "fstgrad.plot")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure
