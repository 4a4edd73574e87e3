"""The utterances that `fstgrad score` compares: texts, n-best lists or lattices of systems."""

import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import click
import numpy as np

from fstgrad.cli.commands.lattices import lattice_over, lattice_symbols, note_numbers
from fstgrad.cli.output import echo, note
from fstgrad.cli.rescoring import Rescoring, WordCosts
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import (
    Items,
    Tokens,
    Utterance,
    in_segments,
    located,
    matched,
    read_rows,
    read_transcripts,
)
from fstgrad.io.timed import speaker_of
from fstgrad.io.transcripts import FORMATS, format_of
from fstgrad.learning.alternatives import Alternatives
from fstgrad.learning.score import Decode, Text, decoded
from fstgrad.learning.word_rules import WordRules
from fstgrad.losses import Loss
from fstgrad.openfst import Fst
from fstgrad.openfst.lattice_text import starts_as_kaldi
from fstgrad.strings import Lattice

_LATTICES = (".far", ".fst", ".att", ".att.gz", ".lat", ".lat.gz")
FORMAT_NAMES = (*FORMATS, "lattices")
_NO_IDS = ("hypothesis", "hyp", "pred_text", "text", "reference", "ref", "score", "nbest")
_OF_REFERENCES = "--reference-format"
DIGIT = re.compile(r"\d")
NUMBERED = re.compile(r"\D.*\d$")  # as utt-001; not 2nd or 1984
_ALTERNATIVES = re.compile(r"(?<!\S)\{[^{}]*/.*?\}(?!\S)")
_WORD_CONTEXT = re.compile(r"\s/\s*\[\s*\]\s*__\s*\[\s*\]\s*$")  # of a GLM: between any words


@dataclass(frozen=True)
class Fold:
    """How texts and ids are changed before they are compared: to lower case, to a Unicode form."""

    ignore_case: bool
    form: str | None

    def __call__(self, text: str) -> str:
        """Return a text after the changes."""
        text = text.lower() if self.ignore_case else text
        if self.form is None:
            return text
        return unicodedata.normalize(self.form.upper(), text)  # type: ignore[arg-type]

    def pattern(self, option: str, pattern: str) -> re.Pattern[str]:
        """Return the regular expression of an option, for texts and ids after the changes."""
        try:
            return re.compile(pattern, re.IGNORECASE if self.ignore_case else 0)
        except re.error as error:
            raise click.UsageError(
                f"{option} {pattern} is no regular expression: {error}"
            ) from error


@dataclass(frozen=True)
class Reading:
    """How utterances are read; `tokens` are those of the loss."""

    tokens: Tokens
    format: str
    reference_format: str
    fold: Fold
    alternatives: bool
    symbols_file: str | None
    rescoring: Rescoring
    costs: WordCosts
    rules: WordRules
    optional: list[str] = field(default_factory=list)  # optional words of sclite

    def are_lattices(self, path: str) -> bool:
        """Return whether the hypotheses of a path are lattices."""
        if self.format == "auto":
            is_named = os.path.isdir(path) or path.lower().endswith(_LATTICES)
            return is_named or (os.path.isfile(path) and starts_as_kaldi(path))
        return self.format == "lattices"

    def texts(self, path: str, side: str, format: str, *, joined: bool = True) -> list[Utterance]:
        """Return the utterances of a file, with texts and names after `fold`."""
        found = read_transcripts(path, side, format, joined=joined)  # type: ignore[arg-type]
        if not self.alternatives:
            _note_alternatives(found)
        if format == "auto" and format_of(path) is None and found[0].is_marked:
            echo(
                f"fstgrad: {path}: the last words of the lines, such as ({found[0].name}), are "
                "ids, as in .trn files of sclite; if not, give --format lines --reference-format "
                "lines",
                err=True,
            )
        return [
            one._replace(
                name=None if one.name is None else self.fold(one.name),
                texts=tuple(map(self.fold, one.texts)),
                fields=one.fields
                | ({"file": self.fold(one.fields["file"])} if "channel" in one.fields else {}),
            )
            for one in found
        ]

    def symbols(self, one: Utterance) -> list[Text]:
        """Return the words or characters of the texts of an utterance, after the rules."""
        is_marked = one.is_marked or self.alternatives
        if not is_marked:
            texts = map(self.rules.text, one.texts)
            return [tuple(text.split() if self.tokens == "words" else text) for text in texts]
        with located(one.row):
            found = [Alternatives.read(text, self.tokens, self.rules.words) for text in one.texts]
        for text in found:
            if isinstance(text, Alternatives):
                self.optional.extend(text.optional)
                self.rules.has_choices.add(str(text))
        return found

    def in_segments(self, references: str, systems: Sequence[str]) -> bool:
        """Return whether segments of .stm are compared with the words of .ctm files."""
        kinds = [format_of(path) if self.format == "auto" else self.format for path in systems]
        own = self.reference_format
        return (format_of(references) if own == "auto" else own) == "stm" and {*kinds} == {"ctm"}


