"""Typing errors: edit distance in which neighbouring keys cost half.

A neighbouring key costs 0.5, a letter typed twice instead of once or once instead of twice 0.5, the
wrong case of a letter 0.25, any other edit 1.  `qwertz`, `azerty` and `dvorak` are the same for
other layouts.

Source: the letter keys of the US layout, ANSI INCITS 154-1988 (QWERTY).  Kinds of slips: Kernighan,
Church, Gale, "A spelling correction program based on a noisy channel model", COLING 1990.
"""

import string
from dataclasses import dataclass

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import NOTHING, costs, edits, finished

ALPHABET = string.ascii_lowercase
EXAMPLES = [
    ("cat", "cat", 0.0),
    ("cst", "cat", 0.5),  # s is next to a
    ("cpt", "cat", 1.0),
    ("leter", "letter", 0.5),
    ("lettter", "letter", 0.5),
    ("hte", "the", 2.0),
]

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SHIFTS = (0.0, 0.25, 0.75)  # of the rows to the right of the first, in key widths
_REACH = 1.2  # in key widths; keys are neighbours if their centres are closer than this
_NEAR, _CASE, _FAR = 0.5, 0.25, 1.0


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    return _typing_errors(alphabet or Alphabet(ALPHABET), _ROWS)


@dataclass(frozen=True)
class Layout:
    """The grammar of another layout: a call builds it over an alphabet of characters.

    Attributes
    ----------
    rows : the letters of the three rows of keys
    alphabet, examples : instead of ALPHABET and EXAMPLES of the module
    keyboard, source : for the description
    """

    rows: tuple[str, str, str]
    alphabet: str
    examples: tuple[tuple[str, str, float], ...]
    keyboard: str
    source: str

    def __call__(self, alphabet: Alphabet | None = None) -> pynini.Fst:
        """Return the grammar over an alphabet of characters."""
        return _typing_errors(alphabet or Alphabet(self.alphabet), self.rows)

    @property
    def description(self) -> str:
        """The costs and their source; the first line is a summary."""
        return (
            f"Typing errors on a {self.keyboard} keyboard: neighbouring keys cost half.\n\n"
            f"Source: {self.source}.  The costs and the kinds of slips are those of `keyboard`."
        )


qwertz = Layout(
    rows=("qwertzuiopü", "asdfghjklöä", "yxcvbnm"),
    alphabet=string.ascii_letters + "äöüÄÖÜß",
    examples=(
        ("zeit", "zeit", 0.0),
        ("teit", "zeit", 0.5),  # t is next to z
        ("yeit", "zeit", 1.0),  # y is not
        ("schpn", "schön", 0.5),
        ("bälle", "bäle", 0.5),
        ("Zeit", "zeit", 0.25),
    ),
    keyboard="German",
    source="the letter keys of the layout T1, DIN 2137-1",
)
azerty = Layout(
    rows=("azertyuiop", "qsdfghjklm", "wxcvbn"),
    alphabet=string.ascii_lowercase,
    examples=(
        ("monde", "monde", 0.0),
        ("londe", "monde", 0.5),  # l is next to m
        ("nonde", "monde", 1.0),  # n is not
        ("bonjoir", "bonjour", 0.5),
        ("vile", "ville", 0.5),
    ),
    keyboard="French",
    source="the letter keys of AZERTY, NF Z71-300 (AFNOR 2019)",
)
dvorak = Layout(
    rows=("',.pyfgcrl", "aoeuidhtns", ";qjkxbmwvz"),
    alphabet=string.ascii_lowercase,
    examples=(
        ("the", "the", 0.0),
        ("tho", "the", 0.5),  # o is next to e
        ("thr", "the", 1.0),  # r is not
        ("leter", "letter", 0.5),
        ("snd", "and", 1.0),  # a and s are far apart here
    ),
    keyboard="Dvorak",
    source="the keys of ANSI X3.207-1991 (Dvorak)",
)


def _typing_errors(alphabet: Alphabet, rows: tuple[str, str, str]) -> pynini.Fst:
    """Return the edits: a neighbouring key or doubled letter 0.5, case 0.25, others 1."""
    centres = {
        key: (column + shift, float(row))
        for row, (letters, shift) in enumerate(zip(rows, _SHIFTS, strict=True))
        for column, key in enumerate(letters)
    }

    def slip(read: str, written: str) -> float:
        a, b = read.lower(), written.lower()
        if a == b:
            return _CASE
        if a not in centres or b not in centres:
            return _FAR
        (x, y), (u, v) = centres[a], centres[b]
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
