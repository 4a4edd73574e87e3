"""Plot grids of pixels: observations, marginals and labelings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import instance, real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.plot.theme import blank, theme_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def strip(panels: Mapping[str, npt.ArrayLike], *, dark: bool = False) -> "Figure":
    """Return a figure of pictures side by side with their titles, such as before, P(y), after.

    Parameters
    ----------
    panels : {title: (height, width) array}
        Integers and booleans are labels, with the same colours in all panels (two labels are black
        and white).  Floats are probabilities in [0, 1], with one colour bar.

    Raises
    ------
    InvalidInputError
        There is no panel, a panel does not have two axes, or a float is outside [0, 1].

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> figure = fg.plot.strip({"before": np.eye(4, dtype=int), "P(y = 1)": np.eye(4) / 2})
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['before', 'P(y = 1)']
    """
    instance("panels", panels, Mapping, "{title: picture}")
    tables = {title: real_array(title, panel) for title, panel in panels.items()}
    if not tables:
        raise InvalidInputError("panels is empty; give at least one title with its picture")
    for title, table in tables.items():
        if table.ndim != 2 or not table.size:
            raise InvalidInputError(
                f"{title!r} has shape {table.shape}; a picture is (height, width)"
            )
        if not _is_labels(panels[title]) and not (table.min() >= 0 and table.max() <= 1):
            raise InvalidInputError(
                f"{title!r} has values from {table.min():g} to {table.max():g}; probabilities and "
                "grey values are in [0, 1]"
            )
    theme = theme_of(dark)
    first = next(iter(tables.values()))
    height = min(4.0, max(1.6, 2.2 * first.shape[0] / first.shape[1]))
    figure = blank(2.3 * len(tables) + 0.6, height + 0.4, theme)
    plots = figure.subplots(1, len(tables), squeeze=False)[0]
    most = max((int(t.max()) for k, t in tables.items() if _is_labels(panels[k])), default=1)
    image = None
    for axes, (title, table) in zip(plots, tables.items(), strict=True):
        if _is_labels(panels[title]):
            colors = "gray" if most <= 1 else ("tab10" if most < 10 else "viridis")
            top = 9 if colors == "tab10" else max(1, most)
            axes.imshow(table, cmap=colors, vmin=0, vmax=top, interpolation="nearest")
        else:
            image = axes.imshow(table, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        theme.style(axes)
    if image is not None:
        bar = figure.colorbar(image, ax=list(plots), label="probability", shrink=0.8, pad=0.01)
        theme.style(bar.ax)
    return figure


def _is_labels(panel: npt.ArrayLike) -> bool:
    return np.asarray(panel).dtype.kind in "biu"
