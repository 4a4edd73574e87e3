"""Read transcripts: utterances with names, as lines, tables, JSON, or files of sclite and Kaldi.

Index
-----
- `read_transcripts` : the utterances of a file, each with one text, or several with scores.
- `format_of`, `FORMATS` : the format of a file by its name, the formats.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.io.arrays import Path
from fstgrad.io.text import (
    Row,
    located,
    not_csv,
    quotes_are_text,
    read_rows,
    separator,
    text_of,
    to_number,
)
from fstgrad.io.timed import (
    Utterance,
    channels,
    ctm,
    number,
    speaker_of,
    stm,
    without_comments,
    without_tags,
)

Format = Literal["auto", "lines", "tsv", "csv", "json", "trn", "ctm", "stm", "kaldi"]
FORMATS: tuple[Format, ...] = get_args(Format)
Side = Literal["hypothesis", "reference"]
# the columns, or members of JSON objects, that hold a text, in order of preference
_TEXTS: dict[str, tuple[str, ...]] = {
    "hypothesis": ("hypothesis", "hyp", "pred_text", "text"),
    "reference": ("reference", "ref", "text"),
}
_NAMES = ("id", "utt_id", "utterance", "audio_filepath")
_TRN = re.compile(r"(.*)\(([^()]*)\)\s*")
_TRN_NAME = re.compile(r"\S*[\d_-]\S*")  # such as spk-1 or u1, unlike a word in brackets
_ENDINGS = {
    ".trn": "trn", ".ctm": "ctm", ".stm": "stm", ".csv": "csv", ".json": "json", ".jsonl": "json",
}  # fmt: skip


def read_transcripts(
    path: Path, side: Side, format: Format = "auto", *, joined: bool = True
) -> list[Utterance]:
    r"""Return the utterances of a file, in the order of their first lines.

    Parameters
    ----------
    path : path; "-" is standard input, and gzip is decompressed
    side : {"hypothesis", "reference"}
        The column to take from a table with columns for both.
    format : str
        - "lines": a text per line, without names; an empty line is an empty text.
        - "tsv": id TAB text, or id TAB score TAB text for the texts of an n-best list (scores are
          log-weights: higher is likelier), or id TAB text TAB score, as `fstgrad predict --nbest`
          writes it, if more of the third column than of the second are numbers; or id TAB tags
          TAB text, maybe with a score behind it, as a model with tags predicts, if no tags and no
          text of the file is a number: the id has the tags, too; or a first
          line with the names of columns, among them hypothesis or reference (hyp, ref, text), maybe
          id and score.
        - "csv": a table with such a first line.
        - "json": an object per line, with members of these names, or with a list `nbest` of
          objects with text and score.
        - "trn" of sclite: text (id).  "ctm" of sclite: file channel start duration word.  "stm" of
          sclite: file channel speaker start end <label> text.  Tags of words, ``word;tag``, are
          left out, and ``\;`` is a ; of the word.
        - "kaldi": id, a space, the text.
        - "auto": trn, ctm, stm, csv and json by the name of the file (x.trn, x.ctm, x.stm, x.csv,
          x.json, x.jsonl; also .gz); else tsv if the first line has a tab, json if it is an object,
          trn if all lines end with different ids in brackets, with a digit, - or _; else lines.
    joined : bool
        The utterances of ctm and stm are the channels of the files, whose words and segments are
        joined in the order of time, and the speakers of stm with +.  Otherwise, they are the words
        and the segments.

    Raises
    ------
    RowError
        A line has another form, with its file and number.
    InvalidInputError
        The file has no lines, or the header has no column of texts.
    OSError
        The file cannot be read.
    """
    one_of("side", side, tuple(_TEXTS))
    one_of("format", format, FORMATS)
    rows = list(read_rows(path))
    kind = _format(rows) if format == "auto" else format
    if kind in ("ctm", "stm"):
        parts = ctm(rows) if kind == "ctm" else stm(rows)
        found = list(channels(parts) if joined else parts)
    else:
        readers = {"lines": _lines, "tsv": _tsv, "csv": _csv, "json": _json, "trn": _trn,
                   "kaldi": _kaldi}  # fmt: skip
        read = readers[kind](rows, side)
        found = list(read if kind == "lines" else _grouped(read))
    if not found:
        raise InvalidInputError(f"{path} has no utterances; give at least one")
    return found


def format_of(path: Path) -> str | None:
    """Return the format of a file by the ending of its name; None if that does not tell."""
    name = str(path).lower().removesuffix(".gz")
    return next((format for ending, format in _ENDINGS.items() if name.endswith(ending)), None)


def _format(rows: Sequence[Row]) -> str:
    if not rows:
        return "lines"
    if (by_name := format_of(rows[0].file)) is not None:
        return by_name
    if b"\t" in rows[0].raw:
        return "tsv"
    try:
        is_object = isinstance(json.loads(rows[0].raw), dict)
    except (ValueError, RecursionError):
        is_object = False
    return "json" if is_object else "trn" if _are_trn(rows) else "lines"


def _are_trn(rows: Sequence[Row]) -> bool:
    """Return whether all lines end with ids, all different."""
    names = set()
    lines = list(without_comments(rows))
    for row in lines:
        match = _TRN.fullmatch(text_of(row))
        if match is None or not _TRN_NAME.fullmatch(match[2].strip()):
            return False
        names.add(match[2].strip())
    return len(names) == len(lines) > 0


def _grouped(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield utterances; those with scores and one name are joined."""
    first: dict[str, list[Utterance]] = {}
    for i, one in enumerate(utterances):
        key = str(i) if one.scores is None else f"={one.name}"
        first.setdefault(key, []).append(one)
    for group in first.values():
        texts = tuple(text for one in group for text in one.texts)
        scores = tuple(score for one in group for score in one.scores or ())
        yield group[0]._replace(texts=texts, scores=scores or None)


