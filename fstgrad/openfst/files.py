"""Read and write FST files: OpenFst's binary form, FAR archives, AT&T text and symbol tables."""

import os
import pathlib
import re
from dataclasses import replace

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import flag, instance, optional, path_name, real_number
from fstgrad.core.errors import FstError
from fstgrad.io import read_bytes, read_text, write_bytes
from fstgrad.openfst.arrays import Symbols
from fstgrad.openfst.binary import check_stored, pack_archive, parse_archive, parse_fst
from fstgrad.openfst.conversion import Fst, check_fst, from_arrays, to_arrays
from fstgrad.openfst.lattice_text import check_unscaled, parse_lattices, starts_as_kaldi
from fstgrad.openfst.text import parse_text, read_symbols

RULES = ".rules"  # of an archive: the entry NAME.rules names the rules of the arcs of NAME
_FILE = re.compile(r"(.+)\.(fst|(txt|att)(\.gz)?)", re.DOTALL)
_LATTICE_FILE = re.compile(r"(.+)\.(fst|(txt|att|lat)(\.gz)?)", re.DOTALL)


def is_fst_file(name: str) -> bool:
    """Return whether a name is that of an FST: x.far, x.far:NAME, x.fst, x.txt or x.att.

    Text may be compressed: x.txt.gz, x.att.gz.
    """
    name = path_name(name, "name")
    return is_binary(name) or _FILE.fullmatch(name) is not None


def is_binary(name: str) -> bool:
    """Return whether a name is that of FSTs in OpenFst's binary form: x.far, x.far:NAME, x.fst."""
    name = path_name(name, "name")
    return name.endswith((".fst", ".far")) or ".far:" in name


def read_file(
    path: str | os.PathLike[str],
    symbols: str | os.PathLike[str] | None = None,
    *,
    alphabet: Alphabet | None = None,
    acceptor: bool = False,
) -> Fst:
    """Return the FST of a file.

    Parameters
    ----------
    path : path
        `x.fst`, an FST in binary form; `x.far:NAME`, an entry of an archive (`x.far` if the archive
        has one entry besides `NAME.rules`, see `read_rule_names`); any other name, AT&T text with
        costs in float64 ("log64"), plain or gzip.
    symbols : path, optional
        The symbol table of AT&T text, one symbol and its label per line.  Without it, the arcs of
        the text have symbols, which get labels in the order of appearance.
    alphabet : Alphabet, optional
        Tells that a label "0" of AT&T text is a symbol; without it, such text is ambiguous.
    acceptor : bool
        Whether an arc of AT&T text with four fields has one label and a cost, or two labels; see
        `fstgrad.openfst.text.parse_text`.

    Raises
    ------
    FstError
        The file has another format, the archive has no such entry, or text is malformed.
    OSError
        The file cannot be read.
    """
    optional("alphabet", alphabet, Alphabet, "an Alphabet")
    flag("acceptor", acceptor)
    if symbols is not None:
        symbols = path_name(symbols, "symbols")
    name = path_name(path)
    archive, _, key = name.partition(".far:")
    if key:
        return _archived(archive + ".far", key)
    if name.endswith(".far"):
        return _archived(name, None)
    if name.endswith(".fst"):
        return from_arrays(check_stored(parse_fst(read_bytes(name), name), name))
    table = None if symbols is None else read_symbols(symbols)
    text = parse_text(read_text(name), name, table, acceptor=acceptor, known=alphabet or ())
    return from_arrays(text.arrays())


def read_rule_names(path: str | os.PathLike[str]) -> Fst | None:
    """Return the entry NAME.rules beside the entry NAME that `read_file` reads; None without it.

    Raises
    ------
    FstError, OSError
        As in `read_file`.
    """
    archive, is_archive, key = path_name(path).partition(".far")
    if not is_archive or not (not key or key.startswith(":")):
        return None
    entries = _entries(archive + ".far")
    name = _name_of_entry(archive + ".far", entries, key[1:] or None)
    return entries.get(name + RULES)


