"""Read OpenFst's binary files and check them before OpenFst sees their content.

OpenFst trusts a file: it follows arcs to missing states, allocates whatever a header requests, and
loads a shared library named after an arc type.  This reader compares every count with the number of
bytes present, and accepts only three arc types and two FST types.

FST       magic, FST type, arc type, version, flags, properties, start, states, arcs;
          the symbol tables that the flags announce; the states
vector    for each state: final weight, number of arcs, arcs
const     records of all states (final weight, position, arcs, input and output epsilons), then all
          arcs; both aligned to 16 bytes in version 1 or if a flag is set
sttable   magic, version, entries (key, FST), their number, their positions, their number again
stlist    magic, version, entries, an empty key
table     magic, name, next free label, size; then symbols and labels
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.errors import FstError, InvalidInputError
from fstgrad.openfst.arrays import ARC_TYPES, ArcType, FstArrays, Symbols

FST_MAGIC = 2125659606
TABLE_MAGIC = 2125658996
STTABLE_MAGIC, STLIST_MAGIC = 2125656924, 5656924
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_HAS_INPUTS, _HAS_OUTPUTS, _IS_ALIGNED = 1, 2, 4
_COUNT, _NUMBER = struct.Struct("<q"), struct.Struct("<i")
_ALIGNMENT = 16
_LONGEST = 2**20  # most bytes of a symbol or a key
WEIGHTS: dict[ArcType, type[np.floating]] = {
    "standard": np.float32,
    "log": np.float32,
    "log64": np.float64,
}


def parse_fst(data: bytes, name: str) -> FstArrays:
    """Return the FST in OpenFst's binary form; errors call it `name`.

    Raises
    ------
    FstError
        The FST type or the arc type is unknown, bytes are missing or left over, an arc leads to a
        missing state, or a label is negative.
    """
    reader = _Reader(data, name)
    fst = reader.fst(is_alone=True)
    if reader.at != len(data):
        raise reader.damaged(f"{len(data) - reader.at:,} bytes behind its last state")
    return fst


def parse_archive(data: bytes, name: str) -> dict[str, FstArrays]:
    """Return the FSTs of a FAR archive of type sttable or stlist by key.

    Raises
    ------
    FstError
        The archive has another type, a key appears twice, or as in `parse_fst`.
    """
    reader = _Reader(data, name)
    magic = reader.number("the magic number")
    if magic not in (STLIST_MAGIC, STTABLE_MAGIC):
        raise FstError(
            f"{name} is not a FAR archive of type sttable or stlist; write it with pynini"
        )
    reader.number("the version")
    return reader.listed() if magic == STLIST_MAGIC else reader.table()


def pack_archive(entries: dict[str, bytes]) -> bytes:
    """Return the bytes of an archive (sttable) of FSTs in binary form, sorted by key.

    Raises
    ------
    FstError
        A key cannot be encoded in UTF-8.
    """
    head = _NUMBER.pack(STTABLE_MAGIC) + _NUMBER.pack(1)
    parts, positions, at = [head], [], len(head)
    for key in sorted(entries):
        try:
            text = key.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FstError(f"{key!r} is not a key of an archive; give a name in UTF-8") from error
        positions.append(at)
        parts.append(_NUMBER.pack(len(text)) + text + entries[key])
        at += len(parts[-1])
    number = len(positions)
    parts += [_COUNT.pack(value) for value in (number, *positions, number)]
    return b"".join(parts)


def records(weight: type[np.floating]) -> tuple[np.dtype[np.void], np.dtype[np.void]]:
    """Return the record types of a state and an arc in the binary form of a ConstFst."""
    counts = [(name, np.uint32) for name in ("position", "arcs", "iepsilons", "oepsilons")]
    arc = [("ilabel", np.int32), ("olabel", np.int32), ("weight", weight), ("nextstate", np.int32)]
    return np.dtype([("final", weight), *counts]), np.dtype(arc, align=True)


@dataclass(frozen=True)
class _States:
    """Final weights (S,), the number of arcs of each state (S,), and records of the arcs."""

    final: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    arcs: npt.NDArray[Any]


class _Reader:
    """A position in a byte string; every read is checked against its end."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def damaged(self, found: str) -> FstError:
        """Return the error for damage at the current position."""
        return FstError(f"{self.name} is damaged at byte {self.at:,}: {found}")

    def take(self, size: int, what: str) -> int:
        """Advance over `size` bytes; return the position of the first."""
        begin = self.at
        if not 0 <= size <= len(self.data) - begin:
            raise self.damaged(f"{what} would take {size:,} of {len(self.data) - begin:,} bytes")
        self.at += size
        return begin

    def number(self, what: str = "a number") -> int:
        """Read an int32."""
        return int(_NUMBER.unpack_from(self.data, self.take(4, what))[0])

    def count(self, what: str = "a count") -> int:
        """Read an int64."""
        return int(_COUNT.unpack_from(self.data, self.take(8, what))[0])

    def text(self, what: str) -> str:
        """Read an int32 length, then UTF-8 text of that many bytes."""
        size = self.number(what)
        if size > _LONGEST:
            raise self.damaged(f"{what} of {size:,} bytes")
        begin = self.take(size, what)
        try:
            return self.data[begin : self.at].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8 ({error.reason})") from error

    def fst(self, *, is_alone: bool) -> FstArrays:
        """Read an FST; `is_alone` allows a vector FST without its number of states."""
        if self.number("the magic number") != FST_MAGIC:
            raise FstError(f"{self.name} is not an FST of OpenFst; write it with pynini or OpenFst")
        kind, arc_type = self.text("the FST type"), self.text("the arc type")
        readers: dict[str, Callable[..., _States]] = {"vector": self._vector, "const": self._const}
        if kind not in readers:
            raise FstError(f"{self.name} is an FST of type {kind!r}; convert it to 'vector'")
        if arc_type not in ARC_TYPES:
            raise FstError(f"{self.name} has arc type {arc_type!r}; use {', '.join(ARC_TYPES)}")
        begin = self.take(_HEADER.size, "the header")
        version, flags, _, start, states, arcs = _HEADER.unpack_from(self.data, begin)
        if not (version == 2 or (version == 1 and kind == "const")):
            raise self.damaged(f"version {version} of type {kind!r}")
        inputs = self._table() if flags & _HAS_INPUTS else None
        outputs = self._table() if flags & _HAS_OUTPUTS else None
        weight = WEIGHTS[arc_type]
        if kind == "const":
            is_aligned = version == 1 or bool(flags & _IS_ALIGNED)
            found = self._const(weight, states, arcs, is_aligned)
        else:
            found = self._vector(weight, states if states >= 0 or not is_alone else None)
        return self._checked(arc_type, start, found, inputs, outputs)

    def listed(self) -> dict[str, FstArrays]:
        """Read the entries of an stlist."""
        entries: dict[str, FstArrays] = {}
        while key := self.text("a key"):
            self._add(entries, key)
        return entries

    def table(self) -> dict[str, FstArrays]:
        """Read the entries of an sttable, whose positions are at its end."""
        body, end = self.at, len(self.data)
        self.at = max(body, end - 8)
        number = self.count("the number of entries")
        self.at = body
        if not 0 <= number <= (end - 16 - body) // 8:
            raise self.damaged(f"an archive of {number:,} entries in {end:,} bytes")
        behind = end - 8 * (number + 2)
        again, *positions = struct.unpack_from(f"<{number + 1}q", self.data, behind)
        if again != number:
            raise self.damaged(f"an archive of {number:,} or of {again:,} entries")
        entries: dict[str, FstArrays] = {}
        for position in positions:  # OpenFst writes entries in order, without gaps
            if position != self.at:
                raise self.damaged(f"an entry at {position:,}")
            self._add(entries, self.text("a key"))
        if self.at != behind:
            raise self.damaged("bytes of no entry")
        return entries

    def _add(self, entries: dict[str, FstArrays], key: str) -> None:
        if key in entries:
            raise self.damaged(f"a second entry {key!r}")
        entries[key] = self.fst(is_alone=False)

    def _table(self) -> Symbols:
        """Read a symbol table."""
        if self.number("a symbol table") != TABLE_MAGIC:
            raise self.damaged("no symbol table")
        self.text("the name of a symbol table")
        self.count("the next label")
        size = self.count("the size of a symbol table")
        if not 0 <= size <= (len(self.data) - self.at) // 12:
            raise self.damaged(f"a symbol table of {size:,} symbols")
        pairs = []
        for _ in range(size):
            symbol = self.text("a symbol")
            pairs.append((self.count("a label"), symbol))
        labels, symbols = {label for label, _ in pairs}, {symbol for _, symbol in pairs}
        if len(labels) < size or len(symbols) < size or (size and min(labels) < 0):
            raise self.damaged("a symbol table with a label below 0, or one twice")
        return tuple(pairs)

    def _vector(self, weight: type[np.floating], states: int | None) -> _States:
        """Read `states` states of variable size; if None, all states up to the end."""
        width, arc = np.dtype(weight).itemsize, _packed(weight)
        if states is not None and not 0 <= states <= (len(self.data) - self.at) // (width + 8):
            raise self.damaged(f"{states:,} states")
        finals: list[bytes] = []
        counts: list[int] = []
        pieces: list[bytes] = []
        while len(counts) < states if states is not None else self.at < len(self.data):
            begin = self.take(width + 8, "a state")
            finals.append(self.data[begin : begin + width])
            (number,) = _COUNT.unpack_from(self.data, begin + width)
            counts.append(number)
            begin = self.take(number * arc.itemsize, f"{number:,} arcs")
            pieces.append(self.data[begin : self.at])
        return _States(
            np.frombuffer(b"".join(finals), weight),
            np.array(counts, dtype=np.int64),
            np.frombuffer(b"".join(pieces), arc),
        )

    def _const(
        self, weight: type[np.floating], states: int, arcs: int, is_aligned: bool
    ) -> _States:
        """Read states and arcs of fixed size."""
        state_type, arc_type = records(weight)
        found = []
        for size, kind in ((states, state_type), (arcs, arc_type)):
            if is_aligned:
                self.take(-self.at % _ALIGNMENT, "padding")
            begin = self.take(size * kind.itemsize, f"{size:,} records")
            found.append(np.frombuffer(self.data, kind, size, begin))
        counts = found[0]["arcs"].astype(np.int64)
        if (found[0]["position"] != np.cumsum(counts) - counts).any() or counts.sum() != arcs:
            raise self.damaged("arcs that are not in the order of their states")
        return _States(found[0]["final"], counts, found[1])

    def _checked(
        self,
        arc_type: ArcType,
        start: int,
        found: _States,
        inputs: Symbols | None,
        outputs: Symbols | None,
    ) -> FstArrays:
        with np.errstate(invalid="ignore"):  # casting a signalling NaN warns
            final, weights = (a.astype(np.float64) for a in (found.final, found.arcs["weight"]))
        try:
            fst = FstArrays(
                arc_type=arc_type,
                start=start,
                final=final,
                source=np.repeat(np.arange(len(found.counts)), found.counts),
                ilabel=found.arcs["ilabel"].astype(np.int64),
                olabel=found.arcs["olabel"].astype(np.int64),
                nextstate=found.arcs["nextstate"].astype(np.int64),
                weight=weights,
                input_symbols=inputs,
                output_symbols=outputs,
            )
        except InvalidInputError as error:
            raise FstError(f"{self.name}: {error}") from error
        for labels in (fst.ilabel, fst.olabel):
            if labels.size and labels.min() < 0:
                raise FstError(
                    f"{self.name} has the label {labels.min()}; labels are 0 (epsilon) or above"
                )
        return fst


def check_stored(fst: FstArrays, name: str) -> FstArrays:
    """Return `fst` if it has a start state (or no states) and valid weights.

    Raises
    ------
    FstError
        The FST has states but no start, or a weight is NaN or -inf.
    """
    if fst.start < 0 < fst.num_states:
        raise FstError(f"{name} has {fst.num_states} states, but no start state")
    for weights in (fst.weight, fst.final):
        if np.isnan(weights).any() or (weights == -np.inf).any():
            raise FstError(f"{name} has a weight that is NaN or -inf; costs are finite, or inf")
    return fst


def _packed(weight: type[np.floating]) -> np.dtype[np.void]:
    """Return the record type of an arc in the binary form of a VectorFst."""
    fields = [("ilabel", "<i4"), ("olabel", "<i4"), ("weight", weight), ("nextstate", "<i4")]
    return np.dtype(fields)
