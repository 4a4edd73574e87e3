"""Read a file of rules: its alphabet, classes and features, and its rules with these resolved."""

import difflib
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance
from fstgrad.core.errors import (
    AmbiguousRuleWarning,
    FstError,
    FstgradError,
    InvalidInputError,
    warn,
)
from fstgrad.losses.transducers.rules.syntax import (
    ANY,
    BOUNDARY,
    DIRECTIONS,
    MODES,
    NOTHING,
    Context,
    Direction,
    Example,
    Rule,
    RuleLine,
    Token,
    is_rule,
    name_and_rest,
    number,
    parse_example,
    parse_rule,
    tokens,
    without_number,
)

Pairs = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
_EDITS = ("insert", "delete", "substitute")
_SETTINGS = (*_EDITS, "edit", "feature", "alphabet", "mode", "direction")
_MOST_PAIRS = 100_000
_LONGEST_CONTEXT = 8  # automata of contexts may be exponential in this
_ROUNDING = 1e-9  # nats; of sums of costs


class _Part(NamedTuple):
    """A symbol or class of a side: its name, members, and whether it is a class with a number."""

    name: str
    members: tuple[str, ...]
    is_numbered: bool = False


@dataclass(frozen=True)
class RuleSet:
    """A grammar of rules.

    Attributes
    ----------
    name : str, its name in errors, such as the path of its file.
    description : str, the comments at the top.
    alphabet : Alphabet, or None if the file names none.
    rules : tuple of Rule, in the order of the file.
    examples : tuple of Example, losses that it should give.
    edits : dict, the costs in nats of "insert", "delete" and "substitute"; missing edits are
        forbidden.
    features : dict, the features of each symbol.
    feature_cost : float, the cost in nats of a feature in which two symbols differ, or None; see
        `substitution`.
    """

    name: str
    description: str
    alphabet: Alphabet | None
    rules: tuple[Rule, ...]
    examples: tuple[Example, ...]
    edits: dict[str, float]
    features: dict[str, frozenset[str]]
    feature_cost: float | None

    @classmethod
    def parse(cls, text: str, name: str = "rules") -> "RuleSet":
        """Return the grammar of a text.

        Raises
        ------
        FstError
            Lines are wrong; the message names each line and its error.  Or there are only comments.
        """
        instance("text", text, str, "a str")
        reader = _Reader(name)
        lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
        if all(not line or line.startswith("#") for line in lines):
            raise FstError(f"{name} holds no rule and no setting; write one, as in 'a -> b 0.5'")
        for pass_ in (reader.settings, reader.classes, reader.rules_and_examples):
            for line_number, line in enumerate(lines, start=1):
                if line and not line.startswith("#"):
                    reader.read(pass_, line_number, line)
        reader.check_use(lines)
        if reader.errors:
            errors = [f"{name}:{line}: {said}" for line, said in sorted(reader.errors.items())]
            raise FstError("; ".join(errors))
        top = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return cls(
            name,
            "\n".join(line.removeprefix("#").removeprefix(" ") for line in top),
            reader.alphabet,
            tuple(reader.rules),
            tuple(reader.examples),
            {key: cost for key, cost in reader.edits.items() if cost is not None},
            reader.features,
            reader.feature_cost,
        )

    def substitution(self, read: str, written: str) -> float | None:
        """Return the cost in nats of writing one symbol for another; None if it is forbidden.

        It is the smaller of the settings' `substitute` and, if both symbols have features A and B,
        feature_cost * max(|A - B|, |B - A|).
        """
        cost = self.edits.get("substitute")
        if self.feature_cost is None or not {read, written} <= self.features.keys():
            return cost
        a, b = self.features[read], self.features[written]
        near = self.feature_cost * max(len(a - b), len(b - a))
        return near if cost is None else min(near, cost)

    def edit_cost(self, read: Sequence[str], written: Sequence[str]) -> float:
        """Return the least cost in nats of the same change by copies and edits, without rules."""
        insert, delete = (self.edits.get(edit, math.inf) for edit in ("insert", "delete"))
        row = [j * insert if j else 0.0 for j in range(len(written) + 1)]
        for a in read:
            corner, row[0] = row[0], row[0] + delete
            for j, b in enumerate(written, start=1):
                cost = 0.0 if a == b else self.substitution(a, b)
                through = math.inf if cost is None else corner + cost
                corner, row[j] = row[j], min(through, row[j] + delete, row[j - 1] + insert)
        return row[-1]

    @property
    def undercut(self) -> dict[str, float]:
        """The greatest cost in nats of the edits that do what a rule does, by the rule's name.

        Only rules without effect: optional, and more expensive than the edits for all pairs.
        """
        found = {}
        for rule in self.rules:
            pairs = (
                [] if rule.is_obligatory else [pair for pair in rule.pairs if pair[0] != pair[1]]
            )
            costs = [self.edit_cost(*pair) for pair in pairs]
            if costs and max(costs) < rule.cost - _ROUNDING:
                found[rule.name] = max(costs)
        return found


