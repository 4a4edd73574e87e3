"""The training objective of pairs (x, y) as a function of the weights w, and its gradient.

- `PairObjective` : chooses the method for a pair, and computes its value and gradient.
- `PairGradient` : the result for one pair.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    divisor,
    instance,
    one_of,
    positive_integer,
    positive_number,
    real_number,
)
from fstgrad.core.errors import AlphabetError, InvalidInputError, NotSupportedError, StateLimitError
from fstgrad.core.infeasible import Infeasible, check_infeasible, feasible_results
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.learning.features import Features
from fstgrad.losses import MAX_STATES, Engine, Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.caps import check_cap
from fstgrad.losses.automata.pruning import check_prune
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import (
    StringDistribution,
    direct_loss,
    hinge,
    raml,
    sampled_risk,
    sampled_softmax_margin,
    softmax_margin,
)
from fstgrad.strings.budget import Budget, exact_within
from fstgrad.strings.cap_choice import TOLERANCE, CapChoice, choose_cap
from fstgrad.strings.distribution import flat_index
from fstgrad.strings.proposals import KINDS as PROPOSALS
from fstgrad.strings.proposals import PROPOSAL_STATES
from fstgrad.strings.proposals import Kind as Proposal
from fstgrad.strings.tangents import tangent

ObjectiveKind = Literal["softmax-margin", "risk", "crf", "hinge", "raml", "direct"]
OBJECTIVE_KINDS: tuple[ObjectiveKind, ...] = (
    "softmax-margin", "risk", "crf", "hinge", "raml", "direct",
)  # fmt: skip
# Those that samples can estimate, and that have bounds for cap="auto".
ESTIMABLE_KINDS: tuple[ObjectiveKind, ...] = ("softmax-margin", "risk", "crf")
Method = Literal["exact", "capped", "pruned", "sampled", "auto"]
METHODS: tuple[Method, ...] = ("exact", "capped", "sampled", "auto")
NAN = float("nan")
MORE_SAMPLES = (  # the remedy for estimates that are not reliable
    "raise seconds= or samples=, let proposal='auto' choose a band, compute exactly, or give a cap"
)


@dataclass(frozen=True)
class ObjectiveConstants:
    """The constants of objectives: `temperature` of "raml", `epsilon` of "direct"."""

    temperature: float = 1.0
    epsilon: float = 1.0


DEFAULT_CONSTANTS = ObjectiveConstants()


class PairGradient(NamedTuple):
    """The contribution of one pair to the objective.

    value : float, nats; the objective of the pair.
    gradient : like w; the gradient of `value` in w, or the array to which it was added.
    log_partition : float, nats; log Z of the distribution whose marginals are in the gradient.
    states : int; states of the loss automaton, 0 without one.
    method : "exact", "capped", "pruned" or "sampled"; the method that was used.
    standard_error : float, nats; of `value`, 0 unless sampled.
    effective_samples : float; nan unless sampled.
    cap : float, nats; nan without one.
    lower, upper : float, nats; if the cap was chosen, bounds of the value under the uncapped loss,
        of which the lower one is `value`; if sampled, a 95 percent interval; otherwise nan.
    reason : why a cap was not raised further, as in `CapChoice`, or why "auto" did not compute
        exactly; "" if nothing was chosen.
    proposal : the distribution from which strings were drawn; "" unless sampled.
    is_reliable : False if an estimate has too few effective samples or too wide an interval.
    """

    value: float
    gradient: FloatArray
    log_partition: float
    states: int
    method: Method = "exact"
    standard_error: float = 0.0
    effective_samples: float = NAN
    cap: float = NAN
    lower: float = NAN
    upper: float = NAN
    reason: str = ""
    proposal: str = ""
    is_reliable: bool = True

    def __repr__(self) -> str:
        return short_repr(self)


class _ChosenMethod(NamedTuple):
    """The method for one pair, its automaton (None if "sampled"), and the choice of its cap."""

    method: Method
    automaton: LossAutomaton | None = None
    choice: CapChoice | None = None
    reason: str = ""


@dataclass(frozen=True)
class PairObjective:
    """An objective of one pair, and its mean over pairs.

    With the score tables of `features`:

    - "softmax-margin": F(w) = log sum_y exp(L(y, y_i) - w.(Psi(x_i, y_i) - Psi(x_i, y))), Eq. 1;
    - "risk": E[L(y, y_i)] under exp(w.Psi(x_i, y)) / Z;
    - "crf": -log p(y_i | x_i), the softmax margin with L = 0;
    - "hinge", "raml", "direct": `fg.hinge`, `fg.raml` with `temperature`, and `fg.direct_loss` with
      `epsilon`, whose direction is used as the gradient.

    Hypotheses y have the length of y_i.

    Parameters
    ----------
    features : Features
    loss : Loss, optional
        None means L = 0.
    kind : {"softmax-margin", "risk", "crf", "hinge", "raml", "direct"}
    cap : float or "auto", optional
        As in `Loss.compile`; "auto" raises it for each pair and its scores until the value is
        within `tolerance` of the value under the uncapped loss, or the limit of states is reached.
    engine, max_states
        As in `Loss.compile`.
    method : {"exact", "capped", "sampled", "auto"}, optional
        "capped" uses the loss min(L, cap); "sampled" estimates value and gradient from `samples`
        strings.  "auto" uses, for each pair, the first of these that `max_states` and the budget
        allow: exact; the given cap, or with cap="auto" one that is raised until the value is within
        `tolerance`; sampled, with as many strings as `width` needs and `seconds` allow.  The
        default is "capped" with a cap and "exact" without.
    seconds, memory, width : float
        The budget of "auto" for one pair, as in `fg.Budget`.
    tolerance : float, nats
        The largest distance of the bounds, for a cap that is raised.
    proposal : {"auto", "band", "cap", "plain", "mixture"}
        For "sampled": the distribution from which strings are drawn, as in
        `fg.sampled_softmax_margin`; a risk supports "auto", "band" and "plain".
    samples, seed : int
        For "sampled"; the strings drawn for a pair depend only on the seed and on y.
    temperature, epsilon : float
        The constants of "raml" and of "direct".
    prune : float, optional
        As in `Loss.compile`: an approximation without a bound.  Only with method "exact" and
        without a cap.  The value of "direct" is the full loss of the best string, which pruning may
        drop.
    cache : AutomatonCache, optional
        The cache that keeps automata between calls.

    References
    ----------
    Cortes, Kuznetsov, Mohri, Storcheus, Yang (2018): F is Eq. 1, and its gradient is
    the unnumbered formula after Eq. 4, which defines the sets E_{z,s} of arcs.

    Examples
    --------
    >>> import fstgrad as fg
    >>> abc = fg.Alphabet("ab")
    >>> objective = PairObjective(fg.QGramCounts(abc, 2), fg.Hamming(abc), kind="risk")
    >>> value, gradient = objective.mean(np.zeros((2, 2)), [("x", "ab"), ("x", "abba")])
    >>> value  # (2 / 2 + 4 / 2) / 2
    1.5
    """

    features: Features
    loss: Loss | None = None
    kind: ObjectiveKind = "softmax-margin"
    cap: float | Literal["auto"] | None = None
    engine: Engine = "layered"
    max_states: int = MAX_STATES
    method: Method | None = None
    samples: int = 1000
    seed: int = 0
    cache: AutomatonCache | None = field(default=None, compare=False, repr=False)
    tolerance: float = TOLERANCE
    proposal: Proposal = "auto"
    seconds: float = Budget().seconds
    memory: float = Budget().memory
    width: float = Budget().width
    temperature: float = DEFAULT_CONSTANTS.temperature
    epsilon: float = DEFAULT_CONSTANTS.epsilon
    prune: float | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check that the arguments are compatible."""
        one_of("kind", self.kind, OBJECTIVE_KINDS)
        instance("features.alphabet", getattr(self.features, "alphabet", None), Alphabet,
                 "features with an Alphabet")  # fmt: skip
        if self.loss is not None:
            instance("loss", self.loss, Loss, "a Loss")
        if self.kind not in ("softmax-margin", "crf") and self.loss is None:
            raise InvalidInputError(f"kind is {self.kind!r} without a loss; give the loss")
        if self.loss is not None and self.loss.alphabet != self.features.alphabet:
            raise AlphabetError(
                f"the loss has the alphabet {self.loss.alphabet!r}, the features have "
                f"{self.features.alphabet!r}; make both from one"
            )
        one_of("engine", self.engine, ("layered", "openfst"))
        vars(self).update(
            max_states=positive_integer("max_states", self.max_states),
            temperature=divisor("temperature", self.temperature),
            epsilon=divisor("epsilon", self.epsilon),
        )
        self._check_method()

    def _check_method(self) -> None:
        if self.method is not None:
            one_of("method", self.method, METHODS)
        if self.kind not in ESTIMABLE_KINDS and (
            self.method in ("sampled", "auto") or self.cap == "auto"
        ):
            raise NotSupportedError(
                f"kind is {self.kind!r}, which is computed exactly or with a given cap; leave out "
                "cap='auto' and the methods 'sampled' and 'auto'"
            )
        if self.method == "exact" and self.cap is not None:
            raise InvalidInputError(f"cap is {self.cap} with method='exact'; leave one of them out")
        if self.method == "capped" and self.cap is None:
            raise InvalidInputError(
                "method is 'capped' without a cap; give one, in nats, or 'auto'"
            )
        if isinstance(self.cap, str):
            one_of("cap", self.cap, ("auto",))
            if self.loss is not None and self.loss.semiring != "tropical":
                raise NotSupportedError(
                    "cap is 'auto', but a rational loss has no bounds and gains nothing from a "
                    "cap; leave it out"
                )
        elif self.cap is not None:
            vars(self).update(cap=real_number("cap", self.cap))
        if self.prune is not None:
            if self.is_likelihood:
                raise InvalidInputError(
                    "prune is for a loss, which a likelihood does not have; leave it out"
                )
            vars(self).update(prune=check_prune(self.prune, cast(Loss, self.loss).semiring))
            if self.cap is not None or self.method not in (None, "exact"):
                raise InvalidInputError(
                    f"prune is {self.prune:g} with a cap or a method that caps or samples; leave "
                    "one of them out"
                )
        one_of("proposal", self.proposal, PROPOSALS)
        self._budget.checked()
        vars(self).update(
            tolerance=positive_number("tolerance", self.tolerance, allow_zero=True),
            samples=positive_integer("samples", self.samples, minimum=2),
            seed=positive_integer("seed", self.seed, minimum=0),
        )

    def __call__(
        self, w: npt.ArrayLike, x: Any, y: SequenceLike, *, out: FloatArray | None = None
    ) -> PairGradient:
        """Return value, gradient with respect to w, log Z and automaton size of one pair.

        An estimate that is not reliable warns (RuntimeWarning).

        Parameters
        ----------
        out : like w, optional
            The gradient is added to this array, and no other array of the size of w is allocated.
        """
        part = self.pair(w, x, y, out=out)
        if not part.is_reliable:
            interval = f"{part.value:.6g} nats, 95% in [{part.lower:.6g}, {part.upper:.6g}]"
            what = f"an estimate is not reliable: {interval}"
            warnings.warn(f"{what}; {MORE_SAMPLES}", RuntimeWarning, stacklevel=2)
        return part

    def pair(
        self, w: npt.ArrayLike, x: Any, y: SequenceLike, *, out: FloatArray | None = None
    ) -> PairGradient:
        """Return the same as a call, without a warning."""
        out = np.zeros(self.features.shape) if out is None else out
        x = tuple(x) if isinstance(x, Iterator) else x  # the features read it twice
        ids, scores = self._encode(w, x, y)
        method, b, choice, reason = self._choose_method(ids, scores)
        if method == "sampled":
            return self._sampled(scores, x, ids, out)._replace(reason=reason)
        constants = ObjectiveConstants(self.temperature, self.epsilon)
        value, scores_gradient, log_partition = _exact_objective(
            self.kind, scores, ids, b, self.engine, constants
        )
        if self.kind == "direct" and method == "pruned" and self.loss is not None:
            value = self.loss(StringDistribution(scores).mode(), ids)  # which may be pruned from B
        states = 0 if b is None else b.num_states
        self.features.accumulate(scores_gradient, x, out)
        part = PairGradient(value, out, log_partition, states, method)
        if choice is not None:
            upper = value + choice.upper - choice.lower
            return part._replace(cap=choice.cap, lower=value, upper=upper, reason=choice.reason)
        return part._replace(cap=cast(float, self.cap)) if method == "capped" else part

    def mean(
        self,
        w: npt.ArrayLike,
        pairs: Iterable[tuple[Any, SequenceLike]],
        *,
        infeasible: Infeasible = "raise",
    ) -> tuple[float, FloatArray]:
        """Return the mean objective of the pairs and its gradient with respect to w.

        infeasible : "raise": one error names every pair without a string, or a gold string, of
            finite score.  "zero": these count as 0 in the mean, which divides by all pairs.

        Raises
        ------
        InvalidInputError
            If there are no pairs.
        InfeasibleError
            If pairs are infeasible, and `infeasible` is "raise".
        """
        gradient, choice = np.zeros(self.features.shape), check_infeasible(infeasible)

        def run(pair: tuple[Any, SequenceLike]) -> float:
            return self(w, *pair, out=gradient).value

        values = feasible_results(checked_pairs(pairs), run, choice)
        if not values:
            raise InvalidInputError("pairs is empty; give at least one pair")
        return sum(value or 0.0 for value in values) / len(values), gradient / len(values)

    def distribution(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> StringDistribution:
        """Return the distribution of one pair whose marginals are in the gradient.

        For "hinge", "raml" and "direct" it is the distribution of the model.
        """
        ids, scores = self._encode(w, x, y)
        if self.kind not in ESTIMABLE_KINDS:
            return StringDistribution(scores)
        is_raised = self.cap == "auto" and not self.is_likelihood
        choice = self._raise_cap(ids, scores) if is_raised else None
        b = self.automaton(ids) if choice is None else choice.automaton
        return StringDistribution(scores, _support_automaton(b) if b and self.kind == "risk" else b)

    def automaton(self, y: SequenceLike) -> LossAutomaton | None:
        """Return the loss automaton of one target; None if the objective has no loss."""
        if self.is_likelihood:
            return None
        y = self.features.alphabet.encode(y, name="y")
        return self._automaton(y, check_cap(self.cap) if self.cap is not None else None)

    @property
    def is_likelihood(self) -> bool:
        """Whether the values are -log p(y | x), so that no loss automaton is needed.

        Examples
        --------
        >>> import fstgrad as fg
        >>> abc = fg.Alphabet("ab")
        >>> PairObjective(fg.QGramCounts(abc, 2), fg.Hamming(abc)).is_likelihood
        False
        """
        return self.loss is None or self.kind == "crf"

    def _automaton(
        self, y: SequenceLike, cap: float | None, *, bounded: bool = False
    ) -> LossAutomaton:
        loss, cache = cast(Loss, self.loss), self.cache
        compile_loss = loss.compile
        if cache is not None:
            compile_loss = partial(cache.automaton, loss, bounded=bounded)
        return compile_loss(
            y,
            len(y),
            cap=cap,
            prune=self.prune,
            engine=self.engine,
            max_states=self.max_states,
        )

    def _raise_cap(self, ids: IntArray, scores: FloatArray) -> CapChoice:
        """Return the cap, raised until the bounds meet or the limit is reached."""
        return choose_cap(
            scores,
            cast(Loss, self.loss),
            ids,
            tolerance=self.tolerance,
            max_states=self.max_states,
            objective="risk" if self.kind == "risk" else "softmax-margin",
            compiled=lambda cap: self._automaton(ids, cap, bounded=True),
        )

    def _choose_method(self, ids: IntArray, scores: FloatArray) -> _ChosenMethod:
        """Return the method and the automaton for one pair."""
        if self.is_likelihood:
            return _ChosenMethod("exact")
        if self.method == "sampled":
            return _ChosenMethod("sampled")
        if self.method == "auto":
            return self._first_that_fits(ids, scores)
        if self.cap is None:
            method: Method = "exact" if self.prune is None else "pruned"
            return _ChosenMethod(method, self._automaton(ids, None))
        if self.cap != "auto":
            return _ChosenMethod("capped", self._automaton(ids, self.cap))
        choice = self._raise_cap(ids, scores)
        return _ChosenMethod("capped", choice.automaton, choice)

    @property
    def _budget(self) -> Budget:
        return Budget(self.seconds, self.memory, self.width)

    def _first_that_fits(self, ids: IntArray, scores: FloatArray) -> _ChosenMethod:
        """Return the first of exact, capped and sampled that the limit and the budget allow."""
        limit = min(self.max_states, self._budget.states(scores))
        b = exact_within(self._compile_function(ids), limit)
        if b is not None:
            return _ChosenMethod("exact", b)
        reason = f"exact exceeds {limit:,} states"
        try:
            if self.cap == "auto":
                choice = self._raise_cap(ids, scores)
                if choice.reason in ("tolerance", "exact"):
                    return _ChosenMethod("capped", choice.automaton, choice)
            elif self.cap is not None:
                return _ChosenMethod("capped", self._automaton(ids, self.cap))
        except (StateLimitError, NotSupportedError):
            pass
        return _ChosenMethod("sampled", reason=reason)

    def _compile_function(self, ids: IntArray) -> Callable[..., LossAutomaton]:
        """Return a function of band=, cap= and max_states= to the (cached) automaton."""
        loss = cast(Loss, self.loss)
        if self.cache is None:
            return partial(loss.compile, ids, len(ids), engine=self.engine)
        return partial(self.cache.automaton, loss, ids, len(ids), engine=self.engine)

    def _sampled(self, scores: FloatArray, x: Any, ids: IntArray, out: FloatArray) -> PairGradient:
        loss = cast(Loss, self.loss)
        target_loss = loss.against(ids) if self.cache is None else self.cache.target_loss(loss, ids)
        sampling: dict[str, Any] = {
            "samples": self._budget if self.method == "auto" else self.samples,
            "rng": np.random.default_rng([self.seed, *ids.tolist()]),
            "proposal": self.proposal,
            "compiled": self._compile_function(ids) if loss.semiring == "tropical" else None,
            "max_states": min(self.max_states, PROPOSAL_STATES),
        }
        if self.method == "auto":
            sampling["max_states"] = min(sampling["max_states"], self._budget.states(scores))
        if self.kind == "risk":
            result = sampled_risk(scores, None, target_loss, **sampling)
            log_partition = StringDistribution(scores).log_partition()
        else:
            result = sampled_softmax_margin(scores, ids, target_loss, **sampling)
            log_partition = result.value + _gold_score(scores, ids)
        self.features.accumulate(result.gradient, x, out)
        return PairGradient(
            result.value,
            out,
            log_partition,
            0,
            "sampled",
            result.standard_error,
            result.effective_samples,
            lower=result.interval[0],
            upper=result.interval[1],
            proposal=result.proposal,
            is_reliable=result.is_reliable,
        )

    def _encode(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> tuple[IntArray, FloatArray]:
        """Return the ids of y and the score table."""
        ids = self.features.alphabet.encode(y, name="y")
        if len(ids) == 0:
            raise InvalidInputError("y is empty; give at least one symbol")
        return ids, self.features.scores(w, x, len(ids))


def checked_pairs(pairs: Iterable[tuple[Any, SequenceLike]]) -> Iterator[tuple[Any, SequenceLike]]:
    """Yield the pairs; raise InvalidInputError if an item is not a pair."""
    for pair in items("pairs", pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidInputError(f"pairs has {pair!r}; give pairs (x, y)")
        yield pair[0], pair[1]


def _support_automaton(b: LossAutomaton) -> LossAutomaton | None:
    """Return the automaton of the strings of finite loss, with loss 0; None for all strings."""
    if b.is_complete:
        return None
    levels = tuple(replace(level, cost=np.zeros_like(level.cost)) for level in b.levels)
    return replace(b, levels=levels, initial=0.0, final=np.zeros_like(b.final))


class _ExactObjective(NamedTuple):
    """The objective of one pair as a function of its score table.

    value : in nats.
    scores_gradient : like the scores; the gradient of `value`.
    log_partition : in nats; log Z of the distribution whose marginals are in the gradient; nan if
        the gradient is computed from best strings.
    """

    value: float
    scores_gradient: FloatArray
    log_partition: float


def _exact_objective(
    kind: ObjectiveKind,
    scores: FloatArray,
    ids: IntArray,
    b: LossAutomaton | None,
    engine: Engine,
    constants: ObjectiveConstants,
) -> _ExactObjective:
    """Return the objective of the target `ids`; without an automaton the loss is 0."""
    if b is None or kind in ("softmax-margin", "crf"):
        value, scores_gradient = softmax_margin(scores, ids, b, engine=engine)
        return _ExactObjective(value, scores_gradient, value + _gold_score(scores, ids))
    if kind == "risk":
        solved = tangent(StringDistribution(scores, b).scores, b, scale=0, slope=1)
        return _ExactObjective(solved.slope, solved.change, solved.log_partition)
    if kind == "raml":
        value, scores_gradient = raml(scores, b, constants.temperature)
        return _ExactObjective(value, scores_gradient, StringDistribution(scores).log_partition())
    if kind == "hinge":
        return _ExactObjective(*hinge(scores, ids, b), np.nan)
    return _ExactObjective(*direct_loss(scores, b, constants.epsilon), np.nan)


def _gold_score(scores: FloatArray, ids: IntArray) -> float:
    """Return w.Psi(y) of one string: the sum of its entries of the score table."""
    return float(scores.take(flat_index(ids, scores.ndim - 1, scores.shape[-1])).sum())
