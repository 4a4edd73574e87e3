"""The utterances that `fstgrad score` compares: texts, n-best lists or lattices of systems."""

import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import click
import numpy as np

from fstgrad.cli.commands.lattices import lattice_over, lattice_symbols
from fstgrad.cli.output import echo, note
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import Items, Utterance, located, matched, read_rows, read_transcripts
from fstgrad.io.text import Tokens
from fstgrad.io.transcripts import FORMATS, speaker_of
from fstgrad.learning.score import Decode, decoded
from fstgrad.learning.word_rules import WordRules
from fstgrad.losses import Loss
from fstgrad.openfst import Fst, read_collection
from fstgrad.strings import Lattice

_LATTICES = (".far", ".fst", ".att", ".att.gz", ".lat", ".lat.gz")
FORMAT_NAMES = (*FORMATS, "lattices")
DIGIT = re.compile(r"\d")
_ALTERNATIVES = re.compile(r"(?<!\S)\{ .* / .* \}(?!\S)")
_WORD_CONTEXT = re.compile(r"\s/\s*\[\s*\]\s*__\s*\[\s*\]\s*$")  # of a GLM: between any words


@dataclass(frozen=True)
class Reading:
    """How utterances are read; `tokens` are those of the loss."""

    tokens: Tokens
    format: str
    reference_format: str
    ignore_case: bool
    symbols_file: str | None
    acoustic_scale: float
    rules: WordRules
    seen: set[str] = field(default_factory=set)  # words of the files, before the rules

    def are_lattices(self, path: str) -> bool:
        """Return whether the hypotheses of a path are lattices."""
        if self.format == "auto":
            return os.path.isdir(path) or path.lower().endswith(_LATTICES)
        return self.format == "lattices"

    def texts(self, path: str, side: str, format: str) -> list[Utterance]:
        """Return the utterances of a file after the rules, in lower case with `ignore_case`."""
        found = read_transcripts(path, side, format)  # type: ignore[arg-type]
        _note_alternatives(found)
        if self.ignore_case:
            found = [
                one._replace(
                    name=None if one.name is None else one.name.lower(),
                    texts=tuple(text.lower() for text in one.texts),
                )
                for one in found
            ]
        if not self.rules:
            return found
        self.seen.update(word for one in found for text in one.texts for word in text.split())
        return [one._replace(texts=tuple(map(self.rules.text, one.texts))) for one in found]

    def symbols(self, text: str) -> tuple[str, ...]:
        """Return the words or characters of a text."""
        return tuple(text.split() if self.tokens == "words" else text)


@dataclass(frozen=True)
class System:
    """The hypotheses of a system, in the order of the references.

    names : of the utterances; numbers from 1 without names.
    texts : N strings of symbols, if the file has one for each reference.
    lattices : otherwise, N lattices.
    """

    names: list[str]
    texts: list[tuple[str, ...]]
    lattices: list[Lattice]

    def strings(
        self, decode: Decode, references: Sequence[Sequence[str]], loss: Loss | None
    ) -> list[Sequence[str]]:
        """Return the string of each utterance that `decode` chooses."""
        if self.texts:
            if decode != "best":
                raise click.UsageError(
                    f"--decode {decode} needs n-best lists with scores, or lattices"
                )
            return list(self.texts)
        return [
            decoded(lattice, reference, decode, loss)
            for lattice, reference in zip(self.lattices, references, strict=True)
        ]


def _note_alternatives(utterances: Sequence[Utterance]) -> None:
    """Note the first text with alternatives of sclite, in a file that is not sclite's."""
    for one in utterances:
        match = next(filter(None, map(_ALTERNATIVES.search, one.texts)), None)
        if match is not None:
            note(
                f"fstgrad: {one.row.place}: {match[0]!r} looks like alternatives, but is scored "
                "as it stands; keep one alternative"
            )
            return


def read_references(path: str, reading: Reading) -> list[Utterance]:
    """Return the references; each has one text."""
    found = reading.texts(path, "reference", reading.reference_format)
    several = next((one for one in found if len(one.texts) > 1), None)
    if several is not None:
        raise InvalidInputError(
            f"{several.row.place}: {several.name!r} has {len(several.texts)} texts; a reference "
            "has one"
        )
    return found


