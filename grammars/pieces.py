"""What grammars are put together from: arcs between symbols, spelled strings, the finished loss.

Index
-----
- `costs` : one symbol for another, at a cost.
- `spelled` : a string of symbols.
- `edits` : what every edit grammar starts with: copies, substitutions, insertions, deletions.
- `gaps` : gaps on either side, of affine cost.
- `finished` : closure, size and symbol tables.

A piece is a pynini.Fst in the tropical semiring: it reads the hypothesis, writes the target, and
its weight is a cost.  Costs that are multiples of 2^-20 stay exact.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pynini

from fstgrad.alphabet import Alphabet
from fstgrad.openfst import FstArrays, from_arrays, with_symbols

NOTHING = ""  # on one side of a pair: an insertion or a deletion


def costs(alphabet: Alphabet, pairs: Mapping[tuple[str, str], float]) -> pynini.Fst:
    """Return the FST that reads one symbol and writes another: pairs[read, written] is the cost.

    `NOTHING` stands for no symbol.  Pairs with symbols outside the alphabet are left out.
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
    """Return the acceptor of a string of symbols, all of the alphabet."""
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
    """Return one edit: a copy (cost 0), or a substitution, insertion or deletion at its cost."""
    pairs = {(a, b): 0.0 if a == b else substitute(a, b) for a in alphabet for b in alphabet}
    pairs |= {(NOTHING, b): insert(b) for b in alphabet}
    pairs |= {(a, NOTHING): delete(a) for a in alphabet}
    return costs(alphabet, pairs)


def gaps(alphabet: Alphabet, first: float, further: float) -> pynini.Fst:
    """Return a gap in the target or in the hypothesis; k symbols cost first + (k - 1) further."""
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
    """Return any number of the alternatives in a row, small, with the symbols of the alphabet.

    OpenFst merges alternatives that begin with the same pair at the same cost, and then every state
    behind one holds all arcs of the others: let the first arc of a longer alternative have a cost
    of its own.
    """
    return with_symbols(pynini.union(*alternatives).closure().optimize(), alphabet)
