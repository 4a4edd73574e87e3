"""FSTs to arrays and back through OpenFst's binary form, in which a ConstFst has fixed records.

header  magic, FST type, arc type, version, flags, properties, start, states, arcs
states  final weight, position of the first arc, arcs, input epsilons, output epsilons
arcs    input label, output label, weight, target
"""

import struct

import numpy as np
import pynini
import pywrapfst

from fstgrad.alphabet import Alphabet
from fstgrad.errors import FstError
from fstgrad.openfst.arrays import ArcType, FstArrays
from fstgrad.openfst.symbols import as_symbols, as_table, symbol_table

Fst = pynini.Fst

_MAGIC = 2125659606
_EXPANDED = 1  # the one property that a ConstFst has by nature; OpenFst finds the others
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_WEIGHTS: dict[ArcType, type[np.floating]] = {
    "standard": np.float32,
    "log": np.float32,
    "log64": np.float64,
}


def to_arrays(fst: pywrapfst.Fst) -> FstArrays:
    """Return any FST of OpenFst as arrays, weights exact; O(states + arcs).

    Raises
    ------
    FstError
        The arc type is none of "standard", "log", "log64".
    """
    plain = read(fst)
    arc_type = _checked_arc_type(plain)
    plain.set_input_symbols(None)
    plain.set_output_symbols(None)
    data = pywrapfst.convert(plain, "const").write_to_string()
    at = 4  # behind the magic number
    for _ in range(2):  # FST type, arc type: length and characters
        at += 4 + struct.unpack_from("<i", data, at)[0]
    _, _, _, start, states, arcs = _HEADER.unpack_from(data, at)
    state_type, arc_dtype = _records(_WEIGHTS[arc_type])
    at += _HEADER.size
    state = np.frombuffer(data, state_type, states, at)
    arc = np.frombuffer(data, arc_dtype, arcs, at + states * state_type.itemsize)
    return FstArrays(
        arc_type=arc_type,
        start=start,
        final=state["final"].astype(np.float64),
        source=np.repeat(np.arange(states), state["arcs"]),
        ilabel=arc["ilabel"].astype(np.int64),
        olabel=arc["olabel"].astype(np.int64),
        target=arc["target"].astype(np.int64),
        weight=arc["weight"].astype(np.float64),
        input_symbols=as_symbols(fst.input_symbols()),
        output_symbols=as_symbols(fst.output_symbols()),
    )


def from_arrays(arrays: FstArrays) -> Fst:
    """Return the mutable FST with these states and arcs; O(states + arcs).

    "standard" and "log" keep float32: a cost that is not exact in float32 is rounded to nearest.
    """
    state_type, arc_type = _records(_WEIGHTS[arrays.arc_type])
    states, arcs = arrays.num_states, arrays.num_arcs
    state = np.zeros(states, state_type)
    state["final"] = arrays.final
    state["arcs"] = np.bincount(arrays.source, minlength=states)
    state["position"] = np.cumsum(state["arcs"]) - state["arcs"]
    for side in ("ilabel", "olabel"):
        epsilon = arrays.source[getattr(arrays, side) == 0]
        state[side[0] + "epsilons"] = np.bincount(epsilon, minlength=states)
    arc = np.zeros(arcs, arc_type)
    for name in ("ilabel", "olabel", "target", "weight"):
        arc[name] = getattr(arrays, name)
    data = b"".join(
        (
            struct.pack("<i", _MAGIC),
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
    """Return a mutable copy of a pynini or pywrapfst FST of any type (vector, const, ...)."""
    if isinstance(fst, Fst):
        return fst.copy()
    if not isinstance(fst, pywrapfst.Fst):
        raise FstError(f"fst is a {type(fst).__name__}; give a pynini.Fst or a pywrapfst.Fst")
    return Fst.from_pywrapfst(fst)


def with_arc_type(fst: pywrapfst.Fst, arc_type: ArcType) -> Fst:
    """Return the same costs under another arc type, exact unless float64 narrows to float32."""
    plain = read(fst)
    if _checked_arc_type(plain) == arc_type:
        return plain
    fields = {**to_arrays(plain).__dict__, "arc_type": arc_type}
    return from_arrays(FstArrays(**fields))


def with_symbols(fst: Fst, alphabet: Alphabet) -> Fst:
    """Return the FST with the symbols of `alphabet` on both sides, for printing and drawing."""
    result, table = read(fst), symbol_table(alphabet)
    result.set_input_symbols(table)
    result.set_output_symbols(table)
    return result


def _records(weight: type[np.floating]) -> tuple[np.dtype[np.void], np.dtype[np.void]]:
    """Return the record types of a state and an arc in the binary form of a ConstFst."""
    counts = [(name, np.uint32) for name in ("position", "arcs", "iepsilons", "oepsilons")]
    arc = [("ilabel", np.int32), ("olabel", np.int32), ("weight", weight), ("target", np.int32)]
    return np.dtype([("final", weight), *counts]), np.dtype(arc, align=True)


def _checked_arc_type(fst: pywrapfst.Fst) -> ArcType:
    arc_type = fst.arc_type()
    if arc_type not in _WEIGHTS:
        raise FstError(f"fst has arc type {arc_type!r}; use one of {', '.join(_WEIGHTS)}")
    return arc_type
