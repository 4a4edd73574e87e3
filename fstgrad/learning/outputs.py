"""The outputs of an input: their length, or one latent symbol for each symbol of the input.

- `LengthModel` : the length of y for |x|, if y is not aligned with x.
- `LatentOutputs` : for each symbol of x, the string of y symbols that it produces, by alignment.

A latent string z has one symbol for each symbol of x, and one for each of a few slots before and
after x, which hold prefixes and suffixes.  Each latent symbol spells a string of y symbols: often
one symbol, sometimes none.  The length of z is therefore that of the input with its slots, whatever
the length of y, and a collapse turns a loss of y into a loss of z.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    index_array,
    instance,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields, items
from fstgrad.learning.align import Aligner, Pair, Symbols, per_symbol
from fstgrad.learning.templates import Tagged, symbols_of
from fstgrad.losses import CollapsedLoss, Loss

_LONGEST_STRING = 2**53  # symbols
START, END = "<s>", "</s>"  # slots are <s3> <s2> <s1> and </s1> </s2> </s3>
LONGEST = 16  # symbols of y before and after x; more only for a pair that needs them
SLOTS = 16  # the most slots on either side
FAVOUR = 5.0  # initial advantage of copies in nats
_SLOT = re.compile(r"</?s\d+>")
MOST_LINKS = 10**7  # of one pair: (symbols of x and slots) times (symbols of y)
RARE = 2.0  # strings of several symbols with a lower expected count are avoided
FEWEST, UNRELATED = 50, 0.1  # from FEWEST pairs on, at most the share UNRELATED is left out
Alignment = Literal["auto", "em", "given"] | None


@dataclass(frozen=True)
class LengthModel:
    """The median length of the targets for each |x|; for other |x|, the median ratio times |x|.

    If x and y have the same length in all pairs of the data, this is |x|.

    Attributes
    ----------
    inputs, outputs : (k,) int64
        The |x| of the data, ascending, and the lengths of their outputs, >= 1.
    ratio : float
        The median of |y| / |x|.

    Examples
    --------
    >>> lengths = LengthModel.fit([(2, 4), (2, 5), (2, 5), (4, 8)])
    >>> lengths(2), lengths(4), lengths(3)  # 3 times the median of 2, 2, 2.5, 2.5
    (5, 8, 7)
    """

    inputs: IntArray
    outputs: IntArray
    ratio: float

    def __post_init__(self) -> None:
        """Check the lengths."""
        inputs = index_array("inputs", self.inputs, _LONGEST_STRING, (None,))
        object.__setattr__(self, "inputs", inputs)
        outputs = index_array("outputs", self.outputs, _LONGEST_STRING, (len(inputs),), lower=1)
        object.__setattr__(self, "outputs", outputs)
        if (np.diff(inputs) <= 0).any():
            raise InvalidInputError(f"inputs is {inputs}; give lengths that ascend")
        vars(self).update(ratio=positive_number("ratio", self.ratio, allow_zero=True))

    @classmethod
    def fit(cls, pairs: Iterable[tuple[int, int]]) -> "LengthModel":
        """Return the model of pairs (|x|, |y|)."""
        lengths: dict[int, list[int]] = defaultdict(list)
        for source, target in fields("pairs", pairs, 2):
            source = positive_integer("|x|", source, minimum=0)
            lengths[source].append(positive_integer("|y|", target, minimum=0))
        inputs = sorted(lengths)
        ratios = [target / source for source in inputs if source for target in lengths[source]]
        return cls(
            np.array(inputs, dtype=np.int64),
            np.array([_rounded(float(np.median(lengths[i]))) for i in inputs], dtype=np.int64),
            float(np.median(ratios)) if ratios else 1.0,
        )

    def __call__(self, size: int) -> int:
        """Return the length of the output for |x| = size."""
        size = positive_integer("size", size, minimum=0)
        median = self._medians.get(size)
        return _rounded(self.ratio * size) if median is None else median

    @cached_property
    def _medians(self) -> dict[int, int]:
        return dict(zip(self.inputs.tolist(), self.outputs.tolist(), strict=True))


def _rounded(number: float) -> int:
    return max(1, int(np.floor(number + 0.5)))


def is_latent(alignment: Alignment, pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether pairs (x, y) must be aligned; "given" also checks that their lengths are equal.

    Raises
    ------
    InvalidInputError
        If `alignment` is "given" and x and y of a pair differ in length, or if it is unknown.
    """
    if alignment is None:
        return False
    one_of("alignment", alignment, ("auto", "em", "given"))
    if alignment == "given":
        check_aligned(pairs)
    return alignment == "em" or (alignment == "auto" and any(len(x) != len(y) for x, y in pairs))


