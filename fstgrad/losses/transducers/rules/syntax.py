"""The lines of a grammar of rules.

    # a comment                       the comments at the top describe the grammar
    alphabet = abcdefgh               characters, or symbols with spaces between
    substitute = 1                    also insert, delete, edit (all three); "none" forbids
    V = a e i o u                     a class of symbols
    C = ^V                            the other symbols of the alphabet
    p : - labial stop                 features of a symbol
    sch -> sh 0.25                    a rule and its cost
    vowels: V -> V 0.5                a rule with a name: a vowel becomes another one
    C1 C1 -> C1 0.25                  a class with a number is the same symbol everywhere in a rule
    e -> 0 0.5 / _ #                  a rule with a context: e is deleted at the end
    ? gerl => girl 0.5                an example: hypothesis, target, loss

This module splits lines into their parts; `ruleset` interprets the parts.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fstgrad.core.errors import InvalidInputError
from fstgrad.io import to_number

Direction = Literal["ltr", "rtl", "sim"]
DIRECTIONS = ("ltr", "rtl", "sim")
MODES = ("optional", "obligatory")
NOTHING, BOUNDARY, ANY = "0", "#", "ANY"
CONTINUED_NAME = "(continued)"  # of the arcs of a rule after its first

_TOKEN = re.compile(r'"[^"]*"|\[[^\]]*\](?:\d+(?=\s|$))?|\S+')
_COST = re.compile(r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")
_ARROW = re.compile(r"(?:^|\s)(<->|->)(?=\s|$)")


class Token(NamedTuple):
    """One word of a rule; a `quoted` word is plain text without its quotes."""

    text: str
    quoted: bool = False


class RuleLine(NamedTuple):
    """The parts of a rule: `cost` in nats; `both` is True for an arrow with two heads."""

    name: str | None
    left_side: list[Token]
    right_side: list[Token]
    cost: float
    before: list[Token]
    after: list[Token]
    both: bool
    mode: str | None
    direction: str | None


class Example(NamedTuple):
    """The loss (nats) that a grammar should give a hypothesis against a target; its line."""

    hypothesis: str
    target: str
    loss: float
    line: int


@dataclass(frozen=True)
class Context:
    """The symbols that come before or after a place in a string.

    Attributes
    ----------
    parts : tuple of (frozenset of str, bool)
        The sets of symbols in their order, and whether each may occur any number of times (*).
    is_anchored : bool, whether the string begins before the parts, or ends after them (#).
    """

    parts: tuple[tuple[frozenset[str], bool], ...] = ()
    is_anchored: bool = False


@dataclass(frozen=True)
class Rule:
    """One rule, with its classes resolved.

    Attributes
    ----------
    line : int, the number of its line.
    name : str, its name, or its text without the cost.
    pairs : tuple of (read, written), each a tuple of str; all pairs have the same lengths.
    cost : float, in nats.
    before, after : Context, in the hypothesis.
    is_obligatory : bool, whether the rule must apply in this context.
    direction : {"ltr", "rtl", "sim"}
        The order in which an obligatory rule finds overlapping places.
    """

    line: int
    name: str
    pairs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    cost: float
    before: Context
    after: Context
    is_obligatory: bool
    direction: Direction

    @property
    def is_free(self) -> bool:
        """Whether the rule is optional and has no context."""
        return self.before == self.after == Context() and not self.is_obligatory


def tokens(text: str) -> list[Token]:
    """Return the words of a text, without quotes."""
    return [
        Token(word[1:-1], True) if len(word) > 1 and word[0] == word[-1] == '"' else Token(word)
        for word in _TOKEN.findall(text)
    ]


def without_number(text: str) -> list[str]:
    """Return what a word may be without a number at its end: for L12, it is L1 or L."""
    stem = len(text.rstrip("0123456789"))
    return [text[:end] for end in range(len(text) - 1, max(stem, 1) - 1, -1)]


def is_rule(line: str) -> bool:
    """Return whether a line has an arrow."""
    return _ARROW.search(line) is not None


def parse_rule(line: str) -> RuleLine:
    """Return the parts of a rule.

    Raises
    ------
    InvalidInputError
        The line has no cost, a context without "_", or more than one arrow.
    """
    name, line = name_and_rest(line)
    arrows = list(_ARROW.finditer(line))
    if len(arrows) != 1:
        raise InvalidInputError("the line has more than one arrow; write one rule per line")
    read, rest = line[: arrows[0].start()], line[arrows[0].end() :]
    body, slash, context = _cut(rest, "/")
    words = tokens(context if slash else body)
    mode, direction = None, None
    while words and not words[-1].quoted and words[-1].text in (*MODES, *DIRECTIONS):
        word = words.pop().text
        mode, direction = (word, direction) if word in MODES else (mode, word)
    written = tokens(body) if slash else words
    if not written or written[-1].quoted:
        raise InvalidInputError("no cost; a rule is 'READ -> WRITTEN COST', as in 'sch -> sh 0.25'")
    _check_order(bool(slash), written, words)
    if not slash and any(word == Token(BOUNDARY) for word in written):
        raise InvalidInputError("a # after a rule; write a comment on a separate line")
    cost = number("cost", written.pop().text)
    gaps = [k for k, word in enumerate(words) if word == Token("_")] if slash else [0]
    if len(gaps) != 1:
        raise InvalidInputError("a context is 'BEFORE _ AFTER', with one '_' for the place itself")
    before = words[: gaps[0]] if slash else []
    after = words[gaps[0] + 1 :] if slash else []
    both = arrows[0][1] == "<->"
    return RuleLine(name, tokens(read), written, cost, before, after, both, mode, direction)


def _check_order(has_context: bool, written: list[Token], context: list[Token]) -> None:
    """Raise InvalidInputError for a context without "/", or before the cost."""
    ends_in_cost = bool(_COST.fullmatch(written[-1].text))
    order = "; a rule is 'READ -> WRITTEN COST / BEFORE _ AFTER', as in 'a -> b 0.25 / _ c'"
    if not has_context and not ends_in_cost and Token("_") in written:
        raise InvalidInputError("a context begins with '/'" + order)
    if has_context and not ends_in_cost and context and _COST.fullmatch(context[-1].text):
        raise InvalidInputError("the cost comes before the context" + order)


def parse_example(line: str, number_of_line: int) -> Example:
    """Return the example of a line `? HYPOTHESIS => TARGET LOSS`; LOSS in nats or inf."""
    body, arrow, rest = line.removeprefix("?").partition("=>")
    target, _, loss = rest.strip().rpartition(" ")
    if not arrow or not loss:
        raise InvalidInputError("an example is '? HYPOTHESIS => TARGET LOSS'")
    value = math.inf if loss == "inf" else number("loss", loss)
    return Example(body.strip(), target.strip(), value, number_of_line)


def number(what: str, text: str) -> float:
    """Return the finite number >= 0 that a text gives; `what` names it in errors."""
    try:
        value = to_number(text)
    except ValueError as error:
        raise InvalidInputError(f"{what} is {text!r}; give a number, as in 0.25") from error
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{what} is {text}; give a number >= 0, in nats")
    return value


def name_and_rest(line: str) -> tuple[str | None, str]:
    """Return the name of a rule, or None, and the rest of the line."""
    name, colon, rest = line.partition(": ")
    return (name.strip(), rest) if colon and '"' not in name and not is_rule(name) else (None, line)


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """Return the text before `mark`, the mark, and the text after it; the mark is a whole word."""
    found = re.search(rf"(?:^|\s){re.escape(mark)}(?=\s|$)", text)
    return (text, "", "") if found is None else (text[: found.start()], mark, text[found.end() :])
