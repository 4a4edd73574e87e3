"""Forms of one word: edits at the end cost little, at the beginning much.

An alignment consists of steps: copies and edits.  The first two steps are the beginning, where an
edit costs 1.5.  Up to four last steps are the end, where an edit costs 0.25.  The steps between
them are the stem, where replacing a vowel by a vowel costs 0.5 and any other edit 1.

Source: weighted edit distances of inflected forms as in Yarowsky and Wicentowski, "Minimally
supervised morphological analysis by multimodal alignment", ACL 2000; most inflection is suffixing:
Dryer, "Prefixing vs. suffixing in inflectional morphology", WALS 26 (2013).
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits
from fstgrad.openfst import with_symbols

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("walk", "walk", 0.0),
    ("walked", "walk", 0.5),  # two letters at the end
    ("drank", "drink", 0.25),  # in a short word, all steps but the first two can be the end
    ("walking", "talking", 1.5),
    ("begins", "began", 0.5),
    ("understood", "understand", 0.5),
]

_START, _STEM, _VOWEL, _END = 1.5, 1.0, 0.5, 0.25
_VOWELS = "aeiouyäöüåæøáéíóőúű"


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters: beginning, stem, end."""
    abc = alphabet or Alphabet(ALPHABET)

    def step(cost: float, vowel: float) -> pynini.Fst:
        def substitution(read: str, written: str) -> float:
            return vowel if read in _VOWELS and written in _VOWELS else cost

        return edits(abc, substitution, lambda _: cost, lambda _: cost)

    start, stem, end = step(_START, _START), step(_STEM, _VOWEL), step(_END, _END)
    word = start + start + stem.closure() + end.closure(0, 4)
    return with_symbols(pynini.union(word, start, pynini.accep("")).optimize(), abc)
