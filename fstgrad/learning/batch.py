"""Batch: one objective over many pairs, with a cache of losses, in one process or several.

Pairs are divided into chunks of fixed size; a task has four chunks.  A chunk goes to the process
with the least work, and in later passes to the same process, which keeps the automata of its own
pairs.  Only pairs, weights and sums pass between processes.  Sums are added chunk by chunk in the
order of the input, so the result does not depend on the number of processes, to the last bit.
"""

import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from fstgrad.core.checks import FloatArray, instance, path_name, positive_integer, real_array
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.sequences import check_container, fields, items, row_of
from fstgrad.core.short_repr import short_repr
from fstgrad.learning import bigram_chunks
from fstgrad.learning.objective import MORE_SAMPLES, PairObjective, checked_pairs
from fstgrad.learning.outcomes import CHUNK_SIZE, XY, Chunk, Item, Outcome, Sums, outcome_of
from fstgrad.losses.cache import CACHE_MEMORY, AutomatonCache

MOST_JOBS = 1024  # processes; more would only use up resources of the system
_GROWTH_PER_CACHE_BYTE = 2  # bytes by which a process may grow
# Pairs per chunk of a training.  These sizes affect the result, like `CHUNK_SIZE`; the second one
# is for likelihoods of short outputs, which are computed all at once.
TRAINING_CHUNK_SIZE = 64
_LIKELIHOOD_CHUNK_SIZE = 512
_LIKELIHOOD_CELLS = 2**22  # positions times symbols of a chunk with more than TRAINING_CHUNK_SIZE
_CHUNKS_PER_TASK = 4  # chunks that are sent to a process together, at most
_PAIRS_PER_TASK = 256  # chunks with so many pairs are sent at once
_TASKS_PER_WORKER = 4  # tasks in progress; more of them balance the pairs that take long


