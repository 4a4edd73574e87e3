"""Settings of sampled objectives, and the accuracy of the last estimates."""

import warnings
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from fstgrad.core.checks import IntArray, instance, one_of, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.estimates import EVERYTHING, UNRELIABLE, SampledObjective
from fstgrad.core.sequences import items
from fstgrad.losses.automata.band import Band
from fstgrad.strings.budget import Budget
from fstgrad.strings.proposals import KINDS, Kind

Method = Literal["exact", "sampled", "auto"]
METHODS: tuple[Method, ...] = ("exact", "sampled", "auto")


class Estimate(NamedTuple):
    """The value of one item, with its interval and reliability.

    Attributes
    ----------
    value : float
        The objective in nats.
    interval : (float, float)
        Bounds in nats on the objective under the exact loss.  They hold with probability 0.95 if
        the value is sampled, and with certainty otherwise.  An end without a known bound is
        infinite.
    is_reliable : bool
        Whether the interval is narrow and the effective samples are enough; True if nothing is
        sampled.
    effective_samples : float
        See `SampledObjective`; inf if nothing is sampled.
    how : str
        "exact", "cap c", "band k", "n samples (proposal)", or "infeasible" (value 0).
    """

    value: float
    interval: tuple[float, float]
    is_reliable: bool
    effective_samples: float
    how: str


@dataclass(eq=False)
class Sampling:
    """Settings of sampled objectives; `last` has an `Estimate` for each item of the last batch.

    Parameters
    ----------
    samples : int or Budget
        The number of strings to draw for each item, at least 2.  A `fstgrad.Budget` draws as many
        as its width needs and its seconds (per item) allow; with method="auto" it also limits the
        states of an exact automaton.
    proposal : {"auto", "band", "cap", "plain", "mixture"}
        As in `fstgrad.sampled_softmax_margin`.
    rng : int
        The seed.  Batches draw different strings; the same seed gives the same draws in batch b.

    Attributes
    ----------
    last : tuple of Estimate
    batches : int
        The number of batches evaluated so far.

    Raises
    ------
    InvalidInputError
        A parameter is invalid.
    """

    samples: int | Budget = 1000
    proposal: Kind = "auto"
    rng: int = 0
    last: tuple[Estimate, ...] = field(default=(), init=False, repr=False)
    batches: int = field(default=0, init=False, repr=False)
    _has_warned: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.samples, Budget):
            self.samples = self.samples.checked()
        else:
            vars(self).update(samples=positive_integer("samples", self.samples, minimum=2))
        vars(self).update(rng=positive_integer("rng", self.rng, minimum=0))
        one_of("proposal", self.proposal, KINDS)

    def generator(self, item: int) -> np.random.Generator:
        """Return the random generator of one item (its index) of the next batch."""
        item = positive_integer("item", item, minimum=0)
        return np.random.default_rng((self.rng, self.batches, item))

    def _keep_among(self, kept: IntArray, items: int) -> None:
        """Give the last estimates the places `kept` of a batch; the others are infeasible."""
        last = [Estimate(0.0, (0.0, 0.0), True, np.inf, "infeasible")] * items
        for i, estimate in zip(kept.tolist(), self.last, strict=False):
            last[i] = estimate
        self.last = tuple(last)

    def keep(self, estimates: list[Estimate]) -> None:
        """Store the estimates of a batch in `last`; warn once if one of them is unreliable."""
        last = tuple(items("estimates", estimates))
        for estimate in last:
            instance("an item of estimates", estimate, Estimate, "an Estimate")
        self.last, self.batches = last, self.batches + 1
        bad = [i for i, estimate in enumerate(last) if not estimate.is_reliable]
        if bad and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"item {bad[0]} and {len(bad) - 1} more of {len(last)} have "
                f"{last[bad[0]].effective_samples:.0f} effective samples or a wide interval: "
                f"{UNRELIABLE}; `last` has the interval of every item",
                RuntimeWarning,
                stacklevel=2,
            )


class Options(NamedTuple):
    """How to shrink a loss automaton (cap, band, prune), and when and how to sample."""

    cap: float | None = None
    band: Band | None = None
    method: Method = "exact"
    sampling: Sampling | None = None
    prune: float | None = None

    @property
    def is_default(self) -> bool:
        """Whether the loss is compiled as it is."""
        return self[:3] == Options()[:3] and self.prune is None


def check_settings(kind: str, loss: object, options: Options) -> None:
    """Raise InvalidInputError if a risk has no loss, or if an option is invalid."""
    if kind == "risk" and loss is None:
        raise InvalidInputError("loss is None; risk is the expected loss: give one")
    limits = [name for name in ("cap", "band", "prune") if getattr(options, name) is not None]
    if loss is None and limits:
        raise InvalidInputError(f"{limits[0]} is for a loss, and loss is None; give a loss too")
    one_of("method", options.method, METHODS)
    if options.prune is not None and options.method != "exact":
        raise InvalidInputError(
            f"prune is {options.prune!r} with method={options.method!r}, which samples strings of "
            "the whole loss; leave one of them out"
        )
    if options.sampling is not None:
        instance("sampling", options.sampling, Sampling, "a Sampling, or None")


def sampled(result: SampledObjective, offset: float = 0.0) -> Estimate:
    """Return the `Estimate` of a sampled objective plus an offset in nats."""
    low, high = result.interval
    return Estimate(
        result.value + offset,
        (low + offset, high + offset),
        result.is_reliable,
        result.effective_samples,
        f"{result.samples} samples ({result.proposal})",
    )


def computed(value: float, options: Options, *, is_margin: bool) -> Estimate:
    """Return the `Estimate` of a value computed with the loss L, with min(L, cap), or in a band.

    A cap makes the softmax margin too small, a band makes it too large.  The risk has no bound, nor
    has a pruned loss.
    """
    cap, band, _, _, prune = options
    how, interval = "exact", (value, value)
    if prune is not None:
        how, interval = f"prune {prune:g}", EVERYTHING
    if cap is not None:
        how, interval = f"cap {cap:g}", ((value, np.inf) if is_margin else EVERYTHING)
    if band is not None:
        how, interval = f"band {band}", ((-np.inf, value) if is_margin else EVERYTHING)
    return Estimate(value, interval, True, np.inf, how)