def _lines(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in rows:
        yield Utterance(None, (text_of(row).strip(),), None, {}, row)


def _tsv(rows: Sequence[Row], side: Side) -> Iterator[Utterance]:
    rows = list(quotes_are_text(rows))
    header = text_of(rows[0]).split("\t") if rows else []
    if _names_columns(header, side):
        yield from _table(header, [(row, text_of(row).split("\t")) for row in rows], side)
        return
    table = [text_of(row).split("\t") for row in rows]
    if all(map(_has_tags, table)):
        table = [["\t".join(fields[:2]), *fields[2:]] for fields in table]
    for row, fields in zip(rows, table, strict=True):
        with located(row):
            if len(fields) not in (2, 3):
                raise InvalidInputError(
                    f"{len(fields)} column(s) in {row.text()[:60]!r}; a row is id, one tab, text, "
                    "or id, score, text with tabs between, or the first row names the columns"
                )
    lists = [fields for fields in table if len(fields) > 2]
    numbers = [sum(_is_number(fields[column]) for fields in lists) for column in (1, 2)]
    if lists and numbers == [len(lists)] * 2:
        raise InvalidInputError(
            f"{rows[0].file}: the second and the third column are numbers, and either may be the "
            "scores; name the columns in a first line, such as id, score and text"
        )
    score_is_last = numbers[1] > numbers[0]
    for row, (name, *given) in zip(rows, table, strict=True):
        *score, text = reversed(given) if score_is_last and len(given) == 2 else given
        with located(row):
            scores = tuple(map(_score, score)) or None
        yield Utterance(name, (text.strip(),), scores, {}, row)


def _has_tags(fields: list[str]) -> bool:
    """Tell whether a row is an id, tags, a text, and a score if there are four columns."""
    is_named = len(fields) > 2 and not _is_number(fields[1]) and not _is_number(fields[2])
    return is_named and (len(fields) == 3 or _is_number(fields[3]))


def _is_number(text: str) -> bool:
    try:
        to_number(text)
    except ValueError:
        return False
    return True


def _csv(rows: Sequence[Row], side: Side) -> Iterator[Utterance]:
    mark = separator(text_of(rows[0])) if rows else ","
    reader = csv.reader((text_of(row) + "\n" for row in rows), strict=True, delimiter=mark)
    table: list[tuple[Row, list[str]]] = []
    line = 0
    try:
        for fields in reader:
            table.append((rows[line], fields))
            line = reader.line_num
    except csv.Error as error:
        raise not_csv(rows[line].place, error) from error
    if not table:
        return
    header = table[0][1]
    if not _names_columns(header, side):
        raise InvalidInputError(
            f"{rows[0].place}: the header has the columns {', '.join(map(repr, header))}; name the "
            f"texts {' or '.join(_TEXTS[side])}"
        )
    yield from _table(header, [pair for pair in table if pair[1]], side)


def _names_columns(header: Sequence[str], side: Side) -> bool:
    names = [name.strip().lower() for name in header]
    return len(names) > 1 and any(name in names for name in _TEXTS[side])


def _table(
    header: Sequence[str], lines: Sequence[tuple[Row, list[str]]], side: Side
) -> Iterator[Utterance]:
    """Yield the utterances below a header, the first of the lines."""
    names = [name.strip().lower() for name in header]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"{lines[0][0].place}: two columns have one name; name each once")
    for row, fields in lines[1:]:
        with located(row):
            if len(fields) != len(names):
                raise InvalidInputError(
                    f"{len(fields)} column(s) below a header of {len(names)}; give one for each"
                )
            yield _of_members(dict(zip(names, fields, strict=True)), side, row)


