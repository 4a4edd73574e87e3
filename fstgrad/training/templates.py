"""Templates: which features of the input are active at a position of the output.

Index
-----
- `Template` : a function (x, s, l) -> names, for position s of an output of length l.
- `Tagged` : an input with side symbols that belong to no position.
- `Window` : all spans of symbols in a window of x, for aligned and for unaligned pairs.
- `TemplateFeatures` : names x symbols of y, and q-grams of y, as a linear map.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import Alphabet
from fstgrad.checks import FloatArray, IntArray, items, positive_integer
from fstgrad.errors import InvalidInputError
from fstgrad.training import kernels
from fstgrad.training.features import Features, context_shape

Template = Callable[[Sequence[str], int, int], Iterable[str]]
_KEPT = 2**16  # inputs whose rows are remembered


@dataclass(frozen=True)
class Tagged:
    """An input with side symbols, such as the features of an inflected form.

    Attributes
    ----------
    symbols : tuple of str, the input
    tags : tuple of str, side symbols; they are features of every position
    """

    symbols: tuple[str, ...]
    tags: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of symbols."""
        return len(self.symbols)


def as_input(x: Sequence[str] | Tagged) -> Any:
    """Return an input as the features take it: `Tagged`, or a tuple of symbols.

    Raises
    ------
    InvalidInputError
        It is neither.
    """
    if isinstance(x, Tagged):
        return x
    symbols = tuple(items("an input", x))
    if not all(isinstance(symbol, str) for symbol in symbols):
        raise InvalidInputError(f"an input is {x!r}; give a str or a sequence of symbols")
    return symbols


@dataclass(frozen=True)
class Window:
    """The spans of up to `span` symbols of x inside the window around a centre, and a bias.

    The centre of position s is floor((s + 1/2) |x| / l): s itself where x and y are aligned, the
    symbol at the same relative place where they are not.  The window has `width` symbols on each
    side; before and after x there is one boundary, the empty symbol.

    Parameters
    ----------
    width : int
        Symbols on each side of the centre, >= 0.
    span : int
        The longest span, >= 1.

    Examples
    --------
    >>> list(Window(width=1, span=2)("cat", 0, 3))
    ['bias', '-1 ', '-1  c', '0 c', '0 c a', '1 a']
    >>> list(Window(width=0, span=1)("cats", 1, 2))  # floor(1.5 * 4 / 2) = 3
    ['bias', '0 s']
    """

    width: int = 3
    span: int = 3

    def __post_init__(self) -> None:
        """Check the numbers."""
        positive_integer("width", self.width, minimum=0)
        positive_integer("span", self.span)

    def __call__(self, x: Sequence[str], s: int, length: int) -> Iterable[str]:
        """Yield the names: the offset of the span from the centre, and its symbols."""
        if isinstance(x, Tagged):
            yield from self._tagged(x, s, length)
            return
        centre = (2 * s + 1) * len(x) // (2 * length)
        yield "bias"
        first = max(centre - self.width, -1)
        last = min(centre + self.width, len(x))
        symbols = ["" if i in (-1, len(x)) else x[i] for i in range(first, last + 1)]
        for i in range(len(symbols)):
            name = str(first + i - centre)
            for symbol in symbols[i : i + self.span]:
                name += " " + symbol
                yield name

    def _tagged(self, x: Tagged, s: int, length: int) -> Iterable[str]:
        """Yield the names of the symbols, and each tag and all tags with those at the centre."""
        centre = (2 * s + 1) * len(x.symbols) // (2 * length)
        near = [f"0 {x.symbols[centre]}", f"end {min(len(x.symbols) - centre, 4)}"]
        near.append(" ".join(["-2..0", *x.symbols[max(centre - 2, 0) : centre + 1]]))
        yield from self(x.symbols, s, length)
        for tag in (*x.tags, ";".join(x.tags)):
            yield f"tag {tag}"
            yield from (f"tag {tag}|{name}" for name in near)


