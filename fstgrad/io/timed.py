"""Utterances with times: the words of .ctm files and the segments of .stm files of sclite.

Index
-----
- `Utterance` : an utterance of any file; a word or a segment has a `span` of time.
- `ctm`, `stm` : the words, or alternatives of words, and the segments of a file.
- `channels` : one utterance for each channel of a file.
- `in_segments` : one utterance for each segment of a reference.
- `without_tags` : a text of sclite without the tags of its words.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fstgrad.core.checks import real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.io.text import Row, located, to_number

_IGNORED = ("ignore_time_segment_in_scoring", "ignoretimesegmentinscoring")
_CHANNELS = {"1": "A", "2": "B"}
_TAGGED_WORD = re.compile(r"((?:\\.|[^\s;\\{}])+)(?:;[^\s{}]*)?")


class Utterance(NamedTuple):
    """One utterance of a file.

    name : its name; None if the file has none.
    texts : its texts: one, or those of an n-best list; none if sclite ignores the segment.
    scores : log-weights in nats of the texts; None if the file has none.
    fields : the other columns of a table or members of a JSON object, such as the speaker.
    row : its first line.
    is_marked : whether the texts may have sclite's alternatives { a / b } and optional words (a).
    span : its begin and its end in seconds; None if the file has no times.
    """

    name: str | None
    texts: tuple[str, ...]
    scores: tuple[float, ...] | None
    fields: dict[str, str]
    row: Row
    is_marked: bool = False
    span: tuple[float, float] | None = None

    @property
    def channel(self) -> tuple[str, str]:
        """The file and the channel of a word or segment; channels 1 and 2 are A and B."""
        name = self.fields["channel"].upper()
        return self.fields["file"], _CHANNELS.get(name, name)

    @property
    def times(self) -> tuple[float, float, float]:
        """The begin, the middle and the end of a word or segment, in seconds."""
        begin, end = self.span or (0.0, 0.0)
        return begin, (begin + end) / 2, end


def speaker_of(name: str) -> str:
    """Return the speaker in the id of an utterance, up to the first - or _ (spu_id in sclite)."""
    return re.split(r"[-_]", name)[0]


def without_tags(text: str) -> str:
    r"""Return a text of sclite without tags: a word ends before a ;, and \; is a ; of the word.

    >>> without_tags(r"{ um;noise / uh;;x } a\;s;tag far")
    '{ um / uh } a;s far'
    """
    return _TAGGED_WORD.sub(lambda match: match[1].replace("\\", ""), text)


def number(name: str, value: Any, meaning: str) -> float:
    """Return the finite number that a text or a member of JSON gives; `meaning` is for errors."""
    try:
        return real_number(name, to_number(value) if isinstance(value, str) else float(value))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the {name} is {value!r}; give a number, {meaning}") from error


def without_comments(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows of a file of sclite that are neither blank nor comments."""
    return (row for row in rows if row.raw.strip() and not row.raw.startswith(b";;"))


def ctm(rows: Iterable[Row]) -> Iterator[Utterance]:
    """Yield each word of a ctm file; alternatives from <ALT_BEGIN> to <ALT_END> are one utterance.

    As in sclite, the middle of alternatives is the last of the middles of their words.
    """
    opened: Row | None = None  # the line of <ALT_BEGIN>
    parts: list[Utterance] = []  # the words of the alternatives, and a / after each of them
    for row in without_comments(rows):
        with located(row):
            fields = row.text().split()
            if not 5 <= len(fields) <= 8:
                raise InvalidInputError(
                    f"{len(fields)} field(s); a line is file channel start duration word"
                )
            mark = fields[4].upper()
            if mark not in ("<ALT_BEGIN>", "<ALT>", "<ALT_END>"):
                start, duration = (
                    number(name, text, "in seconds")
                    for name, text in zip(("start", "duration"), fields[2:4], strict=True)
                )
                word = _part(fields[:2], "", fields[4], row, (start, start + duration))
                if opened is None:
                    yield word
                else:
                    parts.append(word)
                continue
            if (mark == "<ALT_BEGIN>") == (opened is not None):
                raise InvalidInputError(
                    f"{fields[4]} {'inside' if opened else 'without'} <ALT_BEGIN>; alternatives "
                    "are <ALT_BEGIN>, words, <ALT>, words, <ALT_END>, a line each"
                )
            if mark == "<ALT_BEGIN>":
                opened, parts = row, []
                continue
            parts.append(_part(fields[:2], "", "/", row, (0.0, 0.0)))
            if mark == "<ALT_END>":
                yield _alternatives(parts)
                opened = None
    if opened is not None:
        with located(opened):
            raise InvalidInputError("<ALT_BEGIN> without <ALT_END>; add it")


