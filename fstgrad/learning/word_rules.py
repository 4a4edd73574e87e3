"""WordRules: words that a score replaces or leaves out, such as spellings and fillers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.sequences import members
from fstgrad.io.matching import listed
from fstgrad.strings import Lattice
from fstgrad.strings.lattices.graph import NO_SYMBOL

Words = tuple[str, ...]


@dataclass(frozen=True)
class WordRules:
    """Replaces words, from left to right and the longest match first, then drops words.

    replacements : from one or more words to any number of words; no result is replaced again.
    dropped : words.
    patterns : regular expressions of whole words, which are dropped, too.

    `unused` tells which of them have not applied to any words since the rules were made.
    `has_choices` holds something once they apply to a text with alternatives, piece by piece.
    """

    replacements: Mapping[Words, Words]
    dropped: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    has_choices: set[str] = field(default_factory=set, compare=False)
    _applied: set[Words] = field(default_factory=set, compare=False)  # of the replacements
    _is_kept: dict[str, bool] = field(default_factory=dict, compare=False)  # of words so far

    def __post_init__(self) -> None:
        """Raise InvalidInputError if a result is replaced again, or a rule has nothing to read."""
        for old, new in self.replacements.items():
            if not old:
                raise InvalidInputError(f"replace: no words become {' '.join(new)!r}; give words")
            if (again := self._replaced(new)) != list(new):
                raise InvalidInputError(
                    f"replace: {' '.join(old)!r} becomes {' '.join(new)!r}, which another rule "
                    f"turns into {' '.join(again)!r}; give the last of these words in both rules"
                )
        self._applied.clear()

    @classmethod
    def of(cls, drop: Iterable[str | re.Pattern[str]], words: Mapping[str, str]) -> "WordRules":
        """Return the rules of `drop` and `replace` of `fg.score`."""
        if isinstance(drop, str | re.Pattern):
            raise InvalidInputError(f"drop is {drop!r}; give a list of words: [{drop!r}]")
        chosen = members("drop", drop)
        instance("replace", words, Mapping, "a dict from words to words")
        for text in (*chosen, *words, *words.values()):
            pattern = text.pattern if isinstance(text, re.Pattern) and text in chosen else text
            instance("a word of drop or replace", pattern, str, "a str")
        dropped = [word for word in chosen if isinstance(word, str)]
        if (bad := next((word for word in dropped if len(word.split()) != 1), None)) is not None:
            raise InvalidInputError(
                f"drop has {bad!r}, which is not one word; give its words, or replace it by ''"
            )
        return cls(
            {tuple(old.split()): tuple(new.split()) for old, new in words.items()},
            frozenset(word.strip() for word in dropped),
            tuple(word for word in chosen if isinstance(word, re.Pattern)),
        )

    def __bool__(self) -> bool:
        return bool(self.replacements or self.dropped or self.patterns)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.replacements), default=0)

    def _replaced(self, words: Sequence[str]) -> list[str]:
        result: list[str] = []
        start = 0
        while start < len(words):
            for size in range(min(self._longest, len(words) - start), 0, -1):
                old = tuple(words[start : start + size])
                new = self.replacements.get(old)
                if new is not None:
                    self._applied.add(old)
                    result.extend(new)
                    start += size
                    break
            else:
                result.append(words[start])
                start += 1
        return result

    def words(self, words: Sequence[str]) -> Words:
        """Return words after the rules."""
        result = self._replaced(words)
        for word in result:
            if word not in self._is_kept:
                is_dropped = word in self.dropped or any(p.fullmatch(word) for p in self.patterns)
                self._is_kept[word] = not is_dropped
        return tuple(word for word in result if self._is_kept[word])

    def unused(self) -> list[str]:
        """Return lines for words of `drop` and `replace` that are in no text so far.

        Another line names words in a row, which alternatives may part, if a text has some.
        """
        dropped = sorted(word for word in self.dropped if word not in self._is_kept)
        dropped += [p.pattern for p in self.patterns if not any(map(p.fullmatch, self._is_kept))]
        replaced = [" ".join(old) for old in self.replacements if old not in self._applied]
        said = [
            f"{name}: no text has {listed(map(repr, words))} to {name}"
            for name, words in (("drop", dropped), ("replace", replaced))
            if words
        ]
        rows = [" ".join(old) for old in self.replacements if len(old) > 1]
        if rows and self.has_choices:
            said.append(
                f"replace: {listed(map(repr, rows))} not looked for across alternatives and "
                f"optional words, as in {min(self.has_choices)[:60]!r}"
            )
        return said

    def text(self, text: str) -> str:
        """Return a text after the rules; if there are any, one space separates its words."""
        return " ".join(self.words(text.split())) if self else text

    def lattice(self, lattice: Lattice, alphabet: Alphabet | None = None) -> Lattice:
        """Return a lattice after the rules, over `alphabet` (default: its own).

        Arcs of words that are dropped read nothing.

        Raises
        ------
        NotSupportedError
            A rule with several words on a side applies to words of the alphabet.
        AlphabetError
            A word becomes one that the alphabet lacks.
        """
        if not self:
            return lattice
        known, over = lattice.alphabet, lattice.alphabet if alphabet is None else alphabet
        for old, new in self.replacements.items():
            if (len(old) > 1 or len(new) > 1) and all(word in known for word in old):
                raise NotSupportedError(
                    f"replace turns {' '.join(old)!r} into {' '.join(new)!r}; in lattices one word "
                    "may become one word or none: choose strings first, and score them"
                )
        used, where = np.unique(lattice.label, return_inverse=True)
        label = np.full(len(used), NO_SYMBOL)
        for i, word in enumerate(used.tolist()):
            if word != NO_SYMBOL and (new := self.words((known.symbols[word],))):
                label[i] = over.encode(new, name=f"replace of {known.symbols[word]!r}")[0]
        return replace(lattice, alphabet=over, label=label[where])