class TemplateFeatures(Features):
    """Features (name, y_s) for the active names of position s, and the q-grams of y.

    score[s, z] = sum over names f of (x, s) of W[f, y_s] + sum_{r=2..q} V_r[y[s-r+1 .. s]], with
    symbols before the start among the contexts.  w holds W (F, n) and V_2, ..., V_q in a row.
    Costs O(names n + l n^q).  Names that are not in the vocabulary are left out.

    Parameters
    ----------
    alphabet : Alphabet of n symbols
    order : int
        q >= 1.
    template : callable (x, s, l) -> iterable of str
    names : sequence of str
        The vocabulary, F names.

    Examples
    --------
    >>> features = TemplateFeatures(Alphabet("ab"), 1, Window(0, 1), ["0 x"])
    >>> features.scores(np.array([1.0, 2.0]), "xy", length=2)
    array([[1., 2.],
           [0., 0.]])
    """

    def __init__(
        self, alphabet: Alphabet, order: int, template: Template, names: Sequence[str]
    ) -> None:
        self.alphabet = alphabet
        self.order = positive_integer("order", order)
        self.template = template
        self.names = tuple(names)
        self._number = {name: i for i, name in enumerate(self.names)}
        self._kept: dict[tuple[Any, int], tuple[IntArray, IntArray]] = {}
        n = len(alphabet)
        self._blocks: list[tuple[int, ...]] = [(len(self.names), n)]
        self._blocks += [context_shape(alphabet, r) for r in range(2, order + 1)]
        sizes = [int(np.prod(block)) for block in self._blocks]
        self._ends = list(itertools.accumulate(sizes))

    @classmethod
    def from_data(
        cls,
        alphabet: Alphabet,
        order: int,
        template: Template,
        inputs: Iterable[tuple[Sequence[str], int]],
        *,
        min_count: int = 1,
    ) -> "TemplateFeatures":
        """Return the features of all names that occur `min_count` times at (x, l) of `inputs`.

        Raises
        ------
        InvalidInputError
            No name is left.
        """
        counts: Counter[str] = Counter()
        for x, length in inputs:
            for s in range(length):
                counts.update(template(x, s, length))
        names = sorted(name for name, count in counts.items() if count >= min_count)
        if not names:
            raise InvalidInputError(
                f"no feature occurs min_count={min_count} times; lower min_count"
            )
        return cls(alphabet, order, template, names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (d,) of w."""
        return (self._ends[-1],)

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the score table of strings of a length given x; w is not looked through."""
        weights = np.ascontiguousarray(w, dtype=np.float64)
        if weights.shape != self.shape:
            raise InvalidInputError(f"w has shape {weights.shape}; the shape must be {self.shape}")
        rows, *grams = self._split(weights)
        single = np.empty((positive_integer("length", length), len(self.alphabet)))
        kernels.templates.gather(*self._active(x, length), rows, single)
        table = np.empty((length, *context_shape(self.alphabet, self.order)))
        table[:] = single.reshape(length, *(1,) * (self.order - 1), -1)
        for gram in grams:
            table += gram
        return table

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the adjoint; only the rows of the active names and the q-grams are touched."""
        rows, *grams = self._split(out)
        contexts = tuple(range(1, self.order))
        single = np.ascontiguousarray(table.sum(axis=contexts))
        kernels.templates.scatter(*self._active(x, len(table)), single, rows)
        total = table.sum(axis=0)
        for r, gram in enumerate(grams, start=2):
            gram += total.sum(axis=tuple(range(self.order - r)))

    def _split(self, w: FloatArray) -> list[FloatArray]:
        """Return views of W, V_2, ..., V_q."""
        starts = [0, *self._ends[:-1]]
        parts = zip(starts, self._ends, self._blocks, strict=True)
        return [w[start:end].reshape(block) for start, end, block in parts]

    def _active(self, x: Sequence[str], length: int) -> tuple[IntArray, IntArray]:
        """Return (starts, ids): the numbers of the active names of each position."""
        key = (x if isinstance(x, Tagged) else tuple(x), length)
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            known = [
                [self._number[f] for f in self.template(x, s, length) if f in self._number]
                for s in range(length)
            ]
            starts = np.cumsum([0, *map(len, known)], dtype=np.int64)
            ids = np.array(list(itertools.chain.from_iterable(known)), dtype=np.int64)
            self._kept[key] = starts, ids
        return self._kept[key]
