"""Pairs of strings as arrays of labels, with the mass of each pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    index_array,
    instance,
    is_integer,
    positive_number,
    real_array,
    writable,
)
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.sequences import rows_of
from fstgrad.core.short_repr import short_repr
from fstgrad.costs.kernels.arrays import PairLabels


@dataclass(frozen=True)
class Pairs:
    """N pairs of strings as concatenated labels, and the mass of each pair.

    Attributes
    ----------
    x, y : (total length,) int64, labels id + 1 of all hypotheses and of all targets.
    x_first, y_first : (N + 1,) int64, the first label of each string, then the total length.
    mass : (N,) float64, the number of times that each pair was seen.
    """

    x: IntArray
    x_first: IntArray
    y: IntArray
    y_first: IntArray
    mass: FloatArray

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the arrays; raise InvalidInputError."""
        mass = np.ascontiguousarray(real_array("mass", self.mass, (None,)))
        object.__setattr__(self, "mass", mass)
        for name in ("x", "y"):
            labels = np.ascontiguousarray(index_array(name, getattr(self, name), 2**62, (None,)))
            first = getattr(self, f"{name}_first")
            first = index_array(f"{name}_first", first, len(labels) + 1, (len(mass) + 1,))
            if first[0] != 0 or first[-1] != len(labels) or (np.diff(first) < 0).any():
                raise InvalidInputError(
                    f"{name}_first runs from {first[0]} to {first[-1]}; it must ascend from 0 to "
                    f"the {len(labels)} labels of {name}"
                )
            object.__setattr__(self, name, labels)
            object.__setattr__(self, f"{name}_first", first)

    @classmethod
    def encode(
        cls, alphabet: Alphabet, rows: Iterable[Sequence[Any]], *, name: str = "rows"
    ) -> "Pairs":
        """Return rows (x, y) or (x, y, mass) as labels.

        Raises
        ------
        AlphabetError
            A symbol is not in the alphabet.
        InvalidInputError
            A row has another form, a mass is not above 0, or there are no rows.
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        xs, ys, mass = [], [], []
        for row_name, row in rows_of(name, rows):
            if len(row) not in (2, 3):
                raise InvalidInputError(
                    f"{row_name} has {len(row)} fields; a pair is (x, y) or (x, y, mass)"
                )
            xs.append(alphabet.encode(row[0], name=f"{row_name}[0]") + 1)
            ys.append(alphabet.encode(row[1], name=f"{row_name}[1]") + 1)
            mass.append(
                positive_number(f"the mass of {row_name}", row[2]) if len(row) == 3 else 1.0
            )
        if not xs:
            raise InvalidInputError(f"{name} is empty; give at least one pair of strings")
        return cls(*_concatenated(xs), *_concatenated(ys), np.array(mass))

    def __len__(self) -> int:
        return len(self.mass)

    def take(self, which: IntArray) -> "Pairs":
        """Return the pairs with these indices (M,)."""
        which = index_array("which", which, len(self), (None,))
        xs = [self.x[self.x_first[n] : self.x_first[n + 1]] for n in which]
        ys = [self.y[self.y_first[n] : self.y_first[n + 1]] for n in which]
        return Pairs(*_concatenated(xs), *_concatenated(ys), self.mass[which])

    @property
    def labels(self) -> PairLabels:
        """The arrays of labels that the kernels read."""
        return PairLabels(self.x, self.x_first, self.y, self.y_first)

    def shown(self, n: int, alphabet: Alphabet) -> str:
        """Return pair n as text."""
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        if not is_integer(n) or not 0 <= n < len(self):
            raise InvalidInputError(f"n is {n!r}; pairs are numbered from 0 to {len(self) - 1}")
        check_labels(self, alphabet)
        sides = (
            self.x[self.x_first[n] : self.x_first[n + 1]],
            self.y[self.y_first[n] : self.y_first[n + 1]],
        )
        mark = "" if alphabet.is_characters else " "
        return " against ".join(repr(mark.join(alphabet.decode(side - 1))) for side in sides)


def check_aligned(
    name: str, pairs: Pairs, numbers: IntArray, unaligned: BoolArray, alphabet: Alphabet
) -> None:
    """Raise InfeasibleError if a transducer cannot align some items.

    numbers : (items,), those of the items in `pairs`; unaligned : (items,), which have no alignment
    """
    reasons = {
        i: f"{name} is {pairs.shown(int(numbers[i]), alphabet)}, which the transducer cannot align"
        for i in np.flatnonzero(unaligned).tolist()
    }
    if reasons:
        remedy = "add edits to the transducer, or leave these items out"
        raise InfeasibleError.of_items(reasons, remedy)


def _concatenated(strings: list[IntArray]) -> tuple[IntArray, IntArray]:
    lengths = [len(string) for string in strings]
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.concatenate([np.zeros(0, dtype=np.int64), *strings]), first


def masses(pairs: Pairs, mass: FloatArray | None) -> FloatArray:
    """Return the mass (N,) of the pairs, or `mass` (N,), which must be finite, if it is given."""
    if mass is None:
        return writable(pairs.mass)
    return writable(real_array("mass", mass, (len(pairs),)))


def check_labels(pairs: Pairs, alphabet: Alphabet) -> None:
    """Raise InvalidInputError unless all labels are in 1 .. n."""
    for name, labels in (("x", pairs.x), ("y", pairs.y)):
        index_array(name, labels, len(alphabet) + 1, lower=1)
