"""score: the error rate of a corpus, with counts of errors, intervals, groups and alignments."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fstgrad.core.alphabet import Alphabet, WordAlphabet
from fstgrad.core.axis_labels import check_same_rows
from fstgrad.core.bootstrap import Interval, interval, ratio, resampled_sums
from fstgrad.core.checks import FloatArray, IntArray, Seed, flag, instance, one_of, positive_integer
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError, warn
from fstgrad.core.sequences import items, paired_batches, symbol_strings
from fstgrad.core.short_repr import short_repr
from fstgrad.io import Tokens
from fstgrad.learning.alternatives import Alternatives, Reading, reading
from fstgrad.learning.comparison import Comparison, compare_edits
from fstgrad.learning.edits import Align, Chosen, Edits, Errors, Symbols
from fstgrad.learning.word_rules import WordRules
from fstgrad.losses import EditDistance, Loss
from fstgrad.losses.automata.kernels.arguments import DELETE, INSERT, MATCH, SUBSTITUTE
from fstgrad.losses.edit_operations import Alignment
from fstgrad.strings import Lattice
from fstgrad.strings.consensus import least_risk

Unit = Literal["wer", "cer"]
Text = tuple[str, ...] | Alternatives
Decode = Literal["best", "oracle", "mbr"]
_UNITS = {"wer": "words", "cer": "characters"}
ALL = "all"  # the name of the row of all pairs


class ScoreRow(NamedTuple):
    """The errors of a group of pairs, added up.

    group : its name; "all" for all pairs.
    pairs : number of pairs; wrong_pairs : of those with an error.
    symbols : of the references (words for a word error rate); correct : those matched.
    substitutions, deletions, insertions : errors; a deletion is a symbol of a reference that the
        hypothesis lacks, an insertion one that it adds.
    errors : their sum.
    error_rate : errors / max(1, symbols), with its interval.
    loss : the mean loss per pair, in nats, with its interval; None without a `Loss`.  All three are
        inf if a pair has an infinite loss.
    """

    group: str
    pairs: int
    wrong_pairs: int
    symbols: int
    correct: int
    substitutions: int
    deletions: int
    insertions: int
    errors: int
    error_rate: Interval
    loss: Interval | None


@dataclass(frozen=True, eq=False)
class Score:
    """Errors of N hypotheses against their references; `print(score)` shows a table.

    Attributes
    ----------
    unit : str
        What is counted: "words", "characters" or "symbols".
    rows : tuple of ScoreRow
        A row for each group, in the order of their first pairs, then the row of all pairs.
    edits : Edits
        The alignments.
    losses : (N,) float64 or None
        The loss of each pair in nats, if a `Loss` was given.
    resamples, rng : as given to `score`
    """

    unit: str
    rows: tuple[ScoreRow, ...]
    edits: Edits
    losses: FloatArray | None
    resamples: int
    rng: Seed

    __repr__ = short_repr

    @property
    def error_rate(self) -> Interval:
        """The errors of all pairs divided by the symbols of all references, with its interval."""
        return self.rows[-1].error_rate

    @property
    def errors(self) -> IntArray:
        """The number (N,) int64 of errors of each pair."""
        return self.edits.errors

    @property
    def substitutions(self) -> IntArray:
        """The number (N,) int64 of symbols of each reference with another one in its place."""
        return self.edits.counts[:, SUBSTITUTE]

    @property
    def deletions(self) -> IntArray:
        """The number (N,) int64 of symbols of each reference that the hypothesis lacks."""
        return self.edits.counts[:, INSERT]

    @property
    def insertions(self) -> IntArray:
        """The number (N,) int64 of symbols that each hypothesis adds."""
        return self.edits.counts[:, DELETE]

    @property
    def correct(self) -> IntArray:
        """The number (N,) int64 of symbols of each reference that are matched."""
        return self.edits.counts[:, MATCH]

    @property
    def symbols(self) -> IntArray:
        """The number (N,) int64 of symbols of each reference."""
        return self.edits.sizes

    @cached_property
    def confusions(self) -> Errors:
        """The errors by symbols, the most frequent first."""
        return self.edits.confusions()

    def alignment(self, pair: int) -> Alignment:
        """Return the alignment of pair number `pair`, from 0, whose target is the reference.

        Its `deletions` are symbols of the hypothesis: the insertions of this score.
        """
        number = positive_integer("pair", pair, minimum=0)
        if number >= len(self.symbols):
            raise InvalidInputError(f"pair is {pair}; there are {len(self.symbols):,}, from 0")
        return self.edits.alignment(number)

    def compare(self, other: "Score") -> Comparison:
        """Return the comparison with another system on the same references: other minus this one.

        The bootstrap has the resamples and the seed of this score.

        Raises
        ------
        InvalidInputError
            The references differ, or the scores count different things.
        """
        instance("other", other, Score, "a Score, which fg.score returns")
        ours, theirs = self.edits, other.edits
        if self.unit != other.unit or ours.costs != theirs.costs:
            raise InvalidInputError(
                f"other counts {other.unit} with the costs {theirs.costs}, this score {self.unit} "
                f"with {ours.costs}; score both with the same loss and align"
            )
        if not ours.has_references_of(theirs):
            raise InvalidInputError("other has other references; score both on the same ones")
        return compare_edits(ours, theirs, resamples=self.resamples, rng=self.rng)

    def __str__(self) -> str:
        rate = {"words": "WER %", "characters": "CER %"}.get(self.unit, "error %")
        head = ["", "pairs", self.unit, "correct", "sub", "del", "ins", "errors", rate,
                "95 % interval", "wrong pairs %"]  # fmt: skip
        table = [head]
        for row in self.rows:
            value, lower, upper = (100 * number for number in row.error_rate)
            numbers = (row.pairs, row.symbols, row.correct, row.substitutions, row.deletions,
                       row.insertions, row.errors)  # fmt: skip
            table.append([row.group, *(f"{number:,}" for number in numbers), f"{value:.2f}",
                          f"{lower:.2f} .. {upper:.2f}",
                          f"{100 * row.wrong_pairs / row.pairs:.2f}"])  # fmt: skip
            if row.loss is not None:
                table[-1].append("{:.6g} ({:.6g} .. {:.6g})".format(*row.loss))
        if self.losses is not None:
            head.append("mean loss")
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        )


def score(
    hypotheses: Sequence[Any],
    references: Sequence[Any],
    loss: Unit | Loss = "wer",
    *,
    decode: Decode = "best",
    align: Align = "unit",
    by: Sequence[str] | None = None,
    alternatives: bool = False,
    drop: Iterable[str | re.Pattern[str]] = (),
    replace: Mapping[str, str] = MappingProxyType({}),
    resamples: int = 2000,
    rng: Seed = 0,
) -> Score:
    r"""Return the error rate of hypotheses: all errors divided by all symbols of the references.

    Parameters
    ----------
    hypotheses, references : N strings each
        A str, or a list of words or symbols.  An empty reference counts the symbols of its
        hypothesis as insertions, as in jiwer.  Hypotheses may also be N lattices (`Lattice`, also
        of n-best lists), of which `decode` chooses a string.
    loss : "wer", "cer" or Loss
        What is counted: words between white space; characters, without white space at the ends of
        a str; or the symbols of a `Loss` (words, if it is a `WordErrorRate`), whose losses are then
        given, too.
    decode : {"best", "oracle", "mbr"}
        The string of a lattice: that of the most probable path; one with the least loss against the
        reference (edit distance without a `Loss`); or that with the least expected loss, `fg.mbr`
        (of the 50 most probable ones, for lattices of more than 1,000 paths; if all are infinite,
        the most probable one, and a `UserWarning` says so).
    align : {"unit", "sclite"}
        The alignment: with the fewest errors, or the cheapest with the costs 4, 3, 3 of NIST's
        sclite for substitutions, deletions and insertions.  sclite's has more errors where a
        substitution costs more than what avoids it.
    by : sequence of N str, optional
        The group of each pair, such as its speaker.
    alternatives : bool
        Whether a str has the notation of sclite: alternatives ``{ a b / c / @ }``, where @ is no
        word, and optional words ``(uh)``.  The cheapest alignment chooses a reading, of lattices
        after `decode` unless it is "oracle"; with "unit", the one of least cost for sclite among
        those with the fewest errors.  The symbols of a reference are those of the reading, and an
        optional word that is left out counts as correct, as with sclite -D.
    drop : words, optional
        Left out of hypotheses and references: fillers such as "uh" and "[noise]", or compiled
        regular expressions of whole words, as ``re.compile(r"\[.*\]")``.
    replace : dict from words to words, optional
        Spellings that count as the same: ``{"gonna": "going to", "%hes": ""}`` replaces the words
        on the left on both sides, the longest match first, before words are dropped.  For both, a
        str has words between white space, and a list has its symbols.  A `UserWarning` names those
        that no string has.
    resamples : int
        Number of bootstrap resamples of pairs for the 95 percent intervals.
    rng : Generator, int or None
        Source of the resamples.

    Returns
    -------
    Score

    Raises
    ------
    InvalidInputError
        There are no pairs, or arguments have different numbers of items; a word of `drop` is none,
        or what a word becomes is replaced again.
    AlphabetError
        A string has a symbol outside the alphabet of the loss or of a lattice.
    NotSupportedError
        `replace` has several words for a word of a lattice, or one for several; or `decode` is
        "oracle" for a reference with alternatives and a `Loss`.
    InfeasibleError
        Lattices, whose numbers it gives, have no path with a finite score; or for "oracle", none
        with a finite loss.
    MemoryLimitError
        The table of an alignment needs more than 4 GiB (two strings of 65,536 symbols; of 16,384
        with alternatives).

    Notes
    -----
    O(|y| |y_i|) for each pair; 0.2 s for 100,000 pairs of 20 words, after they are split.

    Examples
    --------
    >>> import fstgrad as fg
    >>> result = fg.score(["the cat sad", "a mat"], ["the cat sat", "the mat"], by=["ann", "bob"])
    >>> result.error_rate.value, result.substitutions.tolist()
    (0.4, [1, 1])
    >>> result.confusions.substituted
    ((('sad', 'sat'), 1), (('a', 'the'), 1))
    """
    given = {"hypotheses": hypotheses, "references": references}
    if by is not None:
        if isinstance(by, str):
            raise InvalidInputError(f"by is {by!r}; give a list of groups, one for each pair")
        given["by"] = by
    check_same_rows(**given)
    rules = WordRules.of(drop, replace)
    alternatives = flag("alternatives", alternatives)
    unit, hyps, refs = _strings(hypotheses, references, loss, decode, rules, alternatives)
    groups = None if by is None else [_name(i, name) for i, name in enumerate(items("by", by))]
    numbers = {"hypotheses": len(hyps), "references": len(refs)}
    numbers |= {} if groups is None else {"by": len(groups)}
    if not hyps or len(set(numbers.values())) > 1:
        if not any(numbers.values()):
            raise InvalidInputError("hypotheses and references have no items; give at least one")
        counts = ", ".join(f"{name} {count:,}" for name, count in numbers.items())
        raise InvalidInputError(f"the numbers of items are {counts}; give one of each per pair")
    one_of("align", align, get_args(Align))
    ys, zs, chosen = _with_readings(hyps, refs, align)
    edits = Edits.of(ys, zs, align, chosen)
    losses = loss.pairwise(ys, zs) if isinstance(loss, Loss) else None
    resamples = positive_integer("resamples", resamples)
    rows = tuple(_rows(edits, losses, groups, resamples, rng))
    for said in rules.unused():
        warn(said, UserWarning)
    return Score(unit, rows, edits, losses, resamples, rng)


def _name(i: int, name: Any) -> str:
    instance(f"by[{i}]", name, str, "a str")
    return str(name)


def _strings(
    hypotheses: Any,
    references: Any,
    loss: Unit | Loss,
    decode: Decode,
    rules: WordRules,
    alternatives: bool,
) -> tuple[str, list[Text], list[Text]]:
    """Return what is counted, and both batches as tuples of symbols, or with alternatives."""
    if isinstance(loss, Loss):
        unit = "words" if isinstance(loss.alphabet, WordAlphabet) else "symbols"
    else:
        unit = _UNITS[one_of("loss", loss, tuple(_UNITS))]
    ys, zs = paired_batches(hypotheses=hypotheses, references=references)
    alphabet = loss.alphabet if isinstance(loss, Loss) and unit == "symbols" else None
    targets = _split(zs, "references", unit, rules, alternatives, alphabet)
    one_of("decode", decode, get_args(Decode))
    lattices = [y for y in ys if isinstance(y, Lattice)]
    if lattices and len(lattices) < len(ys):
        raise InvalidInputError("hypotheses has lattices and strings; give one kind")
    if lattices and len(ys) == len(targets):
        given = loss if isinstance(loss, Loss) else None
        ys = decoded([*map(rules.lattice, lattices)], targets, decode, given)
    elif lattices:
        ys = [()] * len(ys)  # the numbers differ, which is an error below
    elif decode != "best":
        raise InvalidInputError(
            f"decode is {decode!r}, but no hypothesis is a Lattice; give lattices"
        )
    split = _split(ys, "hypotheses", unit, rules, alternatives, alphabet)
    if loss == "wer" and not lattices:
        _check_words("hypotheses", split)
        _check_words("references", targets)
    return unit, split, targets


def _check_words(name: str, texts: list[Text]) -> None:
    """Raise InvalidInputError if a word has white space: it is a sentence in a list."""
    for i, text in enumerate(texts):
        word = (
            next((w for w in text if len(w.split()) > 1), None) if isinstance(text, tuple) else None
        )
        if word is not None:
            raise InvalidInputError(
                f"{name}[{i}] is a list with the sentence {word!r}; give a str, or a list of words"
            )


def _split(
    strings: list[Any],
    name: str,
    unit: str,
    rules: WordRules,
    alternatives: bool,
    alphabet: Alphabet | None,
) -> list[Text]:
    """Return strings as tuples of words, of characters, or of symbols, after the rules.

    alphabet : that of the symbols; if some are words, a str that it refuses is an error
    """
    ready: dict[int, Text] = {i: s for i, s in enumerate(strings) if isinstance(s, Alternatives)}
    for i, text in enumerate(strings):
        if alternatives and isinstance(text, str):
            try:
                tokens: Tokens = "words" if unit == "words" else "chars"
                ready[i] = Alternatives.read(text, tokens, rules.words)
            except InvalidInputError as error:
                raise InvalidInputError(f"{name}[{i}]: {error}") from error
    rules.has_choices.update(str(t) for t in ready.values() if isinstance(t, Alternatives))
    strings = [() if i in ready else s for i, s in enumerate(strings)]
    texts = [rules.text(s) if isinstance(s, str) else s for s in strings]
    if alphabet is not None and not alphabet.is_characters:
        for i, text in enumerate(texts):
            if isinstance(text, str):
                alphabet.encode(text, name=f"{name}[{i}]")
    if unit == "words":
        texts = [s.split() if isinstance(s, str) else s for s in texts]
    elif unit == "characters":
        texts = [s.strip() if isinstance(s, str) else s for s in texts]
    split = symbol_strings(name, texts)
    if rules:
        split = [
            y if isinstance(s, str) else rules.words(y) for s, y in zip(strings, split, strict=True)
        ]
    if unit == "characters":
        for i, string in enumerate(split):
            if word := next((symbol for symbol in string if len(symbol) != 1), None):
                raise InvalidInputError(
                    f"{name}[{i}] has the symbol {word!r}, and cer counts characters; give a str, "
                    "or use wer"
                )
    return [ready.get(i, string) for i, string in enumerate(split)]


def _with_readings(
    ys: list[Text], zs: list[Text], align: Align
) -> tuple[list[Symbols], list[Symbols], Chosen | None]:
    """Return strings, with one reading of each alternative, and how it was chosen."""
    if not any(isinstance(text, Alternatives) for text in (*ys, *zs)):
        return ys, zs, None  # type: ignore[return-value]
    found = []
    for y, z in zip(ys, zs, strict=True):
        if isinstance(y, Alternatives) or isinstance(z, Alternatives):
            found.append(reading(y, z, align))
        else:
            found.append(Reading(y, z, tuple(range(len(z))), len(z), 0))
    chosen = Chosen(
        tuple(zs),
        np.array([one.items for one in found], dtype=np.int64),
        np.array([item for one in found for item in one.item], dtype=np.int64),
        np.array([one.excused for one in found], dtype=np.int64),
    )
    return [one.y for one in found], [one.z for one in found], chosen


def decoded(
    lattices: Sequence[Lattice],
    references: Sequence[Text],
    decode: Decode,
    loss: Loss | None = None,
    names: Sequence[str] | None = None,
) -> list[Sequence[str]]:
    """Return the string of each lattice that `decode` chooses, as symbols; see `score`.

    names : of the lattices, for messages; by default, their numbers from 0

    Raises
    ------
    InfeasibleError
        Lattices, which it names, have no path with a finite score, or no finite loss.
    """
    found: list[Sequence[str]] = []
    reasons: dict[Any, str] = {}
    infinite: list[Any] = []
    named: Sequence[Any] = range(len(lattices)) if names is None else names
    for name, lattice, reference in zip(named, lattices, references, strict=True):
        try:
            string, risk = _decoded(lattice, reference, decode, loss)
        except InfeasibleError as error:
            reasons[name] = str(error).partition(";")[0]
            continue
        found.append(string)
        if risk == np.inf:
            infinite.append(name)
    if reasons:
        remedy = "leave these items out"
        if any("loss" in reason for reason in reasons.values()):
            remedy += ", or use a loss that is finite on some string of each"
        raise InfeasibleError.of_items(reasons, remedy)
    if infinite:
        warn(
            f"every string of {len(infinite):,} of the lattices, such as item {infinite[0]}, has "
            "an infinite expected loss, so that decode='mbr' takes the most probable one; use a "
            "loss that is finite between the strings",
            UserWarning,
        )
    return found


def _decoded(
    lattice: Lattice, reference: Text, decode: Decode, loss: Loss | None
) -> tuple[Sequence[str], float]:
    """Return the string of a lattice that `decode` chooses, and for mbr its expected loss, or 0."""
    if decode == "best":
        return lattice.alphabet.decode(lattice.string(lattice.best_path()[0])), 0.0
    if decode == "oracle" and isinstance(reference, Alternatives):
        if loss is not None:
            raise NotSupportedError(
                "the oracle of a reference with alternatives has the fewest errors; give no loss "
                "but wer or cer"
            )
        return reading(lattice, reference, "unit").y, 0.0
    loss = EditDistance(lattice.alphabet) if loss is None else loss
    if decode == "mbr":
        chosen = least_risk(lattice, loss)
        if chosen.method == "sampled":
            warn(
                "the expected losses of a lattice were estimated from 1,000 strings, because its "
                "candidates do not compile; fg.mbr has more samples",
                UserWarning,
            )
        return lattice.alphabet.decode(chosen.ids), chosen.risk
    path = oracle_path(lattice, reference, loss)  # type: ignore[arg-type]
    return lattice.alphabet.decode(lattice.string(path)), 0.0


def oracle_path(lattice: Lattice, reference: Sequence[str], loss: Loss | None = None) -> IntArray:
    """Return the arcs of a path with the least loss, of those whose score is not -inf."""
    loss = EditDistance(lattice.alphabet) if loss is None else loss
    ids = lattice.alphabet.encode(reference, name="a reference")
    allowed = np.where(lattice.scores > -np.inf, 0.0, -np.inf)
    return lattice.compile(loss, ids).best(lattice.graph, allowed, -1.0)[0]


def _rows(
    edits: Edits, losses: FloatArray | None, groups: list[str] | None, resamples: int, rng: Seed
) -> list[ScoreRow]:
    """Return the row of each group, then that of all pairs."""
    pairs = len(edits.sizes)
    numbers = [edits.counts, edits.errors[:, None], edits.sizes[:, None]]
    table = np.concatenate(
        [*numbers, np.zeros((pairs, 1)) if losses is None else losses[:, None]], axis=1
    ).astype(np.float64)
    chosen: list[tuple[str, Any]] = [(ALL, slice(None))]
    if groups is not None:
        members: dict[str, list[int]] = {}
        for i, name in enumerate(groups):
            members.setdefault(name, []).append(i)
        chosen[:0] = members.items()
    return [_row(name, table[rows], losses is not None, resamples, rng) for name, rows in chosen]


def _row(name: str, table: FloatArray, has_loss: bool, resamples: int, rng: Seed) -> ScoreRow:
    counts = table[:, :4].sum(axis=0).astype(int).tolist()
    errors, size, loss = range(4, 7)
    mean = None
    if has_loss:
        mean = Interval(np.inf, np.inf, np.inf)
        if np.isfinite(table[:, loss]).all():
            mean = interval(resampled_sums(table[:, [loss]], resamples, rng)[:, 0] / len(table))
    return ScoreRow(
        name,
        len(table),
        int((table[:, errors] > 0).sum()),
        int(table[:, size].sum()),
        counts[MATCH],
        counts[SUBSTITUTE],
        counts[INSERT],
        counts[DELETE],
        int(table[:, errors].sum()),
        ratio(table[:, errors], table[:, size], resamples, rng),
        mean,
    )
