"""Features: linear maps from a weight vector w to the score table of a string, and back.

A feature map psi assigns a vector psi(x, z, s) to every q-gram z that ends at position s, and

    score[s, z] = w . psi(x, z, s),        Psi(x, y) = sum_s psi(x, y[s-q+1 .. s], s).

The table is linear in w.  If G = dF/dscores is the gradient of a function F with respect to the
table, the gradient with respect to w is therefore the adjoint, sum_{s, z} G[s, z] psi(x, z, s).
For the softmax margin, G = Q - t(y_i), and the adjoint is the expected features minus those of the
gold string.

Index
-----
- `Features` : the protocol, `scores(w, x, length)` and `accumulate(table, x, out)`.
- `QGramCounts` : psi counts q-grams, w in R^(n^q) (the features of the paper's experiment).
- `PositionalQGrams` : one weight for each q-gram at each position.
- `InputFeatures` : any psi(x, z, s), from a function or a sparse matrix.
- `zero_table` : the table of scores 0.

Tables have the shape (l, n+1, ..., n+1, n) with q - 1 context axes; index n of a context axis means
"before the start". Symbols are indexed by ids, not by labels.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    FloatArray,
    call_function,
    instance,
    is_integer,
    output_array,
    positive_integer,
    real_array,
    real_number,
    sparse_matrix,
)
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.io import memory_limit

SparseMatrix: TypeAlias = Any  # scipy.sparse, which `import fstgrad` does not load
Psi = Callable[[Any, tuple[str | None, ...], int], Mapping[int, float] | npt.ArrayLike]


class Features(Protocol):
    """A linear map w -> score table, and its adjoint.

    A class of features derives from this one and defines `shape`, `scores` and `accumulate`.

    Attributes
    ----------
    alphabet : Alphabet
        The n symbols of the strings.
    shape : tuple of int
        The shape of w and of every gradient with respect to w.
    """

    alphabet: Alphabet

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.alphabet):,} symbols, shape {self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of w."""
        ...

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the score table, log-weights in nats, of the strings of a length given x."""
        ...

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the adjoint applied to a table to `out`, which is shaped like w.

        The adjoint g of a table satisfies <table, scores(w, x, l)> = <g, w>. If x has few features,
        only their entries of `out` change, and no array of the size of w is allocated.
        """
        ...

    def gradient(self, table: FloatArray, x: Any) -> FloatArray:
        """Return the adjoint applied to a table, as a new array."""
        out = np.zeros(self.shape)
        self.accumulate(table, x, out)
        return out


def context_shape(alphabet: Alphabet, order: int) -> tuple[int, ...]:
    """Return the shape (n+1, ..., n+1, n) of one position of a score table."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    return (len(alphabet) + 1,) * (order - 1) + (len(alphabet),)


def zero_table(alphabet: Alphabet, order: int, length: int) -> FloatArray:
    """Return a score table of zeros, (l, n+1, ..., n+1, n)."""
    return np.zeros((length, *context_shape(alphabet, order)))


class QGramCounts(Features):
    """The number of times each q-gram occurs in y, with the same weights at every position.

    Psi(x, y)[z] = #{s : y[s-q+1 .. s] = z}, w : (n,) * q.  As in the paper, only complete q-grams
    count: no q-gram ends at the first q - 1 positions, whose score is 0.  With `boundary=True`, the
    contexts before the start are additional symbols, w has the shape (n+1, ..., n+1, n), and every
    position has a weight.

    The cost is O(l n^q) in both directions; `scores` returns a read-only view if possible.

    Parameters
    ----------
    alphabet : Alphabet of n symbols
    order : int
        q >= 1.
    boundary : bool
        Whether q-grams that begin before the start have weights.

    References
    ----------
    Cortes, Kuznetsov, Mohri, Storcheus, Yang (2018): the bigram features of the
    experiments, |Delta|^2 weights.

    Examples
    --------
    >>> abc = Alphabet("ab")
    >>> features = QGramCounts(abc, order=2)
    >>> features.scores([[1.0, 2.0], [3.0, 4.0]], None, length=2)[1]
    array([[1., 2.],
           [3., 4.],
           [0., 0.]])
    >>> features.counts("abb")
    array([[0., 1.],
           [0., 1.]])
    """

    def __init__(self, alphabet: Alphabet, order: int = 2, *, boundary: bool = False) -> None:
        self.alphabet = alphabet
        self.order = positive_integer("order", order)
        instance("boundary", boundary, bool | np.bool_, "True or False")
        self.boundary = bool(boundary)
        self._position = context_shape(alphabet, order)
        # Index n of a context is cut off where q-grams that begin before the start do not count.
        contexts = slice(None) if boundary else slice(len(alphabet))
        self._counted = (contexts,) * (order - 1) + (slice(None),)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of w."""
        return self._position if self.boundary else (len(self.alphabet),) * self.order

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the score table of strings of a length; x is ignored."""
        level = np.zeros(self._position)
        level[self._counted] = real_array("w", w, self.shape)
        return np.broadcast_to(level, (positive_integer("length", length), *self._position))

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the sum of the table over positions, for complete q-grams only."""
        array = real_array("table", table, (None, *self._position))
        out = output_array("out", out, self.shape)
        out += array.sum(axis=0)[self._counted]

    def counts(self, y: str | Sequence[str]) -> FloatArray:
        """Return Psi(x, y), the q-gram counts of one string."""
        ids = self.alphabet.encode(y, name="y")
        table = zero_table(self.alphabet, self.order, len(ids))
        padded = np.concatenate([np.full(self.order - 1, len(self.alphabet)), ids])
        for s in range(len(ids)):
            table[(s, *padded[s : s + self.order])] = 1
        return self.gradient(table, None)


