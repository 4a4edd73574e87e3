"""How objectives are estimated where they are not exact, and how far the last values can be off."""

import warnings
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from fstgrad.automata.band import Band
from fstgrad.checks import instance, items, one_of, positive_integer
from fstgrad.estimates import EVERYTHING, UNRELIABLE, SampledObjective
from fstgrad.strings.budget import Budget
from fstgrad.strings.proposals import KINDS, Kind

Method = Literal["exact", "sampled", "auto"]
METHODS: tuple[Method, ...] = ("exact", "sampled", "auto")


class Estimate(NamedTuple):
    """The value of one item, with its interval and standard error.

    Attributes
    ----------
    value : float, nats
    interval : (float, float), nats
        Contains the objective under the exact loss: with probability 0.95 if `how` is a sample, and
        with certainty otherwise.  An end is infinite if no bound is known.
    is_reliable : bool
        Whether the interval is narrow and there are enough effective samples.
    effective_samples : float, inf where nothing was drawn
    how : str
        "exact", "cap c", "band k", or "n samples (proposal)".
    """

    value: float
    interval: tuple[float, float]
    is_reliable: bool
    effective_samples: float
    how: str


@dataclass(eq=False)
class Sampling:
    """Settings of estimates; `last` holds an `Estimate` for each item of the last batch.

    Parameters
    ----------
    samples : int or Budget
        Strings that are drawn for an item; with a `fstgrad.Budget`, as many as its width needs and
        its seconds, per item, allow.  With method="auto" a budget also limits the states of an
        exact automaton.
    proposal : {"auto", "band", "cap", "plain", "mixture"}
        As in `fstgrad.sampled_softmax_margin`.
    rng : int
        Each batch has its own draws; batch b draws the same whenever the seed is the same.
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
        """Return the source of randomness of one item of the batch to come."""
        item = positive_integer("item", item, minimum=0)
        return np.random.default_rng((self.rng, self.batches, item))

    def keep(self, estimates: list[Estimate]) -> None:
        """Keep the estimates of a batch; warn once if one of them is unreliable."""
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
    """How a loss is made small, and what is done where it is not exact."""

    cap: float | None = None
    band: Band | None = None
    method: Method = "exact"
    sampling: Sampling | None = None


def sampled(result: SampledObjective) -> Estimate:
    """Return the estimate of a sampled value."""
    return Estimate(
        result.value,
        result.interval,
        result.is_reliable,
        result.effective_samples,
        f"{result.samples} samples ({result.proposal})",
    )


def computed(value: float, cap: float | None, band: object, *, is_margin: bool) -> Estimate:
    """Return the estimate of a value computed with L, min(L, cap), or the loss of a band."""
    interval = (value, value) if cap is None and band is None else EVERYTHING
    how = "exact"
    if cap is not None:
        how, interval = f"cap {cap:g}", ((value, np.inf) if is_margin else EVERYTHING)
    if band is not None:
        how, interval = f"band {band}", ((-np.inf, value) if is_margin else EVERYTHING)
    return Estimate(value, interval, True, np.inf, how)
