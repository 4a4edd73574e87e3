"""Compile rules to a transducer: mark places, then replace each mark by the output of its rule.

A hypothesis is rewritten in two steps.  Marking (pynini's cdrewrite, one transducer for each pair
of contexts) replaces the first symbol of a rule's input by a mark and the others by covers, symbol
by symbol.  Contexts see the symbols behind marks and covers, so they are contexts of the
hypothesis, and the order of optional rules does not matter.  Writing copies symbols, edits them at
the costs of the settings, and reads a mark and its covers while it writes the output of a rule, at
the rule's cost.  Rules that may apply anywhere need no mark.  So a rule that reads n symbols and
writes m is a path of max(n, m) arcs.

Output labels tell rules apart until the end: label (n + 1) (c + 2) + b, for n symbols, writes the
symbol of label b (0: nothing) with the code c of `RuleTransducer.rule`; then they are split.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray, index_array, instance, optional
from fstgrad.core.errors import FstError, InvalidInputError, UnusedArcsWarning, warn
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.losses.transducers.rules.ruleset import RuleSet
from fstgrad.losses.transducers.rules.syntax import Context, Rule
from fstgrad.openfst import Fst, FstArrays, caught_messages, from_arrays
from fstgrad.openfst import rewriting as r

Labels = tuple[int, ...]
Strings = tuple[Labels, Labels]
_MOST_LABELS = 50_000  # pynini's own symbols are above these
_MOST_ARCS = 2_000_000


NO_RULE, CONTINUED = -1, -2


@dataclass(frozen=True, eq=False)
class RuleTransducer:
    """A transducer whose arcs know their rules, such as a compiled grammar of rules.

    Attributes
    ----------
    fst : FstArrays in "log64"; label i + 1 is symbol i.
    alphabet : Alphabet of both sides.
    names : tuple of str, the names of the rules.
    rule : (arcs,) int64
        The index in `names` of the rule that an arc begins, which has the rule's cost in nats; -2
        for the next arcs of a rule, of cost 0; -1 for copies and edits.
    """

    fst: FstArrays
    alphabet: Alphabet
    names: tuple[str, ...]
    rule: IntArray

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Raise InvalidInputError unless each arc has a rule, -1 or -2."""
        instance("fst", self.fst, FstArrays, "FstArrays")
        instance("alphabet", self.alphabet, Alphabet, "an Alphabet")
        names = tuple(items("names", self.names))
        rule = index_array("rule", self.rule, len(names), (self.fst.num_arcs,), lower=CONTINUED)
        rule.flags.writeable = False
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "rule", rule)

    @classmethod
    def split(cls, fst: FstArrays, alphabet: Alphabet, names: Sequence[str]) -> "RuleTransducer":
        """Return the transducer of an FST whose output labels have codes, as `coded` has them."""
        code, olabel = np.divmod(fst.olabel, len(alphabet) + 1)
        return cls(replace(fst, olabel=olabel), alphabet, tuple(names), code + CONTINUED)

    @property
    def coded(self) -> FstArrays:
        """The FST with output labels (n + 1) (rule + 2) + label; OpenFst keeps them on their arcs.

        Raises
        ------
        FstError
            There are more such labels than OpenFst has.
        """
        check_codes(len(self.names), self.alphabet)
        code = (len(self.alphabet) + 1) * (self.rule - CONTINUED)
        return replace(self.fst, olabel=self.fst.olabel + code)


def check_codes(rules: int, alphabet: Alphabet) -> None:
    """Raise FstError if `rules` rules over an alphabet need more labels than OpenFst has, 2^31."""
    if (rules - CONTINUED) * (len(alphabet) + 1) >= 2**31:
        raise FstError(
            f"{rules:,} rules over {len(alphabet):,} symbols are too many for OpenFst; use classes"
        )


class _Group(NamedTuple):
    """The contexts of rules, whether they are obligatory, and the direction of their search."""

    before: Context
    after: Context
    is_obligatory: bool
    direction: str

    @classmethod
    def of(cls, rule: Rule) -> "_Group":
        """Return the group to which a rule belongs."""
        return cls(rule.before, rule.after, rule.is_obligatory, rule.direction)


