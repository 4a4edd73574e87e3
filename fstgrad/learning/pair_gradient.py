"""The contribution of one pair to an objective, and the warning about unreliable estimates."""

from typing import Literal, NamedTuple

from fstgrad.core.checks import FloatArray
from fstgrad.core.summary import short_repr

Method = Literal["exact", "capped", "sampled", "auto"]
NAN = float("nan")
REMEDY = (
    "raise seconds= or samples=, let proposal='auto' choose a band, compute exactly, or give a cap"
)


class PairGradient(NamedTuple):
    """The contribution of one pair to the objective.

    value : float, nats; the objective of the pair.
    gradient : like w; the gradient of `value` in w, or the array to which it was added.
    log_partition : float, nats; log Z of the distribution whose marginals are in the gradient.
    states : int; states of the loss automaton, 0 without one.
    method : "exact", "capped" or "sampled"; the method that was used.
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


def unreliable(part: PairGradient | None = None) -> str:
    """Return the warning for estimates that are not reliable."""
    shown = ""
    if part is not None:
        shown = f": {part.value:.6g} nats, 95% in [{part.lower:.6g}, {part.upper:.6g}]"
    return f"an estimate is not reliable{shown}; {REMEDY}"