@dataclass
class _Reader:
    """The parts of a file read so far, and the errors found."""

    name: str
    alphabet: Alphabet | None = None
    edits: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(_EDITS, 1.0))
    feature_cost: float | None = None
    mode: str = "optional"
    direction: str = "ltr"
    class_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    features: dict[str, frozenset[str]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    consequences: set[int] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)  # lines of settings

    def read(self, pass_: object, line_number: int, line: str) -> None:
        """Run one pass on a line; record its error."""
        if line_number in self.errors or line_number in self.consequences:
            return
        try:
            pass_(line_number, line)  # type: ignore[operator]
        except _ConsequenceError:
            self.consequences.add(line_number)
        except FstgradError as error:
            self.errors[line_number] = f"{error} (in {line[:60]!r})"

    def settings(self, line_number: int, line: str) -> None:
        """First pass: read settings and the names of classes."""
        key, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("?") or is_rule(line) or not equals:
            return
        if key not in _SETTINGS:
            self.names.setdefault(key, line_number)
            return
        self._check_setting(key, line_number)
        if key == "alphabet":
            self.names.setdefault(ANY, line_number)
            self.alphabet = _alphabet(value)
        elif key in ("mode", "direction"):
            options = MODES if key == "mode" else DIRECTIONS
            if value not in options:
                raise InvalidInputError(f"{key} is {value!r}; choose one of {', '.join(options)}")
            setattr(self, key, value)
        elif key == "feature":
            self.feature_cost = number("feature", value)
        else:
            cost = None if value == "none" else number(key, value)
            self.edits.update(dict.fromkeys(_EDITS if key == "edit" else (key,), cost))

    def classes(self, line_number: int, line: str) -> None:
        """Second pass: read features, and classes, which may contain earlier classes."""
        if line.startswith("?") or is_rule(line):
            return
        key, equals, value = (part.strip() for part in line.partition("="))
        if equals and key and " " not in key and not value.startswith(">"):
            if key in _SETTINGS:
                return
            self._check_name(key)
            members = [m for token in tokens(value) for m in self._members(token, key)]
            if not members:
                raise InvalidInputError(f"the class {key} has no symbols; list them after '='")
            self.class_of[key] = tuple(dict.fromkeys(members))
            return
        symbol, colon, value = (part.strip() for part in line.partition(" :"))
        if not colon:
            near = difflib.get_close_matches(line.split()[0], [*_SETTINGS, *self.class_of])
            hint = f"; did you mean {', '.join(near)}" if near else ""
            raise InvalidInputError(
                "neither a rule (READ -> WRITTEN COST), a class (NAME = a b), a feature line "
                "(a : x y, with a space before the colon), a setting nor an example "
                f"(? x => y 1){hint}"
            )
        if BOUNDARY in value.split():
            raise InvalidInputError("a # among features; write a comment on a separate line")
        for feature in value.split():
            self.names.setdefault(f"[{feature}]", line_number)
        self._check_symbol(symbol)
        self.features[symbol] = frozenset(value.split())

    def _check_setting(self, key: str, line_number: int) -> None:
        """Raise InvalidInputError if an earlier line gives the same; record the line of a setting.

        A mode or direction may stand after the cost of a single rule.
        """
        earlier = next((self.given[k] for k in _EDITS if k in self.given), None)
        if key == "edit" and earlier is not None:
            raise InvalidInputError(
                f"edit sets {', '.join(_EDITS)}, one of which line {earlier} sets; put edit first"
            )
        if self.given.setdefault(key, line_number) != line_number:
            rest = f", or write {key}s of rules after their costs" * (key in ("mode", "direction"))
            raise InvalidInputError(
                f"line {self.given[key]} sets {key} for the whole file; keep one of them{rest}"
            )

    def check_use(self, lines: Sequence[str]) -> None:
        """Record an error for each class without a use whose name is almost that of a setting.

        Other classes without a use whose names could be settings, and strings that are almost the
        name of a class, give a warning.
        """
        for key in self.class_of:
            near = difflib.get_close_matches(key.casefold(), _SETTINGS, n=1, cutoff=0.7)
            at = self.names[key]
            word = re.compile(rf"(?<!\w)\^?{re.escape(key)}\d*(?!\w)")
            others = [line for i, line in enumerate(lines, start=1) if i != at]
            is_used = any(map(word.search, others))
            if near and not is_used:
                said = f"no rule uses the class {key}; did you mean the setting {near[0]}"
                self.errors.setdefault(at, f"{said} (in {lines[at - 1][:60]!r})")
                continue
            words = self._near_words(key, lines, is_used=is_used)
            if not (is_used or words or self.errors) and key.islower() and len(key) > 2:
                warn(
                    f"{self.name}:{at}: no rule uses the class {key}, and there is no setting of "
                    f"this name, but {', '.join(_SETTINGS)}",
                    AmbiguousRuleWarning,
                )
            for text, line in words.items():
                warn(
                    f"{self.name}:{line}: {text} is a string of letters here; write {key} for the "
                    f'class{"" if is_used else ", which no rule uses"}, or "{text}" in quotes for '
                    "the string",
                    AmbiguousRuleWarning,
                )

    def _near_words(self, key: str, lines: Sequence[str], *, is_used: bool) -> dict[str, int]:
        """Return the words of rules and classes that are almost the name of a class; their lines.

        If the class is used elsewhere, these must be long and more alike.
        """
        known = {*self.class_of, *_SETTINGS, *(() if self.alphabet is None else self.alphabet)}
        least, cutoff = (4, 0.8) if is_used else (2, 0.6)
        found: dict[str, int] = {}
        for i, line in enumerate(lines if len(key) >= least else (), start=1):
            if i in (self.names[key], *self.errors) or line.startswith(("#", "?")):
                continue
            rest = tokens(name_and_rest(line)[1])
            plain = [token.text.strip("^*") for token in rest if not token.quoted]
            words = [w for w in plain if len(w) >= least and w.isidentifier() and w not in known]
            folded = {w.casefold(): w for w in words}
            for near in difflib.get_close_matches(key.casefold(), folded, cutoff=cutoff):
                found.setdefault(folded[near], i)
        return found

    def rules_and_examples(self, line_number: int, line: str) -> None:
        """Third pass: read rules and examples."""
        if line.startswith("?"):
            example = parse_example(line, line_number)
            for text in (example.hypothesis, example.target):
                is_text = self.alphabet is None or self.alphabet.is_characters
                for symbol in text if is_text else text.split():
                    self._check_symbol(symbol)
            self.examples.append(example)
        elif is_rule(line):
            parts = parse_rule(line)
            self._check_words(parts)
            self._warn_of_lists(parts, f"{self.name}:{line_number}: ")
            self.rules.append(self._rule(line_number, parts))
            if parts.both:
                turned = parts._replace(left_side=parts.right_side, right_side=parts.left_side)
                self.rules.append(self._rule(line_number, turned))

    def _check_words(self, parts: RuleLine) -> None:
        """Raise InvalidInputError for a name that may be read, and for a mode at a wrong place."""
        symbols = () if self.alphabet is None else self.alphabet.symbols
        last = f"{parts.name or ''}:".split()[-1]
        is_read = last in symbols or (":" in symbols and len(last) == 2 and not parts.left_side)
        if parts.name is not None and is_read:
            raise InvalidInputError(
                f"the rule reads {last}, or it is called {parts.name}; write "
                f'"{last}" in quotes to read it, or give the rule another name'
            )
        for side in (parts.left_side, parts.right_side, parts.before, parts.after):
            for token in side if len(side) > 1 else ():
                word = token.text.casefold()
                is_plain = not token.quoted and token.text not in (*symbols, *self.class_of)
                is_mode = difflib.get_close_matches(word, (*MODES, *DIRECTIONS), cutoff=0.9)
                if is_plain and is_mode:
                    raise InvalidInputError(
                        f"{token.text} stands inside the rule; modes and directions come at its "
                        f"end, as in 'a -> b 0.25 {is_mode[0]}' (the string "
                        f'{token.text} is written "{token.text}")'
                    )

    def _warn_of_lists(self, parts: RuleLine, line: str) -> None:
        """Warn if both sides have as many single symbols, with spaces as in a class, none alike."""
        read, written = ([t.text for t in side] for side in (parts.left_side, parts.right_side))
        is_list = all(
            len(token.text) == 1 and not token.quoted and not self._is_class(token)
            for token in (*parts.left_side, *parts.right_side)
        )
        is_text = self.alphabet is None or self.alphabet.is_characters
        if is_text and is_list and len(read) == len(written) > 1 and not {*read} & {*written}:
            arrow = "<->" if parts.both else "->"
            rules = " and ".join(f"'{a} {arrow} {b}'" for a, b in zip(read, written, strict=True))
            warn(
                f"{line}the rule reads the string '{''.join(read)}'; for each symbol alone write "
                f"{rules}, for the string '{''.join(read)} {arrow} {''.join(written)}'",
                AmbiguousRuleWarning,
            )

    def _rule(self, line_number: int, parts: RuleLine) -> Rule:
        pairs = self._pairs(parts.left_side, parts.right_side, f"{self.name}:{line_number}: ")
        before, after = self._context(parts.before, 0), self._context(parts.after, -1)
        mode, direction = parts.mode or self.mode, parts.direction or self.direction
        obligatory = mode == "obligatory"
        if obligatory and not pairs[0][0]:
            raise InvalidInputError(
                "an obligatory insertion applies everywhere, even to its own result; make it "
                "optional, or let it read a symbol"
            )
        name = parts.name or _text(parts)
        rule = Rule(
            line_number, name, pairs, parts.cost, before, after, obligatory,
            cast(Direction, direction),
        )  # fmt: skip
        same = [old for old in self.rules if replace(old, line=0, name="", cost=0.0)
                == replace(rule, line=0, name="", cost=0.0)]  # fmt: skip
        if same:
            raise InvalidInputError(f"the same rule as in line {same[0].line}; keep one of them")
        return rule

    def _pairs(self, read: Sequence[Token], written: Sequence[Token], line: str) -> Pairs:
        """Return the pairs of strings that the two sides denote, member by member.

        A class on the left is chosen freely at each place, a numbered one once for all places.
        """
        left, right = self._side(read), self._side(written)
        numbered = [part for part in left + right if part.is_numbered]
        is_short = len(left) <= 1 and len(right) <= 1 and not numbered
        choices: list[_Part] = []
        place = []
        for part in left:
            is_chosen = part.is_numbered and part in choices
            place.append(choices.index(part) if is_chosen else len(choices))
            choices += [] if is_chosen else [part]
        count = math.prod(len(part.members) for part in choices)
        if is_short:
            count *= math.prod(len(part.members) for part in right)
        if count > _MOST_PAIRS:
            raise InvalidInputError(
                f"the rule has {count:,} pairs of strings, more than {_MOST_PAIRS:,}; use smaller "
                "classes"
            )
        if not left and not right:
            raise InvalidInputError("both sides of the rule are empty; name a symbol")
        if is_short:
            return self._alternatives(left, right)
        source = _sources(choices, right)
        _warn_of_repetition(left, right, line)
        pairs = []
        for chosen in itertools.product(*(part.members for part in choices)):
            result = [
                part.members[0] if k is None else chosen[k]
                for k, part in zip(source, right, strict=True)
            ]
            pairs.append((tuple(chosen[k] for k in place), tuple(result)))
        return tuple(pairs)

    def _alternatives(self, left: Sequence[_Part], right: Sequence[_Part]) -> Pairs:
        """Return each member of a class with each different one of another class.

        Of two bundles of features, only matching pairs are kept: the written symbol has the
        features of the read one, with those of the left bundle replaced by those of the right one.
        """
        if not left or not right:
            members = (left or right)[0].members
            return tuple(((m,), ()) if left else ((), (m,)) for m in members)
        (read, own, _), (written, others, _) = left[0], right[0]
        if read.startswith("[") and written.startswith("["):
            taken, given = set(read[1:-1].split()), set(written[1:-1].split())
            pairs = [
                ((a,), (b,))
                for a in own
                for b in others
                if a != b and self.features[b] == (self.features[a] - taken) | given
            ]
        else:
            pairs = [((a,), (b,)) for a in own for b in others if a != b]
        if not pairs:
            raise InvalidInputError(
                f"no symbol of {read} has a partner in {written}; check their members"
            )
        return tuple(pairs)

    def _side(self, side: Iterable[Token]) -> list[_Part]:
        """Return the symbols and classes of a side."""
        found: list[_Part] = []
        for token in side:
            if token == Token(NOTHING):
                if self.alphabet is not None and NOTHING in self.alphabet:
                    raise InvalidInputError(
                        '0 is a symbol of the alphabet; write "0" for the symbol, or leave the '
                        "side empty for the empty string"
                    )
                continue
            if self._is_class(token):
                name = self._class_of_number(token)
                members = self._members(token if name is None else Token(name))
                found.append(_Part(token.text, members, name is not None))
            else:
                found += [_Part(symbol, (symbol,)) for symbol in self._members(token)]
        return found

    def _context(self, words: Sequence[Token], edge: int) -> Context:
        """Return a context; its boundary # may only be the word at `edge`, 0 or -1."""
        rest, anchored = list(words), False
        if rest and rest[edge] == Token(BOUNDARY):
            rest.pop(edge)
            anchored = True
        parts: list[tuple[frozenset[str], bool]] = []
        for token in rest:
            if token == Token(BOUNDARY):
                raise InvalidInputError(
                    "# is inside a context; it is the edge of the string (the symbol # is "
                    'written "#")'
                )
            starred = not token.quoted and token.text.endswith("*") and len(token.text) > 1
            plain = Token(token.text[:-1]) if starred else token
            if self._is_class(plain):
                parts.append((frozenset(self._members(plain)), starred))
            else:
                parts += [(frozenset([s]), starred) for s in self._members(plain)]
        if len(parts) > _LONGEST_CONTEXT:
            raise InvalidInputError(
                f"the context has {len(parts)} symbols, more than {_LONGEST_CONTEXT}; give fewer"
            )
        return Context(tuple(parts), anchored)

    def _is_class(self, token: Token) -> bool:
        return not token.quoted and (
            token.text in self.class_of
            or token.text == ANY
            or _is_bundle(token.text)
            or self._is_complement(token.text)
            or self._class_of_number(token) is not None
        )

    def _is_complement(self, text: str) -> bool:
        is_symbol = self.alphabet is not None and text in self.alphabet
        return text.startswith("^") and len(text) > 1 and not is_symbol

    def _class_of_number(self, token: Token) -> str | None:
        """Return the class of a class with a number, as C of C1; None for other words."""
        is_symbol = self.alphabet is not None and token.text in self.alphabet
        if token.quoted or token.text in self.class_of or is_symbol:
            return None
        return next(
            (
                name
                for name in without_number(token.text)
                if (stem := name.removeprefix("^")) in (*self.class_of, *self.names, ANY)
                or _is_bundle(stem)
            ),
            None,
        )

    def _members(self, token: Token, inside: str = "") -> tuple[str, ...]:
        """Return the symbols that a word denotes; `inside` names the class to define, if any."""
        text = token.text
        if token.quoted or not self._is_class(token):
            is_symbol = self.alphabet is not None and text in self.alphabet
            if not token.quoted and text in self.names and not is_symbol:
                self._check_definition(text)
                circle = (
                    "itself; list its symbols" if text == inside else f"{text}; put {text} first"
                )
                raise InvalidInputError(f"the class contains {circle}")
            if is_symbol:
                return (text,)
            if not (self.alphabet is None or self.alphabet.is_characters):
                symbols = tuple(text.split()) if token.quoted else (text,)
            else:
                symbols = tuple(text)
            for symbol in symbols:
                self._check_symbol(symbol, text)
            return symbols
        if self._class_of_number(token) is not None:
            raise InvalidInputError(
                f"{text} is a class with a number, which only READ and WRITTEN of a rule may have; "
                "write the symbols that must be equal there, as in 'C1 C1 -> C1'"
            )
        if self._is_complement(text):
            return self._complement(text)
        if text == ANY:
            if self.alphabet is None:
                self._check_definition(ANY)
                raise InvalidInputError("ANY needs an alphabet; add a line 'alphabet = ...'")
            return self.alphabet.symbols
        if text in self.class_of:
            return self.class_of[text]
        bundle = set(text[1:-1].split())
        found = tuple(symbol for symbol, own in self.features.items() if bundle <= own)
        if not found:
            for feature in bundle:
                self._check_definition(f"[{feature}]")
            known = sorted({feature for own in self.features.values() for feature in own})
            near = [n for f in bundle - set(known) for n in difflib.get_close_matches(f, known)]
            raise InvalidInputError(f"no symbol has the features {text}{_mean(near or known)}")
        return found

    def _complement(self, text: str) -> tuple[str, ...]:
        """Return the symbols of the alphabet that `^NAME` or `^a` leaves."""
        if self.alphabet is not None and "^" in self.alphabet:
            raise InvalidInputError(
                f'the alphabet has the symbol ^, so {text} is not clear; write "{text}" in quotes '
                "for these symbols, or a class that lists all but the others"
            )
        others = set(self._members(Token(text[1:])))
        members = tuple(symbol for symbol in self._members(Token(ANY)) if symbol not in others)
        if not members:
            raise InvalidInputError(f"{text} has no symbols, as {text[1:]} has all of them")
        return members

    def _check_definition(self, name: str) -> None:
        """Raise _ConsequenceError if the line that defines a name has an error."""
        line = self.names.get(name)
        if line in self.errors or line in self.consequences:
            raise _ConsequenceError

    def _check_symbol(self, symbol: str, inside: str = "") -> None:
        if self.alphabet is None or symbol in self.alphabet:
            return
        known = [*self.alphabet.symbols, *self.class_of]
        near = difflib.get_close_matches(inside, self.class_of) or difflib.get_close_matches(
            symbol, known
        )
        near = [name for name in near if name != symbol]
        is_word = len(inside) > len(symbol)
        word = f" of {inside!r}, which is no class either," if is_word else ""
        raise InvalidInputError(f"{symbol!r}{word} is not in the alphabet{_mean(near)}")

    def _check_name(self, name: str) -> None:
        if name in self.class_of:
            raise InvalidInputError(f"the class {name} exists already; choose another name")
        if name in (ANY, NOTHING, BOUNDARY):
            raise InvalidInputError(f"{name} is a keyword; choose another name")
        if self.alphabet is not None and name in self.alphabet:
            raise InvalidInputError(f"{name} is a symbol of the alphabet; choose another name")
        for other in self.class_of:
            if other in without_number(name) or name in without_number(other):
                raise InvalidInputError(
                    f"the class {name} exists beside {other}, but a class with a number stands for "
                    "one symbol of it, as in 'C1 -> C1 C1'; choose another name"
                )


