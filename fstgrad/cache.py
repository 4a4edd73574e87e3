"""AutomatonCache: compiled losses by (loss, target, length, cap), in memory and on disk."""

import hashlib
import os
import pathlib
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from fstgrad.alphabet import Alphabet, SequenceLike
from fstgrad.automaton import Level, LossAutomaton
from fstgrad.checks import positive_integer
from fstgrad.errors import InfeasibleError, StateLimitError
from fstgrad.evaluation import SumTargetLoss, TargetLoss
from fstgrad.losses import MAX_STATES, Engine, Loss

MAX_BYTES = 2**30
_WORKING_COPIES = 3  # an automaton in use holds its arrays again, laid out for the passes
_SMALL = 1_000  # bytes counted for an entry besides its arrays


class AutomatonCache:
    """Keeps the automata of the targets seen last, up to a number of bytes.

    A failure (too many states, no finite loss) is kept too, so that it costs its time once.

    Parameters
    ----------
    max_bytes : int
        What the automata may take in memory; the ones used longest ago go first.
    directory : path, optional
        Automata are also kept here as npz files of plain arrays, which are read without pickle.
        A file that is damaged is written anew.

    Attributes
    ----------
    hits, misses : int
        A miss is a compilation; what is read from the directory is a hit.
    nbytes : int
        Bytes held in memory.

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
        self, max_bytes: int = MAX_BYTES, directory: str | os.PathLike[str] | None = None
    ) -> None:
        self.max_bytes = positive_integer("max_bytes", max_bytes, minimum=0)
        self.directory = None if directory is None else pathlib.Path(directory)
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
        self.nbytes = self.hits = self.misses = 0
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def automaton(
        self,
        loss: Loss,
        target: SequenceLike,
        length: int | None = None,
        *,
        cap: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return `loss.compile(target, length, ...)`, from the cache where it is there."""
        ids = loss.alphabet.encode(target, name="target")
        length = len(ids) if length is None else length

        def compiled() -> LossAutomaton:
            return loss.compile(ids, length, cap=cap, engine=engine, max_states=max_states)

        key = _key("automaton", loss, ids.tobytes(), length, cap, engine, max_states)
        result: LossAutomaton = self._get(key, lambda: self._on_disk(key, loss.alphabet, compiled))
        return result

    def target_loss(self, loss: Loss, target: SequenceLike) -> TargetLoss | SumTargetLoss:
        """Return `loss.against(target)`; these are kept in memory only."""
        ids = loss.alphabet.encode(target, name="target")

        def made() -> TargetLoss | SumTargetLoss:
            self.misses += 1
            return loss.against(ids)

        result: TargetLoss | SumTargetLoss = self._get(_key("target", loss, ids.tobytes()), made)
        return result

    def _get(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the entry of a key, made if it is not there; the least recent entries go."""
        if key in self._entries:
            self.hits += 1
            self._entries.move_to_end(key)
            entry = self._entries[key][0]
        else:
            try:
                entry = make()
            except (StateLimitError, InfeasibleError) as error:
                entry = error.with_traceback(None)
            size = _SMALL + _WORKING_COPIES * int(getattr(entry, "nbytes", 0))
            self._entries[key] = entry, size
            self.nbytes += size
            while self.nbytes > self.max_bytes and self._entries:
                self.nbytes -= self._entries.popitem(last=False)[1][1]
        if isinstance(entry, Exception):
            raise entry
        return entry

    def _on_disk(
        self, key: str, alphabet: Alphabet, compiled: Callable[[], LossAutomaton]
    ) -> LossAutomaton:
        if self.directory is None:
            self.misses += 1
            return compiled()
        path = self.directory / f"{key}.npz"
        stored = load_automaton(path, alphabet)
        if stored is not None:
            self.hits += 1
            return stored
        self.misses += 1
        automaton = compiled()
        save_automaton(path, automaton)
        return automaton


def save_automaton(path: pathlib.Path, b: LossAutomaton) -> None:
    """Write an automaton as an npz file of arrays, whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            class_of=b.class_of,
            initial=b.initial,
            final=b.final,
            sizes=np.array([level.target.shape for level in b.levels]),
            target=np.concatenate([level.target.ravel() for level in b.levels]),
            cost=np.concatenate([level.cost.ravel() for level in b.levels]),
        )
    partial.replace(path)


def load_automaton(path: pathlib.Path, alphabet: Alphabet) -> LossAutomaton | None:
    """Return the automaton of a file; None where the file is missing, damaged or does not fit."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        sizes = arrays["sizes"]
        ends = np.cumsum(sizes[:, 0] * sizes[:, 1])[:-1]
        levels = tuple(
            Level(target.reshape(shape), cost.reshape(shape))
            for target, cost, shape in zip(
                np.split(arrays["target"], ends), np.split(arrays["cost"], ends), sizes, strict=True
            )
        )
        final, class_of = arrays["final"], arrays["class_of"]
        widths = [*sizes[1:, 0], len(final)]
        fits = (
            class_of.shape == (len(alphabet),)
            and class_of.max() < sizes[:, 1].min()
            and class_of.min() >= 0
            and all(
                level.target.min() >= -1 and level.target.max() < width
                for level, width in zip(levels, widths, strict=True)
            )
        )
        return (
            LossAutomaton(alphabet, class_of, levels, float(arrays["initial"]), final)
            if fits
            else None
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _key(kind: str, loss: Loss, ids: bytes, *settings: object) -> str:
    text = repr((kind, loss.fingerprint, settings)).encode()
    return hashlib.sha256(text + ids).hexdigest()
