"""Latent outputs: for each symbol of x the string of y symbols that it gives, found by alignment.

A latent string z has one symbol for each symbol of x between two boundaries, START and END; each
latent symbol stands for a string of y symbols, often one, sometimes none.  So z is as long as the
input, whatever the length of y, and a loss of y is a loss of z behind a collapse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.checks import one_of
from fstgrad.errors import InvalidInputError
from fstgrad.losses import CollapsedLoss, Loss
from fstgrad.training.align import Aligner, per_symbol
from fstgrad.training.templates import Tagged

START, END = "<s>", "</s>"
LONGEST = 6  # symbols of y that a boundary may give: a prefix, a suffix
MOST_SUBSTRINGS = 10**7  # places in all y times the length of the longest string of one symbol
RARE = 2.0  # expected count below which a string of several symbols is a last resort
Alignment = Literal["auto", "em", "given"] | None
Symbols = tuple[str, ...]


def is_latent(alignment: Alignment, pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether pairs (x, y) are to be aligned; checks the lengths where they are said to be equal.

    Raises
    ------
    InvalidInputError
        `alignment` is "given" and a pair differs in length, or is no alignment.
    """
    if alignment is None:
        return False
    one_of("alignment", alignment, ("auto", "em", "given"))
    if alignment == "given":
        check_aligned(pairs)
    return alignment == "em" or (alignment == "auto" and any(len(x) != len(y) for x, y in pairs))


def check_aligned(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raise InvalidInputError where x and y of a pair differ in length."""
    for i, (x, y) in enumerate(pairs):
        if len(x) != len(y):
            raise InvalidInputError(
                f"pair {i} has {len(x)} input and {len(y)} output symbols, which are not aligned; "
                "use alignment='em', or features='unaligned'"
            )


def padded(x: Any) -> Any:
    """Return an input between its boundaries."""
    if isinstance(x, Tagged):
        return replace(x, symbols=(START, *x.symbols, END))
    return (START, *x, END)


@dataclass(frozen=True)
class LatentOutputs:
    """The latent symbols of a model: the strings of y symbols that a symbol of x may give.

    Attributes
    ----------
    alphabet : Alphabet of y
    strings : tuple of tuples of symbols of y, one for each latent symbol
    """

    alphabet: Alphabet
    strings: tuple[Symbols, ...]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Any, Any]], alphabet: Alphabet
    ) -> tuple["LatentOutputs", list[tuple[Any, Any]]]:
        """Return the latent outputs of pairs, and the pairs (padded x, latent z).

        The alignment is that of `Aligner` with p(v | u), one symbol of x and up to two of y on a
        link; the boundaries, and symbols of pairs that would have no alignment, may give more.

        Raises
        ------
        InvalidInputError
            An input has a boundary symbol.
        """
        inputs = [padded(x) for x, _ in pairs]
        seen = [x.symbols if isinstance(x, Tagged) else x for x in inputs]
        for i, x in enumerate(seen):
            if START in x[1:-1] or END in x[1:-1]:
                raise InvalidInputError(
                    f"X[{i}] has the symbol {START!r} or {END!r}, which marks the boundaries of an "
                    "alignment; rename it"
                )
        spare = max((len(y) - 2 * (len(x) - 2) for x, (_, y) in zip(seen, pairs, strict=True)))
        longest = max(LONGEST, -(-spare // 2))
        if longest * sum(len(y) for _, y in pairs) > MOST_SUBSTRINGS:
            worst = max(range(len(pairs)), key=lambda i: len(pairs[i][1]) - 2 * len(seen[i]))
            raise InvalidInputError(
                f"pair {worst} has {len(seen[worst]) - 2} symbols of x and {len(pairs[worst][1])} "
                "of y, too many more to align with the other pairs; leave it out, or give "
                "alignment='none'"
            )
        aligner = Aligner(
            1,
            2,
            empty_x=False,
            normalization="conditional",
            longest={START: longest, END: longest},
        )
        cut = [(x, y) for x, (_, y) in zip(seen, pairs, strict=True)]
        aligner.fit(cut).discourage(RARE)
        found = [tuple(per_symbol(pair.links)) for pair in aligner.align_all(cut)]
        strings = sorted({string for z in found for string in z} | {()})
        latent = cls(alphabet, tuple(strings))
        names = dict(zip(strings, latent.symbols, strict=True))
        return latent, [
            (x, tuple(names[string] for string in z)) for x, z in zip(inputs, found, strict=True)
        ]

    @cached_property
    def symbols(self) -> Alphabet:
        """The latent symbols: the strings as text."""
        return Alphabet(repr(list(string)) for string in self.strings)

    @cached_property
    def copies(self) -> dict[str, int]:
        """The latent symbols that stand for one symbol of y, by that symbol."""
        return {string[0]: i for i, string in enumerate(self.strings) if len(string) == 1}

    def loss(self, loss: Loss | None) -> Loss | None:
        """Return the loss of latent strings: that of what they stand for."""
        if loss is None:
            return None
        return CollapsedLoss(loss, self.symbols, dict(zip(self.symbols, self.strings, strict=True)))

    def read(self, ids: Any) -> Symbols:
        """Return the symbols of y that a latent string stands for."""
        return sum((self.strings[i] for i in ids), ())

    def nbest(self, best: Sequence[tuple[Any, float]], k: int) -> list[tuple[Symbols, float]]:
        """Return the k best (y, log p) of latent strings (ids, log p), added up by y."""
        total: dict[Symbols, float] = {}
        for z, p in best:
            y = self.read(z)
            total[y] = float(np.logaddexp(total.get(y, -np.inf), p))
        return sorted(total.items(), key=lambda item: -item[1])[:k]
