"""Confusion of sounds in IPA: sounds that share features of articulation cost less.

A substitution costs 0.25 for each step, at most 1.  Steps between two consonants are another
voicing, another manner, and the distance of places, at most two; between two vowels, another
rounding, and the distances of height and of backness, at most two each.  A substitution between a
vowel and a consonant costs 1, between sounds that differ only in length or nasality 0.125.  An
insertion or a deletion costs 1, or 0.5 for ə, h and ʔ.

Source: charts of the International Phonetic Association (Handbook, 1999; 2020), in their order.
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

# the chart; columns are places from the lips to the glottis, with a voiceless and a voiced sound
# each (- for none)
_CHART = {
    "stop": "pb -- -- td -- ʈɖ cɟ kɡ qɢ -- ʔ-",
    "nasal": "-m -ɱ -- -n -- -ɳ -ɲ -ŋ -ɴ -- --",
    "trill": "-ʙ -- -- -r -- -- -- -- -ʀ -- --",
    "tap": "-- -ⱱ -- -ɾ -- -ɽ -- -- -- -- --",
    "fricative": "ɸβ fv θð sz ʃʒ ʂʐ çʝ xɣ χʁ ħʕ hɦ",
    "lateral": "-- -- -- ɬl -- -ɭ -ʎ -ʟ -- -- --",
    "approximant": "-w -ʋ -- -ɹ -- -ɻ -j -ɰ -- -- --",
}
# rows from close to open; columns front, central, back, with an unrounded and a rounded vowel each
_VOWELS = "iy ɨʉ ɯu, ɪʏ -- -ʊ, eø ɘɵ ɤo, -- ə- --, ɛœ ɜɞ ʌɔ, æ- ɐ- --, aɶ -- ɑɒ"
_CONSONANTS = {
    sound: (voice, place, manner) for manner, row in _CHART.items()
    for place, column in enumerate(row.split()) for voice, sound in enumerate(column)
}  # fmt: skip
_HEIGHTS = {
    sound: (height, back, rounded) for height, row in enumerate(_VOWELS.split(", "))
    for back, cell in enumerate(row.split()) for rounded, sound in enumerate(cell)
}  # fmt: skip
_LONGER = ("t͡ʃ", "d͡ʒ", "t͡s", "d͡z", "aː", "eː", "iː", "oː", "uː")
ALPHABET = (*sorted((_CONSONANTS.keys() | _HEIGHTS.keys()) - {"-"}), *_LONGER)
EXAMPLES = [("k a t", "k a t", 0.0), ("k a t", "ɡ a t", 0.25), ("k æ t", "k a t", 0.25),
            ("s i", "ʃ i", 0.25), ("p i", "t y", 0.75), ("a t ə", "a t", 0.5)]  # fmt: skip


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of sounds; an affricate counts as its last sound."""
    abc = alphabet or Alphabet(ALPHABET)
    presence = {sound: 0.5 if _plain(sound) in "əhʔ" else 1.0 for sound in abc}
    return finished(abc, edits(abc, _confusion, presence.__getitem__, presence.__getitem__))


def _confusion(read: str, written: str) -> float:
    a, b = _plain(read), _plain(written)
    for table in (_CONSONANTS, _HEIGHTS):
        if a in table and b in table:
            steps = [min(2, abs(x - y)) for x, y in zip(table[a][:2], table[b][:2], strict=True)]
            return min(1.0, 0.25 * (sum(steps) + (table[a][2] != table[b][2]))) or 0.125
    return 0.125 if a == b else 1.0


def _plain(sound: str) -> str:
    letters = [c for c in sound if c in _CONSONANTS or c in _HEIGHTS]
    return letters[-1] if letters else sound
