"""Confusion of sounds in IPA: the cost grows with the number of features that differ.

A substitution costs 1/8 for each feature whose values differ, or 1/16 if only one of the two sounds
has a value; at least 1/16 and at most 1.  A diacritic, a length mark or the first part of an
affricate adds 1/8, unless the table has the whole sound.  An insertion or a deletion costs 1.

Source: the features of 149 sounds in PanPhon 0.22 (MIT licence, `panphon-LICENSE.txt`): Mortensen
et al., "PanPhon: A resource for mapping IPA segments to articulatory feature vectors", COLING 2016.
"""

import csv
import pathlib

import numpy as np
import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

_VALUES = {"+": 1, "-": -1, "0": 0}
with (pathlib.Path(__file__).parent / "panphon.csv").open(encoding="utf-8", newline="") as _file:
    _FEATURES = {
        sound: np.array([_VALUES[value] for value in row])
        for sound, *row in list(csv.reader(_file))[1:]
    }
ALPHABET = tuple(sorted(_FEATURES))
EXAMPLES = [("k a t", "k a t", 0.0), ("k a t", "ɡ a t", 0.125), ("p i", "b i", 0.125),
            ("s i", "ʃ i", 0.25), ("p i", "a i", 1.0), ("a t ə", "a t", 1.0)]  # fmt: skip


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of sounds."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _confusion, _presence, _presence))


def _presence(_sound: str) -> float:
    return 1.0


def _confusion(read: str, written: str) -> float:
    a, b = _base(read), _base(written)
    if a not in _FEATURES or b not in _FEATURES:
        return 1.0
    steps = float(np.abs(_FEATURES[a] - _FEATURES[b]).sum()) / 16
    is_marked = (a == read) != (b == written) or a == b
    return min(1.0, max(steps + 0.125 * is_marked, 0.0625))


def _base(sound: str) -> str:
    """Return the sound if it is in the table, else the last of its letters that is."""
    letters = [letter for letter in sound if letter in _FEATURES]
    return sound if sound in _FEATURES or not letters else letters[-1]
