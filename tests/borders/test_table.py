"""Each kind of input, for each argument that takes it: the plain result, or one error."""

import re

import numpy as np
import pytest

from tests.borders.columns import columns
from tests.borders.judging import Outcome, judged
from tests.borders.rows import NUMBERS, REFUSED, forms
from tests.fuzz.examples import recorded

# cells that are right otherwise: (columns, rows, why)
EXCEPTIONS = (
    (r"InputFeatures\..*\(x\)", ".*", "goes to a function of the caller"),
    (r"SquaresLoss.*", ".*", "the class of an example, without checks of its own"),
    (r".*\.log_base\(structure\)", "masked", "the measure of some families is constant"),
    (r".*\(out\)", ".*(NaN|inf)", "what is in the array stays in its sum"),
    (r".*(Trees|Distribution|Strings)\.__init__\(scores\)", "axis .*", "a batch, labels, orders"),
    (
        r"fstgrad\.(choose_cap|sampled_risk)\(scores\)|Budget\..*\(scores\)",
        "axis .*",
        "scores of another order",
    ),
    (r".*\((symbols|x)\)", "text in a list", "one symbol of several characters"),
    (r"Lattice\.from_arcs\(final\)", "dict of numbers", "{state: score}"),
    (
        r".*GeneralizedRootModel\..*\((X|covariates)\)",
        "table in another order",
        "rows count by position, columns are named",
    ),
    (r"(PairObjective|Batch)\..*", ".*", "fields of a record that do not apply are NaN"),
    (
        r"torch\..*Loss\.__init__\(.*\)|RiskLoss\.__init__\(method\)",
        ".*",
        "checked by the first call",
    ),
    (r"CRF\.(__init__|distribution)\(.*\)", ".*", "checked by the methods"),
    (
        r"(LatticeStrings|RandomFields|Strings|Trees)\.__init__\(.*\)",
        ".*NaN",
        "checked by the methods",
    ),
    (r"PairwiseMRF\.build\(.*\)", ".*", "arguments of a constructor, which errors name"),
    (r"fstgrad\.sampled_risk\(target\)", "masked", "the loss has its own target"),
    (r"LossAutomaton\.__init__\(band\)", ".*", "made by the library"),
    (r"Alignment\.__init__\(.*\)", ".*", "made by the library"),
)


def wrong_cells(column):
    """Yield what is wrong in a column, by row."""
    call, arguments = column.call, column.call.arguments
    names = {column.shown, *filter(is_text, [arguments.get("name")])}  # errors may use either
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that a narrow type cannot hold
        rows = list(forms(arguments[column.name]))
    for form in rows:
        plain = column.plain
        if form.plain is NUMBERS or form.plain is REFUSED:
            plain = None
        elif form.plain is not arguments[column.name]:
            plain = Outcome(call, arguments | {column.name: form.plain})
        may_warn = plain is None or plain.warned
        got = Outcome(call, arguments | {column.name: form.value}, may_warn=may_warn)
        if what := judged(form, names, column.others, got, plain, is_random=column.is_random):
            yield form.row, what


def is_text(value):
    return isinstance(value, str)


def excepted(column, row):
    return any(
        re.fullmatch(columns, str(column)) and re.fullmatch(rows, row)
        for columns, rows, _ in EXCEPTIONS
    )


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_each_cell_is_the_plain_result_or_an_error(tmp_path, monkeypatch):
    every = recorded(tmp_path)
    monkeypatch.chdir(tmp_path)
    wrong = [
        f"{column}, {row}: {what}"
        for column in columns(every)
        for row, what in wrong_cells(column)
        if not excepted(column, row)
    ]
    assert not wrong, "\n".join(wrong)
