"""AutomatonCache: compiled losses by loss, target, length and options, in memory and on disk."""

import copy
import functools
import hashlib
import os
import pathlib
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import flag, instance, path_name, positive_integer
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    MemoryLimitError,
    StateLimitError,
)
from fstgrad.io import Field, read_arrays, write_arrays
from fstgrad.losses import MAX_STATES, Engine, Loss
from fstgrad.losses.automata.automaton import Level, LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.losses.automata.caps import STORED_CAP
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss

CACHE_MEMORY = 2**30  # bytes, by default
_WORKING_COPIES = 3  # factor of the counted bytes: in use, an automaton holds copies for the passes
_PATIENCE = 10  # an entry may be dropped once unused for this many requests per entry
_ARRAYS = {
    "class_of": Field("integer", (None,), lower=0),
    "initial": Field("float"),
    "capped": Field("flag"),
    "final": Field("float", (None,), finite=False),
    "sizes": Field("integer", (None, 2), lower=1, upper=2**31),
    "nextstate": Field("integer", ("arcs",), lower=-1),
    "cost": Field("float", ("arcs",)),
    "checksum": Field("text"),
}
_EDITION = 2  # raised when automata of older files have other values; part of their names
_SMALL = 3_500  # bytes of an entry besides its arrays: its Python objects


