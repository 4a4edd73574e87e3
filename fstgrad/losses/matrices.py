"""Substitution matrices in the text format of NCBI (BLOSUM, PAM, NUC.4.4)."""

import os
import pathlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import Alphabet
from fstgrad.checks import FloatArray, instance, items, path_name, real_array
from fstgrad.errors import AlphabetError, InvalidInputError
from fstgrad.io import read_lines
from fstgrad.summary import short_repr

_FOLDER = pathlib.Path(__file__).parent / "ncbi"
# the tables of NCBI that come with fstgrad
MATRICES = (
    "BLOSUM45", "BLOSUM50", "BLOSUM62", "BLOSUM80", "BLOSUM90", "PAM30", "PAM70", "PAM250", "NUC44",
)  # fmt: skip
Matrix = str | os.PathLike[str] | npt.ArrayLike


@dataclass(frozen=True)
class SubstitutionMatrix:
    """Scores of aligning a row's symbol with a column's; higher is more alike.

    Attributes
    ----------
    rows, columns : tuple of str
    scores : (rows, columns) float64, read-only
    name : str
        Where it came from; used in errors.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    scores: FloatArray
    name: str = "matrix"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Make the scores read-only."""
        for name in ("rows", "columns"):
            object.__setattr__(self, name, tuple(items(name, getattr(self, name))))
        shape = len(self.rows), len(self.columns)
        object.__setattr__(self, "scores", real_array("scores", self.scores, shape).copy())
        self.scores.flags.writeable = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SubstitutionMatrix":
        """Read the NCBI format: lines of `#` comments, the column symbols, then one row per line.

        `path` may also be one of `MATRICES`, such as BLOSUM62 or NUC.4.4, in any case; a file of
        that name comes first.

        Raises
        ------
        OSError
            No such file and no such matrix.
        InvalidInputError
            A row has the wrong number of scores or one that is not a number, or a symbol is
            repeated.
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
        scores = np.empty((len(lines) - 1, len(columns)))
        for row, (number, fields) in zip(scores, lines[1:], strict=True):
            try:
                row[:] = [float(field) for field in fields[1:]]
            except ValueError as error:
                raise InvalidInputError(
                    f"{path}:{number}: {len(fields) - 1} scores after {fields[0]!r} for "
                    f"{len(columns)} columns ({error}); give one number for each column"
                ) from error
        rows = tuple(fields[0] for _, fields in lines[1:])
        for symbols in (rows, columns):
            if len(set(symbols)) < len(symbols):
                raise InvalidInputError(f"{path} has a symbol twice in {' '.join(symbols)}")
        return cls(rows, columns, real_array(f"scores of {path}", scores), str(path))

    def over(self, alphabet: Alphabet) -> FloatArray:
        """Return the (n, n) scores of the symbols of an alphabet.

        Raises
        ------
        AlphabetError
            The matrix lacks a symbol of the alphabet.
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
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
    """Return the file of a matrix that comes with fstgrad; None if a name means another."""
    name = path_name(path)
    plain = name.upper().replace(".", "")
    if plain not in MATRICES or os.path.exists(name):
        return None
    return _FOLDER / ("NUC.4.4" if plain == "NUC44" else plain)


def alignment_scores(matrix: Matrix | SubstitutionMatrix, alphabet: Alphabet) -> FloatArray:
    """Return (n, n) scores: of a name, a file in NCBI format, a matrix that was read, an array."""
    if isinstance(matrix, str | os.PathLike):
        matrix = SubstitutionMatrix.read(matrix)
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    if isinstance(matrix, SubstitutionMatrix):
        return matrix.over(alphabet)
    return real_array("matrix", matrix, (len(alphabet), len(alphabet)))
