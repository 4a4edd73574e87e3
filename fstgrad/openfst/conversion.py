"""Convert FSTs to arrays and back through OpenFst's binary form (see `fstgrad.openfst.binary`)."""

import struct
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.core.checks import instance, one_of
from fstgrad.core.errors import AlphabetError, FstError
from fstgrad.core.sequences import items
from fstgrad.openfst.arrays import ArcType, FstArrays
from fstgrad.openfst.binary import FST_MAGIC, WEIGHTS, parse_fst, records
from fstgrad.openfst.library import pynini, pywrapfst
from fstgrad.openfst.symbols import as_symbols, as_table, symbol_table

Fst = pynini.Fst

_EXPANDED = 1  # the only property that every ConstFst has; OpenFst computes the others
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs


def to_arrays(fst: pywrapfst.Fst) -> FstArrays:
    """Return any OpenFst FST as arrays with exact weights; O(states + arcs).

    Raises
    ------
    FstError
        `fst` is not an FST, its arc type is none of "standard", "log", "log64", an arc leads to a
        missing state, or a label is negative.
    """
    plain = read(fst)
    _checked_arc_type(plain)
    plain.set_input_symbols(None)
    plain.set_output_symbols(None)
    arrays = parse_fst(plain.write_to_string(), "fst")
    return replace(
        arrays,
        input_symbols=as_symbols(fst.input_symbols()),
        output_symbols=as_symbols(fst.output_symbols()),
    )


def from_arrays(arrays: FstArrays) -> Fst:
    """Return the mutable FST with these states and arcs; O(states + arcs).

    "standard" and "log" store float32, so costs are rounded to the nearest float32.
    """
    instance("arrays", arrays, FstArrays, "FstArrays")
    state_type, arc_type = records(WEIGHTS[arrays.arc_type])
    states, arcs = arrays.num_states, arrays.num_arcs
    state = np.zeros(states, state_type)
    state["final"] = arrays.final
    state["arcs"] = np.bincount(arrays.source, minlength=states)
    state["position"] = np.cumsum(state["arcs"]) - state["arcs"]
    for side in ("ilabel", "olabel"):
        epsilon = arrays.source[getattr(arrays, side) == 0]
        state[side[0] + "epsilons"] = np.bincount(epsilon, minlength=states)
    arc = np.zeros(arcs, arc_type)
    for name in ("ilabel", "olabel", "nextstate", "weight"):
        arc[name] = getattr(arrays, name)
    data = b"".join(
        (
            struct.pack("<i", FST_MAGIC),
            *(struct.pack("<i", len(s)) + s.encode() for s in ("const", arrays.arc_type)),
            _HEADER.pack(2, 0, _EXPANDED, arrays.start, states, arcs),
            state.tobytes(),
            arc.tobytes(),
        )
    )
    fst = Fst.read_from_string(data)
    if arrays.input_symbols is not None:
        fst.set_input_symbols(as_table(arrays.input_symbols))
    if arrays.output_symbols is not None:
        fst.set_output_symbols(as_table(arrays.output_symbols))
    return fst


def read(fst: pywrapfst.Fst) -> Fst:
    """Return a mutable copy of a pynini or pywrapfst FST of any type (vector, const, ...).

    Raises
    ------
    FstError
        `fst` is not an FST.
    """
    check_fst(fst)
    return fst.copy() if isinstance(fst, Fst) else Fst.from_pywrapfst(fst)


def check_fst(fst: Any, name: str = "fst") -> None:
    """Raise FstError, which calls it `name`, unless the argument is an OpenFst FST."""
    if not isinstance(fst, pywrapfst.Fst):
        word = "; for a word, fstgrad.openfst.acceptor_for(word, fst)" * isinstance(fst, str)
        raise FstError(
            f"{name} is a {type(fst).__name__}; give a pynini.Fst or a pywrapfst.Fst{word}"
        )


def with_arc_type(fst: pywrapfst.Fst, arc_type: ArcType) -> Fst:
    """Return a copy of the FST with another arc type and the same costs.

    Costs are exact, except that "log64" to "standard" or "log" rounds float64 to float32.

    Raises
    ------
    InvalidInputError
        `arc_type` is none of "standard", "log", "log64".
    FstError
        As in `to_arrays`.
    """
    one_of("arc_type", arc_type, get_args(ArcType))
    plain = read(fst)
    if _checked_arc_type(plain) == arc_type:
        return plain
    fields = {**to_arrays(plain).__dict__, "arc_type": arc_type}
    return from_arrays(FstArrays(**fields))


