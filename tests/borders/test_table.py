"""Each kind of input, for each argument that takes it: the plain result, or one error."""

import inspect
import re

import numpy as np
import pytest

from tests.borders.calls import more_calls
from tests.borders.columns import callables, code_of_call, columns
from tests.borders.judging import Outcome, judged, key_of
from tests.borders.rows import NUMBERS, REFUSED, forms
from tests.fuzz.examples import INNER, Choice, code_of, recorded
from tests.helpers.public import NEEDED

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
    (r"(torch\.|jax\.)?CRF\.(__init__|distribution)\(.*\)", ".*", "checked by the methods"),
    (
        r"(torch\.|jax\.)?(LatticeStrings|RandomFields|Strings|Trees)\.__init__\(.*\)",
        ".*NaN|tensor.*",
        "checked by the methods",
    ),
    (r"PairwiseMRF\.build\(.*\)", ".*", "arguments of a constructor, which errors name"),
    (r"fstgrad\.sampled_risk\(target\)", "masked|a strange object", "the loss has its own target"),
    (r"LossAutomaton\.__init__\((band|cap|prune)\)", ".*", "made by the library"),
    (r"Alignment\.__init__\(.*\)", ".*", "made by the library"),
    (r".*\((name|xlabel|ylabel)\)", "a strange object", "a text that is shown"),
    (r".*QGram\w+\.(accumulate|gradient|scores)\(x\)", "a strange object", "these have no input"),
    (
        r".*\.(expected_log_base\(other|log_base\(structure)\)",
        "a strange object",
        "the measure of some families is constant",
    ),
    (
        r"(CTC\w+|Lattice\w+|MRF|NBestRisk|Risk|SoftmaxMargin|SpanningTree\w*)Loss\.__init__\(.*\)",
        "a strange object|flag as text",
        "checked by the first call",
    ),
    (r"fstgrad\.torch\.use_device_paths\(.*\)", ".*", "checked when the block is entered"),
    (
        r"GeneralizedRootModel\.(fit|score)\(y\)|.*\.get_feature_names_out\(.*\)"
        r"|SequenceModel\.(get|set)_params\(.*\)",
        "a strange object|flag as text",
        "as scikit-learn has them",
    ),
    (r"Lattice\.compile\(cap\)", "a strange object", "the loss is refused first"),
    (r"fstgrad\.plot\.notebook\(.*\)", "a strange object", "called by a notebook"),
)


def wrong_cells(column):
    """Yield what is wrong in a column, by row."""
    call, arguments = column.call, column.call.arguments
    names = {column.shown, *filter(is_text, [arguments.get("name")])}  # errors may use either
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that a narrow type cannot hold
        rows = list(forms(arguments[column.name]))
    plain_of = {key_of(arguments[column.name]): column.plain}
    plain_of |= dict.fromkeys(map(key_of, (NUMBERS, REFUSED)))
    for form in rows:
        key = key_of(form.plain)
        if key not in plain_of:
            plain_of[key] = Outcome(call, arguments | {column.name: form.plain})
        plain = plain_of[key]
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


# what has no column: interfaces, whose subclasses have them, and what is made by the library
NO_COLUMN = (
    r"fstgrad\.(ArrayDistribution|Distribution|Features|grammars\.Grammar)\..*|"
    r"fstgrad\.InfeasibleError\.of_items|"
    # methods that these classes inherit and refuse
    r"fstgrad\.(CollapsedLoss|ExactMatch|FunctionLoss|Loss|NoLoss|SpanHamming)\.align|"
    r"fstgrad\.(Lattice|StringDistribution)\.risk"
)


def without_column(made, chosen):
    """Return the arguments of public callables that no column breaks; not those in * and **."""
    known = {(code_of_call(column.call), column.name) for column in made}
    return [
        f"{name}({key})"
        for name, thing in callables(chosen)
        if code_of(thing) and name not in INNER and not re.fullmatch(NO_COLUMN, name)
        for key, parameter in inspect.signature(thing).parameters.items()
        if key not in ("self", "cls")
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (code_of(thing), key) not in known
    ]


# these packages are cases of their own, so that workers share the table
APART = ("fstgrad.jax", "fstgrad.plot", "fstgrad.torch")
CASES = [*map(Choice, APART), Choice(without=APART)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("chosen", CASES, ids=lambda chosen: chosen.package)
def test_each_cell_is_the_plain_result_or_an_error(chosen, tmp_path, monkeypatch):
    pytest.importorskip(NEEDED.get(chosen.package, "numpy"))
    every = (*recorded(tmp_path, chosen), *more_calls(chosen))
    monkeypatch.chdir(tmp_path)
    made = columns(every, chosen)
    assert not without_column(made, chosen)
    wrong = [
        f"{column}, {row}: {what}"
        for column in made
        for row, what in wrong_cells(column)
        if not excepted(column, row)
    ]
    assert not wrong, "\n".join(wrong)
