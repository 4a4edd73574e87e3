"""`fstgrad score`: error rates of hypotheses, with counts, intervals, groups and comparisons."""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, get_args

import click

from fstgrad.cli.command import Command, option_group, reject_options
from fstgrad.cli.commands.page import Page
from fstgrad.cli.commands.score_page import add_comparison, add_lattices, add_score
from fstgrad.cli.commands.score_systems import (
    FORMAT_NAMES,
    Fold,
    Reading,
    System,
    groups_of,
    note_optional,
    note_unused,
    read_references,
    read_system,
    symbols_of,
    word_rules,
)
from fstgrad.cli.loss_options import LossChoice, build_loss, score_loss_options
from fstgrad.cli.output import echo, note
from fstgrad.cli.pair_options import TOKENS, symbols_option
from fstgrad.cli.parameter_types import (
    FILE_OR_DASH,
    Input,
    Output,
    bootstrap_seed_option,
    encoding_option,
    nbest_option,
    normalize_option,
    resamples_option,
)
from fstgrad.cli.rescoring import SCALES, WORD_COSTS, Rescoring, rescoring_options
from fstgrad.core.alphabet import Alphabet, WordAlphabet
from fstgrad.core.axis_labels import EPSILONS
from fstgrad.io import Utterance, read_rows, write_text
from fstgrad.io.text import Tokens
from fstgrad.io.transcripts import FORMATS
from fstgrad.learning.alternatives import Alternatives
from fstgrad.learning.comparison import Comparison
from fstgrad.learning.edits import COSTS, Align
from fstgrad.learning.score import ALL, Decode, Score, Text
from fstgrad.learning.score import score as scored
from fstgrad.losses import Loss

WRITE_TEXTS = r"printf 'the cat sad\na mat\n' > hyp.txt; printf 'the cat sat\nthe mat\n' > ref.txt"


@dataclass(frozen=True)
class ReadingOptions:
    """Options that say how the files are read."""

    format: str
    reference_format: str
    tokens: Tokens | None
    ignore_case: bool
    normalize: str | None
    alternatives: bool
    drop: tuple[str, ...]
    replace: str | None
    symbols: str | None


@dataclass(frozen=True)
class StatisticsOptions:
    """Options of alignments, groups and intervals."""

    align: Align
    by: str | None
    resamples: int
    seed: int


@dataclass(frozen=True)
class OutputOptions:
    """Options of what is computed and written."""

    decodes: tuple[Decode, ...]
    nbest: int | None
    output: str | None
    other: str | None
    errors: bool
    as_json: bool
    html: str | None


_reading_options = option_group(
    "files",
    ReadingOptions,
    click.option(
        "--format",
        type=click.Choice(FORMAT_NAMES),
        default="auto",
        show_default=True,
        help="Form of HYPOTHESES; auto goes by the ending of the name, then by the lines.",
    ),
    click.option(
        "--reference-format",
        type=click.Choice(FORMATS),
        default="auto",
        show_default=True,
        help="Form of REFERENCES.",
    ),
    click.option(
        "--tokens",
        type=TOKENS,
        help="Symbols of texts: characters or words.  [default: words, for cer chars]",
    ),
    click.option(
        "--ignore-case", is_flag=True, help="Compare texts and ids in lower case, as sclite does."
    ),
    normalize_option,
    encoding_option,
    click.option(
        "--alternatives",
        is_flag=True,
        help="Read { a / b / @ }, where @ is no word, and optional words (uh) in all texts, as "
        "always in files of sclite.",
    ),
    click.option(
        "--drop",
        multiple=True,
        metavar="WORD|^REGEX",
        help="Leave this word out of both sides, such as the filler uh, or words that a regular "
        "expression ^... matches as a whole, as '^\\[.*'; may be repeated.",
    ),
    click.option(
        "--replace",
        type=Input(),
        metavar="FILE",
        help="Replace words on both sides, once and before --drop: rows gonna TAB going to "
        "(nothing after the tab: left out), or rules of a GLM, gonna => going to.",
    ),
    symbols_option,
    heading="How the files are read",
)
_statistics_options = option_group(
    "statistics",
    StatisticsOptions,
    click.option(
        "--align",
        type=click.Choice(tuple(COSTS)),
        default="unit",
        show_default=True,
        help="unit: the fewest errors; sclite: costs 4, 3, 3 of substitutions, deletions and "
        "insertions.",
    ),
    click.option(
        "--by",
        metavar="COLUMN|FILE|^REGEX",
        help="One row per group: a column of REFERENCES; speaker (of .stm, else the id up to the "
        "first - or _); a file of rows id, group; or what a regular expression ^... matches at "
        "the start of each id, or its first group in parentheses.",
    ),
    resamples_option,
    bootstrap_seed_option,
    heading="Counts and intervals",
)


