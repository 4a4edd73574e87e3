"""Read AT&T text: FSTs and symbol tables, as OpenFst, foma, HFST and pyfoma write them.

A line is an arc, `source nextstate input output [cost]` or `source nextstate label [cost]`, or a
final state, `state [cost]`; the default cost is 0.  Where two readings of a line are possible,
which give different FSTs, an error says how to write the line.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.axis_labels import EPSILONS, are_greek
from fstgrad.core.checks import FloatArray, IntArray, flag, instance
from fstgrad.core.errors import FstError, InvalidInputError
from fstgrad.io import NUMBER, read_text
from fstgrad.openfst.arrays import FstArrays, Symbols
from fstgrad.openfst.lines import (
    KALDI,
    STATE,
    Line,
    cost_of,
    lines_of,
    split_fields,
    text_lines,
)
from fstgrad.openfst.symbols import check_ordinary

_FRACTION = re.compile(r"[-+]?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?|inf", re.I)  # a cost of Python
_LABELS = 2**31  # OpenFst stores labels as int32
_ESCAPES = {"@_SPACE_@": " ", "@_TAB_@": "\t", "@_COLON_@": ":"}


class TextArcs(NamedTuple):
    """The content of AT&T text, with the states as written.

    start : the start state; final : {final state: its cost}
    source, nextstate, ilabel, olabel : (A,) int64, arcs in the order of the lines; 0 is epsilon
    cost : (A,) float64, in nats; line : (A,) int64, the number of each line, from 1
    symbols : the names of the labels
    """

    start: int
    final: dict[int, float]
    source: IntArray
    nextstate: IntArray
    ilabel: IntArray
    olabel: IntArray
    cost: FloatArray
    line: IntArray
    symbols: Symbols

    def arrays(self) -> FstArrays:
        """Return the FST in "log64"; states are renumbered from 0 in increasing order."""
        given = [[self.start], list(self.final), self.source, self.nextstate]
        states = np.unique(np.concatenate([np.asarray(part, dtype=np.int64) for part in given]))
        final = np.full(len(states), np.inf)
        final[np.searchsorted(states, list(self.final))] = list(self.final.values())
        return FstArrays(
            arc_type="log64",
            start=int(np.searchsorted(states, self.start)),
            final=final,
            source=np.searchsorted(states, self.source),
            ilabel=self.ilabel,
            olabel=self.olabel,
            nextstate=np.searchsorted(states, self.nextstate),
            weight=self.cost,
            input_symbols=self.symbols,
            output_symbols=self.symbols,
        )


def parse_text(
    text: str,
    name: str,
    symbols: Symbols | None = None,
    *,
    acceptor: bool = False,
    known: Container[str] = (),
) -> TextArcs:
    r"""Return the FST of AT&T text.

    Fields are separated by tabs and spaces, lines by "\n" or "\r\n".  Between tabs, an empty
    field is epsilon, and one space is the symbol space.  The first state in the text is the start.
    The symbols of `EPSILONS` are epsilon; `@_SPACE_@`, `@_TAB_@` and `@_COLON_@` are escapes.

    Parameters
    ----------
    text : str
    name : str
        The name of the text in errors.
    symbols : tuple of (label, symbol), optional
        The symbol table: arcs have its symbols, or its labels.  Without it, arcs have symbols,
        which get labels in the order of appearance.
    acceptor : bool
        Whether lines of four fields whose fourth is a number have one label and a cost (if no line
        has five fields), or two labels.
    known : container of str
        Symbols that may be numbers: "0" is a symbol only if it is here or in `symbols`.

    Raises
    ------
    FstError
        The text is empty, of another format or ambiguous; a line is malformed; a symbol is not in
        `symbols`, or stands for other symbols, as a flag diacritic does.
    """
    instance("text", text, str, "AT&T text")
    check_known(symbols, known)
    flag("acceptor", acceptor)
    return parse_lines(list(lines_of(text, name)), name, symbols, acceptor=acceptor, known=known)


def check_known(symbols: Symbols | None, known: Container[str]) -> None:
    """Raise InvalidInputError unless these are a symbol table, or None, and a container."""
    if symbols is not None:
        pairs = "pairs (label, symbol), as fstgrad.openfst.read_symbols(path) returns"
        instance("symbols", symbols, Sequence, pairs)
        given: Any = symbols
        for pair in (given,) if isinstance(given, str) else given:
            if isinstance(pair, str) or len(pair) != 2 or not isinstance(pair[1], str):
                raise InvalidInputError(f"symbols has {pair!r}; give {pairs}")
    instance("known", known, Container, "a container of symbols")


def parse_lines(
    lines: list[Line],
    name: str,
    symbols: Symbols | None = None,
    *,
    acceptor: bool = False,
    known: Container[str] = (),
) -> TextArcs:
    """Return the FST of the lines of AT&T text; see `parse_text`."""
    if not lines:
        raise FstError(f"{name} is empty; give the lines of an FST in AT&T text")
    arcs = [line for line in lines if line.is_arc]
    final = _final_states([line for line in lines if not line.is_arc])
    _reject_k2(lines, arcs, final)
    _reject_several(lines)
    table_of = {symbol for _, symbol in symbols or ()}
    has_cost = _four_are_label_and_cost(arcs, acceptor, lambda s: s in known or s in table_of)
    rows = list(_arcs(arcs, has_cost))
    table = _Table(symbols, [(row[2:4], line) for row, line in zip(rows, arcs, strict=True)], known)
    columns = list(zip(*rows, strict=True)) or [()] * 5
    start = int(lines[0].fields[0])
    _check_start(start, lines, name)
    source, nextstate = (np.array(states, dtype=np.int64) for states in columns[:2])
    ilabel, olabel = (np.array([table.labels[s] for s in c], dtype=np.int64) for c in columns[2:4])
    return TextArcs(
        start, final, source, nextstate, ilabel, olabel,
        np.array(columns[4], dtype=np.float64),
        np.array([line.number for line in arcs], dtype=np.int64),
        table.symbols,
    )  # fmt: skip


def read_symbols(path: str) -> Symbols:
    """Return the symbol table of a text file: a symbol, a tab or spaces, and a label on each line.

    Raises
    ------
    FstError
        A line is malformed, two lines have one label or one symbol, or epsilon is not label 0.
    """
    pairs: dict[int, str] = {}
    seen: set[str] = set()
    for number, line in text_lines(read_text(path), str(path)):
        fields = line.split("\t") if line.count("\t") == 1 else split_fields(line)
        if not fields:
            continue
        label = fields[-1].strip(" ")
        if len(fields) != 2 or not STATE.fullmatch(label) or int(label) >= _LABELS:
            raise FstError(f"{path}:{number}: {line!r}; a line is a symbol and its label >= 0")
        symbol = _unescaped(fields[0])
        if int(label) in pairs or symbol in seen:
            raise FstError(f"{path}:{number}: {line!r} repeats a label or a symbol; give each once")
        if int(label) and symbol in EPSILONS:
            raise FstError(f"{path}:{number}: {symbol!r} has label {label}; epsilon is label 0")
        pairs[int(label)] = symbol
        seen.add(symbol)
    return tuple(pairs.items())


def _final_states(lines: list[Line]) -> dict[int, float]:
    final: dict[int, float] = {}
    for line in lines:
        state = int(line.fields[0])
        cost = cost_of(line.fields[1], line) if len(line.fields) == 2 else 0.0
        if final.setdefault(state, cost) != cost:
            raise line.error(f"state {state} has the cost {final[state]:g} before, and another")
    return final


def _four_are_label_and_cost(
    arcs: list[Line], acceptor: bool, is_symbol: Callable[[str], bool]
) -> bool:
    """Return whether lines of four fields are a label and its cost, not two labels."""
    sizes = {len(line.fields) for line in arcs}
    four = [line for line in arcs if len(line.fields) == 4]
    if not four:
        return False
    for line in four:
        if KALDI.fullmatch(line.fields[3]) and line.fields[3].count(",") == 2:
            cost_of(line.fields[3], line)
    first = four[0]
    both = "one label and its cost, or two labels; give two labels and a cost"
    if 5 in sizes:
        if all(_FRACTION.fullmatch(line.fields[3]) for line in four):
            raise first.error(f"{both}, as pyfoma does since version 2:")
        return False
    if not all(NUMBER.fullmatch(line.fields[3]) for line in four):
        return False
    if 3 not in sizes and not acceptor:
        for line in four:
            if _FRACTION.fullmatch(line.fields[3]) and not is_symbol(line.fields[3]):
                raise line.error(f"{both}, or symbols= (a table of symbols):")
        return False
    if not acceptor or (3 not in sizes and all(line.fields[2] == line.fields[3] for line in four)):
        raise first.error(f"{both}:")
    return True


def _arcs(lines: list[Line], has_cost: bool) -> Iterator[tuple[int, int, str, str, float]]:
    """Yield source, nextstate, input and output symbol ("" for epsilon) and cost of each arc."""
    names: dict[str, str] = {}
    for line in lines:
        fields = line.fields
        size = len(fields)
        cost = 0.0
        if size == 5 or (size == 4 and has_cost):
            cost = cost_of(fields[-1], line)
            size -= 1
        for field in fields[2:size]:
            if field not in names:
                names[field] = "" if field in EPSILONS else _unescaped(field)
                check_ordinary(names[field], line.place)
        yield int(fields[0]), int(fields[1]), names[fields[2]], names[fields[size - 1]], cost


def _unescaped(symbol: str) -> str:
    for escape, character in _ESCAPES.items():
        symbol = symbol.replace(escape, character)
    return symbol


class _Table:
    """The label of each symbol, "" for epsilon; see `symbols` and `known` of `parse_text`."""

    def __init__(
        self,
        given: Symbols | None,
        used: list[tuple[tuple[str, ...], Line]],
        known: Container[str],
    ) -> None:
        lines: dict[str, Line] = {}
        for names, line in used:
            for symbol in names:
                lines.setdefault(symbol, line)
        lines.pop("", None)
        are_numbers = all(name == "-1" or STATE.fullmatch(name) for name in lines)
        if given is None:
            self._check_epsilon(lines, known)
            if "0" in lines and are_numbers and "0" not in known:
                raise lines["0"].error(
                    "all labels are numbers, and 0 may be epsilon; give symbols= (a table of "
                    "symbols), an alphabet with the symbol '0', or write symbols (fstprint "
                    "--isymbols) and epsilon as <eps>:"
                )
            if lines and are_numbers and known and not any(name in known for name in lines):
                raise next(iter(lines.values())).error(
                    "all labels are numbers, and none is in the alphabet; give symbols= (a table "
                    "of symbols), or write symbols (fstprint --isymbols):"
                )
            self.labels = {symbol: label for label, symbol in enumerate(lines, start=1)}
            self.symbols: Symbols = ((0, "<eps>"), *((i, s) for s, i in self.labels.items()))
        else:
            self.labels = {symbol: label for label, symbol in given}
            self.symbols = given
            if are_numbers and not lines.keys() <= self.labels.keys():
                self.labels = {str(label): label for label, _ in given}
            self._check_known(lines)
        self.labels[""] = 0

    @staticmethod
    def _check_epsilon(lines: dict[str, Line], known: Container[str]) -> None:
        """Raise FstError for other names of epsilon, unless these are known symbols."""
        for name in ("\u03b5", "<>"):
            if name in lines and name not in known and (name == "<>" or not are_greek(lines, ())):
                raise lines[name].error(
                    f"{name!r} may be epsilon; write <eps>, or give an alphabet or symbols= (a "
                    f"table of symbols) with the symbol {name!r}:"
                )

    def _check_known(self, lines: dict[str, Line]) -> None:
        """Raise FstError for a symbol that the table has not, rather than for a label."""
        unknown = {symbol: line for symbol, line in lines.items() if symbol not in self.labels}
        labels = {str(label) for label in self.labels.values()}
        for symbol, line in unknown.items():
            if symbol not in labels:
                k2 = "; text of k2 ends with the number of its final state" * (symbol == "-1")
                raise line.error(f"{symbol!r} is not in the symbol table{k2}:")
        for symbol, line in unknown.items():
            raise line.error(f"{symbol!r} is a label, and other arcs have symbols; use one kind:")


def _reject_k2(lines: list[Line], arcs: list[Line], final: dict[int, float]) -> None:
    """Raise FstError for the text of k2, in which label -1 marks all arcs to the final state."""
    last = lines[-1].fields
    if len(final) != 1 or len(last) != 1 or not any(line.fields[2] == "-1" for line in arcs):
        return
    if all((line.fields[2] == "-1") == (line.fields[1] == last[0]) for line in arcs):
        raise lines[0].error(
            "text of k2, in which label -1 leads to the final state; only lattices are read from "
            "it, with a score on each line (if -1 is a symbol, give the final state a cost):"
        )


def _reject_several(lines: list[Line]) -> None:
    """Raise FstError if, after a final state and a blank line, the start state begins again."""
    for before, line in pairwise(lines):
        is_apart = line.number > before.number + 1 and not before.is_arc
        if is_apart and line.is_arc and line.fields[0] == lines[0].fields[0]:
            raise line.error(
                "after a blank line, a second FST may begin; give each FST its own file (without "
                "the blank line, the text is one FST):"
            )


def _check_start(start: int, lines: list[Line], name: str) -> None:
    """Raise FstError if another state than the first one in the text may be the start."""
    ahead: dict[int, list[int]] = {}
    order: list[int] = []  # the states whose lines begin
    for line in lines:
        state = int(line.fields[0])
        if line.is_arc:
            ahead.setdefault(state, []).append(int(line.fields[1]))
        if not order or order[-1] != state:
            order.append(state)
    lowest = min(ahead, default=start)
    if start <= lowest:
        return
    reached, front = {start}, [start]
    while front:
        front = [state for state in ahead.get(front.pop(), ()) if state not in reached] + front
        reached.update(front)
    if lowest not in reached or order[1:] != sorted(set(order[1:])):
        raise FstError(
            f"{name}: the first line makes {start} the start, as in OpenFst, but foma, HFST and "
            f"pyfoma start at {lowest}; put the lines of the start state first (as pyfoma's "
            "save_att does), the other states in increasing order, without states that are never "
            "reached"
        )
