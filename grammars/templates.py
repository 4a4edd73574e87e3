"""The files that `fstgrad grammar new` writes: a working, commented grammar and its test."""

EDIT = '''"""NAME: edit distance in which some confusions are cheap.

Replacing one of a group of alike letters by another costs 0.25, any other edit 1.

Source: (name the source of the costs).
"""

import string

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

# The default alphabet of the grammar.
ALPHABET = string.ascii_lowercase

# Rows (hypothesis, target, loss): `fstgrad grammar test FILE` checks them.
EXAMPLES = [
    ("cat", "cat", 0.0),
    ("kat", "cat", 0.25),
    ("cet", "cat", 0.25),
    ("ct", "cat", 1.0),
]

# Change these.  Costs that are multiples of 1/2, 1/4, 1/8, ... stay exact.
_ALIKE = ("ck", "sz", "aeiou")
_NEAR, _FAR = 0.25, 1.0


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of characters."""
    abc = alphabet or Alphabet(ALPHABET)
    # edits(...) makes copies (cost 0), substitutions, insertions and deletions at these costs
    return finished(abc, edits(abc, _substitution, lambda symbol: _FAR, lambda symbol: _FAR))


def _substitution(read: str, written: str) -> float:
    """Return the cost of `read` in the hypothesis for `written` in the target."""
    return _NEAR if any(read in group and written in group for group in _ALIKE) else _FAR
'''

CONTEXT = """# NAME: spelling errors that depend on their place.
#
# Source: (name the source of the costs).

alphabet = abcdefghijklmnopqrstuvwxyz

# Classes of symbols.
V = a e i o u

# Any other insertion, deletion or substitution costs 1.
edit = 1

# READ -> WRITTEN COST / BEFORE _ AFTER: what the hypothesis has, what the target has, and where.
# 0 is the empty string, # the edge of the word, ^V any symbol not in V, V* any number of V.
silent e: -> e 0.25 / ^V _ #
vowels: V -> V 0.5
ie <-> ei 0.25
ph <-> f 0.25
double l: l -> ll 0.25 / V _

# Examples: ? HYPOTHESIS => TARGET LOSS.  `fstgrad grammar test FILE` checks them.
? fone => phone 0.25
? recieve => receive 0.25
? hous => house 0.25
? tel => tell 0.25
? cot => cat 0.5
? cart => cat 1
"""

WORDS = '''"""NAME: distance of sentences; small words and other forms of a word cost little.

Source: (name the source of the costs).
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import edits, finished

# The symbols are words; spaces separate them in a string.
ALPHABET = ("a", "the", "cat", "cats", "dog", "sat", "sits", "here")

EXAMPLES = [
    ("the cat sat", "the cat sat", 0.0),
    ("cat sat", "the cat sat", 0.25),
    ("the cat sits", "the cat sat", 0.5),
    ("the dog sat", "the cat sat", 1.0),
]

# Change these.
_SMALL = ("a", "the")
_FORMS = ({"cat", "cats"}, {"sat", "sits"})


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over an alphabet of words."""
    abc = alphabet or Alphabet(ALPHABET)
    return finished(abc, edits(abc, _substitution, _presence, _presence))


def _substitution(read: str, written: str) -> float:
    """Return the cost of one word for another."""
    return 0.5 if any({read, written} <= forms for forms in _FORMS) else 1.0


def _presence(word: str) -> float:
    """Return the cost of a word that only one side has."""
    return 0.25 if word in _SMALL else 1.0
'''

DNA = '''"""NAME: mutations of DNA with affine gaps.

A transition costs 0.5, a transversion 1; a gap of k bases 1.5 + 0.5 (k - 1).

Source: (name the source of the costs).
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import costs, finished, gaps

ALPHABET = "ACGT"
EXAMPLES = [
    ("ACGT", "ACGT", 0.0),
    ("GCGT", "ACGT", 0.5),
    ("CCGT", "ACGT", 1.0),
    ("AT", "ACGT", 2.0),
]

# Change these.
_TRANSITIONS = ({"A", "G"}, {"C", "T"})
_OPEN, _EXTEND = 1.5, 0.5


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar over bases."""
    abc = alphabet or Alphabet(ALPHABET)
    pairs = {(a, b): _substitution(a, b) for a in abc for b in abc}
    # costs(...) makes one pair of symbols, gaps(...) a gap on either side
    return finished(abc, costs(abc, pairs), gaps(abc, _OPEN, _EXTEND))


def _substitution(a: str, b: str) -> float:
    if a == b:
        return 0.0
    return 0.5 if {a, b} in _TRANSITIONS else 1.0
'''

NORMALIZE = """# NAME: spellings that count as equal.
#
# Source: (name the source of the costs).

alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ äöüß-"

# Equivalent spellings cost 0; any other insertion, deletion or substitution costs 1.
edit = 1

"ä" <-> ae 0
"ö" <-> oe 0
"ü" <-> ue 0
"ß" <-> ss 0
"-" <-> " " 0
double space: "  " -> " " 0

# Examples: ? HYPOTHESIS => TARGET LOSS.  `fstgrad grammar test FILE` checks them.
? strasse => straße 0
? Mueller => Müller 0
? E-Mail => E Mail 0
? Haus => Maus 1
"""

TEST = '''"""The examples of the grammar {name}, for pytest."""

import pathlib

import pytest

from fstgrad.grammars import Grammar

grammar = Grammar.load(str(pathlib.Path(__file__).with_name("{file}")))


@pytest.mark.parametrize("hypothesis, target, loss", grammar.examples)
def test_example(hypothesis, target, loss):
    assert grammar(hypothesis, target) == pytest.approx(loss)
'''

# name -> (ending of the file name, text)
TEMPLATES = {
    "edit": (".py", EDIT),
    "context": (".rules", CONTEXT),
    "words": (".py", WORDS),
    "dna": (".py", DNA),
    "normalize": (".rules", NORMALIZE),
}
