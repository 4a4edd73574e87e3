"""Read transcripts: utterances with names, as lines, tables, JSON, or files of sclite and Kaldi.

Index
-----
- `read_transcripts` : the utterances of a file, each with one text, or several with scores.
- `Utterance` : one of them.
- `FORMATS` : the formats.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

from fstgrad.core.checks import one_of, real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.io.arrays import Path
from fstgrad.io.text import Row, located, not_csv, read_rows, text_of, to_number

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


class Utterance(NamedTuple):
    """One utterance of a file.

    name : its name; None if the file has none.
    texts : its texts: one, or those of an n-best list.
    scores : log-weights in nats of the texts; None if the file has none.
    fields : the other columns of a table or members of a JSON object, such as the speaker.
    row : its first line.
    """

    name: str | None
    texts: tuple[str, ...]
    scores: tuple[float, ...] | None
    fields: dict[str, str]
    row: Row


def read_transcripts(path: Path, side: Side, format: Format = "auto") -> list[Utterance]:
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
          writes it, if more of the third column than of the second are numbers; or a first
          line with the names of columns, among them hypothesis or reference (hyp, ref, text), maybe
          id and score.
        - "csv": a table with such a first line.
        - "json": an object per line, with members of these names, or with a list `nbest` of
          objects with text and score.
        - "trn" of sclite: text (id).  "ctm" of sclite: file channel start duration word.  "stm" of
          sclite: file channel speaker start end <label> text.  The utterances of ctm and stm are
          the channels of the files, whose words and segments are joined in the order of time, and
          the speakers of stm with +.
        - "kaldi": id, a space, the text.
        - "auto": trn, ctm, stm, csv and json by the name of the file (x.trn, x.ctm, x.stm, x.csv,
          x.json, x.jsonl; also .gz); else tsv if the first line has a tab, json if it is an object,
          trn if all lines end with different ids in brackets, with a digit, - or _; else lines.

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
    readers = {"lines": _lines, "tsv": _tsv, "csv": _csv, "json": _json, "trn": _trn,
               "ctm": _ctm, "stm": _stm, "kaldi": _kaldi}  # fmt: skip
    read = readers[kind](rows, side)
    found = list(read if kind in ("lines", "ctm", "stm") else _grouped(read))
    if not found:
        raise InvalidInputError(f"{path} has no utterances; give at least one")
    return found


def _format(rows: Sequence[Row]) -> str:
    if not rows:
        return "lines"
    name = rows[0].file.lower().removesuffix(".gz")
    for ending, format in _ENDINGS.items():
        if name.endswith(ending):
            return format
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
    lines = list(_without_comments(rows))
    for row in lines:
        match = _TRN.fullmatch(text_of(row))
        if match is None or not _TRN_NAME.fullmatch(match[2].strip()):
            return False
        names.add(match[2].strip())
    return len(names) == len(lines) > 0


def _grouped(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield utterances; those with scores and one name are joined."""
    first: dict[str, list[Utterance]] = {}
    for number, one in enumerate(utterances):
        key = str(number) if one.scores is None else f"={one.name}"
        first.setdefault(key, []).append(one)
    for group in first.values():
        texts = tuple(text for one in group for text in one.texts)
        scores = tuple(score for one in group for score in one.scores or ())
        yield group[0]._replace(texts=texts, scores=scores or None)


