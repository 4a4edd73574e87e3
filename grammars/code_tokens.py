"""Edits of source code by token: replacing a name costs little, a keyword much.

Symbols are tokens.  Replacing a name by a name, a number by a number or a string by a string costs
0.25, an operator by one of its group 0.5, any other token 1.  Inserting or deleting a bracket, a
comma, a semicolon, a colon, a point, NEWLINE, INDENT or DEDENT costs 0.5, any other token 1.

Source: tokens of the Python Language Reference, chapter 2; low cost of names: Prechelt, Malpohl,
Philippsen, "Finding plagiarisms with JPlag", J. of Universal Computer Science 8 (2002).
"""

import keyword

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

_GROUPS = (
    "+ - * / // % @ **",
    "== != < > <= >= is in",
    "= += -= *= /= :=",
    "and or not",
    "True False",
)
_PUNCTUATION = [",", ";", ":", ".", "(", ")", "[", "]", "{", "}", "NEWLINE", "INDENT", "DEDENT"]
ALPHABET = (
    *sorted({*" ".join(_GROUPS).split(), *keyword.kwlist}), *_PUNCTUATION, "i", "j", "x", "y", "f",
    "0", "1", "2", "'a'", "'b'",
)  # fmt: skip
EXAMPLES = [
    ("x = 1", "x = 1", 0.0),
    ("i = 1", "x = 2", 0.5),
    ("x += 1", "x -= 1", 0.5),
    ("f ( x )", "f ( x ) ;", 0.5),
    ("while x", "if x", 1.0),
    ("x == y", "x = y", 1.0),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of tokens."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    if _kind(read) == _kind(written) != "":
        return 0.25
    return 0.5 if any({read, written} <= set(group.split()) for group in _GROUPS) else 1.0


def _presence(token: str) -> float:
    return 0.5 if token in _PUNCTUATION else 1.0


def _kind(token: str) -> str:
    """Return "name", "number", "string", or "" for keywords and operators."""
    if token.isidentifier() and not keyword.iskeyword(token) and token not in _PUNCTUATION:
        return "name"
    return "number" if token[0].isdigit() else "string" if token[0] in "'\"" else ""
