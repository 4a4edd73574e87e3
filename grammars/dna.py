"""Mutations of DNA: transitions cost half as much as transversions; gaps are affine.

A transition (A with G, C with T) costs 0.5, a transversion 1, a gap 1.5 for its first base and 0.5
for each further one.  U counts as T, a small letter as its capital.  N with any other base costs
0.25.

Source: the two kinds of substitution of Kimura, "A simple method for estimating evolutionary rates
of base substitutions", Journal of Molecular Evolution 16 (1980); affine gaps: Gotoh (1982).
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import costs, finished, gaps

ALPHABET = "ACGT"
EXAMPLES = [
    ("ACGT", "ACGT", 0.0),
    ("ACGT", "GCGT", 0.5),
    ("ACGT", "CCGT", 1.0),
    ("ACGT", "ACT", 1.5),
    ("ACGGGT", "ACT", 1.5 + 0.5 + 0.5),
]

_TRANSITIONS = ({"A", "G"}, {"C", "T"})
_OPEN, _EXTEND = 1.5, 0.5


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over bases; substituting any other symbol costs 1."""
    abc = alphabet or Alphabet(ALPHABET)
    pairs = {(a, b): _substitution(_base(a), _base(b)) for a in abc for b in abc}
    return finished(abc, costs(abc, pairs), gaps(abc, _OPEN, _EXTEND))


def _substitution(a: str, b: str) -> float:
    if a == b:
        return 0.0
    if "N" in (a, b):
        return 0.25
    return 0.5 if {a, b} in _TRANSITIONS else 1.0


def _base(symbol: str) -> str:
    return symbol.upper().replace("U", "T")