class PositionalQGrams(Features):
    """One indicator for each q-gram at each position: w : (max_length, n+1, ..., n+1, n).

    Parameters
    ----------
    alphabet : Alphabet of n symbols
    order : int
        q >= 1.
    max_length : int
        The longest string that has weights.

    Examples
    --------
    >>> features = PositionalQGrams(Alphabet("ab"), order=1, max_length=3)
    >>> features.gradient(np.ones((2, 2)), x=None)
    array([[1., 1.],
           [1., 1.],
           [0., 0.]])
    """

    def __init__(self, alphabet: Alphabet, order: int = 2, *, max_length: int) -> None:
        self.alphabet = alphabet
        self.order = positive_integer("order", order)
        self.max_length = positive_integer("max_length", max_length)
        self._position = context_shape(alphabet, order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of w."""
        return (self.max_length, *self._position)

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the first `length` positions of w; x is ignored."""
        self._check_length(positive_integer("length", length))
        return real_array("w", w, self.shape)[:length]

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the table to its positions."""
        array = real_array("table", table, (None, *self._position))
        self._check_length(len(array))
        output_array("out", out, self.shape)[: len(array)] += array

    def _check_length(self, length: int) -> None:
        if length > self.max_length:
            raise InvalidInputError(
                f"length is {length}; these features have weights for positions below "
                f"max_length={self.max_length}: give a larger max_length"
            )


class InputFeatures(Features):
    """Features of the input: psi(x, z, s) in R^d as the rows of a sparse matrix.

    score table = (matrix(x, length) @ w) in the shape of the table; w : (d,).

    Parameters
    ----------
    alphabet : Alphabet of n symbols
    order : int
        q >= 1.
    size : int
        d, the number of features.
    matrix : callable (x, length) -> scipy sparse matrix (length * (n+1)^(q-1) * n, d)
        The row of (s, z) is its index in the flat table.  The function is called for every `scores`
        and every `gradient`; wrap it in `functools.lru_cache` if inputs repeat.

    Examples
    --------
    >>> def same_letter(x, z, s):
    ...     return {0: float(s < len(x) and z[-1] == x[s])}
    >>> features = InputFeatures.from_function(Alphabet("ab"), 1, size=1, psi=same_letter)
    >>> features.scores([2.0], "ba", length=2)
    array([[0., 2.],
           [2., 0.]])
    >>> features.gradient(np.ones((2, 2)), "ba")
    array([2.])
    """

    def __init__(
        self,
        alphabet: Alphabet,
        order: int,
        *,
        size: int,
        matrix: Callable[[Any, int], SparseMatrix],
    ) -> None:
        self.alphabet = alphabet
        self.order = positive_integer("order", order)
        self.size = positive_integer("size", size)
        if not callable(matrix):
            raise InvalidInputError(f"matrix is {matrix!r}; give a function (x, length) -> matrix")
        self.matrix = matrix
        self._position = context_shape(alphabet, order)

    @classmethod
    def from_function(
        cls, alphabet: Alphabet, order: int, *, size: int, psi: Psi
    ) -> "InputFeatures":
        """Return the features of a function psi(x, z, s).

        Parameters
        ----------
        psi : callable (x, z, s) -> {feature: value} or array (size,)
            z is a tuple of q symbols, with None for each symbol before the start; s counts from 0.
            The function is called for every q-gram that can end at s: O(l n^q) calls for each x.
        """
        order = positive_integer("order", order)
        if not callable(psi):
            raise InvalidInputError(f"psi is {psi!r}; give a function (x, z, s)")
        return cls(
            alphabet,
            order,
            size=size,
            matrix=lambda x, l: _tabulate(psi, x, l, alphabet, order, size),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (d,) of w."""
        return (self.size,)

    def scores(self, w: npt.ArrayLike, x: Any, length: int) -> FloatArray:
        """Return the table of w . psi(x, z, s)."""
        shape = (positive_integer("length", length), *self._position)
        if (needed := 8 * math.prod(shape)) > memory_limit():
            raise MemoryLimitError(
                f"length is {length}, whose table needs {needed:,} bytes, more than half of the "
                "memory; give a shorter string"
            )
        table: FloatArray = self._rows(x, length) @ real_array("w", w, self.shape)
        return table.reshape(shape)

    def accumulate(self, table: FloatArray, x: Any, out: FloatArray) -> None:
        """Add the sum over s, z of table[s, z] psi(x, z, s)."""
        array = real_array("table", table, (None, *self._position))
        out = output_array("out", out, self.shape)
        out += self._rows(x, len(array)).T @ array.ravel()

    def _rows(self, x: Any, length: int) -> SparseMatrix:
        rows = self.matrix(x, length)
        wanted = (length * int(np.prod(self._position)), self.size)
        if rows.shape != wanted:
            raise InvalidInputError(
                f"matrix(x, {length}) has shape {rows.shape}; the shape must be {wanted}: a row "
                "for each entry of the score table, a column for each feature"
            )
        return sparse_matrix(f"matrix(x, {length})", rows)


def _tabulate(
    psi: Psi, x: Any, length: int, alphabet: Alphabet, order: int, size: int
) -> SparseMatrix:
    """Return psi(x, z, s) for every q-gram that can end at s, as a sparse matrix."""
    from scipy.sparse import csr_array

    shape = (length, *context_shape(alphabet, order))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for s in range(length):
        absent = max(0, order - 1 - s)
        for ids in itertools.product(range(len(alphabet)), repeat=order - absent):
            z = (None,) * absent + tuple(alphabet.symbols[i] for i in ids)
            row = int(np.ravel_multi_index((s, *(len(alphabet),) * absent, *ids), shape))
            for feature, value in _entries(call_function("psi", psi, x, z, s), size):
                rows.append(row)
                columns.append(feature)
                values.append(value)
    return csr_array((values, (rows, columns)), shape=(int(np.prod(shape)), size))


def _entries(vector: Mapping[int, float] | npt.ArrayLike, size: int) -> list[tuple[int, float]]:
    """Return the non-zero (feature, value) of what psi returned."""
    if isinstance(vector, Mapping):
        for feature in vector:
            if not is_integer(feature) or not 0 <= feature < size:
                raise InvalidInputError(
                    f"psi gave the feature {feature}; features run from 0 to {size - 1}"
                )
        numbers = {i: int(v) if isinstance(v, bool | np.bool_) else v for i, v in vector.items()}
        return [(int(i), real_number("psi(x, z, s)", value)) for i, value in numbers.items()]
    dense = real_array("psi(x, z, s)", vector, (size,))
    return [(int(i), float(dense[i])) for i in np.flatnonzero(dense)]