@dataclass(frozen=True)
class System:
    """The hypotheses of a system, in the order of the references.

    path : of its file or folder.
    names : of the utterances; numbers from 1 without names.
    texts : N strings of symbols, or with alternatives, if the file has one for each reference.
    lattices : otherwise, N lattices.
    """

    path: str
    names: list[str]
    texts: list[Text]
    lattices: list[Lattice]

    def strings(self, decode: Decode, references: Sequence[Text], loss: Loss | None) -> list[Text]:
        """Return the string of each utterance that `decode` chooses; texts are as they are."""
        if self.texts:
            return list(self.texts)
        names = [f"{name} of {self.path}" for name in self.names]
        return [*map(tuple, decoded(self.lattices, references, decode, loss, names))]


def _note_alternatives(utterances: Sequence[Utterance]) -> None:
    """Note the first text with alternatives of sclite, in a file that is not sclite's."""
    for one in utterances:
        if one.is_marked:
            return
        match = next(filter(None, map(_ALTERNATIVES.search, one.texts)), None)
        if match is not None:
            note(
                f"fstgrad: {one.row.place}: {match[0]!r} looks like alternatives, but is scored "
                "as it stands; --alternatives reads alternatives as sclite does"
            )
            return


def symbols_of(text: Text) -> set[str]:
    """Return the symbols of a text, of all its readings."""
    return text.symbols if isinstance(text, Alternatives) else set(text)


def read_references(path: str, systems: Sequence[str], reading: Reading) -> list[Utterance]:
    """Return the references: a text each, or none for the segments that are not scored."""
    joined = not reading.in_segments(path, systems)
    found = reading.texts(path, "reference", reading.reference_format, joined=joined)
    several = next((one for one in found if len(one.texts) > 1), None)
    if several is not None:
        raise InvalidInputError(
            f"{several.row.place}: {several.name!r} has {len(several.texts)} texts; a reference "
            "has one"
        )
    if not any(one.texts for one in found):
        raise InvalidInputError(f"{path}: no segment is scored; give at least one")
    return found


def read_system(
    path: str, references: Sequence[Utterance], reading: Reading, targets: Sequence[Text]
) -> System:
    """Return the hypotheses of a file, a folder or an archive, matched with the references.

    targets : the texts of the references that are scored.
    """
    file = references[0].row.file
    scored = [one for one in references if one.texts]
    several = "write what is right in one row, { a / b }, and give --alternatives"
    wanted = Items([one.name for one in scored], file, "utterance", "id", repeated=several)
    names = [str(i) if one.name is None else one.name for i, one in enumerate(scored, start=1)]
    if reading.are_lattices(path):
        collection = reading.rescoring.read(path, symbols=reading.symbols_file)
        ids = [*map(reading.fold, collection)]
        if wanted.names and None in wanted.names and reading.reference_format != "lines":
            _check_first_words(scored, set(ids), file, path, _OF_REFERENCES)
        collection = _in_order(collection, ids, path, wanted)
        return System(path, names, [], list(_lattices(collection, path, targets, reading)))
    if references[0].span is not None:
        found = _in_segments(path, references, reading)
        return System(path, names, [reading.symbols(one)[0] for one in found], [])
    found = _matched(path, scored, wanted, reading)
    lists = list(map(reading.symbols, found))
    if all(one.scores is None for one in found):
        return System(path, names, [texts[0] for texts in lists], [])
    lacking = next((one for one in found if one.scores is None), None)
    if lacking is not None:
        raise InvalidInputError(
            f"{lacking.row.place}: no score for {lacking.name!r}, but others have one"
        )
    words = [sorted(symbols_of(text)) for text in (*targets, *(y for ys in lists for y in ys))]
    alphabet = Alphabet.from_sequences([*words, ("-",)])
    lattices: list[Lattice] = []
    overtaken: list[str] = []
    for one, ys in zip(found, lists, strict=True):
        with located(one.row):
            listed = [y for y in ys if not isinstance(y, Alternatives)]
            if len(listed) < len(ys):
                raise InvalidInputError("alternatives in an n-best list; write each as a text")
            scores = np.array(one.scores) - [reading.costs.of(text) for text in one.texts]
            lattices.append(Lattice.from_nbest(listed, scores, alphabet))
            if _is_overtaken(listed, scores):
                overtaken.append(names[len(lattices) - 1])
    if overtaken:
        note(
            f"fstgrad: {path}: {len(overtaken):,} lists, such as {overtaken[0]}, have a text whose "
            "rows add up to more than the likeliest row; --decode best takes this row, --nbest and "
            "mbr add up"
        )
    return System(path, names, [], lattices)