def compile_rules(rules: RuleSet, alphabet: Alphabet | None = None) -> RuleTransducer:
    """Return the transducer of a grammar of rules.

    Parameters
    ----------
    rules : RuleSet
    alphabet : Alphabet, optional
        The alphabet of the rules if left out.  Pairs of strings with other symbols are dropped, but
        an obligatory rule that would write one forbids the strings that it reads.

    Raises
    ------
    InvalidInputError
        Neither `rules` nor `alphabet` gives an alphabet.
    FstError
        The transducer would be too large, or pynini rejects a rule.
    """
    instance("rules", rules, RuleSet, "a RuleSet")
    abc = optional("alphabet", alphabet, Alphabet, "an Alphabet") or rules.alphabet
    if abc is None:
        raise InvalidInputError(
            f"{rules.name} has no alphabet; add a line 'alphabet = ...', or name one here"
        )
    check_codes(len(rules.rules), abc)
    _warn_of_longer_symbols(rules, abc)
    _warn_of_other_symbols(rules, abc)
    number = {symbol: i for i, symbol in enumerate(abc, start=1)}
    pairs = [_encoded(rule, number) for rule in rules.rules]
    marks = _Marks(len(abc))
    groups: dict[_Group, dict[Labels, Labels]] = {}
    for rule, own in zip(rules.rules, pairs, strict=True):
        if not rule.is_free:
            group = _Group.of(rule)
            for read in _marked(rule, own, number):
                marks.add(groups.setdefault(group, {}), read)
    size = marks.last * sum(1 + len(read) for sites in groups.values() for read in sites)
    if marks.last > _MOST_LABELS or size > _MOST_ARCS:
        raise FstError(
            f"{rules.name}: rules with contexts read {sum(map(len, groups.values())):,} strings, "
            "which is too many; use smaller classes"
        )
    writing, table = _writing(rules, abc, pairs, groups)
    everything = np.array([*number.values(), *marks.behind], dtype=np.int64)
    expansion = _expansion(abc, marks)
    marking = []
    for group, sites in groups.items():
        try:
            marking += _marking(group, sites, number, everything, expansion)
        except FstError as error:
            raise FstError(f"{rules.name}:{_lines(rules, group)}: {error}") from error
    plain = r.anything(np.array(list(number.values()), dtype=np.int64))
    try:
        fst = r.chained([plain, *marking, writing], _MOST_ARCS)
    except FstError as error:
        raise FstError(f"{rules.name}: {error}") from error
    names = [rule.name for rule in rules.rules]
    return RuleTransducer.split(_with_exact_costs(fst, table), abc, names)


def _marking(
    group: _Group,
    sites: dict[Labels, Labels],
    number: dict[str, int],
    everything: IntArray,
    expansion: Fst,
) -> list[Fst]:
    """Return the transducers that mark the places of a group: of its insertions, and of the others.

    In one transducer, an insertion could not follow a place that the group replaces.
    """
    before = _context(group.before, number, "before", expansion)
    after = _context(group.after, number, "after", expansion)
    insertions = [site for site in sites.items() if not site[0]]
    others = [site for site in sites.items() if site[0]]
    with caught_messages() as reasons:
        try:
            return [
                r.rewrite(
                    r.alternatives(own),
                    before,
                    after,
                    r.anything(everything),
                    direction=group.direction,  # type: ignore[arg-type]
                    is_obligatory=group.is_obligatory,
                )
                for own in (insertions, others)
                if own
            ]
        except FstError as error:
            raise FstError(f"{error} {'; '.join(reasons)}".strip()) from error


def _lines(rules: RuleSet, group: _Group) -> str:
    """Return the line numbers of the rules of a group, as text."""
    own = [rule.line for rule in rules.rules if _Group.of(rule) == group]
    return ", ".join(map(str, own))


