"""Items of a batch in threads; the passes release the interpreter's lock."""

from collections.abc import Callable

from fstgrad.mrf.threads import Bands


def each(items: int, run: Callable[[int], None], threads: int) -> None:
    """Call run(i) for every item.

    What an item writes is its own, so that the results do not depend on the number of threads.
    """

    def band(low: int, high: int) -> None:
        for i in range(low, high):
            run(i)

    slices(items, band, threads)


def slices(items: int, run: Callable[[int, int], None], threads: int) -> None:
    """Call run(low, high) for slices that make up 0 .. items - 1, as `each` does for items."""
    if items:
        with Bands(items, threads) as bands:
            bands(run)
