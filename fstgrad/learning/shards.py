"""The sums over a corpus of many files, on the backend of joblib.

A task is one shard or a block of neighbouring shards.  The worker reads the files and returns one
gradient, sparse if the files touch few weights.  Sums are added along a binary tree over the shards
in their order.  The result does not depend, to the last bit, on the number of workers, on which
finishes first, on the loss of a worker, or on the size of a block, whose sums are a node of the
tree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, one_of, path_name, positive_integer, real_array
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.io import Path, Tokens, located, read_table
from fstgrad.learning.batch import Batch
from fstgrad.learning.objective import PairObjective
from fstgrad.learning.outcomes import Item, Outcome, Sums
from fstgrad.learning.template_features import TemplateFeatures

_CACHE = 2**26  # bytes of losses that a worker keeps in memory; few targets are repeated
_SPARSE = 0.5  # a gradient with a smaller share of nonzero numbers is sent in sparse form
OnError = Callable[[str, Outcome], object]


@dataclass(frozen=True)
class Shards:
    """The files of a corpus, and the options for reading them.

    Attributes
    ----------
    paths : sequence of paths
        TSV files of x TAB y, or other formats of `fstgrad.io.read_table`.  Every worker must be
        able to read them.
    tokens_x, tokens_y
        As in `fstgrad.io.read_pairs`.
    block : int
        The number of shards in one task, a power of two.  A task receives the weights and returns a
        gradient once, whatever its number of shards; the result does not depend on it.
    cache_directory : path, optional
        The folder in which workers keep compiled losses between passes, as in `Batch`.
    """

    paths: Sequence[Path]
    tokens_x: Tokens = "chars"
    tokens_y: Tokens = "chars"
    block: int = 1
    cache_directory: str | None = None

    def __post_init__(self) -> None:
        """Check the files and the block."""
        paths = tuple(path_name(path, "a shard") for path in items("shards", self.paths))
        if not paths:
            raise InvalidInputError("shards is empty; give at least one file")
        block = positive_integer("block", self.block)
        if block & (block - 1):
            raise InvalidInputError(f"block is {block}; give a power of two")
        for name in ("tokens_x", "tokens_y"):
            one_of(name, getattr(self, name), ("chars", "words"))
        vars(self).update(paths=paths, block=block)


def shard_sums(
    objective: PairObjective,
    w: FloatArray,
    shards: Shards | Sequence[Path],
    *,
    tokens_x: Tokens = "chars",
    tokens_y: Tokens = "chars",
    on_error: OnError | None = None,
) -> Sums:
    """Return the sums of value and gradient over the pairs of all shards.

    Inside `joblib.parallel_config(backend="dask")`, a cluster of dask.distributed processes the
    shards, and another worker repeats the shards of a lost worker.  Other backends of joblib work
    as well; without any, the calling process does the work.

    Parameters
    ----------
    shards : Shards, or a sequence of paths
    tokens_x, tokens_y
        As in `fstgrad.io.read_pairs`; if `shards` are `Shards`, their settings are used instead.
    on_error : callable (path, outcome)
        Called in this process, in the order of the shards, for every row that cannot be read and
        every pair that fails, with its position in the file; the pass then continues.

    Raises
    ------
    InvalidInputError
        If there are no shards.
    FstgradError
        If a row or a pair fails, and there is no `on_error`.
    """
    import joblib

    if not isinstance(shards, Shards):
        shards = Shards(shards, tokens_x, tokens_y)
    if on_error is not None and not callable(on_error):
        raise InvalidInputError(f"on_error is {on_error!r}; give a function (path, outcome)")
    weights, is_tolerant = real_array("w", w, objective.features.shape), on_error is not None
    starts = range(0, len(shards.paths), shards.block)
    tasks = (
        joblib.delayed(_block_sums)(objective, weights, shards, i, is_tolerant) for i in starts
    )
    tree, errors, reported = _Tree(len(starts), weights.size), dict[int, Any](), 0
    for block in _unordered(tasks):
        tree.add(block.first // shards.block, block.sums)
        errors[block.first] = block.errors
        while on_error is not None and reported in errors:
            for path, outcome in errors[reported]:
                on_error(path, outcome)
            reported += shards.block
    sums = _dense(tree.root, weights.size)
    sums.gradient = sums.gradient.reshape(objective.features.shape)
    return sums


class _Block(NamedTuple):
    """The result of a task: the number of its first shard, the sums, and the failures."""

    first: int
    sums: Sums
    errors: list[tuple[str, Outcome]]


def _block_sums(
    objective: PairObjective, w: FloatArray, shards: Shards, first: int, is_tolerant: bool
) -> _Block:
    """Return the sums of a block of shards."""
    objective = _without_kept_chunks(objective)
    paths = shards.paths[first : first + shards.block]
    tree, errors = _Tree(len(paths), w.size), list[tuple[str, Outcome]]()
    for i, path in enumerate(paths):
        failures: list[Outcome] = []
        with Batch(objective, 1, _CACHE, shards.cache_directory) as batch:
            pairs = _items(str(path), shards)
            sums = batch.sums(w, pairs, on_error=failures.append if is_tolerant else None)
        tree.add(i, _packed(sums))
        errors += [(str(path), outcome) for outcome in failures]
    root = tree.root if len(paths) == 1 else _packed(_dense(tree.root, w.size))
    return _Block(first, root, errors)


def _without_kept_chunks(objective: PairObjective) -> PairObjective:
    """Return an objective that keeps no data of its pairs, since none occurs twice in a pass."""
    if not isinstance(objective.features, TemplateFeatures):
        return objective
    features = copy(objective.features)
    features.chunk_limit = 0
    return replace(objective, features=features)


def _items(path: str, shards: Shards) -> Iterator[Item]:
    """Yield the pairs of a file, and errors instead of rows that cannot be read."""
    for row in read_table(path):
        try:
            with located(row):
                item: Item = row.pair(shards.tokens_x, shards.tokens_y)
        except FstgradError as error:
            item = error
        yield item


def _unordered(tasks: Iterable[Any]) -> Iterator[_Block]:
    """Yield the results of tasks as soon as they are available, if the backend supports it."""
    import joblib

    try:
        parallel = joblib.Parallel(return_as="generator_unordered")
    except ValueError:  # the backend can only return all results at the end
        parallel = joblib.Parallel()
    yield from parallel(tasks)


class _Tree:
    """Sums over numbered leaves: each node is the sum of its two children.

    A node without a sibling is its own parent.  Only nodes whose sibling has not arrived are kept:
    about as many as there are levels and workers.
    """

    def __init__(self, leaves: int, size: int) -> None:
        self._leaves, self._size = leaves, size
        self._waiting: dict[tuple[int, int], Sums] = {}

    def add(self, number: int, sums: Sums) -> None:
        """Add a leaf, and all nodes that are complete with it."""
        level, nodes = 0, self._leaves
        while nodes > 1:
            if number % 2 or number < nodes - 1:
                other = self._waiting.pop((level, number ^ 1), None)
                if other is None:
                    break
                sums = self._added(other, sums)
            level, number, nodes = level + 1, number // 2, (nodes + 1) // 2
        self._waiting[level, number] = sums

    @property
    def root(self) -> Sums:
        """The sums of all leaves, once they have arrived."""
        (root,) = self._waiting.values()
        return root

    def _added(self, one: Sums, other: Sums) -> Sums:
        """Return the total in the memory of one argument; a + b and b + a have the same bits."""
        if one.support is not None and other.support is None:
            one, other = other, one
        one = _dense(one, self._size)
        one.add(other)
        return one


def _packed(sums: Sums) -> Sums:
    """Return sums with a flat gradient, only its nonzero entries if these are few."""
    flat = sums.gradient.reshape(-1) + 0.0  # turns -0.0 into 0.0, so that zeros have equal bits
    support = np.flatnonzero(flat)
    sums.gradient = flat
    if len(support) < _SPARSE * len(flat):
        kind = np.int32 if len(flat) < 2**31 else np.int64
        sums.gradient, sums.support = flat[support], support.astype(kind)
    return sums


def _dense(sums: Sums, size: int) -> Sums:
    """Return sums with all weights, in separate memory."""
    if sums.support is not None:
        gradient = np.zeros(size)
        gradient[sums.support] = sums.gradient
        return replace(sums, gradient=gradient, support=None)
    if not sums.gradient.flags.writeable:  # it is in memory shared by workers
        return replace(sums, gradient=sums.gradient.copy())
    return sums