class _Marks:
    """The labels of marks and covers, above those of symbols, and the symbol behind each label.

    A rule that inserts has a mark with nothing behind it.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.behind: dict[int, Labels] = {}
        self.cover: dict[int, int] = {}

    def add(self, sites: dict[Labels, Labels], read: Labels) -> None:
        """Add to `sites` a mark and covers for the input `read`, unless it has them."""
        if read not in sites:
            mark = self._new(read[:1])
            for symbol in read[1:]:
                if symbol not in self.cover:
                    self.cover[symbol] = self._new((symbol,))
            sites[read] = (mark, *(self.cover[symbol] for symbol in read[1:]))

    def _new(self, behind: Labels) -> int:
        self.last += 1
        self.behind[self.last] = behind
        return self.last


def _warn_of_longer_symbols(rules: RuleSet, abc: Alphabet) -> None:
    """Warn of symbols of rules that strings over characters spell, but never have."""
    if not abc.is_characters or (rules.alphabet is not None and rules.alphabet.is_characters):
        return
    sides = (side for rule in rules.rules for pair in rule.pairs for side in pair)
    contexts = (c for rule in rules.rules for c in (rule.before, rule.after))
    used = itertools.chain(*sides, *(part for context in contexts for part, _ in context.parts))
    longer = sorted({s for s in used if len(s) > 1 and all(character in abc for character in s)})
    if longer:
        warn(
            f"{rules.name}: the alphabet has characters alone, and rules with the symbols "
            f"{' '.join(map(repr, longer[:10]))} do not apply to strings of characters; give lists "
            "of symbols (on the command line, spaces between symbols, --tokens-x words and "
            "--tokens-y words)",
            UnusedArcsWarning,
        )


def _warn_of_other_symbols(rules: RuleSet, abc: Alphabet) -> None:
    """Warn of symbols outside the alphabet of the rules, which ANY and ^ leave out."""
    others = [] if rules.alphabet is None else [s for s in abc if s not in rules.alphabet]
    if others:
        warn(
            f"{rules.name}: its alphabet lacks {' '.join(map(repr, others[:10]))}, which no rule "
            "reads, not even with ANY, but only insertions, deletions and substitutions; add the "
            "symbols to the line 'alphabet = ...' if rules should read them",
            UnusedArcsWarning,
        )


def _encoded(rule: Rule, number: dict[str, int]) -> list[Strings]:
    """Return the pairs of a rule as labels, without those with other symbols."""
    return [
        (tuple(number[s] for s in read), tuple(number[s] for s in written))
        for read, written in rule.pairs
        if number.keys() >= {*read, *written}
    ]


def _marked(rule: Rule, own: Sequence[Strings], number: dict[str, int]) -> list[Labels]:
    """Return the strings that a rule marks, given its pairs without other symbols.

    An obligatory rule also marks what it would write with other symbols, so that nothing reads it.
    """
    if not rule.is_obligatory:
        return [read for read, _ in own]
    known = (read for read, _ in rule.pairs if number.keys() >= {*read})
    return [tuple(number[s] for s in read) for read in known]


def _writing(
    rules: RuleSet,
    abc: Alphabet,
    pairs: Sequence[Sequence[Strings]],
    groups: dict[_Group, dict[Labels, Labels]],
) -> tuple[Fst, FloatArray]:
    """Return the transducer of the second step, its weights indices of costs, and the costs."""
    loops = _Loops()
    width = len(abc) + 1
    plain = width * (NO_RULE - CONTINUED)
    for a in range(1, width):
        loops.add((a,), (plain + a,), 0.0)
        if "delete" in rules.edits:
            loops.add((a,), (plain,), rules.edits["delete"])
        if "insert" in rules.edits:
            loops.add((), (plain + a,), rules.edits["insert"])
        for b in range(1, width):
            cost = rules.substitution(abc.symbols[a - 1], abc.symbols[b - 1])
            if a != b and cost is not None:
                loops.add((a,), (plain + b,), cost)
    for k, (rule, own) in enumerate(zip(rules.rules, pairs, strict=True)):
        group = _Group.of(rule)
        for read, written in own:
            marked = read if rule.is_free else groups[group][read]
            codes = [k - CONTINUED] + [0] * (max(len(marked), len(written)) - 1)
            labels = itertools.zip_longest(codes, written, fillvalue=0)
            loops.add(marked, [width * code + b for code, b in labels], rule.cost)
    return loops.fst(), np.array(list(loops.costs))


class _Loops:
    """Paths from one state back to it; each has its weight on its first arc.

    A weight is the index of a cost; 0 is the index of the cost 0.  float32 holds these small
    integers exactly, so that optimization keeps different costs apart, and the exact costs can
    replace them later.
    """

    def __init__(self) -> None:
        self.costs = {0.0: 0}
        self.states = 1
        self.arcs: list[tuple[int, int, int, int, int]] = []

    def add(self, read: Sequence[int], written: Sequence[int], cost: float) -> None:
        """Add a path that reads and writes these labels, aligned from the first."""
        weight = self.costs.setdefault(cost, len(self.costs))
        size = max(len(read), len(written))
        state = 0
        for at in range(size):
            after = 0 if at == size - 1 else self.states
            self.states += at < size - 1
            labels = (read[at] if at < len(read) else 0, written[at] if at < len(written) else 0)
            self.arcs.append((state, *labels, weight if at == 0 else 0, after))
            state = after

    def fst(self) -> Fst:
        """Return the FST."""
        source, ilabel, olabel, weight, nextstate = np.array(self.arcs, dtype=np.int64).T
        final = np.full(self.states, np.inf)
        final[0] = 0.0
        return from_arrays(
            FstArrays("standard", 0, final, source, ilabel, olabel, nextstate, weight.astype(float))
        )


def _expansion(abc: Alphabet, marks: _Marks) -> Fst:
    """Return the transducer that replaces marks and covers by the symbols behind them."""
    loops = _Loops()
    for a in range(1, len(abc) + 1):
        loops.add((a,), (a,), 0.0)
    for label, symbols in marks.behind.items():
        loops.add((label,), symbols, 0.0)
    return loops.fst()


def _context(context: Context, number: dict[str, int], side: str, expansion: Fst) -> Fst:
    """Return the acceptor of a context, which sees the symbols behind marks and covers."""
    own = r.parts([(_labels(symbols, number), starred) for symbols, starred in context.parts])
    if context.is_anchored:
        return r.at_edge(r.preimage(own, expansion), side)  # type: ignore[arg-type]
    if not context.parts:
        return own
    rest = r.anything(np.array(list(number.values()), dtype=np.int64))
    return r.preimage(rest + own if side == "before" else own + rest, expansion)


def _labels(symbols: Iterable[str], number: dict[str, int]) -> IntArray:
    return np.array(sorted(number[s] for s in symbols if s in number), dtype=np.int64)


def _with_exact_costs(fst: FstArrays, table: FloatArray) -> FstArrays:
    """Return the FST in "log64", with costs (nats) instead of their indices."""
    return replace(fst, arc_type="log64", weight=table[np.rint(fst.weight).astype(np.int64)])
