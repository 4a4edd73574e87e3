"""Edit distance of numbers that ignores their notation.

These cost nothing: a leading plus, leading zeros, separators of groups of digits (a comma, a space,
an apostrophe), a point or a comma as decimal mark, and zeros at the end of the decimals, together
with the mark if there are no other decimals.  Any other edit of a digit, a mark or a sign costs 1.

Source: decimal marks and groups of digits as in the SI Brochure (BIPM, 9th edition 2019), section
5.4.4; commas and apostrophes as in common usage.
"""

import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.grammars.pieces import NOTHING, costs, edits
from fstgrad.openfst import with_symbols

ALPHABET = "0123456789+-.,' "
EXAMPLES = [
    ("1,000.50", "1000.5", 0.0),
    ("1 000,5", "1000.5", 0.0),
    ("007", "7", 0.0),
    ("+7.00", "7", 0.0),
    ("1000", "100", 1.0),
    ("-7", "7", 1.0),
]

_MARKS, _SEPARATORS = ".,", ", '"


def build(alphabet: Alphabet | None = None) -> pynini.Fst:
    """Return the grammar: sign, leading zeros, digits with separators, decimals."""
    abc = alphabet or Alphabet(ALPHABET)
    edit = edits(abc, lambda _a, _b: 1.0, lambda _: 1.0, lambda _: 1.0)
    separators = _free(abc, _SEPARATORS)
    zeros = _free(abc, "0").closure()
    integer = pynini.union(edit, separators).closure()
    mark = costs(abc, {(a, b): 0.0 for a in _MARKS for b in _MARKS})
    number = _free(abc, "+").closure(0, 1) + zeros + integer
    # both sides have a mark, and last zeros are free; or only one side has a mark, followed by free
    # zeros (alone), or by digits at a cost and free zeros (half)
    decimals = mark + edit.copy().closure() + zeros
    alone = [
        costs(abc, {_side(mark_, written): 0.0 for mark_ in _MARKS})
        + costs(abc, {_side("0", written): 0.0}).closure()
        for written in (False, True)
    ]
    half = [
        costs(abc, {_side(mark_, written): 1.0 for mark_ in _MARKS})
        + costs(abc, {_side(d, written): 1.0 for d in "0123456789"}).closure()
        + costs(abc, {_side("0", written): 0.0}).closure()
        for written in (False, True)
    ]
    ending = pynini.union(decimals, *alone, *half).closure(0, 1)
    return with_symbols((number + ending).optimize(), abc)


def _free(alphabet: Alphabet, symbols: str) -> pynini.Fst:
    """Return the FST that inserts or deletes one of the symbols at no cost."""
    return costs(alphabet, {_side(s, written): 0.0 for s in symbols for written in (False, True)})


def _side(symbol: str, written: bool) -> tuple[str, str]:
    """Return the pair of a symbol in the target only (`written`) or in the hypothesis only."""
    return (NOTHING, symbol) if written else (symbol, NOTHING)
