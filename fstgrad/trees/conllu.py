"""Write trees into CoNLL-U files: heads, relations and confidences; all else is unchanged."""

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fstgrad.core.errors import InvalidInputError
from fstgrad.core.summary import short_repr
from fstgrad.io import read_lines

HEAD, RELATION, MISC = 6, 7, 9


@dataclass(frozen=True)
class Block:
    """The lines of one sentence: comments, words, multiword tokens and empty nodes."""

    name: str
    lines: tuple[str, ...]
    words: tuple[int, ...]  # line indices of the words 1 .. n
    sent_id: str | None = None

    __repr__ = short_repr

    def with_tree(
        self,
        heads: Sequence[int] | None,
        relations: Sequence[str] | None = None,
        confidences: Sequence[float] | None = None,
        comments: Sequence[str] = (),
    ) -> str:
        """Return the sentence as text with new heads and relations, and confidences in MISC.

        Arguments that are None change nothing.  comments : lines to put first, without the "# ".
        """
        lines = list(self.lines)
        for i, place in enumerate(self.words):
            columns = lines[place].split("\t")
            if heads is not None:
                columns[HEAD] = str(heads[i])
            if relations is not None:
                columns[RELATION] = relations[i]
            if confidences is not None:
                columns[MISC] = _with_feature(columns[MISC], f"{confidences[i]:.6f}")
            lines[place] = "\t".join(columns)
        first = next(i for i, line in enumerate([*lines, ""]) if not line.startswith("#"))
        lines[first:first] = [f"# {comment}" for comment in comments]
        return "\n".join(lines) + "\n\n"

    def heads(self) -> list[int | None]:
        """Return the heads in the file, None if it has none."""
        found = (self.lines[place].split("\t")[HEAD] for place in self.words)
        return [int(head) if head.isdigit() else None for head in found]


def _with_feature(misc: str, value: str) -> str:
    """Return a MISC column with Confidence=value; other entries are kept."""
    kept = [x for x in misc.split("|") if x != "_" and not x.startswith("Confidence=")]
    return "|".join([*kept, f"Confidence={value}"])


def read_blocks(path: str | pathlib.Path) -> Iterator[Block]:
    """Yield the sentences of a CoNLL-U file as their lines; `name` is the sent_id or the number."""
    lines: list[str] = []
    number = 0
    for line in [*read_lines(path), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            number += 1
            yield _block(lines, str(path), number)
            lines = []


def _block(lines: list[str], path: str, number: int) -> Block:
    name, sent_id = str(number), None
    words = []
    for place, line in enumerate(lines):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            if key.strip() == "sent_id" and value.strip():
                name = sent_id = value.strip()
            continue
        columns = line.split("\t")
        if len(columns) != 10:
            raise InvalidInputError(
                f"{path}, sentence {name}: {line[:40]!r} has {len(columns)} columns; CoNLL-U has "
                "10, between tabs"
            )
        if columns[0].isdigit():
            words.append(place)
            if int(columns[0]) != len(words):
                raise InvalidInputError(
                    f"{path}, sentence {name}: its words are not numbered 1, 2, ..."
                )
    return Block(name, tuple(lines), tuple(words), sent_id)
