"""Training: Adam, SGD and L-BFGS on the mean objective of pairs, in resumable epochs.

    f(w) = (1/N) sum_i F_i(w) + l2/2 |w|^2

An epoch depends only on the state at its start and on (seed, epoch), so a run that continues from a
checkpoint ends with the same weights.  L-BFGS clears its memory every 20 iterations, and its
checkpoints are written there.

- `Settings`, `Epoch`, `State` : what a run is given, what it records, what it carries on.
- `OptimizerSteps` : the updates of the weights by the gradients of minibatches.
- `Trainer` : the epochs of a run.
"""

import json
import math
import pathlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from fstgrad.core.checks import FloatArray, call_function, one_of, positive_integer, positive_number
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.io import Field, json_object, read_arrays, write_arrays
from fstgrad.learning import kernels
from fstgrad.learning.objective import MORE_SAMPLES
from fstgrad.learning.outcomes import CHUNK_SIZE, Chunk, Sums

Optimizer = Literal["adam", "sgd", "lbfgs"]
OPTIMIZERS: tuple[Optimizer, ...] = ("adam", "sgd", "lbfgs")
LARGEST_WEIGHT = 1e250  # nats; larger weights can give scores that no method accepts
SLOW_EPOCH = 60.0  # seconds; a warning names the remedy for a slower one
LBFGS_ROUND = 20  # iterations of L-BFGS between two checkpoints
_MOMENT_DECAY = (0.9, 0.999)  # decays of the two moments of Adam


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch: a pass over the pairs, or one iteration of L-BFGS.

    objective : f in nats, or the expected loss of "risk", plus the penalty; with minibatches, the
        mean during the epoch plus the penalty at its end.
    gradient_norm : Euclidean norm of the mean gradient.
    seconds : wall time.
    validation : error rate on the validation pairs, None without them.
    stage : the objective that was trained, with ", weaker l2" or ", all pairs" for the epochs after
        those of the settings; values of different stages are not comparable.
    unreliable : number of estimates, of the method "sampled", that are not reliable.
    """

    epoch: int
    objective: float
    gradient_norm: float
    seconds: float
    validation: float | None = None
    stage: str = ""
    unreliable: int = 0

    @classmethod
    def from_json(cls, value: object) -> "Epoch":
        """Return the epoch of an object that `asdict` made, also without the last two fields.

        Raises
        ------
        InvalidInputError
            It is no such object.
        """
        if isinstance(value, dict):
            value = {"stage": "", "unreliable": 0, **value}
        return cls(**json_object(json.dumps(value), EPOCH))


Callback = Callable[[Epoch], object]


@dataclass(frozen=True)
class Settings:
    """Settings of the training; `SequenceModel` documents each of them.

    weaker_l2 : the l2 of `Trainer.train_with_weaker_l2`, if any.
    stage : the stage of the epochs.
    """

    optimizer: Optimizer = "adam"
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 0.01
    l2: float = 0.0
    seed: int = 0
    patience: int | None = None
    weaker_l2: float | None = None
    stage: str = ""

    def __post_init__(self) -> None:
        """Check the settings."""
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        vars(self).update(
            epochs=positive_integer("epochs", self.epochs),
            batch_size=positive_integer("batch_size", self.batch_size),
            learning_rate=positive_number("learning_rate", self.learning_rate),
            l2=positive_number("l2", self.l2, allow_zero=True),
            seed=positive_integer("seed", self.seed, minimum=0),
        )
        if self.patience is not None:
            vars(self).update(patience=positive_integer("patience", self.patience))


EPOCH: dict[str, type | tuple[type, ...]] = {
    "epoch": int, "objective": (int, float), "gradient_norm": (int, float),
    "seconds": (int, float), "validation": (int, float, type(None)), "stage": str,
    "unreliable": int,
}  # fmt: skip
_STATE = {
    "text": Field("text"),
    **{name: Field("float", ("weights",)) for name in ("w", "first", "second", "best")},
}
_STATE_TEXT: dict[str, type | tuple[type, ...]] = {
    "fingerprint": str, "steps": int, "finished": bool, "best_validation": (int, float),
    "history": list,
}  # fmt: skip


@dataclass
class State:
    """The state that training carries from one epoch to the next.

    w, first, second, best : (d,) the weights, the moments of Adam, the weights of the best epoch.
    steps : number of updates.
    """

    w: FloatArray
    first: FloatArray
    second: FloatArray
    best: FloatArray
    steps: int = 0
    finished: bool = False
    best_validation: float = float("inf")
    history: list[Epoch] = field(default_factory=list)

    @classmethod
    def start(cls, w: FloatArray) -> "State":
        """Return the state before the first epoch."""
        return cls(w.copy(), np.zeros_like(w), np.zeros_like(w), w.copy())

    def save(self, path: pathlib.Path, fingerprint: str) -> None:
        """Write the state, completely or not at all."""
        text = {
            "fingerprint": fingerprint,
            "steps": self.steps,
            "finished": self.finished,
            "best_validation": self.best_validation,
            "history": [asdict(epoch) for epoch in self.history],
        }
        arrays = {"w": self.w, "first": self.first, "second": self.second, "best": self.best}
        write_arrays(path, text=json.dumps(text), **arrays)

    @classmethod
    def load(cls, path: pathlib.Path, fingerprint: str, size: int) -> "State":
        """Return a state of `size` weights that `save` wrote.

        Raises
        ------
        InvalidInputError
            If it is not a file of a state, or if it belongs to other pairs or settings.
        """
        what = "a checkpoint of a training; remove it"
        arrays = read_arrays(path, _STATE, what=what)
        try:
            text = json_object(str(arrays.pop("text")), _STATE_TEXT)
            history = [Epoch.from_json(epoch) for epoch in text["history"]]
        except InvalidInputError as error:
            raise InvalidInputError(f"{path} is not {what}: {error}") from error
        if text.pop("fingerprint") != fingerprint or len(arrays["w"]) != size:
            raise InvalidInputError(
                f"{path} belongs to other pairs or settings; remove it, or train as before"
            )
        settings: dict[str, Any] = {**arrays, **text, "history": history}
        return cls(**settings)


@dataclass
class OptimizerSteps:
    """The steps of "adam" or "sgd" in one epoch.

    The learning rate falls linearly to zero over the steps of the training, and both apply the
    penalty l2/2 |w|^2 in every step.  "sgd" updates only the weights in the gradient, and a weight
    gets the penalties that it misses at its next update; "adam" updates all weights, because its
    moments and its penalty change every weight.

    Attributes
    ----------
    optimizer : "adam" or "sgd"
    rate, l2 : float
    steps : int, of the whole training
    w, first, second : (d,) the weights; the moments of Adam
    taken : int, steps so far
    """

    optimizer: Optimizer
    rate: float
    l2: float
    steps: int
    w: FloatArray
    first: FloatArray
    second: FloatArray
    taken: int

    def __post_init__(self) -> None:
        """Mark all penalties so far as applied."""
        self._penalized = np.zeros_like(self.w)
        self._all_weights = np.arange(len(self.w))
        self._log_decay = 0.0

    def take(self, sums: Sums) -> None:
        """Take one step along the mean gradient of some pairs."""
        rate = self.rate * max(0.0, 1 - self.taken / self.steps)
        self.taken += 1
        gradient = sums.gradient / sums.done
        support = self._all_weights if sums.support is None else sums.support
        if self.optimizer == "adam":
            self._adam(rate, gradient, sums)
        else:
            before = self._log_decay
            decay = 1 - rate * self.l2
            self._log_decay += math.log(decay) if decay > 0 else -np.inf
            rates = rate, self.l2, before, self._log_decay
            kernels.optimizers.sgd(self.w, self._penalized, support, gradient, rates)

    def catch_up(self) -> None:
        """Apply the outstanding penalties of all weights, at the end of the epoch."""
        if self.optimizer == "sgd":
            kernels.optimizers.sgd_catch_up(self.w, self._penalized, self._log_decay)

    def _adam(self, rate: float, gradient: FloatArray, sums: Sums) -> None:
        dense: Any = gradient
        if sums.support is not None:
            dense = np.zeros_like(self.w)
            dense[sums.support] = gradient
        first, second = _MOMENT_DECAY
        scales = 1 - first**self.taken, 1 - second**self.taken
        kernels.optimizers.adam(
            self.w, self.first, self.second, dense, (rate, first, second, *scales, self.l2)
        )


class ChunkSums(Protocol):
    """An object that computes the sums of chunks, such as `Batch`."""

    def block(self, pairs: Sequence[Any]) -> int:
        """Return the largest number of these pairs, or files, in a chunk."""
        ...

    def numbered(
        self, w: FloatArray, numbered: Iterable[tuple[int, Sequence[Any]]]
    ) -> Iterator[Chunk]:
        """Yield the results of chunks (index, items)."""
        ...


@dataclass
class Trainer:
    """Runs the epochs of one fit.

    Parameters
    ----------
    batch : ChunkSums
    pairs : sequence of (x, y), or of other items that `batch` computes
    settings : Settings
    validate : callable (w) -> error rate, optional
    callbacks : sequence of callable (Epoch)
        A callback that returns True ends the training.
    save : callable (state)
        Called after every epoch of minibatches, every 20 iterations of L-BFGS, and at the end.
    remedy : str
        What makes epochs faster, for a warning; "" without a warning.
    """

    batch: ChunkSums
    pairs: Sequence[Any]
    settings: Settings
    validate: Callable[[FloatArray], float] | None = None
    callbacks: Sequence[Callback] = ()
    save: Callable[[State], None] = lambda _state: None
    remedy: str = ""

    def __post_init__(self) -> None:
        """Clear the flags that a callback has ended the training, and of a warning."""
        self._ended = self._has_warned = False

    def run(self, state: State) -> None:
        """Run the training from this state to its end."""
        epoch = self._iterations if self.settings.optimizer == "lbfgs" else self._epoch
        while not state.finished and len(state.history) < self.settings.epochs:
            try:
                epoch(state)
            except InvalidInputError as error:  # it names the scores that the weights give
                if np.abs(state.w).max(initial=0.0) < LARGEST_WEIGHT:
                    raise
                raise self._diverges(state, f"weights of at least {LARGEST_WEIGHT:g}") from error
            self.save(state)

    def train_with_weaker_l2(self, state: State) -> None:
        """Train for as many epochs after `run`, from the best weights and with `weaker_l2`.

        The rate falls to zero from half of the initial rate.  The weights of the epoch with the
        least validation error are kept, of all epochs.  If there is no `weaker_l2`, no error is
        left, or a callback or `patience` ended the training, nothing is done.
        """
        epochs, weaker = self.settings.epochs, self.settings.weaker_l2
        if weaker is None or self._ended or len(state.history) < epochs:
            return
        trainer = self._after(epochs, epochs, share=0.5, l2=weaker, what="weaker l2")
        if len(state.history) == epochs:
            if state.best_validation == 0:
                return
            state.w, state.steps = state.best.copy(), epochs * len(trainer._minibatches())
        trainer.run(state)
        self._ended = trainer._ended

    def train_on_all(self, state: State, pairs: Sequence[Any]) -> None:
        """Train on all pairs after the other parts, from the best weights and with their l2.

        This takes a quarter as many epochs as `run`.  The rate of "adam" and "sgd" falls to zero
        from a fifth of the initial rate.  If a callback ended the training, nothing is done.
        """
        if self._ended:
            return
        errors = [e.validation for e in state.history if e.validation is not None]
        before, first = len(errors), min(len(errors), self.settings.epochs)
        l2, weaker = self.settings.l2, self.settings.weaker_l2
        if weaker is not None and min(errors[first:], default=np.inf) < min(errors[:first]):
            l2 = weaker
        trainer = replace(self, pairs=pairs, validate=None)
        trainer = trainer._after(before, -(-first // 4), share=0.2, l2=l2, what="all pairs")
        if before == len(state.history):
            state.w, state.finished = state.best.copy(), False
            state.steps = before * len(trainer._minibatches())
        trainer.run(state)
        state.best = state.w

    def _after(self, before: int, epochs: int, *, share: float, l2: float, what: str) -> "Trainer":
        """Return a trainer for further epochs, whose rate falls from a share of the initial one."""
        rate = self.settings.learning_rate * share * (before + epochs) / epochs
        settings = replace(
            self.settings,
            epochs=before + epochs,
            learning_rate=rate,
            l2=l2,
            patience=None,
            stage=f"{self.settings.stage}, {what}",
        )
        return replace(self, settings=settings)

    def _epoch(self, state: State) -> None:
        """Make one pass in minibatches; their order depends only on the seed and the epoch."""
        started = time.perf_counter()
        number, seed = len(state.history), self.settings.seed
        minibatches, settings = self._minibatches(), self.settings
        steps = OptimizerSteps(
            settings.optimizer,
            settings.learning_rate,
            settings.l2,
            len(minibatches) * settings.epochs,
            state.w,
            state.first,
            state.second,
            state.steps,
        )
        total, is_timed = Sums(np.zeros_like(state.w)), number > 0
        order = np.random.default_rng([seed, number]).permutation(len(minibatches))
        for step, k in enumerate(order):
            before = time.perf_counter()
            sums = self._sums(self.batch.numbered(state.w, minibatches[k]))
            total.add(sums)
            steps.take(sums)
            spent = time.perf_counter() - before
            # the first step may compile kernels, which takes less than SLOW_EPOCH
            if not is_timed and (step == min(1, len(order) - 1) or spent > SLOW_EPOCH):
                is_timed = True
                self._warn_if_slow(len(order) * spent)
        steps.catch_up()
        state.steps = steps.taken
        mean, gradient = total.mean()
        gradient += settings.l2 * state.w
        self._warn_if_unreliable(total)
        self._record(state, mean + self._penalty(state.w), gradient, started, total.unreliable)

    def _warn_if_slow(self, seconds: float) -> None:
        """Warn if an epoch takes more than SLOW_EPOCH and there is a remedy."""
        if self.remedy and seconds > SLOW_EPOCH:
            warnings.warn(
                f"an epoch of {self.settings.stage} takes about {seconds / 60:.0f} min; "
                + self.remedy,
                RuntimeWarning,
                stacklevel=2,
            )

    def _warn_if_unreliable(self, sums: Sums) -> None:
        """Warn about the first steps whose estimates are not all reliable."""
        if sums.unreliable and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{sums.unreliable} of {sums.done} estimates of {self.settings.stage} are not "
                f"reliable, and the training uses them; {MORE_SAMPLES}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _minibatches(self) -> list[list[tuple[int, list[Any]]]]:
        """Return the chunks of each minibatch; the pairs are shuffled once for all epochs.

        A chunk keeps its number, so that a process finds the automata that it has compiled.
        """
        order = np.random.default_rng(self.settings.seed).permutation(len(self.pairs))
        shuffled = [self.pairs[i] for i in order]
        size = min(self.batch.block(self.pairs), self.settings.batch_size)
        numbered = _chunked(shuffled, size)
        each = -(-self.settings.batch_size // size)
        return [numbered[i : i + each] for i in range(0, len(numbered), each)]

    def _penalty(self, w: FloatArray) -> float:
        with np.errstate(over="ignore"):  # `_record` raises if the training diverges
            return 0.5 * self.settings.l2 * float(w @ w)

    def _iterations(self, state: State) -> None:
        """Make up to 20 iterations of L-BFGS, or fewer if it converges."""
        from scipy.optimize import minimize

        started = time.perf_counter()
        last: dict[str, Any] = {}
        chunks = _chunked(self.pairs, self.batch.block(self.pairs))

        def objective(w: FloatArray) -> tuple[float, FloatArray]:
            sums = self._sums(self.batch.numbered(w, chunks), Sums(np.zeros_like(w)))
            if not last and not state.history:
                self._warn_if_slow(time.perf_counter() - started)
            value, gradient = sums.mean()
            self._warn_if_unreliable(sums)
            last["unreliable"] = sums.unreliable
            last["value"] = value + self._penalty(w)
            last["gradient"] = gradient + self.settings.l2 * w
            return last["value"], last["gradient"]

        def done(w: FloatArray) -> None:
            nonlocal started
            state.w = w.copy()
            self._record(state, last["value"], last["gradient"], started, last["unreliable"])
            started = time.perf_counter()
            if state.finished:
                raise StopIteration

        left = self.settings.epochs - len(state.history)
        options = {"maxiter": min(LBFGS_ROUND, left)}
        # A copy of the weights, because scipy may overwrite its start.
        result: Any = minimize(  # type: ignore[call-overload]
            objective, state.w.copy(), jac=True, method="L-BFGS-B", callback=done, options=options
        )
        state.finished = state.finished or result.status != 1  # 1: the limit of iterations

    def _record(
        self, state: State, objective: float, gradient: FloatArray, started: float, unreliable: int
    ) -> None:
        validation = None if self.validate is None else self.validate(state.w)
        with np.errstate(over="ignore"):
            norm = float(np.linalg.norm(gradient))
        if not math.isfinite(objective) or not math.isfinite(norm):
            what = f"an objective of {objective:g} and a gradient of norm {norm:g}"
            raise self._diverges(state, what)
        seconds = time.perf_counter() - started
        number, stage = len(state.history) + 1, self.settings.stage
        epoch = Epoch(number, float(objective), norm, seconds, validation, stage, unreliable)
        state.history.append(epoch)
        if validation is not None and validation < state.best_validation:
            state.best_validation, state.best = validation, state.w.copy()
        state.finished = state.finished or self._is_stale(state)
        for callback in items("callbacks", self.callbacks):
            if call_function("a callback", callback, epoch) is True:
                state.finished = self._ended = True

    def _diverges(self, state: State, what: str) -> InvalidInputError:
        lower = "l2" if self.settings.optimizer == "lbfgs" else "learning_rate or l2"
        return InvalidInputError(
            f"epoch {len(state.history) + 1} has {what}: the training diverges; give a smaller "
            + lower
        )

    def _is_stale(self, state: State) -> bool:
        """Whether the last `patience` epochs did not improve the validation error."""
        patience = self.settings.patience
        if patience is None or self.validate is None or len(state.history) <= patience:
            return False
        errors = [epoch.validation or 0.0 for epoch in state.history]
        return min(errors[-patience:]) >= min(errors[:-patience])

    @staticmethod
    def _sums(chunks: Iterable[Chunk], total: Sums | None = None) -> Sums:
        """Return the sums of the chunks, added to `total`."""
        for chunk in chunks:
            for outcome in chunk.outcomes:
                if outcome.error is not None:
                    raise outcome.error
            if total is None:
                total = chunk.sums
            else:
                total.add(chunk.sums)
        if total is None:
            raise FstgradError("a minibatch without pairs")
        return total


def _chunked(pairs: Sequence[Any], size: int) -> list[tuple[int, list[Any]]]:
    """Return chunks of pairs with the numbers by which `Batch` recognizes them."""
    starts = range(0, len(pairs), size)
    return [(k * CHUNK_SIZE, list(pairs[i : i + size])) for k, i in enumerate(starts)]
