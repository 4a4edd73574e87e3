"""`fstgrad predict`, `evaluate` and `compare`: commands that use trained models."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import click

from fstgrad.cli.command import Command
from fstgrad.cli.loss_options import LossChoice, model_loss_options
from fstgrad.cli.model_files import inputs_and_targets, model_loss, open_model
from fstgrad.cli.output import echo, note
from fstgrad.cli.pair_options import TRAIN_MODEL, WRITE_WORDS, pairs_argument
from fstgrad.cli.parameter_types import (
    FILE_OR_DASH,
    Input,
    bootstrap_seed_option,
    nbest_option,
    resamples_option,
)
from fstgrad.cli.reading import column_names, composed, read_columns, read_input
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import Row, located, read_rows, read_table
from fstgrad.io.matching import listed
from fstgrad.learning import measures
from fstgrad.learning.comparison import compare as compared
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.templates import symbols_of
from fstgrad.learning.vocabulary import WindowNames


@click.command(
    cls=Command,
    examples=(WRITE_WORDS, TRAIN_MODEL, r"printf 'tac\n' | fstgrad predict model.npz - --nbest 2"),
)
@click.argument("model", type=Input())
@click.argument("input", type=FILE_OR_DASH)
@nbest_option(
    "Write the K best outputs of every input, with log p(y | x) in nats as a third column.", None
)
def predict(model: str, input: str, nbest: int | None) -> None:
    """Write x TAB y for the most probable y of every x.

    INPUT is a file with one x per line, or - for standard input.  If the model was trained with
    tags, give them in a column on the same side of x as in training.  In a file of pairs, as in
    training, y is not read; in a CSV file, the column named x (or hypothesis, source, input) is.  A
    column of row numbers would be taken for x: leave it out.  For an empty x, the output is an
    empty line.
    """
    fitted, reading, tags = open_model(model)
    separator = " " if reading.tokens_y == "words" else ""
    new: dict[str, None] = {}
    for row, texts in _inputs(input, tags):
        with located(row):
            x = read_input(texts, reading)
            best = _best(fitted, x, nbest) if len(x) else []
        new |= dict.fromkeys(_new_symbols(fitted, x))
        if not best:
            echo("")
        for y, probability in best:
            columns = [*texts.values(), composed(separator.join(y), reading)]
            if nbest is not None:
                columns.append(f"{probability:.6f}")
            echo("\t".join(columns))
    _note_new(new)


def _note_new(symbols: Iterable[str]) -> None:
    """Say which symbols of inputs were not in the pairs of the training, if there are any."""
    if new := list(dict.fromkeys(symbols)):
        note(f"fstgrad: not in the pairs of the training: the symbols {listed(map(repr, new))}")


def _inputs(path: str, tags: int | None) -> Iterator[tuple[Row, dict[str, str]]]:
    """Yield the rows of a file with the texts of x and the tags; y is left out of pairs."""
    names: tuple[str, ...] = ("x",)
    place = tags and min(tags, 2)
    is_csv = path.lower().endswith((".csv", ".csv.gz"))
    rows = read_table(path, column_names(names, place)) if is_csv else read_rows(path)
    for number, row in enumerate(rows):
        if number == 0 and row.raw.count(b"\t") == len(column_names(("x", "y"), tags)) - 1:
            names, place = ("x", "y"), tags
            order = column_names(names, place)
            x, y = (order.index(name) + 1 for name in names)
            note(f"fstgrad: {path} has pairs: column {x} is x, and column {y}, y, is not read")
        with located(row):
            texts = read_columns(row, names, place)
        texts.pop("y", None)
        yield row, texts


def _new_symbols(fitted: SequenceModel, x: Any) -> list[str]:
    """Return the symbols of an input for which the model has no features of its own."""
    vocabulary = fitted.features_.vocabulary
    if not isinstance(vocabulary, WindowNames):
        return []
    known = set(vocabulary.symbols)
    return [symbol for symbol in symbols_of(x) if symbol not in known]


def _best(fitted: SequenceModel, x: Any, nbest: int | None) -> list[tuple[Any, float]]:
    """Return the `nbest` best outputs with log p (nats); without `nbest`, the best one with 0."""
    return [(fitted.predict([x])[0], 0.0)] if nbest is None else fitted.predict_nbest([x], nbest)[0]


@click.command(
    cls=Command,
    examples=(WRITE_WORDS, TRAIN_MODEL, "fstgrad evaluate model.npz words.tsv --errors"),
)
@click.argument("model", type=Input())
@pairs_argument
@model_loss_options
@click.option(
    "--errors", is_flag=True, help="Print the most common symbol errors to standard error."
)
def evaluate(model: str, pairs: str, choice: LossChoice, errors: bool) -> None:
    """Write the measures of a model on PAIRS as one JSON line.

    accuracy: share of predictions equal to y; loss: mean loss, null without a loss; error_rate: sum
    of the edit distances divided by the number of symbols of y; unknown: number of pairs whose y
    has a symbol that the model never writes.  These pairs count as wrong, and the mean loss leaves
    them out.
    """
    fitted, reading, tags = open_model(model)
    if {"wer": "chars", "cer": "words"}.get(choice.loss) == reading.tokens_y:
        raise click.UsageError(
            f"--loss {choice.loss} does not count {reading.tokens_y}, which the model writes; use "
            f"--loss {'cer' if choice.loss == 'wer' else 'wer'}"
        )
    fitted.loss_ = model_loss(model, fitted, choice)
    inputs, targets = inputs_and_targets(pairs, reading, tags)
    _note_new(symbol for x in inputs for symbol in _new_symbols(fitted, x))
    result = fitted.evaluate(inputs, targets)
    if errors:
        echo(str(measures.errors(fitted.predict(inputs), targets)), err=True)
    finite = {k: v if math.isfinite(v) else None for k, v in result._asdict().items()}
    echo(json.dumps(finite))


@click.command(
    cls=Command,
    examples=(
        WRITE_WORDS,
        TRAIN_MODEL,
        "fstgrad train words.tsv --tokens-y words --objective crf -o crf.npz",
        "fstgrad compare model.npz crf.npz words.tsv",
    ),
)
@click.argument("first", type=Input())
@click.argument("second", type=Input())
@pairs_argument
@resamples_option
@bootstrap_seed_option
def compare(first: str, second: str, pairs: str, resamples: int, seed: int) -> None:
    """Compare two models, FIRST and SECOND, on PAIRS, and write one JSON line.

    word_error and symbol_error give [value, lower, upper] for each model, with a 95 percent
    bootstrap interval.  The differences are SECOND minus FIRST: a negative one favours SECOND.
    p_word and p_symbol are two-sided p-values of a paired bootstrap test of no difference.
    """
    models = [open_model(path) for path in (first, second)]
    if models[0][1:] != models[1][1:]:
        raise InvalidInputError(
            f"{first} and {second} read pairs in different ways (--tokens-x, --tokens-y, --tags); "
            "compare models that were trained on the same columns"
        )
    inputs, targets = inputs_and_targets(pairs, *models[0][1:])
    _note_new(symbol for model, *_ in models for x in inputs for symbol in _new_symbols(model, x))
    ours, theirs = ([list(y) for y in model.predict(inputs)] for model, *_ in models)
    result = compared(ours, theirs, targets, resamples=resamples, rng=seed)
    echo(json.dumps(result._asdict() | {"matched_pairs": result.matched_pairs._asdict()}))