def _lines(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in rows:
        yield Utterance(None, (text_of(row).strip(),), None, {}, row)


def _tsv(rows: Sequence[Row], side: Side) -> Iterator[Utterance]:
    header = text_of(rows[0]).split("\t") if rows else []
    if _names_columns(header, side):
        yield from _table(header, [(row, text_of(row).split("\t")) for row in rows], side)
        return
    table = []
    for row in rows:
        with located(row):
            fields = row.text().split("\t")
            if len(fields) not in (2, 3):
                raise InvalidInputError(
                    f"{len(fields)} column(s) in {row.text()[:60]!r}; a row is id, one tab, text, "
                    "or id, score, text with tabs between, or the first row names the columns"
                )
            table.append(fields)
    lists = [fields for fields in table if len(fields) == 3]
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


def _is_number(text: str) -> bool:
    try:
        to_number(text)
    except ValueError:
        return False
    return True


def _csv(rows: Sequence[Row], side: Side) -> Iterator[Utterance]:
    reader = csv.reader((text_of(row) + "\n" for row in rows), strict=True)
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
    name = next((str(members[key]) for key in _NAMES if members.get(key) is not None), None)
    fields = {key: str(value) for key, value in members.items() if key not in _NAMES}
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
    if key is None or not isinstance(members[key], str):
        raise InvalidInputError(f"no text; name it {' or '.join(_TEXTS[side])}")
    has_score = side == "hypothesis" and members.get("score") is not None and name is not None
    scores = (_score(members["score"]),) if has_score else None
    return Utterance(name, (members[key].strip(),), scores, fields, row)


def _score(value: Any) -> float:
    return _number("score", value, "the log-weight of the text")


def _number(name: str, value: Any, meaning: str) -> float:
    try:
        return real_number(name, to_number(value) if isinstance(value, str) else float(value))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the {name} is {value!r}; give a number, {meaning}") from error


def _trn(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in _without_comments(rows):
        with located(row):
            match = _TRN.fullmatch(row.text())
            if match is None:
                raise InvalidInputError(
                    f"{row.text()[:60]!r} does not end with the id of its utterance: text (id)"
                )
            words = _of_one_reading(match[1])
            name = match[2].strip()
            yield Utterance(name, (" ".join(words),), None, {"speaker": speaker_of(name)}, row)


def speaker_of(name: str) -> str:
    """Return the speaker in the id of an utterance, up to the first - or _ (spu_id in sclite)."""
    return re.split(r"[-_]", name)[0]


def _of_one_reading(text: str) -> list[str]:
    """Return the words of a text of sclite."""
    words = text.split()
    if any(word in ("{", "}", "/") or word[0] + word[-1] == "()" for word in words):
        raise InvalidInputError(
            "alternatives { a / b } and optional words (a), which have several readings; keep one "
            "of them"
        )
    return words


# (file, channel), start, text, speaker (empty in ctm), row
_Timed = tuple[tuple[str, str], float, str, str, Row]


def _ctm(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    yield from _channels(_ctm_words(rows))


def _ctm_words(rows: Iterable[Row]) -> Iterator[_Timed]:
    for row in _without_comments(rows):
        with located(row):
            fields = row.text().split()
            if not 5 <= len(fields) <= 8:
                raise InvalidInputError(
                    f"{len(fields)} field(s); a line is file channel start duration word"
                )
            if fields[2] == "*" or fields[4].startswith("<ALT"):
                raise InvalidInputError("alternatives <ALT>, of which keep one")
            start = _number("start", fields[2], "in seconds")
            yield (fields[0], fields[1]), start, fields[4], "", row


def _stm(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    yield from _channels(_stm_segments(rows))


def _stm_segments(rows: Iterable[Row]) -> Iterator[_Timed]:
    for row in _without_comments(rows):
        with located(row):
            fields = row.text().split(maxsplit=5)
            if len(fields) < 5:
                raise InvalidInputError(
                    f"{len(fields)} field(s); a line is file channel speaker start end text"
                )
            words = _of_one_reading("".join(fields[5:]))
            if words and words[0].startswith("<") and words[0].endswith(">"):
                words = words[1:]  # the label
            if "ignore_time_segment_in_scoring" in (word.lower() for word in words):
                raise InvalidInputError(
                    "a segment that sclite ignores; remove it, and its words from the hypotheses"
                )
            start = _number("start", fields[3], "in seconds")
            end = _number("end", fields[4], "in seconds")
            if end < start:
                raise InvalidInputError(f"the end, {end:g} s, is before the start, {start:g} s")
            yield (fields[0], fields[1]), start, " ".join(words), fields[2], row


def _channels(parts: Iterable[_Timed]) -> Iterator[Utterance]:
    """Yield an utterance for each channel of a file, its parts in the order of time."""
    channels: dict[tuple[str, str], list[_Timed]] = {}
    for part in parts:
        channels.setdefault(part[0], []).append(part)
    is_one = len({file for file, _ in channels}) == len(channels)
    for (file, channel), timed in channels.items():
        text = " ".join(part[2] for part in sorted(timed, key=lambda part: part[1]) if part[2])
        name = file if is_one else f"{file}-{channel}"
        speakers = "+".join(sorted({part[3] for part in timed}))
        place = {"speaker": speakers or speaker_of(name), "file": file, "channel": channel}
        yield Utterance(name, (text,), None, place, timed[0][4])


def _without_comments(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.raw.strip() and not row.raw.startswith(b";;"))


def _kaldi(rows: Iterable[Row], _: Side) -> Iterator[Utterance]:
    for row in rows:
        with located(row):
            name, *rest = row.text().split(maxsplit=1) or [""]
            if not name:
                raise InvalidInputError("an empty line; a line is the id, a space, the text")
            text = rest[0].strip() if rest else ""
            yield Utterance(name, (text,), None, {"speaker": speaker_of(name)}, row)
