"""TargetLoss: the loss against one target, evaluated for many hypotheses at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.axis_labels import check_mask
from fstgrad.core.checks import FloatArray, IntArray, index_array, positive_integer, positive_number
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import BAND_AND_CAP, Band, compile_band
from fstgrad.losses.automata.caps import TropicalCap, check_cap, in_nats
from fstgrad.losses.automata.determinize import TropicalFrontier, determinize, minimize
from fstgrad.losses.automata.machine import TargetMachine, concatenate
from fstgrad.losses.automata.semiring import TROPICAL

Function = Callable[[tuple[str, ...], tuple[str, ...]], float]


class DynamicProgram(Protocol):
    """A faster algorithm for the losses (k,) in nats of strings of ids (k, l)."""

    @property
    def work(self) -> float:
        """Cost per state of M and position, relative to a step along M."""

    def __call__(self, strings: IntArray, /) -> FloatArray:
        """Return the losses (k,) in nats of `strings` (k, l) of ids."""


@dataclass(frozen=True, eq=False)
class TargetLoss:
    """The loss L(., y_i) of hypotheses of any length, from M without determinization.

    Attributes
    ----------
    alphabet : Alphabet of n symbols.
    machine : TargetMachine, M with K states.
    finished : function from path sums (k,) and their machine to losses (k,) in nats.
    programme : function from strings (k, l) to losses (k,) in nats, if there is a faster algorithm.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> against = fg.EditDistance(fg.Alphabet("ab")).against("abb")
    >>> against.losses_of(np.array([[0, 1, 1], [1, 1, 0]])).tolist()
    [0.0, 2.0]
    """

    alphabet: Alphabet
    machine: TargetMachine
    finished: Callable[[npt.NDArray[Any], TargetMachine], FloatArray]
    programme: "DynamicProgram | None" = None

    __repr__ = short_repr

    @property
    def nbytes(self) -> int:
        """Bytes of the arcs of M."""
        first, ends, weights = self._arcs
        return first.nbytes + ends.nbytes + weights.nbytes + sum(a.nbytes for a in self._epsilon)

    def losses_of(self, samples: npt.ArrayLike) -> FloatArray:
        """Return the losses (k,) in nats of k strings of ids (k, l), +inf if there is no path.

        O(k l (arcs of a class + epsilon arcs)); an edit distance has about K of each.
        """
        ids = index_array("samples", samples, len(self.alphabet), (None, None))
        if self.programme is not None:
            return self.programme(ids)
        classes = np.ascontiguousarray(self.machine.class_of[ids])
        return self.in_nats(self._compiled(classes))

    def in_nats(self, value: npt.NDArray[Any]) -> FloatArray:
        """Return the losses (k,) in nats of path sums (k,) of the machine.

        Raises
        ------
        InvalidInputError
            `value` is not an array of numbers, or has NaN or impossible sums.
        """
        check_mask("value", value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "if":
            raise InvalidInputError(f"value is {value!r}; give an array of values of the machine")
        value = value.astype(np.float64, copy=False) if value.dtype.kind == "f" else value
        with np.errstate(invalid="ignore"):
            found = self.finished(value, self.machine)
        if np.isnan(found).any():
            raise InvalidInputError("value has NaN or numbers that no sum over paths can have")
        return found

    def bounds(self, length: int) -> tuple[float, float]:
        """Return bounds in nats, lower and upper, of the losses of all strings of a length.

        A bound that is not known is infinite.  O(l x arcs of M) at the first call with a length.
        """
        length = positive_integer("length", length, minimum=0)
        if length not in self._bounds:
            self._bounds[length] = self._bounds_of(length)
        return self._bounds[length]

    @cached_property
    def _bounds(self) -> dict[int, tuple[float, float]]:
        return {}

    def _bounds_of(self, length: int) -> tuple[float, float]:
        if self.machine.semiring is not TROPICAL:
            return -np.inf, float(self.in_nats(np.zeros(1))[0])
        frontier = TropicalFrontier(self.machine, length)
        ends = np.array([frontier.least, frontier.greatest])
        least, greatest = np.where(TROPICAL.is_zero(ends), np.inf, ends * self.machine.unit)
        return float(least), float(greatest)

    @property
    def num_states(self) -> int:
        """Number of states of M."""
        return self.machine.num_states

    @property
    def step_states(self) -> int:
        """Approximate cost of an evaluation per position, counted in states of M."""
        return int(self.num_states * (3 if self.programme is None else self.programme.work))

    @property
    def has_bands(self) -> bool:
        """Whether `compile` supports a band or a cap."""
        return self.machine.semiring is TROPICAL

    def compile(
        self, length: int, *, band: Band | None = None, cap: float | None = None, max_states: int
    ) -> LossAutomaton:
        """Return B of a tropical loss, as `Loss.compile` does, but from this machine."""
        length = positive_integer("length", length)
        max_states = positive_integer("max_states", max_states)
        machine = self.machine
        if band is not None:
            if cap is not None:
                raise NotSupportedError(BAND_AND_CAP)
            return compile_band(self.alphabet, machine, length, band, max_states)
        if cap is not None:
            machine = machine.with_constant(check_cap(cap))
        certificate = None if cap is None else TropicalCap(self.alphabet, machine, length)
        raw = minimize(determinize(machine, length, max_states=max_states))
        return in_nats(self.alphabet, machine.class_of, raw, machine.unit, certificate)

    def scaled(self, factor: float) -> "TargetLoss":
        """Return the loss multiplied by a factor > 0.

        Examples
        --------
        >>> import fstgrad as fg
        >>> half = fg.EditDistance(fg.Alphabet("ab")).against("ab").scaled(0.5)
        >>> half.losses_of([[0, 0], [0, 1]]).tolist()
        [0.5, 0.0]
        """
        factor = positive_number("factor", factor)
        machine = replace(self.machine, unit=self.machine.unit * factor)
        return replace(self, machine=machine, programme=None)

    def _compiled(self, classes: IntArray) -> npt.NDArray[Any]:
        machine = self.machine
        initial = machine.close(machine.initial[:, None].copy())[:, 0].copy()
        first, ends, weights = self._arcs
        epsilon_ends, epsilon_weights = self._epsilon
        if machine.semiring is not TROPICAL:
            return kernels.rows.probability_values(
                classes, first, ends, weights, epsilon_ends, epsilon_weights, initial, machine.final
            )
        arcs = np.column_stack([ends, weights])
        epsilon = np.column_stack([epsilon_ends, epsilon_weights])
        return kernels.rows.tropical_values(classes, first, arcs, epsilon, initial, machine.final)

    @cached_property
    def _arcs(self) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
        """The first arc of each class, then (source, nextstate) and the weights of all arcs."""
        every = concatenate(self.machine.arcs)
        sizes = [len(arcs.source) for arcs in self.machine.arcs]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return first, np.column_stack([every.source, every.nextstate]), every.weight

    @cached_property
    def _epsilon(self) -> tuple[IntArray, npt.NDArray[Any]]:
        arcs = self.machine.epsilon
        return np.column_stack([arcs.source, arcs.nextstate]), arcs.weight


@dataclass(frozen=True, eq=False)
class FunctionTargetLoss:
    """The loss of a function of Python against one target, a part of a `SumTargetLoss`.

    Attributes
    ----------
    alphabet : Alphabet
    function : as in `FunctionLoss`
    target : tuple of symbols
    factor : float, > 0, times which losses are taken
    """

    alphabet: Alphabet
    function: Function
    target: tuple[str, ...]
    factor: float = 1.0

    __repr__ = short_repr
    num_states = 0  # of a machine
    step_states = 100  # a call costs about as much as so many states
    nbytes = 0

    def losses_of(self, samples: npt.ArrayLike) -> FloatArray:
        """Return the losses (k,) in nats of k strings of ids (k, l), each distinct one called once.

        Raises
        ------
        InvalidInputError
            The function returns something that is no number, NaN or -inf.
        """
        ids = index_array("samples", samples, len(self.alphabet), (None, None))
        strings, number = np.unique(ids, axis=0, return_inverse=True)
        values = empty(len(strings))
        for i, string in enumerate(strings):
            y = tuple(self.alphabet.decode(string))
            values[i] = self._loss(y)
        return np.asarray(values[number.ravel()] * self.factor)

    def _loss(self, y: tuple[str, ...]) -> float:
        value = self.function(y, self.target)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if np.isnan(number) or number == -np.inf:
            raise InvalidInputError(
                f"function returned {value!r} for {y!r} and {self.target!r}; return a loss in "
                "nats, finite or +inf"
            )
        return number

    def bounds(self, length: int) -> tuple[float, float]:
        """Return (-inf, inf): a function has no known bounds."""
        return -np.inf, np.inf

    def scaled(self, factor: float) -> "FunctionTargetLoss":
        """Return the losses multiplied by a factor > 0."""
        return FunctionTargetLoss(self.alphabet, self.function, self.target, self.factor * factor)


@dataclass(frozen=True, eq=False)
class SumTargetLoss:
    """A sum of losses against one target, evaluated for many hypotheses at once."""

    parts: tuple["TargetLoss | SumTargetLoss | FunctionTargetLoss", ...]

    __repr__ = short_repr

    @property
    def alphabet(self) -> Alphabet:
        """The alphabet of all parts."""
        return self.parts[0].alphabet

    def losses_of(self, samples: npt.ArrayLike) -> FloatArray:
        """Return the losses (k,) in nats of k strings of ids (k, l), +inf if there is no path."""
        losses = np.array([part.losses_of(samples) for part in self.parts])
        total: FloatArray = losses.sum(axis=0)
        return total

    def bounds(self, length: int) -> tuple[float, float]:
        """Return bounds in nats, lower and upper, of the losses of all strings of a length."""
        ends = np.array([part.bounds(length) for part in self.parts])
        least, greatest = ends.sum(axis=0)
        return float(least), float(greatest)

    def scaled(self, factor: float) -> "SumTargetLoss":
        """Return the losses multiplied by a factor > 0."""
        return SumTargetLoss(tuple(part.scaled(factor) for part in self.parts))

    @property
    def num_states(self) -> int:
        """Number of states of the machines of all parts."""
        return sum(part.num_states for part in self.parts)

    @property
    def step_states(self) -> int:
        """Approximate cost of an evaluation per position, counted in states."""
        return sum(part.step_states for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the arcs of all parts."""
        return sum(part.nbytes for part in self.parts)
