"""Vocabularies: the names of features that have weights, and their numbers at each position.

- `Names` : the names of any template, as text.
- `WindowNames` : the names of `Window`, as numbers: one compiled loop over all positions.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.checks import IntArray, call_function, instance, positive_integer
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.core.sequences import fields, items
from fstgrad.io import memory_limit
from fstgrad.learning import kernels
from fstgrad.learning.templates import Tagged, Template, Window, as_input, check_symbols, symbols_of

_KEPT = 2**16  # training inputs whose names are kept as numbers
_POSITION = 16  # the least number of bytes kept per position
_BOUNDARY, _FIRST = 1, 2  # digits of a key: 0 is no symbol, symbols follow the boundary


class Active(NamedTuple):
    """The active names of the positions of some outputs: ids[starts[s] : starts[s + 1]]."""

    starts: IntArray
    ids: IntArray


class Names:
    """The names that a template yields, as text.

    Parameters
    ----------
    template : callable (x, s, l) -> iterable of str
    names : sequence of str
    """

    def __init__(self, template: Template, names: Sequence[str]) -> None:
        _check_names(names)
        self.template = template
        self.names = tuple(names)
        self._number = _NameNumbers(zip(self.names, range(len(self.names)), strict=True))
        self._kept: dict[tuple[Any, int], _Row] = {}

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.names)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, without the data kept of the training inputs."""
        return {**self.__dict__, "_kept": {}}

    @classmethod
    def of(cls, template: Template, inputs: Sequence[tuple[Any, int]], min_count: int) -> "Names":
        """Return the names that occur `min_count` times at (x, l) of the inputs."""
        number: dict[str, int] = defaultdict(itertools.count().__next__)
        starts, ids = _named(template, inputs, number)
        counts = np.bincount(ids, minlength=len(number)).tolist()
        names = list(number)
        _check_names(names)
        order = sorted(
            (i for i in range(len(names)) if counts[i] >= min_count), key=names.__getitem__
        )
        frequent = cls(template, [names[i] for i in order])
        new_number = np.full(len(names), -1)
        new_number[order] = np.arange(len(order))
        frequent._keep(inputs[:_KEPT], *_known(starts, new_number[ids]))
        return frequent

    def _keep(self, inputs: Sequence[tuple[Any, int]], starts: IntArray, ids: IntArray) -> None:
        """Keep the numbers of the names of inputs, of which those given are the first."""
        sizes, bounds, last = np.diff(starts), starts.tolist(), 0
        for key in inputs:
            end = last + key[1]
            self._kept[key] = _Row(sizes[last:end], ids[bounds[last] : bounds[end]])
            last = end

    def active(self, inputs: Sequence[tuple[Any, int]]) -> Active:
        """Return the numbers of the active names of all positions of (x, l), one after another."""
        rows = [self._kept[key] for key in inputs if key in self._kept]
        if len(rows) < len(inputs):
            return _known(*_named(self.template, inputs, self._number))
        sizes = _joined([row.sizes for row in rows])
        return Active(np.concatenate([[0], np.cumsum(sizes)]), _joined([row.ids for row in rows]))


class _Row(NamedTuple):
    """The active names of an input: the number of names of each position, and the names."""

    sizes: IntArray
    ids: IntArray


class _NameNumbers(dict[str, int]):
    """Numbers of names, -1 for unknown names."""

    def __missing__(self, name: str) -> int:
        instance("a name", name, str, "a str")
        return -1


def _named(
    template: Template, inputs: Sequence[tuple[Any, int]], number: Mapping[str, int]
) -> Active:
    """Return the numbers of the names that a template yields at the positions of (x, l)."""
    ids: list[int] = []
    sizes: list[int] = [0]
    for x, length in inputs:
        try:
            names = [[*template(x, s, length)] for s in range(length)]
        except Exception:  # again, with an error that says whose fault it is
            names = [
                items("what features returns", call_function("features", template, x, s, length))
                for s in range(length)
            ]
        sizes += map(len, names)
        try:
            ids += map(number.__getitem__, itertools.chain.from_iterable(names))
        except Exception:  # a name without a hash
            _check_names([*itertools.chain.from_iterable(names)])
            raise
    numbers = np.fromiter(ids, dtype=np.int64, count=len(ids))
    return Active(np.cumsum(sizes, dtype=np.int64), numbers)


def _check_names(names: Sequence[Any]) -> None:
    if not set(map(type, names)) <= {str}:
        for name in names:
            instance("one of names", name, str, "a str")


def _known(starts: IntArray, ids: IntArray) -> Active:
    """Return the numbers that are not -1."""
    ends = np.concatenate([[0], np.cumsum(ids >= 0)])
    return Active(ends[starts], ids[ids >= 0])


