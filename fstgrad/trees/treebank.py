"""Treebanks in CoNLL-U, read and written, and score tables in npz files.

A `Block` has all lines of a sentence; heads, relations and confidences are written into it, and all
else is unchanged.  A `Sentence` has what parsing needs.

A file of scores holds either one table per sentence, (n+1, n+1) or (n+1, n+1, y), named by its
sent_id; or a padded array `scores`, (b, m+1, m+1) or (b, m+1, m+1, y) with labels, and an array
`lengths` (b,), in the order of the sentences.
"""

import pathlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.io import Items, load_arrays, matched, read_lines, shown
from fstgrad.trees.structures import PADDING, check_cycles

_UNNAMED = "give the tables in order, as one padded array `scores` with `lengths`"
HEAD, RELATION, DEPS, MISC = 6, 7, 8, 9  # columns of CoNLL-U
_ID = re.compile(r"[0-9]+([-.][0-9]+)?")  # a word, a multiword token 1-2 or an empty node 1.1
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"


@dataclass(frozen=True, eq=False)
class Sentence:
    """One tree of a treebank with the words 1 .. n.

    heads : (n,) int64, 0 is the root and -1 unknown; relations, forms and tags : n strings each.
    """

    name: str  # the sent_id, or the number of the sentence in the file
    forms: tuple[str, ...]
    tags: tuple[str, ...]
    heads: IntArray
    relations: tuple[str, ...]
    sent_id: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True)
class Block:
    """The lines of one sentence: comments, words, multiword tokens and empty nodes.

    Comments that stand alone, between empty lines, are a block without words.
    """

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

        Arguments that are None change nothing.  New heads leave no DEPS, the graph of the old ones.
        comments : lines to put first, without the "# ".
        """
        lines = list(self.lines)
        for i, place in enumerate(self.words):
            columns = lines[place].split("\t")
            if heads is not None:
                columns[HEAD], columns[DEPS] = str(heads[i]), "_"
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
        heads = (self.lines[place].split("\t")[HEAD] for place in self.words)
        return [int(head) if _NUMBER.fullmatch(head) else None for head in heads]


def _with_feature(misc: str, value: str) -> str:
    """Return a MISC column with Confidence=value; other entries are kept."""
    entries = misc.rstrip(" ").split("|")
    others = [x for x in entries if x not in ("", "_") and not x.startswith("Confidence=")]
    return "|".join([*others, f"Confidence={value}"])


def read_blocks(path: str | pathlib.Path) -> Iterator[Block]:
    """Yield the sentences of a CoNLL-U file as their lines, and the comments that stand alone.

    The name of a sentence is its sent_id, or its number.
    """
    lines: list[str] = []
    number = 1
    for line in [*read_lines(path), ""]:
        if "\r" in line:
            raise InvalidInputError(
                f"{path}: a carriage return in {shown(line[:40])}; end all lines with \\n or \\r\\n"
            )
        if line.strip():
            lines.append(line)
        elif lines:
            block = _block(lines, str(path), number)
            yield block
            number += bool(block.words)
            lines = []


def _block(lines: list[str], path: str, number: int) -> Block:
    name, sent_id = str(number), None
    words = []
    for place, line in enumerate(lines):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            if key.strip() == "global.columns" and value.split() != _COLUMNS.split():
                raise InvalidInputError(
                    f"{path}: its columns are {shown(value.strip())}; convert it to CoNLL-U, with "
                    f"{_COLUMNS}"
                )
            if key.strip() == "sent_id" and value.strip():
                if sent_id not in (None, value.strip()):
                    raise InvalidInputError(
                        f"{path}, sentence {name}: it has another sent_id, {shown(value.strip())}; "
                        "leave one out"
                    )
                name = sent_id = value.strip()
            continue
        columns = line.split("\t")
        if len(columns) != 10:
            raise InvalidInputError(
                f"{path}, sentence {name}: {line[:40]!r} has {len(columns)} columns; CoNLL-U has "
                "10, between tabs"
            )
        if not _ID.fullmatch(columns[0]):
            raise InvalidInputError(
                f"{path}, sentence {name}: a word has the ID {columns[0]!r}; words are numbered "
                "1, 2, ..., in the digits 0 to 9"
            )
        if columns[0].isdigit():
            words.append(place)
            if columns[0] != str(len(words)):
                raise InvalidInputError(
                    f"{path}, sentence {name}: its words are not numbered 1, 2, ..."
                )
    if not words and not all(line.startswith("#") for line in lines):
        raise InvalidInputError(f"{path}, sentence {name}: it has no words numbered 1, 2, ...")
    return Block(name, tuple(lines), tuple(words), sent_id)


def read_conllu(
    path: str | pathlib.Path, *, partial: bool = False, cyclic: bool = False
) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-U file without multiword tokens and empty nodes.

    partial : whether words may have the head _, which becomes -1; otherwise it is an error.
    cyclic : whether heads may have a cycle, as those of a parser; otherwise it is an error.
    """
    conllu = checks.extra("conllu", "trees", "reading CoNLL-U")
    blocks = (block for block in read_blocks(path) if block.words)
    for number, block in enumerate(blocks, start=1):
        _check_numbers(block, str(path))
        try:
            parsed = conllu.parse("\n".join(block.lines) + "\n\n")
            checked = [_sentence(tokens, str(path), number, partial=partial) for tokens in parsed]
        except InvalidInputError:
            raise
        except Exception as error:  # the parser accepts files that rename their columns
            message = str(error) or type(error).__name__
            raise InvalidInputError(f"{path}, sentence {block.name}: {message}") from error
        for sentence in checked:
            if not cyclic and (cycle := cycle_of(sentence)):
                raise InvalidInputError(f"{path}, {cycle}")
            yield sentence