def _is_overtaken(texts: Sequence[Text], scores: FloatArray) -> bool:
    """Return whether rows of one text add up to more than the likeliest row, of another text."""
    if len(set(texts)) == len(texts):
        return False
    totals = dict.fromkeys(texts, -np.inf)
    for text, score in zip(texts, scores.tolist(), strict=True):
        totals[text] = float(np.logaddexp(totals[text], score))
    best = texts[int(np.argmax(scores))]
    return max(totals.values()) > totals[best]


def _matched(
    path: str, references: Sequence[Utterance], wanted: Items, reading: Reading
) -> list[Utterance]:
    """Return the utterances of a file in the order of the references."""
    file = references[0].row.file
    found = reading.texts(path, "hypothesis", reading.format)
    if path != "-" and os.path.exists(file) and os.path.samefile(path, file):
        _check_one_table(found, path)
    found = _on_the_channels(found, references)
    if reading.format == "ctm" or (reading.format == "auto" and format_of(path) == "ctm"):
        found = _with_silent(found, references)
    if "lines" not in (reading.format, reading.reference_format):
        _check_ids(found, references, path)
        unnamed = [all(one.name is None for one in own) for own in (references, found)]
        if len(set(unnamed)) > 1 and not (references if unnamed[0] else found)[0].fields:
            named, plain = (path, file) if unnamed[0] else (file, path)
            first = (found if unnamed[0] else references)[0].name
            note(
                f"fstgrad: {named} has ids, the first is {first!r}, and {plain} has none: texts "
                "match by line; if these are words, give --format lines (references: "
                "--reference-format lines)"
            )
    order = matched(wanted, Items([one.name for one in found], path, "utterance", "id"))
    return [found[i] for i in order]


def _in_segments(path: str, segments: Sequence[Utterance], reading: Reading) -> list[Utterance]:
    """Return the words of a .ctm file in each segment that is scored."""
    words = reading.texts(path, "hypothesis", reading.format, joined=False)
    silent = {one.channel for one in segments} - {one.channel for one in words}
    if silent:
        note(
            f"fstgrad: {path} has no words of {len(silent):,} of the channels, such as "
            f"{' '.join(min(silent))}: empty hypotheses"
        )
    found = in_segments(words, segments)
    ignored = [one for one, segment in zip(found, segments, strict=True) if not segment.texts]
    if ignored:
        words_of = sum(len(one.texts[0].split()) for one in ignored)
        note(
            f"fstgrad: left out: {len(ignored):,} segment{'s' * (len(ignored) != 1)} "
            f"IGNORE_TIME_SEGMENT_IN_SCORING, with {words_of:,} word{'s' * (words_of != 1)} of "
            f"{path}"
        )
    return [one for one, segment in zip(found, segments, strict=True) if segment.texts]


def _on_the_channels(found: list[Utterance], references: Sequence[Utterance]) -> list[Utterance]:
    """Return utterances with the names of the references of their file and channel, if they do."""
    if not all("channel" in one.fields for one in (*found, *references)):
        return found
    names = {one.channel: one.name for one in references}
    return [one._replace(name=names.get(one.channel, "-".join(one.channel))) for one in found]


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
    """Raise InvalidInputError if ids are written in another way, or lines begin with ids."""
    _check_unnamed(found, references, path)
    if any(one.name is not None for one in (*found, *references)):
        _check_spelling(
            {str(one.name) for one in found}, {str(one.name) for one in references}, path
        )
        return
    first = [_first_words(side) for side in (found, references)]
    id_of = NUMBERED if len(first[1]) == 1 else DIGIT
    is_id = all(id_of.search(word) and len(word) > 1 for word in first[1])
    if is_id and len(set(first[1])) == len(first[1]) > 0 and set(first[0]) == set(first[1]):
        raise InvalidInputError(
            f"{path}: the lines begin with words such as {first[1][0]!r}, which may be ids; give "
            "--format kaldi and --reference-format kaldi if they are, else --format lines"
        )


