"""Templates: the features of the input that are active at a position of the output.

Index
-----
- `Template` : a function (x, s, l) -> names, for position s of an output of length l.
- `Tagged` : an input with tags, which belong to no position.
- `Window` : all spans of symbols in a window of x, for aligned and for unaligned pairs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fstgrad.core.checks import instance, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import items

Template = Callable[[Sequence[str], int, int], Iterable[str]]


@dataclass(frozen=True)
class Tagged:
    """An input with tags, such as the features of an inflected form.

    Attributes
    ----------
    symbols : tuple of str, the input
    tags : tuple of str; they are features of every position
    """

    symbols: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the symbols."""
        for name in ("symbols", "tags"):
            symbols = tuple(items(name, getattr(self, name)))
            for symbol in symbols:
                instance(f"one of {name}", symbol, str, "a str")
            object.__setattr__(self, name, symbols)

    def __len__(self) -> int:
        """Return the number of symbols."""
        return len(self.symbols)


def as_input(x: Sequence[str] | Tagged, name: str = "x") -> Any:
    """Return an input in the form that the features need: `Tagged`, or a tuple of symbols.

    name : its name in errors.

    Raises
    ------
    InvalidInputError
        If it is neither.
    """
    if isinstance(x, Tagged):
        return x
    symbols = tuple(x) if type(x) in (str, tuple) else tuple(items(name, x))
    if not set(map(type, symbols)) <= {str} and not all(isinstance(s, str) for s in symbols):
        raise InvalidInputError(f"{name} is {x!r}; give a str or a sequence of symbols")
    return symbols


def check_symbols(x: Any) -> None:
    """Raise InvalidInputError if x is a `Tagged` without symbols: no symbol is at its centre."""
    if isinstance(x, Tagged) and not x.symbols:
        raise InvalidInputError("an input with tags has no symbols; give at least one")


def symbols_of(x: Any) -> Sequence[str]:
    """Return the symbols of an input, without tags."""
    return x.symbols if isinstance(x, Tagged) else x


@dataclass(frozen=True)
class Window:
    """The spans of up to `span` symbols of x inside the window around a centre, and a bias.

    The centre of position s is floor((s + 1/2) |x| / l).  This is s itself if x and y are aligned,
    and otherwise the symbol at the same relative position.  The window has `width` symbols on each
    side; before and after x there is one boundary, the empty symbol.

    Parameters
    ----------
    width : int
        Symbols on each side of the centre, >= 0.
    span : int
        The longest span, >= 1.

    Examples
    --------
    >>> list(Window(width=1, span=2)("cat", 0, 3))
    ['bias', '-1 ', '-1  c', '0 c', '0 c a', '1 a']
    >>> list(Window(width=0, span=1)("cats", 1, 2))  # floor(1.5 * 4 / 2) = 3
    ['bias', '0 s']
    """

    width: int = 3
    span: int = 3

    def __post_init__(self) -> None:
        """Check the numbers."""
        vars(self).update(
            width=positive_integer("width", self.width, minimum=0),
            span=positive_integer("span", self.span),
        )

    def __call__(self, x: Sequence[str], s: int, length: int) -> Iterable[str]:
        """Yield the names: the offset of the span from the centre, and its symbols."""
        length = positive_integer("length", length)
        s = positive_integer("s", s, minimum=0)
        if s >= length:
            raise InvalidInputError(f"s is {s}; positions run from 0 to {length - 1}")
        if isinstance(x, Tagged):
            yield from self._tagged(x, s, length)
            return
        x = as_input(x)
        centre = (2 * s + 1) * len(x) // (2 * length)
        yield "bias"
        first = max(centre - self.width, -1)
        last = min(centre + self.width, len(x))
        symbols = ["" if i in (-1, len(x)) else x[i] for i in range(first, last + 1)]
        for i in range(len(symbols)):
            name = str(first + i - centre)
            for symbol in symbols[i : i + self.span]:
                name += " " + symbol
                yield name

    def _tagged(self, x: Tagged, s: int, length: int) -> Iterable[str]:
        """Yield the names of the symbols, and each tag and all tags with those at the centre."""
        check_symbols(x)
        centre = (2 * s + 1) * len(x.symbols) // (2 * length)
        near = [f"0 {x.symbols[centre]}", f"end {min(len(x.symbols) - centre, 4)}"]
        near.append(" ".join(["-2..0", *x.symbols[max(centre - 2, 0) : centre + 1]]))
        yield from self(x.symbols, s, length)
        for tag in (*x.tags, ";".join(x.tags)):
            yield f"tag {tag}"
            yield from (f"tag {tag}|{name}" for name in near)
