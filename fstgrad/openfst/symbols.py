"""Symbol tables: alphabets in OpenFst, and tables as tuples of (label, symbol)."""

import pywrapfst

from fstgrad.alphabet import EPSILON, Alphabet
from fstgrad.errors import FstError
from fstgrad.openfst.arrays import Symbols


def symbol_table(alphabet: Alphabet) -> pywrapfst.SymbolTable:
    """Return the OpenFst symbol table of an alphabet: epsilon is 0, symbol i is i + 1."""
    return as_table(((0, EPSILON), *enumerate(alphabet.symbols, start=1)))


def as_symbols(table: pywrapfst.SymbolTableView | None) -> Symbols | None:
    """Return a symbol table as (label, symbol) pairs."""
    return None if table is None else tuple((int(label), str(symbol)) for label, symbol in table)


def as_table(symbols: Symbols) -> pywrapfst.SymbolTable:
    """Return (label, symbol) pairs as a symbol table."""
    table = pywrapfst.SymbolTable()
    for label, symbol in symbols:
        table.add_symbol(symbol, label)
    return table


def check_symbols(left: Symbols | None, right: Symbols | None) -> None:
    """Raise where two tables that meet in a composition give a label two symbols."""
    if left is None or right is None or left == right:
        return
    ours, theirs = dict(left), dict(right)
    for label in sorted(ours.keys() | theirs.keys()):
        if ours.get(label) != theirs.get(label):
            raise FstError(
                f"cannot compose: label {label} is {ours.get(label)!r} on the left and "
                f"{theirs.get(label)!r} on the right; build both with the same Alphabet"
            )
