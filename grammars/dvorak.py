"""Typing errors on a Dvorak keyboard: neighbouring keys cost half.

A neighbouring key costs 0.5, a letter typed twice instead of once or once instead of twice 0.5, the
wrong case of a letter 0.25, any other edit 1.

Source: the keys of ANSI X3.207-1991 (Dvorak).  Kinds of slips: Kernighan, Church, Gale, "A spelling
correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.layouts import typing

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("the", "the", 0.0),
    ("tho", "the", 0.5),  # o is next to e
    ("thr", "the", 1.0),  # r is not
    ("leter", "letter", 0.5),
    ("snd", "and", 1.0),  # a and s are far apart here
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return typing(alphabet or Alphabet(ALPHABET), "dvorak")