class _ConsequenceError(Exception):
    """A line uses what a wrong line defines; the error of that line is enough."""


def _is_bundle(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def _sources(choices: Sequence[_Part], right: Sequence[_Part]) -> list[int | None]:
    """Return for each part of the right side the choice that it repeats; None for a symbol."""
    spare = list(range(len(choices)))
    found: list[int | None] = []
    for part in right:
        if len(part.members) == 1 and not part.is_numbered:
            found.append(None)
            continue
        same = next((k for k in spare if choices[k] == part), None)
        if same is None:
            raise InvalidInputError(_unread(part, choices))
        if not part.is_numbered:
            spare.remove(same)
        found.append(same)
    return found


def _unread(part: _Part, choices: Sequence[_Part]) -> str:
    """Return the error of a class that is written, but not read as often."""
    if part.is_numbered:
        return f"{part.name} is written but not read; the other side must have it, too"
    if part in choices:
        same = f"{part.name}1"
        return (
            f"the class {part.name} is written more often than it is read; for the same symbol at "
            f"several places, give it a number, as in '{same} -> {same} {same}'"
        )
    return (
        f"the class {part.name} is written but not read; a longer rule can write a class only if "
        "it also reads it"
    )


def _warn_of_repetition(left: Sequence[_Part], right: Sequence[_Part], line: str) -> None:
    """Warn if a class without a number is read more often than it is written, but written."""
    for part in dict.fromkeys(right):
        is_class = len(part.members) > 1 and not part.is_numbered
        if is_class and 0 < right.count(part) < left.count(part):
            same, other = f"{part.name}1", f"{part.name}2"
            warn(
                f"{line}the rule reads any {left.count(part)} symbols of {part.name} and writes "
                f"{right.count(part)} of them; for a doubled symbol write "
                f"'{same} {same} -> {same}', for any two '{same} {other} -> {same}'",
                AmbiguousRuleWarning,
            )


def _alphabet(text: str) -> Alphabet:
    """Return the alphabet of a setting: characters, or symbols with spaces; both with quotes."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    inner = text[1:-1]
    if is_quoted and '" ' not in inner and ' "' not in inner:
        symbols = list(inner)
    elif " " not in text:
        symbols = list(text)
    else:
        words = re.findall(r'"[^"]+"(?=\s|$)|\S+', text)
        if BOUNDARY in words:
            raise InvalidInputError(
                'a # in the alphabet; write a comment on a separate line, and "#" for the symbol'
            )
        symbols = [re.sub(r'^"(.+)"$', r"\1", word) for word in words]
    for symbol in symbols:
        if len(symbol) > 1 and any(map(str.isspace, symbol)):
            raise InvalidInputError(f"the alphabet has {symbol!r}; only ' ' may have a space")
    repeated = next((s for i, s in enumerate(symbols) if s in symbols[:i]), None)
    if repeated is not None:
        apart = " (accents are symbols of their own here: is the file in NFC form?)"
        raise InvalidInputError(
            f"the alphabet has {repeated!r} more than once; list each symbol once"
            + apart * any(map(unicodedata.combining, "".join(symbols)))
        )
    return Alphabet(symbols)


def _mean(near: Sequence[str]) -> str:
    return f"; did you mean {', '.join(dict.fromkeys(near))}" if near else ""


def _text(parts: RuleLine) -> str:
    """Return a rule as text, without its cost."""
    left, right, before, after = (
        " ".join(f'"{t.text}"' if t.quoted else t.text for t in side)
        for side in (parts.left_side, parts.right_side, parts.before, parts.after)
    )
    text = f"{left or NOTHING} -> {right or NOTHING}"
    return text + (f" / {f'{before} _ {after}'.strip()}" if before or after else "")
