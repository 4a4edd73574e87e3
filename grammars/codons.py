"""Protein against DNA by codons: an amino acid matches the three bases that code for it.

The hypothesis consists of amino acids (capitals, * for a stop), the target of bases (a c g t).
Aligning an amino acid with a codon costs 0.5 for each base in which the codon differs from the
nearest codon of the amino acid.  An unaligned amino acid or codon costs 1.5.  A single extra base,
which shifts the frame, costs 2.

Source: the standard genetic code (NCBI translation table 1); frame shifts as in Pearson, Wood,
Zhang, Miller, "Comparison of DNA sequences with protein sequences", Genomics 46 (1997).
"""

import itertools

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import NOTHING, costs, finished, spelled

ALPHABET = "ACDEFGHIKLMNPQRSTVWY*acgt"
EXAMPLES = [
    ("MAL", "atggctctg", 0.0),
    ("MAL", "atggcgctc", 0.0),  # other codons of A and L
    ("MAL", "atggctcag", 0.5),  # cag codes for Q, one base from a codon of L
    ("MAL", "atgctg", 1.5),
    ("ML", "atggctctg", 1.5),
    ("MAL", "atggcttctg", 2.0),
]

_CODE = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
_CODONS = dict(zip(map("".join, itertools.product("tcag", repeat=3)), _CODE, strict=True))
_BASE, _GAP, _SHIFT = 0.5, 1.5, 2.0


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar; strings with other symbols have no path."""
    abc = alphabet or Alphabet(ALPHABET)
    codons = [codon for codon in _CODONS if all(base in abc for base in codon)]
    pairs = []
    for codon in codons:
        read = {(acid, NOTHING): _cost(acid, codon) for acid in set(_CODE)}
        read[NOTHING, NOTHING] = _GAP
        pairs.append(costs(abc, read) + pynini.cross("", spelled(abc, codon)))
    alone = costs(abc, {(acid, NOTHING): _GAP for acid in set(_CODE)})
    shift = costs(abc, {(NOTHING, base): _SHIFT for base in "acgt"})
    return finished(abc, *pairs, alone, shift)


def _cost(acid: str, codon: str) -> float:
    """Return the cost of aligning an amino acid with a codon."""
    codons = [other for other, coded in _CODONS.items() if coded == acid]
    return _BASE * min(sum(a != b for a, b in zip(codon, other, strict=True)) for other in codons)
