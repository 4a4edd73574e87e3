"""Edit distance with transpositions: swapping two adjacent symbols is one error.

An insertion, a deletion, a substitution and a transposition of two adjacent symbols cost 1 each.  A
symbol is part of at most one edit (optimal string alignment).

Source: Damerau, "A technique for computer detection and correction of spelling errors",
Communications of the ACM 7 (1964): four of five errors are one of these.
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import costs, edits, finished

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("teh", "the", 1.0),
    ("the", "the", 0.0),
    ("recieve", "receive", 1.0),
    ("ca", "abc", 3.0),  # would be 2 if edits between transposed symbols were allowed
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over any alphabet; it has n (n - 1) + 1 states for n symbols."""
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
