"""Damaged FST files, and FSTs with arcs to states that are not there, are errors."""

import struct

import numpy as np
import pynini
import pytest
import pywrapfst

import fstgrad as fg
from fstgrad.openfst import read_collection, read_file, symbol_table, to_arrays, write_archive
from fstgrad.openfst.binary import STLIST_MAGIC, parse_archive, parse_fst

AB = fg.Alphabet("ab")


def example(arc_type="standard", symbols=True):
    fst = pynini.union(
        pynini.accep("a", weight=1.5, arc_type=arc_type),
        pynini.cross("b", "a") if arc_type == "standard" else pynini.accep("b", arc_type=arc_type),
    )
    if symbols:
        fst.set_input_symbols(symbol_table(fg.Alphabet(map(chr, range(1, 99)))))
        fst.set_output_symbols(symbol_table(fg.Alphabet(map(chr, range(1, 99)))))
    return fst


def stored(fst, kind):
    return pywrapfst.convert(fst, kind).write_to_string()


def broken(target=7):
    fst = pynini.Fst()
    first, last = fst.add_state(), fst.add_state()
    fst.set_start(first).set_final(last)
    fst.add_arc(first, pynini.Arc(1, 1, 0, target))
    return fst


@pytest.mark.parametrize("arc_type", ["standard", "log", "log64"])
@pytest.mark.parametrize("kind", ["vector", "const"])
def test_reads_what_openfst_writes(arc_type, kind):
    fst = example(arc_type)
    read, wanted = parse_fst(stored(fst, kind), "x"), to_arrays(fst)
    for name in ("arc_type", "start", "input_symbols", "output_symbols"):
        assert getattr(read, name) == getattr(wanted, name)
    for name in ("final", "source", "ilabel", "olabel", "nextstate", "weight"):
        np.testing.assert_array_equal(getattr(read, name), getattr(wanted, name))


def test_archives_are_what_pynini_reads_and_writes(tmp_path):
    entries = {"one": example(symbols=False), "two": pynini.accep("abc")}
    write_archive(tmp_path / "ours.far", entries)
    with pynini.Far(str(tmp_path / "theirs.far"), "w") as far:
        for name, fst in entries.items():
            far.add(name, fst)
    assert (tmp_path / "ours.far").read_bytes() == (tmp_path / "theirs.far").read_bytes()
    for name, fst in read_collection(tmp_path / "theirs.far").items():
        assert pynini.isomorphic(fst, entries[name])


def test_archives_of_type_stlist():
    data = struct.pack("<ii", STLIST_MAGIC, 1)
    for key in ("a", "b"):
        data += struct.pack("<i", 1) + key.encode() + stored(pynini.accep(key), "vector")
    assert list(parse_archive(data + struct.pack("<i", 0), "x")) == ["a", "b"]


def test_bytes_of_no_entry_in_an_archive(tmp_path):
    write_archive(tmp_path / "x.far", {"a": pynini.accep("a"), "b": pynini.accep("b")})
    data = (tmp_path / "x.far").read_bytes()
    assert list(parse_archive(data, "x")) == ["a", "b"]
    behind = len(data) - 8 * 4  # two positions between two counts
    with pytest.raises(fg.FstError, match="bytes of no entry"):
        parse_archive(data[:behind] + bytes(8) + data[behind:], "x")


def mutants(data, rng):
    """Every byte changed in two ways, every length, and some blocks of numbers."""
    for i in range(len(data)):
        for value in {data[i] ^ 0xFF, data[i] ^ (1 << rng.integers(8))}:
            yield data[:i] + bytes([value]) + data[i + 1 :]
        yield data[:i]
        for number in (-1, 2**31 - 1, 2**40):
            yield data[:i] + struct.pack("<q", number) + data[i + 8 :]


@pytest.mark.parametrize("kind", ["vector", "const", "far"])
def test_damaged_files_are_errors_or_fsts(kind, tmp_path):
    fst = example(symbols=kind == "far")
    data = stored(fst, "vector" if kind == "far" else kind)
    if kind == "far":
        write_archive(tmp_path / "x.far", {"a": pynini.accep("a"), "b": pynini.accep("b")})
        data = (tmp_path / "x.far").read_bytes()
    path = tmp_path / f"y.{'far' if kind == 'far' else 'fst'}"
    held = 0
    for mutant in mutants(data, np.random.default_rng(0)):
        path.write_bytes(mutant)
        try:
            found = read_collection(path) if kind == "far" else {"": read_file(path)}
        except fg.FstgradError:
            continue
        held += 1
        for fst in found.values():
            for attach in (fst.set_input_symbols, fst.set_output_symbols):
                attach(None)  # a label without a symbol is no damage
            assert fst.start() == -1 or fst.verify()
    assert held > 0


def test_an_arc_type_loads_no_library(tmp_path):
    data = stored(example(symbols=False), "vector").replace(b"standard", b"evil-arc")
    (tmp_path / "x.fst").write_bytes(data)
    with pytest.raises(fg.FstError, match="arc type 'evil-arc'"):
        read_file(tmp_path / "x.fst")


@pytest.mark.parametrize("target", [-1, 2, 7, 10**8])
def test_arcs_to_missing_states_are_errors(target):
    for use in (
        to_arrays,
        lambda fst: fg.TransducerLoss(fst, AB),
        lambda fst: fg.EditDistance(AB)("a", fst),
        lambda fst: fg.Lattice.from_fst(fst, AB),
    ):
        with pytest.raises(fg.FstError, match="states outside"):
            use(broken(target))


def test_a_grammar_with_a_missing_state(tmp_path, run):
    (tmp_path / "g.py").write_text(
        "import pynini\nALPHABET = 'ab'\ndef build(alphabet=None):\n"
        "    fst = pynini.accep('ab')\n    fst.add_arc(0, pynini.Arc(97, 97, 0, 99))\n"
        "    return fst\n"
    )
    code, _, err = run("grammar", "test", tmp_path / "g.py")
    assert code == 1
    assert "states outside" in err


def test_text_with_large_state_numbers(tmp_path):
    (tmp_path / "x.txt").write_text("5 400000000 a a\n400000000\n")
    assert to_arrays(read_file(tmp_path / "x.txt")).num_states == 2
