"""Edits of molecules in SMILES notation, by token.

Symbols are tokens.  Replacing an aromatic atom by the aliphatic atom of the same element, or the
reverse, costs 0.25, a ring number by another 0.25, a bond, a halogen or a mark of geometry by
another 0.5, any other token 1.  Inserting or deleting a bond or a mark of geometry costs 0.5, any
other token 1.

Source: Weininger, "SMILES, a chemical language and information system", Journal of Chemical
Information and Computer Sciences 28 (1988); tokens as in Schwaller et al., "Found in Translation",
Chemical Science 9 (2018).
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

_ATOMS = "B C N O P S F I Cl Br b c n o s p [nH] [O-] [N+] [NH3+] [Na+]"
_OTHERS = "( ) . - = # : / \\ @ @@ 1 2 3 4 5 6 7 8 9"
ALPHABET = tuple(f"{_ATOMS} {_OTHERS}".split())
EXAMPLES = [
    ("C C O", "C C O", 0.0),
    ("C C Cl", "C C Br", 0.5),
    ("C = C", "C # C", 0.5),
    ("C C", "C = C", 0.5),
    ("C 1 C C 1", "c 2 c c 2", 1.25),
    ("C C O", "C C N", 1.0),
]

_HALOGENS, _BONDS, _GEOMETRY = {"F", "Cl", "Br", "I"}, set("-=#:"), {"/", "\\", "@", "@@"}


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of tokens."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    if read.lower() == written.lower() or (read.isdigit() and written.isdigit()):
        return 0.25
    return 0.5 if any({read, written} <= group for group in (_HALOGENS, _BONDS, _GEOMETRY)) else 1.0


def _presence(token: str) -> float:
    return 0.5 if token in _BONDS | _GEOMETRY else 1.0