def _check_unnamed(found: Sequence[Utterance], references: Sequence[Utterance], path: str) -> None:
    """Raise InvalidInputError if a column of a file without ids has the ids of the other file."""
    file = references[0].row.file
    for own, other, here, there in (
        (found, references, path, file), (references, found, file, path)
    ):  # fmt: skip
        names = {one.name for one in other}
        if None in names or any(one.name is not None for one in own):
            continue
        for column in sorted(set(own[0].fields).difference(_NO_IDS)):
            if {one.fields.get(column) for one in own} == names:
                raise InvalidInputError(
                    f"{here} has no id, but {column!r} is that of {there}; name it id"
                )
        options = ("--format", _OF_REFERENCES)
        _check_first_words(own, names, here, there, *(options if own is found else options[::-1]))
        if own[0].fields:
            note(f"fstgrad: {here} has no ids: its rows and those of {there} match by position")
    if any(one.name is not None for one in (*found, *references)):
        return
    for column in sorted(set(found[0].fields).difference(_NO_IDS)):
        left, right = ([one.fields.get(column) for one in rows] for rows in (found, references))
        if left != right and len(set(left)) == len(left) and set(left) == set(right):
            raise InvalidInputError(
                f"{path} and {file} have no ids, but the same {column!r} in another order; name "
                "this column id in both"
            )


def _check_first_words(
    own: Sequence[Utterance],
    names: Set[str | None],
    here: str,
    there: str,
    option: str,
    other: str = "",
) -> None:
    """Raise InvalidInputError if the lines of a file begin with the ids of the other file."""
    if set(_first_words(own)) == names:
        raise InvalidInputError(
            f"{here} has no ids, but its lines begin with those of {there}; give {option} kaldi, "
            f"or {option} lines if they are words"
            + (f", or {other} lines if {there} has words there, too" if other else "")
        )


def _first_words(side: Sequence[Utterance]) -> list[str]:
    """Return the first word of each text, "" if it has none; of a list, that of its first text."""
    return [(text.split(maxsplit=1) or [""])[0] for one in side for text in one.texts[:1]]


def _check_spelling(own: set[str], ids: set[str], path: str) -> None:
    """Raise InvalidInputError if names differ from the ids in case or in Unicode form alone."""
    ways: tuple[tuple[Callable[[str], str], str, str], ...] = (
        (str.lower, "upper and lower case", "--ignore-case, which ignores it in the texts, too"),
        (partial(unicodedata.normalize, "NFC"), "their form of Unicode", "--normalize nfc"),
    )
    for change, what, option in ways:
        if own != ids and set(map(change, own)) == set(map(change, ids)):
            raise InvalidInputError(
                f"{path}: the ids, such as {min(own ^ ids)!r}, are those of the references but for "
                f"{what}; give {option}"
            )


def _check_one_table(found: Sequence[Utterance], path: str) -> None:
    """Raise UsageError if a file of hypotheses and references has no names of these columns."""
    columns = ("reference", "ref", "hypothesis", "hyp", "pred_text")
    if not any(name in one.fields for one in found for name in columns):
        raise click.UsageError(
            f"{path} is given twice; in one table, name the columns id, hypothesis and reference "
            "in the first line"
        )


def _in_order(
    collection: dict[str, Fst], ids: Sequence[str], path: str, wanted: Items
) -> dict[str, Fst]:
    """Return lattices with these ids in the order of the references, by their own names."""
    names = list(collection)
    if None not in wanted.names:
        _check_spelling(set(ids), set(map(str, wanted.names)), path)
    order = matched(wanted, Items(ids, path, "lattice"))
    return {names[i]: collection[names[i]] for i in order}


