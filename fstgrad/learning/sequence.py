"""SequenceModel: a log-linear model of strings given an input, trained for a loss.

The class has, in this order: settings and training, predictions, measures, files, and the interface
of scikit-learn.  The functions below it compute the most probable outputs of many inputs at once.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    flag,
    instance,
    one_of,
    optional,
    positive_integer,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields, paired_batches
from fstgrad.io import Path
from fstgrad.learning import measures, storage
from fstgrad.learning.batch import Batch
from fstgrad.learning.data import (
    Sequences,
    alphabet_of_ids,
    as_inputs,
    check_loss,
    is_ids,
    made_loss,
    paired,
    two_sequences,
)
from fstgrad.learning.measures import Evaluation
from fstgrad.learning.objective import DEFAULT_CONSTANTS, Method, ObjectiveKind, PairObjective
from fstgrad.learning.outcomes import XY
from fstgrad.learning.outputs import (
    Alignment,
    LatentOutputs,
    LengthModel,
    check_aligned,
    is_latent,
)
from fstgrad.learning.recipes import (
    OBJECTIVES,
    RECIPES,
    WEAKER_L2,
    Objective,
    faster_cap,
    hold_out,
    l2_for_targets,
)
from fstgrad.learning.template_features import Pairs, TemplateFeatures
from fstgrad.learning.templates import Template, Window, as_input
from fstgrad.learning.trainer import Callback, Epoch, Optimizer, Settings, State, Trainer
from fstgrad.learning.vocabulary import Vocabulary
from fstgrad.losses import MAX_STATES, Loss
from fstgrad.strings import StringDistribution
from fstgrad.strings.cap_choice import TOLERANCE
from fstgrad.strings.linear_chain import LinearChains
from fstgrad.strings.proposals import Kind as Proposal

Self = TypeVar("Self", bound="SequenceModel")
_OBJECTIVE_SETTINGS = (
    "cap", "max_states", "method", "samples", "proposal", "seconds", "seed", "tolerance",
    "temperature", "epsilon",
)  # fmt: skip
IDS = "ids"  # what the targets were, if neither str nor lists of symbols
_DECODED_ROWS = 2**13  # positions per call, with padding, at most; one output may have more
_DECODED_CELLS = 2**21  # positions times symbols per call


class SequenceModel:
    """p(y | x) = exp(w.Psi(x, y)) / Z(x) over the strings y of one length, or of any.

    Features are q-grams of y, and pairs of a name that a template finds at a position of x and the
    symbol y_s.  Training minimises (1/N) sum_i F_i(w) + l2/2 |w|^2, with F_i the exact softmax
    margin, expected loss or negative log-likelihood of pair i.  The interface is that of
    scikit-learn (`fit`, `predict`, `score`, `get_params`, `clone`), which need not be installed.

    Parameters
    ----------
    loss : str, Loss, callable (Alphabet) -> Loss, or None
        A name is one that `fstgrad train --loss` lists and that needs no options, such as "edit",
        "hamming", "cer" or "ngram" (`fstgrad.losses.names`).
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
        temperature: float = DEFAULT_CONSTANTS.temperature,
        epsilon: float = DEFAULT_CONSTANTS.epsilon,
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
            A target may also be integers, ids of the alphabet (by default that of 0, 1, ...);
            predictions are then lists of ids.
        validation : (X, Y), optional
            The weights of the epoch with the least error rate on these pairs are kept.
        resume : bool
            Continue from the file `checkpoint` if it exists, as if the run had never stopped.

        Raises
        ------
        InvalidInputError
            If there are no pairs, a target is empty, or "aligned" pairs differ in length.
        """
        training_settings(self)  # an error in the settings comes before one in the data
        X, Y = paired_batches(X=X, Y=Y)
        if validation is not None:
            validation = two_sequences("validation", validation)
        fit = self._fit_crf_then_risk if self.objective == "crf-then-risk" else self._fit
        self.history_ = fit(X, Y, validation, resume)
        self.about_: dict[str, Any] = {}
        return self

    def _fit_crf_then_risk(self, X: Any, Y: Any, validation: Any, resume: bool) -> list[Epoch]:
        """Fit by likelihood, then by risk from these weights; restore the settings afterwards."""
        settings, path = self.get_params(), self.checkpoint
        try:
            self.set_params(objective="crf", checkpoint=None if path is None else f"{path}.crf")
            likelihood = self._fit(X, Y, validation, resume, ends_on_all=False)
            self.set_params(objective="risk", checkpoint=path, warm_start=True)
            risk = self._fit(X, Y, validation, resume)
        finally:
            self.set_params(**settings)
        return [*likelihood, *(replace(e, epoch=len(likelihood) + e.epoch) for e in risk)]

    def _fit(
        self, X: Any, Y: Any, validation: Any, resume: bool, *, ends_on_all: bool = True
    ) -> list[Epoch]:
        """Train for one objective, at the end also on the pairs that were held out."""
        settings = training_settings(self)
        alphabet = self._alphabet(Y)
        start, pairs, places = self._start(paired(X, Y, alphabet), alphabet, Y)
        check_loss(self.loss_, Y)
        training = pairs
        if validation is None:
            originals = [(X[i], Y[i]) for i in places]
            training, validation = hold_out(pairs, originals, self.held_out, settings.seed)
        if self.l2 is None:
            settings = self._with_default_l2(settings, Y, is_validated=validation is not None)
        self.joined_: bool | str = all(isinstance(y, str) for y in Y)
        if any(map(is_ids, Y)):
            self.joined_ = IDS
        self.lengths_ = LengthModel.fit((len(x), len(y)) for x, y in pairs)
        objective = pair_objective(self)
        path = storage.checkpoint(self)
        data = (pairs, validation, *([start] if start.any() else []))
        digest = "" if path is None else storage.fingerprint(self, *data)
        state = State.start(start)
        if flag("resume", resume) and path is not None and path.exists():
            state = State.load(path, digest, len(start))
        validate = None if validation is None else self._validate(*validation)
        save = lambda state: None if path is None else state.save(path, digest)  # noqa: E731
        with Batch(objective, self.n_jobs, self.cache_bytes) as batch:
            trainer = Trainer(
                batch, training, settings, validate, self.callbacks, save, faster_cap(objective)
            )
            trainer.run(state)
            trainer.train_with_weaker_l2(state)
            if ends_on_all and len(training) < len(pairs):
                trainer.train_on_all(state, pairs)
        self.coef_ = state.w if validation is None else state.best
        return state.history

    def _with_default_l2(self, settings: Settings, Y: Sequences, *, is_validated: bool) -> Settings:
        """Return settings with the l2 for targets, and a weaker one to try.

        How much l2 helps depends on how regular the outputs are, so that validation pairs decide
        between two values.
        """
        l2 = l2_for_targets(settings.l2, Y)
        tries_two = is_validated and self.objective == "crf" and self.optimizer != "lbfgs"
        tries_two = tries_two and self.patience is None
        return replace(settings, l2=l2, weaker_l2=WEAKER_L2 * l2 if tries_two else None)

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
        given = enumerate(fields("pairs", pairs, 2))
        rows = [(as_input(x, f"pairs[{i}]"), y) for i, (x, y) in given]
        self.alphabet_, self.latent_ = alphabet, latent
        self.loss_ = made_loss(self.loss, alphabet)
        template = self.template()
        if self.features == "aligned":
            check_aligned(rows)
        outputs = alphabet if latent is None else latent.symbols
        copies = self._copies()
        if known is not None:
            names, weighted = fields("known", [known], 2)[0]
            self.features_ = TemplateFeatures(
                outputs, self.order, template, names, weighted, copies
            )
            return
        least = positive_integer("min_count", self.min_count)
        self.features_ = TemplateFeatures.from_pairs(
            outputs, self.order, template, rows, min_count=least, copies=copies
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
        instance("other", other, SequenceModel, "a trained SequenceModel")
        storage.check_trained(other)
        for name in ("coef_", "features_", "alphabet_", "latent_"):
            setattr(self, name, getattr(other, name))

    def _alphabet(self, Y: Sequences) -> Alphabet | None:
        """Return the alphabet of the targets, if they do not define it by their symbols."""
        if self._goes_on():
            return self.alphabet_
        return self.alphabet or alphabet_of_ids(Y)

    def _goes_on(self) -> bool:
        return self.warm_start and hasattr(self, "coef_")

    def _start(
        self, pairs: list[XY], alphabet: Alphabet | None, Y: Sequences
    ) -> tuple[FloatArray, list[XY], list[int]]:
        """Create loss and features; return initial weights, aligned pairs, and their indices."""
        goes_on = self._goes_on()
        alphabet = alphabet or Alphabet.from_sequences(Y)
        places, latent = list(range(len(pairs))), None
        self.left_out_ = len(pairs)
        if is_latent(self.alignment, pairs):
            latent, pairs, places = LatentOutputs.fit(pairs, alphabet)
        if goes_on and latent != self.latent_:
            raise InvalidInputError(
                "warm_start: the alignment of the pairs differs from that of the last fit; give "
                "the same pairs"
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
        x, usual_length = self._input(as_inputs([x], self, "x")[0])
        if self.latent_ is not None or length is None:
            length = usual_length
        return StringDistribution(self.features_.scores(self.coef_, x, length))

    def _input(self, x: Any) -> tuple[Any, int]:
        """Return what the features need of an input (see `as_input`), and the output's length."""
        if not hasattr(self, "coef_"):
            raise InvalidInputError("the model is not trained; call fit first")
        if self.latent_ is None:
            return x, self.lengths_(len(x))
        return self.latent_.padded(x), len(x) + sum(self.latent_.slots)

    def predict(self, X: Sequences) -> list[Any]:
        """Return the most probable y of every x: a str if the targets were str, otherwise a list.

        The list holds symbols, or ids if the targets were ids.  With an alignment, it is that of
        the most probable latent string; "" or [] for an empty x.
        """
        xs = as_inputs(X, self)
        inputs = [self._input(x) for x in xs]
        best = _best_strings(self.features_, self.coef_, inputs) if inputs else []
        outputs = self._decoded(best) if best else []
        return [y if len(x) else self._joined([]) for x, y in zip(xs, outputs, strict=True)]

    def predict_nbest(self, X: Sequences, k: int = 5) -> list[list[tuple[Any, float]]]:
        """Return up to k pairs (y, log p(y | x) in nats) of every x, best first.

        With an alignment, the probabilities of the 4 k best latent strings with the same y are
        added.
        """
        return [self._nbest(self.distribution(x), k) for x in as_inputs(X, self)]

    def _nbest(self, distribution: StringDistribution, k: int) -> list[tuple[Any, float]]:
        if self.latent_ is None:
            return [(self._decoded([y])[0], p) for y, p in distribution.kbest(k)]
        best = self.latent_.nbest(distribution.kbest(4 * k), k)
        return [(self._joined(list(y)), p) for y, p in best]

    def evaluate(self, X: Sequences, Y: Sequences) -> Evaluation:
        """Return accuracy, mean loss and error rate of the predictions."""
        X, Y = paired_batches(X=X, Y=Y)
        pairs: list[Any] = paired(X, Y, getattr(self, "alphabet_", None), empty=True)
        return measures.evaluate(self._predicted(X), [y for _, y in pairs], self.loss_)

    def _predicted(self, X: Sequences) -> list[Any]:
        """Return the predictions as str or symbols, also if the targets of the fit were ids."""
        outputs = self.predict(X)
        return [self.alphabet_.decode(y) for y in outputs] if self.joined_ == IDS else outputs

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
            return measures.evaluate(self._predicted(X), targets).error_rate

        return error_rate

    def _decoded(self, strings: Sequence[IntArray]) -> list[Any]:
        """Return the outputs of strings of ids, or of latent strings, as users see them."""
        if self.latent_ is not None:
            return [self._joined(list(self.latent_.read(ids))) for ids in strings]
        symbols = iter(self.alphabet_.decode(np.concatenate(strings)))
        return [self._joined(list(itertools.islice(symbols, len(ids)))) for ids in strings]

    def _joined(self, symbols: list[str]) -> Any:
        if self.joined_ == IDS:
            return self.alphabet_.encode(symbols).tolist()
        return "".join(symbols) if self.joined_ else symbols

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, which are the arguments of the constructor."""
        return {name: getattr(self, name) for name in self._setting_names()}

    def set_params(self: Self, **settings: Any) -> Self:
        """Change settings by name.

        Raises
        ------
        InvalidInputError
            If no setting has this name.
        """
        names = self._setting_names()
        for name, value in settings.items():
            if name not in names:
                raise InvalidInputError(f"no setting {name!r}; choose one of {', '.join(names)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn reads before a search or a validation of strings."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, one_d_labels=False),
            input_tags=InputTags(string=True, two_d_array=False, sparse=False),
        )

    def __repr__(self) -> str:
        """Return the class with the settings that are not the defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _setting_names(self) -> list[str]:
        return list(inspect.signature(type(self).__init__).parameters)[1:]