def _json(rows: Iterable[Row], side: Side) -> Iterator[Utterance]:
    for row in rows:
        if not row.raw.strip():
            continue
        with located(row):
            try:
                members = json.loads(row.text(), object_pairs_hook=_entries)
            except (json.JSONDecodeError, RecursionError) as error:
                raise InvalidInputError(f"not JSON: {error}; give an object per line") from error
            if not isinstance(members, dict):
                raise InvalidInputError('not an object; a line is {"id": ..., "text": ...}')
            yield _of_members(members, side, row)


def _entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInputError(f"the entry {twice!r} is given twice; give it once")
    return members


def _of_members(members: dict[str, Any], side: Side, row: Row) -> Utterance:
    """Return the utterance of a row of a table, or of an object."""
    plain = {key.strip().lower(): value for key, value in members.items()}
    fields = {key: str(value) for key, value in members.items() if key.lower() not in _NAMES}
    members = plain | members  # as in tables, ID is id, unless there are both
    name = next((str(members[key]) for key in _NAMES if members.get(key) is not None), None)
    if "nbest" in members:
        listed = members["nbest"]
        if not isinstance(listed, list) or not listed or not all(
            isinstance(one, dict) and isinstance(one.get("text"), str) for one in listed
        ):  # fmt: skip
            raise InvalidInputError(
                "the entry 'nbest' is no list of objects; give each a 'text' and a 'score'"
            )
        texts = tuple(one["text"].strip() for one in listed)
        return Utterance(
            name, texts, tuple(_score(one.get("score")) for one in listed), fields, row
        )
    key = next((key for key in _TEXTS[side] if key in members), None)
    if key is None:
        raise InvalidInputError(f"no text; name it {' or '.join(_TEXTS[side])}")
    if not isinstance(members[key], str):
        raise InvalidInputError(
            f"the entry {key!r} is {json.dumps(members[key])[:60]}; give a text in quotes, "
            'with blanks between words, "" if there is none'
        )
    has_score = side == "hypothesis" and members.get("score") is not None and name is not None
    scores = (_score(members["score"]),) if has_score else None
    return Utterance(name, (members[key].strip(),), scores, fields, row)


def _score(value: Any) -> float:
    return number("score", value, "the log-weight of the text")


def _trn(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in without_comments(rows):
        with located(row):
            match = _TRN.fullmatch(row.text())
            if match is None:
                raise InvalidInputError(
                    f"{row.text()[:60]!r} does not end with the id of its utterance: text (id)"
                )
            name = match[2].strip()
            fields = {"speaker": speaker_of(name)}
            text = without_tags(match[1].strip())
            yield Utterance(name, (text,), None, fields, row, is_marked=True)


def _kaldi(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in rows:
        with located(row):
            name, *rest = row.text().split(maxsplit=1) or [""]
            if not name:
                raise InvalidInputError("an empty line; a line is the id, a space, the text")
            text = rest[0].strip() if rest else ""
            yield Utterance(name, (text,), None, {"speaker": speaker_of(name)}, row)