def _lattices(
    collection: dict[str, Fst], path: str, targets: Iterable[Text], reading: Reading
) -> Iterable[Lattice]:
    """Yield the lattices, over one alphabet of their symbols, results and those of references."""
    of_targets = {symbol for target in targets for symbol in symbols_of(target)}
    labels = lattice_symbols(collection, "give --symbols")
    note_numbers(path, labels, of_targets)
    changes = WordRules({(word,): (new,) for word in labels if (new := reading.fold(word)) != word})
    folded = {reading.fold(label) for label in labels}
    results = {word for label in folded for word in reading.rules.words((label,))}
    alphabet = Alphabet(sorted(labels | folded | results | of_targets or {"-"}))
    for name, fst in collection.items():
        lattice = changes.lattice(lattice_over(alphabet, path, name, fst))
        yield reading.rules.lattice(reading.costs.lattice(lattice))


def groups_of(
    by: str, references: Sequence[Utterance], names: Sequence[str], fold: Fold
) -> list[str]:
    """Return the group of each utterance; `by` is that of the option --by, `fold` that of ids."""
    if by.startswith("^"):
        pattern = fold.pattern("--by", by)
        return [_by_pattern(pattern, name) for name in names]
    if pathlib.Path(by).is_file():
        return _by_file(by, names, fold)
    if all(by in one.fields for one in references):
        change = fold if by == "speaker" else str  # as speakers in ids
        return [change(one.fields[by]) for one in references]
    if by == "speaker" and all(one.name is not None for one in references):
        return [speaker_of(name) for name in names]
    columns = sorted({name for one in references for name in one.fields})
    raise click.UsageError(
        f"--by {by}: the references have no such column"
        + (f", but {', '.join(columns)}" if columns else "")
        + "; give one, a file of rows id TAB group, or a regular expression ^..."
    )


def note_unused(reading: Reading) -> None:
    """Note which words of --drop, --replace and --word-costs are in none of the files."""
    for said in reading.rules.unused():
        note(f"fstgrad: --{said}")
    reading.costs.note_unused()


def note_optional(words: Sequence[str]) -> None:
    """Note how the optional words of the files count."""
    if words:
        note(
            f"fstgrad: optional words: {len(words):,}, such as {words[0]}; where the other side "
            "lacks one, it counts as correct, as with sclite -D"
        )


def word_rules(drop: Iterable[str], path: str | None, fold: Fold) -> WordRules:
    """Return the rules of --drop and --replace, whose words are changed by `fold`."""
    words: list[str | re.Pattern[str]] = []
    for word in drop:
        if word.startswith("^"):
            words.append(fold.pattern("--drop", word))
        else:
            words.append(fold(word))
    return WordRules.of(words, {} if path is None else _replacements(path, fold))


def _replacements(path: str, fold: Fold) -> dict[str, str]:
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
            old, new = (" ".join(fold(side).split()) for side in (old, new))
            if found.setdefault(old, new) != new:
                raise InvalidInputError(f"{old!r} became {found[old]!r} before; give one of them")
    return found


def _unbracketed(words: str) -> str:
    match = re.fullmatch(r"\s*\[([^\[\]]*)\]\s*", words)
    return words if match is None else match[1]


def _by_pattern(by: re.Pattern[str], name: str) -> str:
    match = by.match(name)
    if match is None:
        raise click.UsageError(
            f"--by {by.pattern} does not match the id {name!r} from its start; begin with ^.* to "
            "look further on, and end with | to give all other ids one group without a name"
        )
    return match[1] if match.groups() and match[1] is not None else match[0]


def _by_file(path: str, names: Sequence[str], fold: Fold) -> list[str]:
    """Return the groups of a file of rows id, white space, group, as Kaldi's utt2spk.

    In a row with tabs, the last one ends the id, which may have white space.
    """
    groups: dict[str, str] = {}
    for row in read_rows(path):
        with located(row):
            line = row.text()
            parts = line.rsplit("\t", 1) if "\t" in line else line.split()
            fields = [part.strip() for part in parts if part.strip()]
            if len(fields) != 2:
                raise InvalidInputError(f"{len(fields)} field(s); a row is id, white space, group")
            if groups.setdefault(fold(fields[0]), fields[1]) != fields[1]:
                raise InvalidInputError(f"{fold(fields[0])!r} has another group before; give one")
    lacking = next((name for name in names if name not in groups), None)
    if lacking is not None:
        raise InvalidInputError(f"{path} has no utterance {lacking!r}; give its group")
    return [groups[name] for name in names]
