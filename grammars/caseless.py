"""Edit distance that ignores case and punctuation.

Letters that differ only in case are equal.  Punctuation is inserted, deleted and exchanged for
other punctuation at no cost.  Any other edit costs 1.

Source: caseless matching of the Unicode Standard, section 3.13, by full case folding
(`str.casefold`); punctuation is the general category P of the Unicode character database.
"""

import string
import unicodedata

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

ALPHABET = string.ascii_letters + " .,;:!?'-"
EXAMPLES = [
    ("Hello, World!", "hello world", 0.0),
    ("it's", "ITS", 0.0),
    ("Hello word", "hello, world", 1.0),
    ("a.b", "a;b", 0.0),
]


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over any alphabet.

    A symbol is punctuation if all its characters are.
    """
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    same = read.casefold() == written.casefold()
    return 0.0 if same or (_is_punctuation(read) and _is_punctuation(written)) else 1.0


def _presence(symbol: str) -> float:
    """Return the cost of inserting or deleting a symbol."""
    return 0.0 if _is_punctuation(symbol) else 1.0


def _is_punctuation(symbol: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in symbol)
