"""LossReport: properties of a loss on sample strings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import batch

_CLOSE = 1e-9
# property -> its consequence if it holds, and if it does not
_SAID = {
    "accepts_identity": (
        "a target has a finite loss against itself",
        "some target is left out of every sum against itself",
    ),
    "zero_at_identity": ("a target costs nothing against itself", "some target costs something"),
    "symmetric": ("hypothesis and target may change places", "it matters which is the target"),
    "negative": ("some pair is rewarded, as in an alignment score", "no pair is rewarded"),
    "finite": ("every pair has a path", "a pair without a path is left out of every sum"),
}


class _Examined(Protocol):
    """The methods of a loss that `examine` calls."""

    alphabet: Alphabet

    def __call__(self, y: SequenceLike, target: SequenceLike, /) -> float: ...

    def _num_machine_states(self, target: SequenceLike, /) -> int: ...


@dataclass(frozen=True)
class LossReport:
    """Properties of a loss on k samples, each compared as a hypothesis with each as a target.

    Comparisons allow a difference of 1e-9 nats.  `str(report)` is a table with the consequence of
    each property.

    Attributes
    ----------
    samples : int
        The number k of samples.
    accepts_identity : bool
        L(s, s) is finite for every sample.
    zero_at_identity : bool
        L(s, s) = 0 for every sample.
    symmetric : bool
        L(s, t) = L(t, s) for every two samples.
    negative : bool
        Some loss is below 0.
    finite : bool
        All losses are finite; an infinite loss leaves its hypothesis out of every sum.
    least, greatest : float
        The extreme losses in nats; `greatest` may be +inf.
    machine_states : int
        Median over the samples of the number of states of the target machine M; for a sum of
        losses, of the product of these numbers over its parts.
    """

    samples: int
    accepts_identity: bool
    zero_at_identity: bool
    symmetric: bool
    negative: bool
    finite: bool
    least: float
    greatest: float
    machine_states: int

    def __str__(self) -> str:
        rows = [
            (name, holds, yes if holds else no)
            for name, (yes, no) in _SAID.items()
            for holds in [getattr(self, name)]
        ]
        lines = [
            f"{name.replace('_', ' '):<18}{'yes' if holds else 'no':<5}{said}"
            for name, holds, said in rows
        ]
        lines.append(f"{'range':<18}{self.least:g} .. {self.greatest:g} nats")
        lines.append(f"{'states of M':<18}{self.machine_states} (median over {self.samples})")
        return "\n".join(lines)


def examine(loss: _Examined, samples: Iterable[SequenceLike]) -> LossReport:
    """Return the report of a loss on samples (strings of its alphabet); O(samples^2) losses.

    Raises
    ------
    InvalidInputError
        There is no sample.
    AlphabetError
        A sample has a symbol outside the alphabet.
    """
    strings = [
        loss.alphabet.encode(s, name=f"samples[{i}]")
        for i, s in enumerate(batch("samples", samples))
    ]
    if not strings:
        raise InvalidInputError("samples is empty; give at least one string")
    states = [loss._num_machine_states(s) for s in strings]
    table = np.array([[loss(y, target) for target in strings] for y in strings])
    own = np.diagonal(table)
    return LossReport(
        samples=len(strings),
        accepts_identity=bool(np.isfinite(own).all()),
        zero_at_identity=bool((np.abs(own) <= _CLOSE).all()),
        symmetric=bool(np.allclose(table, table.T, rtol=0, atol=_CLOSE)),
        negative=bool((table < -_CLOSE).any()),
        finite=bool(np.isfinite(table).all()),
        least=float(table.min()),
        greatest=float(table.max()),
        machine_states=int(np.median(states)),
    )
