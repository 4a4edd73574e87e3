"""Symbol tables: OpenFst tables of alphabets, and tables as tuples of (label, symbol)."""

import re
from dataclasses import replace

import numpy as np

from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.core.axis_labels import EPSILONS
from fstgrad.core.checks import IntArray, instance, is_integer, one_of
from fstgrad.core.errors import (
    AlphabetError,
    FstError,
    InvalidInputError,
    UnusedArcsWarning,
    warn,
)
from fstgrad.core.sequences import fields, items
from fstgrad.openfst.arrays import FstArrays, Symbols
from fstgrad.openfst.library import pywrapfst

_FLAG = re.compile(r"@[A-Z]\.[^@]+@|\[\[[!$].+\]\]")  # of foma and HFST; of pyfoma
_SPECIAL = re.compile(r"@_.+_@")


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
    tables = [
        None if table is None else _table_of(name, table)
        for name, table in (("left", left), ("right", right))
    ]
    ours, theirs = tables
    if ours is None or theirs is None:
        return
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
    dropped, because no string over the alphabet uses them, with an `UnusedArcsWarning`.

    Parameters
    ----------
    sides : tuple of "input" and "output"
        The sides to relabel.

    Raises
    ------
    FstError
        A symbol of the alphabet, or a label of the FST, is not in a symbol table; or as in
        `check_ordinary`.
    """
    instance("fst", fst, FstArrays, "FstArrays")
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    sides = tuple(
        one_of("one of sides", side, ("input", "output")) for side in items("sides", sides)
    )
    kept = np.ones(fst.num_arcs, dtype=bool)
    outside: set[str] = set()
    fields: dict[str, object] = {}
    for side in sides:
        table = dict((fst.input_symbols if side == "input" else fst.output_symbols) or ())
        if not table:
            continue
        name, what = f"{side[0]}label", f"the {side} side of the transducer"
        _check_complete(table, alphabet, side)
        labels = labels_over(getattr(fst, name), table, alphabet, what)
        lost = labels < 0
        kept &= ~lost
        outside |= {table[label] for label in np.unique(getattr(fst, name)[lost]).tolist()}
        fields |= {name: labels, f"{side}_symbols": None}
    if outside:
        more = f" and {len(outside) - 10:,} more" if len(outside) > 10 else ""
        warn(
            f"{(~kept).sum():,} of {fst.num_arcs:,} arcs of the transducer have a symbol outside "
            f"the alphabet and are left out: {' '.join(map(repr, sorted(outside)[:10]))}{more}; "
            "an alphabet with these symbols keeps them",
            UnusedArcsWarning,
        )
    if not fields:
        return fst
    whole = replace(fst, **fields)  # type: ignore[arg-type]
    names = ("source", "ilabel", "olabel", "nextstate", "weight")
    return replace(whole, **{name: getattr(whole, name)[kept] for name in names})


def check_sides(inputs: Symbols | None, outputs: Symbols | None, alphabet: Alphabet) -> None:
    """Raise FstError if one side has a table, the other has none, and labels are not ids + 1."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    for table, side, other in ((inputs, "input", "output"), (outputs, "output", "input")):
        if table is None:
            continue
        names = dict(fields(f"{side}s", table, 2))
        if inputs is not None and outputs is not None:
            continue
        if any(names.get(label) != symbol for label, symbol in enumerate(alphabet, start=1)):
            raise FstError(
                f"the {side} side of the transducer has a symbol table, whose labels are not those "
                f"of the alphabet, and the {other} side has none; give it one with "
                f"set_{other}_symbols"
            )


def acceptor_over(fst: FstArrays, alphabet: Alphabet, name: str) -> FstArrays:
    """Return an acceptor with the labels of `alphabet`, matched by symbol, and without tables.

    Without symbol tables, label i + 1 is symbol i.

    Raises
    ------
    FstError
        The two sides differ, a label is not in its symbol table, or as in `check_ordinary` and
        `check_not_text`.
    AlphabetError
        A symbol is outside the alphabet.
    """
    instance("fst", fst, FstArrays, "an FstArrays")
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    inputs, outputs = fst.input_symbols, fst.output_symbols
    sides = [(fst.ilabel, inputs or outputs), (fst.olabel, outputs or inputs)]
    if inputs == outputs or not (inputs and outputs):
        _check_equal(fst.ilabel, fst.olabel, name)
        del sides[1]
    found = []
    for labels, symbols in sides:
        if symbols is None and labels.size and labels.max() > len(alphabet):
            raise AlphabetError(
                f"{name} has label {labels.max()} and no symbol table; the alphabet has labels "
                f"1 .. {len(alphabet)}; if labels are characters, as in strings of pynini, give "
                "fstgrad.openfst.with_character_symbols(fst)"
            )
        if symbols is None:
            check_not_text(labels, alphabet, name)
        table = dict(symbols or enumerate((EPSILON_SYMBOL, *alphabet)))
        found.append(labels_over(labels, table, alphabet, name))
        if (found[-1] < 0).any():
            symbol = table[int(labels[found[-1] < 0][0])]
            raise AlphabetError(
                f"{name} has the symbol {symbol!r}, which is not in the alphabet; add it to the "
                "alphabet"
            )
    _check_equal(found[0], found[-1], name)
    return replace(fst, ilabel=found[0], olabel=found[0], input_symbols=None, output_symbols=None)