def read_system(
    path: str,
    references: Sequence[Utterance],
    reading: Reading,
    targets: Sequence[tuple[str, ...]],
) -> System:
    """Return the hypotheses of a file, a folder or an archive, matched with the references."""
    file = references[0].row.file
    wanted = Items([one.name for one in references], file, "utterance", "id")
    names = [str(i) if one.name is None else one.name for i, one in enumerate(references, start=1)]
    format = reading.format
    if reading.are_lattices(path):
        collection = read_collection(
            path, symbols=reading.symbols_file, acoustic_scale=reading.acoustic_scale
        )
        collection = _in_order(collection, path, wanted)
        return System(names, [], list(_lattices(collection, path, targets, reading)))
    found = reading.texts(path, "hypothesis", format)
    if path != "-" and os.path.exists(file) and os.path.samefile(path, file):
        _check_one_table(found, path)
    found = _on_the_channels(found, references)
    if format in ("auto", "ctm") and path.lower().endswith((".ctm", ".ctm.gz")):
        found = _with_silent(found, references)
    if "lines" not in (format, reading.reference_format):
        _check_ids(found, references, path)
    order = matched(wanted, Items([one.name for one in found], path, "utterance", "id"))
    found = [found[i] for i in order]
    if all(one.scores is None for one in found):
        return System(names, [reading.symbols(one.texts[0]) for one in found], [])
    lacking = next((one for one in found if one.scores is None), None)
    if lacking is not None:
        raise InvalidInputError(
            f"{lacking.row.place}: no score for {lacking.name!r}, but others have one"
        )
    lists = [[reading.symbols(text) for text in one.texts] for one in found]
    alphabet = Alphabet.from_sequences([*(y for ys in lists for y in ys), *targets, ("-",)])
    lattices = []
    for one, ys in zip(found, lists, strict=True):
        with located(one.row):
            lattices.append(Lattice.from_nbest(ys, np.array(one.scores), alphabet))
    return System(names, [], lattices)


def _on_the_channels(found: list[Utterance], references: Sequence[Utterance]) -> list[Utterance]:
    """Return utterances of ctm or stm with the names of the references of their file and channel.

    Channels 1 and 2 are A and B.
    """
    if not all("channel" in one.fields for one in (*found, *references)):
        return found
    names = {_channel(one): one.name for one in references}
    return [one._replace(name=names.get(_channel(one), "-".join(_channel(one)))) for one in found]


def _channel(one: Utterance) -> tuple[str, str]:
    channel = one.fields["channel"].upper()
    return one.fields["file"], {"1": "A", "2": "B"}.get(channel, channel)


def _with_silent(found: list[Utterance], references: Sequence[Utterance]) -> list[Utterance]:
    """Return the utterances of a ctm file, and empty ones for references that it lacks."""
    names = {one.name for one in found}
    silent = [one for one in references if one.name is not None and one.name not in names]
    if silent and len(silent) < len(references):
        note(
            f"fstgrad: {len(silent):,} references have no words in the .ctm file: empty hypotheses"
        )
        found = [*found, *(one._replace(texts=("",), scores=None) for one in silent)]
    return found


def _check_ids(found: Sequence[Utterance], references: Sequence[Utterance], path: str) -> None:
    """Raise InvalidInputError if lines without ids seem to begin with ids, as Kaldi writes them."""
    if any(one.name is not None for one in (*found, *references)):
        return
    first = [
        [text.split(maxsplit=1)[0] if text else "" for one in side for text in one.texts[:1]]
        for side in (found, references)
    ]
    is_id = all(DIGIT.search(word) and len(word) > 1 for word in first[1])
    if is_id and len(set(first[1])) == len(first[1]) > 1 and set(first[0]) == set(first[1]):
        raise InvalidInputError(
            f"{path}: the lines begin with words such as {first[1][0]!r}, which may be ids; give "
            "--format kaldi and --reference-format kaldi if they are, else --format lines"
        )


def _check_one_table(found: Sequence[Utterance], path: str) -> None:
    """Raise UsageError if a file of hypotheses and references has no names of these columns."""
    columns = ("reference", "ref", "hypothesis", "hyp", "pred_text")
    if not any(name in one.fields for one in found for name in columns):
        raise click.UsageError(
            f"{path} is given twice; in one table, name the columns id, hypothesis and reference "
            "in the first line"
        )


def _in_order(collection: dict[str, Fst], path: str, wanted: Items) -> dict[str, Fst]:
    names = list(collection)
    order = matched(wanted, Items(names, path, "lattice"))
    return {names[i]: collection[names[i]] for i in order}


