"""The training objective of pairs (x, y) as a function of the weights w, and its gradient."""

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
from fstgrad.core.sequences import items
from fstgrad.core.summary import short_repr
from fstgrad.learning.features import Features
from fstgrad.learning.kinds import CONSTANTS, ESTIMATED, Constants, evaluated, gold_score
from fstgrad.learning.kinds import KINDS as KINDS
from fstgrad.learning.kinds import Kind as Kind
from fstgrad.learning.pair_gradient import NAN as NAN
from fstgrad.learning.pair_gradient import Method as Method
from fstgrad.learning.pair_gradient import PairGradient as PairGradient
from fstgrad.learning.pair_gradient import unreliable as unreliable
from fstgrad.losses import MAX_STATES, Engine, Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.bounds import check_cap
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import StringDistribution, sampled_risk, sampled_softmax_margin
from fstgrad.strings.budget import Budget, exact_within
from fstgrad.strings.caps import TOLERANCE, CapChoice, choose_cap
from fstgrad.strings.proposals import KINDS as PROPOSALS
from fstgrad.strings.proposals import PROPOSAL_STATES
from fstgrad.strings.proposals import Kind as Proposal

METHODS: tuple[Method, ...] = ("exact", "capped", "sampled", "auto")


class _Compiled(NamedTuple):
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
    cache : AutomatonCache, optional
        The cache that keeps automata between calls.

    References
    ----------
    Cortes, Kuznetsov, Mohri, Storcheus, Yang (2018), Eq. 1 and Eq. 4.

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
    kind: Kind = "softmax-margin"
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
    temperature: float = CONSTANTS.temperature
    epsilon: float = CONSTANTS.epsilon

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check that the arguments are compatible."""
        one_of("kind", self.kind, KINDS)
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
        vars(self).update(
            temperature=divisor("temperature", self.temperature),
            epsilon=divisor("epsilon", self.epsilon),
        )
        self._check_method()

    def _check_method(self) -> None:
        if self.method is not None:
            one_of("method", self.method, METHODS)
        if self.kind not in ESTIMATED and (
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
            warnings.warn(unreliable(part), RuntimeWarning, stacklevel=2)
        return part

    def pair(
        self, w: npt.ArrayLike, x: Any, y: SequenceLike, *, out: FloatArray | None = None
    ) -> PairGradient:
        """Return the same as a call, without a warning."""
        out = np.zeros(self.features.shape) if out is None else out
        ids, scores = self._tables(w, x, y)
        method, b, choice, reason = self._compiled(ids, scores)
        if method == "sampled":
            return self._sampled(scores, x, ids, out)._replace(reason=reason)
        constants = Constants(self.temperature, self.epsilon)
        value, table, log_partition = evaluated(self.kind, scores, ids, b, self.engine, constants)
        states = 0 if b is None else b.num_states
        self.features.accumulate(table, x, out)
        part = PairGradient(value, out, log_partition, states, method)
        if choice is not None:
            upper = value + choice.upper - choice.lower
            return part._replace(cap=choice.cap, lower=value, upper=upper, reason=choice.reason)
        return part if method == "exact" else part._replace(cap=cast(float, self.cap))

    def mean(
        self, w: npt.ArrayLike, pairs: Iterable[tuple[Any, SequenceLike]]
    ) -> tuple[float, FloatArray]:
        """Return the mean objective of the pairs and its gradient with respect to w.

        Raises
        ------
        InvalidInputError
            If there are no pairs.
        """
        value, gradient, count = 0.0, np.zeros(self.features.shape), 0
        for x, y in checked_pairs(pairs):
            value, count = value + self(w, x, y, out=gradient).value, count + 1
        if count == 0:
            raise InvalidInputError("pairs is empty; give at least one pair")
        return value / count, gradient / count

    def distribution(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> StringDistribution:
        """Return the distribution of one pair whose marginals are in the gradient.

        For "hinge", "raml" and "direct" it is the distribution of the model.
        """
        ids, scores = self._tables(w, x, y)
        if self.kind not in ESTIMATED:
            return StringDistribution(scores)
        raised = self.cap == "auto" and not self.is_likelihood
        choice = self._raised(ids, scores) if raised else None
        b = self.automaton(ids) if choice is None else choice.automaton
        return StringDistribution(scores, _support(b) if b and self.kind == "risk" else b)

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
        compiled = loss.compile
        if cache is not None:
            compiled = partial(cache.automaton, loss, bounded=bounded)
        return compiled(y, len(y), cap=cap, engine=self.engine, max_states=self.max_states)

    def _raised(self, ids: IntArray, scores: FloatArray) -> CapChoice:
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

    def _compiled(self, ids: IntArray, scores: FloatArray) -> _Compiled:
        """Return the method and the automaton for one pair."""
        if self.is_likelihood:
            return _Compiled("exact")
        if self.method == "sampled":
            return _Compiled("sampled")
        if self.method == "auto":
            return self._first_that_fits(ids, scores)
        if self.cap is None:
            return _Compiled("exact", self._automaton(ids, None))
        if self.cap != "auto":
            return _Compiled("capped", self._automaton(ids, self.cap))
        choice = self._raised(ids, scores)
        return _Compiled("capped", choice.automaton, choice)

    @property
    def _budget(self) -> Budget:
        return Budget(self.seconds, self.memory, self.width)

    def _first_that_fits(self, ids: IntArray, scores: FloatArray) -> _Compiled:
        """Return the first of exact, capped and sampled that the limit and the budget allow."""
        limit = min(self.max_states, self._budget.states(scores))
        b = exact_within(self._automata(ids), limit)
        if b is not None:
            return _Compiled("exact", b)
        reason = f"exact exceeds {limit:,} states"
        try:
            if self.cap == "auto":
                choice = self._raised(ids, scores)
                if choice.reason in ("tolerance", "exact"):
                    return _Compiled("capped", choice.automaton, choice)
            elif self.cap is not None:
                return _Compiled("capped", self._automaton(ids, self.cap))
        except (StateLimitError, NotSupportedError):
            pass
        return _Compiled("sampled", reason=reason)

    def _automata(self, ids: IntArray) -> Callable[..., LossAutomaton]:
        """Return a function of band=, cap= and max_states= to the (cached) automaton."""
        loss = cast(Loss, self.loss)
        if self.cache is None:
            return partial(loss.compile, ids, len(ids), engine=self.engine)
        return partial(self.cache.automaton, loss, ids, len(ids), engine=self.engine)

    def _sampled(self, scores: FloatArray, x: Any, ids: IntArray, out: FloatArray) -> PairGradient:
        loss = cast(Loss, self.loss)
        against = loss.against(ids) if self.cache is None else self.cache.target_loss(loss, ids)
        drawing: dict[str, Any] = {
            "samples": self._budget if self.method == "auto" else self.samples,
            "rng": np.random.default_rng([self.seed, *ids.tolist()]),
            "proposal": self.proposal,
            "compiled": self._automata(ids) if loss.semiring == "tropical" else None,
            "max_states": min(self.max_states, PROPOSAL_STATES),
        }
        if self.method == "auto":
            drawing["max_states"] = min(drawing["max_states"], self._budget.states(scores))
        if self.kind == "risk":
            result = sampled_risk(scores, None, against, **drawing)
            log_partition = StringDistribution(scores).log_partition()
        else:
            result = sampled_softmax_margin(scores, ids, against, **drawing)
            log_partition = result.value + gold_score(scores, ids)
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

    def _tables(self, w: npt.ArrayLike, x: Any, y: SequenceLike) -> tuple[IntArray, FloatArray]:
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


def _support(b: LossAutomaton) -> LossAutomaton | None:
    """Return the automaton of the strings of finite loss, with loss 0; None for all strings."""
    if b.is_complete:
        return None
    levels = tuple(replace(level, cost=np.zeros_like(level.cost)) for level in b.levels)
    return replace(b, levels=levels, initial=0.0, final=np.zeros_like(b.final))