_output_options = option_group(
    "outputs",
    OutputOptions,
    click.option(
        "--decode",
        "decodes",
        type=click.Choice(get_args(Decode)),
        multiple=True,
        help="Of n-best lists and lattices: the best row or path, the oracle (the string nearest "
        "to the reference), or the string of least expected loss (mbr; of the 50 most probable "
        "ones where there are more than 1,000 paths); may be repeated.  [default: best]",
    ),
    nbest_option("With -o: write the K most probable strings, with log p in nats.", None),
    click.option(
        "-o",
        "--output",
        type=Output(),
        metavar="FILE.tsv",
        help="Write the strings that were scored, as id TAB text.",
    ),
    click.option(
        "--compare",
        "other",
        type=Input(folders=True),
        metavar="HYPOTHESES2",
        help="Compare with another system: paired bootstrap, and matched pairs (MAPSSWE).",
    ),
    click.option(
        "--html",
        type=Output(),
        metavar="FILE.html",
        help="Write a page: rates, aligned errors, the most frequent confusions; of n-best lists "
        "and lattices also pictures, with the oracle path and the reference.",
    ),
    click.option("--errors", is_flag=True, help="Print the most common errors to standard error."),
    click.option("--json", "as_json", is_flag=True, help="Write one JSON line per row and test."),
)


@click.command(
    cls=Command,
    examples=(
        WRITE_TEXTS,
        "fstgrad score hyp.txt ref.txt --errors",
        "fstgrad score hyp.txt ref.txt --loss cer --json",
        r"printf 'a\t-1.5\tthe cat sad\na\t-2\tthe cat sat\nb\t-1\ta mat\n' > nbest.tsv",
        r"printf 'a\tthe cat sat\nb\tthe mat\n' > refs.tsv",
        "fstgrad score nbest.tsv refs.tsv --decode best --decode oracle --by speaker",
    ),
)
@click.argument("hypotheses", type=Input(dash=True, folders=True))
@click.argument("references", type=FILE_OR_DASH)
@score_loss_options
@_reading_options
@rescoring_options
@_statistics_options
@_output_options
def score(
    hypotheses: str,
    references: str,
    choice: LossChoice,
    files: ReadingOptions,
    rescoring: Rescoring,
    statistics: StatisticsOptions,
    outputs: OutputOptions,
) -> None:
    """Print the error rate of HYPOTHESES against REFERENCES, with counts and 95 percent intervals.

    Files have a text per line (matched by line), id TAB text (matched by id), id TAB score TAB text
    (n-best lists; higher scores are likelier) or id TAB text TAB score as predict writes it (with
    tags, id and tags are two columns), CSV or TSV with names of columns, a JSON object per line, or
    are files of sclite (.trn, .ctm, .stm) or Kaldi (--format kaldi).  HYPOTHESES may also be
    lattices: a folder of files, an archive (.far) or one file (.fst, .att, .lat), in OpenFst's
    binary form, AT&T text, or the text of Kaldi (also archives) and k2.

    The error rate is the sum of the errors divided by the number of words (or characters) of the
    references.  An empty reference counts the words of its hypothesis as insertions.

    Here an insertion is a word that the hypothesis adds; --insert-cost and --delete-cost are named
    after the edits that lead from the hypothesis to the reference, as in fstgrad loss: the first is
    the cost of a deletion, and the second that of an insertion.
    """
    tokens: Tokens = files.tokens or ("chars" if choice.loss == "cer" else "words")
    _check_tokens(choice, files.tokens)
    fold = Fold(files.ignore_case, files.normalize)
    reading = Reading(
        tokens, files.format, files.reference_format, fold, files.alternatives, files.symbols,
        rescoring, rescoring.words(fold), word_rules(files.drop, files.replace, fold),
    )  # fmt: skip
    paths = [path for path in (hypotheses, outputs.other) if path is not None]
    segments = read_references(references, paths, reading)
    utterances = [one for one in segments if one.texts]
    targets = [reading.symbols(one)[0] for one in utterances]
    if not any(map(reading.are_lattices, paths)):
        reject_options(("symbols", *SCALES), "without lattices (--format lattices)")
    systems = [read_system(path, segments, reading, targets) for path in paths]
    if not any(system.lattices for system in systems):
        reject_options(WORD_COSTS, "without lattices or n-best lists with scores")
    note_unused(reading)
    note_optional(reading.optional)
    needs_lists = next((how for how in outputs.decodes if how != "best"), None)
    if needs_lists is not None and not any(system.lattices for system in systems):
        raise click.UsageError(
            f"--decode {needs_lists} needs n-best lists with scores, or lattices; "
            f"{' and '.join(paths)} have one text for each reference"
        )
    loss = _loss(choice, tokens, systems, targets, fold)
    _note_unicode_forms([system.strings("best", targets, loss) for system in systems], targets)
    job = _Job(utterances, targets, loss, choice.loss, statistics, fold)
    results = {how: job.score(systems[0], how) for how in outputs.decodes or ("best",)}
    if outputs.output is not None:
        _write(outputs.output, systems[0], job, tuple(results), outputs.nbest)
    elif outputs.nbest is not None:
        raise click.UsageError("--nbest has no effect without -o; leave it out")
    compared: dict[Decode, Compared] = {}
    if outputs.other is not None:
        for how, result in results.items():
            test = result.compare(job.score(systems[1], how))
            compared[how] = Compared(test, job.by_group(systems, how))
    _note_empty(results)
    for how, result in results.items():
        _print_score(result, how if outputs.decodes else None, outputs.as_json)
        if outputs.errors:
            echo(str(result.confusions), err=True)
        if how in compared:
            _print_comparison(compared[how], how if outputs.decodes else None, outputs.as_json)
    if outputs.html is not None:
        named = " and ".join(paths)
        page = Page(f"fstgrad score: {named} against {references}")
        _fill(page, results, compared, systems[0], paths, job)
        write_text(outputs.html, page.text())