@dataclass
class Batch:
    """Passes of one objective over pairs (x, y).

    Parameters
    ----------
    objective : PairObjective
        If it has a cache, this cache is used when jobs = 1.
    jobs : int
        Number of processes; with 1, this process does the work.
    cache_bytes : int
        The memory for compiled losses of all processes together, in bytes.
    cache_directory : path, optional
        A folder in which compiled losses are also stored.

    Examples
    --------
    >>> import fstgrad as fg
    >>> abc = fg.Alphabet("ab")
    >>> objective = fg.PairObjective(fg.QGramCounts(abc, 2), fg.EditDistance(abc), kind="risk")
    >>> with fg.Batch(objective) as batch:
    ...     sums = batch.sums(np.zeros((2, 2)), [("x", "ab"), ("x", "ba")])
    >>> sums.mean()[0]  # at a distance of 1 from half of the strings, of 2 from the opposite
    1.0
    """

    objective: PairObjective
    jobs: int = 1
    cache_bytes: int = CACHE_MEMORY
    cache_directory: str | None = None
    _workers: list[Any] = field(default_factory=list, init=False, repr=False)
    _has_warned: bool = field(default=False, init=False, repr=False)
    _worker_of_chunk: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the numbers and create the cache of a single process."""
        instance("objective", self.objective, PairObjective, "a PairObjective")
        self.jobs = positive_integer("jobs", self.jobs)
        if self.jobs > MOST_JOBS:
            raise InvalidInputError(f"jobs is {self.jobs}; give at most {MOST_JOBS:,} processes")
        self.cache_bytes = positive_integer("cache_bytes", self.cache_bytes, minimum=0)
        if self.cache_directory is not None:
            self.cache_directory = path_name(self.cache_directory, "cache_directory")
        if self.jobs == 1 and self.objective.cache is None:
            cache = AutomatonCache(self.cache_bytes, self.cache_directory)
            self.objective = replace(self.objective, cache=cache)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.shutdown(wait=True, kill_workers=True)
        self._workers.clear()

    def sums(
        self,
        w: npt.ArrayLike,
        pairs: Iterable[Item],
        *,
        on_error: Callable[[Outcome], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Sums:
        """Return the sums of one pass over the pairs.

        Parameters
        ----------
        on_error : callable
            Called with the outcome of every pair that failed, in order; the pass then continues.
            Without it, the first error is raised.
        progress : callable
            Called with the number of pairs of every finished chunk.
        """
        for name, function in (("on_error", on_error), ("progress", progress)):
            if function is not None and not callable(function):
                raise InvalidInputError(f"{name} is {function!r}; give a function")
        total = Sums(np.zeros(self.objective.features.shape))
        for chunk in self.chunks(w, pairs):
            for outcome in chunk.outcomes:
                if outcome.error is not None:
                    if on_error is None:
                        raise outcome.error
                    on_error(outcome)
                if not outcome.is_reliable and not self._has_warned:
                    self._has_warned = True
                    what = f"an estimate is not reliable; {MORE_SAMPLES}"
                    warnings.warn(what, RuntimeWarning, stacklevel=2)
            total.add(chunk.sums)
            if progress is not None:
                progress(len(chunk.outcomes))
        return total

    def chunks(self, w: npt.ArrayLike, pairs: Iterable[Item], *, first: int = 0) -> Iterator[Chunk]:
        """Yield the results of a pass chunk by chunk, in the order of the pairs.

        Parameters
        ----------
        first : int
            The index of the first pair.  Chunks end at 1, so that the first result is available
            soon, and at multiples of 16.
        """
        return self.numbered(w, _split_into_chunks(pairs, first))

    def block(self, pairs: Sequence[XY]) -> int:
        """Return the number of pairs (x, y) in a chunk of a training.

        Examples
        --------
        >>> import fstgrad as fg
        >>> abc = fg.Alphabet("ab")
        >>> Batch(fg.PairObjective(fg.QGramCounts(abc, 2))).block([("x", "ab"), ("x", "b")])
        512
        """
        if not self.objective.is_likelihood:
            return TRAINING_CHUNK_SIZE
        n, pairs = len(self.objective.features.alphabet), list(checked_pairs(pairs))
        cells = n * sum(len(y) for _, y in pairs)
        size = _LIKELIHOOD_CELLS * len(pairs) // max(1, cells)
        return min(max(TRAINING_CHUNK_SIZE, size), _LIKELIHOOD_CHUNK_SIZE)

    def numbered(
        self, w: npt.ArrayLike, numbered: Iterable[tuple[int, Sequence[Item]]]
    ) -> Iterator[Chunk]:
        """Yield the results of chunks (index of the first pair, pairs), in the order given.

        This is for passes in another order than that of the input.  The index determines which
        process works on a chunk, so that the process finds the automata that it has kept.
        """
        weights = real_array("w", w, self.objective.features.shape)
        queues = [_WorkerQueue(executor, weights) for executor in self._worker_processes()]
        if not queues:
            for index, chunk in _checked_chunks(numbered):
                yield compute_chunk(self.objective, weights, index, chunk)
            return
        waiting: deque[_WorkerQueue] = deque()
        for index, chunk in _checked_chunks(numbered):
            worker = self._worker_of_chunk.get(index // CHUNK_SIZE)
            if worker is None:
                worker = _least_busy(queues)
                self._worker_of_chunk[index // CHUNK_SIZE] = worker
            queues[worker].give((index, chunk))
            waiting.append(queues[worker])
            if len(waiting) >= _TASKS_PER_WORKER * _CHUNKS_PER_TASK * self.jobs:
                yield waiting.popleft().take()
        for queue in queues:
            queue.send()
        while waiting:
            yield waiting.popleft().take()

    def _worker_processes(self) -> list[Any]:
        """Return one executor of one process per job, started on first use; none for one job.

        If none can be started, for example without a writable /dev/shm, this process does the work.
        """
        if self._workers or self.jobs == 1:
            return self._workers
        from joblib.externals.loky import ProcessPoolExecutor

        objective = replace(self.objective, cache=None)
        share = self.cache_bytes // self.jobs
        try:
            with _uninterrupted_starts():
                self._workers = [
                    ProcessPoolExecutor(
                        max_workers=1,
                        initializer=_start_worker,
                        initargs=(objective, share, self.cache_directory),
                    )
                    for _ in range(self.jobs)
                ]
                for worker in self._workers:
                    worker.submit(_do_nothing)  # starts the process
        except OSError as error:
            warnings.warn(
                f"no process can be started ({error}); this process computes everything",
                RuntimeWarning,
                stacklevel=2,
            )
            self.jobs = 1
            self.__post_init__()
        return self._workers


@dataclass
class _WorkerQueue:
    """The chunks of one process; results are returned in the order in which chunks were given."""

    executor: Any
    weights: FloatArray
    _unsent: list[tuple[int, Sequence[Item]]] = field(default_factory=list)
    _tasks: deque[tuple[Any, int]] = field(default_factory=deque)
    _finished: deque[Chunk] = field(default_factory=deque)

    @property
    def undone(self) -> list[tuple[Any, int]]:
        """The unfinished tasks, each with its number of chunks."""
        return [(task, size) for task, size in self._tasks if not task.done()]

    @property
    def load(self) -> int:
        """Number of unfinished chunks."""
        return len(self._unsent) + sum(size for _, size in self.undone)

    def give(self, chunk: tuple[int, Sequence[Item]]) -> None:
        """Collect a chunk; send the collected chunks if they fill a task."""
        self._unsent.append(chunk)
        pairs = sum(len(chunk_pairs) for _, chunk_pairs in self._unsent)
        if len(self._unsent) == _CHUNKS_PER_TASK or pairs >= _PAIRS_PER_TASK:
            self.send()

    def send(self) -> None:
        """Send the collected chunks as one task."""
        if self._unsent:
            task = self.executor.submit(_compute_chunks, self.weights, self._unsent)
            self._tasks.append((task, len(self._unsent)))
            self._unsent = []

    def take(self) -> Chunk:
        """Return the result of the earliest chunk not yet taken."""
        if not self._finished:
            if not self._tasks:
                self.send()
            self._finished.extend(self._tasks.popleft()[0].result())
        return self._finished.popleft()


def _least_busy(queues: Sequence[_WorkerQueue]) -> int:
    """Return the index of the queue with the least work, after waiting for less than two tasks.

    A chunk is assigned late, because some pairs take a thousand times as long as others.
    """
    loads = [queue.load for queue in queues]
    while min(loads) >= 2 * _CHUNKS_PER_TASK:
        wait([task for queue in queues for task, _ in queue.undone], return_when=FIRST_COMPLETED)
        loads = [queue.load for queue in queues]
    return loads.index(min(loads))


def compute_chunk(
    objective: PairObjective, w: FloatArray, first: int, pairs: Sequence[Item]
) -> Chunk:
    """Return the outcomes and sums of consecutive pairs; an item may be an error."""
    if bigram_chunks.applies(objective):
        return bigram_chunks.compute_chunk(objective, w, first, pairs)
    sums = Sums(np.zeros(objective.features.shape))
    outcomes = []
    for index, pair in enumerate(pairs, start=first):
        start = time.perf_counter()
        try:
            if isinstance(pair, FstgradError):
                raise pair
            part = objective.pair(w, *pair, out=sums.gradient)
        except FstgradError as error:
            sums.failed += 1
            failure = error.with_traceback(None)
            outcomes.append(Outcome(index, time.perf_counter() - start, error=failure))
            continue
        seconds = time.perf_counter() - start
        outcomes.append(outcome_of(index, seconds, part))
        sums.count(part)
    return Chunk(tuple(outcomes), sums)


def _checked_chunks(numbered: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield chunks (index of the first pair, pairs); raise for items of another form."""
    instance("numbered", numbered, Iterable, "chunks (index of the first pair, pairs)")
    for chunk in numbered:
        ((index, pairs),) = fields("numbered", [chunk], 2)
        yield positive_integer("an index of numbered", index, minimum=0), items("pairs", pairs)