def read_collection(
    path: str | os.PathLike[str],
    *,
    alphabet: Alphabet | None = None,
    symbols: str | os.PathLike[str] | None = None,
    acoustic_scale: float = 1.0,
    lm_scale: float = 1.0,
) -> dict[str, Fst]:
    """Return all lattices of a FAR archive, of a folder's files or of one such file, by name.

    The files of a folder are `NAME.fst` (binary), and `NAME.txt`, `NAME.att` or `NAME.lat` (text of
    `lattice_text.parse_lattices`: AT&T, Kaldi or k2; plain or, with `.gz` after the name, gzip).  A
    text with keys, an archive of Kaldi, has several lattices.

    Parameters
    ----------
    path : path
    alphabet : Alphabet, optional
        As in `read_file`.
    symbols : path, optional
        The symbol table of text with numeric labels, such as words.txt of Kaldi, and of FSTs
        without a table.
    acoustic_scale, lm_scale : float
        Factors of the acoustic and of the graph costs of Kaldi.

    Raises
    ------
    FstError
        The file is not an archive, there is no FST, two lattices have one name, or a file is
        malformed.
    OSError
        A file cannot be read.
    """
    optional("alphabet", alphabet, Alphabet, "an Alphabet")
    if symbols is not None:
        symbols = path_name(symbols, "symbols")
    given = pathlib.Path(path_name(path))
    scales = real_number("lm_scale", lm_scale), real_number("acoustic_scale", acoustic_scale)
    table = None if symbols is None else read_symbols(symbols)
    is_text = given.is_file() and starts_as_kaldi(given)  # also lat.1.gz
    if not (given.is_dir() or is_text or _LATTICE_FILE.fullmatch(given.name)):
        found = {key: _named(fst, table) for key, fst in _entries(os.fspath(path)).items()}
        check_unscaled(os.fspath(path), scales)
    else:
        found, files = {}, dict[str, pathlib.Path]()
        for file in sorted(given.iterdir()) if given.is_dir() else [given]:
            match = _LATTICE_FILE.fullmatch(file.name)
            if match is None and given.is_dir():
                continue
            if file.suffix == ".fst":
                entries = {"": _named(read_file(file), table)}
                check_unscaled(str(file), scales)
            else:
                texts = parse_lattices(
                    read_text(file),
                    str(file),
                    table,
                    known=alphabet or (),
                    acoustic_scale=scales[1],
                    lm_scale=scales[0],
                )
                entries = {key: from_arrays(arcs.arrays()) for key, arcs in texts.items()}
            for key, fst in entries.items():
                name = key or (file.name if match is None else match[1])
                if name in files:
                    raise FstError(
                        f"{files[name]} and {file} have one name, {name!r}; keep one of them"
                    )
                files[name], found[name] = file, fst
    if not found:
        raise FstError(
            f"{path} has no FST; give a FAR archive, or a folder of files NAME.fst or NAME.txt"
        )
    return found


def _named(fst: Fst, table: Symbols | None) -> Fst:
    """Return an FST with a table of symbols if it has none."""
    if table is None:
        return fst
    arrays = to_arrays(fst)
    if arrays.input_symbols or arrays.output_symbols:
        return fst
    return from_arrays(replace(arrays, input_symbols=table, output_symbols=table))


def write_archive(path: str | os.PathLike[str], entries: dict[str, Fst]) -> None:
    """Write FSTs of one arc type to a FAR archive under their names, completely or not at all.

    Raises
    ------
    FstError
        There is no FST, or the arc types differ.
    """
    instance("entries", entries, dict, "a dict of FSTs by name")
    for key, fst in entries.items():
        check_fst(fst, f"entries[{key!r}]")
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


def _entries(path: str) -> dict[str, Fst]:
    found = parse_archive(read_bytes(path), path)
    return {
        key: from_arrays(check_stored(fst, f"the entry {key!r} of {path}"))
        for key, fst in found.items()
    }


def _archived(path: str, key: str | None) -> Fst:
    entries = _entries(path)
    return entries[_name_of_entry(path, entries, key)]


def _name_of_entry(path: str, entries: dict[str, Fst], key: str | None) -> str:
    """Return the name `key`; for None, that of the only entry besides its names of rules."""
    own = [name for name in entries if name.removesuffix(RULES) not in entries.keys() - {name}]
    if key is None and len(own) == 1:
        return own[0]
    if key is None or key not in entries:
        asked = "no entry is named" if key is None else f"{path} has no entry {key!r}"
        raise FstError(f"{asked}; give {path}:NAME with one of {', '.join(sorted(own))}")
    return key
