"""Objectives over lattices in files: `fstgrad grad` and `fstgrad risk` with --lattices."""

import csv
import difflib
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import click
import numpy as np

from fstgrad.cli.command import reject_options
from fstgrad.cli.loss_options import build_loss
from fstgrad.cli.output import echo, progress
from fstgrad.cli.pair_options import (
    LOSS_PARAMETERS,
    NEED_LOSS,
    LatticeOptions,
    ProblemOptions,
    unit_of,
)
from fstgrad.cli.reading import RowLoop, note_alphabet
from fstgrad.cli.rescoring import WordCosts
from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.io import Row, read_alphabet, read_table, tokenize, write_text
from fstgrad.learning.objective import DEFAULT_CONSTANTS, ObjectiveConstants, ObjectiveKind
from fstgrad.losses import Loss
from fstgrad.losses.automata.caps import check_cap
from fstgrad.openfst import Fst, to_arrays, write_archive
from fstgrad.strings import Lattice, LatticeLoss, direct_loss, hinge, raml, softmax_margin
from fstgrad.strings.lattices.graph import NO_SYMBOL

_ONLY_FOR_PAIRS = (
    "output", "journal", "cache", "cache_gib", "jobs", "method", "samples", "seed", "proposal",
    "seconds", "weights",
    "random_weights", "order", "engine", "tolerance", "prune", "top", "tokens_x",
)  # fmt: skip


_TABLE = ".tsv"
_Evaluation: TypeAlias = tuple[float, FloatArray, FloatArray]


@dataclass(frozen=True)
class LatticeResult:
    """The results for one lattice with A arcs, and its target.

    value : in nats; gradient (A,) : in the scores of the arcs; posterior (A,) : of the arcs.
    """

    lattice: Lattice
    b: LatticeLoss | None
    value: float
    gradient: FloatArray
    posterior: FloatArray
    seconds: float


def lattice_objective(
    pairs: str,
    kind: ObjectiveKind,
    options: ProblemOptions,
    lattices: LatticeOptions,
    skip_errors: bool,
    constants: ObjectiveConstants = DEFAULT_CONSTANTS,
) -> None:
    """Print one JSON line for each row (name TAB target); then write the requested archives."""
    reject_options(_ONLY_FOR_PAIRS, "with --lattices")
    _check_loss_options(kind, options)
    for path in (lattices.posteriors, lattices.gradients):
        if path is not None and not path.lower().endswith((_TABLE, ".far")):
            raise click.UsageError(f"{path!r}: give a name that ends in .tsv (a table) or .far")
    alphabet_file = options.reading.alphabet
    alphabet = None if alphabet_file is None else read_alphabet(alphabet_file)
    source = str(lattices.source)
    rescoring = lattices.rescoring
    costs = rescoring.words()
    acceptors = rescoring.read(source, alphabet=alphabet, symbols=lattices.symbols)
    rows = list(read_table(pairs))
    alphabet = alphabet or _alphabet(source, acceptors, rows, options)
    loss = None if kind == "crf" else build_loss(options.choice, alphabet)
    if kind not in ("softmax-margin", "crf") and loss is None:
        raise click.UsageError(f"--objective {kind} needs a loss; give --loss")
    evaluate = partial(_evaluate, kind, constants)
    loop = RowLoop(
        lambda row: _solve_row(
            row, _found(row, source, acceptors, alphabet, costs), loss, evaluate, options
        ),
        skip_errors,
    )
    start, total = time.perf_counter(), 0.0
    results: dict[str, LatticeResult] = {}
    writes = lattices.posteriors is not None or lattices.gradients is not None
    for row, result in loop.run(progress(rows, kind)):
        if result is None:
            continue
        total += result.value
        echo(_json_line(row, result))
        if writes:
            results[row.columns()[0]] = replace(result, b=None)
    _write(lattices.posteriors, "posterior", results, acceptors)
    _write(lattices.gradients, "gradient", results, acceptors)
    costs.note_unused()
    echo(
        f"{kind}: mean {total / loop.done:.6f}{unit_of(kind)} over {loop.done:,} lattices in "
        f"{time.perf_counter() - start:.1f} s",
        err=True,
    )


def _write(
    path: str | None,
    quantity: Literal["posterior", "gradient"],
    results: Mapping[str, LatticeResult],
    acceptors: Mapping[str, Fst],
) -> None:
    """Write a quantity of the arcs: a table, if the path ends with .tsv, else an archive of FSTs.

    The table has the arcs that read a word, with the states of the acceptors.
    """
    if path is None:
        return
    if not path.lower().endswith(_TABLE):
        with np.errstate(divide="ignore"):
            weights = {
                name: np.log(one.posterior) if quantity == "posterior" else -one.gradient
                for name, one in results.items()
            }
        write_archive(
            path, {name: one.lattice.to_fst(weights[name]) for name, one in results.items()}
        )
        return
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerow(("lattice", "from", "to", "word", quantity))
    for name, one in results.items():
        lattice, arcs = one.lattice, to_arrays(acceptors[name])
        for arc in np.flatnonzero(lattice.label != NO_SYMBOL).tolist():
            place = lattice.origin[arc]
            word = lattice.alphabet.symbols[lattice.label[arc]]
            value = float(getattr(one, quantity)[arc])
            table.writerow((name, arcs.source[place], arcs.nextstate[place], word, value))
    write_text(path, text.getvalue())


def _check_loss_options(kind: ObjectiveKind, options: ProblemOptions) -> None:
    """Reject options that have no effect without a loss."""
    if kind == "crf":
        reject_options((*LOSS_PARAMETERS, *NEED_LOSS), "with --objective crf, which uses no loss")
    if options.choice.loss == "none":
        reject_options(NEED_LOSS, "with --loss none")