class AutomatonCache:
    """A cache of compiled automata with a limit on memory.

    Training reads a corpus repeatedly from the first pair to the last, so the automaton that has
    been unused for the longest time is needed soonest.  Therefore a full cache does not replace its
    automata by new ones.  It drops the least recently used automaton only if the last 10 m requests
    did not use it, for m entries.

    Failures (too many states, no finite loss) are cached too, so they cost time only once.

    Parameters
    ----------
    max_memory : int
        Limit on the memory of the automata, in bytes, >= 0.
    directory : path, optional
        A directory, created if missing, that also keeps automata without cap, band and prune.  The
        files are npz files of plain arrays, read without pickle.  A damaged file is written again.

    Attributes
    ----------
    hits, misses : int
        A miss is a compilation; an automaton read from the directory is a hit.
    nbytes : int
        Bytes held in memory, estimated.

    Raises
    ------
    InvalidInputError
        The directory cannot be created.

    Examples
    --------
    >>> import fstgrad as fg
    >>> cache, loss = AutomatonCache(), fg.EditDistance(fg.Alphabet("ab"))
    >>> cache.automaton(loss, "abba") is cache.automaton(loss, "abba")
    True
    >>> cache.hits, cache.misses
    (1, 1)
    """

    def __init__(
        self, max_memory: int = CACHE_MEMORY, directory: str | os.PathLike[str] | None = None
    ) -> None:
        self.max_memory = positive_integer("max_memory", max_memory, minimum=0)
        self.directory = (
            None if directory is None else pathlib.Path(path_name(directory, "directory"))
        )
        if self.directory is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidInputError(
                    f"directory {str(self.directory)!r} cannot be created: {error}"
                ) from error
        self.nbytes = self.misses = 0
        self._requests = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # ordered by last use

    def __repr__(self) -> str:
        return (
            f"AutomatonCache({len(self):,} automata, {self.nbytes:,} of {self.max_memory:,} bytes)"
        )

    @property
    def hits(self) -> int:
        """Number of requests that compiled nothing."""
        return self._requests - self.misses

    def __len__(self) -> int:
        return len(self._entries)

    def automaton(
        self,
        loss: Loss,
        target: SequenceLike,
        length: int | None = None,
        *,
        cap: float | None = None,
        band: Band | None = None,
        prune: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
        bounded: bool = False,
    ) -> LossAutomaton:
        """Return `loss.compile(target, length, ...)`, from the cache if possible.

        The target is a sequence; parameters and errors are those of `Loss.compile`.  With
        `bounded`, the automaton of the upper bound of a capped loss is also compiled and kept.
        """
        instance("loss", loss, Loss, "a Loss")
        ids = loss.alphabet.encode(target, name="target")
        length, bounded = len(ids) if length is None else length, flag("bounded", bounded)

        def compiled() -> LossAutomaton:
            self.misses += 1
            b = loss.compile(
                ids,
                length,
                cap=cap,
                band=band,
                prune=prune,
                engine=engine,
                max_states=max_states,
            )
            if bounded and b.cap is not None:
                _ = b.cap.upper
            return b

        def made() -> LossAutomaton:
            # a file cannot restore the uncapped loss, which the bounds of a capped loss need
            if self.directory is None or any(x is not None for x in (cap, band, prune)):
                return compiled()
            return _from_file(self.directory / f"{key}.npz", loss.alphabet, compiled)

        kind = "bounded" if bounded else "automaton"
        key = _key(kind, loss, ids.tobytes(), length, cap, band, prune, engine, max_states)
        result: LossAutomaton = self._get(key, made)
        return result

    def target_loss(self, loss: Loss, target: SequenceLike) -> TargetLoss | SumTargetLoss:
        """Return `loss.against(target)` for a sequence, from the cache in memory if possible."""
        instance("loss", loss, Loss, "a Loss")
        ids = loss.alphabet.encode(target, name="target")

        def made() -> TargetLoss | SumTargetLoss:
            self.misses += 1
            return loss.against(ids)

        result: TargetLoss | SumTargetLoss = self._get(_key("target", loss, ids.tobytes()), made)
        return result

    def _get(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the cached value of `key`; else make it, and keep it if there is room."""
        self._requests += 1
        if key in self._entries:
            self._entries.move_to_end(key)
            entry = self._entries[key]
            entry.used = self._requests
        else:
            entry = self._made(make)
            self._admit(key, entry)
        if isinstance(entry.value, Exception):
            raise copy.copy(entry.value)  # a raised error keeps its frames alive
        return entry.value

    def _made(self, make: Callable[[], Any]) -> "_Entry":
        try:
            value = make()
        except (StateLimitError, InfeasibleError) as error:
            return _Entry(error.with_traceback(None), _SMALL, self._requests)
        held = (value, getattr(value, "cap", None))
        arrays = sum(int(getattr(part, "nbytes", 0)) for part in held)
        return _Entry(value, _SMALL + _WORKING_COPIES * arrays, self._requests)

    def _admit(self, key: str, entry: "_Entry") -> None:
        """Keep an entry if it fits, after dropping entries that have long been unused."""
        while self._entries and self.nbytes + entry.size > self.max_memory:
            oldest = next(iter(self._entries))
            if self._requests - self._entries[oldest].used <= _PATIENCE * len(self):
                return
            self.nbytes -= self._entries.pop(oldest).size
        if entry.size <= self.max_memory:
            self._entries[key] = entry
            self.nbytes += entry.size


@dataclass
class _Entry:
    """A value (or the error raised instead), its bytes, and the number of its last request."""

    value: Any
    size: int
    used: int


def save_automaton(path: pathlib.Path, b: LossAutomaton) -> None:
    """Write an automaton and a checksum as an npz file of arrays, atomically."""
    arrays: dict[str, Any] = {
        "class_of": b.class_of,
        "initial": np.float64(b.initial),
        "capped": np.bool_(b.cap is not None),
        "final": b.final,
        "sizes": np.array([level.nextstate.shape for level in b.levels]),
        "nextstate": np.concatenate([level.nextstate.ravel() for level in b.levels]),
        "cost": np.concatenate([level.cost.ravel() for level in b.levels]),
    }
    write_arrays(path, **arrays, checksum=_checksum(arrays))


def load_automaton(path: pathlib.Path, alphabet: Alphabet) -> LossAutomaton | None:
    """Return the automaton in a file.

    Return None if the file is missing or damaged, or if it does not match the alphabet.  The bounds
    of a capped loss are not stored.
    """
    try:
        arrays = read_arrays(path, _ARRAYS, what="a compiled loss")
    except (OSError, InvalidInputError, MemoryLimitError):
        return None
    if str(arrays.pop("checksum")) != _checksum(arrays) or not _fits(arrays, len(alphabet)):
        return None
    ends = np.cumsum(arrays["sizes"].prod(axis=1))[:-1]
    levels = tuple(
        Level(nextstate.reshape(shape), cost.reshape(shape))
        for nextstate, cost, shape in zip(
            np.split(arrays["nextstate"], ends),
            np.split(arrays["cost"], ends),
            arrays["sizes"],
            strict=True,
        )
    )
    cap = STORED_CAP if arrays["capped"] else None
    return LossAutomaton(
        alphabet, arrays["class_of"], levels, float(arrays["initial"]), arrays["final"], cap
    )


def _fits(arrays: dict[str, Any], symbols: int) -> bool:
    """Return whether all arcs lead to states of the next level and all symbols have a class."""
    sizes, class_of, nextstate = arrays["sizes"], arrays["class_of"], arrays["nextstate"]
    if len(class_of) != symbols or sizes[0, 0] != 1 or class_of.max() >= sizes[:, 1].min():
        return False
    counts = sizes.prod(axis=1)
    widths = np.append(sizes[1:, 0], len(arrays["final"]))
    return bool(counts.sum() == len(nextstate) and (nextstate < np.repeat(widths, counts)).all())


def _checksum(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
    return digest.hexdigest()


def _from_file(
    path: pathlib.Path, alphabet: Alphabet, compiled: Callable[[], LossAutomaton]
) -> LossAutomaton:
    """Return the automaton in a file; if there is none, compile it and try to write the file."""
    stored = load_automaton(path, alphabet)
    if stored is None:
        stored = compiled()
        try:
            save_automaton(path, stored)
        except (OSError, InvalidInputError) as error:
            _warn(f"compiled losses cannot be kept in {path.parent} ({error})")
    return stored


@functools.cache
def _warn(message: str) -> None:
    """Warn once per process and message."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _key(kind: str, loss: Loss, ids: bytes, *settings: object) -> str:
    text = repr((_EDITION, kind, loss.fingerprint, settings)).encode()
    return hashlib.sha256(text + ids).hexdigest()