def check_aligned(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raise InvalidInputError if x and y of a pair differ in length."""
    for i, (x, y) in enumerate(fields("pairs", pairs, 2)):
        for name, side in (("x", x), ("y", y)):
            instance(f"{name} of pair {i}", side, Sized, "a sequence")
            symbols = side.symbols if isinstance(side, Tagged) else side
            items(f"{name} of pair {i}", symbols)  # a tensor without dimensions also has __len__
        if len(x) != len(y):
            raise InvalidInputError(
                f"pair {i} has {len(x)} input and {len(y)} output symbols, which are not aligned; "
                "use alignment='em', or features='unaligned'"
            )


@dataclass(frozen=True)
class LatentOutputs:
    """The latent symbols of a model: the strings of y symbols that a symbol of x may produce.

    Attributes
    ----------
    alphabet : Alphabet of y
    strings : tuple of tuples of symbols of y, one for each latent symbol
    slots : numbers of slots before and after x
    """

    alphabet: Alphabet
    strings: tuple[Symbols, ...]
    slots: tuple[int, int]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Any, Any]], alphabet: Alphabet
    ) -> tuple["LatentOutputs", list[tuple[Any, Any]], list[int]]:
        """Return the latent outputs of pairs, the pairs (padded x, latent z), and their indices.

        The alignment is that of `Aligner` with p(v | u), one symbol of x and up to two of y on a
        link; symbols before and after x go to the slots letter by letter, and the excess to the
        outermost slot.  There are as many slots as 99 percent of the pairs need.  Of the strings of
        several symbols, only the most frequent are kept, so that there are at most 4 n + 4 latent
        symbols for n symbols of y; other strings are replaced by their first symbol.

        If there are at least 50 pairs, up to a tenth of them is left out: those with p(y | x) below
        the product of the frequencies of the symbols of y, for example abbreviations, or lines of
        text that do not belong together.  They would lead to wrong links.

        Raises
        ------
        InvalidInputError
            If an input has a symbol that is the name of a slot.
        """
        for i, (x, _) in enumerate(pairs):
            if any(_SLOT.fullmatch(symbol) for symbol in symbols_of(x)):
                raise InvalidInputError(
                    f"X[{i}] has a symbol like <s1> or </s1>, which marks the slots of an "
                    "alignment; rename it"
                )
        read = [(tuple(symbols_of(x)), tuple(y)) for x, y in pairs]
        aligner, padded, slots_beside = _fitted(read)
        related = _related(read, aligner.log_probabilities_)
        if len(related) < len(pairs):
            pairs, read = [pairs[i] for i in related], [read[i] for i in related]
            aligner, padded, slots_beside = _fitted(read)
        aligned_strings = _best_strings(aligner, padded, slots_beside)
        slots = _slots([z[0] for z in aligned_strings]), _slots([z[-1] for z in aligned_strings])
        spread = [
            (*_in_slots_before(z[0], slots[0]), *z[1:-1], *_in_slots_behind(z[-1], slots[1]))
            for z in aligned_strings
        ]
        frequent = _frequent(spread, 4 * (len(alphabet) + 1))
        spread = [
            tuple(string if string in frequent else string[:1] for string in z) for z in spread
        ]
        strings = sorted({string for z in spread for string in z} | {()})
        latent = cls(alphabet, tuple(strings), slots)
        names = dict(zip(strings, latent.symbols, strict=True))
        aligned = [
            (latent.padded(x), tuple(names[string] for string in z))
            for (x, _), z in zip(pairs, spread, strict=True)
        ]
        return latent, aligned, related

    def padded(self, x: Any) -> Any:
        """Return an input between its slots."""
        symbols = _with_slots(tuple(symbols_of(x)), *self.slots)
        return replace(x, symbols=symbols) if isinstance(x, Tagged) else symbols

    @cached_property
    def symbols(self) -> Alphabet:
        """The alphabet of latent symbols: the strings as text."""
        return Alphabet(repr(list(string)) for string in self.strings)

    @cached_property
    def copies(self) -> dict[str, int]:
        """The ids of the latent symbols that spell one symbol of y, by that symbol."""
        return {string[0]: i for i, string in enumerate(self.strings) if len(string) == 1}

    def loss(self, loss: Loss | None) -> Loss | None:
        """Return the loss of latent strings: the loss of the strings that they spell."""
        if loss is None:
            return None
        return CollapsedLoss(loss, self.symbols, dict(zip(self.symbols, self.strings, strict=True)))

    def read(self, ids: Any) -> Symbols:
        """Return the symbols of y that a latent string spells."""
        return sum((self.strings[i] for i in ids), ())

    def nbest(self, best: Sequence[tuple[Any, float]], k: int) -> list[tuple[Symbols, float]]:
        """Return the k best (y, log p) from latent strings (ids, log p), summed for each y."""
        total: dict[Symbols, float] = {}
        for z, p in best:
            y = self.read(z)
            total[y] = float(np.logaddexp(total.get(y, -np.inf), p))
        return sorted(total.items(), key=lambda item: -item[1])[:k]


def _with_slots(x: Symbols, before: int, behind: int) -> Symbols:
    """Return x between its slots, which are numbered from x outward."""
    left = (f"{START[:-1]}{k}>" for k in range(before, 0, -1))
    return (*left, *x, *(f"{END[:-1]}{k}>" for k in range(1, behind + 1)))


def _initial_advantage(u: Symbols, v: Symbols) -> float:
    """Return the initial advantage of a link, in nats."""
    return FAVOUR * (u == v)


def _fitted(pairs: list[Pair]) -> tuple[Aligner, list[Pair], list[int]]:
    """Return an aligner of pairs, the pairs with x between slots, and the slots on either side.

    Each slot produces at most one symbol of y.  A string before or after x therefore costs as much
    as its symbols, so that no pair is explained by slots alone.
    """
    slots_beside = [max(LONGEST, len(y) - 2 * len(x)) for x, y in pairs]
    padded = [(_with_slots(x, k, k), y) for (x, y), k in zip(pairs, slots_beside, strict=True)]
    for i, (x, y) in enumerate(pairs):
        if (len(x) + 2 * slots_beside[i]) * len(y) > MOST_LINKS:
            raise InvalidInputError(
                f"pair {i} has {len(x)} symbols of x and {len(y)} of y, too many to align "
                "with the other pairs; leave it out, or give alignment=None"
            )
    slots = dict.fromkeys(_with_slots((), max(slots_beside), max(slots_beside)), 1)
    aligner = Aligner(
        1, 2, empty_x=False, normalization="conditional", longest=slots, start=_initial_advantage
    )
    return aligner.fit(padded), padded, slots_beside


def _related(pairs: list[Pair], log_p: FloatArray) -> list[int]:
    """Return the indices of the pairs, without those with p(y | x) below the frequencies in y.

    These are the products of the frequencies of the symbols of y and of an end symbol, so that both
    are distributions over strings of any length.  At most the share UNRELATED of the pairs, the
    worst, is left out, and none of fewer than FEWEST pairs.
    """
    if len(pairs) < FEWEST:
        return list(range(len(pairs)))
    counts = Counter(symbol for _, y in pairs for symbol in y)
    draws = counts.total() + len(pairs)
    log_share = {symbol: np.log(count / draws) for symbol, count in counts.items()}
    end = np.log(len(pairs) / draws)
    gain = log_p - [sum((log_share[symbol] for symbol in y), end) for _, y in pairs]
    worst = np.argsort(gain, kind="stable")[: int(UNRELATED * len(pairs))]
    left_out = set(worst[gain[worst] < 0].tolist())
    return [i for i in range(len(pairs)) if i not in left_out]


def _best_strings(
    aligner: Aligner, padded: list[Pair], slots_beside: list[int]
) -> list[list[Symbols]]:
    """Return, for each pair, the symbols before x, those of each symbol of x, and the rest."""
    aligned_strings = []
    alignments = aligner.discourage(RARE).align_all(padded)
    for pair, k in zip(alignments, slots_beside, strict=True):
        z = per_symbol(pair.links)
        aligned_strings.append([sum(z[:k], ()), *z[k : len(z) - k], sum(z[len(z) - k :], ())])
    return aligned_strings


def _frequent(aligned_strings: Sequence[Sequence[Symbols]], most: int) -> set[Symbols]:
    """Return the strings of up to one symbol, and the most frequent others: `most` in all."""
    counts = Counter(string for z in aligned_strings for string in z)
    single = {string for z in aligned_strings for part in z for string in ((), part[:1])}
    several = [string for string, _ in counts.most_common() if len(string) > 1]
    return single | set(several[: max(0, most - len(single))])


def _slots(strings: Sequence[Symbols]) -> int:
    """Return the number of slots that suffices for 99 percent of the strings, 1 to SLOTS."""
    needed = np.quantile([len(string) for string in strings], 0.99, method="higher")
    return int(min(max(needed, 1), SLOTS))


def _in_slots_before(string: Symbols, slots: int) -> tuple[Symbols, ...]:
    """Return a string in its slots, right-aligned; the first slot has the excess."""
    excess = max(0, len(string) - slots + 1)
    single = [(symbol,) for symbol in string[excess:]]
    return (*((),) * (slots - 1 - len(single)), string[:excess], *single)


def _in_slots_behind(string: Symbols, slots: int) -> tuple[Symbols, ...]:
    """Return a string in its slots, left-aligned; the last slot has the excess."""
    single = [(symbol,) for symbol in string[: slots - 1]]
    return (*single, *((),) * (slots - 1 - len(single)), string[slots - 1 :])
