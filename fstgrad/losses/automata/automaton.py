"""LossAutomaton: B, the loss against one target as a deterministic automaton over Delta^l."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fstgrad import plot
from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    cost_array,
    freeze,
    index_array,
    instance,
    positive_integer,
    real_number,
)
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.layout import DEAD as DEAD
from fstgrad.losses.automata.layout import Layout
from fstgrad.openfst import Fst, FstArrays, from_arrays


@dataclass(frozen=True)
class Level:
    """The arcs of one position: from S states, over C symbol classes, to S' states.

    nextstate : (S, C) int64, a state of the next level, or -1 (dead) if no hypothesis continues.
    cost : (S, C) float64, loss in nats; 0 if dead.
    """

    nextstate: IntArray
    cost: FloatArray

    @cached_property
    def segments(self) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
        """For each class, the indices (sources, starts, nextstates) for ufunc.reduceat.

        sources[starts[i] : starts[i + 1]] are the states that lead to nextstates[i].
        """
        result = []
        for column in self.nextstate.T:
            alive = np.flatnonzero(column != DEAD)
            sources = alive[np.argsort(column[alive], kind="stable")]
            nextstates, starts = np.unique(column[sources], return_index=True)
            result.append((sources, starts.astype(np.int64), nextstates))
        return tuple(result)


@dataclass(frozen=True, eq=False)
class FlatLevels:
    """All levels concatenated, for the passes on logarithms; N states with arcs.

    `class_of` (n,) int64 is the class of each symbol.  Level t has the states offsets[t] ..
    offsets[t + 1].  `nextstate` (N, C) int32 counts from the start of the next level, -1 if dead;
    `cost` (N, C) and `final` (S_l,) are float64, in nats.
    """

    class_of: IntArray
    offsets: IntArray
    nextstate: npt.NDArray[np.int32]
    cost: FloatArray
    final: FloatArray


class Cap(Protocol):
    """What is known about the uncapped loss of a capped automaton."""

    @property
    def upper(self) -> "LossAutomaton":
        """The automaton of an upper bound of the uncapped loss, else NotSupportedError."""

    def scaled(self, factor: float) -> "Cap":
        """Return what is known about the loss times a factor > 0."""


@dataclass(frozen=True)
class UncertifiedCap:
    """A cap without an upper bound, and the reason."""

    reason: str

    @property
    def upper(self) -> "LossAutomaton":
        """Raise NotSupportedError: no upper bound is known."""
        raise NotSupportedError(f"no upper bound is known: {self.reason}")

    def scaled(self, factor: float) -> "UncertifiedCap":
        """Return itself."""
        return self


REVERSED = UncertifiedCap(
    "a factor <= 0 exchanges the bounds of a cap or a band; give the loss itself, or one without"
)


@dataclass(frozen=True, eq=False)
class LossAutomaton:
    """The deterministic, layered automaton B of a loss against one target.

    The states of B are in levels 0..l; level 0 has one state, the initial one.  A hypothesis y of
    length l is one path, and its loss in nats is the cost of the path:

        L(y) = initial + sum_t levels[t].cost[state_t, class_of[y_t]] + final[state_l]

    A hypothesis without a path has L = +inf and is left out of every sum.

    Attributes
    ----------
    alphabet : Alphabet of n symbols.
    class_of : (n,) int64, the class of each symbol; symbols of a class have the same arcs.
    levels : l Levels.
    initial : float, nats.
    final : (S_l,) float64, nats.
    cap : Cap, optional
        Set if L is min(loss, cap); `cap.upper` is an upper bound of the uncapped loss.
    band : int or (int, int), optional
        Set if the alignments are restricted to a band; L is then at least the full loss.
    prune : float, optional
        Set if M was pruned by this threshold, in nats; L is then at least the full loss, often
        +inf, and bounds nothing.
    """

    alphabet: Alphabet
    class_of: IntArray
    levels: tuple[Level, ...]
    initial: float
    final: FloatArray
    cap: Cap | None = None
    band: int | tuple[int, int] | None = None
    prune: float | None = None

    def __repr__(self) -> str:
        return (
            f"LossAutomaton({len(self.alphabet):,} symbols, length {self.length:,}, "
            f"{self.num_states:,} states, {self.num_arcs:,} arcs)"
        )

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        freeze(class_of=self.class_of, final=self.final)
        instance("levels", self.levels, tuple, "a tuple of Levels")
        for level in self.levels:
            instance("a level", level, Level, "a Level")
            freeze(nextstate=level.nextstate, cost=level.cost)
        self._check()

    def _check(self) -> None:
        """Raise InvalidInputError if the passes would read or write outside their arrays."""
        instance("alphabet", self.alphabet, Alphabet, "an Alphabet")
        class_of = index_array("class_of", self.class_of, 2**31, (len(self.alphabet),))
        classes = int(class_of.max(initial=-1)) + 1
        final = cost_array("final", self.final, (None,))
        vars(self).update(final=final, initial=real_number("initial", self.initial))
        if not self.levels:
            raise InvalidInputError("levels is empty; give a Level for each position")
        for t, level in enumerate(self.levels):
            shape = level.nextstate.shape
            if len(shape) != 2 or shape[1] < classes or level.cost.shape != shape:
                raise InvalidInputError(
                    f"levels[{t}] has nextstate {shape} and cost {level.cost.shape}; give "
                    f"(states, {classes}) both"
                )
            if level.nextstate.dtype.kind != "i" or level.cost.dtype.kind != "f":
                raise InvalidInputError(f"levels[{t}] must have dtype int32 and float64")
        sizes = [*(len(level.cost) for level in self.levels[1:]), len(self.final)]
        for t, (level, size) in enumerate(zip(self.levels, sizes, strict=True)):
            ends = level.nextstate
            if ends.size and (ends.min() < DEAD or ends.max() >= size):
                wrong = ends[(ends < DEAD) | (ends >= size)][0]
                raise InvalidInputError(
                    f"levels[{t}] has nextstate {wrong}; the next level has {size} states, counted "
                    f"from 0, and {DEAD} means no arc"
                )

    @cached_property
    def flat(self) -> FlatLevels:
        """The levels, concatenated; computed once, O(arcs)."""
        return FlatLevels(
            self.class_of.copy(),
            np.concatenate([[0], np.cumsum(self.level_sizes)]).astype(np.int64),
            np.concatenate([level.nextstate for level in self.levels]).astype(np.int32),
            np.concatenate([level.cost for level in self.levels]),
            self.final.copy(),
        )

    @cached_property
    def bigram_layout(self) -> Layout:
        """The layout for the passes with bigram scores; computed once, O(arcs)."""
        return self._layout(bigram=True)

    @cached_property
    def plain_layout(self) -> Layout:
        """The layout for the passes with scores of any other order; computed once, O(arcs)."""
        return self._layout(bigram=False)

    @classmethod
    def trivial(cls, alphabet: Alphabet, length: int) -> "LossAutomaton":
        """Return the automaton of the loss 0 for all strings of `length` symbols."""
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        length = positive_integer("length", length)
        level = Level(np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1)))
        return cls(
            alphabet, np.zeros(len(alphabet), dtype=np.int64), (level,) * length, 0.0, np.zeros(1)
        )

    @classmethod
    def from_arrays(cls, alphabet: Alphabet, fst: FstArrays, length: int) -> "LossAutomaton":
        """Return the automaton of a deterministic acceptor of strings of `length` symbols.

        This is the inverse of `to_arrays`: a string of weight w has the loss -w.  Each symbol is a
        class.

        Raises
        ------
        InvalidInputError
            `fst` has labels beyond the alphabet, no start state, or too few states for the length.
        """
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        instance("fst", fst, FstArrays, "an FstArrays, as openfst.to_arrays returns it")
        length = positive_integer("length", length)
        index_array("a label of fst", fst.ilabel, len(alphabet) + 1, lower=1)
        index_array("the start of fst", fst.start, fst.num_states, ())
        if length >= fst.num_states:
            raise InvalidInputError(
                f"length is {length}, but an acyclic fst of {fst.num_states} states has strings "
                f"of length {fst.num_states - 1} at most; give the length of its strings"
            )
        n, depth = len(alphabet), np.full(fst.num_states, -1)
        depth[fst.start] = 0
        for t in range(length):
            depth[fst.nextstate[depth[fst.source] == t]] = t + 1
        number = empty(fst.num_states, dtype=np.int64)
        levels, final = [], np.zeros(0)
        for t in range(length + 1):
            states = np.flatnonzero(depth == t)
            number[states] = np.arange(len(states))
            final = -fst.final[states]
        for t in range(length):
            arcs = np.flatnonzero(depth[fst.source] == t)
            shape = (int((depth == t).sum()), n)
            nextstate, cost = np.full(shape, DEAD, dtype=np.int64), np.zeros(shape)
            cell = number[fst.source[arcs]], fst.ilabel[arcs] - 1
            nextstate[cell], cost[cell] = number[fst.nextstate[arcs]], -fst.weight[arcs]
            levels.append(Level(nextstate, cost))
        return cls(alphabet, np.arange(n), tuple(levels), 0.0, final)

    @property
    def length(self) -> int:
        """Length l of the hypotheses."""
        return len(self.levels)

    @cached_property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of states of each of the levels 0..l."""
        return (*(len(level.nextstate) for level in self.levels), len(self.final))

    @property
    def num_states(self) -> int:
        """Number of states in all levels."""
        return sum(self.level_sizes)

    @cached_property
    def num_arcs(self) -> int:
        """Number of arcs over symbols (an arc of a class counts once for each of its symbols)."""
        size = np.bincount(self.class_of, minlength=self.num_classes)
        return sum(int(((level.nextstate != DEAD) * size).sum()) for level in self.levels)

    @property
    def num_classes(self) -> int:
        """Number of symbol classes."""
        return int(self.levels[0].nextstate.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.class_of, self.final, *self._level_arrays())
        return sum(array.nbytes for array in arrays)

    @cached_property
    def is_complete(self) -> bool:
        """Whether every hypothesis of length l has a finite loss."""
        return is_complete(self.levels)

    @cached_property
    def spread(self) -> float:
        """Largest difference, over the levels, of the greatest and the least cost to go; nats."""
        return cost_spread(self.levels, [level.cost for level in self.levels], self.final)

    @cached_property
    def greatest(self) -> float:
        """Greatest finite loss of a hypothesis, in nats."""
        costs = [level.cost for level in self.levels]
        *_, (_, high) = costs_to_go(self.levels, costs, self.final)
        return self.initial + float(high[0])

    def loss(self, y: SequenceLike) -> float:
        """Return L(y) in nats, +inf if y has no path; y must have length l."""
        ids = self.alphabet.encode(y, name="y")
        if len(ids) != self.length:
            raise InvalidInputError(
                f"y has length {len(ids)}; this automaton was compiled for length {self.length}"
            )
        state, total = 0, self.initial
        for level, symbol_class in zip(self.levels, self.class_of[ids], strict=True):
            if level.nextstate[state, symbol_class] == DEAD:
                return float("inf")
            total += float(level.cost[state, symbol_class])
            state = int(level.nextstate[state, symbol_class])
        return total + float(self.final[state])

    def losses_of(self, samples: npt.ArrayLike) -> FloatArray:
        """Return L (k,) in nats of k strings of ids (k, l), +inf if there is no path; O(k l)."""
        ids = index_array("samples", samples, len(self.alphabet), (None, self.length))
        state = np.zeros(len(ids), dtype=np.int64)
        total = np.full(len(ids), self.initial)
        for level, classes in zip(self.levels, self.class_of[ids].T, strict=True):
            dead = level.nextstate[state, classes] == DEAD
            total += np.where(dead, np.inf, level.cost[state, classes])
            state = np.where(dead, 0, level.nextstate[state, classes])
        return total + self.final[state]

    def scaled(self, factor: float) -> "LossAutomaton":
        """Return the automaton of factor * L; a negative factor makes it a log-reward.

        Its `cap` and `prune` are scaled, too; with a factor <= 0, nothing is known about a cap or
        a band.
        """
        factor = real_number("factor", factor)
        cap, band = self.cap and self.cap.scaled(factor), self.band
        if factor <= 0 and (cap is not None or band is not None):
            cap, band = REVERSED, None
        return LossAutomaton(
            self.alphabet,
            self.class_of,
            tuple(Level(level.nextstate, factor * level.cost) for level in self.levels),
            factor * self.initial,
            factor * self.final,
            cap,
            band,
            None if self.prune is None else abs(factor) * self.prune,
        )

    def to_fst(self) -> Fst:
        """Return B as a pynini.Fst in log64; y has the weight -L(y), which represents e^L."""
        return from_arrays(self.to_arrays())

    def to_arrays(self) -> FstArrays:
        """Return B as the arrays of `to_fst`; label i + 1 is symbol i."""
        offsets = np.concatenate([[0], np.cumsum(self.level_sizes)])
        sources, labels, nextstates, weights = [], [], [], []
        for t, level in enumerate(self.levels):
            nextstate = level.nextstate[:, self.class_of]
            state, symbol = np.nonzero(nextstate != DEAD)
            sources.append(state + offsets[t])
            labels.append(symbol + 1)
            nextstates.append(nextstate[state, symbol] + offsets[t + 1])
            weights.append(-level.cost[:, self.class_of][state, symbol])
        final = np.full(self.num_states, np.inf)
        final[offsets[-2] :] = -self.final - self.initial
        label = np.concatenate(labels)
        return FstArrays(
            arc_type="log64",
            start=0,
            final=final,
            source=np.concatenate(sources),
            ilabel=label,
            olabel=label,
            weight=np.concatenate(weights),
            nextstate=np.concatenate(nextstates),
        )

    _repr_svg_ = plot.notebook(plot.automaton_svg, lambda self: self.num_states <= 60)

    def _layout(self, *, bigram: bool) -> Layout:
        nextstates = [level.nextstate for level in self.levels]
        costs = [level.cost for level in self.levels]
        return Layout.of_levels(self.class_of.copy(), nextstates, costs, self.final, bigram=bigram)

    def _level_arrays(self) -> Iterator[FloatArray | IntArray]:
        for level in self.levels:
            yield level.nextstate
            yield level.cost


