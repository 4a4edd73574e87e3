"""Alignment of proteins: residues of one class are similar; gaps are affine.

Aligning two different residues costs 0.5 if they are in the same class, otherwise 1.  A gap costs
1.5 for its first residue and 0.25 for each further one.

Source: the eight classes that Murphy, Wallqvist, Levy, "Simplified amino acid alphabets for protein
fold recognition", Protein Engineering 13 (2000), derive from BLOSUM50; affine gaps: Gotoh, Journal
of Molecular Biology 162 (1982).
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import costs, finished, gaps

ALPHABET = "ACDEFGHIKLMNPQRSTVWY"
EXAMPLES = [
    ("HEAGAWGHEE", "HEAGAWGHEE", 0.0),
    ("ILV", "VIL", 3 * 0.5),
    ("KLM", "DLM", 1.0),
    ("PAWHEAE", "PAWE", 1.5 + 0.25 + 0.25),
]

_CLASSES = ("LVIMC", "AG", "ST", "P", "FYW", "EDNQ", "KR", "H")
_NEAR, _FAR, _OPEN, _EXTEND = 0.5, 1.0, 1.5, 0.25


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over amino acids; other symbols are in no class."""
    abc = alphabet or Alphabet(ALPHABET)
    pairs = {(a, b): _substitution(a, b) for a in abc for b in abc}
    return finished(abc, costs(abc, pairs), gaps(abc, _OPEN, _EXTEND))


def _substitution(a: str, b: str) -> float:
    if a == b:
        return 0.0
    return _NEAR if any(a in group and b in group for group in _CLASSES) else _FAR