def _split_into_chunks(pairs: Iterable[Item], first: int) -> Iterator[tuple[int, list[Item]]]:
    """Yield (index of the first item, items), split at 1 and at multiples of the chunk size."""
    first = positive_integer("first", first, minimum=0)
    check_container("pairs", pairs, of_rows=True)
    try:
        iterator = iter(pairs)
        if issparse(pairs):
            raise TypeError("a sparse matrix has no pairs")
    except Exception as error:  # __iter__ of a foreign object may raise anything
        raise InvalidInputError(f"pairs is {pairs!r}; give pairs (x, y)") from error
    while chunk := list(islice(iterator, CHUNK_SIZE - first % CHUNK_SIZE if first else 1)):
        yield first, [_checked_item(f"pairs[{i}]", pair) for i, pair in enumerate(chunk, first)]
        first += len(chunk)


def _checked_item(name: str, pair: Any) -> Any:
    """Return a pair (x, y) as a list, and an error of the caller unchanged."""
    if isinstance(pair, FstgradError):
        return pair
    if len(row := row_of(name, pair)) != 2:
        raise InvalidInputError(f"{name} does not have two fields; give (x, y)")
    return row


# The objective of a worker process, with its cache: set when it starts, never in the parent.
_worker_objective: PairObjective


def _start_worker(objective: PairObjective, cache_bytes: int, directory: str | None) -> None:
    global _worker_objective
    from joblib.externals.loky import process_executor

    # loky ends a worker that grows by 300 MB as leaking, and all its automata would be lost.
    process_executor._MAX_MEMORY_LEAK_SIZE += _GROWTH_PER_CACHE_BYTE * cache_bytes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interruptions
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _worker_objective = replace(objective, cache=AutomatonCache(cache_bytes, directory))


def _do_nothing() -> None:
    pass


@contextmanager
def _uninterrupted_starts() -> Iterator[None]:
    """Block keyboard interrupts in processes started here until `_start_worker` runs."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as of_loky

    for tracker in (resource_tracker, of_loky):
        tracker.ensure_running()  # if a process started it later, it would unblock signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _compute_chunks(w: FloatArray, chunks: Sequence[tuple[int, Sequence[Item]]]) -> list[Chunk]:
    """Compute the chunks of a task in a worker process."""
    return [compute_chunk(_worker_objective, w, first, pairs) for first, pairs in chunks]