def check_not_text(labels: IntArray, alphabet: Alphabet, name: str) -> None:
    """Raise FstError if labels without a table may be the bytes of a text, as pynini writes str.

    They may be if all are printable bytes and stand for other symbols of the alphabet.
    """
    used = np.unique(labels[labels > 0]).tolist()
    if not used or used[0] < ord(" ") or used[-1] > min(255, len(alphabet)) or 127 in used:
        return
    symbols, characters = [alphabet.symbols[label - 1] for label in used], [*map(chr, used)]
    if symbols != characters:
        shown = (" ".join(map(str, parts[:10])) for parts in (used, symbols, characters))
        raise FstError(
            "{} has no symbol table, and its labels {} are the symbols {} or the characters {}, as "
            "in strings of pynini; give fstgrad.openfst.with_symbols({}, alphabet) for symbols, or "
            "fstgrad.openfst.with_character_symbols({}) for characters".format(
                name, *shown, name, name
            )
        )


def _check_equal(ilabel: IntArray, olabel: IntArray, name: str) -> None:
    if (ilabel != olabel).any():
        raise FstError(f"{name} is a transducer; give an acceptor (project it to one side)")


def labels_over(labels: IntArray, table: dict[int, str], alphabet: Alphabet, name: str) -> IntArray:
    """Return the alphabet's labels of the symbols of `labels`; -1 for symbols outside it.

    Raises
    ------
    FstError
        A label is not in the table, label 0 (epsilon) has a symbol of the alphabet, or as in
        `check_ordinary`.
    """
    used, where = np.unique(labels, return_inverse=True)
    if table.get(0) in alphabet and 0 in used:
        raise FstError(
            f"label 0 of {name} is epsilon, and its symbol table calls it {table[0]!r}, a symbol "
            "of the alphabet; give symbols labels from 1"
        )
    number = {symbol: i for i, symbol in enumerate(alphabet, start=1)}
    new = np.zeros(len(used), dtype=np.int64)
    for i, label in enumerate(used.tolist()):
        if label == 0:
            continue
        if label not in table:
            shown = " ".join(sorted(table[label] for label in table if label)[:20])
            advice = "give the table that it was made with"
            if label < 128 and chr(label) in table.values():
                advice += (
                    f", or, if it is the byte of {chr(label)!r}, make all strings with a table"
                )
                advice += ", as fstgrad.openfst.acceptor_for(word, fst) does"
            raise FstError(
                f"label {label} is not in the symbol table of {name} ({shown}); {advice}"
            )
        if table[label] in EPSILONS:
            raise FstError(
                f"{table[label]!r} has label {label} in the symbol table of {name}; epsilon is "
                "label 0"
            )
        check_ordinary(table[label], name)
        new[i] = number.get(table[label], -1)
    return new[where]


def check_ordinary(symbol: str, place: str) -> None:
    """Raise FstError for a symbol that stands for other symbols, or restricts paths."""
    if _FLAG.fullmatch(symbol):
        raise FstError(
            f"{place}: {symbol!r} is a flag diacritic, which restricts paths; remove it with "
            "'eliminate flags' of foma, hfst-eliminate-flags, or eliminate_flags() of pyfoma"
        )
    if _SPECIAL.fullmatch(symbol):
        raise FstError(
            f"{place}: {symbol!r} stands for other symbols, or is special in foma and HFST; "
            "replace it by arcs with the symbols of the alphabet"
        )


def _check_complete(table: dict[int, str], alphabet: Alphabet, side: str) -> None:
    """Raise FstError unless the table has every symbol of the alphabet."""
    symbols = {symbol for label, symbol in table.items() if label != 0}
    missing = [symbol for symbol in alphabet if symbol not in symbols]
    if missing:
        advice = "add the symbols to the transducer, or leave them out of the alphabet"
        if all(symbols.issuperset(symbol.encode().decode("latin-1")) for symbol in missing):
            advice = (
                f"the FST has the bytes of {missing[0]!r}: build its strings with "
                "pynini.accep(s, token_type='utf8')"
            )
        raise FstError(
            f"the alphabet has {' '.join(missing[:10])!r}, and the {side} symbols of the "
            f"transducer are {' '.join(sorted(symbols)[:20])!r}; {advice}"
        )
