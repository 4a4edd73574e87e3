"""Plot lines and bars: benchmarks, training epochs, bounds by cap."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fstgrad.core.checks import flag, float_array, instance, positive_number, real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields, items
from fstgrad.plot.theme import MARK, MARKERS, blank, theme_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = tuple[Sequence[float], Sequence[float]]


def curves(
    panels: Mapping[str, Mapping[str, Series]],
    *,
    xlabel: str,
    ylabel: str,
    log: bool = True,
    dark: bool = False,
) -> "Figure":
    """Return a figure with one panel for each title and a line for each named series (x, y).

    Parameters
    ----------
    panels : {title: {name: (x, y)}}
        x and y have equal lengths.  A name has the same colour in all panels.
    xlabel, ylabel : str
    log : bool
        Whether the y axis is logarithmic.

    Raises
    ------
    InvalidInputError
        There is no panel, or none with a series; x and y differ in length; or the axis is
        logarithmic and no y is positive.

    Examples
    --------
    >>> import fstgrad as fg
    >>> series = {"exact": ([2, 4], [0.1, 0.3]), "sampled": ([2, 4], [0.2, 0.2])}
    >>> figure = fg.plot.curves({"edit": series}, xlabel="length", ylabel="seconds")
    >>> len(figure.axes[0].lines)
    2
    """
    instance("panels", panels, Mapping, "{title: {name: (x, y)}}")
    if not panels:
        raise InvalidInputError("panels is empty; give at least one title with its series")
    log, panels = flag("log", log), {title: _lines(one) for title, one in panels.items()}
    heights = np.concatenate([y for series in panels.values() for _, y in series.values()])
    if log and heights.size and not (heights > 0).any():
        raise InvalidInputError(
            "panels have no y > 0, which a logarithmic axis needs; give log=False"
        )
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    theme = theme_of(dark)
    figure = blank(4.2 * len(panels), 3.6, theme)
    plots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, series) in zip(plots, panels.items(), strict=True):
        for name, (x, y) in series.items():
            number = names.index(name)
            axes.plot(
                x, y, f"{MARKERS[number % len(MARKERS)]}-", color=theme.color(number), ms=4,
                label=name,
            )  # fmt: skip
        axes.set(title=title, xlabel=xlabel, yscale="log" if log else "linear")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        theme.style(axes)
    plots[0].set_ylabel(ylabel)
    theme.style(plots[0])
    return figure


def _lines(series: Any) -> dict[Any, Any]:
    """Return named series as pairs of float64 arrays of the same shape (k,)."""
    instance("series", series, Mapping, "{name: (x, y)}")
    if not series:
        raise InvalidInputError("one of panels has no series; give {name: (x, y)} for each")
    found = {}
    for name, line in series.items():
        x, y = (float_array(name, side, (None,)) for side in fields("series", [line], 2)[0])
        if len(x) != len(y):
            raise InvalidInputError(f"{name!r} has {len(x)} x and {len(y)} y; give one for each")
        found[name] = (x, y)
    return found


def learning(history: Sequence[Any], *, dark: bool = False) -> "Figure":
    """Return a figure of the objective, the gradient norm and the validation error by epoch.

    A circle marks the epoch of the smallest validation error, or, without validation, of the
    smallest objective.  A dotted line is the border of two stages of the training, whose objectives
    are not comparable.

    Parameters
    ----------
    history : sequence of Epoch
        `SequenceModel.history_`.

    Raises
    ------
    InvalidInputError
        There is no epoch, or an item is not an Epoch.
    """
    history = items("history", history)
    for place, epoch in enumerate(history):
        if not hasattr(epoch, "gradient_norm"):
            raise InvalidInputError(
                f"history[{place}] is a {type(epoch).__name__}; give SequenceModel.history_"
            )
    if not history:
        raise InvalidInputError("history has no epoch; fit the model first")
    tables = {
        "objective": [epoch.objective for epoch in history],
        "gradient norm": [epoch.gradient_norm for epoch in history],
    }
    judge = tables["objective"]
    if any(epoch.validation is not None for epoch in history):
        shown = [np.nan if epoch.validation is None else epoch.validation for epoch in history]
        judge = tables["validation error rate"] = shown
    best = int(np.nanargmin(judge))
    theme = theme_of(dark)
    figure = blank(3.4 * len(tables), 2.8, theme)
    plots = figure.subplots(1, len(tables), squeeze=False)[0]
    epochs = [epoch.epoch for epoch in history]
    stages = [getattr(epoch, "stage", "") for epoch in history]
    borders = [
        (a + b) / 2
        for a, b, before, after in zip(epochs, epochs[1:], stages, stages[1:], strict=False)
        if before != after
    ]
    for axes, (name, values) in zip(plots, tables.items(), strict=True):
        axes.plot(epochs, values, marker=".", color=theme.color(0))
        for border in borders:
            axes.axvline(border, color=MARK, ls=":", lw=1)
        axes.plot(epochs[best], values[best], "o", color=MARK, ms=7, mfc="none", mew=2)
        axes.set(xlabel="epoch", ylabel=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        theme.style(axes)
    plots[-1].set_title(f"best: epoch {epochs[best]}", fontsize=9, loc="right", color=MARK)
    return figure


def bounds(
    caps: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
    *,
    exact: float | None = None,
    ylabel: str = "log Z (nats)",
    dark: bool = False,
) -> "Figure":
    """Return a figure of certified lower and upper bounds by cap.

    Parameters
    ----------
    caps, lower, upper : (k,) floats
        The caps and the bounds, in nats.
    exact : float, optional
        The value without a cap, in nats.

    Raises
    ------
    InvalidInputError
        The shapes differ, or there is no cap.

    Examples
    --------
    >>> import fstgrad as fg
    >>> figure = fg.plot.bounds([1, 2, 3], [4.0, 4.5, 4.6], [6.0, 5.0, 4.7], exact=4.63)
    >>> figure.axes[0].get_xlabel()
    'cap (nats)'
    """
    x, low, high = (
        float_array(name, values)
        for name, values in (("caps", caps), ("lower", lower), ("upper", upper))
    )
    if not (x.ndim == 1 and x.size and x.shape == low.shape == high.shape):
        raise InvalidInputError(
            f"caps, lower and upper have the shapes {x.shape}, {low.shape}, {high.shape}; give "
            "one bound each for at least one cap"
        )
    theme = theme_of(dark)
    figure = blank(5.0, 3.2, theme)
    axes = figure.add_subplot()
    axes.fill_between(x, low, high, color=theme.color(4), alpha=0.35, linewidth=0)
    axes.plot(x, high, "v-", color=theme.color(0), ms=4, label="upper bound")
    axes.plot(x, low, "^-", color=theme.color(2), ms=4, label="lower bound")
    if exact is not None:
        exact = real_number("exact", exact)
        axes.axhline(exact, color=MARK, linestyle="--", label="exact")
    axes.set(xlabel="cap (nats)", ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    theme.style(axes)
    return figure


def bars(
    groups: Mapping[str, Mapping[str, float]] | Mapping[str, float],
    *,
    xlabel: str,
    log: bool = True,
    dark: bool = False,
) -> "Figure":
    """Return a figure of horizontal bars in groups, such as the seconds of libraries by task.

    Parameters
    ----------
    groups : {group: {name: value}}, or {name: value} for one group
        A name has the same colour in all groups.  On a logarithmic axis, values must be positive.
    xlabel : str
    log : bool
        Whether the x axis is logarithmic.

    Raises
    ------
    InvalidInputError
        There is no bar, a value is not a finite number, or both forms are mixed.

    Examples
    --------
    >>> import fstgrad as fg
    >>> figure = fg.plot.bars({"trees": {"fstgrad": 0.7, "torch": 4.6}}, xlabel="ms")
    >>> len(figure.axes[0].patches)
    2
    """
    instance("groups", groups, Mapping, "a dictionary")
    log = flag("log", log)
    for group in groups.values():
        for value in group.values() if isinstance(group, Mapping) else (group,):
            check = positive_number if log else real_number
            check("a value of groups", value)
    single = {name: value for name, value in groups.items() if not isinstance(value, Mapping)}
    grouped = {"": single} if single else cast(Mapping[str, Mapping[str, float]], groups)
    if not any(grouped.values()) or 0 < len(single) < len(groups):
        raise InvalidInputError("groups is empty or mixed; give {group: {name: value}}")
    names = list(dict.fromkeys(name for group in grouped.values() for name in group))
    theme = theme_of(dark)
    count = sum(map(len, grouped.values()))
    figure = blank(7.0, 0.9 + 0.25 * count + 0.25 * len(grouped), theme)
    axes = figure.add_subplot()
    place, ticks = 0.0, []
    for title, group in grouped.items():
        start = place
        for name, value in group.items():
            axes.barh(place, value, 0.85, color=theme.color(names.index(name)))
            axes.annotate(
                f"{name}  {value:.3g}", (value, place), xytext=(4, 0), va="center", fontsize=8,
                textcoords="offset points", color=theme.foreground,
            )  # fmt: skip
            place += 1
        ticks.append(((start + place - 1) / 2, title))
        place += 1
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, xscale="log" if log else "linear")
    axes.margins(x=0.35)
    axes.grid(axis="x", alpha=0.3)
    theme.style(axes)
    return figure
