"""Read and write files; errors name the file and the line.

All other readers and writers of the project use these functions.  Files are untrusted: nothing in
them is executed, and every declared size is compared with the bytes present.

Index
-----
- `read_pairs` : the pairs of a file in TSV, CSV or FASTA; the first bad row raises.
- `read_table`, `Row`, `located` : the same row by row, for readers that continue after a bad row.
- `read_rows` : the lines of any text.
- `read_numbers`, `Table` : a table of numbers in CSV or TSV, with the names of columns and rows.
- `read_lines`, `read_text`, `read_bytes`, `tokenize` : a whole file, the symbols of a text.
- `fallback_encoding` : reads files in another encoding than UTF-8.
- `read_transcripts`, `Utterance` : the utterances of a file, by name.
- `in_segments` : the words of a file, cut into the segments of another.
- `to_number`, `NUMBER`, `INTEGER` : the number that a text writes; the forms of numbers.
- `read_alphabet` : one symbol per line.
- `read_confusion` : the costs of pairs of symbols.
- `read_weights` : the weights in an npz file.
- `read_arrays`, `Field`, `load_arrays`, `load_array`, `json_object` : npz and npy files, typed.
- `Items`, `matched`, `listed` : the items of two files matched by name or by position.
- `memory_limit`, `shown` : the largest size of a file's arrays, a short text of a value.
- `replacing`, `check_writable`, `write_arrays`, `write_npz`, `write_text`, `write_bytes` : outputs,
  written completely or not at all.

Reading order
-------------
- `arrays`, `output` : npz and npy files; files written completely or not at all.
- `text`, `pairs`, `numbers` : text line by line; files of pairs; tables of numbers.
- `matching` : the items of two files.
- `timed`, `transcripts` : words and segments with times; utterances with names.
"""

from fstgrad.io.arrays import (
    Field,
    Path,
    json_object,
    load_array,
    load_arrays,
    memory_limit,
    read_arrays,
    shown,
)
from fstgrad.io.matching import Items, listed, matched
from fstgrad.io.numbers import NO_COLUMN, Table, read_numbers
from fstgrad.io.output import (
    check_writable,
    replacing,
    write_arrays,
    write_bytes,
    write_npz,
    write_text,
)
from fstgrad.io.pairs import read_pairs, read_table
from fstgrad.io.text import (
    INTEGER,
    NUMBER,
    Pair,
    Row,
    Tokens,
    fallback_encoding,
    located,
    read_alphabet,
    read_bytes,
    read_confusion,
    read_lines,
    read_rows,
    read_text,
    read_weights,
    to_number,
    tokenize,
)
from fstgrad.io.timed import Utterance, in_segments
from fstgrad.io.transcripts import read_transcripts

__all__ = [
    "INTEGER", "NO_COLUMN", "NUMBER", "Field", "Items", "Pair", "Path", "Row", "Table", "Tokens",
    "Utterance", "check_writable", "fallback_encoding", "in_segments", "json_object", "listed",
    "load_array", "load_arrays", "located", "matched", "memory_limit", "read_alphabet",
    "read_arrays", "read_bytes", "read_confusion", "read_lines", "read_numbers", "read_pairs",
    "read_rows", "read_table", "read_text", "read_transcripts", "read_weights", "replacing",
    "shown", "to_number", "tokenize", "write_arrays", "write_bytes", "write_npz", "write_text",
]  # fmt: skip
