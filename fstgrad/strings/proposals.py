"""Proposals: distributions q to draw strings from, to estimate log Z of exp(L + w.Psi).

A proposal is q(y) = exp(w.Psi(y) + B(y)) / Z_q for a loss B whose automaton has moderate size, so
Z_q, the marginals and the samples of q are exact.  Then

    log Z = log Z_q + log E_q[e^R],   R = L - B,   low <= R <= high.

The certified bounds of R bound log Z and make the confidence intervals valid.

======== ================================== ======================
name     B                                  R
======== ================================== ======================
plain    0                                  from the least to the greatest value of L
band     L_k >= L, alignments in a band     at most 0
cap      min(L, c) <= L                     at least 0
mixture  log mean_o exp(L_o), one band o    at most 0 (balance heuristic, Veach and Guibas 1995)
         for each offset of the alignment
======== ================================== ======================
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, Protocol

import numpy as np

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    call_function,
    instance,
    positive_integer,
)
from fstgrad.core.errors import (
    FstgradError,
    InfeasibleError,
    InvalidInputError,
    NotSupportedError,
    StateLimitError,
)
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band, check_band
from fstgrad.losses.automata.caps import check_cap
from fstgrad.strings.budget import PLAIN_SPEED
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.markov_chain import Chain

Kind = Literal["auto", "band", "cap", "plain", "mixture"]
KINDS: tuple[Kind, ...] = ("auto", "band", "cap", "plain", "mixture")
PROPOSAL_STATES = 20_000  # default limit on the states of a proposal
PILOT = 200  # strings drawn to compare proposals, unless a budget allows fewer
_GOOD = 0.9  # share of effective samples that needs no better proposal
_WIDEST_BAND = 8
_GROWTH = 4.0  # factor by which the states grow from a band to the next, at least
_SHIFTS = (1, 2, 3, 5, 8, 13, 21, 34)  # offsets, on both sides, of a mixture of bands
_FEW = 5 * PILOT  # least number of strings of an answer with a width
_SAFETY = 0.65  # the promised width must be below this share of the wanted width
_SPREAD = 4.0  # width of a 95 percent interval in standard errors
_RARE = 5.0  # this times the largest weight, over k, is added to the width from k strings


class Compiled(Protocol):
    """A function that maps a band or a cap to an automaton, for example from a cache."""

    def __call__(
        self, *, band: Band | None = None, cap: float | None = None, max_states: int
    ) -> LossAutomaton:
        """Return B of L_k or of min(L, cap); raise StateLimitError beyond `max_states` states."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A distribution q of strings, and bounds on the weights e^R of its strings.

    Attributes
    ----------
    name : str
    parts : tuple of StringDistribution, usually one
        The distributions of the mixture; the share of each is proportional to its Z.
    low, high : float
        Certified bounds on R = L - B in nats.
    """

    name: str
    parts: tuple[StringDistribution, ...]
    low: float
    high: float

    @property
    def is_plain(self) -> bool:
        """Whether strings are drawn from the scores alone."""
        return all(part.b is None for part in self.parts)

    @cached_property
    def chain(self) -> Chain:
        """The chain of the scores alone."""
        return Chain(self.parts[0].scores)

    @property
    def states(self) -> int:
        """Number of states of all automata."""
        return sum(part.b.num_states for part in self.parts if part.b is not None)

    @property
    def log_mass(self) -> float:
        """Log of Z_q in nats; Z_q is the mean of Z over the parts."""
        masses = np.array([part.log_partition() for part in self.parts])
        return float(np.logaddexp.reduce(masses) - np.log(len(masses)))

    @property
    def marginals(self) -> FloatArray:
        """E_q[t], exact, shaped like the scores."""
        masses = np.array([part.log_partition() for part in self.parts])
        shares = np.exp(masses - np.logaddexp.reduce(masses))
        total = np.zeros(self.parts[0].scores.shape)
        for share, part in zip(shares, self.parts, strict=True):
            total += share * part.marginals()
        return total

    def draw(self, samples: int, rng: np.random.Generator) -> IntArray:
        """Return `samples` independent strings of q, (k, l) int64."""
        (first, *others) = self.parts
        if not others:
            if first.b is None:
                return self.chain.draw(rng.random((samples, first.length)))
            return first.sample(samples, rng)
        masses = np.array([part.log_partition() for part in self.parts])
        shares = np.exp(masses - masses.max())
        which = rng.choice(len(self.parts), size=samples, p=shares / shares.sum())
        strings = empty((samples, first.length), dtype=np.int64)
        for number in np.unique(which):
            rows = which == number
            strings[rows] = self.parts[number].sample(int(rows.sum()), rng)
        return strings

    def base(self, strings: IntArray) -> FloatArray:
        """Return B (k,) in nats of strings (k, l); of a mixture log mean_o exp(L_o)."""
        losses = [
            np.zeros(len(strings)) if part.b is None else part.b.losses_of(strings)
            for part in self.parts
        ]
        mixed: FloatArray = np.logaddexp.reduce(losses, axis=0) - np.log(len(losses))
        return mixed

    def log_weights(self, strings: IntArray, losses: FloatArray) -> FloatArray:
        """Return R = L - B (k,) in nats, clipped to [low, high]; -inf if the loss is +inf.

        `strings` are (k, l); `losses` (k,) are their L in nats.
        """
        base = self.base(strings)
        finite = losses < np.inf
        weights = np.full(len(losses), -np.inf)
        weights[finite] = np.clip(losses[finite] - base[finite], self.low, self.high)
        return weights


@dataclass(frozen=True, eq=False)
class Choice:
    """Makes proposals and chooses among them.

    Attributes
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats.
    losses_of : callable
        Maps strings (k, l) to their losses (k,) in nats.
    compiled : Compiled or None
        Without it only the plain proposal exists.
    least, greatest : float
        Bounds on L in nats; may be infinite.
    max_states : int
        Limit on the states of a proposal.
    """

    scores: FloatArray
    losses_of: Callable[[IntArray], FloatArray]
    compiled: Compiled | None
    least: float
    greatest: float
    max_states: int = PROPOSAL_STATES
    plain_speed: int = 1  # so many plain strings cost as much as one string of an automaton
    pilot: int = PILOT  # strings drawn to compare proposals

    def __post_init__(self) -> None:
        vars(self).update(max_states=positive_integer("max_states", self.max_states))
        if self.compiled is not None and not callable(self.compiled):
            raise InvalidInputError(
                f"compiled is {self.compiled!r}; give a function with the keywords band, cap and "
                "max_states that returns an automaton"
            )

    def within(self, samples: int) -> "Choice":
        """Return the choice for a budget of `samples` strings; plain strings count as cheaper."""
        pilot = min(PILOT, max(30, samples // 3))
        return replace(self, plain_speed=PLAIN_SPEED, pilot=pilot)

    def plain(self) -> Proposal:
        """Return the proposal of the scores alone, B = 0."""
        return Proposal("plain", (StringDistribution(self.scores),), self.least, self.greatest)

    def band(self, band: Band) -> Proposal:
        """Return the proposal of a band, B = L_k."""
        band = check_band(band)
        b = self._automaton(band=band)
        shown = f"band {band}" if isinstance(band, int) else f"band {band[0]}..{band[1]}"
        return Proposal(shown, (StringDistribution(self.scores, b),), -np.inf, 0.0)

    def cap(self, cap: float) -> Proposal:
        """Return the proposal of a cap in nats, B = min(L, cap)."""
        cap = check_cap(cap)
        b = self._automaton(cap=cap)
        high = max(0.0, self.greatest - cap)
        return Proposal(f"cap {cap:g}", (StringDistribution(self.scores, b),), 0.0, high)

    def highest_cap(self) -> Proposal:
        """Return the proposal of the highest cap with at most `max_states` states.

        Six steps of bisection between the bounds of the loss.

        Raises
        ------
        NotSupportedError
            The loss has no finite bounds, or every tried cap exceeds the limit.
        """
        if not np.isfinite([self.least, self.greatest]).all():
            raise NotSupportedError("a cap needs a loss with known bounds; give proposal='plain'")
        low, high = 0.0, 1.0
        best: Proposal | None = None
        for _ in range(6):
            middle = (low + high) / 2
            try:
                best = self.cap(self.least + middle * (self.greatest - self.least))
                low = middle
            except StateLimitError:
                high = middle
        if best is None:
            raise NotSupportedError(
                "the automaton of every cap is too large; give proposal='plain'"
            )
        return best

    def mixture(self) -> Proposal:
        """Return a mixture of bands with one offset each: the diagonal and shifts to both sides.

        Raises
        ------
        NotSupportedError
            No such band keeps all strings of a finite loss within the limit of states.
        """
        length = len(self.scores)
        shifts = [0, *(sign * s for s in _SHIFTS if s < length for sign in (1, -1))]
        parts: list[StringDistribution] = []
        states = 0
        for shift in shifts:
            try:
                b = self._automaton(band=(shift, shift))
            except (StateLimitError, InfeasibleError):
                continue
            states += b.num_states
            if states > self.max_states:
                break
            parts.append(StringDistribution(self.scores, b))
        if not parts:
            raise NotSupportedError(
                "no small automaton of a band of one offset keeps all strings of finite loss; give "
                "proposal='plain'"
            )
        return Proposal("mixture", tuple(parts), -np.inf, 0.0)

    def best(self, samples: int, rng: np.random.Generator, width: float = 0.0) -> "PilotSample":
        """Return the proposal that promises the narrowest interval from `samples` strings.

        First, bands of growing width are tried while each narrows the interval and the limit of
        states allows the next.  The first band that promises `width` (nats) from few strings is
        returned.  If none does, plain strings are tried; if even the best promise is not near the
        least possible width, then also the band (0, 0), a mixture of offsets and a cap.
        """
        found: list[PilotSample] = []

        def tried(make: Callable[[], Proposal]) -> PilotSample | None:
            try:
                found.append(self.trial(make(), rng))
            except FstgradError:
                return None
            return found[-1]

        def promise(trial: PilotSample) -> float:
            return trial.promised_width(samples * self._speed(trial.proposal))

        last = np.inf
        for band in range(1, _WIDEST_BAND + 1 if self.compiled is not None else 1):
            result = tried(partial(self.band, band))
            if result is None:
                break
            if result.promised_width(min(samples, _FEW)) <= _SAFETY * width:
                return result
            reached, last = last, promise(result)
            if last > 0.9 * reached or last < self._floor(samples):
                break
            if result.proposal.states * _GROWTH > self.max_states:
                break
        found.append(self.trial(self.plain(), rng))
        if self.compiled is not None and min(map(promise, found)) > 2 * self._floor(samples):
            tried(lambda: self.band((0, 0)))
            tried(self.mixture)
            tried(self.highest_cap)
        return min(found, key=promise)

    def trial(self, proposal: Proposal, rng: np.random.Generator) -> "PilotSample":
        """Return the proposal with the log-weights of a pilot sample."""
        strings = proposal.draw(5 * self.pilot if proposal.is_plain else self.pilot, rng)
        return PilotSample(proposal, proposal.log_weights(strings, self.losses_of(strings)))

    def samples_for(self, trial: "PilotSample", width: float, most: int) -> int:
        """Return how many strings promise an interval of this width (nats), at most `most`.

        Of plain strings, which are cheaper, at most `plain_speed` times `most`.
        """
        most *= self._speed(trial.proposal)
        samples = min(most, _FEW)
        while samples < most and trial.promised_width(samples) > _SAFETY * width:
            samples = min(most, samples + samples // 2)
        return samples

    def best_control(self, rng: np.random.Generator) -> LossAutomaton | None:
        """Return the automaton of the band that serves best as control variate of L.

        The band grows while each step halves the standard deviation of L_k - L, on strings drawn
        from the scores, and the limit of states allows the next.  Return None if no band lowers it
        below the standard deviation of L, or if some loss is infinite.
        """
        strings = self.plain().draw(self.pilot, rng)
        losses = self.losses_of(strings)
        if not (losses < np.inf).all():
            return None
        best, distance = None, float(losses.std())
        for band in range(1, _WIDEST_BAND + 1):
            try:
                b = self._automaton(band=band)
            except FstgradError:
                break
            rest = b.losses_of(strings) - losses
            if not np.isfinite(rest).all() or float(rest.std()) > distance:
                break
            best, last, distance = b, distance, float(rest.std())
            if b.num_states * _GROWTH > self.max_states or distance > last / 2 or distance == 0:
                break
        return best

    def _floor(self, samples: int) -> float:
        """Return about the least possible width, in nats, of an interval from `samples` strings."""
        return 2 * _RARE / samples

    def _speed(self, proposal: Proposal) -> int:
        return self.plain_speed if proposal.is_plain else 1

    def _automaton(self, *, band: Band | None = None, cap: float | None = None) -> LossAutomaton:
        if not callable(self.compiled):
            raise NotSupportedError(
                "a band or a cap needs a loss in the tropical semiring, and not a sum that was "
                "compiled against a target; give such a loss, or proposal='plain'"
            )
        options = {"band": band, "cap": cap, "max_states": self.max_states}
        b = call_function("compiled", self.compiled, **options)
        instance("what compiled returns", b, LossAutomaton, "a LossAutomaton")
        automaton: LossAutomaton = b
        return automaton


@dataclass(frozen=True, eq=False)
class PilotSample:
    """A proposal and the log-weights R (k,) of a few of its strings."""

    proposal: Proposal
    log_weights: FloatArray

    def promised_width(self, samples: int) -> float:
        """Return the expected width in nats of an interval of log Z from `samples` strings.

        log(1 + 4 sd(u) / (mean(u) sqrt(k)) + 5 e^high / (mean(u) k)) with u = e^R.  If `high` is
        infinite, return four times the second term; if all weights are 0, +inf.
        """
        finite = self.log_weights[self.log_weights > -np.inf]
        if len(finite) == 0:
            return np.inf
        high, largest = self.proposal.high, float(finite.max())
        with np.errstate(under="ignore"):
            weights = np.exp(self.log_weights - largest)
        mean = float(weights.mean())
        spread = float(_SPREAD * weights.std() / mean / np.sqrt(samples))
        if not np.isfinite(high):
            return spread * 4  # the weights have no known bound
        rare = _RARE * np.exp(min(high - largest, 700.0)) / mean / samples
        return float(np.log1p(spread + rare))
