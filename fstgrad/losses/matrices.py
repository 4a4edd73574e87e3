"""Substitution matrices in the text format of NCBI (BLOSUM, PAM, NUC.4.4)."""

import os
import pathlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.axis_labels import check_no_epsilon, over_symbols
from fstgrad.core.checks import FloatArray, direction_array, instance, path_name
from fstgrad.core.errors import AlphabetError, InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.io import read_lines, to_number

_FOLDER = pathlib.Path(__file__).parent / "ncbi"
# the NCBI matrices shipped with fstgrad
MATRICES = (
    "BLOSUM45", "BLOSUM50", "BLOSUM62", "BLOSUM80", "BLOSUM90", "PAM30", "PAM70", "PAM250", "NUC44",
)  # fmt: skip
_GAPS = "gap_open= (in SmithWaterman also insert= and delete=)"
Matrix = str | os.PathLike[str] | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class SubstitutionMatrix:
    """Scores of aligning symbol pairs; higher means more alike.

    Attributes
    ----------
    rows, columns : tuple of str
        The symbols of the rows (hypothesis) and of the columns (target).
    scores : (rows, columns) float64, read-only
        scores[i, j] of aligning rows[i] with columns[j]; finite.
    name : str
        Its source, for error messages.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    scores: FloatArray
    name: str = "matrix"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check and copy the scores, and make them read-only."""
        for name in ("rows", "columns"):
            symbols = tuple(items(name, getattr(self, name)))
            for symbol in symbols:
                instance(f"one of {name}", symbol, str, "a str")
            object.__setattr__(self, name, symbols)
        instance("name", self.name, str, "a str")
        shape = len(self.rows), len(self.columns)
        object.__setattr__(self, "scores", direction_array("scores", self.scores, shape).copy())
        self.scores.flags.writeable = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SubstitutionMatrix":
        """Return the matrix in a file in NCBI format.

        The format: comment lines that start with `#`, a line with the column symbols, then one line
        per row, its symbol and its scores.

        Parameters
        ----------
        path : path or str
            A file, or the name of a shipped matrix (`MATRICES`), such as BLOSUM62 or NUC.4.4, in
            upper or lower case.  A file with that name has priority.

        Raises
        ------
        OSError
            There is no such file and no such matrix.
        InvalidInputError
            A row has the wrong number of scores, a score is not a finite number, a symbol is
            repeated, or there are no scores.
        """
        shipped = shipped_matrix(path)
        lines = [
            (number, line.split())
            for number, line in enumerate(read_lines(shipped or path), start=1)
            if line.strip() and not line.startswith("#")
        ]
        if len(lines) < 2:
            raise InvalidInputError(f"{path} has no scores; give a matrix in NCBI text format")
        columns = tuple(lines[0][1])
        scores = empty((len(lines) - 1, len(columns)))
        for row, (number, fields) in zip(scores, lines[1:], strict=True):
            try:
                row[:] = [to_number(field) for field in fields[1:]]
            except ValueError as error:
                raise InvalidInputError(
                    f"{path}:{number}: {len(fields) - 1} scores after {fields[0]!r} for "
                    f"{len(columns)} columns ({error}); give one number for each column"
                ) from error
        rows = tuple(fields[0] for _, fields in lines[1:])
        for symbols in (rows, columns):
            if len(set(symbols)) < len(symbols):
                raise InvalidInputError(f"{path} has a symbol twice in {' '.join(symbols)}")
        return cls(rows, columns, direction_array(f"scores of {path}", scores), path_name(path))

    def over(self, alphabet: Alphabet) -> FloatArray:
        """Return the scores (n, n) float64 of the symbols of an alphabet, in its order.

        Raises
        ------
        AlphabetError
            The matrix lacks a symbol of the alphabet, or has one that stands for no symbol.
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        for symbols in (self.rows, self.columns):
            check_no_epsilon(self.name, symbols, alphabet.symbols, _GAPS)
        missing = [s for s in alphabet if s not in self.rows or s not in self.columns]
        if missing:
            raise AlphabetError(
                f"{self.name} has no score for {' '.join(missing)}; it has "
                f"{' '.join(self.rows)}. Leave these symbols out of the alphabet or write them as "
                "the matrix does"
            )
        row = [self.rows.index(symbol) for symbol in alphabet]
        column = [self.columns.index(symbol) for symbol in alphabet]
        return self.scores[np.ix_(row, column)]


def shipped_matrix(path: str | os.PathLike[str]) -> pathlib.Path | None:
    """Return the file of a shipped matrix; None if `path` is another name or an existing file."""
    name = path_name(path)
    plain = name.upper().replace(".", "")
    if plain not in MATRICES or os.path.exists(name):
        return None
    return _FOLDER / ("NUC.4.4" if plain == "NUC44" else plain)


def alignment_scores(matrix: Matrix | SubstitutionMatrix, alphabet: Alphabet) -> FloatArray:
    """Return the scores (n, n) of a matrix, given by its name, its file, an object or an array."""
    if isinstance(matrix, str | os.PathLike):
        matrix = SubstitutionMatrix.read(matrix)
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    if isinstance(matrix, SubstitutionMatrix):
        return matrix.over(alphabet)
    table = over_symbols("matrix", matrix, alphabet.symbols, _GAPS)
    return direction_array("matrix", table, (len(alphabet), len(alphabet))).copy()
