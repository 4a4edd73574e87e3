"""SequenceModel: a log-linear model of strings given an input, trained for a loss."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, flag, instance, one_of, optional, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields, paired_batches
from fstgrad.io import Path
from fstgrad.learning import measures, storage
from fstgrad.learning.batch import XY, Batch
from fstgrad.learning.data import Sequences, as_inputs, check_loss, made_loss, paired, two_sequences
from fstgrad.learning.estimator import Estimator
from fstgrad.learning.kinds import CONSTANTS
from fstgrad.learning.latent import Alignment, LatentOutputs, check_aligned, is_latent
from fstgrad.learning.lengths import LengthModel
from fstgrad.learning.measures import Evaluation
from fstgrad.learning.objective import Method, PairObjective
from fstgrad.learning.optimizers import Optimizer
from fstgrad.learning.predictions import best, decoded
from fstgrad.learning.recipes import (
    Objective,
    fit_in_turn,
    for_pairs,
    objective_of,
    settings_of,
    split,
)
from fstgrad.learning.template_features import Pairs, TemplateFeatures
from fstgrad.learning.templates import Template, Window
from fstgrad.learning.trainer import Callback, State, Trainer
from fstgrad.learning.vocabulary import Vocabulary
from fstgrad.losses import MAX_STATES, Loss
from fstgrad.strings import StringDistribution
from fstgrad.strings.caps import TOLERANCE
from fstgrad.strings.proposals import Kind as Proposal


class SequenceModel(Estimator):
    """p(y | x) = exp(w.Psi(x, y)) / Z(x) over the strings y of one length, or of any.

    Features are q-grams of y, and pairs of a name that a template finds at a position of x and the
    symbol y_s.  Training minimises (1/N) sum_i F_i(w) + l2/2 |w|^2, with F_i the exact softmax
    margin, expected loss or negative log-likelihood of pair i.  The interface is that of
    scikit-learn (`fit`, `predict`, `score`, `get_params`, `clone`), which need not be installed.

    Parameters
    ----------
    loss : str, Loss, callable (Alphabet) -> Loss, or None
        "edit", "hamming", "ngram" or "smith-waterman" by name.
    features : {"unaligned", "aligned"} or callable (x, s, l) -> iterable of str
        `Window(window, span)`; "aligned" requires |x| = |y| in training.
    alignment : {"auto", "em", "given"} or None
        "em": each symbol of x produces a string of symbols of y, often one, sometimes none, found
        by `LatentOutputs`.  Outputs have any length; the model is over latent strings, and the loss
        compares the strings that they spell.  "given": y_s belongs to x_s, so |x| = |y|. None: y
        has the median length for |x|. "auto": "given" if all pairs have |x| = |y|, otherwise "em".
    order : int
        q >= 1; the cost of a pair grows with n^q.
    objective : {"softmax-margin", "risk", "crf", "hinge", "raml", "direct", "crf-then-risk"}
        The last one fits by likelihood and then by risk.
    l2, epochs, learning_rate : optional
        The defaults are 3e-4 nats, 20, 0.1; for the risk 1e-4, 10, 0.03.  Epochs of "lbfgs" are
        iterations; the rate falls linearly to zero.  If targets have m > 10 symbols on average, the
        default of l2 is m / 10 times as large.  With validation pairs and no `patience`,
        likelihood has as many epochs again with 0.3 times this l2; the best of all is kept.
    window, span, min_count : int
        Settings of the template; the least number of occurrences of a name in the training inputs.
    alphabet : Alphabet, optional
        The alphabet of y; by default, the symbols of the training targets.
    optimizer : {"adam", "sgd", "lbfgs"}
        "lbfgs" uses all pairs in each step; its memory is cleared every 20 iterations.
    batch_size : int
        The number of pairs in a step of "adam" and "sgd"; above 64, whole chunks of 64.  The pairs
        are divided into batches once; the order of the batches is drawn in every epoch.
    seed : int >= 0
        The seed of the shuffling and of the method "sampled".
    patience : int, optional
        Stop after this many epochs without a better error rate on the validation pairs.
    held_out : float
        The share of pairs that is held out if there are at least 50 pairs and no validation pairs
        are given; equal inputs stay together.  They choose the epoch; more epochs with all follow.
    cap, tolerance, method, samples, proposal, seconds, max_states, temperature, epsilon
        As in `PairObjective`.
    n_jobs : int
        The number of processes; the weights do not depend on it.
    warm_start : bool
        Start from the weights of the last `fit` or of `load`, with their features: for example,
        risk after likelihood.
    cache_bytes : int
        The memory for compiled losses of all processes together, in bytes.  The exact edit distance
        needs about 0.5 MB for a word of seven phones.
    callbacks : sequence of callable (Epoch)
        Called after every epoch; a callback that returns True ends the training.
    checkpoint : path, optional
        The file of the training state; `fit(..., resume=True)` continues from it.

    Attributes
    ----------
    coef_ : (d,) float64, the weights w
    features_, alphabet_ : TemplateFeatures, Alphabet
    loss_ : Loss or None
    lengths_ : LengthModel
    history_ : list of Epoch
    left_out_ : int, pairs that were left out because p(y | x) is below the product of frequencies
    about_ : dict that JSON can represent, saved with the model

    Examples
    --------
    >>> model = SequenceModel(loss="edit", order=1, features="aligned", epochs=30)
    >>> model.fit(["abc", "cab", "bca"], ["xyz", "zxy", "yzx"]).predict(["cab"])
    ['zxy']
    """

    _joins = True  # whether to train on held-out pairs at the end; not if another objective follows

    def __init__(
        self,
        loss: str | Loss | Callable[[Alphabet], Loss] | None = "edit",
        features: Literal["unaligned", "aligned"] | Template = "unaligned",
        order: int = 2,
        objective: Objective = "softmax-margin",
        l2: float | None = None,
        *,
        alignment: Alignment = None,
        window: int = 3,
        span: int = 3,
        min_count: int = 1,
        alphabet: Alphabet | None = None,
        optimizer: Optimizer = "adam",
        epochs: int | None = None,
        batch_size: int = 16,
        learning_rate: float | None = None,
        seed: int = 0,
        patience: int | None = None,
        held_out: float = 0.0,
        cap: float | Literal["auto"] | None = None,
        tolerance: float = TOLERANCE,
        method: Method | None = None,
        samples: int = 1000,
        proposal: Proposal = "auto",
        seconds: float = PairObjective.seconds,
        temperature: float = CONSTANTS.temperature,
        epsilon: float = CONSTANTS.epsilon,
        max_states: int = MAX_STATES,
        n_jobs: int = 1,
        warm_start: bool = False,
        cache_bytes: int = 2**32,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | None = None,
    ) -> None:
        self.loss = loss
        self.features = features
        self.order = order
        self.objective, self.l2 = objective, l2
        self.alignment = alignment
        self.window, self.span = window, span
        self.min_count = min_count
        self.alphabet = alphabet
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.seed = seed
        self.patience, self.held_out = patience, held_out
        self.cap, self.tolerance = cap, tolerance
        self.method, self.samples = method, samples
        self.proposal, self.seconds = proposal, seconds
        self.temperature, self.epsilon = temperature, epsilon
        self.max_states = max_states
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.cache_bytes = cache_bytes
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.about_: dict[str, Any] = {}

    def fit(
        self,
        X: Sequences,
        Y: Sequences,
        validation: tuple[Sequences, Sequences] | None = None,
        *,
        resume: bool = False,
    ) -> "SequenceModel":
        """Train on pairs.

        Parameters
        ----------
        X, Y : sequences of N str, or of sequences of symbols
        validation : (X, Y), optional
            The weights of the epoch with the least error rate on these pairs are kept.
        resume : bool
            Continue from the file `checkpoint` if it exists, as if the run had never stopped.

        Raises
        ------
        InvalidInputError
            If there are no pairs, a target is empty, or "aligned" pairs differ in length.
        """
        settings, (X, Y) = settings_of(self), paired_batches(X=X, Y=Y)
        if validation is not None:
            validation = two_sequences("validation", validation)
        if self.objective == "crf-then-risk":
            fit_in_turn(self, X, Y, validation, resume)
            return self
        start, pairs, places = self._start(paired(X, Y, self.alphabet or ()), Y)
        check_loss(self.loss_, Y)
        trained = pairs
        if validation is None:
            trained, validation = split(self, pairs, [(X[i], Y[i]) for i in places])
        settings = for_pairs(self, settings, Y, validated=validation is not None)
        self.joined_ = all(isinstance(y, str) for y in Y)
        self.lengths_ = LengthModel.fit((len(x), len(y)) for x, y in pairs)
        objective = objective_of(self)
        path = storage.checkpoint(self)
        known = (pairs, validation, *([start] if start.any() else []))
        digest = "" if path is None else storage.fingerprint(self, *known)
        state = State.start(start)
        if flag("resume", resume) and path is not None and path.exists():
            state = State.load(path, digest, len(start))
        validate = None if validation is None else self._validate(*validation)
        save = lambda state: None if path is None else state.save(path, digest)  # noqa: E731
        with Batch(objective, self.n_jobs, self.cache_bytes) as batch:
            trainer = Trainer(batch, trained, settings, validate, self.callbacks, save)
            trainer.run(state)
            trainer.relax(state)
            if self._joins and len(trained) < len(pairs):
                trainer.join(state, pairs)
        self.history_ = state.history
        self.coef_ = state.w if validation is None else state.best
        return self

    def prepare(
        self,
        alphabet: Alphabet,
        known: tuple[Vocabulary | Sequence[str], Pairs] | None,
        pairs: Sequence[XY] = (),
        latent: LatentOutputs | None = None,
    ) -> None:
        """Create the loss and the features, from known names and pairs or from the data."""
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        optional("latent", latent, LatentOutputs, "LatentOutputs")
        read = [(x, y) for x, y in fields("pairs", pairs, 2)]
        self.alphabet_, self.latent_ = alphabet, latent
        self.loss_ = made_loss(self.loss, alphabet)
        template = self.template()
        if self.features == "aligned":
            check_aligned(read)
        outputs = alphabet if latent is None else latent.symbols
        copies = self._copies()
        if known is not None:
            names, own = fields("known", [known], 2)[0]
            self.features_ = TemplateFeatures(outputs, self.order, template, names, own, copies)
            return
        least = positive_integer("min_count", self.min_count)
        self.features_ = TemplateFeatures.from_pairs(
            outputs, self.order, template, read, min_count=least, copies=copies
        )

    def template(self) -> Template:
        """Return the template of the features."""
        if not isinstance(self.features, str):
            instance("features", self.features, Callable, "a name or a function (x, s, l)")
            return self.features
        one_of("features", self.features, ("unaligned", "aligned"))
        return Window(self.window, self.span)

    def _copies(self) -> dict[str, int]:
        """Return the outputs that are copies of symbols of x, if x and y are aligned."""
        if self.latent_ is not None:
            return self.latent_.copies
        if self.features == "aligned" or self.alignment is not None:
            return {symbol: i for i, symbol in enumerate(self.alphabet_.symbols)}
        return {}

    def start_from(self, other: "SequenceModel") -> None:
        """Copy the weights, the features and the alphabet of a trained model, for `warm_start`."""
        storage.check_trained(other)
        for name in ("coef_", "features_", "alphabet_", "latent_"):
            setattr(self, name, getattr(other, name))

    def _start(self, pairs: list[XY], Y: Sequences) -> tuple[FloatArray, list[XY], list[int]]:
        """Create loss and features; return initial weights, aligned pairs, and their indices."""
        goes_on = self.warm_start and hasattr(self, "coef_")
        alphabet = self.alphabet_ if goes_on else self.alphabet or Alphabet.from_sequences(Y)
        places, latent = list(range(len(pairs))), None
        self.left_out_ = len(pairs)
        if is_latent(self.alignment, pairs):
            latent, pairs, places = LatentOutputs.fit(pairs, alphabet)
            if goes_on and latent != self.latent_:
                raise InvalidInputError(
                    "warm_start: the alignment of the pairs differs from that of the last fit; "
                    "give the same pairs"
                )
        self.left_out_ -= len(pairs)
        if goes_on:
            known = self.features_.vocabulary, self.features_.pairs
            self.prepare(alphabet, known, pairs, latent)
            if self.coef_.shape != self.features_.shape:
                raise InvalidInputError(
                    f"warm_start: the last fit has {self.coef_.size} weights, order={self.order} "
                    f"has {self.features_.shape[0]}; keep the order of the last fit"
                )
            return self.coef_, pairs, places
        self.prepare(alphabet, None, pairs, latent)
        return np.zeros(self.features_.shape), pairs, places

    def distribution(self, x: Sequence[str], length: int | None = None) -> StringDistribution:
        """Return p(y | x); by default, the length of y is that of the length model."""
        x, found = self._input(as_inputs([x], self)[0])
        if self.latent_ is not None or length is None:
            length = found
        return StringDistribution(self.features_.scores(self.coef_, x, length))

    def _input(self, read: Any) -> tuple[Any, int]:
        """Return what the features need of an input (see `as_input`), and the output's length."""
        if not hasattr(self, "coef_"):
            raise InvalidInputError("the model is not trained; call fit first")
        if self.latent_ is None:
            return read, self.lengths_(len(read))
        return self.latent_.padded(read), len(read) + sum(self.latent_.slots)

    def predict(self, X: Sequences) -> list[Any]:
        """Return the most probable y of every x: a str if the targets were str, otherwise a list.

        With an alignment, it is that of the most probable latent string; "" or [] for an empty x.
        """
        xs = as_inputs(X, self)
        read = [self._input(x) for x in xs]
        found = self._shown(best(self.features_, self.coef_, read)) if read else []
        return [y if len(x) else self._joined([]) for x, y in zip(xs, found, strict=True)]

    def predict_nbest(self, X: Sequences, k: int = 5) -> list[list[tuple[Any, float]]]:
        """Return up to k pairs (y, log p(y | x) in nats) of every x, best first.

        With an alignment, the probabilities of the 4 k best latent strings with the same y are
        added.
        """
        return [self._nbest(self.distribution(x), k) for x in as_inputs(X, self)]

    def _nbest(self, distribution: StringDistribution, k: int) -> list[tuple[Any, float]]:
        if self.latent_ is None:
            return [(self._shown([y])[0], p) for y, p in distribution.kbest(k)]
        best = self.latent_.nbest(distribution.kbest(4 * k), k)
        return [(self._joined(list(y)), p) for y, p in best]

    def evaluate(self, X: Sequences, Y: Sequences) -> Evaluation:
        """Return accuracy, mean loss and error rate of the predictions."""
        X, Y = paired_batches(X=X, Y=Y)
        read: list[Any] = paired(X, Y, getattr(self, "alphabet_", ()), empty=True)
        return measures.evaluate(self.predict(X), [y for _, y in read], self.loss_)

    def score(
        self,
        X: Sequences,
        Y: Sequences,
        metric: Literal["accuracy", "neg_loss", "neg_error_rate"] = "accuracy",
    ) -> float:
        """Return one measure of the predictions; larger is better."""
        one_of("metric", metric, ("accuracy", "neg_loss", "neg_error_rate"))
        if metric == "neg_loss" and self.loss_ is None:
            raise InvalidInputError("metric is 'neg_loss', but loss is None; give another metric")
        _, accuracy, loss, error_rate, _ = self.evaluate(X, Y)
        return {"accuracy": accuracy, "neg_loss": -loss}.get(metric, -error_rate)

    def save(self, path: Path) -> None:
        """Write the trained model to an npz file: arrays and one JSON text."""
        storage.save(self, path)

    @classmethod
    def load(cls, path: Path, **given: Any) -> "SequenceModel":
        """Return a model that `save` wrote.

        Parameters
        ----------
        given
            Settings that are objects and therefore not in the file: `features` if they are a
            function, and `loss` if it is an object and needed (without it `evaluate` has none).
        """
        return cast(SequenceModel, storage.load(cls, path, given))

    def _validate(self, X: Sequences, Y: Sequences) -> Callable[[FloatArray], float]:
        targets: list[Any] = [y for _, y in paired(X, Y, self.alphabet_, empty=True)]

        def error_rate(w: FloatArray) -> float:
            self.coef_ = w
            return measures.evaluate(self.predict(X), targets).error_rate

        return error_rate

    def _shown(self, found: Sequence[Any]) -> list[Any]:
        latent = self.latent_
        read = decoded(self.alphabet_, found) if latent is None else map(latent.read, found)
        return [self._joined(list(symbols)) for symbols in read]

    def _joined(self, symbols: list[str]) -> Any:
        return "".join(symbols) if self.joined_ else symbols
