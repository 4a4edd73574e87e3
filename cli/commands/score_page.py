"""The page of `fstgrad score --html`: rates, aligned errors, confusions, lattices."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fstgrad.cli.commands.page import Page
from fstgrad.core.errors import InfeasibleError, InvalidInputError, MissingDependencyError
from fstgrad.learning.comparison import Comparison
from fstgrad.learning.edits import Edits
from fstgrad.learning.score import Score, oracle_path
from fstgrad.losses import Loss
from fstgrad.losses.edit_operations import Alignment, Kind
from fstgrad.strings import Lattice

_LATTICES = 10  # most lattices that are drawn
_ARCS = 300  # most arcs of a lattice that is drawn
_PAIRS = 1000  # most pairs whose alignments are shown
_ERROR: dict[Kind, Kind] = {"delete": "insert", "insert": "delete"}  # edit -> error


def add_score(page: Page, result: Score, names: Sequence[str]) -> None:
    """Add the rates of a score, its most frequent errors, and the alignments of wrong pairs."""
    page.table(
        (
            "group", "pairs", result.unit, "correct", "substitutions", "deletions", "insertions",
            "errors", "error rate, %", "from, %", "to, %", "wrong pairs, %",
        ),
        [
            (
                row.group, row.pairs, row.symbols, row.correct, row.substitutions, row.deletions,
                row.insertions, row.errors, *(100 * end for end in row.error_rate),
                100 * row.wrong_pairs / row.pairs,
            )
            for row in result.rows
        ],
    )  # fmt: skip
    separator = " " if result.unit == "words" else None
    add_errors(page, result.edits, {"id": names}, _PAIRS, result.losses, separator=separator)
    add_confusions(page, result.edits)


def add_errors(
    page: Page,
    edits: Edits,
    columns: Mapping[str, Sequence[Any]],
    top: int,
    losses: Any = None,
    *,
    separator: str | None = None,
) -> None:
    """Add the alignments of the pairs with the most errors; `columns` (N each) name the pairs.

    separator : between symbols, as in `Alignment.text`.
    """
    errors = edits.errors
    order = np.argsort(-errors if losses is None else -losses, kind="stable")
    wrong = order[errors[order] > 0]
    page.note(
        f"The {min(top, len(wrong)):,} worst of {len(wrong):,} wrong pairs.  Each alignment shows "
        "the prediction, the errors (S substituted, I added, D missing) and the target."
    )
    cost = () if losses is None else ("loss",)
    page.table(
        (*columns, "errors", *cost, "alignment"),
        [
            (
                *(column[i] for column in columns.values()),
                int(errors[i]),
                *(() if losses is None else (float(losses[i]),)),
                _with_errors(edits.alignment(i)).text(separator),
            )
            for i in wrong[:top].tolist()
        ],
    )


def _with_errors(alignment: Alignment) -> Alignment:
    """Return an alignment with the letters of sclite: an insertion adds a word to the reference."""
    steps = (step._replace(kind=_ERROR.get(step.kind, step.kind)) for step in alignment.operations)
    return replace(alignment, operations=tuple(steps))


def add_confusions(page: Page, edits: Edits, top: int = 200) -> None:
    """Add the most frequent errors by symbols."""
    found = edits.confusions()
    rows = [
        (kind, *(symbol or "–" for symbol in pair), times)
        for kind in ("substituted", "missing", "added")
        for pair, times in getattr(found, kind)
    ]
    rows.sort(key=lambda row: -row[-1])
    page.note(f"The {min(top, len(rows)):,} most frequent of {len(rows):,} kinds of errors.")
    page.table(("kind", "prediction", "target", "number"), rows[:top])


def add_comparison(
    page: Page, comparison: Comparison, groups: Mapping[str, Comparison], first: str, second: str
) -> None:
    """Add the comparison of two systems, named after their files, and of groups of pairs."""
    page.heading(f"Comparison of {first} (first) and {second} (second)")
    rows = [
        ("error rate", comparison.symbol_error, comparison.symbol_difference, comparison.p_symbol),
        ("wrong pairs", comparison.word_error, comparison.word_difference, comparison.p_word),
    ]
    for name, own in groups.items():
        rows.append((f"error rate, {name}", own.symbol_error, own.symbol_difference, own.p_symbol))
    page.table(
        ("measure", "first, %", "second, %", "difference, %", "from, %", "to, %", "p-value"),
        [
            (name, *(100 * rate.value for rate in rates), *(100 * end for end in change), p)
            for name, rates, change, p in rows
        ],
    )
    for note in comparison.notes():
        page.note(f"{note[0].upper()}{note[1:]}.")


def add_lattices(
    page: Page,
    result: Score,
    lattices: Sequence[Lattice],
    names: Sequence[str],
    loss: Loss | None,
) -> None:
    """Add pictures of the lattices with the most errors, each with its oracle and reference."""
    wrong = np.argsort(-result.errors, kind="stable")
    small = [i for i in wrong.tolist() if lattices[i].num_arcs <= _ARCS and result.errors[i] > 0]
    page.heading("Lattices")
    page.note(
        f"The {min(_LATTICES, len(small))} lattices with the most errors, of those with at most "
        f"{_ARCS} arcs: words by place with their posteriors.  Framed: the oracle path (of the "
        "fewest errors, where every loss is infinite); below it, the words of the reference (+ "
        "joins those that the oracle lacks)."
    )
    for i in small[:_LATTICES]:
        lattice, reference = lattices[i], list(result.edits.reference(i))
        try:
            path = oracle_path(lattice, reference, loss)
        except InfeasibleError:  # every loss is infinite
            path = oracle_path(lattice, reference)
        oracle = lattice.alphabet.decode(lattice.string(path))
        below = aligned_words(oracle, reference)
        caption = (
            f"{names[i]}: {int(result.errors[i])} errors; oracle: {' '.join(oracle) or '–'}; "
            f"reference: {' '.join(reference) or '–'}"
        )
        add_picture(page, partial(_drawn, lattice, path, below), caption)


def aligned_words(hypothesis: Sequence[str], reference: Sequence[str]) -> list[str | None]:
    """Return the words of the reference below each word of a hypothesis; missing ones are joined.

    Words that are missing at the start are joined to the first word below; without a hypothesis,
    the result is empty.
    """
    below: list[str | None] = []
    pending: list[str] = []
    for step in Edits.of([tuple(hypothesis)], [tuple(reference)]).alignment(0).operations:
        if step.y is None:
            word = str(step.target)
            if below:
                below[-1] = f"{below[-1] or ''} +{word}".strip()
            else:
                pending.append(f"{word}+")
        else:
            below.append(" ".join([*pending, step.target or ""]).strip() or None)
            pending = []
    return below


def _drawn(lattice: Lattice, path: Any, below: Sequence[str | None]) -> Any:
    from fstgrad import plot

    return plot.confusion_network(lattice, path=path, reference=below)


def add_picture(page: Page, draw: Callable[[], Any], caption: str) -> None:
    """Add a figure as SVG, or say why there is none."""
    try:
        stream = io.StringIO()
        draw().savefig(stream, format="svg")
        page.picture(stream.getvalue(), caption)
    except (MissingDependencyError, InvalidInputError) as error:
        page.note(f"{caption}.  No picture: {error}")
