"""The style of all figures: colours, light and dark, empty figures; and figure files."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fstgrad.core.checks import extra, flag, path_name
from fstgrad.core.errors import FstgradError, InvalidInputError
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
MARK = "#D55E00"  # the colour of marks: the target, gold heads, the best epoch


@dataclass(frozen=True)
class Theme:
    """The colours of a figure on a white or a black background."""

    background: str
    foreground: str
    faint: str
    strong: str

    def color(self, number: int) -> str:
        """Return colour `number` of the palette, modulo its length."""
        return PALETTE[number % len(PALETTE)]

    def shades(self) -> "Colormap":
        """Return the colour map of probabilities, from `background` (0) to `strong` (1)."""
        colors = extra("matplotlib.colors", "plot", "fstgrad.plot")
        found: Colormap = colors.LinearSegmentedColormap.from_list(
            "probability", [self.background, self.strong]
        )
        return found

    def on(self, probability: float) -> str:
        """Return the colour of text on the shade of a probability."""
        return self.background if probability > 0.55 else self.foreground

    def style(self, axes: "Axes") -> None:
        """Set the colours of the axes, ticks, labels and legend."""
        axes.set_facecolor(self.background)
        axes.tick_params(colors=self.foreground, which="both")
        for spine in axes.spines.values():
            spine.set_color(self.faint)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_color(self.foreground)
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set(facecolor=self.background, edgecolor=self.faint)
            for text in legend.get_texts():
                text.set_color(self.foreground)


LIGHT = Theme(background="#ffffff", foreground="#1f2328", faint="#c9ced6", strong="#08519c")
DARK = Theme(background="#14181e", foreground="#e6e9ed", faint="#4a525c", strong="#8cc8ff")


def theme_of(dark: bool) -> Theme:
    """Return the dark or the light theme."""
    return DARK if flag("dark", dark) else LIGHT


def blank(width: float, height: float, theme: Theme) -> "Picture":
    """Return an empty figure of `width` by `height` inches."""
    extra("matplotlib.figure", "plot", "fstgrad.plot")
    from fstgrad.plot.figure import Picture

    return Picture(figsize=(width, height), layout="constrained", facecolor=theme.background)


def panels_of(name: str, given: Any) -> dict[str, Any]:
    """Return {title: value} as it is given, or {"": value} of a value without a title."""
    if not isinstance(given, Mapping):
        return {"": given}
    if not given:
        raise InvalidInputError(f"{name} is empty; give at least one title with its value")
    return dict(given)


def stack(width: float, heights: Sequence[float], theme: Theme) -> "tuple[Picture, list[Axes]]":
    """Return a figure of panels of `heights` inches below each other, and their hidden axes."""
    figure = blank(width, sum(heights), theme)
    plots = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes in plots:
        axes.set_axis_off()
    return figure, list(plots)


def canvas(width: float, height: float, theme: Theme) -> "tuple[Picture, Axes]":
    """Return a figure of `width` by `height` inches and its axes, which are hidden."""
    figure, (axes,) = stack(width, [height], theme)
    return figure, axes


def add_title(axes: "Axes", theme: Theme, title: str, mark: str = "") -> None:
    """Add the title of a panel on the left, and on the right what a mark means."""
    axes.set_title(title, fontsize=9, loc="left", color=theme.foreground)
    axes.set_title(mark, fontsize=9, loc="right", color=MARK)


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise if `save` cannot write a figure to this path; call this before a long computation.

    Raises
    ------
    InvalidInputError
        The name does not end in .png, .svg or .pdf.
    MissingDependencyError
        matplotlib is not installed.
    """
    _ending(path)
    extra("matplotlib.figure", "plot", "a picture")


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG (150 dots per inch), SVG or PDF, according to the name's ending.

    Raises
    ------
    InvalidInputError
        The name does not end in .png, .svg or .pdf, or `figure` is not a matplotlib figure.
    OSError
        The file cannot be written.
    """
    if not hasattr(figure, "savefig"):
        raise InvalidInputError(f"figure is a {type(figure).__name__}; give a figure of matplotlib")
    ending = _ending(path)
    with replacing(path) as stream:
        figure.savefig(stream, format=ending, dpi=150, bbox_inches="tight")


def _ending(path: str | os.PathLike[str]) -> str:
    name = path_name(path)
    ending = pathlib.Path(name).suffix.removeprefix(".")
    if ending not in FORMATS:
        raise InvalidInputError(
            f"path is {name!r}, which does not end in .{', .'.join(FORMATS)}; give another name"
        )
    return ending


def notebook(
    draw: Callable[[Any], Any], fits: Callable[[Any], bool]
) -> Callable[[Any], str | None]:
    """Return a method `_repr_svg_` that draws the object with `draw` if `fits` returns True.

    The method returns None if the object does not fit on a page or if matplotlib or dot is missing;
    a notebook then shows the `repr`.

    Parameters
    ----------
    draw : function of the object that returns SVG text or a `Picture`
    fits : function of the object that returns a bool
    """

    def _repr_svg_(self: Any) -> str | None:
        try:
            if not fits(self):
                return None
            drawn = draw(self)  # SVG text or a Picture
        except FstgradError:
            return None
        svg: str = drawn if isinstance(drawn, str) else drawn._repr_svg_()
        return svg

    return _repr_svg_
