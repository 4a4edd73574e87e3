"""Typing errors on a German keyboard: neighbouring keys cost half.

A neighbouring key costs 0.5, a letter typed twice instead of once or once instead of twice 0.5, the
wrong case of a letter 0.25, any other edit 1.

Source: the letter keys of the layout T1, DIN 2137-1.  Kinds of slips: Kernighan, Church, Gale, "A
spelling correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.layouts import typing

ALPHABET = string.ascii_letters + "äöüÄÖÜß"
EXAMPLES = [
    ("zeit", "zeit", 0.0),
    ("teit", "zeit", 0.5),  # t is next to z
    ("yeit", "zeit", 1.0),  # y is not
    ("schpn", "schön", 0.5),
    ("bälle", "bäle", 0.5),
    ("Zeit", "zeit", 0.25),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return typing(alphabet or Alphabet(ALPHABET), "qwertz")
