"""Read lattices in text: acceptors in AT&T text, archives of Kaldi, and FSAs of k2.

======== =================================== =============================================
form     line of an arc                      line of a final state
======== =================================== =============================================
AT&T     source nextstate label [label]      state [cost]
         [cost]
Kaldi    source nextstate [input] word       state [graph,acoustic[,transitions]]
         [graph,acoustic[,transitions]]
k2       source nextstate label [word] score state, the last line; label -1 leads to it
======== =================================== =============================================

An archive of Kaldi has several entries: a line with the key, the lines of a lattice in one of these
forms, a blank line.  There, 5,0 is a cost of two parts; elsewhere it may be a number with a decimal
comma, which is an error.  The costs of Kaldi are added up; the scores of k2 are log-weights, the
opposite of costs.
"""

import re
from collections.abc import Container, Iterable
from itertools import islice, takewhile

import numpy as np

from fstgrad.core.axis_labels import EPSILONS
from fstgrad.core.checks import instance, real_number
from fstgrad.core.errors import FstError, FstgradError
from fstgrad.io import NUMBER, Path, read_rows
from fstgrad.openfst.arrays import Symbols
from fstgrad.openfst.lines import (
    KALDI,
    STATE,
    Line,
    checked_line,
    cost_of,
    split_fields,
    text_lines,
)
from fstgrad.openfst.text import TextArcs, check_known, parse_lines

_EPSILON = "<eps>"
_SEEN = 100  # lines of a file that tell its form
_WORDS = (
    "labels are numbers; give the table of symbols (words.txt in Kaldi and k2), or write words, as "
    "Kaldi's int2sym.pl -f 3 does:"
)


def parse_lattices(
    text: str,
    name: str,
    symbols: Symbols | None = None,
    *,
    known: Container[str] = (),
    acoustic_scale: float = 1.0,
    lm_scale: float = 1.0,
) -> dict[str, TextArcs]:
    """Return the lattices of a text by key; the key of a text without keys is "".

    Parameters
    ----------
    text : str
    name : str
        The name of the text in errors.
    symbols : tuple of (label, symbol), optional
        The symbol table of numeric labels.
    known : container of str
        As in `parse_text`, for AT&T text.
    acoustic_scale, lm_scale : float
        Factors of the acoustic and of the graph costs of Kaldi.

    Raises
    ------
    FstError
        The text is empty or malformed; a scale is not 1 and a lattice is not Kaldi's; labels of
        Kaldi or k2 are numbers without `symbols`; an arc of AT&T text has two different labels.
    """
    instance("text", text, str, "the text of a lattice")
    check_known(symbols, known)
    scales = real_number("lm_scale", lm_scale), real_number("acoustic_scale", acoustic_scale)
    rows = [
        Line(name, number, content, split_fields(content))
        for number, content in text_lines(text, name)
    ]
    first = next((line for line in rows if line.fields), None)
    if first is None:
        raise FstError(f"{name} is empty; give the lines of a lattice")
    is_archive = len(first.fields) == 1 and (
        not STATE.fullmatch(first.fields[0]) or _is_kaldi(line for line in rows)
    )
    entries = _entries(rows) if is_archive else {"": [line for line in rows if line.fields]}
    of_kaldi = is_archive and bool(_kaldi_costs(rows))  # also whole numbers, as 5,0
    found = {}
    for key, lines in entries.items():
        if of_kaldi or _is_kaldi(lines):
            converted = [_kaldi(line, scales) for line in lines]
            found[key] = _acceptor(converted, name, symbols)
            continue
        check_unscaled(name, scales)
        if _is_k2(lines, known):
            found[key] = _acceptor(_k2(lines), name, symbols)
        else:
            found[key] = _att(lines, name, symbols, known)
    return found


def _entries(rows: list[Line]) -> dict[str, list[Line]]:
    """Return the lines of each entry of an archive, by key."""
    entries: dict[str, list[Line]] = {}
    entry: list[Line] | None = None
    for line in rows:
        if not line.fields:
            entry = None
        elif entry is None:
            key = line.fields[0]
            if len(line.fields) > 1 or key in entries:
                raise line.error("after a blank line, an archive has a key that no entry has yet,")
            entry = entries[key] = []
        else:
            entry.append(line)
    for key, lines in entries.items():
        if not lines and len(rows) == 1:
            raise FstError(
                f"{rows[0].name} is the one word {key!r}; give the lines of a lattice, and not the "
                "name of a file"
            )
        if not lines:
            raise FstError(f"{rows[0].name}: the entry {key!r} has no lines; leave it out")
    return entries


def _att(lines: list[Line], name: str, symbols: Symbols | None, known: Container[str]) -> TextArcs:
    lines = list(map(checked_line, lines))
    for line in lines:
        if (cost := _kaldi_costs([line])) and cost != line.fields[2:3]:
            raise line.error(
                f"the cost {cost[0]!r} has several parts, which only lattices of Kaldi have (a "
                "decimal comma must be a point); those begin with a line with their key, as in an "
                "archive:"
            )
    arcs = parse_lines(lines, name, symbols, acceptor=True, known=known)
    names = dict(arcs.symbols)
    for arc in np.flatnonzero(arcs.ilabel != arcs.olabel)[:1]:
        raise FstError(
            f"{name}:{arcs.line[arc]}: an arc of a transducer, with {names[arcs.ilabel[arc]]!r} "
            f"and {names[arcs.olabel[arc]]!r}; give an acceptor (project it to one side)"
        )
    return arcs


