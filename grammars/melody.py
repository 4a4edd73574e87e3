"""Distance of melodies, written as intervals: transposing a tune costs nothing.

Symbols are intervals in semitones, from -12 to +12.  A substitution costs 0.125 for each semitone
of difference, at least 0.25 if the direction changes, and at most 1; if the intervals differ by an
octave, 0.25.  Inserting or deleting a repeated note (0) costs 0.5, any other interval 1.

Source: Mongeau and Sankoff, "Comparison of musical sequences", Computers and the Humanities 24
(1990): substitutions are weighted by the interval between the notes.
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

ALPHABET = tuple(f"{step:+d}" if step else "0" for step in range(-12, 13))
EXAMPLES = [
    ("0 +7 0 +2 0 -2", "0 +7 0 +2 0 -2", 0.0),
    ("+4 +3", "+3 +4", 0.25),  # major and minor
    ("+1", "-1", 0.25),
    ("+7", "-5", 0.25),  # an octave apart
    ("+2 +2", "+2 0 +2", 0.5),
    ("+12", "0", 0.25),
    ("+4 -2", "+4", 1.0),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of intervals, which are integers such as +7, 0 and -2."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    a, b = int(read), int(written)
    if abs(a - b) == 12:
        return 0.25
    return min(1.0, max(0.125 * abs(a - b), 0.25 if a * b < 0 else 0.0))


def _presence(interval: str) -> float:
    return 0.5 if int(interval) == 0 else 1.0
