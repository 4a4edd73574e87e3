"""Confusion of phones: phones that share features of articulation cost less.

Symbols are ARPAbet phones as CMUdict writes them, with or without stress.  A substitution costs
0.25 for each feature in which two consonants (voicing, place, manner) or two vowels (height,
backness, rounding, length) differ; 1 between a vowel and a consonant; 0.125 if only the stress
differs.  An insertion or a deletion costs 1, or 0.5 for AH (schwa) and HH.

Source: the phone set of the CMU Pronouncing Dictionary; the features of the consonant and vowel
charts of the International Phonetic Association (Handbook of the IPA, 1999) for General American.
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

# voicing, place, manner
_CONSONANTS = {
    "P": "- labial stop", "B": "+ labial stop", "T": "- alveolar stop", "D": "+ alveolar stop",
    "K": "- velar stop", "G": "+ velar stop", "CH": "- palatal affricate",
    "JH": "+ palatal affricate", "F": "- labial fricative", "V": "+ labial fricative",
    "TH": "- dental fricative", "DH": "+ dental fricative", "S": "- alveolar fricative",
    "Z": "+ alveolar fricative", "SH": "- palatal fricative", "ZH": "+ palatal fricative",
    "HH": "- glottal fricative", "M": "+ labial nasal", "N": "+ alveolar nasal",
    "NG": "+ velar nasal", "L": "+ alveolar liquid", "R": "+ palatal liquid",
    "W": "+ labial glide", "Y": "+ palatal glide",
}  # fmt: skip
# height, backness, rounding, length
_VOWELS = {
    "IY": "high front - tense", "IH": "high front - lax", "EY": "mid front - diphthong",
    "EH": "mid front - lax", "AE": "low front - lax", "AA": "low back - tense",
    "AO": "low back + tense", "OW": "mid back + diphthong", "UH": "high back + lax",
    "UW": "high back + tense", "AH": "mid central - lax", "ER": "mid central + tense",
    "AY": "low central - diphthong", "AW": "low central + diphthong", "OY": "low back + diphthong",
}  # fmt: skip
_FEATURES = {phone: tuple(features.split()) for phone, features in (_CONSONANTS | _VOWELS).items()}
_WEAK = ("AH", "HH")

ALPHABET = tuple(sorted(_FEATURES))
EXAMPLES = [
    ("K AE T", "K AE T", 0.0),
    ("K AE T", "G AE T", 0.25),  # voicing
    ("K AE T", "G AE D", 0.5),
    ("K AE T", "K EH T", 0.25),  # height
    ("K AE T", "K S T", 1.0),
    ("B AH T ER", "B T ER", 0.5),  # schwa
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of phones; replacing an unknown phone costs 1."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _confusion, _loss_of, _loss_of))


def _confusion(read: str, written: str) -> float:
    a, b = _phone(read), _phone(written)
    if a == b:
        return 0.125
    if a not in _FEATURES or b not in _FEATURES or (a in _VOWELS) != (b in _VOWELS):
        return 1.0
    return 0.25 * sum(x != y for x, y in zip(_FEATURES[a], _FEATURES[b], strict=True))


def _loss_of(phone: str) -> float:
    return 0.5 if _phone(phone) in _WEAK else 1.0


def _phone(symbol: str) -> str:
    """Return the phone without its stress."""
    return symbol.rstrip("012")