def _note_empty(results: Mapping[Decode, Score]) -> None:
    """Note the groups whose references have no words, of which there is no rate."""
    result = next(iter(results.values()))
    empty = [row.group for row in result.rows if not row.symbols]
    if empty:
        note(
            f"fstgrad: the references have no {result.unit} (rows {', '.join(empty)}); the rate is "
            "then the number of errors, times 100 %"
        )


def _fill(
    page: Page,
    results: Mapping[Decode, Score],
    compared: Mapping[Decode, "Compared"],
    system: System,
    paths: Sequence[str],
    job: "_Job",
) -> None:
    """Add the scores, comparisons and lattices of the first system to a page."""
    for how, result in results.items():
        page.heading(f"Error rates of {paths[0]}" + f", {how}" * bool(system.lattices))
        add_score(page, result, system.names)
        if how in compared:
            add_comparison(page, *compared[how], *paths)
    if system.lattices:
        first = next(iter(results.values()))
        add_lattices(page, first, system.lattices, system.names, job.loss)


def _check_tokens(choice: LossChoice, tokens: Tokens | None) -> None:
    """Raise UsageError if --tokens gives other symbols than wer or cer counts."""
    counted = {"wer": "words", "cer": "chars"}.get(choice.loss, tokens)
    if tokens is not None and tokens != counted:
        raise click.UsageError(f"--loss {choice.loss} counts {counted}; leave --tokens out")


def _note_unicode_forms(systems: Sequence[Sequence[Text]], targets: Sequence[Text]) -> None:
    """Note what only some of the files have: Unicode form NFC, or characters that none can see."""
    files = [[_joined(text) for text in texts] for texts in (*systems, targets)]
    if len({all(unicodedata.is_normalized("NFC", text) for text in texts) for texts in files}) > 1:
        note(
            "fstgrad: only some of the files are in Unicode form NFC, so that equal letters may "
            "count as errors; give --normalize nfc"
        )
    characters = [{c for text in texts for c in set(text)} for texts in files]
    everywhere = characters[0].intersection(*characters)
    some = {c for own in characters for c in own - everywhere}
    hidden = sorted(c for c in some if unicodedata.category(c) == "Cf")
    if hidden:
        name = unicodedata.name(hidden[0], "without a name")
        note(
            f"fstgrad: only some of the files have invisible characters (U+{ord(hidden[0]):04X}, "
            f"{name}), so that words that look equal count as errors; remove them from the files"
        )


def _joined(text: Text, separator: str = "") -> str:
    return str(text) if isinstance(text, Alternatives) else separator.join(text)