def _alternatives(parts: Sequence[Utterance]) -> Utterance:
    """Return the utterance of alternatives, each of them ended by a /; an empty one becomes @."""
    words = [one for one in parts if one.texts != ("/",)]
    if not words:
        raise InvalidInputError("alternatives without a word; leave them out")
    texts: list[str] = []
    for one in parts:
        text = one.texts[0]
        if one in words and re.search("[{}/]", text):
            raise InvalidInputError(f"{text!r} in alternatives, where no word has {{, }} or /")
        texts += ["@", text] if text == "/" and texts[-1:] in ([], ["/"]) else [text]
    begin = min(one.times[0] for one in words)
    middle = max(one.times[1] for one in words)
    return words[0]._replace(
        texts=(f"{{ {' '.join(texts[:-1])} }}",), span=(begin, 2 * middle - begin)
    )


def stm(rows: Iterable[Row]) -> Iterator[Utterance]:
    """Yield each segment of an stm file; it has no text if sclite ignores it."""
    numbers: dict[str, int] = {}  # of the segments of each speaker
    for row in without_comments(rows):
        with located(row):
            fields = row.text().split(maxsplit=5)
            if len(fields) < 5:
                raise InvalidInputError(
                    f"{len(fields)} field(s); a line is file channel speaker start end text"
                )
            place, speaker, times = fields[:2], fields[2], fields[3:5]
            label, text = "", "".join(fields[5:]).strip()
            if match := re.match(r"<(\S*)>(?!\S)\s*", text):
                label, text = match[1], text[match.end() :]
            start, end = (
                number(name, time, "in seconds")
                for name, time in zip(("start", "end"), times, strict=True)
            )
            if end < start:
                raise InvalidInputError(f"the end, {end:g} s, is before the start, {start:g} s")
            one = _part(place, speaker, text, row, (start, end))
            if any(mark in text.lower() for mark in _IGNORED):
                yield one._replace(texts=())
                continue
            name = f"{speaker}-{numbers.setdefault(speaker, 0):03}"
            numbers[speaker] += 1
            yield one._replace(name=name, fields=one.fields | {"label": label})


def _part(
    place: Sequence[str], speaker: str, text: str, row: Row, span: tuple[float, float]
) -> Utterance:
    """Return a word or a segment of a file and a channel."""
    fields = {"speaker": speaker, "file": place[0], "channel": place[1]}
    return Utterance(None, (without_tags(text),), None, fields, row, True, span)


def channels(parts: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield an utterance for each channel of a file, its parts in the order of time.

    Raises
    ------
    RowError
        A segment is ignored, which needs the times of words.
    """
    found: dict[tuple[str, str], list[Utterance]] = {}
    for part in parts:
        if not part.texts:
            with located(part.row):
                raise InvalidInputError(
                    "a segment that is not scored; give the hypotheses as .ctm, whose words have "
                    "times"
                )
        found.setdefault((part.fields["file"], part.fields["channel"]), []).append(part)
    is_one = len({file for file, _ in found}) == len(found)
    for (file, channel), timed in found.items():
        in_order = sorted(timed, key=lambda part: part.times[0])
        text = " ".join(part.texts[0] for part in in_order if part.texts[0])
        name = file if is_one else f"{file}-{channel}"
        speakers = "+".join(sorted({part.fields["speaker"] for part in timed}))
        fields = {"speaker": speakers or speaker_of(name), "file": file, "channel": channel}
        yield Utterance(name, (text,), None, fields, timed[0].row, True)


def in_segments(words: Iterable[Utterance], segments: Sequence[Utterance]) -> list[Utterance]:
    """Return the hypothesis of each segment: the words of its channel, cut as sclite does.

    The segments of a channel are taken in the order of time.  A segment has the next words whose
    middle is before its end, and the last one has all that are left.

    Raises
    ------
    RowError
        The words of a channel have no segment.
    """
    members: dict[tuple[str, str], list[int]] = {}
    for i, one in enumerate(segments):
        members.setdefault(one.channel, []).append(i)
    spoken: dict[tuple[str, str], list[Utterance]] = {channel: [] for channel in members}
    for word in words:
        if word.channel not in spoken:
            with located(word.row):
                raise InvalidInputError(
                    f"no segment of the references has the file {word.channel[0]!r} and the "
                    f"channel {word.fields['channel']!r}; give the references of these words"
                )
        spoken[word.channel].append(word)
    texts = [""] * len(segments)
    for channel, own in members.items():
        own.sort(key=lambda i: segments[i].times[0])
        timed = sorted(spoken[channel], key=lambda word: word.times[0])
        next_word = 0
        for i in own:
            end = math.inf if i == own[-1] else segments[i].times[2]
            first = next_word
            while next_word < len(timed) and timed[next_word].times[1] < end:
                next_word += 1
            texts[i] = " ".join(word.texts[0] for word in timed[first:next_word])
    return [one._replace(texts=(text,)) for one, text in zip(segments, texts, strict=True)]
