"""Keyboards: the positions of the letters of a layout, and the costs of typing errors.

Index
-----
- `LAYOUTS` : rows of letters by name.  The second and third rows begin 0.25 and 0.75 of a key to
  the right of the first.
- `typing` : edit distance with cheap slips to neighbouring keys.
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import NOTHING, costs, edits, finished

LAYOUTS = {
    "qwerty": ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    "qwertz": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"),
    "azerty": ("azertyuiop", "qsdfghjklm", "wxcvbn"),
    "dvorak": ("',.pyfgcrl", "aoeuidhtns", ";qjkxbmwvz"),
}
_SHIFTS = (0.0, 0.25, 0.75)
_REACH = 1.2  # in key widths; keys are neighbours if their centres are closer than this
_NEAR, _CASE, _FAR = 0.5, 0.25, 1.0


def typing(alphabet: Alphabet, layout: str) -> pynini.Fst:
    """Return the typing errors: a neighbouring key or doubled letter 0.5, case 0.25, others 1."""
    places = {
        key: (column + shift, float(row))
        for row, (letters, shift) in enumerate(zip(LAYOUTS[layout], _SHIFTS, strict=True))
        for column, key in enumerate(letters)
    }

    def slip(read: str, written: str) -> float:
        a, b = read.lower(), written.lower()
        if a == b:
            return _CASE
        if a not in places or b not in places:
            return _FAR
        (x, y), (u, v) = places[a], places[b]
        return _NEAR if (x - u) ** 2 + (y - v) ** 2 < _REACH**2 else _FAR

    single = edits(alphabet, slip, lambda _: _FAR, lambda _: _FAR)
    return finished(alphabet, single, _doubled(alphabet))


def _doubled(alphabet: Alphabet) -> pynini.Fst:
    """Return the FST of one letter typed twice instead of once, or once instead of twice."""
    either = [
        costs(alphabet, {(a, a): _NEAR}) + costs(alphabet, {pair: 0.0})
        for a in alphabet
        for pair in ((a, NOTHING), (NOTHING, a))
    ]
    return pynini.union(*either).optimize()
