"""The losses that have a name: of `SequenceModel(loss=...)` and of `--loss`.

A new loss gets its name here.  Its options of the command line are the arguments of its
constructor.
"""

from collections.abc import Callable

from fstgrad.losses.alignment import GlobalAlignment, SmithWaterman
from fstgrad.losses.base import Loss
from fstgrad.losses.edit import (
    CharacterErrorRate,
    EditDistance,
    Hamming,
    LongestCommonSubsequence,
    OptimalStringAlignment,
    WordErrorRate,
)
from fstgrad.losses.ngram import GappyNGram, MismatchNGram, NGram, NGramSum

LOSS_NAMES: dict[str, Callable[..., Loss]] = {
    "edit": EditDistance,
    "osa": OptimalStringAlignment,
    "lcs": LongestCommonSubsequence,
    "wer": WordErrorRate,
    "cer": CharacterErrorRate,
    "smith-waterman": SmithWaterman,
    "alignment": GlobalAlignment,
    "ngram": NGram,
    "ngram-sum": NGramSum,
    "gappy": GappyNGram,
    "mismatch": MismatchNGram,
    "hamming": Hamming,
}
NEED_ARGUMENTS = ("alignment",)  # beside the alphabet
