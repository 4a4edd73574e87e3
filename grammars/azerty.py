"""Typing errors on a French keyboard: neighbouring keys cost half.

A neighbouring key costs 0.5, a letter typed twice instead of once or once instead of twice 0.5, the
wrong case of a letter 0.25, any other edit 1.

Source: the letter keys of AZERTY, NF Z71-300 (AFNOR 2019).  Kinds of slips: Kernighan, Church,
Gale, "A spelling correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.layouts import typing

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("monde", "monde", 0.0),
    ("londe", "monde", 0.5),  # l is next to m
    ("nonde", "monde", 1.0),  # n is not
    ("bonjoir", "bonjour", 0.5),
    ("vile", "ville", 0.5),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return typing(alphabet or Alphabet(ALPHABET), "azerty")
