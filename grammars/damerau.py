"""Edit distance with transpositions: swapping two adjacent symbols is one error.

Insertion, deletion, substitution and the transposition of two neighbouring symbols cost 1 each; no
symbol takes part in two edits (optimal string alignment).

Source: Damerau, "A technique for computer detection and correction of spelling errors",
Communications of the ACM 7 (1964), who found four of five errors to be one of these.
"""

import string

import pynini

from fstgrad.alphabet import Alphabet
from fstgrad.grammars.pieces import costs, edits, finished

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("teh", "the", 1.0),
    ("the", "the", 0.0),
    ("recieve", "receive", 1.0),
    ("ca", "abc", 3.0),  # 2 if edits could stand between the transposed symbols
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over any alphabet: n (n - 1) + 1 states for n symbols."""
    abc = alphabet or Alphabet(ALPHABET)
    single = edits(abc, lambda _a, _b: 1.0, lambda _: 1.0, lambda _: 1.0)
    return finished(abc, single, *_transpositions(abc))


def _transpositions(alphabet: Alphabet) -> list[pynini.Fst]:
    return [
        costs(alphabet, {(a, b): 0.0}) + costs(alphabet, {(b, a): 1.0})
        for a in alphabet
        for b in alphabet
        if a != b
    ]
