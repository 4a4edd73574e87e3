"""Letters in other forms: width is free, case costs little, diacritics a little more.

Replacing a character by a compatibility form (full width, superscript, ligature of one letter)
costs 0, by another case 0.125, by another diacritic or none 0.25, by both 0.375.  Inserting or
deleting a combining mark costs 0.25.  Any other edit costs 1.

Source: the levels of the Unicode Collation Algorithm (UTS #10): base letters, diacritics, case.
Characters are compared by compatibility decomposition (UAX #15, NFKD) and full case folding.
"""

import string
import unicodedata

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

ALPHABET = (
    string.ascii_letters
    + string.digits
    + " áàâäãåçéèêëíìîïñóòôöõøúùûüýÉÖÜＡＢＣａｂｃ０１２²\u0301"
)
EXAMPLES = [
    ("ＡＢＣ", "ABC", 0.0),
    ("abc", "Abc", 0.125),
    ("resume", "résumé", 0.5),
    ("re\u0301sume\u0301", "résumé", 1.0),  # combining marks
    ("Ecole", "école", 0.375),
    ("x²", "x2", 0.0),
    ("cat", "car", 1.0),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    (a, marks), (b, others) = _parts(read), _parts(written)
    if not a or a.casefold() != b.casefold():
        return 1.0
    return 0.125 * (a != b) + 0.25 * (marks != others)


def _presence(symbol: str) -> float:
    return 1.0 if _parts(symbol)[0] else 0.25


def _parts(symbol: str) -> tuple[str, str]:
    """Return the base characters of a symbol and its combining marks."""
    plain = unicodedata.normalize("NFKD", symbol)
    marks = "".join(c for c in plain if unicodedata.combining(c))
    return "".join(c for c in plain if not unicodedata.combining(c)), marks
