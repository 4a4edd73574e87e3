"""Alignments of biological sequences: local and global, with rewards for matches."""

from fstgrad import transducers
from fstgrad.alphabet import Alphabet
from fstgrad.losses.base import TransducerLoss


class SmithWaterman(TransducerLoss):
    """Smith-Waterman local alignment with linear gaps; never positive.

    L(y, y_i) = min over aligned factors of the sum of the costs; a match has a negative cost, and
    aligning nothing costs 0.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> SmithWaterman(Alphabet("acgt"))("ggacgg", "tact")
    -4.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        match: float = -2.0,
        substitute: float = 1.0,
        insert: float = 1.0,
        delete: float = 1.0,
    ) -> None:
        fst = transducers.smith_waterman_transducer(
            alphabet,
            match=match,
            substitute=substitute,
            insert=insert,
            delete=delete,
            arc_type="log64",
        )
        super().__init__(fst, alphabet)
