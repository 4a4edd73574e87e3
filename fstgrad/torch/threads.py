"""Items of a batch in the threads that PyTorch uses."""

from collections.abc import Callable

import torch

from fstgrad.objectives import threads


def each(items: int, run: Callable[[int], None]) -> None:
    """Call run(i) for every item, in torch.get_num_threads() threads."""
    threads.each(items, run, torch.get_num_threads())
