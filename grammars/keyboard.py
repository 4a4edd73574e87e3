"""Typing errors: edit distance in which neighbouring keys cost half.

A neighbouring key costs 0.5, a letter typed twice instead of once or once instead of twice 0.5, the
wrong case of a letter 0.25, any other edit 1.

Source: the letter keys of the US layout, ANSI INCITS 154-1988 (QWERTY).  Kinds of slips: Kernighan,
Church, Gale, "A spelling correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.layouts import typing

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("cat", "cat", 0.0),
    ("cst", "cat", 0.5),  # s is next to a
    ("cpt", "cat", 1.0),
    ("leter", "letter", 0.5),
    ("lettter", "letter", 0.5),
    ("hte", "the", 2.0),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return typing(alphabet or Alphabet(ALPHABET), "qwerty")
