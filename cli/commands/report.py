"""`fstgrad report`: write one HTML page about the output of a run."""

import json
import pathlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import click
import numpy as np

from fstgrad._version import __version__
from fstgrad.cli.command import Command, reject_options
from fstgrad.cli.commands.grm_tables import (
    TableLayout,
    columns_in_order,
    layout_options,
    read_tables,
)
from fstgrad.cli.commands.page import Page
from fstgrad.cli.commands.score_page import add_errors, add_picture
from fstgrad.cli.loss_options import LossChoice, model_loss_options
from fstgrad.cli.model_files import inputs_and_targets, model_loss, open_model
from fstgrad.cli.output import echo
from fstgrad.cli.pair_options import TRAIN_MODEL, WRITE_WORDS
from fstgrad.cli.parameter_types import FILE, FILE_OR_DASH, Input, Output, integer_from
from fstgrad.cli.problem import format_qgram, largest_entries
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import load_arrays, read_lines, write_text
from fstgrad.learning import measures
from fstgrad.learning.edits import Edits
from fstgrad.learning.recipes import RECIPES
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.storage import NO_PART_OF_THE_RESULT
from fstgrad.learning.templates import Tagged, symbols_of

_EDGES = 30  # largest number of sets of each size in a picture of a root model
_UNITS = "Objectives are in nats, but a risk is an expected loss, in the unit of the loss."


@click.command(
    cls=Command,
    examples=(
        WRITE_WORDS,
        TRAIN_MODEL,
        "fstgrad grad words.tsv --tokens-y words -o gradient.npz > lines.jsonl",
        "fstgrad report model.npz lines.jsonl gradient.npz --pairs words.tsv -o report.html",
    ),
)
@click.argument("runs", type=Input(pipes=False), nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=Output(),
    required=True,
    metavar="FILE.html",
    help="Write the page to this file.",
)
@click.option(
    "--pairs",
    type=FILE_OR_DASH,
    help="With a sequence model: predict these pairs, and show the worst with their alignments.",
)
@click.option(
    "--counts",
    type=FILE,
    help="With a root model: compare samples of it with this table, as `fstgrad grm report` does.",
)
@click.option(
    "--top",
    type=integer_from(1),
    default=200,
    show_default=True,
    help="Maximum number of rows in a table.",
)
@model_loss_options
@layout_options
def report(
    runs: tuple[str, ...],
    output: str,
    pairs: str | None,
    counts: str | None,
    top: int,
    choice: LossChoice,
    layout: TableLayout,
) -> None:
    """Write one self-contained HTML page about a run: settings, tables, curves, worst pairs.

    RUN is the output of a command: the lines of grad or risk (.jsonl) or their arrays (-o
    FILE.npz), the line of evaluate (.json), a model of train, or a model of grm fit.  Several files
    make one page.  You can sort and search its tables; it loads nothing from a network.
    """
    page = Page(f"fstgrad: {', '.join(pathlib.Path(run).name for run in runs)}")
    if counts is None:
        reject_options(("header", "index_column"), "without --counts")
    if pairs is None:
        reject_options([field.name for field in fields(LossChoice)], "without --pairs")
    kinds = []
    for run in runs:
        page.heading(run)
        kinds.append(_add_run(page, run, pairs, top, choice))
        if kinds[-1] == "counts" and counts is not None:
            _add_comparison(page, run, counts, layout)
    if pairs is not None and "sequences" not in kinds:
        raise click.UsageError("--pairs has no effect without a model of fstgrad train")
    if counts is not None and "counts" not in kinds:
        raise click.UsageError("--counts has no effect without a model of fstgrad grm fit")
    page.note(f"Made by fstgrad {__version__}.")
    write_text(output, page.text())
    echo(f"wrote {output}")


def _add_run(
    page: Page, run: str, pairs: str | None, top: int, choice: LossChoice
) -> Literal["lines", "gradient", "sequences", "counts"]:
    """Add the contents of a file; return what it is: lines, a gradient, or a model of these."""
    with pathlib.Path(run).open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if not is_archive:
        _add_lines(page, run, top)
        return "lines"
    try:
        names = load_arrays(run)
    except InvalidInputError as error:
        raise InvalidInputError(f"{run}: {error}") from error
    if "gradient" in names:
        _add_gradient(page, run, names, top)
        return "gradient"
    if "families" in names:
        _add_counts(page, run, top)
        return "counts"
    _add_model(page, run, pairs, top, choice)
    return "sequences"


