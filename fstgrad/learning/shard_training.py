"""Training on a corpus of many files: the optimizers of `trainer` on the sums of `shards`.

- `train_shards` : any objective.
- `fit_shards` : a sequence model whose features come from a sample of the pairs.
"""

import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, flag, instance, path_name, real_array
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.io import Path
from fstgrad.learning import storage
from fstgrad.learning.batch import TRAINING_CHUNK_SIZE
from fstgrad.learning.objective import PairObjective
from fstgrad.learning.outcomes import Chunk
from fstgrad.learning.recipes import faster_cap
from fstgrad.learning.sequence import SequenceModel, pair_objective, training_settings
from fstgrad.learning.shards import OnError, Shards, shard_sums
from fstgrad.learning.trainer import Callback, Epoch, Settings, State, Trainer


class Trained(NamedTuple):
    """The weights, shaped like those of the features, and a record of each epoch."""

    w: FloatArray
    history: list[Epoch]


class Saving(NamedTuple):
    """The file of the training state, and whether to continue from it if it exists."""

    checkpoint: Path
    resume: bool = False


class _ShardSums(NamedTuple):
    """Sums over shards instead of sums over pairs, for `Trainer`."""

    objective: PairObjective
    shards: Shards
    on_error: OnError | None

    def block(self, pairs: Sequence[Any]) -> int:
        """Return the number of files in a chunk; `numbered` joins the chunks."""
        return TRAINING_CHUNK_SIZE

    def numbered(
        self, w: FloatArray, numbered: Iterable[tuple[int, Sequence[Any]]]
    ) -> Iterator[Chunk]:
        """Yield the sums over the files of all chunks at once."""
        paths = tuple(path for _, chunk in numbered for path in chunk)
        weights = w.reshape(self.objective.features.shape)
        part = Shards(paths, *_reading(self.shards))
        sums = shard_sums(self.objective, weights, part, on_error=self.on_error)
        sums.gradient = sums.gradient.reshape(-1)
        yield Chunk((), sums)


def train_shards(
    objective: PairObjective,
    shards: Shards,
    settings: Settings,
    start: npt.ArrayLike | None = None,
    *,
    saving: Saving | None = None,
    callbacks: Sequence[Callback] = (),
    validate: Callable[[FloatArray], float] | None = None,
    on_error: OnError | None = None,
) -> Trained:
    """Minimise the mean objective of the pairs of all shards, and l2/2 |w|^2.

    With "lbfgs", an epoch is an iteration, which needs one or two passes over all files.  With
    "adam" and "sgd", an epoch is one pass, with `batch_size` files in a step.  Passes are those of
    `shard_sums`: they run on the backend of joblib, and their results do not depend on the workers,
    to the last bit.

    Parameters
    ----------
    start : like w, optional
        The initial weights; default zeros.
    saving : Saving, optional
        The state is written after every epoch of "adam" and "sgd", every 20 iterations of "lbfgs",
        and at the end.  A run that continues from this file ends with the same weights, to the last
        bit.
    callbacks : sequence of callable (Epoch)
        Called after every epoch; a callback that returns True ends the training.
    validate : callable (w) -> error rate, optional
        The weights of the best epoch are returned.
    on_error : callable (path, outcome)
        As in `shard_sums`; without it the first error ends the training.

    Raises
    ------
    InvalidInputError
        If the checkpoint belongs to other files, settings or features, or no pair can be computed.
    """
    instance("shards", shards, Shards, "Shards")
    instance("settings", settings, Settings, "Settings")
    shape = objective.features.shape
    first = np.zeros(shape) if start is None else real_array("start", start, shape)
    state = State.start(first.reshape(-1))
    path = None if saving is None else pathlib.Path(path_name(saving.checkpoint, "checkpoint"))
    digest = "" if path is None else _fingerprint(objective, shards, settings, first)
    if saving is not None and path is not None and flag("resume", saving.resume) and path.exists():
        state = State.load(path, digest, first.size)
    Trainer(
        _ShardSums(objective, shards, on_error),
        shards.paths,
        settings,
        validate,
        callbacks,
        lambda state: None if path is None else state.save(path, digest),
        faster_cap(objective),
    ).run(state)
    w = state.w if validate is None else state.best
    return Trained(w.reshape(shape), state.history)


def fit_shards(
    model: SequenceModel,
    shards: Shards,
    *,
    resume: bool = False,
    on_error: OnError | None = None,
) -> SequenceModel:
    """Train a model that was fitted to a sample on the pairs of all shards; return it.

    Alphabet, names, pairs of names and symbols, and the initial weights are those of the sample.
    The settings, `checkpoint` and `callbacks` are those of the model; `batch_size` counts files.

    Raises
    ------
    InvalidInputError
        If the model is not trained.
    NotSupportedError
        If its outputs are aligned by EM, or if it trains in two stages.
    """
    storage.check_trained(model)
    if model.latent_ is not None:
        raise NotSupportedError(
            "the model aligns x and y by EM, which needs all pairs; give aligned pairs and "
            "alignment='given', or alignment=None"
        )
    if model.objective == "crf-then-risk":
        raise NotSupportedError(
            "objective is 'crf-then-risk'; call fit_shards with 'crf', then with 'risk'"
        )
    path = storage.checkpoint(model)
    result = train_shards(
        pair_objective(model),
        shards,
        training_settings(model),
        model.coef_,
        saving=None if path is None else Saving(path, resume),
        callbacks=model.callbacks,
        on_error=on_error,
    )
    model.coef_, model.history_ = result
    return model


def _reading(shards: Shards) -> tuple[Any, ...]:
    """Return the options for reading shards, without their files."""
    return shards.tokens_x, shards.tokens_y, shards.block, shards.cache_directory


def _fingerprint(
    objective: PairObjective, shards: Shards, settings: Settings, start: FloatArray
) -> str:
    """Return a digest of everything that determines the weights, with names and sizes of files."""
    try:
        sizes = [os.path.getsize(path) for path in shards.paths]
    except OSError as error:
        raise InvalidInputError(f"a shard cannot be read: {error}") from error
    features = objective.features
    parts = (
        objective.loss and objective.loss.fingerprint,
        [(name, value) for name, value in vars(objective).items() if name not in _OBJECTS],
        (type(features).__qualname__, features.alphabet.symbols, features.shape),
        (shards.paths, sizes, shards.tokens_x, shards.tokens_y),
        settings,
    )
    return hashlib.sha256(repr(parts).encode() + start.tobytes()).hexdigest()


_OBJECTS = {"features", "loss", "cache"}
