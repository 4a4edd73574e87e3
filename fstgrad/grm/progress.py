"""The progress bar of a fit: finished nodes, remaining time, last node and its nonzeros."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fstgrad.grm.fitting import Progress
from fstgrad.grm.regression import NodeFit

if TYPE_CHECKING:
    from rich.console import Console


def _console() -> "Console":
    """Return the console for a progress bar.

    In a notebook without ipywidgets, it prints plain text once at the end; Rich would warn there
    that ipywidgets is not installed.
    """
    from rich.console import Console

    console = Console()
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return Console(force_jupyter=False, force_terminal=False)
    return console


@contextmanager
def node_progress(nodes: int, names: Sequence[str], *, enabled: bool) -> Iterator[Progress | None]:
    """Yield a function (node, fit) to call after each node; None unless `enabled`."""
    if not enabled:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with Bar(*columns, console=_console()) as bar:
        task = bar.add_task("", total=nodes)

        def advance(node: int, fit: NodeFit) -> None:
            bar.update(task, advance=1, description=f"{names[node]}: {fit.values.size} non-zeros")

        yield advance