def cycle_of(sentence: Sentence) -> str:
    """Return the error for a cycle of heads, "" if there is none."""
    heads = sentence.heads[None]
    try:
        check_cycles(heads, heads >= 0, f"sentence {sentence.name}", lambda _: "")
    except InvalidInputError as error:
        return str(error)
    return ""


def _check_numbers(block: Block, path: str) -> None:
    """Raise InvalidInputError unless the heads of a sentence are numbers or _."""
    for place, head in zip(block.words, block.heads(), strict=True):
        text = block.lines[place].split("\t")[HEAD]
        if head is None and text != "_":
            raise InvalidInputError(
                f"{path}, sentence {block.name}: word {block.lines[place].split()[0]} has the head "
                f"{text!r}; heads are 0, the root, to {len(block.words)}, the number of a word"
            )


def _sentence(tokens: object, path: str, number: int, *, partial: bool) -> Sentence:
    words = [token for token in tokens if isinstance(token["id"], int)]  # type: ignore[attr-defined]
    sent_id = tokens.metadata.get("sent_id") or None  # type: ignore[attr-defined]
    name = sent_id or str(number)
    for word in words:
        if partial and word["head"] is None:
            continue
        if not isinstance(word["head"], int):
            raise InvalidInputError(
                f"{path}, sentence {name}: word {word['id']} has the head {word['head']!r}; "
                "every word needs one, 0 for the root"
            )
        if not 0 <= word["head"] <= len(words):
            raise InvalidInputError(
                f"{path}, sentence {name}: word {word['id']} has the head {word['head']}; heads "
                f"are 0 .. {len(words)}"
            )
    heads = np.array([PADDING if (h := word["head"]) is None else h for word in words], np.int64)
    return Sentence(
        name,
        tuple(word["form"] for word in words),
        tuple(word["upos"] or "_" for word in words),
        heads,
        tuple(word["deprel"] or "_" for word in words),
        sent_id,
    )


@dataclass(frozen=True)
class Scores:
    """The tables of a file of scores, in its order, and a name for each.

    are_named : False for a padded array and for the arr_0, arr_1, ... of `np.savez(path, *list)`,
        whose tables belong to sentences by their position.
    """

    path: str
    names: tuple[str, ...]
    tables: tuple[FloatArray, ...]
    are_named: bool

    __repr__ = short_repr

    def items(self) -> Items:
        """Return the names of the tables, to be matched."""
        names = self.names if self.are_named else [None] * len(self.names)
        return Items(names, self.path, "table", unnamed=_UNNAMED)

    def in_order_of(self, sentences: Items) -> "Scores":
        """Return the tables in the order of sentences, matched as in `fstgrad.io.matched`."""
        places = matched(sentences, self.items())
        names, tables = (self.names[i] for i in places), (self.tables[i] for i in places)
        return Scores(self.path, tuple(names), tuple(tables), self.are_named)


def read_scores(path: str | pathlib.Path) -> Scores:
    """Return the tables of a file of scores, in the order of the file."""
    try:
        arrays = load_arrays(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} is not an npz file: {error}") from error
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise InvalidInputError(f"{path}: {name} has dtype {array.dtype}; give numbers")
    if set(arrays) == {"scores", "lengths"}:
        padded = arrays["scores"]
        if padded.ndim not in (3, 4):
            raise InvalidInputError(
                f"{path}: scores has shape {padded.shape}; beside lengths it must be a batch, "
                "(b, m+1, m+1) or (b, m+1, m+1, y)"
            )
        lengths = checks.index_array(
            "lengths",
            arrays["lengths"],
            padded.shape[1],
            (len(padded),),
            lower=1,
            what="numbers of words without the root",
        )
        tables = [table[: n + 1, : n + 1] for table, n in zip(padded, lengths, strict=True)]
        return Scores(str(path), tuple(map(str, range(len(tables)))), tuple(tables), False)
    for name, table in arrays.items():
        if table.ndim not in (2, 3):
            raise InvalidInputError(
                f"{path}: {name} has shape {table.shape}; give a table for each sentence, "
                "(n+1, n+1) or (n+1, n+1, y), or scores and lengths"
            )
    if not arrays:
        raise InvalidInputError(f"{path} holds no array; give a table for each sentence")
    are_named = list(arrays) != [f"arr_{i}" for i in range(len(arrays))]
    return Scores(str(path), tuple(arrays), tuple(arrays.values()), are_named)
