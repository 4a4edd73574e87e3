"""Losses: a transducer between hypotheses and targets, read in a semiring.

A loss is U(y, y_i), the sum over the paths of a transducer that read the hypothesis y and write the
target y_i: in the tropical semiring the cheapest path (edit distances, alignments), in the
probability semiring a count or kernel value u, turned into -log(u + smoothing) or -u.

Index
-----
- `Loss` : what every loss offers; `a + b` (`SumLoss`) and `2 * a` (`ScaledLoss`) are losses.
- `TransducerLoss` : any transducer, from memory or from a file.
- `EditDistance`, `Hamming`, `OptimalStringAlignment`, `LongestCommonSubsequence` : symbols
  inserted, deleted, substituted, transposed.
- `WordErrorRate`, `CharacterErrorRate` : edit distance a symbol of the target; `Normalized` : any
  loss so.
- `RuleLoss` : a grammar of rules, text that runs no code.
- `SmithWaterman`, `GlobalAlignment`, `SubstitutionMatrix` : alignments with affine gaps.
- `NGram`, `NGramSum`, `GappyNGram`, `MismatchNGram` : kernels of n-grams.
- `LossReport` : what `loss.check(samples)` found.
"""

from fstgrad.automata.determinize import MAX_STATES
from fstgrad.losses.alignment import GlobalAlignment, SmithWaterman
from fstgrad.losses.base import Engine, Loss, ScaledLoss, SumLoss, Target
from fstgrad.losses.collapse import CollapsedLoss, collapsed
from fstgrad.losses.constant import ExactMatch, NoLoss
from fstgrad.losses.edit import (
    CharacterErrorRate,
    EditDistance,
    Hamming,
    LongestCommonSubsequence,
    Normalized,
    OptimalStringAlignment,
    WordErrorRate,
)
from fstgrad.losses.matrices import SubstitutionMatrix
from fstgrad.losses.ngram import GappyNGram, MismatchNGram, NGram, NGramSum
from fstgrad.losses.report import LossReport
from fstgrad.losses.rules import RuleLoss
from fstgrad.losses.transducer import TransducerLoss

__all__ = [
    "MAX_STATES",
    "CharacterErrorRate",
    "CollapsedLoss",
    "EditDistance",
    "Engine",
    "ExactMatch",
    "GappyNGram",
    "GlobalAlignment",
    "Hamming",
    "LongestCommonSubsequence",
    "Loss",
    "LossReport",
    "MismatchNGram",
    "NGram",
    "NGramSum",
    "NoLoss",
    "Normalized",
    "OptimalStringAlignment",
    "RuleLoss",
    "ScaledLoss",
    "SmithWaterman",
    "SubstitutionMatrix",
    "SumLoss",
    "Target",
    "TransducerLoss",
    "WordErrorRate",
    "collapsed",
]
