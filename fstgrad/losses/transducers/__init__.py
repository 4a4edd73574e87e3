"""Builders: functions from an alphabet and costs to a pynini.Fst.

A builder of one FST can return its arrays too, without OpenFst: `edit_transducer.arrays(alphabet)`.

Index
-----
- `string_acceptor`, `sigma_power` : one string; all strings of one length.
- `ngram_counter` : T_n of the n-gram loss.
- `ngrams_counter`, `gappy_counter`, `mismatch_counter` : several orders, gaps, mismatches.
- `edit_transducer`, `edit_factors` : edit distance, whole and as two linear factors.
- `subsequence_transducer`, `transposition_transducer` : common subsequences, transpositions.
- `smith_waterman_transducer` : local alignment.
- `alignment_transducer` : global, semi-global and local alignment with affine gaps.
- `hamming_transducer` : positions with different symbols.

Label i + 1 is the symbol with id i of the `Alphabet`; 0 is epsilon.  A transducer reads the
hypothesis y and writes the target.  Costs are in nats.  Figures are those of Cortes, Kuznetsov,
Mohri, Storcheus, Yang, "Efficient Gradient Computation for Structured Output Learning with Rational
and Tropical Losses", NeurIPS 2018.

Reading order
-------------
- `builder` : FSTs from groups of arcs; acceptors.
- `edit`, `alignment`, `ngram` : the other builders.
- `rules` : transducers from files of rules.
"""

from fstgrad.losses.transducers.alignment import (
    Ends,
    alignment_transducer,
    smith_waterman_transducer,
)
from fstgrad.losses.transducers.builder import sigma_power, string_acceptor
from fstgrad.losses.transducers.edit import (
    edit_factor_arrays,
    edit_factors,
    edit_transducer,
    hamming_transducer,
    subsequence_transducer,
    transposition_transducer,
)
from fstgrad.losses.transducers.ngram import (
    gappy_counter,
    mismatch_counter,
    ngram_counter,
    ngrams_counter,
)

__all__ = [
    "Ends",
    "alignment_transducer",
    "edit_factor_arrays",
    "edit_factors",
    "edit_transducer",
    "gappy_counter",
    "hamming_transducer",
    "mismatch_counter",
    "ngram_counter",
    "ngrams_counter",
    "sigma_power",
    "smith_waterman_transducer",
    "string_acceptor",
    "subsequence_transducer",
    "transposition_transducer",
]
