"""Misread characters: confusions of similar shapes, such as rn and m, cost less.

Replacing a character by one of similar shape costs 0.25, two characters by one that looks like both
joined (rn by m) or the reverse 0.5, any other edit 1.

Source: confusions of optical character recognition as in Kukich, "Techniques for automatically
correcting words in text", ACM Computing Surveys 24 (1992): substitutions of similar shapes, and
split and joined characters.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished, spelled

ALPHABET = string.ascii_letters + string.digits
EXAMPLES = [
    ("modem", "modem", 0.0),
    ("rnodem", "modem", 0.5),
    ("b0ok", "book", 0.25),
    ("c1ear", "clear", 0.25),
    ("dear", "clear", 0.5),  # cl joined looks like d
    ("bxok", "book", 1.0),
]

_ALIKE = ("0OoQD", "1lIi|!", "2Zz", "5Ss", "6bG", "8B", "9gq", "ceo", "uv", "nh", "ft", "VY", "EF")
_JOINED = {"rn": "m", "cl": "d", "vv": "w", "li": "h", "ii": "u", "VV": "W", "ol": "d", "nn": "m"}
_SHAPE, _JOIN, _OTHER = 0.25, 0.5, 1.0


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    abc = alphabet or Alphabet(ALPHABET)
    alike = {(a, b): _SHAPE for group in _ALIKE for a in group for b in group if a != b}
    single = edits(abc, lambda a, b: alike.get((a, b), _OTHER), lambda _: _OTHER, lambda _: _OTHER)
    return finished(abc, single, *_joins(abc))


def _joins(alphabet: Alphabet) -> list[pynini.Fst]:
    """Return the FSTs that replace two joined characters by one, and the reverse."""
    joins = []
    for two, one in _JOINED.items():
        if all(symbol in alphabet for symbol in two + one):
            several, joined = spelled(alphabet, two), spelled(alphabet, one)
            price = pynini.accep("", weight=_JOIN)
            joins += [price + pynini.cross(several, joined), price + pynini.cross(joined, several)]
    return joins
