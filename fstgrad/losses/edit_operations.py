"""Alignment: the edit operations on a cheapest path of a transducer."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fstgrad import plot
from fstgrad.core.checks import (
    LARGEST_COST,
    BoolArray,
    FloatArray,
    IntArray,
    instance,
    positive_number,
)
from fstgrad.core.short_repr import short_repr

Kind = Literal["match", "substitute", "delete", "insert", "transpose", "skip"]
_MARKS: dict[Kind, str] = {
    "match": ".",
    "substitute": "S",
    "delete": "D",
    "insert": "I",
    "transpose": "T",
    "skip": " ",
}
GAP = "-"


class Operation(NamedTuple):
    """One step of an alignment.

    Attributes
    ----------
    kind : str
        "match", "substitute", "delete" (a symbol of y without a partner), "insert" (a symbol of the
        target without a partner), "transpose" (the first or second of two symbols that swap
        places), or "skip" (a symbol outside the aligned regions of a local alignment).
    y, target : str or None
        The symbols; None without a partner.
    y_place, target_place : int
        Their positions, from 0; without a symbol, the position of the next one.
    cost : float
        In nats.
    """

    kind: Kind
    y: str | None
    target: str | None
    y_place: int
    target_place: int
    cost: float


class Region(NamedTuple):
    """y[y_start:y_stop] is aligned with target[target_start:target_stop]."""

    y_start: int
    y_stop: int
    target_start: int
    target_stop: int


@dataclass(frozen=True)
class Alignment:
    """A best alignment of a hypothesis y with a target.

    Attributes
    ----------
    loss : float, nats
    operations : tuple of Operation, from left to right

    `str(alignment)` has three lines: y, the operations (. match, S substitute, D delete, I insert,
    T transpose, blank outside the aligned regions) and the target.
    """

    loss: float
    operations: tuple[Operation, ...]

    __repr__ = short_repr

    @property
    def counts(self) -> dict[str, int]:
        """Number of operations of each kind; a transposition counts once."""
        counts = Counter(operation.kind for operation in self.operations)
        counts["transpose"] //= 2
        return {kind: counts[kind] for kind in _MARKS}

    @property
    def matches(self) -> int:
        """Number of aligned pairs of equal symbols."""
        return self.counts["match"]

    @property
    def substitutions(self) -> int:
        """Number of aligned pairs of different symbols."""
        return self.counts["substitute"]

    @property
    def deletions(self) -> int:
        """Number of symbols of y without a partner: a recognizer's insertion errors."""
        return self.counts["delete"]

    @property
    def insertions(self) -> int:
        """Number of symbols of the target without a partner: a recognizer's deletion errors."""
        return self.counts["insert"]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The aligned regions, from left to right, without the skipped symbols."""
        found: list[Region] = []
        open_region = False
        for operation in self.operations:
            if operation.kind == "skip":
                open_region = False
                continue
            y_stop = operation.y_place + (operation.y is not None)
            target_stop = operation.target_place + (operation.target is not None)
            if open_region:
                found[-1] = found[-1]._replace(y_stop=y_stop, target_stop=target_stop)
            else:
                place = operation.y_place, operation.target_place
                found.append(Region(place[0], y_stop, place[1], target_stop))
            open_region = True
        return tuple(found)

    def scaled(self, factor: float) -> "Alignment":
        """Return the alignment with all costs multiplied by `factor`, >= 0."""
        factor = positive_number("factor", factor, allow_zero=True, most=LARGEST_COST)
        operations = tuple(op._replace(cost=factor * op.cost) for op in self.operations)
        return replace(self, loss=factor * self.loss, operations=operations)

    _repr_svg_ = plot.notebook(plot.alignment, lambda self: len(self.operations) <= 200)

    def __str__(self) -> str:
        return self.text()

    def text(self, separator: str | None = None) -> str:
        """Return y, the marks of the edits and the target as three lines.

        `separator` is written between symbols; by default a space if a symbol has several
        characters, else nothing.
        """
        if separator is not None:
            instance("separator", separator, str, "a str")
        columns = [
            (op.y or GAP, _MARKS[op.kind], op.target or GAP)
            if op.kind != "skip"
            else (op.y or " ", " ", op.target or " ")
            for op in self.operations
        ]
        widths = [max(map(len, column)) for column in columns]
        between = separator
        if between is None:
            between = " " if max(widths, default=1) > 1 else ""
        lines = zip(*columns, strict=True) if columns else ((), (), ())
        return "\n".join(
            between.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )


def operations_of(
    symbols: tuple[Sequence[str], Sequence[str]],
    labels: tuple[IntArray, IntArray],
    states: tuple[IntArray, IntArray],
    weights: FloatArray,
    skips: BoolArray,
) -> tuple[Operation, ...]:
    """Return the operations of a path of k arcs.

    Parameters
    ----------
    symbols : the symbols of y and of the target
    labels : two arrays (k,) int
        Input and output labels of the arcs; 0 is epsilon.
    states : two arrays (k,) int
        Source and next state of the arcs.
    weights : (k,) float64, costs in nats
        The cost of an arc without labels is added to the next operation (or to the last one).
    skips : (S,) bool
        Which states skip every symbol at cost 0.
    """
    y, target = symbols
    found: list[Operation] = []
    i = j = 0
    pending = 0.0  # cost of arcs that neither read nor write
    for read, written, source, after, weight in zip(*labels, *states, weights, strict=True):
        cost = float(weight) + pending
        if not read and not written:
            pending = cost
            continue
        pending = 0.0
        a, b = y[i] if read else None, target[j] if written else None
        kind: Kind = "delete" if b is None else "insert" if a is None else "substitute"
        if a == b:
            kind = "match"
        if source == after and skips[source]:
            kind = "skip"
        found.append(Operation(kind, a, b, i, j, cost))
        i, j = i + bool(read), j + bool(written)
    if pending and found:
        found[-1] = found[-1]._replace(cost=found[-1].cost + pending)
    return _transposed(found)


def _transposed(operations: list[Operation]) -> tuple[Operation, ...]:
    """Return the operations with transpositions marked.

    Two neighbouring substitutions, ab for ba, of which one costs 0, become "transpose".
    """
    result = list(operations)
    for k in range(len(result) - 1):
        one, two = result[k], result[k + 1]
        swapped = one.kind == two.kind == "substitute" and (one.y, one.target) == (
            two.target,
            two.y,
        )
        if swapped and 0.0 in (one.cost, two.cost):
            result[k], result[k + 1] = (
                one._replace(kind="transpose"),
                two._replace(kind="transpose"),
            )
    return tuple(result)
