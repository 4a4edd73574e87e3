"""Builders: each a plain function from an alphabet and its costs to a pynini.Fst.

Index
-----
- `string_acceptor`, `sigma_power` : one string; all strings of a length.
- `ngram_counter` : T_n of the n-gram loss.
- `edit_transducer`, `edit_factors` : edit distance, whole and as two linear factors.
- `smith_waterman_transducer` : local alignment.
- `hamming_transducer` : positions that differ.

Labels are `Alphabet` ids + 1, epsilon is 0.  A transducer reads the hypothesis y and writes the
target.  Figures are those of Cortes, Kuznetsov, Mohri, Storcheus, Yang, "Efficient Gradient
Computation for Structured Output Learning with Rational and Tropical Losses", NeurIPS 2018.
"""

from fstgrad.transducers.acceptors import sigma_power, string_acceptor
from fstgrad.transducers.alignment import smith_waterman_transducer
from fstgrad.transducers.edit import edit_factors, edit_transducer
from fstgrad.transducers.hamming import hamming_transducer
from fstgrad.transducers.ngram import ngram_counter

__all__ = [
    "edit_factors",
    "edit_transducer",
    "hamming_transducer",
    "ngram_counter",
    "sigma_power",
    "smith_waterman_transducer",
    "string_acceptor",
]
