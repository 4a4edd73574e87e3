"""Losses from alignments of biological sequences, local and global, with rewards for matches."""

from functools import cached_property
from typing import Literal

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import direction_array, instance, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.losses import transducers
from fstgrad.losses.matrices import Matrix, SubstitutionMatrix, alignment_scores
from fstgrad.losses.pairwise import AffineScores, PairLoss, affine_scores, pair_loss
from fstgrad.losses.transducer import TransducerLoss


class SmithWaterman(TransducerLoss):
    """Smith-Waterman local alignment; the loss is minus the score, so it is never positive.

    L(y, y_i) is the least total cost over all substrings of y and y_i and their alignments; the
    empty alignment costs 0.  There are two forms:

    - linear gaps, without `gap_open`: an aligned pair costs `match` or `substitute`, any other
      symbol `insert` or `delete`; a negative cost is a reward;
    - affine gaps, with `gap_open`: an aligned pair costs minus its score in `matrix` (without a
      matrix, `match` or `substitute`), and a gap of k symbols costs
      gap_open + (k - 1) gap_extend.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    match, substitute, insert, delete : float
        Costs in nats of the linear form; negative ones are rewards.
    matrix : name or path, SubstitutionMatrix or (n, n) array, optional
        Scores in nats; higher means more alike.  A name such as "BLOSUM62", or a file in NCBI text
        format.  Needs `gap_open`.
    gap_open, gap_extend : float, optional
        Costs >= 0 in nats of the first and of each further symbol of a gap.  By default
        `gap_extend` is `gap_open`.

    Raises
    ------
    InvalidInputError
        A cost is not finite, a gap cost is negative, or options of both forms are combined.
    AlphabetError
        The matrix lacks a symbol of the alphabet.

    References
    ----------
    Smith, Waterman (1981); affine gaps: Gotoh (1982), see `transducers.alignment_transducer`.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> SmithWaterman(Alphabet("acgt"))("ggacgg", "tact")
    -4.0
    >>> affine = SmithWaterman(Alphabet("acgt"), match=-5, substitute=4, gap_open=3, gap_extend=1)
    >>> affine("acgtacgt", "acgcgt")  # six matches and a gap of two: 6 * 5 - (3 + 1)
    -26.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        match: float = -2.0,
        substitute: float = 1.0,
        insert: float = 1.0,
        delete: float = 1.0,
        *,
        matrix: Matrix | SubstitutionMatrix | None = None,
        gap_open: float | None = None,
        gap_extend: float | None = None,
    ) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        match, substitute, insert, delete = (
            float(direction_array(name, value, ()))
            for name, value in (
                ("match", match), ("substitute", substitute), ("insert", insert),
                ("delete", delete),
            )
        )  # fmt: skip
        if matrix is not None and (match, substitute) != (-2.0, 1.0):
            raise InvalidInputError(
                f"match and substitute are {match:g} and {substitute:g}, and the matrix gives "
                "both; leave them out"
            )
        if gap_open is not None and (insert, delete) != (1.0, 1.0):
            raise InvalidInputError(
                f"insert and delete are {insert:g} and {delete:g}, and gap_open and gap_extend are "
                "the costs of gaps; leave them out"
            )
        plain = np.where(np.eye(len(alphabet)) == 1, match, substitute).astype(np.float64)
        costs = plain if matrix is None else -alignment_scores(matrix, alphabet)
        if gap_open is not None:
            fst = transducers.alignment_transducer.arrays(
                alphabet,
                costs,
                gap_open=gap_open,
                gap_extend=gap_open if gap_extend is None else gap_extend,
                free_ends="local",
                arc_type="log64",
            )
        elif matrix is None and gap_extend is None:
            fst = transducers.smith_waterman_transducer.arrays(
                alphabet,
                match=match,
                substitute=substitute,
                insert=insert,
                delete=delete,
                arc_type="log64",
            )
        else:
            raise InvalidInputError(
                "gap_open is missing; give it with matrix and gap_extend (EMBOSS uses 10 and 0.5)"
            )
        super().__init__(fst, alphabet)
        self._affine: AffineScores | None = None
        if gap_open is not None:
            extend = gap_open if gap_extend is None else gap_extend
            self._affine = affine_scores(-np.asarray(costs), gap_open, extend, "local")
        elif insert == delete:
            scores = np.where(np.eye(len(alphabet)) == 1, -match, -substitute)
            self._affine = affine_scores(scores, insert, insert, "local")

    @cached_property
    def _pair_loss(self) -> PairLoss | None:
        return self._affine or pair_loss(self._arrays[0], len(self.alphabet))


class GlobalAlignment(TransducerLoss):
    """Needleman-Wunsch alignment of whole strings with affine gaps; the loss is minus the score.

    L(y, y_i) = min over alignments of the sum of -matrix[a, b] over aligned pairs and of
    gap_open + (k - 1) gap_extend over gaps of k symbols.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    matrix : name or path, SubstitutionMatrix or (n, n) array
        Scores in nats; higher means more alike.  A name such as "BLOSUM62", or a file in NCBI text
        format.  matrix[a, b] is the score of a in y with b in the target.
    gap_open, gap_extend : float
        Costs >= 0 in nats of the first and of each further symbol of a gap.  By default
        `gap_extend` is `gap_open`.
    free_ends : {"none", "y", "target", "both"}
        Whose symbols may stay unaligned at both ends at no cost (semi-global alignment).  With
        "both", at each end either symbols of y or symbols of the target.

    Raises
    ------
    InvalidInputError
        A score or cost is not finite, a gap cost is negative, or the matrix has another shape.
    AlphabetError
        The matrix lacks a symbol of the alphabet.

    References
    ----------
    Needleman, Wunsch (1970); affine gaps: Gotoh (1982); adjacent gaps are treated as in
    `transducers.alignment_transducer`.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> scores = [[1 if a == b else -1 for b in "ACGT"] for a in "ACGT"]
    >>> GlobalAlignment(Alphabet("ACGT"), scores, gap_open=2)("GAATTC", "AGATCT")
    2.0
    >>> GlobalAlignment(Alphabet("ACGT"), scores, gap_open=2, free_ends="both")("GAATTC", "AGATCT")
    -1.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        matrix: Matrix | SubstitutionMatrix,
        gap_open: float,
        gap_extend: float | None = None,
        *,
        free_ends: Literal["none", "y", "target", "both"] = "none",
    ) -> None:
        one_of("free_ends", free_ends, ("none", "y", "target", "both"))
        scores = alignment_scores(matrix, alphabet)
        extend = gap_open if gap_extend is None else gap_extend
        fst = transducers.alignment_transducer.arrays(
            alphabet,
            -scores,
            gap_open=gap_open,
            gap_extend=extend,
            free_ends=free_ends,
            arc_type="log64",
        )
        super().__init__(fst, alphabet)
        self._affine = affine_scores(scores, gap_open, extend, free_ends)

    @cached_property
    def _pair_loss(self) -> PairLoss | None:
        return self._affine or pair_loss(self._arrays[0], len(self.alphabet))
