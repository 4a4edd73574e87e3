"""Read and write FST files: OpenFst's binary form, FAR archives, AT&T text and symbol tables."""

import os
import pathlib

import numpy as np

from fstgrad.checks import instance, path_name
from fstgrad.errors import FstError
from fstgrad.io import read_bytes, read_lines, write_bytes
from fstgrad.openfst.arrays import FstArrays, Symbols
from fstgrad.openfst.binary import Fst, check_fst, from_arrays
from fstgrad.openfst.stored import check_stored, pack_archive, parse_archive, parse_fst

_EPSILONS = ("<eps>", "<epsilon>")
_DIGITS = 18  # most digits of a state number or a label
_LABELS = 2**31  # OpenFst stores labels as int32


def read_file(path: str | os.PathLike[str], symbols: str | os.PathLike[str] | None = None) -> Fst:
    """Return the FST of a file.

    Parameters
    ----------
    path : path
        `x.fst`, an FST in binary form; `x.far:NAME`, an entry of an archive (`x.far` if the archive
        has one entry); any other name, AT&T text with costs in float64 ("log64").
    symbols : path, optional
        The symbol table of AT&T text, one symbol and its label per line.  Without it, the arcs of
        the text have symbols, which get labels in the order of appearance.

    Raises
    ------
    FstError
        The file has another format, the archive has no such entry, or a line of text is malformed.
    OSError
        The file cannot be read.
    """
    name = path_name(path)
    archive, _, key = name.partition(".far:")
    if key:
        return _archived(archive + ".far", key)
    if name.endswith(".far"):
        return _archived(name, None)
    if name.endswith(".fst"):
        return from_arrays(check_stored(parse_fst(read_bytes(name), name), name))
    table = None if symbols is None else read_symbols(symbols)
    return from_arrays(parse_text("\n".join(read_lines(name)), name, table))


def read_collection(path: str | os.PathLike[str]) -> dict[str, Fst]:
    """Return all FSTs of a FAR archive, or of a folder's files, by name.

    The files of a folder are `NAME.fst` (binary) and `NAME.txt` (AT&T text).

    Raises
    ------
    FstError
        The file is not an archive, there is no FST, or a file is malformed.
    OSError
        A file cannot be read.
    """
    folder = pathlib.Path(path_name(path))
    if folder.is_dir():
        files = sorted((*folder.glob("*.txt"), *folder.glob("*.fst")))
        found = {file.stem: read_file(file) for file in files}
    else:
        found = _entries(os.fspath(path))
    if not found:
        raise FstError(
            f"{path} has no FST; give a FAR archive, or a folder of files NAME.fst or NAME.txt"
        )
    return found


def write_archive(path: str | os.PathLike[str], entries: dict[str, Fst]) -> None:
    """Write FSTs of one arc type to a FAR archive under their names, completely or not at all.

    Raises
    ------
    FstError
        There is no FST, or the arc types differ.
    """
    instance("entries", entries, dict, "a dict of FSTs by name")
    check_fst(*entries.values())
    arc_types = sorted({fst.arc_type() for fst in entries.values()})
    if len(arc_types) != 1:
        raise FstError(
            f"entries have {len(arc_types)} arc types ({', '.join(arc_types)}); an archive has "
            "one: convert them with with_arc_type"
        )
    write_bytes(path, pack_archive({name: fst.write_to_string() for name, fst in entries.items()}))


def write_file(path: str | os.PathLike[str], fst: Fst) -> None:
    """Write an FST in OpenFst's binary form, completely or not at all."""
    check_fst(fst)
    write_bytes(path, fst.write_to_string())


