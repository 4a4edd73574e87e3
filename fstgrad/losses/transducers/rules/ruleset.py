"""Read a file of rules: its alphabet, classes and features, and its rules with these resolved."""

import difflib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance
from fstgrad.core.errors import FstError, FstgradError, InvalidInputError
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
    number,
    parse_example,
    parse_rule,
    tokens,
)

Side = list[tuple[str, tuple[str, ...]]]  # names and members of symbols and classes
Pairs = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
_EDITS = ("insert", "delete", "substitute")
_SETTINGS = (*_EDITS, "edit", "feature", "alphabet", "mode", "direction")
_MOST_PAIRS = 100_000
_LONGEST_CONTEXT = 8  # automata of contexts may be exponential in this


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
    feature_cost : float, the cost in nats of each feature in which two symbols differ, or None.
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
    names: dict[str, int] = field(default_factory=dict)

    def read(self, pass_: object, line_number: int, line: str) -> None:
        """Run one pass on a line; record its error."""
        if line_number in self.errors:
            return
        try:
            pass_(line_number, line)  # type: ignore[operator]
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
        if key == "alphabet":
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
                f"(a : x y), a setting nor an example (? x => y 1){hint}"
            )
        self._check_symbol(symbol)
        self.features[symbol] = frozenset(value.split())

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
            self.rules.append(self._rule(line_number, parts))
            if parts.both:
                turned = parts._replace(left_side=parts.right_side, right_side=parts.left_side)
                self.rules.append(self._rule(line_number, turned))

    def _rule(self, line_number: int, parts: RuleLine) -> Rule:
        pairs = self._pairs(parts.left_side, parts.right_side)
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

    def _pairs(self, read: Sequence[Token], written: Sequence[Token]) -> Pairs:
        """Return the pairs of strings that the two sides denote, member by member."""
        left, right = self._side(read), self._side(written)
        count = math.prod(len(members) for _, members in left)
        if len(left) <= 1 and len(right) <= 1:
            count *= math.prod(len(members) for _, members in right)
        if count > _MOST_PAIRS:
            raise InvalidInputError(
                f"the rule has {count:,} pairs of strings, more than {_MOST_PAIRS:,}; use smaller "
                "classes"
            )
        if not left and not right:
            raise InvalidInputError("both sides of the rule are empty; name a symbol")
        if len(left) <= 1 and len(right) <= 1:
            return self._alternatives(left, right)
        open_ = [k for k, (_, members) in enumerate(left) if len(members) > 1]
        found = []
        for chosen in itertools.product(*(members for _, members in left)):
            spare = [(left[k][0], chosen[k]) for k in open_]
            result = []
            for name, members in right:
                same = next((pair for pair in spare if pair[0] == name), None)
                if len(members) > 1 and same is None:
                    raise InvalidInputError(
                        f"the class {name} is written but not read; a longer rule can write a "
                        "class only if it also reads it"
                    )
                if same is not None and len(members) > 1:
                    spare.remove(same)
                result.append(members[0] if same is None or len(members) == 1 else same[1])
            found.append((tuple(chosen), tuple(result)))
        return tuple(found)

    def _alternatives(self, left: Side, right: Side) -> Pairs:
        """Return each member of a class with each different one of another class.

        Of two bundles of features, only matching pairs are kept: the written symbol has the
        features of the read one, with those of the left bundle replaced by those of the right one.
        """
        if not left or not right:
            members = (left or right)[0][1]
            return tuple(((m,), ()) if left else ((), (m,)) for m in members)
        (read, own), (written, others) = left[0], right[0]
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

    def _side(self, side: Iterable[Token]) -> Side:
        """Return the symbols and classes of a side, each as (name, members)."""
        found: Side = []
        for token in side:
            if token == Token(NOTHING):
                if self.alphabet is not None and NOTHING in self.alphabet:
                    raise InvalidInputError(
                        '0 is a symbol of the alphabet; write "0" for the symbol, or leave the '
                        "side empty for the empty string"
                    )
                continue
            if self._is_class(token):
                found.append((token.text, self._members(token)))
            else:
                found += [(symbol, (symbol,)) for symbol in self._members(token)]
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
            if self._is_class(plain) or plain.text.startswith("^"):
                parts.append((self._set(plain), starred))
            else:
                parts += [(frozenset([s]), starred) for s in self._members(plain)]
        if len(parts) > _LONGEST_CONTEXT:
            raise InvalidInputError(
                f"the context has {len(parts)} symbols, more than {_LONGEST_CONTEXT}; give fewer"
            )
        return Context(tuple(parts), anchored)

    def _set(self, token: Token) -> frozenset[str]:
        if not token.text.startswith("^"):
            return frozenset(self._members(token))
        return frozenset(self._members(Token(ANY))) - set(self._members(Token(token.text[1:])))

    def _is_class(self, token: Token) -> bool:
        is_bundle = token.text.startswith("[") and token.text.endswith("]")
        return not token.quoted and (token.text in self.class_of or token.text == ANY or is_bundle)

    def _members(self, token: Token, inside: str = "") -> tuple[str, ...]:
        """Return the symbols that a word denotes; `inside` names the class to define, if any."""
        text = token.text
        if token.quoted or not self._is_class(token):
            is_symbol = self.alphabet is not None and text in self.alphabet
            if not token.quoted and text in self.names and not is_symbol:
                circle = (
                    "itself; list its symbols" if text == inside else f"{text}; put {text} first"
                )
                raise InvalidInputError(f"the class contains {circle}")
            if not token.quoted and is_symbol:
                return (text,)
            if not (self.alphabet is None or self.alphabet.is_characters):
                symbols = tuple(text.split()) if token.quoted else (text,)
            else:
                symbols = tuple(text)
            for symbol in symbols:
                self._check_symbol(symbol, text)
            return symbols
        if text == ANY:
            if self.alphabet is None:
                raise InvalidInputError("ANY needs an alphabet; add a line 'alphabet = ...'")
            return self.alphabet.symbols
        if text in self.class_of:
            return self.class_of[text]
        bundle = set(text[1:-1].split())
        found = tuple(symbol for symbol, own in self.features.items() if bundle <= own)
        if not found:
            known = sorted({feature for own in self.features.values() for feature in own})
            near = [n for f in bundle - set(known) for n in difflib.get_close_matches(f, known)]
            raise InvalidInputError(f"no symbol has the features {text}{_mean(near or known)}")
        return found

    def _check_symbol(self, symbol: str, inside: str = "") -> None:
        if self.alphabet is None or symbol in self.alphabet:
            return
        known = [*self.alphabet.symbols, *self.class_of]
        near = difflib.get_close_matches(inside, self.class_of) or difflib.get_close_matches(
            symbol, known
        )
        raise InvalidInputError(f"{symbol!r} is not in the alphabet{_mean(near)}")

    def _check_name(self, name: str) -> None:
        if name in self.class_of:
            raise InvalidInputError(f"the class {name} exists already; choose another name")
        if name in (ANY, NOTHING, BOUNDARY):
            raise InvalidInputError(f"{name} is a keyword; choose another name")
        if self.alphabet is not None and name in self.alphabet:
            raise InvalidInputError(f"{name} is a symbol of the alphabet; choose another name")


def _alphabet(text: str) -> Alphabet:
    """Return the alphabet of a setting: characters, with or without quotes, or spaced symbols."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return Alphabet(text[1:-1] if is_quoted else text.split() if " " in text else text)


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
