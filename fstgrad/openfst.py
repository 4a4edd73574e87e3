"""The bridge to OpenFst: FSTs as arrays and back, and the operations the project uses.

This is the only module that imports pynini.  What follows holds everywhere behind it:

- Weights pass through OpenFst's binary form, so float64 ("log64") and float32 ("standard") come
  over bit by bit.  `float(weight)` in pynini goes through a string of nine digits.
- Operations return a new FST; `delta`, the grid on which OpenFst quantises weights, is explicit.
- Arc types and symbol tables are compared before OpenFst sees them, because OpenFst says only
  "Operation failed" and gives the reason on stderr.

Index
-----
- `FstArrays`, `to_arrays`, `from_arrays`, `read` : the array form.
- `with_arc_type`, `symbol_table`, `with_symbols` : types and symbols.
- `compose`, `project`, `connect`, `arc_sort`, `remove_epsilons`, `push`, `minimize`,
  `determinize`, `prune`, `shortest_distance` : operations.
- `is_acceptor`, `is_acyclic`, `is_empty` : questions.

Labels are those of `Alphabet`: id + 1, and 0 is epsilon.  Weights are costs: tropical costs in
"standard", negative natural logarithms in "log64".
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec

import numpy as np
import numpy.typing as npt
import pynini
import pywrapfst

from fstgrad.alphabet import EPSILON, Alphabet
from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import FstError, InvalidInputError

Fst = pynini.Fst
ArcType = Literal["standard", "log", "log64"]
Symbols = tuple[tuple[int, str], ...]
P = ParamSpec("P")

_MAGIC = 2125659606
_EXPANDED = 1  # the one property that a ConstFst has by nature; OpenFst finds the others
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_WEIGHTS: dict[str, type[np.floating]] = {
    "standard": np.float32,
    "log": np.float32,
    "log64": np.float64,
}


@dataclass(frozen=True, eq=False)
class FstArrays:
    """An FST as read-only arrays, arcs sorted by source state.

    Parameters
    ----------
    arc_type : {"standard", "log", "log64"}
        Tropical float32, log float32 or log float64.
    start : int
        The start state; -1 in an empty FST.
    final : (S,) float64
        Final costs; +inf where a state is not final.
    source, ilabel, olabel, target : (A,) int64
        Arcs; label 0 is epsilon.
    weight : (A,) float64
        Costs of the arcs.
    input_symbols, output_symbols : tuple of (label, symbol), or None
        The symbol tables, where the FST has them.
    """

    arc_type: ArcType
    start: int
    final: FloatArray
    source: IntArray
    ilabel: IntArray
    olabel: IntArray
    target: IntArray
    weight: FloatArray
    input_symbols: Symbols | None = None
    output_symbols: Symbols | None = None

    def __post_init__(self) -> None:
        if self.arc_type not in _WEIGHTS:
            raise FstError(f"arc_type is {self.arc_type!r}; use one of {', '.join(_WEIGHTS)}")
        order: IntArray | None = None
        source = np.asarray(self.source, dtype=np.int64)
        if source.size and (np.diff(source) < 0).any():
            order = np.argsort(source, kind="stable")
        for name in ("source", "ilabel", "olabel", "target"):
            self._freeze(name, np.asarray(getattr(self, name), dtype=np.int64), order)
        self._freeze("weight", np.asarray(self.weight, dtype=np.float64), order)
        self._freeze("final", np.asarray(self.final, dtype=np.float64), None)
        self._check_states()

    def _freeze(self, name: str, values: npt.NDArray[np.generic], order: IntArray | None) -> None:
        if name != "final" and values.shape != (len(self.source),):
            raise InvalidInputError(
                f"{name} has shape {values.shape}; there are {len(self.source)} arcs"
            )
        view = values[order] if order is not None else values.view()
        view.flags.writeable = False
        object.__setattr__(self, name, view)

    def _check_states(self) -> None:
        states = len(self.final)
        for name, ends in (("source", self.source), ("target", self.target)):
            if ends.size and not (ends.min() >= 0 and ends.max() < states):
                raise InvalidInputError(f"{name} has states outside 0 .. {states - 1}")
        if not -1 <= self.start < states:
            raise InvalidInputError(f"start is {self.start}; there are {states} states")

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return len(self.source)


def to_arrays(fst: Fst) -> FstArrays:
    """Return any FST of OpenFst as arrays, weights exact; O(states + arcs).

    Raises
    ------
    FstError
        The arc type is none of "standard", "log", "log64".
    """
    _check_arc_type(fst, "fst")
    plain = read(fst)
    plain.set_input_symbols(None)
    plain.set_output_symbols(None)
    data = pywrapfst.convert(plain, "const").write_to_string()
    arc_type: ArcType = fst.arc_type()
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
        input_symbols=_symbols(fst.input_symbols()),
        output_symbols=_symbols(fst.output_symbols()),
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
    fst.set_input_symbols(_table(arrays.input_symbols))
    fst.set_output_symbols(_table(arrays.output_symbols))
    return fst


def read(fst: Fst) -> Fst:
    """Return a mutable copy of a pynini or pywrapfst FST of any type (vector, const, ...)."""
    if isinstance(fst, Fst):
        return fst.copy()
    if not isinstance(fst, pywrapfst.Fst):
        raise FstError(f"fst is a {type(fst).__name__}; give a pynini.Fst or a pywrapfst.Fst")
    return Fst.from_pywrapfst(fst)


def with_arc_type(fst: Fst, arc_type: ArcType) -> Fst:
    """Return the same costs under another arc type, exact unless float64 narrows to float32."""
    _check_arc_type(fst, "fst")
    if fst.arc_type() == arc_type:
        return read(fst)
    fields = {**to_arrays(fst).__dict__, "arc_type": arc_type}
    return from_arrays(FstArrays(**fields))


def symbol_table(alphabet: Alphabet) -> pynini.SymbolTable:
    """Return the OpenFst symbol table of an alphabet: epsilon is 0, symbol i is i + 1."""
    return _table(((0, EPSILON), *enumerate(alphabet.symbols, start=1)))


def with_symbols(fst: Fst, alphabet: Alphabet) -> Fst:
    """Return the FST with the symbols of `alphabet` on both sides, for printing and drawing."""
    result, table = read(fst), symbol_table(alphabet)
    result.set_input_symbols(table)
    result.set_output_symbols(table)
    return result


def is_acceptor(fst: Fst) -> bool:
    """Whether every arc has the same label on both sides."""
    return bool(fst.properties(pynini.ACCEPTOR, True) == pynini.ACCEPTOR)


def is_acyclic(fst: Fst) -> bool:
    """Whether no path comes back to a state, epsilon arcs included."""
    return bool(fst.properties(pynini.ACYCLIC, True) == pynini.ACYCLIC)


def is_empty(fst: Fst) -> bool:
    """Whether the FST has no state to start from, as an empty composition has."""
    return bool(fst.start() == -1)


def compose(left: Fst, right: Fst) -> Fst:
    """Return left o right, trimmed; an empty result has no start state (`is_empty`).

    Raises
    ------
    FstError
        The arc types differ, or the symbols that meet do.
    """
    if left.arc_type() != right.arc_type():
        raise FstError(
            f"cannot compose arc type {left.arc_type()!r} with {right.arc_type()!r}; "
            "convert one with with_arc_type"
        )
    _check_symbols(_symbols(left.output_symbols()), _symbols(right.input_symbols()))
    sorted_left = arc_sort(left, "olabel")
    return read(_call(pynini.compose, sorted_left, right))


def project(fst: Fst, side: Literal["input", "output"]) -> Fst:
    """Return the acceptor of one side."""
    result = read(fst)
    _call(result.project, side)
    return result


def connect(fst: Fst) -> Fst:
    """Return the FST without states that lie on no path from the start to a final state."""
    result = read(fst)
    _call(result.connect)
    return result


def arc_sort(fst: Fst, side: Literal["ilabel", "olabel"]) -> Fst:
    """Return the FST with the arcs of each state in the order of their labels."""
    result = read(fst)
    _call(result.arcsort, side)
    return result


def remove_epsilons(fst: Fst, *, delta: float) -> Fst:
    """Return an FST without arcs that are epsilon on both sides."""
    result = read(fst)
    _call(result.rmepsilon, delta=delta)
    return result


def push(fst: Fst, *, delta: float) -> Fst:
    """Return the FST with weights pushed to the start: each state's paths sum to one.

    "Sum" is that of the semiring: in "standard" the best path of each state costs 0.
    """
    return read(_call(pynini.push, fst, delta=delta, push_weights=True))


def minimize(fst: Fst, *, delta: float, deterministic: bool = True) -> Fst:
    """Return the minimal FST; without `deterministic`, states with the same arcs are merged."""
    result = read(fst)
    _call(result.minimize, delta=delta, allow_nondet=not deterministic)
    return result


def determinize(fst: Fst, *, delta: float, max_states: int | None = None) -> Fst:
    """Return an equivalent FST in which no state has two arcs with the same input label.

    Exponential in the number of states in the worst case.  `max_states` stops OpenFst once the
    result has that many states (and the result is then incomplete); only "standard" can do this.

    Raises
    ------
    FstError
        `max_states` with another arc type, or OpenFst fails.
    """
    if max_states is None:
        return read(_call(pynini.determinize, fst, delta=delta))
    if fst.arc_type() != "standard":
        raise FstError(
            f"OpenFst has no state limit for arc type {fst.arc_type()!r}; leave max_states out"
        )
    return read(_call(pynini.determinize, fst, delta=delta, nstate=max_states))


def prune(fst: Fst, threshold: float) -> Fst:
    """Return the FST without the paths that cost more than the best one plus `threshold`."""
    if fst.arc_type() != "standard":
        raise FstError(f"arc type is {fst.arc_type()!r}; pruning needs 'standard' (tropical)")
    return read(_call(pynini.prune, fst, weight=float(threshold)))


def shortest_distance(fst: Fst, *, delta: float, reverse: bool = False) -> FloatArray:
    """Return the (S,) distances from the start, or with `reverse` to the end, as costs.

    A distance is the semiring sum over all paths: a minimum in "standard", -log sum exp(-cost)
    in "log64".  +inf where there is no path.  `delta` decides when a cycle has converged.
    """
    weights = _call(pynini.shortestdistance, fst, delta=delta, reverse=reverse)
    # float(weight) has nine digits; final weights leave OpenFst whole
    carrier = Fst(arc_type=fst.arc_type())
    carrier.add_states(fst.num_states())
    for state, weight in enumerate(weights):
        carrier.set_final(state, weight)
    return to_arrays(carrier).final


def _records(weight: type[np.floating]) -> tuple[np.dtype[np.void], np.dtype[np.void]]:
    """Return the record types of a state and an arc in the binary form of a ConstFst."""
    counts = [(name, np.uint32) for name in ("position", "arcs", "iepsilons", "oepsilons")]
    arc = [("ilabel", np.int32), ("olabel", np.int32), ("weight", weight), ("target", np.int32)]
    return np.dtype([("final", weight), *counts]), np.dtype(arc, align=True)


def _call(operation: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Fst:
    try:
        return operation(*args, **kwargs)
    except pywrapfst.FstOpError as error:
        name = getattr(operation, "__name__", str(operation))
        raise FstError(f"OpenFst could not {name}: {error}; its reason is on stderr") from error


def _check_arc_type(fst: Fst, name: str) -> None:
    if fst.arc_type() not in _WEIGHTS:
        raise FstError(f"{name} has arc type {fst.arc_type()!r}; use one of {', '.join(_WEIGHTS)}")


def _symbols(table: pynini.SymbolTableView | None) -> Symbols | None:
    return None if table is None else tuple((int(label), str(symbol)) for label, symbol in table)


def _table(symbols: Symbols | None) -> pynini.SymbolTable | None:
    if symbols is None:
        return None
    table = pynini.SymbolTable()
    for label, symbol in symbols:
        table.add_symbol(symbol, label)
    return table


def _check_symbols(left: Symbols | None, right: Symbols | None) -> None:
    """Raise where two tables that meet in a composition give a label two symbols."""
    if left is None or right is None or left == right:
        return
    ours, theirs = dict(left), dict(right)
    for label in sorted(ours.keys() | theirs.keys()):
        if ours.get(label) != theirs.get(label):
            raise FstError(
                f"cannot compose: label {label} is {ours.get(label)!r} on the left and "
                f"{theirs.get(label)!r} on the right; build both with the same Alphabet"
            )