def training_settings(model: SequenceModel) -> Settings:
    """Return the settings of the training of a model; the defaults depend on its objective."""
    optional("alphabet", model.alphabet, Alphabet, "an Alphabet")
    flag("warm_start", model.warm_start)
    recipe = RECIPES[one_of("objective", model.objective, OBJECTIVES)]
    return Settings(
        model.optimizer,
        recipe.epochs if model.epochs is None else model.epochs,
        model.batch_size,
        recipe.learning_rate if model.learning_rate is None else model.learning_rate,
        recipe.l2 if model.l2 is None else model.l2,
        model.seed,
        model.patience,
        stage=model.objective,
    )


def pair_objective(model: SequenceModel) -> PairObjective:
    """Return the objective of a model that already has its features."""
    return PairObjective(
        model.features_,
        model.loss_ if model.latent_ is None else model.latent_.loss(model.loss_),
        cast(ObjectiveKind, model.objective),
        **{name: getattr(model, name) for name in _OBJECTIVE_SETTINGS},
    )


def _best_strings(
    features: TemplateFeatures, w: FloatArray, inputs: Sequence[tuple[Any, int]]
) -> list[IntArray]:
    """Return the most probable string (l,) of every (x, l)."""
    if features.order != 2:
        return [StringDistribution(features.scores(w, x, length)).mode() for x, length in inputs]
    best: dict[int, IntArray] = {}
    most = min(_DECODED_ROWS, _DECODED_CELLS // len(features.alphabet))
    for part in _parts([length for _, length in inputs], most):
        best |= zip(part, _best_of_chains(features, w, [inputs[i] for i in part]), strict=True)
    return [best[i] for i in range(len(inputs))]


def _parts(lengths: list[int], most: int) -> Iterator[list[int]]:
    """Yield the indices of outputs of similar lengths: `most` positions, with little padding."""
    part: list[int] = []
    for i in np.argsort(lengths, kind="stable").tolist():
        if part and (len(part) + 1) * lengths[i] > most:
            yield part
            part = []
        part.append(i)
    yield part


def _best_of_chains(
    features: TemplateFeatures, w: FloatArray, inputs: Sequence[tuple[Any, int]]
) -> list[IntArray]:
    lengths = np.array([length for _, length in inputs], dtype=np.int64)
    inside = np.arange(lengths.max()) < lengths[:, None]
    n = len(features.alphabet)
    emissions, transitions = np.zeros((*inside.shape, n)), features.grams(w)[0]
    emissions[inside] = features.emissions(w, features.coded(inputs))
    emissions[:, 0] += transitions[n]
    strings, _ = LinearChains(emissions, transitions[:n], lengths).best()
    return [ids[:length] for ids, length in zip(strings, lengths.tolist(), strict=True)]
