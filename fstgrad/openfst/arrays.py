"""An FST as plain arrays."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray, float_array, index_array, is_integer
from fstgrad.core.errors import FstError, InvalidInputError
from fstgrad.core.sequences import fields

ArcType = Literal["standard", "log", "log64"]
ARC_TYPES: tuple[ArcType, ...] = get_args(ArcType)
Symbols = tuple[tuple[int, str], ...]
_MOST = 2**62  # labels and state numbers are below this in absolute value


@dataclass(frozen=True, eq=False)
class FstArrays:
    """An FST as read-only arrays, arcs sorted by source state.

    Parameters
    ----------
    arc_type : {"standard", "log", "log64"}
        Tropical semiring in float32, log semiring in float32 or log semiring in float64.
    start : int
        The start state, or -1 for none.
    final : (S,) float64
        Final cost of each state; +inf for a state that is not final.
    source, ilabel, olabel, nextstate : (A,) int64
        Source state, input label, output label and next state of each arc; label 0 is epsilon.
    weight : (A,) float64
        Cost of each arc: a tropical cost, or a negative natural logarithm.
    input_symbols, output_symbols : tuple of (label, symbol), or None
        The symbol tables, if the FST has them.

    Raises
    ------
    FstError
        `arc_type` is none of the three.
    InvalidInputError
        An array has the wrong shape or dtype, or a state is outside 0 .. S - 1.
    """

    arc_type: ArcType
    start: int
    final: FloatArray
    source: IntArray
    ilabel: IntArray
    olabel: IntArray
    nextstate: IntArray
    weight: FloatArray
    input_symbols: Symbols | None = None
    output_symbols: Symbols | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arc_type, str) or self.arc_type not in ARC_TYPES:
            raise FstError(f"arc_type is {self.arc_type!r}; use one of {', '.join(ARC_TYPES)}")
        order: IntArray | None = None
        for name in ("source", "ilabel", "olabel", "nextstate"):
            given = index_array(name, getattr(self, name), _MOST, (None,), lower=-_MOST)
            object.__setattr__(self, name, given)
        for name in ("weight", "final"):
            costs = float_array(name, getattr(self, name), (None,))
            if np.isnan(costs).any():
                raise InvalidInputError(f"{name} has NaN; give costs")
            object.__setattr__(self, name, costs)
        for name in ("input_symbols", "output_symbols"):
            if (table := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(map(tuple, fields(name, table, 2))))
        if not is_integer(self.start):
            raise InvalidInputError(f"start is {self.start!r}; give a state, or -1 for none")
        source = self.source
        if source.size and (np.diff(source) < 0).any():
            order = np.argsort(source, kind="stable")
        for name in ("source", "ilabel", "olabel", "nextstate"):
            self._freeze(name, getattr(self, name), order)
        self._freeze("weight", self.weight, order)
        self._freeze("final", self.final, None)
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
        for name, ends in (("source", self.source), ("nextstate", self.nextstate)):
            if ends.size and not (ends.min() >= 0 and ends.max() < states):
                raise InvalidInputError(f"{name} has states outside 0 .. {states - 1}")
        if not -1 <= self.start < states:
            raise InvalidInputError(f"start is {self.start}; there are {states} states")

    def invert(self) -> "FstArrays":
        """Return the FST with its input and output sides exchanged."""
        return replace(
            self,
            ilabel=self.olabel,
            olabel=self.ilabel,
            input_symbols=self.output_symbols,
            output_symbols=self.input_symbols,
        )

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return len(self.source)


def trusted(
    arc_type: ArcType,
    start: int,
    final: FloatArray,
    source: IntArray,
    ilabel: IntArray,
    olabel: IntArray,
    nextstate: IntArray,
    weight: FloatArray,
) -> FstArrays:
    """Return the FST of arrays that are valid and sorted by source; nothing is checked."""
    fst = object.__new__(FstArrays)
    fields = {"source": source, "ilabel": ilabel, "olabel": olabel, "nextstate": nextstate}
    for name, values in (*fields.items(), ("weight", weight), ("final", final)):
        view = values.view()
        view.flags.writeable = False
        object.__setattr__(fst, name, view)
    object.__setattr__(fst, "arc_type", arc_type)
    object.__setattr__(fst, "start", start)
    return fst