def _joined(arrays: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


@dataclass(frozen=True, eq=False)
class WindowNames:
    """The names of a `Window`, as keys (see `kernels.windows`).

    Attributes
    ----------
    template : Window
    symbols, tags : the symbols of the inputs, and the tags
    keys : (F,) int64, ascending
    """

    template: Window
    symbols: tuple[str, ...]
    tags: tuple[str, ...]
    keys: IntArray

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.keys)

    @classmethod
    def of(
        cls, template: Window, inputs: Sequence[tuple[Any, int]], min_count: int
    ) -> "WindowNames":
        """Return the names that occur `min_count` times at (x, l) of the inputs."""
        symbols = {symbol for x, _ in inputs for symbol in symbols_of(x)}
        tags = {tag for x, _ in inputs for tag in _tags(x)}
        empty = cls(template, tuple(sorted(symbols)), tuple(sorted(tags)), np.zeros(0, np.int64))
        keys, counts = np.unique(empty._keys(inputs)[1], return_counts=True)
        return cls(template, empty.symbols, empty.tags, keys[counts >= min_count])

    @property
    def base(self) -> int:
        """The base of the keys."""
        return len(self.symbols) + _FIRST

    @property
    def largest(self) -> int:
        """A bound on the keys."""
        width = self.template.width
        span = min(self.template.span, 64)  # 64 digits are too many in any base
        above = (2 * width + 2) * self.base**span
        bound: int = above + len(self.tags) * kernels.windows.KEYS_PER_TAG * self.base**3
        return bound

    def active(self, inputs: Sequence[tuple[Any, int]]) -> Active:
        """Return the numbers of the active names of all positions of (x, l), one after another."""
        return Active(*kernels.windows.find_keys(*self._keys(inputs), self.keys, self._slots))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names as text, as the template yields them."""
        return tuple(self._text(key) for key in self.keys.tolist())

    def _keys(self, inputs: Sequence[tuple[Any, int]]) -> tuple[IntArray, IntArray]:
        if self.largest >= 2**63:
            raise InvalidInputError(
                f"spans of {self.template.span} of {len(self.symbols):,} symbols are more than can "
                "be numbered; use a smaller span"
            )
        for x, _ in inputs:
            check_symbols(x)
        digit, tag = self._digit, self._tag_number
        xs = [[digit.get(symbol, -1) for symbol in symbols_of(x)] for x, _ in inputs]
        tags = [[tag.get(name, -1) for name in _tags(x)] for x, _ in inputs]
        return kernels.windows.window_keys(
            *_concatenated(xs),
            *_concatenated(tags),
            np.array([length for _, length in inputs], dtype=np.int64),
            (self.template.width, self.template.span, self.base),
        )

    @cached_property
    def _digit(self) -> dict[str, int]:
        return {symbol: i for i, symbol in enumerate(self.symbols, start=_FIRST)}

    @cached_property
    def _tag_number(self) -> dict[str, int]:
        return {tag: i for i, tag in enumerate(self.tags)}

    @cached_property
    def _slots(self) -> IntArray:
        """The hash table of the keys."""
        slots = np.full(1 << (2 * len(self.keys) + 1).bit_length(), -1, dtype=np.int64)
        kernels.windows.hash_keys(self.keys, slots)
        return slots

    def _text(self, key: int) -> str:
        width, span, base = self.template.width, self.template.span, self.base
        tail = base**span
        offset, digits = divmod(key, tail)
        if offset <= 2 * width:
            return " ".join([str(offset - width), *self._spelled(digits, span)])
        if offset == 2 * width + 1:
            return "bias"
        number, payload = divmod(key - (2 * width + 2) * tail, base**3)
        tag, kind = divmod(number, kernels.windows.KEYS_PER_TAG)
        name = f"tag {self.tags[tag]}"
        if kind == 0:
            return name
        spelled = str(payload) if kind == 2 else " ".join(self._spelled(payload, 3))
        return f"{name}|{('', '0', 'end', '-2..0')[kind]} {spelled}"

    def _spelled(self, digits: int, most: int) -> list[str]:
        """Return the symbols of the nonzero digits, with the boundary as the empty symbol."""
        read = [digits // self.base**i % self.base for i in range(most - 1, -1, -1)]
        return ["" if d == _BOUNDARY else self.symbols[d - _FIRST] for d in read if d]


Vocabulary = Names | WindowNames


def vocabulary_of(
    template: Template, inputs: Iterable[tuple[Any, int]], min_count: int
) -> Vocabulary:
    """Return the names that occur `min_count` times at (x, l) of `inputs`.

    Raises
    ------
    InvalidInputError
        If no name is left.
    """
    min_count = positive_integer("min_count", min_count)
    if not callable(template):
        raise InvalidInputError(f"template is {template!r}; give a Window or a function")
    kind: Any = WindowNames if isinstance(template, Window) else Names
    vocabulary: Vocabulary = kind.of(template, read_inputs(inputs), min_count)
    if not len(vocabulary):
        raise InvalidInputError(f"no feature occurs min_count={min_count} times; lower min_count")
    return vocabulary


def read_inputs(inputs: Any, name: str = "inputs") -> list[tuple[Any, int]]:
    """Return inputs (x, l), checked: x consists of symbols and l >= 1."""
    rows = [
        (as_input(x, f"{name}[{i}]"), positive_integer("the length of y", length))
        for i, (x, length) in enumerate(fields(name, inputs, 2))
    ]
    if (needed := _POSITION * sum(length for _, length in rows)) > memory_limit():
        raise MemoryLimitError(
            f"the lengths of y sum to {needed // _POSITION:,}, whose names need at least "
            f"{needed:,} bytes, more than half of the memory; give shorter strings"
        )
    return rows


def _tags(x: Any) -> tuple[str, ...]:
    return (*x.tags, ";".join(x.tags)) if isinstance(x, Tagged) else ()


def _concatenated(lists: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return the concatenation of the numbers, and the start of each list."""
    numbers = np.fromiter(itertools.chain.from_iterable(lists), dtype=np.int64)
    return numbers, np.cumsum([0, *map(len, lists)], dtype=np.int64)
