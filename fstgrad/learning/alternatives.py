"""Alternatives of words in transcripts, as NIST's sclite has them, and the choice of a reading.

A text has words, alternatives ``{ a b / c / @ }``, where @ is no word, and optional words ``(uh)``.
It is a graph, whose paths are its readings.  The cheapest alignment with the other side chooses
one.  An optional word that it leaves out counts as correct, as with sclite's option -D.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias, Union

import numpy as np

from fstgrad.core.errors import InfeasibleError, InvalidInputError, MemoryLimitError
from fstgrad.io import Tokens
from fstgrad.learning import kernels
from fstgrad.learning.edits import Align
from fstgrad.strings import Lattice
from fstgrad.strings.lattices.graph import NO_SYMBOL

# sclite's costs (wwd_WORD in word.c), in thousandths
_SUBSTITUTE, _ALONE, _OPTIONAL, _NULL = 4000, 3000, 2000, 1
_ERROR = 2**32  # of an error with align="unit": the fewest errors, then the least cost of sclite
_CELL = 16  # bytes of a pair of states
_LARGEST = 2**32  # most bytes of a table
_DEEPEST = 100  # most { inside each other
_TOKEN, _WORD, _SPACE = map(re.compile, (r"\s*([{}/]|[^\s{}/]+)", r"\S+", r"\s*"))

Item: TypeAlias = Union[str, "Choice"]
Items: TypeAlias = tuple[Item, ...]


@dataclass(frozen=True)
class Choice:
    """One of several readings; if it is an optional word, the last reading is empty."""

    readings: tuple[Items, ...]
    is_optional: bool = False


@dataclass(frozen=True)
class Alternatives:
    """A text with several readings, of words or of their characters."""

    items: Items
    tokens: Tokens

    @classmethod
    def read(
        cls,
        text: str,
        tokens: Tokens,
        rules: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> Union["Alternatives", tuple[str, ...]]:
        """Return a text after rules for its words; a tuple of symbols if it has one reading.

        Raises
        ------
        InvalidInputError
            A brace has no partner, or an alternative is empty.
        """
        items, _ = _parsed(text, 0, 0)
        items = _mapped(items, rules)
        words = [item for item in items if isinstance(item, str)]
        if len(words) < len(items):
            return cls(items, tokens)
        return tuple(words if tokens == "words" else " ".join(words))

    @property
    def optional(self) -> list[str]:
        """The optional words."""
        return [f"({word})" for word in _optional(self.items)]

    @property
    def symbols(self) -> set[str]:
        """The symbols of all readings."""
        found = set(_words(self.items))
        if self.tokens == "words":
            return found
        return {" ", *(symbol for word in found for symbol in word)}

    def __str__(self) -> str:
        return _written(self.items)


def _parsed(text: str, at: int, depth: int) -> tuple[Items, int]:
    """Return the items of a text from a place on, and the place of the / or } after them."""
    items: list[Item] = []
    while (match := _TOKEN.match(text, at)) is not None:
        token, after = match[1], match.end()
        if depth and token in "/}":
            break
        if token == "{":
            choice, at = _choice(text, after, depth + 1)
            items.append(choice)
            continue
        if not depth:  # a / is part of a word
            after = _WORD.match(text, match.start(1)).end()  # type: ignore[union-attr]
            token = text[match.start(1) : after]
            if "{" in token or "}" in token:
                raise InvalidInputError(f"{token!r}: alternatives are {{ a / b }} between spaces")
        at = after
        if re.fullmatch(r"\(.+\)", token):
            items.append(Choice(((token[1:-1],), ()), is_optional=True))
        else:
            items.append(token)
    return tuple(items), at


def _choice(text: str, at: int, depth: int) -> tuple[Choice, int]:
    """Return the alternatives that begin before a place, and the place after them."""
    readings: list[Items] = []
    if depth > _DEEPEST:
        raise InvalidInputError(f"alternatives inside each other more than {_DEEPEST} times")
    while True:
        items, at = _parsed(text, at, depth)
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            raise InvalidInputError("a { without its }; alternatives are { a / b }")
        if not items:
            raise InvalidInputError("an empty alternative; write @ for no word: { a / @ }")
        readings.append(items)
        at += 1
        if text[at - 1] == "}":
            return Choice(tuple(readings)), at


def _mapped(items: Items, rules: Callable[[Sequence[str]], Sequence[str]]) -> Items:
    """Return items without @, and with the rules applied to words between choices."""
    found: list[Item] = []
    run: list[str] = []
    for item in (*items, None):
        if isinstance(item, str):
            run += [item] * (item != "@")
            continue
        found += rules(run)
        run = []
        if item is not None:
            readings = tuple(_mapped(reading, rules) for reading in item.readings)
            if any(readings):
                found.append(Choice(readings, item.is_optional))
    return tuple(found)


def _words(items: Items) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            for reading in item.readings:
                yield from _words(reading)


def _optional(items: Items) -> Iterator[str]:
    for item in items:
        if isinstance(item, Choice):
            for own in item.readings:
                yield from _words(own) if item.is_optional else _optional(own)


def _written(items: Items) -> str:
    parts = []
    for item in items:
        if isinstance(item, str):
            parts.append(item)
        elif item.is_optional:
            parts += [f"({word})" for word in _words(item.readings[0])]
        else:
            parts.append(f"{{ {' / '.join(_written(own) or '@' for own in item.readings)} }}")
    return " ".join(parts)


class _Arc(NamedTuple):
    """An arc of a graph; excused : optional symbols that it leaves out; item : of the text."""

    source: int
    label: int
    skip: int
    excused: int = 0
    item: int = -1


class _Graph:
    """The graph of a text.  The arcs into a state are added with it, so they are in its order.

    Characters have a space between words: `fresh` is the state after no word, `begun` after some.
    """

    def __init__(self, align: Align, number: Callable[[str], int]) -> None:
        self.arcs: list[_Arc] = []
        self.first = [0, 0]
        self.number = number
        self.error = _ERROR if align == "unit" else 0
        self.items = 0

    def state(self, arcs: Sequence[_Arc]) -> int:
        self.arcs += arcs
        self.first.append(len(self.arcs))
        return len(self.first) - 2

    def reads(self, source: int, symbol: str) -> _Arc:
        label, skip = self.number(symbol), self.error + _ALONE
        return _Arc(source, label, skip, item=self.items)

    def add(
        self, items: Items, tokens: Tokens, ends: tuple[int | None, int | None], *, top: bool
    ) -> tuple[int | None, int | None]:
        """Add items after the states `ends` = (fresh, begun); return the states after them."""
        for item in items:
            if isinstance(item, str):
                ends = None, self._word(item, tokens, *ends, top=top)
                continue
            parts: tuple[list[_Arc], list[_Arc]] = [], []
            size = 0
            for reading in item.readings:
                if item.is_optional and reading:
                    size = len(reading if tokens == "words" else " ".join(_words(reading)))
                skip, excused = 0, 0
                if not reading:
                    skip, excused = (_OPTIONAL * size, size) if item.is_optional else (_NULL, 0)
                reached = self.add(reading, tokens, ends, top=False)
                for part, end in zip(parts, reached, strict=True):
                    if end is not None:
                        part.append(_Arc(end, NO_SYMBOL, skip, excused))
            ends = tuple(self.state(part) if part else None for part in parts)  # type: ignore[assignment]
            self.items += top
        return ends

    def _word(
        self, word: str, tokens: Tokens, fresh: int | None, begun: int | None, *, top: bool
    ) -> int:
        last = fresh if begun is None else begun
        if tokens == "chars" and begun is not None:
            joined = [] if fresh is None else [_Arc(fresh, NO_SYMBOL, 0)]
            last = self.state([self.reads(begun, " "), *joined])
            self.items += top
        for symbol in (word,) if tokens == "words" else word:
            last = self.state([self.reads(last or 0, symbol)])  # a text begins in state 0
            self.items += top
        return last or 0

    def end(self, ends: tuple[int | None, int | None]) -> None:
        """Make one end of the states after a text."""
        self.state([_Arc(end, NO_SYMBOL, 0) for end in ends if end is not None])

    def arrays(self) -> "kernels.word_graphs.WordGraph":
        columns = np.array(self.arcs, dtype=np.int64).reshape(-1, len(_Arc._fields)).T
        source, label, skip = (np.ascontiguousarray(column) for column in columns[:3])
        return kernels.word_graphs.WordGraph(np.array(self.first), source, label, skip)


Side: TypeAlias = tuple[str, ...] | Alternatives | Lattice


def _graph(side: Side, tokens: Tokens, align: Align, number: Callable[[str], int]) -> _Graph:
    graph = _Graph(align, number)
    if isinstance(side, Lattice):
        order = np.argsort(side.graph.nextstate, kind="stable")
        order = order[side.scores[order] > -np.inf]
        into = np.searchsorted(side.graph.nextstate[order], np.arange(side.graph.num_states + 1))
        graph.first = into.tolist()
        names = side.alphabet.symbols
        for source, label in zip(
            side.graph.source[order].tolist(), side.label[order].tolist(), strict=True
        ):
            empty = _Arc(source, NO_SYMBOL, 0)
            graph.arcs.append(empty if label == NO_SYMBOL else graph.reads(source, names[label]))
        return graph
    if isinstance(side, Alternatives):
        start = (None, 0) if side.tokens == "words" else (0, None)
        graph.end(graph.add(side.items, side.tokens, start, top=True))
    else:
        graph.end(graph.add(side, "words", (None, 0), top=True))
    return graph


class Reading(NamedTuple):
    """The readings y and z that a cheapest alignment chooses.

    item : the item of the reference of each symbol of z; items : their number
    excused : the number of optional symbols that are left out.
    """

    y: tuple[str, ...]
    z: tuple[str, ...]
    item: tuple[int, ...]
    items: int
    excused: int


def reading(y: Side, z: Side, align: Align) -> Reading:
    """Return the readings of a hypothesis and a reference; O(arcs of y x arcs of z).

    Raises
    ------
    InfeasibleError
        All paths of a lattice have the score -inf.
    MemoryLimitError
        The table of the alignment needs more than 4 GiB.
    """
    number: defaultdict[str, int] = defaultdict(count().__next__)
    graphs = [_graph(side, "words", align, number.__getitem__) for side in (y, z)]
    needed = _CELL * len(graphs[0].first) * len(graphs[1].first)
    if needed > _LARGEST:
        raise MemoryLimitError(
            f"an alignment with alternatives needs {needed:,} bytes; cut the texts into utterances"
        )
    substitute = _SUBSTITUTE + graphs[0].error
    own, other = (graph.arrays() for graph in graphs)
    steps, cost = kernels.word_graphs.cheapest_paths(own, other, substitute)
    if cost >= kernels.word_graphs.UNREACHED:
        raise InfeasibleError("a lattice has no path whose score is not -inf; leave it out")
    paths = [
        [graph.arcs[arc] for arc in side if arc >= 0]
        for graph, side in zip(graphs, steps.T.tolist(), strict=True)
    ]
    names = list(number)
    read_y, read_z = ([arc for arc in path if arc.label != NO_SYMBOL] for path in paths)
    return Reading(
        tuple(names[arc.label] for arc in read_y),
        tuple(names[arc.label] for arc in read_z),
        tuple(arc.item for arc in read_z),
        graphs[1].items,
        sum(arc.excused for path in paths for arc in path),
    )
