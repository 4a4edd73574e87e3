"""Alphabets: symbols in a fixed order, and sequences as integer ids.

Symbol i of n has the id i, 0 <= i < n, in every array of fstgrad, and the label i + 1 in OpenFst,
where label 0 is epsilon.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.axis_labels import check_mask
from fstgrad.core.checks import IntArray, index_array, instance, is_integer
from fstgrad.core.errors import AlphabetError, InvalidInputError, UnknownSymbolError
from fstgrad.core.sequences import check_container, items, symbol_strings
from fstgrad.core.uninitialized import empty

EPSILON_SYMBOL = "<eps>"  # the empty string in files and symbol tables
_LONGEST_RANGE = 2**26
_INT64 = np.dtype(np.int64)
# the named alphabets: amino acids, nucleotides, English letters
STANDARD = {
    "protein": "ACDEFGHIKLMNPQRSTVWY",
    "dna": "ACGT",
    "rna": "ACGU",
    "latin": "abcdefghijklmnopqrstuvwxyz",
}
SequenceLike = str | Sequence[str] | Sequence[int] | npt.NDArray[np.integer]


class Alphabet:
    """A finite, ordered set of distinct symbols.

    Parameters
    ----------
    symbols : str or iterable of str
        The symbols in order: the characters of a str, or non-empty strings.  A set has no order.

    Raises
    ------
    AlphabetError
        There is no symbol, or a symbol is repeated, empty, reserved ("<eps>") or not a str.

    Examples
    --------
    >>> abc = Alphabet("acgt")
    >>> abc.encode("gat")
    array([2, 0, 3])
    >>> abc.decode([2, 0, 3])
    ['g', 'a', 't']
    """

    def __init__(self, symbols: str | Iterable[str]) -> None:
        try:
            self.symbols: tuple[str, ...] = tuple(
                str(symbol) if isinstance(symbol, str) else symbol
                for symbol in items("symbols", symbols)
            )
        except InvalidInputError as error:
            raise AlphabetError(str(error)) from error
        for symbol in self.symbols:
            if not isinstance(symbol, str) or symbol in ("", EPSILON_SYMBOL):
                raise AlphabetError(
                    f"symbols has {symbol!r}; a symbol is a non-empty str other than "
                    f"{EPSILON_SYMBOL!r}"
                )
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if not self.symbols:
            raise AlphabetError("symbols is empty; an alphabet needs at least one symbol")
        if len(self._ids) < len(self.symbols):
            repeated = next(s for i, s in enumerate(self.symbols) if self._ids[s] != i)
            raise AlphabetError(f"symbols has {repeated!r} more than once; list each symbol once")

    @classmethod
    def from_sequences(cls, sequences: Iterable[str | Sequence[str]]) -> "Alphabet":
        """Return the sorted alphabet of all symbols in `sequences`.

        Raises
        ------
        AlphabetError
            There is no symbol, or a symbol is not a str or is reserved.
        """
        try:
            found = symbol_strings("sequences", sequences)
        except InvalidInputError as error:
            raise AlphabetError(str(error)) from error
        return cls(sorted(set(itertools.chain.from_iterable(found))))

    @classmethod
    def named(cls, name: str) -> "Alphabet":
        """Return a standard alphabet: protein, dna or rna (capital letters), or latin (a to z).

        Raises
        ------
        AlphabetError
            No alphabet has this name.

        Examples
        --------
        >>> Alphabet.named("dna")
        Alphabet('ACGT')
        """
        if not isinstance(name, str) or name not in STANDARD:
            raise AlphabetError(f"name is {name!r}; choose one of {', '.join(STANDARD)}")
        return cls(STANDARD[name])

    @cached_property
    def is_characters(self) -> bool:
        """Whether every symbol is one character; if so, a str is a sequence of symbols."""
        return all(len(symbol) == 1 for symbol in self.symbols)

    def __len__(self) -> int:
        return len(self.symbols)

    def __iter__(self) -> Iterator[str]:
        return iter(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return isinstance(symbol, str) and symbol in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alphabet) and self.symbols == other.symbols

    def __hash__(self) -> int:
        return hash(self.symbols)

    def __repr__(self) -> str:
        shown = "".join(self.symbols) if self.is_characters else list(self.symbols)
        text = f"Alphabet({shown!r})"
        return text if len(text) <= 120 else f"Alphabet of {len(self):,} symbols: {self._preview()}"

    def encode(self, sequence: SequenceLike, *, name: str = "sequence") -> IntArray:
        """Return the ids of a sequence as an int64 array of shape (length,).

        Parameters
        ----------
        sequence : str, sequence of symbols, or sequence or (length,) integer array of ids
            Each character of a str is a symbol, unless the str has a longer symbol of the alphabet.
        name : str
            The name of the sequence in errors.

        Raises
        ------
        AlphabetError
            A symbol or an id is not in the alphabet, or `sequence` has another type or shape.
        """
        if type(sequence) is np.ndarray and sequence.dtype is _INT64:
            return self._checked_ids(sequence.astype(np.int64), name)
        if type(sequence) is list and set(map(type, sequence)) == {int}:
            with contextlib.suppress(OverflowError):  # raised below, with the number of bits
                return self._checked_ids(np.array(sequence, dtype=np.int64), name)
        if type(sequence) in (str, list, tuple):
            with contextlib.suppress(TypeError, ValueError):  # an unknown symbol, or no hash
                ids = np.array([*map(self._ids.get, sequence)], dtype=np.int64)
                if type(sequence) is not str or not self._is_ambiguous(sequence):
                    return ids
        return self._read(sequence, name)

    def _read(self, sequence: Any, name: str) -> IntArray:
        """Return the ids of a sequence of any kind; see `encode`."""
        if isinstance(sequence, str) and not self.is_characters:
            self._refuse_text(sequence, name)
        if isinstance(sequence, range) and len(sequence) > _LONGEST_RANGE:
            raise AlphabetError(f"{name} is {sequence!r}, too many ids; give a shorter sequence")
        if not isinstance(sequence, str) and hasattr(sequence, "__array__"):
            sequence = self._as_array(sequence, name)
            if sequence.dtype.kind in "iu" and (sequence <= 2**63 - 1).all():
                return self._checked_ids(sequence.astype(np.int64), name)
        try:
            if not isinstance(sequence, np.ndarray) and not _is_sized(sequence):
                raise InvalidInputError(f"{name} is {sequence!r}; give a str, symbols or ids")
            symbols = items(name, sequence)
        except InvalidInputError as error:
            raise AlphabetError(str(error)) from error
        if all(is_integer(symbol) for symbol in symbols):
            largest = max(map(abs, map(int, symbols)), default=0)
            if largest >= 2**63:
                raise AlphabetError(
                    f"{name} has an id of {largest.bit_length()} bits; ids of this alphabet run "
                    f"from 0 to {len(self) - 1}"
                )
            return self._checked_ids(np.array(symbols, dtype=np.int64), name)
        ids = empty(len(symbols), dtype=np.int64)
        for position, symbol in enumerate(symbols):
            number = self._ids.get(symbol) if isinstance(symbol, str) else None
            if symbol in ("", EPSILON_SYMBOL):
                raise UnknownSymbolError(
                    f"{name}[{position}] is {symbol!r}, which no alphabet has; leave it out, and "
                    "split sentences with .split() (.split(' ') gives '' between two spaces)"
                )
            if number is None:
                raise UnknownSymbolError(
                    f"{name}[{position}] is {symbol!r}, which is not in the alphabet of "
                    f"{len(self)} symbols ({self._preview()}); add it to the alphabet or "
                    "correct the sequence"
                )
            ids[position] = number
        return ids

    def _as_array(self, sequence: Any, name: str) -> Any:
        """Return an array or a column of another library as an array with one axis."""
        try:
            check_container(name, sequence)
            check_mask(name, sequence)
            array = np.asarray(sequence)
        except InvalidInputError as error:
            raise AlphabetError(str(error)) from error
        except Exception as error:  # a foreign __array__ may raise anything
            raise AlphabetError(f"{name} is a {type(sequence).__name__}; give ids") from error
        if array.ndim != 1:
            raise AlphabetError(f"{name} has shape {array.shape}; a sequence is 1-dimensional")
        if array.dtype.kind not in "iuUTO" and array.size:
            raise AlphabetError(f"{name} has dtype {array.dtype}; give a str, symbols or ids")
        return array

    def _is_ambiguous(self, text: str) -> bool:
        """Return whether a text of known characters has a longer symbol too."""
        return any(symbol in text for symbol in self._spelled)

    @cached_property
    def _spelled(self) -> tuple[str, ...]:
        """The symbols of several characters, all of which are symbols."""
        return tuple(s for s in self.symbols if len(s) > 1 and all(c in self._ids for c in s))

    def _refuse_text(self, text: str, name: str) -> None:
        """Raise AlphabetError: a text is characters, and this alphabet has longer symbols."""
        word = next(symbol for symbol in self.symbols if len(symbol) > 1)
        raise AlphabetError(
            f"{name} is the str {text[:40]!r}, but the alphabet has symbols of several characters "
            f"such as {word!r}; give a list of symbols, such as {name}.split() for words"
        )

    def encode_characters(self, text: str) -> IntArray | None:
        """Return the ids (int64) of a text's characters; None if one is not in the alphabet.

        Faster than `encode` for long texts.  All symbols must be characters (`is_characters`).
        """
        instance("text", text, str, "a str")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        if codes.size and codes.max() >= len(self._id_of_code):
            return None
        ids = self._id_of_code[codes]
        return None if (ids < 0).any() else ids

    @cached_property
    def _id_of_code(self) -> IntArray:
        """The id of each code point up to the largest symbol; -1 if it is not a symbol."""
        codes = [ord(symbol) for symbol in self.symbols]
        table = np.full(max(codes) + 1, -1, dtype=np.int64)
        table[codes] = np.arange(len(codes))
        return table

    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer]) -> list[str]:
        """Return the symbols of `ids`, a sequence or (length,) array of integers.

        Raises
        ------
        AlphabetError
            An id is not in the alphabet, or the array does not have one axis.
        """
        ready = type(ids) is np.ndarray and ids.dtype is _INT64
        array: Any = ids if ready else index_array("ids", ids, 2**62, lower=-(2**62))
        return [self.symbols[i] for i in self._checked_ids(array, "ids").tolist()]

    def _checked_ids(self, ids: IntArray, name: str) -> IntArray:
        if ids.ndim != 1:
            raise AlphabetError(f"{name} has shape {ids.shape}; a sequence of ids is 1-dimensional")
        # as uint64, negative ids are large
        if ids.size and np.maximum.reduce(ids.view(np.uint64)) >= len(self):
            bad = np.flatnonzero((ids < 0) | (ids >= len(self)))
            raise AlphabetError(
                f"{name}[{bad[0]}] is {ids[bad[0]]}; ids of this alphabet run from 0 to "
                f"{len(self) - 1}"
            )
        return ids

    def _preview(self, most: int = 10) -> str:
        first = (symbol[:16] for symbol in self.symbols[:most])
        shown = " ".join(symbol if symbol.split() == [symbol] else repr(symbol) for symbol in first)
        return shown if len(self) <= most else shown + " ..."


def _is_sized(sequence: object) -> bool:
    """Return whether `len` and `iter` work."""
    try:
        return len(sequence) >= 0 and iter(sequence) is not None  # type: ignore[arg-type, call-overload]
    except (TypeError, ValueError):  # no length, or a negative one
        return False


class WordAlphabet(Alphabet):
    """An alphabet of words: a str is a sentence, split at white space.

    Equal to an `Alphabet` of the same symbols.
    """

    is_characters = False

    def encode(self, sequence: SequenceLike, *, name: str = "sequence") -> IntArray:
        """Return the ids of the words of a str, or of a sequence as `Alphabet.encode` does.

        Raises
        ------
        AlphabetError
            A word is not in the alphabet, or as in `Alphabet.encode`.
        """
        words = sequence.split() if isinstance(sequence, str) else sequence
        try:
            return super().encode(words, name=name)
        except AlphabetError as error:
            word = self._word_of_characters(words)
            if word is None:
                raise
            raise AlphabetError(
                f"{name} has the word {word!r}, but the alphabet has characters; make the alphabet "
                "from words: give Alphabet.from_sequences([s.split() for s in sentences]), or use "
                "CharacterErrorRate"
            ) from error

    def _word_of_characters(self, words: Any) -> str | None:
        """Return the first unknown word if all symbols are characters, otherwise None."""
        if any(len(symbol) > 1 for symbol in self.symbols) or not isinstance(words, list | tuple):
            return None
        unknown = (word for word in words if isinstance(word, str) and word not in self._ids)
        return next((word for word in unknown if len(word) > 1), None)
