"""Replacing a vowel by another vowel costs one half.

Any other edit costs 1.

Source: an example of the documentation.
"""

import pynini

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
EXAMPLES = [("gerl", "girl", 0.5), ("gurls", "girl", 1.5)]


def build():
    """Return the grammar; its labels are code points, as pynini reads strings."""
    letter = pynini.union(*ALPHABET)
    vowel = pynini.union(*"aeiou")
    half, one = (pynini.accep("", weight=cost) for cost in (0.5, 1.0))
    vowels = half + pynini.cross(vowel, vowel)
    others = one + pynini.cross(letter, letter)
    insert = one + pynini.cross("", letter)
    delete = one + pynini.cross(letter, "")
    return pynini.union(letter, vowels, others, insert, delete).closure().optimize()