def _loss(
    choice: LossChoice,
    tokens: Tokens,
    systems: Sequence[System],
    targets: Sequence[Text],
    fold: Fold,
) -> Loss | None:
    """Return the loss over the symbols of all strings and tables; None for plain wer and cer."""
    values = asdict(choice)
    if values.pop("loss") in ("wer", "cer") and not any(v is not None for v in values.values()):
        return None
    lattices = [lattice for system in systems for lattice in system.lattices[:1]]
    texts = [y for system in systems for y in system.texts]
    symbols = {symbol for text in (*texts, *targets) for symbol in symbols_of(text)}
    symbols |= {symbol for lattice in lattices for symbol in lattice.alphabet}
    if isinstance(choice.confusion, str):
        rows = [row.text().split("\t")[:2] for row in read_rows(choice.confusion)]
        added = {fold(symbol) for row in rows for symbol in row} - {*EPSILONS}
        symbols |= {symbol for symbol in added if tokens == "words" or len(symbol) == 1}
    kind = WordAlphabet if tokens == "words" else Alphabet
    loss = build_loss(choice, kind(sorted(symbols or {"-"})), fold)
    if loss is None:
        raise click.UsageError("--loss none has no errors; give another loss")
    return loss


@dataclass(frozen=True)
class _Job:
    """What is the same for all systems and ways to decode."""

    utterances: Sequence[Utterance]
    targets: Sequence[Text]
    loss: Loss | None
    name: str
    statistics: StatisticsOptions
    fold: Fold

    def score(self, system: System, how: Decode) -> Score:
        """Return the score of a system."""
        by = self.statistics.by
        return scored(
            system.strings(how, self.targets, self.loss),
            self.targets,
            self.loss or self.name,  # type: ignore[arg-type]
            align=self.statistics.align,
            by=None if by is None else self.groups(by, system),
            resamples=self.statistics.resamples,
            rng=self.statistics.seed,
        )

    def groups(self, by: str, system: System) -> list[str]:
        """Return the group of each utterance."""
        return groups_of(by, self.utterances, system.names, self.fold)

    def by_group(self, systems: Sequence[System], how: Decode) -> dict[str, Comparison]:
        """Return the comparison of two systems in each group of --by."""
        by = self.statistics.by
        if by is None:
            return {}
        names = self.groups(by, systems[0])
        texts = [system.strings(how, self.targets, self.loss) for system in systems]
        rows: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            rows.setdefault(name, []).append(i)
        found = {}
        for name, own in rows.items():
            part = replace(
                self,
                targets=[self.targets[i] for i in own],
                statistics=replace(self.statistics, by=None),
            )
            first, second = (
                part.score(System("", [], [strings[i] for i in own], []), "best")
                for strings in texts
            )
            found[name] = first.compare(second)
        return found


class Compared(NamedTuple):
    """The comparison of two systems: of all pairs, and of each group of --by."""

    all: Comparison
    groups: dict[str, Comparison]


def _print_comparison(compared: Compared, how: str | None, as_json: bool) -> None:
    if not as_json:
        echo(f"\n{compared.all.table(compared.groups)}")
        return
    for name, test in (*compared.groups.items(), (ALL, compared.all)):
        line: dict[str, Any] = {"decode": how} if how else {}
        line |= {"group": name} | test._asdict() | {"matched_pairs": test.matched_pairs._asdict()}
        echo(json.dumps(line, ensure_ascii=False))


def _print_score(result: Score, how: str | None, as_json: bool) -> None:
    if not as_json:
        echo(f"{how}\n{result}" if how else str(result))
        return
    for row in result.rows:
        line: dict[str, Any] = {"decode": how} if how else {}
        line |= {name: value for name, value in row._asdict().items() if value is not None}
        if row.loss is not None and not math.isfinite(row.loss.value):
            line["loss"] = None  # JSON has no infinity
        echo(json.dumps(line, ensure_ascii=False))


def _write(
    path: str, system: System, job: _Job, decodes: Sequence[Decode], nbest: int | None
) -> None:
    """Write the strings of the one way to decode, or the K most probable ones with log p."""
    if len(decodes) > 1:
        raise click.UsageError("-o writes the strings of one --decode; give one")
    separator = "" if job.name == "cer" else " "
    lines = []
    if nbest is None:
        strings = system.strings(decodes[0], job.targets, job.loss)
        lines = [
            f"{name}\t{_joined(y, separator)}"
            for name, y in zip(system.names, strings, strict=True)
        ]
    elif not system.lattices or decodes[0] != "best":
        raise click.UsageError("--nbest needs n-best lists or lattices, and --decode best")
    else:
        for name, lattice in zip(system.names, system.lattices, strict=True):
            for ids, log_prob in lattice.kbest(nbest):
                text = separator.join(lattice.alphabet.decode(ids))
                lines.append(f"{name}\t{log_prob:.6f}\t{text}")
    write_text(path, "".join(f"{line}\n" for line in lines))