def _lattices(
    collection: dict[str, Fst], path: str, targets: Iterable[Sequence[str]], reading: Reading
) -> Iterable[Lattice]:
    """Yield the lattices, over one alphabet of their symbols, results and those of references."""
    of_targets = {symbol for target in targets for symbol in target}
    labels = lattice_symbols(collection, "write it with symbols")
    if labels and all(label.isdecimal() for label in labels) and not labels & of_targets:
        echo(
            f"{path}: all symbols are numbers and none is in the references; if they are labels of "
            "a table of symbols, give it as --symbols",
            err=True,
        )
    reading.seen.update(labels)
    results = {word for label in labels for word in reading.rules.words((label,))}
    alphabet = Alphabet(sorted(labels | results | of_targets or {"-"}))
    for name, fst in collection.items():
        yield reading.rules.lattice(lattice_over(alphabet, path, name, fst))


def groups_of(by: str, references: Sequence[Utterance], names: Sequence[str]) -> list[str]:
    """Return the group of each utterance; `by` is that of the option --by."""
    if by.startswith("^"):
        return [_by_pattern(by, name) for name in names]
    if pathlib.Path(by).is_file():
        return _by_file(by, names)
    if all(by in one.fields for one in references):
        return [one.fields[by] for one in references]
    if by == "speaker" and all(one.name is not None for one in references):
        return [speaker_of(name) for name in names]
    columns = sorted({name for one in references for name in one.fields})
    raise click.UsageError(
        f"--by {by}: the references have no such column"
        + (f", but {', '.join(columns)}" if columns else "")
        + "; give one, a file of rows id TAB group, or a regular expression ^..."
    )


def note_unused(rules: WordRules, seen: set[str]) -> None:
    """Note which words and patterns of --drop are in none of the files."""
    words = seen.union(*rules.replacements.values())
    unused = sorted(rules.dropped - words)
    unused += [p.pattern for p in rules.patterns if not any(map(p.fullmatch, words))]
    if unused:
        note(f"fstgrad: --drop: no word of the files is {' or '.join(map(repr, unused))}")


def word_rules(drop: Iterable[str], path: str | None, ignore_case: bool) -> WordRules:
    """Return the rules of --drop and --replace, in lower case with `ignore_case`."""
    words: list[str | re.Pattern[str]] = []
    for word in drop:
        if word.startswith("^"):
            words.append(_pattern("--drop", word, re.IGNORECASE if ignore_case else 0))
        else:
            words.append(word.lower() if ignore_case else word)
    return WordRules.of(words, {} if path is None else _replacements(path, ignore_case))


def _replacements(path: str, ignore_case: bool) -> dict[str, str]:
    """Return the words of a file of rows old TAB new, or of plain rules old => new of a GLM.

    Comments begin with ;; and headers of a GLM with "* ".
    """
    found: dict[str, str] = {}
    for row in read_rows(path):
        with located(row):
            line = row.text()
            if not line.strip() or line.startswith((";;", "* ")):
                continue
            tab = "\t" in line
            old, separator, new = line.partition("\t" if tab else "=>")
            if not tab:
                old, new = (_unbracketed(side) for side in (old, _WORD_CONTEXT.sub("", new)))
            if not separator or not old.split() or "\t" in new:
                raise InvalidInputError("a row is words, one tab, words; or words => words")
            if not tab and re.search(r"\s/\s|\[|\]", f"{old} {new}"):
                raise InvalidInputError(
                    "alternatives and contexts of a GLM are not read; give words => words"
                )
            if ignore_case:
                old, new = old.lower(), new.lower()
            old, new = " ".join(old.split()), " ".join(new.split())
            if found.setdefault(old, new) != new:
                raise InvalidInputError(f"{old!r} became {found[old]!r} before; give one of them")
    return found


def _unbracketed(words: str) -> str:
    match = re.fullmatch(r"\s*\[([^\[\]]*)\]\s*", words)
    return words if match is None else match[1]


def _pattern(option: str, pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise click.UsageError(f"{option} {pattern} is no regular expression: {error}") from error


def _by_pattern(by: str, name: str) -> str:
    match = _pattern("--by", by).match(name)
    if match is None:
        raise click.UsageError(f"--by {by} does not match the id {name!r}")
    return match[1] if match.groups() and match[1] is not None else match[0]


def _by_file(path: str, names: Sequence[str]) -> list[str]:
    """Return the groups of a file of rows id, white space, group, as Kaldi's utt2spk."""
    groups: dict[str, str] = {}
    for row in read_rows(path):
        with located(row):
            fields = row.text().split()
            if len(fields) != 2:
                raise InvalidInputError(f"{len(fields)} field(s); a row is id, white space, group")
            if groups.setdefault(fields[0], fields[1]) != fields[1]:
                raise InvalidInputError(f"{fields[0]!r} has another group before; give one")
    lacking = next((name for name in names if name not in groups), None)
    if lacking is not None:
        raise InvalidInputError(f"{path} has no utterance {lacking!r}; give its group")
    return [groups[name] for name in names]
