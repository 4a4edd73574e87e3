"""Typing errors: edit distance in which neighbouring keys cost half.

A slip to a neighbouring key costs 0.5, one letter typed twice or once of two 0.5, the wrong case of
a letter 0.25, any other edit 1.

Source: the letter keys of the US layout, ANSI INCITS 154-1988 (QWERTY), whose second and third rows
stand a quarter and three quarters of a key to the right.  Kinds of slips: Kernighan, Church, Gale,
"A spelling correction program based on a noisy channel model", COLING 1990.
"""

import string

import pynini

from fstgrad.alphabet import Alphabet
from fstgrad.grammars.pieces import NOTHING, costs, edits, finished

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("cat", "cat", 0.0),
    ("cst", "cat", 0.5),  # s stands beside a
    ("cpt", "cat", 1.0),
    ("leter", "letter", 0.5),
    ("lettter", "letter", 0.5),
    ("hte", "the", 2.0),
]

_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
_REACH = 1.2  # keys that touch are nearer than this, in units of a key
_NEAR, _CASE, _FAR = 0.5, 0.25, 1.0


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    abc = alphabet or Alphabet(ALPHABET)
    single = edits(abc, _slip, lambda _: _FAR, lambda _: _FAR)
    return finished(abc, single, _doubled(abc))


def _slip(read: str, written: str) -> float:
    """Return the cost of one key for another."""
    if read.lower() == written.lower():
        return _CASE
    return _NEAR if _are_neighbours(read.lower(), written.lower()) else _FAR


def _are_neighbours(a: str, b: str) -> bool:
    keys = {
        key: (column + shift, float(row))
        for row, (letters, shift) in enumerate(_ROWS)
        for column, key in enumerate(letters)
    }
    if a not in keys or b not in keys:
        return False
    (x, y), (u, v) = keys[a], keys[b]
    return (x - u) ** 2 + (y - v) ** 2 < _REACH**2


def _doubled(alphabet: Alphabet) -> pynini.Fst:
    """Return a letter that is typed twice for once, or once for twice."""
    either = [
        costs(alphabet, {(a, a): _NEAR}) + costs(alphabet, {pair: 0.0})
        for a in alphabet
        for pair in ((a, NOTHING), (NOTHING, a))
    ]
    return pynini.union(*either).optimize()
