"""Symbol tables: OpenFst tables of alphabets, and tables as tuples of (label, symbol)."""

from dataclasses import replace

import numpy as np

from fstgrad.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.checks import IntArray, fields, instance, is_integer, items, one_of
from fstgrad.errors import FstError, InvalidInputError
from fstgrad.openfst.arrays import FstArrays, Symbols
from fstgrad.openfst.library import pywrapfst


def symbol_table(alphabet: Alphabet) -> pywrapfst.SymbolTable:
    """Return the OpenFst symbol table of an alphabet: label 0 is epsilon, i + 1 is symbol i."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    return as_table(((0, EPSILON_SYMBOL), *enumerate(alphabet.symbols, start=1)))


def as_symbols(table: pywrapfst.SymbolTableView | None) -> Symbols | None:
    """Return an OpenFst symbol table as (label, symbol) pairs; None for None."""
    return None if table is None else tuple((int(label), str(symbol)) for label, symbol in table)


def as_table(symbols: Symbols) -> pywrapfst.SymbolTable:
    """Return the OpenFst symbol table of (label, symbol) pairs."""
    table = pywrapfst.SymbolTable()
    for label, symbol in symbols:
        table.add_symbol(symbol, label)
    return table


def check_symbols(left: Symbols | None, right: Symbols | None) -> None:
    """Raise FstError if the two tables of a composition disagree on a label."""
    if left is None or right is None:
        return
    ours, theirs = _table_of("left", left), _table_of("right", right)
    for label in sorted(ours.keys() | theirs.keys()):
        if ours.get(label) != theirs.get(label):
            raise FstError(
                f"cannot compose: label {label} is {ours.get(label)!r} on the left and "
                f"{theirs.get(label)!r} on the right; build both with the same Alphabet"
            )


def _table_of(name: str, symbols: Symbols) -> dict[int, str]:
    """Return {label: symbol}; InvalidInputError unless rows are (label, symbol)."""
    rows = fields(name, symbols, 2)
    for label, symbol in rows:
        if not is_integer(label) or not isinstance(symbol, str):
            raise InvalidInputError(f"{name} has {(label, symbol)!r}; give (label, symbol)")
    return {label: symbol for label, symbol in rows}


def over_alphabet(
    fst: FstArrays, alphabet: Alphabet, sides: tuple[str, ...] = ("input", "output")
) -> FstArrays:
    """Return the FST with the labels of `alphabet` (matched by symbol) and without symbol tables.

    A side without a symbol table stays unchanged.  Arcs with a symbol outside the alphabet are
    dropped, because no string over the alphabet uses them.

    Parameters
    ----------
    sides : tuple of "input" and "output"
        The sides to relabel.

    Raises
    ------
    FstError
        A symbol of the alphabet, or a label of the FST, is not in a symbol table.
    """
    instance("fst", fst, FstArrays, "FstArrays")
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    sides = tuple(one_of("a side", side, ("input", "output")) for side in items("sides", sides))
    kept = np.ones(fst.num_arcs, dtype=bool)
    fields: dict[str, object] = {}
    for side in sides:
        table = fst.input_symbols if side == "input" else fst.output_symbols
        if table is None:
            continue
        name = f"{side[0]}label"
        labels = _relabelled(getattr(fst, name), dict(table), alphabet, side)
        kept &= labels >= 0
        fields |= {name: labels, f"{side}_symbols": None}
    if not fields:
        return fst
    whole = replace(fst, **fields)  # type: ignore[arg-type]
    names = ("source", "ilabel", "olabel", "nextstate", "weight")
    return replace(whole, **{name: getattr(whole, name)[kept] for name in names})


def _relabelled(labels: IntArray, table: dict[int, str], alphabet: Alphabet, side: str) -> IntArray:
    """Return the alphabet's labels of the symbols of one side; -1 for symbols outside it."""
    symbols = {symbol for label, symbol in table.items() if label != 0}
    missing = [symbol for symbol in alphabet if symbol not in symbols]
    shown = " ".join(sorted(symbols)[:20])
    if missing:
        raise FstError(
            f"the alphabet has {' '.join(missing[:10])!r}, and the {side} symbols of the "
            f"transducer are {shown!r}; add the symbols to the transducer, or leave them out of "
            "the alphabet"
        )
    number = {symbol: i for i, symbol in enumerate(alphabet, start=1)}
    new = {label: number.get(symbol, -1) for label, symbol in table.items()}
    new[0] = 0
    unnamed = set(np.unique(labels).tolist()) - new.keys()
    if unnamed:
        raise FstError(
            f"label {min(unnamed)} of the transducer is not in its {side} symbol table ({shown}); "
            "give the table that the transducer was made with"
        )
    return np.array([new[label] for label in labels.tolist()], dtype=np.int64)
