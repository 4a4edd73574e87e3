"""The progress bar of a fit: node, size of its model, time left."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fstgrad.grm.fitting import Progress
from fstgrad.grm.regression import NodeFit


@contextmanager
def node_progress(nodes: int, names: Sequence[str], *, enabled: bool) -> Iterator[Progress | None]:
    """Yield a function to call after each node; None where no bar is wanted."""
    if not enabled:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with Bar(*columns) as bar:
        task = bar.add_task("", total=nodes)

        def advance(node: int, fit: NodeFit) -> None:
            bar.update(task, advance=1, description=f"{names[node]}: {fit.values.size} non-zeros")

        yield advance
