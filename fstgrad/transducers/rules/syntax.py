"""The lines of a grammar of rules.

    # a comment                       the first ones describe the grammar
    alphabet = abcdefgh               characters, or symbols between spaces
    substitute = 1                    also insert, delete, edit (all three); "none" forbids
    V = a e i o u                     a class of symbols
    p : - labial stop                 features of a symbol
    sch -> sh 0.25                    a rule and its cost
    vowels: V -> V 0.5                with a name; a vowel for another one
    e -> 0 0.5 / _ #                  between contexts: nothing for e at the end
    ? gerl => girl 0.5                an example: hypothesis, target, loss

This module cuts lines into their parts; what the parts mean is `ruleset`.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fstgrad.errors import InvalidInputError

Direction = Literal["ltr", "rtl", "sim"]
DIRECTIONS = ("ltr", "rtl", "sim")
MODES = ("optional", "obligatory")
NOTHING, BOUNDARY, ANY = "0", "#", "ANY"

_TOKEN = re.compile(r'"[^"]*"|\[[^\]]*\]|\S+')
_ARROW = re.compile(r"(?:^|\s)(<->|->)(?=\s|$)")


class Token(NamedTuple):
    """One word of a rule: `quoted` if it was in quotes and is plain text."""

    text: str
    quoted: bool = False


class RuleLine(NamedTuple):
    """A rule cut into its parts; `both` for an arrow with two heads."""

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
    """What a grammar should give: the loss of a hypothesis against a target, and its line."""

    hypothesis: str
    target: str
    loss: float
    line: int


@dataclass(frozen=True)
class Context:
    """A place between symbols: what comes before or after it.

    Attributes
    ----------
    parts : the sets of symbols in their order, each with whether it may be there any number of
        times.
    is_anchored : whether the string begins or ends where the parts do.
    """

    parts: tuple[tuple[frozenset[str], bool], ...] = ()
    is_anchored: bool = False


@dataclass(frozen=True)
class Rule:
    """One rule, classes resolved.

    Attributes
    ----------
    line : the number of its line.
    name : its name, or its text without the cost.
    pairs : what is read and what is written in its place, as symbols; all of the same lengths.
    cost : in nats.
    before, after : the contexts, those of the hypothesis.
    is_obligatory : whether what is read must be replaced in this context.
    direction : the order in which obligatory rules find overlapping places.
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
        """Whether the rule may apply anywhere, or not."""
        return self.before == self.after == Context() and not self.is_obligatory


def tokens(text: str) -> list[Token]:
    """Return the words of a text; quotes are taken off."""
    return [
        Token(word[1:-1], True) if len(word) > 1 and word[0] == word[-1] == '"' else Token(word)
        for word in _TOKEN.findall(text)
    ]


def is_rule(line: str) -> bool:
    """Whether a line has an arrow."""
    return _ARROW.search(line) is not None


def parse_rule(line: str) -> RuleLine:
    """Return the parts of a rule.

    Raises
    ------
    InvalidInputError
        No cost, a context without "_", more than one arrow.
    """
    name, line = _named(line)
    arrows = list(_ARROW.finditer(line))
    if len(arrows) != 1:
        raise InvalidInputError("more than one arrow; a line is one rule")
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
    if not slash and any(word == Token(BOUNDARY) for word in written):
        raise InvalidInputError("a # behind a rule; comments are lines of their own")
    cost = number("cost", written.pop().text)
    gaps = [k for k, word in enumerate(words) if word == Token("_")] if slash else [0]
    if len(gaps) != 1:
        raise InvalidInputError("a context is 'BEFORE _ AFTER', with one '_' for the place itself")
    before = words[: gaps[0]] if slash else []
    after = words[gaps[0] + 1 :] if slash else []
    both = arrows[0][1] == "<->"
    return RuleLine(name, tokens(read), written, cost, before, after, both, mode, direction)


def parse_example(line: str, number_of_line: int) -> Example:
    """Return an example, `? HYPOTHESIS => TARGET LOSS`."""
    body, arrow, rest = line.removeprefix("?").partition("=>")
    target, _, loss = rest.strip().rpartition(" ")
    if not arrow or not loss:
        raise InvalidInputError("an example is '? HYPOTHESIS => TARGET LOSS'")
    value = math.inf if loss == "inf" else number("loss", loss)
    return Example(body.strip(), target.strip(), value, number_of_line)


def number(what: str, text: str) -> float:
    """Return a finite number that is not below zero."""
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInputError(f"{what} is {text!r}; give a number, as in 0.25") from error
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{what} is {text}; give a number >= 0, in nats")
    return value


def _named(line: str) -> tuple[str | None, str]:
    """Return the name before a rule, and the rule."""
    name, colon, rest = line.partition(": ")
    return (name.strip(), rest) if colon and '"' not in name and not is_rule(name) else (None, line)


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """Return what is before and behind a mark that is a word of its own."""
    found = re.search(rf"(?:^|\s){re.escape(mark)}(?=\s|$)", text)
    return (text, "", "") if found is None else (text[: found.start()], mark, text[found.end() :])
