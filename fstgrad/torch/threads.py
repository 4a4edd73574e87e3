"""Items of a batch in the threads that PyTorch uses."""

from collections.abc import Callable

import torch

from fstgrad.mrf.threads import Bands


def each(items: int, run: Callable[[int], None]) -> None:
    """Call run(i) for every item, in torch.get_num_threads() threads; the passes release the GIL.

    What an item writes is its own, so that the results do not depend on the number of threads.
    """

    def band(low: int, high: int) -> None:
        for i in range(low, high):
            run(i)

    slices(items, band)


def slices(items: int, run: Callable[[int, int], None], threads: int | None = None) -> None:
    """Call run(low, high) for slices that make up 0 .. items - 1, as `each` does for items."""
    if items:
        with Bands(items, threads or torch.get_num_threads()) as bands:
            bands(run)
