"""Losses: a transducer between hypotheses and targets, read in a semiring.

A loss is U(y, y_i), the sum over the paths of a transducer that read the hypothesis y and write the
target y_i: in the tropical semiring the cheapest path (edit distances, alignments), in the
probability semiring a count or kernel value u, turned into -log(u + smoothing) or -u.

Index
-----
- `TransducerLoss` : any transducer.
- `EditDistance`, `Hamming` : symbols inserted, deleted, substituted.
- `SmithWaterman` : local alignment.
- `NGram` : common n-grams.
"""

from fstgrad.losses.alignment import SmithWaterman
from fstgrad.losses.base import MAX_STATES, Engine, Target, TransducerLoss
from fstgrad.losses.edit import EditDistance, Hamming
from fstgrad.losses.ngram import NGram

__all__ = [
    "MAX_STATES",
    "EditDistance",
    "Engine",
    "Hamming",
    "NGram",
    "SmithWaterman",
    "Target",
    "TransducerLoss",
]