def _add_lines(page: Page, run: str, top: int) -> None:
    """Add the JSON lines of grad, risk or evaluate."""
    rows = []
    for number, line in enumerate(read_lines(run), start=1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{run}:{number}: not JSON: {error}") from error
        if not isinstance(rows[-1], dict):
            raise InvalidInputError(
                f"{run}:{number}: not a JSON object; give the output of a command"
            )
    if not rows:
        raise InvalidInputError(f"{run} has no lines; give the output of a command")
    if len(rows) == 1 and "objective" not in rows[0]:
        page.table(("measure", "value"), [(name, _cell(v)) for name, v in rows[0].items()])
        return
    values = [row["objective"] for row in rows if isinstance(row.get("objective"), int | float)]
    if values:
        mean, worst = float(np.mean(values)), float(max(values))
        page.table(
            ("measure", "value"),
            [("pairs", len(rows)), ("mean objective", mean), ("largest objective", worst)],
        )
        page.note(_UNITS)
    names = list(dict.fromkeys(name for row in rows for name in row))
    order = sorted(rows, key=lambda row: -_number(row.get("objective")))
    page.note(f"The {min(top, len(rows)):,} of {len(rows):,} pairs with the largest objective.")
    page.table(names, [[_cell(row.get(name)) for name in names] for row in order[:top]])


def _add_gradient(page: Page, run: str, arrays: dict[str, Any], top: int) -> None:
    """Add the largest entries of a gradient."""
    gradient, weights = arrays["gradient"], arrays.get("weights")
    symbols = arrays.get("symbols")
    if symbols is None or gradient.ndim < 1 or gradient.dtype.kind != "f":
        raise InvalidInputError(f"{run} has no gradient with symbols; give a file of `grad -o`")
    alphabet = Alphabet([str(symbol) for symbol in symbols.tolist()])
    fits = set(gradient.shape) == {len(alphabet)}
    if not fits or (weights is not None and weights.shape != gradient.shape):
        raise InvalidInputError(
            f"{run}: the gradient has shape {gradient.shape}, which is not one axis of "
            f"{len(alphabet)} symbols for each symbol of a q-gram; give a file of `grad -o`"
        )
    numbers = [(name, float(arrays[name])) for name in ("objective", "pairs") if name in arrays]
    norm = float(np.sqrt((gradient**2).sum()))
    page.table(
        ("setting", "value"),
        [*numbers, ("symbols", len(alphabet)), ("order", gradient.ndim), ("gradient norm", norm)],
    )
    page.note(f"The largest of {gradient.size:,} entries.")
    page.table(
        (f"{gradient.ndim}-gram", "gradient", "weight"),
        [
            (format_qgram(alphabet, ids), entry, None if weights is None else float(weights[ids]))
            for ids, entry in largest_entries(gradient, top)
        ],
    )


def _add_model(page: Page, run: str, pairs: str | None, top: int, choice: LossChoice) -> None:
    """Add a sequence model: settings, curves, and its worst predictions."""
    model, reading, tags = open_model(run)
    settings: dict[str, Any] = {"symbols of y": len(model.alphabet_), "weights": model.coef_.size}
    left_out = ("alphabet", *NO_PART_OF_THE_RESULT)
    settings |= {name: v for name, v in model.get_params().items() if name not in left_out}
    recipes = [RECIPES[objective] for objective in model.objective.split("-then-")]
    for name in ("epochs", "learning_rate", "l2"):
        if settings[name] is None:
            values = dict.fromkeys(f"{getattr(recipe, name):g}" for recipe in recipes)
            more = ", more for targets of over 10 symbols" if name == "l2" else ""
            settings[name] = f"{', then '.join(values)}{more} (default)"
    trained = model.about_.get("choice")
    if isinstance(trained, dict):  # the loss of `train` and its parameters
        settings |= {name: value for name, value in trained.items() if value is not None}
    page.table(
        ("setting", "value"),
        [(name, "none" if v is None else _cell(v)) for name, v in settings.items()],
    )
    if model.history_:
        _add_curves(page, model)
    if pairs is not None:
        model.loss_ = model_loss(run, model, choice)
        inputs, targets = inputs_and_targets(pairs, reading, tags)
        separator = " " if reading.tokens_y == "words" else None
        _add_worst(page, model, inputs, targets, top, separator)


def _add_curves(page: Page, model: SequenceModel) -> None:
    from fstgrad import plot

    add_picture(
        page,
        lambda: plot.learning(model.history_),
        "Objective, gradient norm and validation by epoch.",
    )
    if len({epoch.stage for epoch in model.history_}) > 1:
        page.note(
            "The training has several stages.  weaker l2: as many epochs again, from the best "
            "weights; all pairs: with the pairs that were held out before; the best epoch by "
            "validation is kept.  Objectives of different stages are not comparable."
        )
    page.note(_UNITS)
    names = ("epoch", "stage", "objective", "gradient_norm", "validation", "seconds", "unreliable")
    page.table(names, [[getattr(epoch, name) for name in names] for epoch in model.history_])


def _add_worst(
    page: Page,
    model: SequenceModel,
    inputs: Sequence[Any],
    targets: Sequence[Sequence[str]],
    top: int,
    separator: str | None,
) -> None:
    """Add the measures of predictions, and alignments of the pairs with the most edits."""
    predictions = [list(y) for y in model.predict(inputs)]
    result = measures.evaluate(predictions, targets, model.loss_)
    page.table(("measure", "value"), [(name, _cell(v)) for name, v in result._asdict().items()])
    edits = Edits.of([tuple(y) for y in predictions], [tuple(y) for y in targets])
    columns: dict[str, Sequence[Any]] = {
        "row": range(1, len(inputs) + 1),
        "x": [" ".join(symbols_of(x)) for x in inputs],
    }
    if any(isinstance(x, Tagged) for x in inputs):
        columns["tags"] = [" ".join(x.tags) for x in inputs]
    add_errors(page, edits, columns, top, separator=separator)


def _add_counts(page: Page, run: str, top: int) -> None:
    """Add a root model: its settings and its strongest sets."""
    from fstgrad.grm.model import GeneralizedRootModel

    model = GeneralizedRootModel.load(run)
    settings = {"columns": len(model.names_)} | model.get_params()
    page.table(("setting", "value"), [(name, _cell(v)) for name, v in settings.items()])
    from fstgrad import plot

    num_edges = min(top, _EDGES)
    add_picture(
        page,
        lambda: plot.word_graph(model.to_networkx(num_edges)),
        f"The {num_edges} strongest sets of each size: columns that are large together, and "
        "columns that avoid each other.",
    )
    page.note("The strongest sets of each size; a set of size 1 is the root term of its column.")
    sets = [(s, w) for s in range(1, model.k + 1) for w in model.top_interactions(s, top)]
    page.table(
        ("size", "coefficient", "names"), [(s, w.value, " + ".join(w.names)) for s, w in sets]
    )


def _add_comparison(page: Page, run: str, counts: str, layout: TableLayout) -> None:
    """Add how well samples of a root model agree with a table."""
    from fstgrad.grm.model import GeneralizedRootModel

    model = GeneralizedRootModel.load(run)
    if model.uses_offset_ or model.covariate_names_ or model.parameters_.covariates:
        raise InvalidInputError(
            f"--counts: {run} was fitted with an offset or covariates; leave --counts out, and "
            "compare with fstgrad grm report, which has --offset and --covariates"
        )
    table, _ = read_tables(layout, counts)
    x = columns_in_order(counts, table.values, table.names, model.names_)
    found = model.report(x, top=0)
    page.note(f"{counts}: {found.verdict} (permutation tests of pairs of columns).")
    rows = [("model", found.pairs), ("independent columns", found.independent)]
    page.table(
        ("samples of", "Spearman difference", "pairwise MMD^2", "p-value"),
        [(name, *statistics) for name, statistics in rows],
    )
    names = ("mean", "variance", "zeros")
    page.table(
        ("column", *(f"{side}{name}" for name in names for side in ("", "sampled "))),
        [
            (column, *(float(t[name][i]) for name in names for t in (found.data, found.samples)))
            for i, column in enumerate(found.names)
        ],
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else -np.inf


def _cell(value: Any) -> Any:
    """Return None and numbers unchanged, NaN as "not measured", and other values as text."""
    if isinstance(value, float) and np.isnan(value):
        return "not measured (no loss was given)"
    return value if value is None or isinstance(value, int | float) else str(value)
