"""The lines of AT&T text: places in errors, fields, costs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fstgrad.core.errors import FstError
from fstgrad.io import NUMBER

STATE = re.compile(r"[0-9]{1,18}")
_COST = r"([-+.e0-9]+|[-+]?inf(inity)?)"
KALDI = re.compile(rf"{_COST},{_COST}(,[0-9_]*)?", re.I)
_FORMS = "a line is 'source nextstate input output [cost]' or 'state [cost]'"
_FOREIGN = {
    "##foma-net": "a network of foma in its own form; write it with foma's 'write att'",
    "network(": "a network in Prolog form; write it with foma's 'write att' or hfst-fst2txt",
    "--": "several FSTs with the line '--' between them, as HFST writes; give each its own file",
}


@dataclass(slots=True)
class Line:
    """One line: the name of the text, the number of the line from 1, its text and its fields."""

    name: str
    number: int
    text: str
    fields: list[str]

    @property
    def place(self) -> str:
        """`name:number`."""
        return f"{self.name}:{self.number}"

    @property
    def is_arc(self) -> bool:
        """Whether the line is an arc; else it is a final state."""
        return len(self.fields) > 2

    def error(self, reason: str) -> FstError:
        """Return the error with this reason at this line."""
        return FstError(f"{self.place}: {reason} in {self.text!r}")


def text_lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    r"""Yield (number, line); "\r\n" ends lines if it ends all of them."""
    lines = text.removeprefix("\ufeff").split("\n")
    ended = lines[:-1] or lines
    is_windows = all(line.endswith("\r") for line in ended)
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r") if is_windows else line
        if "\r" in line and any(len(field) > 1 and "\r" in field for field in split_fields(line)):
            raise FstError(
                f"{name}:{number}: a carriage return in {line!r}; end all lines with \\n, or all "
                "with \\r\\n"
            )
        yield number, line


def lines_of(text: str, name: str) -> Iterator[Line]:
    """Yield the lines that are not blank, with their fields; states are checked."""
    for number, content in text_lines(text, name):
        line = checked_line(Line(name, number, content, []))
        if line.fields:
            yield line


def checked_line(line: Line) -> Line:
    """Return a line with its fields; states are checked."""
    line.fields = _fields(line)
    if len(line.fields) > 5:
        raise line.error(f"{len(line.fields)} fields; {_FORMS}:")
    for field in line.fields[: 2 if len(line.fields) > 2 else 1]:
        if not STATE.fullmatch(field):
            raise _no_state(field, line)
    return line


def _no_state(field: str, line: Line) -> FstError:
    for mark, what in _FOREIGN.items():
        if line.text.startswith(mark):
            return FstError(f"{line.place}: {line.text!r}: {what}")
    if len(line.fields) == 1:
        return line.error(
            f"{field!r} is not the number of a state, but may be the key of an entry of an "
            "archive, as only lattices have:"
        )
    return line.error(f"{field!r} is not the number of a state of at most 18 digits; {_FORMS}:")


def split_fields(line: str) -> list[str]:
    """Return the fields as OpenFst splits a line."""
    return [field for field in line.replace("\t", " ").split(" ") if field]


def _fields(line: Line) -> list[str]:
    """Return the fields of a line, without an empty cost."""
    split, tabbed = split_fields(line.text), line.text.split("\t")
    if len(tabbed) == 1 or tabbed == split or not _is_row(tabbed):
        return split
    spaced = any(len(field) > 1 and " " in field for field in tabbed)
    if spaced and len(tabbed) < 4:
        return split
    blank = len(tabbed) > 2 and (not any(tabbed[2:]) or tabbed[2:] == [" "])
    if _is_row(split) and (spaced or blank):
        raise line.error(
            "tabs separate other fields than tabs and spaces together; separate fields by one tab "
            "each, and write a space in a symbol as @_SPACE_@ and epsilon as @0@:"
        )
    return tabbed[:-1] if len(tabbed) in (2, 5) and not tabbed[-1] else tabbed


def _is_row(fields: list[str]) -> bool:
    """Return whether fields are an arc or a final state."""
    states = fields[: 2 if len(fields) > 2 else 1]
    if not (0 < len(fields) <= 5 and all(map(STATE.fullmatch, states))):
        return False
    cost = fields[-1] if len(fields) in (2, 5) else ""
    return not cost or bool(NUMBER.fullmatch(cost))


def cost_of(field: str, line: Line) -> float:
    """Return the cost in a field; FstError if it is none, or NaN or -inf."""
    if KALDI.fullmatch(field):
        raise line.error(
            f"the cost {field!r} has several parts, which only lattices of Kaldi have (a decimal "
            "comma must be a point):"
        )
    if not NUMBER.fullmatch(field):
        raise line.error(f"{field!r} is not a cost; {_FORMS}:")
    cost = float(field)
    if not cost > -np.inf:
        raise line.error(f"the cost {field}, which is neither finite nor inf,")
    return cost
