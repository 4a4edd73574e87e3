"""TemplateFeatures: pairs of a name and a symbol of y, and q-grams of y, as a sparse linear map."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    index_array,
    instance,
    is_integer,
    output_array,
    positive_integer,
    real_array,
    writable,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields, items, symbol_strings
from fstgrad.core.uninitialized import empty
from fstgrad.learning import kernels
from fstgrad.learning.features import Features, context_shape
from fstgrad.learning.templates import Tagged, Template, symbols_of
from fstgrad.learning.vocabulary import Names, Vocabulary, WindowNames, read_inputs, vocabulary_of

_CHUNKS = 2**29  # bytes of data that training keeps of its pairs
_KEPT = 2**16  # inputs whose names are remembered


class Pairs(NamedTuple):
    """The pairs of a name and a symbol that have weights.

    Attributes
    ----------
    first : (F + 1,) int64, name f has the weights first[f] .. first[f + 1] - 1
    symbol : (P,) int64, the symbol of each pair; n means the copy of the symbol of x
    """

    first: IntArray
    symbol: IntArray

    @classmethod
    def all(cls, names: int, n: int) -> "Pairs":
        """Return all pairs, without copies."""
        names = positive_integer("names", names, minimum=0)
        n = positive_integer("n", n)
        return cls(np.arange(names + 1) * n, np.tile(np.arange(n), names))


class Encoded(NamedTuple):
    """Encoded inputs: the active names of all positions, one output after another.

    Attributes
    ----------
    starts, ids : as in `Active`
    copies : (positions,) int64, the symbol of y that is the copy of the symbol of x, -1 if none
    """

    starts: IntArray
    ids: IntArray
    copies: IntArray


class TemplateFeatures(Features):
    """Features (name, y_s) for the active names of position s, and the q-grams of y.

    score[s, z] = sum over names f of (x, s) of W[f, y_s] + sum_{r=2..q} V_r[y[s-r+1 .. s]], with
    symbols before the start among the contexts.  W has the pairs (name, symbol) of `pairs`, and all
    others are 0; a pair of a name and "the copy" is active if y_s is the copy of x_s. w is the
    concatenation of the pairs and V_2, ..., V_q.  The cost is O(pairs of the names + l n^q).  Names
    that are not in the vocabulary are ignored.

    Parameters
    ----------
    alphabet : Alphabet of n symbols
    order : int
        q >= 1.
    template : callable (x, s, l) -> iterable of str
    names : sequence of str, or Vocabulary
        The F names.
    pairs : Pairs, optional
        By default, all pairs.
    copies : mapping of symbols of x to ids of y, optional
        Which symbol of y is the copy of a symbol of x.

    Attributes
    ----------
    chunks, chunk_bytes, chunk_limit : dict, int, int
        Data that training keeps between passes, their size in bytes, and its limit.

    Examples
    --------
    >>> from fstgrad.learning.templates import Window
    >>> features = TemplateFeatures(Alphabet("ab"), 1, Window(0, 1), ["0 x"])
    >>> features.coded([("xy", 2)]).starts
    array([0, 1, 1])
    >>> features.scores(np.array([1.0, 2.0]), "xy", length=2)
    array([[1., 2.],
           [0., 0.]])
    """

    def __init__(
        self,
        alphabet: Alphabet,
        order: int,
        template: Template,
        names: Sequence[str] | Vocabulary,
        pairs: Pairs | None = None,
        copies: Mapping[str, int] | None = None,
    ) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        if not callable(template):
            raise InvalidInputError(f"template is {template!r}; give a Window or a function")
        if pairs is not None:
            instance("pairs", pairs, Pairs, "Pairs of names and symbols")
        if isinstance(names, str) or not isinstance(names, Sequence | Names | WindowNames):
            raise InvalidInputError(f"names is {names!r}; give a sequence of names")
        self.alphabet = alphabet
        self.order = positive_integer("order", order)
        self.template = template
        self.vocabulary = Names(template, names) if isinstance(names, Sequence) else names
        self.copies = _copied(copies, len(alphabet))
        n = len(alphabet)
        self.pairs = Pairs.all(len(self.vocabulary), n) if pairs is None else self._checked(pairs)
        self._kept: dict[tuple[Any, int], Encoded] = {}
        self._blocks = [context_shape(alphabet, r) for r in range(2, order + 1)]
        sizes = [len(self.pairs.symbol), *(int(np.prod(block)) for block in self._blocks)]
        self._ends = list(itertools.accumulate(sizes))
        self.chunks: dict[int, Any] = {}
        self.chunk_bytes, self.chunk_limit = 0, _CHUNKS

    def __getstate__(self) -> dict[str, Any]:
        """Return what a file or another process needs, without the data kept between passes."""
        return {**self.__dict__, "_kept": {}, "chunks": {}, "chunk_bytes": 0}

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
        """Return all pairs of symbols with names that occur `min_count` times at (x, l).

        Raises
        ------
        InvalidInputError
            If no name is left.
        """
        return cls(alphabet, order, template, vocabulary_of(template, inputs, min_count))

    @classmethod
    def from_pairs(
        cls,
        alphabet: Alphabet,
        order: int,
        template: Template,
        data: Sequence[tuple[Any, Sequence[str]]],
        *,
        min_count: int = 1,
        copies: Mapping[str, int] | None = None,
    ) -> "TemplateFeatures":
        """Return the pairs of names and symbols that occur in data (x, y).

        Names must occur `min_count` times.  The copy is paired with a name if y_s is the copy of
        x_s at some position of that name.

        Raises
        ------
        InvalidInputError
            If no name is left.
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        data = [(x, tuple(items("y", y))) for x, y in fields("data", data, 2)]
        inputs = read_inputs([(x, len(y)) for x, y in data], "data")
        vocabulary = vocabulary_of(template, inputs, min_count)
        copies = _copied(copies, len(alphabet))
        if copies and not any(symbol in copies for x, _ in inputs for symbol in symbols_of(x)):
            copies = None
        n = len(alphabet)
        unused = np.zeros(len(vocabulary) + 1, dtype=np.int64)
        without_pairs = cls(
            alphabet, order, template, vocabulary, Pairs(unused, unused[:0]), copies
        )
        encoded = without_pairs.coded(inputs)
        gold = np.concatenate([alphabet.encode(y, name="y") for _, y in data])
        support = np.unique(kernels.templates.count_pairs(*encoded, gold, n))
        names, symbol = np.divmod(support, n + 1)
        first = np.searchsorted(names, np.arange(len(vocabulary) + 1))
        return cls(alphabet, order, template, vocabulary, Pairs(first, symbol), copies)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the vocabulary, as text."""
        return self.vocabulary.names

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (d,) of w."""
        return (self._ends[-1],)

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the score table of strings of a length given x; w is not validated."""
        single, grams = self.parts(w, x, length)
        table = empty((length, *context_shape(self.alphabet, self.order)))
        table[:] = single.reshape(length, *(1,) * (self.order - 1), -1)
        for gram in grams:
            table += gram
        return table

    def parts(self, w: npt.ArrayLike, x: Any, length: int) -> tuple[FloatArray, list[FloatArray]]:
        """Return the scores of single symbols (l, n) and V_2, ..., V_q, whose sum is the table."""
        encoded = self._encoded(x, positive_integer("length", length))
        return self.emissions(w, encoded), self.grams(self._weights(w))

    def emissions(self, w: npt.ArrayLike, encoded: Encoded) -> FloatArray:
        """Return the scores of single symbols at all positions, (positions, n)."""
        encoded = self._checked_encoding(encoded)
        single = empty((len(encoded.copies), len(self.alphabet)))
        kernels.templates.gather(*encoded, *self.pairs, self._weights(w), single)
        return single

    def grams(self, w: FloatArray) -> list[FloatArray]:
        """Return views of V_2, ..., V_q, (n+1, ..., n+1, n) each."""
        return self._grams(self._weights(w))

    def _grams(self, w: FloatArray) -> list[FloatArray]:
        parts = zip(self._ends[:-1], self._ends[1:], self._blocks, strict=True)
        return [w[start:end].reshape(block) for start, end, block in parts]

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the adjoint; only the weights of the active names and the q-grams change."""
        table = real_array("table", table, (None, *context_shape(self.alphabet, self.order)))
        single = table.sum(axis=tuple(range(1, self.order)))
        self.accumulate_emissions(single, self._encoded(x, len(table)), out)
        total = table.sum(axis=0)
        for r, gram in enumerate(self._grams(out), start=2):
            gram += total.sum(axis=tuple(range(self.order - r)))

    def accumulate_emissions(self, single: FloatArray, encoded: Encoded, out: FloatArray) -> None:
        """Add the adjoint of `emissions` applied to (positions, n)."""
        encoded = self._checked_encoding(encoded)
        shape = (len(encoded.copies), len(self.alphabet))
        table = writable(real_array("single", single, shape))
        sums = output_array("out", out, self.shape)
        kernels.templates.scatter(*encoded, *self.pairs, table, sums)

    def _checked_encoding(self, encoded: Encoded) -> Encoded:
        """Return the arrays as int64; raise if the kernels would read or write outside of them."""
        instance("encoded", encoded, Encoded, "what `encode` returns")
        ids = index_array("ids", encoded.ids, len(self.pairs.first) - 1, (None,))
        copies = index_array("copies", encoded.copies, len(self.alphabet), (None,), lower=-1)
        starts = index_array("starts", encoded.starts, len(ids) + 1, (len(copies) + 1,))
        if (np.diff(starts) < 0).any():
            raise InvalidInputError("starts of the positions descend; give what `encode` returns")
        return Encoded(starts, ids, copies)

    def encode(self, inputs: Sequence[tuple[Any, int]]) -> Encoded:
        """Return the active names and the copies of all positions of outputs (x, l)."""
        return self.coded(read_inputs(inputs))

    def coded(self, inputs: Sequence[tuple[Any, int]]) -> Encoded:
        """Return the same as `encode`, for inputs that have been validated."""
        active = self.vocabulary.active(inputs)
        if not self.copies:
            return Encoded(*active, np.full(len(active.starts) - 1, -1))
        return Encoded(
            *active,
            np.concatenate(
                [np.zeros(0, np.int64), *(self._copies(x, length) for x, length in inputs)]
            ),
        )

    def chosen(self, names: IntArray) -> tuple[Pairs, IntArray]:
        """Return the pairs of some names, renumbered, and the indices of their weights in w.

        The indices of the weights of the q-grams follow those of the pairs.
        """
        first, symbol = self.pairs
        names = index_array("names", names, len(first) - 1, (None,))
        sizes = first[names + 1] - first[names]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        support = np.repeat(first[names] - ends[:-1], sizes) + np.arange(ends[-1])
        return Pairs(ends, symbol[support]), np.concatenate([support, self.gram_support])

    @property
    def gram_support(self) -> IntArray:
        """The indices in w of the weights of bigrams and longer q-grams: int64, ascending.

        Examples
        --------
        >>> import fstgrad as fg
        >>> from fstgrad.learning.template_features import TemplateFeatures
        >>> from fstgrad.learning.templates import Window
        >>> pairs = [("ab", "xy")]
        >>> features = TemplateFeatures.from_pairs(fg.Alphabet("xy"), 2, Window(0, 1), pairs)
        >>> features.gram_support
        array([4, 5, 6, 7, 8, 9])
        """
        return np.arange(self._ends[0], self._ends[-1])

    def _checked(self, pairs: Pairs) -> Pairs:
        """Return pairs as int64; raise unless each name has a range among the symbols."""
        symbol = index_array("pairs.symbol", pairs.symbol, len(self.alphabet) + 1, (None,))
        first = index_array(
            "pairs.first", pairs.first, len(symbol) + 1, (len(self.vocabulary) + 1,)
        )
        if first[0] != 0 or first[-1] != len(symbol) or (np.diff(first) < 0).any():
            raise InvalidInputError(
                f"pairs.first runs from {first[0]} to {first[-1]}; it must ascend from 0 to the "
                f"{len(symbol)} pairs"
            )
        return Pairs(first, symbol)

    def _copies(self, x: Any, length: int) -> IntArray:
        symbols = symbols_of(x)
        if not len(symbols):  # nothing to copy
            return np.full(length, -1)
        centres = (2 * np.arange(length) + 1) * len(symbols) // (2 * length)
        return np.array([self.copies.get(symbols[i], -1) for i in centres.tolist()], dtype=np.int64)

    def _weights(self, w: npt.ArrayLike) -> FloatArray:
        return writable(real_array("w", w, self.shape))

    def _encoded(self, x: Sequence[str], length: int) -> Encoded:
        key = (x if isinstance(x, Tagged) else symbol_strings("x", (x,))[0], length)
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = self.encode([(x, length)])
        return self._kept[key]


def _copied(copies: Mapping[str, int] | None, n: int) -> dict[str, int]:
    """Return the symbol of y, 0 .. n - 1, that is the copy of each symbol of x."""
    if copies is None:
        return {}
    instance("copies", copies, Mapping, "a mapping of symbols of x to ids of y")
    for symbol, copy in copies.items():
        if not is_integer(copy) or not 0 <= copy < n:
            raise InvalidInputError(
                f"the copy of {symbol!r} is {copy!r}; give an id of y, 0 .. {n - 1}"
            )
    return {symbol: int(copy) for symbol, copy in copies.items()}
