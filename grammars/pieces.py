"""Building blocks of grammars.

Index
-----
- `costs` : replace one symbol by another, at a cost.
- `spelled` : accept a string of symbols.
- `edits` : the base of every edit grammar: copies, substitutions, insertions, deletions.
- `gaps` : gaps on either side, of affine cost.
- `finished` : closure, optimization and symbol tables.

A piece is a pynini.Fst in the tropical semiring that reads the hypothesis and writes the target.
Its weights are costs in float32; multiples of 2^-20 up to 16 are exact.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pynini

from fstgrad.core.alphabet import Alphabet
from fstgrad.openfst import FstArrays, from_arrays, with_symbols

NOTHING = ""  # no symbol on one side of a pair: an insertion or a deletion


def costs(alphabet: Alphabet, pairs: Mapping[tuple[str, str], float]) -> pynini.Fst:
    """Return the FST that reads one symbol and writes another at the cost pairs[read, written].

    `NOTHING` means no symbol.  Pairs with a symbol outside the alphabet are left out.
    """
    label = {NOTHING: 0} | {symbol: i for i, symbol in enumerate(alphabet, start=1)}
    known = [pair for pair in pairs if pair[0] in label and pair[1] in label]
    return from_arrays(
        FstArrays(
            arc_type="standard",
            start=0,
            final=np.array([np.inf, 0.0]),
            source=np.zeros(len(known), dtype=np.int64),
            ilabel=np.array([label[read] for read, _ in known], dtype=np.int64),
            olabel=np.array([label[written] for _, written in known], dtype=np.int64),
            nextstate=np.ones(len(known), dtype=np.int64),
            weight=np.array([pairs[pair] for pair in known], dtype=np.float64),
        )
    )


def spelled(alphabet: Alphabet, symbols: Sequence[str]) -> pynini.Fst:
    """Return the acceptor of a string of symbols of the alphabet."""
    fst = pynini.accep("")
    for symbol in symbols:
        fst.concat(costs(alphabet, {(symbol, symbol): 0.0}))
    return fst


def edits(
    alphabet: Alphabet,
    substitute: Callable[[str, str], float],
    insert: Callable[[str], float],
    delete: Callable[[str], float],
) -> pynini.Fst:
    """Return the FST of one copy (cost 0), substitution, insertion or deletion.

    Parameters
    ----------
    substitute : function (a, b)
        The cost of symbol a of the hypothesis for b of the target.
    insert : function (b)
        The cost of b in the target only.
    delete : function (a)
        The cost of a in the hypothesis only.
    """
    pairs = {(a, b): 0.0 if a == b else substitute(a, b) for a in alphabet for b in alphabet}
    pairs |= {(NOTHING, b): insert(b) for b in alphabet}
    pairs |= {(a, NOTHING): delete(a) for a in alphabet}
    return costs(alphabet, pairs)


def gaps(alphabet: Alphabet, first: float, further: float) -> pynini.Fst:
    """Return the FST of a gap on either side; k symbols cost first + (k - 1) further."""
    sides = [
        {(symbol, NOTHING): 0.0 for symbol in alphabet},
        {(NOTHING, symbol): 0.0 for symbol in alphabet},
    ]
    either = [
        costs(alphabet, dict.fromkeys(side, first))
        + costs(alphabet, dict.fromkeys(side, further)).closure()
        for side in sides
    ]
    return pynini.union(*either)


def finished(alphabet: Alphabet, *alternatives: pynini.Fst) -> pynini.Fst:
    """Return the optimized closure of the union of the alternatives, with symbol tables.

    OpenFst merges alternatives whose first arcs have the same pair and cost; the states after such
    an arc then have the arcs of all alternatives.  To avoid this, give the first arc of a longer
    alternative a different cost.
    """
    return with_symbols(pynini.union(*alternatives).closure().optimize(), alphabet)