def read_symbols(path: str | os.PathLike[str]) -> Symbols:
    """Return the symbol table of a text file: a symbol, white space and a label on each line.

    Raises
    ------
    FstError
        A line is malformed, or two lines have the same label.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.rsplit(maxsplit=1)
        if not fields:
            continue
        label = fields[1] if len(fields) == 2 else ""
        if not (label.isascii() and label.isdigit() and len(label) <= _DIGITS) or (
            int(label) >= _LABELS
        ):
            raise FstError(f"{path}:{number}: {line!r}; a line is a symbol and its label >= 0")
        pairs.append((int(fields[1]), fields[0]))
    if len({label for label, _ in pairs}) < len(pairs):
        raise FstError(f"{path} has a label twice; give every symbol its own label")
    return tuple(pairs)


def parse_text(text: str, name: str, symbols: Symbols | None = None) -> FstArrays:
    """Return the transducer of AT&T text; its weights are costs in "log64".

    A line is an arc, `source nextstate input output [cost]`, or a final state, `state [cost]`; the
    default cost is 0.  The first state of the first line is the start.  Inputs and outputs are
    symbols, or labels of `symbols`.  States are renumbered from 0 in increasing order.

    Raises
    ------
    FstError
        The text is empty, a line is malformed, or a symbol is not in `symbols`.
    """
    table = _Table(symbols)
    arcs: list[tuple[int, int, int, float, int]] = []
    final: dict[int, float] = {}
    start: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            if len(fields) in (4, 5):
                cost = _cost(fields[4]) if len(fields) == 5 else 0.0
                labels = table.label(fields[2]), table.label(fields[3])
                arcs.append((_state(fields[0]), *labels, cost, _state(fields[1])))
            elif len(fields) in (1, 2):
                final[_state(fields[0])] = _cost(fields[1]) if len(fields) == 2 else 0.0
            else:
                raise ValueError(f"{len(fields)} fields")
        except ValueError as error:
            raise FstError(
                f"{name}:{number}: {error} in {line!r}; a line is 'source nextstate input output "
                "[cost]' or 'state [cost]'"
            ) from error
        start = _state(fields[0]) if start is None else start
    if start is None:
        raise FstError(f"{name} is empty; give the arcs of a transducer in AT&T text")
    source, nextstate = [arc[0] for arc in arcs], [arc[4] for arc in arcs]
    ilabel, olabel = [arc[1] for arc in arcs], [arc[2] for arc in arcs]
    weight = [arc[3] for arc in arcs]
    states = sorted({start, *final, *source, *nextstate})
    rank = {state: i for i, state in enumerate(states)}
    ends = np.full(len(rank), np.inf)
    ends[[rank[state] for state in final]] = list(final.values())
    return FstArrays(
        arc_type="log64",
        start=rank[start],
        final=ends,
        source=np.array([rank[state] for state in source], dtype=np.int64),
        ilabel=np.array(ilabel, dtype=np.int64),
        olabel=np.array(olabel, dtype=np.int64),
        nextstate=np.array([rank[state] for state in nextstate], dtype=np.int64),
        weight=np.array(weight, dtype=np.float64),
        input_symbols=table.symbols,
        output_symbols=table.symbols,
    )


class _Table:
    """Symbols and their labels; without a given table, labels follow the order of appearance."""

    def __init__(self, symbols: Symbols | None) -> None:
        self._given = symbols
        self._labels = {symbol: label for label, symbol in symbols or ((0, _EPSILONS[0]),)}

    @property
    def symbols(self) -> Symbols:
        """The (label, symbol) pairs."""
        return tuple((label, symbol) for symbol, label in self._labels.items())

    def label(self, field: str) -> int:
        """Return the label of a field: a symbol, or a label of the table."""
        if field in self._labels:
            return self._labels[field]
        if field in _EPSILONS:
            return 0
        if self._given is None:
            return self._labels.setdefault(field, len(self._labels))
        if field.isdecimal() and int(field) in self._labels.values():
            return int(field)
        raise ValueError(f"{field!r} is not in the symbol table")


def _state(field: str) -> int:
    if not (field.isascii() and field.isdigit()):
        raise ValueError(f"{field!r} is not the number of a state")
    if len(field) > _DIGITS:
        raise ValueError(f"a state of {len(field)} digits")
    return int(field)


def _cost(field: str) -> float:
    cost = float(field)
    if not cost > -np.inf:
        raise ValueError(f"the cost {field}, which is neither finite nor inf")
    return cost


def _entries(path: str) -> dict[str, Fst]:
    found = parse_archive(read_bytes(path), path)
    return {
        key: from_arrays(check_stored(fst, f"the entry {key!r} of {path}"))
        for key, fst in found.items()
    }


def _archived(path: str, key: str | None) -> Fst:
    entries = _entries(path)
    if key is None and len(entries) == 1:
        return next(iter(entries.values()))
    if key is None or key not in entries:
        asked = "no entry is named" if key is None else f"{path} has no entry {key!r}"
        raise FstError(f"{asked}; give {path}:NAME with one of {', '.join(sorted(entries))}")
    return entries[key]