def with_symbols(fst: Fst, alphabet: Alphabet) -> Fst:
    """Return a copy of the FST with the symbol table of `alphabet` on both sides.

    Printing and drawing use the symbols.
    """
    result, table = read(fst), symbol_table(alphabet)
    result.set_input_symbols(table)
    result.set_output_symbols(table)
    return result


def with_character_symbols(fst: Fst) -> Fst:
    """Return a copy of the FST with a symbol table that reads labels as pynini writes them.

    A side that has a table keeps it.  On the other side, a label is the code point of a character,
    or a symbol that pynini generated in this process, written [NAME] in its strings.

    Raises
    ------
    FstError
        A label is neither of these, or `to_arrays` raises.
    """
    arrays = to_arrays(fst)
    result = read(fst)
    generated = dict(as_symbols(pynini.generated_symbols()) or ())
    for side, attach, known in (
        ("ilabel", result.set_input_symbols, arrays.input_symbols),
        ("olabel", result.set_output_symbols, arrays.output_symbols),
    ):
        if known is None:
            used = set(np.unique(getattr(arrays, side)).tolist()) - {0}
            pairs = [(label, generated.get(label) or _character(label)) for label in sorted(used)]
            attach(as_table(((0, EPSILON_SYMBOL), *pairs)))
    return result


def acceptor_for(
    sequence: str | Sequence[str], fst: pywrapfst.Fst, side: Literal["input", "output"] = "input"
) -> Fst:
    """Return the acceptor of one string with the labels and symbols of a side of an FST.

    pynini composes it with the FST; a str that is given to `pynini.compose` itself has the labels
    of its bytes instead, and the composition with an FST of other labels is empty.

    Parameters
    ----------
    sequence : str, or sequence of symbols
        A str is split into characters.
    fst : pynini.Fst
        With a symbol table on that side; without one, labels are characters.
    side : {"input", "output"}

    Raises
    ------
    AlphabetError
        The FST has no label for a symbol.

    Examples
    --------
    >>> import pynini
    >>> from fstgrad.grammars import Grammar
    >>> names = Grammar.load("names").build()
    >>> words = [acceptor_for(word, names, "output") for word in ("jones", "smith")]
    >>> best = pynini.shortestpath(acceptor_for("smyth", names) @ names @ pynini.union(*words))
    >>> best.project("output").rmepsilon().string(token_type=names.output_symbols())
    's m i t h'
    """
    one_of("side", side, ("input", "output"))
    symbols = items("sequence", sequence)
    table = to_arrays(with_character_symbols(read(fst)))
    pairs = (table.input_symbols if side == "input" else table.output_symbols) or ()
    label_of = {symbol: label for label, symbol in pairs if label != 0}
    unknown = [
        symbol for symbol in symbols if not isinstance(symbol, str) or symbol not in label_of
    ]
    if unknown:
        shown = " ".join(list(label_of)[:20])
        raise AlphabetError(
            f"{unknown[0]!r} in sequence is no symbol of the {side} side of the FST ({shown}); a "
            "str is split into characters, so give symbols of several characters as a list"
        )
    labels = np.array([label_of[symbol] for symbol in symbols], dtype=np.int64)
    at = np.arange(len(labels))
    final = np.append(np.full(len(labels), np.inf), 0.0)
    weight = np.zeros(len(labels))
    arc_type = _checked_arc_type(fst)
    return from_arrays(
        FstArrays(arc_type, 0, final, at, labels, labels, at + 1, weight, pairs, pairs)
    )


def _character(label: int) -> str:
    if label > sys.maxunicode or 0xD800 <= label < 0xE000:
        raise FstError(f"label {label} has no symbol table and is not a character; give a table")
    return chr(label)


def _checked_arc_type(fst: pywrapfst.Fst) -> ArcType:
    arc_type = fst.arc_type()
    if arc_type not in WEIGHTS:
        raise FstError(f"fst has arc type {arc_type!r}; use one of {', '.join(WEIGHTS)}")
    return arc_type