def costs_to_go(
    levels: Sequence[Level], costs: Sequence[FloatArray], final: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the least and the greatest finite cost to go (S,) of each state, for levels l .. 0.

    costs : (S, C) for each level, used instead of the level's own; dead arcs do not count.
    """
    low, high = final, final
    yield low, high
    for level, cost in zip(reversed(levels), reversed(costs), strict=True):
        dead = level.nextstate == DEAD
        low = np.where(dead, np.inf, cost + low[level.nextstate]).min(axis=1)
        high = np.where(dead, -np.inf, cost + high[level.nextstate]).max(axis=1)
        yield low, high


def cost_spread(levels: Sequence[Level], costs: Sequence[FloatArray], final: FloatArray) -> float:
    """Return the largest difference, over the levels, of two costs to go."""
    return max(float(high.max() - low.min()) for low, high in costs_to_go(levels, costs, final))


def is_complete(levels: Sequence[Level]) -> bool:
    """Return whether every string has a path."""
    return all(bool((level.nextstate != DEAD).all()) for level in levels)


def trusted(
    alphabet: Alphabet,
    class_of: IntArray,
    levels: tuple[Level, ...],
    initial: float,
    final: FloatArray,
    cap: Cap | None,
) -> LossAutomaton:
    """Return the automaton of arrays that the compiled steps made, without checks."""
    b = object.__new__(LossAutomaton)
    freeze(class_of=class_of, final=final)
    for level in levels:
        level.nextstate.flags.writeable = level.cost.flags.writeable = False
    vars(b).update(
        alphabet=alphabet, class_of=class_of, levels=levels, initial=initial, final=final, cap=cap
    )
    return b