def _found(
    row: Row, source: str, acceptors: dict[str, Fst], alphabet: Alphabet, costs: WordCosts
) -> Lattice:
    """Return the lattice that a row names."""
    name = row.columns()[0]
    if name not in acceptors:
        similar = difflib.get_close_matches(name, acceptors) or sorted(acceptors)[:3]
        raise InvalidInputError(f"no lattice {name!r}; --lattices has {', '.join(similar)}")
    return costs.lattice(lattice_over(alphabet, source, name, acceptors[name]))


def _solve_row(
    row: Row,
    lattice: Lattice,
    loss: Loss | None,
    evaluate: Callable[[Lattice, IntArray, LatticeLoss | None], _Evaluation],
    options: ProblemOptions,
) -> LatticeResult:
    begin = time.perf_counter()
    text = row.columns()[1]
    symbols = tokenize(text, options.reading.tokens_y)
    target = lattice.alphabet.encode(symbols, name="the target")
    b = None
    if loss is not None:
        cap, max_states = options.compilation.cap, options.compilation.max_states
        fixed = None if cap is None else check_cap(cap)
        b = lattice.compile(loss, target, cap=fixed, max_states=max_states)
    value, gradient, posterior = evaluate(lattice, target, b)
    seconds = time.perf_counter() - begin
    return LatticeResult(lattice, b, value, gradient, posterior, seconds)


def _evaluate(
    kind: ObjectiveKind,
    constants: ObjectiveConstants,
    lattice: Lattice,
    target: IntArray,
    b: LatticeLoss | None,
) -> _Evaluation:
    """Return the value (nats), its gradient (A,) and the arc posteriors (A,).

    The posteriors are under exp(loss + score) / Z for the softmax margin, else under the model.
    """
    if b is None or kind == "softmax-margin":
        value, gradient = softmax_margin(lattice, target, b)
        return value, gradient, gradient + lattice.parts(target)
    if kind == "risk":
        value, gradient = b.risk(lattice.graph, lattice.scores)
    elif kind == "hinge":
        value, gradient = hinge(lattice, target, b)
    elif kind == "raml":
        value, gradient = raml(lattice, b, constants.temperature)
    else:
        value, gradient = direct_loss(lattice, b, constants.epsilon)
    return value, gradient, lattice.marginals()


def _alphabet(
    source: str, acceptors: dict[str, Fst], rows: list[Row], options: ProblemOptions
) -> Alphabet:
    """Return the alphabet of the symbols of the lattices and the targets."""
    symbols = lattice_symbols(acceptors, "give --symbols, or --alphabet if labels count from 1")
    _check_tokens(symbols, options.reading.tokens_y)
    of_targets: set[str] = set()
    for row in rows:
        try:
            of_targets |= set(tokenize(row.columns()[1], options.reading.tokens_y))
        except InvalidInputError:
            continue  # reported when this row is computed
    note_numbers(source, symbols, of_targets)
    alphabet = Alphabet(sorted(symbols | of_targets))
    note_alphabet(alphabet)
    return alphabet


def lattice_symbols(acceptors: dict[str, Fst], remedy: str) -> set[str]:
    """Return the symbols on the arcs of lattices; `remedy` tells what to do without a table."""
    symbols: set[str] = set()
    for name, fst in acceptors.items():
        arrays = to_arrays(fst)
        table = arrays.input_symbols or arrays.output_symbols
        if table is None:
            raise InvalidInputError(f"lattice {name!r} has no symbol table; {remedy}")
        used_labels = set(arrays.ilabel.tolist()) - {0}
        symbols |= {symbol for label, symbol in table if label in used_labels}
    return symbols - {EPSILON_SYMBOL}


def note_numbers(path: str, symbols: set[str], of_targets: set[str]) -> None:
    """Say so if the symbols of lattices seem to be labels of a table of symbols."""
    if symbols and all(map(str.isdecimal, symbols)) and not symbols & of_targets:
        echo(
            f"{path}: all symbols are numbers and none is in the references; if they are labels of "
            "a table of symbols, give it as --symbols",
            err=True,
        )


def lattice_over(alphabet: Alphabet, path: str, name: str, fst: Fst) -> Lattice:
    """Return a lattice; errors name it and the file or folder that it was read from."""
    try:
        return Lattice.from_fst(fst, alphabet)
    except FstgradError as error:
        raise type(error)(f"{path}: lattice {name!r}: {error}") from error


def _check_tokens(symbols: set[str], tokens: str) -> None:
    """Raise UsageError if targets are read as characters, but lattices have words.

    A mark such as <unk> is no word.
    """
    words = (s for s in sorted(symbols) if len(s) > 1 and not (s[0] == "<" and s[-1] == ">"))
    if tokens == "chars" and (word := next(words, None)):
        raise click.UsageError(
            f"the lattices have words such as {word!r}, and --tokens-y chars reads the characters "
            "of targets; give --tokens-y words"
        )


def _json_line(row: Row, result: LatticeResult) -> str:
    lattice, b = result.lattice, result.b
    line: dict[str, Any] = {
        "line": row.line,
        "lattice": row.columns()[0],
        "objective": result.value,
        "log_z": lattice.log_partition(),
        "arcs": lattice.num_arcs,
        "states": 0 if b is None else b.num_states,
        "least_loss": None if b is None else b.closest()[1],
        "seconds": round(result.seconds, 6),
    }
    return json.dumps(line, ensure_ascii=False)
