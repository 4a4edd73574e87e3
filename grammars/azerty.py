"""Typing errors on a French keyboard: neighbouring keys cost half.

A slip to a neighbouring key costs 0.5, one letter typed twice or once of two 0.5, the wrong case of
a letter 0.25, any other edit 1.

Source: the letter keys of AZERTY, NF Z71-300 (AFNOR 2019).  Kinds of slips: Kernighan, Church,
Gale, "A spelling correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.alphabet import Alphabet
from fstgrad.grammars.layouts import typing

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("monde", "monde", 0.0),
    ("londe", "monde", 0.5),  # l stands beside m
    ("nonde", "monde", 1.0),  # n does not
    ("bonjoir", "bonjour", 0.5),
    ("vile", "ville", 0.5),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return typing(alphabet or Alphabet(ALPHABET), "azerty")
