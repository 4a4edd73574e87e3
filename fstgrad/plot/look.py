"""The one look of all figures: colours, fonts, sizes, light and dark, and files."""

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fstgrad.checks import extra, flag, one_of, path_name
from fstgrad.errors import FstgradError, InvalidInputError
from fstgrad.io import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from fstgrad.plot.figure import Picture

FORMATS = ("png", "svg", "pdf")
MARKERS = "osD^vx"
# Okabe and Ito (2008): blue, orange, green, purple, sky blue, vermilion, yellow, grey
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
MARK = "#D55E00"  # what is given: the target, gold heads, the best epoch


@dataclass(frozen=True)
class Look:
    """The colours of a figure on white or on black paper."""

    paper: str
    ink: str
    faint: str
    strong: str

    def color(self, number: int) -> str:
        """Return a colour of the palette, the same for the same number in all figures."""
        return PALETTE[number % len(PALETTE)]

    def shades(self) -> "Colormap":
        """Return the map of probabilities: from paper to a strong blue."""
        colors = extra("matplotlib.colors", "plot", "fstgrad.plot")
        found: Colormap = colors.LinearSegmentedColormap.from_list(
            "probability", [self.paper, self.strong]
        )
        return found

    def on(self, probability: float) -> str:
        """Return the colour of text on a shade."""
        return self.paper if probability > 0.55 else self.ink

    def style(self, axes: "Axes") -> None:
        """Colour the axes, the ticks and the labels."""
        axes.set_facecolor(self.paper)
        axes.tick_params(colors=self.ink, which="both")
        for spine in axes.spines.values():
            spine.set_color(self.faint)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_color(self.ink)
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set(facecolor=self.paper, edgecolor=self.faint)
            for text in legend.get_texts():
                text.set_color(self.ink)


LIGHT = Look(paper="#ffffff", ink="#1f2328", faint="#c9ced6", strong="#08519c")
DARK = Look(paper="#14181e", ink="#e6e9ed", faint="#4a525c", strong="#8cc8ff")


def look(dark: bool) -> Look:
    """Return the look on white or on black paper."""
    return DARK if flag("dark", dark) else LIGHT


def blank(width: float, height: float, chosen: Look) -> "Picture":
    """Return an empty figure of so many inches."""
    extra("matplotlib.figure", "plot", "fstgrad.plot")
    from fstgrad.plot.figure import Picture

    return Picture(figsize=(width, height), layout="constrained", facecolor=chosen.paper)


def canvas(width: float, height: float, chosen: Look) -> "tuple[Picture, Axes]":
    """Return a figure with one pair of axes that are not shown, in units of its choice."""
    figure = blank(width, height, chosen)
    axes = figure.add_subplot()
    axes.set_axis_off()
    return figure, axes


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise unless a figure can be written under this name, before anything is computed.

    Raises
    ------
    InvalidInputError
        It ends neither in .png, .svg nor .pdf.
    MissingDependencyError
        matplotlib is not installed.
    """
    one_of("the ending of path", pathlib.Path(path_name(path)).suffix.removeprefix("."), FORMATS)
    extra("matplotlib.figure", "plot", "a picture")


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG (150 dots an inch), SVG or PDF, by the ending of the name.

    Raises
    ------
    InvalidInputError
        The name ends in none of these.
    """
    if not hasattr(figure, "savefig"):
        raise InvalidInputError(f"figure is a {type(figure).__name__}; give a figure of matplotlib")
    target = pathlib.Path(path_name(path))
    one_of("the ending of path", target.suffix.removeprefix("."), FORMATS)
    with replacing(target) as stream:
        figure.savefig(stream, format=target.suffix[1:], dpi=150, bbox_inches="tight")


def notebook(
    draw: Callable[[Any], Any], fits: Callable[[Any], bool]
) -> Callable[[Any], str | None]:
    """Return a method `_repr_svg_`: what `draw` makes of the object, where it fits on a page.

    The method returns None where the object is too large, or matplotlib or dot is missing, so that
    a notebook falls back to the `repr`.
    """

    def _repr_svg_(self: Any) -> str | None:
        try:
            if not fits(self):
                return None
            drawn = draw(self)  # SVG, or a Picture
        except FstgradError:
            return None
        svg: str = drawn if isinstance(drawn, str) else drawn._repr_svg_()
        return svg

    return _repr_svg_
