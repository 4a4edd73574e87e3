"""The interface to OpenFst: conversion of FSTs to arrays and back, and the operations in use.

Only this package and the grammars import pynini.  The conventions:

- Weights pass through OpenFst's binary form, so float64 ("log64") and float32 ("standard") keep
  every bit.  A weight that pynini returns has passed through a string of nine digits.
- Operations return a new FST.  `delta`, the step to which OpenFst rounds weights, is explicit.
- Arc types and symbol tables are compared before an operation, because OpenFst's error is only
  "Operation failed", with the reason on standard error.

Index
-----
- `FstArrays`, `to_arrays`, `from_arrays`, `read` : the array form.
- `with_arc_type`, `symbol_table`, `with_symbols`, `with_character_symbols` : types and symbols.
- `acceptor_for` : one string with the labels of an FST, for pynini.
- `over_alphabet`, `acceptor_over` : an FST with the labels of an alphabet, matched by symbol.
- `read_file`, `read_collection`, `is_fst_file`, `is_binary`, `write_file`, `write_archive`,
    "over_alphabet", "parse_lattices", "parse_text", "project", "prune", "read",
    "read_collection", "read_file", "read_rule_names", "remove_epsilons", "shortest_distance",
    "string_lengths", "symbol_table", "to_arrays", "topsort", "union", "with_arc_type",
    "with_character_symbols", "with_symbols", "write_archive", "write_file",
- `IS_INSTALLED`, `missing` : whether pynini is installed, and the error if it is not.
- `caught_messages` : the reasons that OpenFst writes to standard error.
- `compose`, `union`, `project`, `connect`, `topsort`, `arc_sort`, `remove_epsilons`,
  `minimize`, `determinize`, `prune`, `shortest_distance` : operations.
- `is_acceptor`, `is_acyclic`, `is_empty`, `string_lengths` : properties.

Labels are those of `Alphabet`: id + 1, and 0 is epsilon.  Weights are costs: tropical costs in
"standard", negative natural logarithms in "log64".

Reading order
-------------
- `library` : pynini or stand-ins; the reasons of its errors.
- `arrays`, `binary`, `symbols`, `conversion` : FSTs as arrays, and the binary form between.
- `subprocess`, `operations`, `rewriting` : a separate process; operations; replacement rules.
- `lines`, `text`, `lattice_text`, `files` : lines of AT&T text; their FST; lattices, also of Kaldi
  and k2; FST files.
"""

from fstgrad.openfst.arrays import ArcType, FstArrays, Symbols
from fstgrad.openfst.conversion import (
    Fst,
    acceptor_for,
    from_arrays,
    read,
    to_arrays,
    with_arc_type,
    with_character_symbols,
    with_symbols,
)
from fstgrad.openfst.files import (
    RULES,
    is_binary,
    is_fst_file,
    read_collection,
    read_file,
    read_rule_names,
    write_archive,
    write_file,
)
from fstgrad.openfst.lattice_text import parse_lattices
from fstgrad.openfst.library import IS_INSTALLED, caught_messages, missing
from fstgrad.openfst.operations import (
    arc_sort,
    compose,
    connect,
    determinize,
    is_acceptor,
    is_acyclic,
    is_empty,
    minimize,
    project,
    prune,
    remove_epsilons,
    shortest_distance,
    string_lengths,
    topsort,
    union,
)
from fstgrad.openfst.symbols import (
    acceptor_over,
    check_sides,
    check_symbols,
    over_alphabet,
    symbol_table,
)
from fstgrad.openfst.text import parse_text

__all__ = [
    "IS_INSTALLED", "RULES",
    "ArcType", "Fst", "FstArrays", "Symbols", "acceptor_for", "acceptor_over", "arc_sort",
    "caught_messages", "check_sides", "check_symbols", "compose", "connect", "determinize",
    "from_arrays",
    "is_acceptor", "is_acyclic", "is_binary", "is_empty", "is_fst_file", "minimize", "missing",
    "over_alphabet", "parse_lattices", "parse_text", "project", "prune", "read",
    "read_collection", "read_file", "read_rule_names", "remove_epsilons", "shortest_distance",
    "string_lengths", "symbol_table", "to_arrays", "topsort", "union", "with_arc_type",
    "with_character_symbols", "with_symbols", "write_archive", "write_file",
]  # fmt: skip