def starts_as_kaldi(path: Path) -> bool:
    """Return whether a file begins as an archive of Kaldi in text: a key, arcs, costs of parts."""
    try:
        rows = [row.text() for row in islice(read_rows(path), 1 + _SEEN)]
    except FstgradError:
        return False
    key, *lines = map(split_fields, rows or [""])
    arcs = list(takewhile(bool, lines))
    return len(key) == 1 and bool(
        arcs
        and all(len(fields) <= 5 and STATE.fullmatch(fields[0]) for fields in arcs)
        and _kaldi_costs(Line("", 0, "", fields) for fields in arcs)
    )


def _kaldi_costs(lines: Iterable[Line]) -> list[str]:
    """Return the costs of several parts of arcs and final states."""
    return [
        line.fields[-1]
        for line in lines
        if len(line.fields) in (2, 4, 5)
        and all(map(STATE.fullmatch, line.fields[: 2 if len(line.fields) > 2 else 1]))
        and KALDI.fullmatch(line.fields[-1])
    ]


def _is_kaldi(lines: Iterable[Line]) -> bool:
    """Return whether arcs or final states have costs of several parts, other than 0,5 for 0.5."""
    return any("." in cost or cost.count(",") == 2 for cost in _kaldi_costs(lines))


def check_unscaled(name: str, scales: tuple[float, float]) -> None:
    """Raise FstError if a scale is given for lattices whose costs have one part."""
    if scales != (1.0, 1.0):
        raise FstError(
            f"{name}: costs of one part; acoustic_scale and lm_scale are for those of Kaldi, which "
            "are graph,acoustic: leave them out"
        )


def _kaldi(line: Line, scales: tuple[float, float]) -> Line:
    """Return a line of Kaldi as a line of an acceptor, with the sum of its costs."""
    fields = list(line.fields)
    cost = 0.0
    if len(fields) in (2, 4, 5) and KALDI.fullmatch(fields[-1]):
        parts = fields.pop().split(",")
        costs = [cost_of(part, line) for part in parts[:2]]
        cost = sum(scale * part for scale, part in zip(scales, costs, strict=True) if scale)
    size = len(fields)
    is_arc = size == 3 or (size == 4 and ("." not in fields[3] or not NUMBER.fullmatch(fields[3])))
    if not (size == 1 or is_arc) or not all(map(STATE.fullmatch, fields[:2])):
        raise line.error(
            "a line of Kaldi is 'source nextstate [input] word [graph,acoustic[,transitions]]' or "
            "'state [graph,acoustic[,transitions]]':"
        )
    return _line(line, fields, cost)


def _line(line: Line, fields: list[str], cost: float) -> Line:
    """Return the line of an acceptor that has the last field as its label, or of a final state."""
    if len(fields) > 2:
        fields = [*fields[:2], fields[-1], fields[-1]]
    return Line(line.name, line.number, line.text, [*fields, repr(cost)])


def _is_k2(lines: list[Line], known: Container[str]) -> bool:
    """Return whether label -1 marks all arcs to the final state and is no symbol of an alphabet."""
    if len(lines) < 2 or len(lines[-1].fields) != 1:
        return False
    final = lines[-1].fields[0]
    arcs = lines[:-1]
    return (
        "-1" not in known
        and any(line.fields[2:3] == ["-1"] for line in arcs)
        and all(
            len(line.fields) in (4, 5) and (line.fields[2] == "-1") == (line.fields[1] == final)
            for line in arcs
        )
    )


def _k2(lines: list[Line]) -> list[Line]:
    """Return lines of k2 as lines of an acceptor, in which label -1 is epsilon."""
    *arcs, last = lines
    if int(arcs[0].fields[0]) != 0:
        raise arcs[0].error("in k2, state 0 is the start, and its arcs come first:")
    are_numbers = all(re.fullmatch(r"-1|\d+", line.fields[-2]) for line in arcs)
    converted = []
    for line in arcs:
        *fields, score = line.fields
        if not NUMBER.fullmatch(score):
            raise line.error("a line of k2 is 'source nextstate label [word] score':")
        word = fields[-1]
        if "-1" in (fields[2], word):
            word = "0" if are_numbers else _EPSILON
        converted.append(_line(line, [*fields[:2], word], 0.0 - float(score)))
    return [*converted, _line(last, last.fields, 0.0)]


def _acceptor(lines: list[Line], name: str, symbols: Symbols | None) -> TextArcs:
    """Return the acceptor of converted lines; numeric labels become those of the table."""
    arcs = [line for line in lines if line.is_arc]
    if arcs and all(STATE.fullmatch(line.fields[2]) for line in arcs):
        table = {str(label): symbol for label, symbol in symbols or ((0, _EPSILON),)}
        for line in arcs:
            label = line.fields[2]
            if label not in table and int(label) != 0:
                raise line.error(
                    _WORDS if symbols is None else f"the table of symbols has no label {label}:"
                )
            symbol = _EPSILON if int(label) == 0 else table[label]
            line.fields[2:4] = [symbol, symbol]
    elif symbols is not None:
        symbols_known = {symbol for _, symbol in symbols} | set(EPSILONS)
        for line in arcs:
            if line.fields[2] not in symbols_known:
                raise line.error(f"{line.fields[2]!r} is not in the table of symbols:")
    return parse_lines(lines, name, acceptor=True)
