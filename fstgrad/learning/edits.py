"""Edits: the errors of many hypotheses against their references, in cheapest alignments."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import IntArray, one_of
from fstgrad.core.short_repr import short_repr
from fstgrad.losses.automata.kernels.arguments import DELETE, INSERT, MATCH, SUBSTITUTE, Strings
from fstgrad.losses.edit_operations import Alignment, Kind, Operation
from fstgrad.losses.pairwise import edit_paths

Align = Literal["unit", "sclite"]
# the costs of a substitution, of a symbol of the hypothesis alone, of one of the reference alone
COSTS: dict[Align, tuple[float, float, float]] = {
    "unit": (1.0, 1.0, 1.0),
    "sclite": (4.0, 3.0, 3.0),
}
_KINDS: dict[int, Kind] = {
    MATCH: "match", SUBSTITUTE: "substitute", DELETE: "delete", INSERT: "insert"
}  # fmt: skip
Symbols = Sequence[str]


class Errors(NamedTuple):
    """The edits that turn predictions into their targets, in a best alignment of each pair.

    substituted, missing, added : ((prediction's symbol, target's symbol), number), the most
        frequent first; a missing symbol of the target is (None, symbol), an added symbol is
        (symbol, None).
    symbols : of all targets.
    """

    substituted: tuple[tuple[tuple[str, str], int], ...]
    missing: tuple[tuple[tuple[None, str], int], ...]
    added: tuple[tuple[tuple[str, None], int], ...]
    symbols: int

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        lines = []
        for name, edits in self._asdict().items():
            if name != "symbols":
                number = sum(count for _, count in edits)
                lines.append(f"{name:<12}{number:>8,}  {number / max(1, self.symbols):.2%}")
                lines += [f"  {a or '-'} for {b or '-'}{count:>8,}" for (a, b), count in edits[:10]]
        return "\n".join(lines)


class Chosen(NamedTuple):
    """How readings of N references with alternatives were chosen (see `alternatives`).

    references : the N references, as they are compared.
    items : (N,) int64, the items of each reference: words, alternatives and optional words.
    item : the item of each symbol of all chosen references.
    excused : (N,) int64, optional symbols that were left out, which count as correct.
    """

    references: tuple[Any, ...]
    items: IntArray
    item: IntArray
    excused: IntArray


@dataclass(frozen=True, eq=False)
class Edits:
    """A cheapest alignment of each of N hypotheses y with its reference z.

    Attributes
    ----------
    symbols : the symbols of all strings, in the order in which they appear
    y, z : the N hypotheses and the N references, as indices of symbols
    step : (K,) int8, MATCH, SUBSTITUTE, DELETE (a symbol of y alone) or INSERT (one of z alone)
    first : (N + 1,) int64; pair i has the steps first[i] .. first[i + 1]
    costs : the costs of SUBSTITUTE, DELETE and INSERT
    chosen : how `z` was chosen; None if it was given
    """

    symbols: tuple[str, ...]
    y: Strings
    z: Strings
    step: npt.NDArray[np.int8]
    first: IntArray
    costs: tuple[float, float, float]
    chosen: Chosen | None = None

    __repr__ = short_repr

    @classmethod
    def of(
        cls,
        hypotheses: Sequence[Symbols],
        references: Sequence[Symbols],
        align: Align = "unit",
        chosen: Chosen | None = None,
    ) -> "Edits":
        """Return the alignments of strings, equal in number; O(|y| |z|) for each pair.

        align : "unit" counts each error as 1; "sclite" has the costs 4, 3 and 3 of NIST's sclite.
        Of equal costs, both choose as sclite does: from the end, a match or a substitution, else a
        symbol of the hypothesis alone, else one of the reference alone.
        """
        one_of("align", align, tuple(COSTS))
        costs = COSTS[align]
        number: defaultdict[str, int] = defaultdict(count().__next__)
        y, z = (_joined(strings, number) for strings in (hypotheses, references))
        return cls(tuple(number), y, z, *edit_paths(y, z, *costs), costs, chosen)

    @cached_property
    def counts(self) -> IntArray:
        """The number (N, 4) of steps of each kind of each pair, [:, MATCH], [:, SUBSTITUTE], ...

        Optional symbols that were left out count as matches.
        """
        pairs = len(self.first) - 1
        kind = 4 * self._pair + self.step
        counts = np.bincount(kind, minlength=4 * pairs).reshape(pairs, 4)
        if self.chosen is not None:
            counts[:, MATCH] += self.chosen.excused
        return counts

    @property
    def errors(self) -> IntArray:
        """The number (N,) of errors of each pair."""
        errors: IntArray = self.counts[:, [SUBSTITUTE, DELETE, INSERT]].sum(axis=1)
        return errors

    @property
    def sizes(self) -> IntArray:
        """The number (N,) of symbols of each reference."""
        sizes: IntArray = np.diff(self.z.first)
        return sizes if self.chosen is None else sizes + self.chosen.excused

    def reference(self, pair: int) -> tuple[str, ...]:
        """Return the symbols of the reference of a pair."""
        ids = self.z.ids[self.z.first[pair] : self.z.first[pair + 1]]
        return tuple(self.symbols[i] for i in ids.tolist())

    def has_references_of(self, other: "Edits") -> bool:
        """Return whether both have the same references."""
        mine, theirs = (
            tuple(map(own.reference, range(len(own.sizes))))
            if own.chosen is None
            else own.chosen.references
            for own in (self, other)
        )
        return mine == theirs

    @cached_property
    def items(self) -> tuple[IntArray, IntArray]:
        """The items (N,) of each reference, and the item of each symbol of `z`.

        Items are symbols, or choices of a reference with alternatives.
        """
        if self.chosen is not None:
            return self.chosen.items, self.chosen.item
        sizes = np.diff(self.z.first)
        return sizes, np.arange(len(self.z.ids)) - np.repeat(self.z.first[:-1], sizes)

    @cached_property
    def _pair(self) -> IntArray:
        """The pair (K,) of each step."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The index in `y.ids` and in `z.ids`, each (K,), of the next symbol at each step."""
        reads, writes = self.step != INSERT, self.step != DELETE
        return np.cumsum(reads) - reads, np.cumsum(writes) - writes

    def confusions(self) -> Errors:
        """Return the most frequent errors."""
        tables: dict[int, tuple[Any, ...]] = {}
        names, size = (None, *self.symbols), len(self.symbols) + 1  # 0: no symbol
        for kind in (SUBSTITUTE, INSERT, DELETE):
            steps = np.flatnonzero(self.step == kind)
            a, b = (
                np.zeros_like(steps) if kind == alone else strings.ids[places[steps]] + 1
                for strings, places, alone in zip(
                    (self.y, self.z), self.places, (INSERT, DELETE), strict=True
                )
            )
            keys, number = np.unique(a * size + b, return_counts=True)
            order = np.argsort(-number, kind="stable")
            tables[kind] = tuple(
                ((names[key // size], names[key % size]), times)
                for key, times in zip(keys[order].tolist(), number[order].tolist(), strict=True)
            )
        return Errors(tables[SUBSTITUTE], tables[INSERT], tables[DELETE], len(self.z.ids))

    def alignment(self, pair: int) -> Alignment:
        """Return the alignment of a pair, whose target is the reference."""
        begin, end = self.first[pair], self.first[pair + 1]
        operations = []
        for step, i, j in zip(
            self.step[begin:end].tolist(),
            (self.places[0][begin:end] - self.y.first[pair]).tolist(),
            (self.places[1][begin:end] - self.z.first[pair]).tolist(),
            strict=True,
        ):
            a = None if step == INSERT else self.symbols[self.y.ids[self.y.first[pair] + i]]
            b = None if step == DELETE else self.symbols[self.z.ids[self.z.first[pair] + j]]
            cost = 0.0 if step == MATCH else self.costs[step]
            operations.append(Operation(_KINDS[step], a, b, i, j, cost))
        return Alignment(sum(operation.cost for operation in operations), tuple(operations))


def _joined(strings: Sequence[Symbols], number: defaultdict[str, int]) -> Strings:
    first = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum([len(string) for string in strings], out=first[1:])
    ids = map(number.__getitem__, chain.from_iterable(strings))
    return Strings(np.fromiter(ids, dtype=np.int64, count=int(first[-1])), first)
