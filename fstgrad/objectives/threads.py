"""Evaluate the items of a batch in threads; the passes release the interpreter lock."""

from collections.abc import Callable

from fstgrad.mrf.resources import ThreadRanges


class Team:
    """Threads that share the items of a batch; each item writes only its own results.

    The results do not depend on the number of threads.

    Parameters
    ----------
    size : int
        The number of threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def each(self, items: int, run: Callable[[int], None]) -> None:
        """Call run(i) for every item."""

        def piece(low: int, high: int) -> None:
            for i in range(low, high):
                run(i)

        self.slices(items, piece)

    def slices(self, items: int, run: Callable[[int, int], None]) -> None:
        """Call run(low, high), high exclusive, for slices of 0 .. items - 1, one per thread."""
        if items:
            with ThreadRanges(items, self.size) as ranges:
                ranges(run)


ALONE = Team(1)
