"""Do models trained on the loss have fewer errors than likelihood, on many data sets?

    python benchmarks/recipes.py [table] [more] [--quick] [--json FILE]

Each recipe is tuned on the same development pairs with the same number of trials, and models are
compared on the same test pairs.  docs/performance/learning.md reports the results.
"""

import json
import math
import pathlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import _harness

_harness.one_thread()

import _g2p  # noqa: E402
import numpy as np  # noqa: E402

from fstgrad import SequenceModel  # noqa: E402
from fstgrad.learning.comparison import Comparison, compare  # noqa: E402
from fstgrad.learning.templates import Tagged  # noqa: E402

Pairs = list[tuple[Any, tuple[str, ...]]]
CAP = 3.0  # nats; cap of the edit distance, as in `fstgrad train`
SETS = {  # the data sets of the table in the docs, and more
    "table": (
        *(("inflection", name) for name in ("dan", "rus")),
        *(("phones", name) for name in ("arm_e", "bul", "dut", "hun", "jpn_hira", "vie_hanoi")),
    ),
    "more": (
        *(("inflection", name) for name in ("ita", "hun", "swa")),
        ("spelling", "misspellings"),
    ),
}


class Size(NamedTuple):
    """Numbers of pairs of each data set, and of data sets of each group."""

    train: int
    tune: int
    test: int
    sets: int


QUICK = Size(train=80, tune=40, test=60, sets=1)
FULL = Size(train=500, tune=300, test=1000, sets=99)


class Task(NamedTuple):
    """Pairs for training, for tuning and for testing."""

    name: str
    train: Pairs
    tune: Pairs
    test: Pairs


class Trial(NamedTuple):
    """Settings of training with Adam; its rate falls linearly to zero."""

    l2: float
    rate: float
    batch: int
    epochs: int


class Recipe(NamedTuple):
    """One objective and its trials; the development pairs choose the best trial.

    trials : the settings; if empty, those chosen for `against`.
    against : the recipe to compare with, of likelihood: it has the same number of stages, and at
        least as many trials.
    follows : the recipe whose model is the start; this model is kept if no trial has fewer errors
        on the development pairs.
    """

    objective: str
    trials: tuple[Trial, ...]
    against: str
    follows: str | None = None


SHORT = (Trial(3e-4, 0.1, 16, 6), Trial(1e-4, 0.1, 16, 6), Trial(1e-4, 0.1, 64, 6))
LONG = tuple(
    trial._replace(epochs=12) for trial in SHORT
)  # only for likelihood, which then takes the time of margins
THEN = (Trial(1e-4, 0.01, 16, 3), Trial(1e-5, 0.003, 16, 3))
RECIPES = {
    "likelihood": Recipe("crf", SHORT + LONG, "likelihood"),
    "likelihood, longer": Recipe("crf", THEN, "likelihood", "likelihood"),
    "margin": Recipe("softmax-margin", SHORT, "likelihood"),
    "margin, same settings": Recipe("softmax-margin", (), "likelihood"),
    "likelihood, then risk": Recipe("risk", THEN, "likelihood, longer", "likelihood"),
}


def symbols(text: str) -> tuple[str, ...]:
    """Return the symbols of an output, which are separated by white space."""
    return tuple(text.split())


def read(family: str, name: str, part: str) -> Pairs:
    """Return the pairs of a part ("train", "tune" or "test") of a data set."""
    if family == "phones":
        file = {"train": "train", "tune": "dev", "test": "test"}[part]
        rows = _lines(f"g2p_sigmorphon2021/{name}_{file}.tsv")
        return [(tuple(x), symbols(y)) for x, y in rows]
    if family == "inflection":
        file = {"train": "trn", "tune": "dev", "test": "tst"}[part]
        rows = _lines(f"inflection_sigmorphon2023/{name}.{file}.tsv")
        return [
            (Tagged(tuple(x), tuple(t for t in re.split(r"[;,()+]+", tags) if t)), tuple(y))
            for x, tags, y in rows
        ]
    rows = [row for row in _lines("spelling/pairs.tsv") if all(row)]
    # Inflections of a word share its error: words with the same first letters go to one part.
    stems = sorted({y[:5] for _, y in rows})
    drawn = np.random.default_rng(1).permutation(len(stems)) % 5
    place = {"train": (0, 1, 2), "tune": (3,), "test": (4,)}[part]
    kept = {stem for stem, number in zip(stems, drawn, strict=True) if number in place}
    return [(tuple(x), tuple(y)) for x, y in rows if y[:5] in kept]


def _lines(file: str) -> list[list[str]]:
    text = (_g2p.DATA / file).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line]


def tasks(groups: Sequence[str], size: Size) -> Iterator[Task]:
    """Yield the installed data sets, each with a random sample of its pairs."""
    for family, name in (one for group in groups for one in SETS[group][: size.sets]):
        try:
            parts = {part: read(family, name, part) for part in ("train", "tune", "test")}
        except FileNotFoundError as error:
            print(f"  {family}, {name}: left out, no {error.filename}", file=sys.stderr)
            continue
        chosen = []
        for part, count in zip(parts, (size.train, size.tune, size.test), strict=True):
            order = np.random.default_rng(0).permutation(len(parts[part]))[:count]
            chosen.append([parts[part][i] for i in order])
        yield Task(f"{family}, {name}", *chosen)


class Fitted(NamedTuple):
    """A model, its symbol error on the development pairs, and its settings."""

    model: SequenceModel
    error: float
    setting: Trial


def tuned(task: Task, objective: str, trials: tuple[Trial, ...], start: Fitted | None) -> Fitted:
    """Return the model with the least symbol error on the development pairs.

    Each trial keeps its epoch with the least error on these pairs.
    """
    best = start
    for trial in trials:
        model = SequenceModel(
            "edit",
            alignment="em",
            objective=objective,
            l2=trial.l2,
            learning_rate=trial.rate,
            batch_size=trial.batch,
            epochs=trial.epochs,
            cap=None if objective == "crf" else CAP,
            warm_start=start is not None,
        )
        if start is not None:
            model.start_from(start.model)
        model.fit(*columns(task.train), validation=columns(task.tune))
        error = min(epoch.validation or 0.0 for epoch in model.history_)
        if best is None or error < best.error:
            best = Fitted(model, error, trial)
    assert best is not None
    return best


def columns(pairs: Pairs) -> tuple[list[Any], list[tuple[str, ...]]]:
    """Return the inputs and the targets of pairs."""
    return [x for x, _ in pairs], [y for _, y in pairs]


def rows(groups: Sequence[str], size: Size) -> Iterator[dict[str, Any]]:
    """Yield the errors of each recipe on each data set, then the pooled differences."""
    found: dict[str, list[Comparison]] = {name: [] for name in RECIPES}
    for task in tasks(groups, size):
        models: dict[str, Fitted] = {}
        predicted: dict[str, list[Any]] = {}
        inputs, targets = columns(task.test)
        for name, recipe in RECIPES.items():
            start = time.process_time()
            follows = models.get(recipe.follows or "")
            trials = recipe.trials or (models[recipe.against].setting,)
            models[name] = tuned(task, recipe.objective, trials, follows)
            seconds = time.process_time() - start
            kept = follows is not None and models[name] is follows
            predicted[name] = models[name].model.predict(inputs)
            result = compare(predicted[recipe.against], predicted[name], targets)
            found[name].append(result)
            chosen = "kept" if kept else " ".join(f"{part:g}" for part in models[name].setting)
            yield row(task.name, name, result, chosen, seconds)
    for name, results in list(found.items())[1:]:
        if len(results) > 1:
            yield pooled(name, results)


def row(task: str, name: str, result: Comparison, setting: str, seconds: float) -> dict[str, Any]:
    """Return the row of one model; differences are in percent of the errors of `against`."""
    symbol, word = result.symbol_error[0].value, result.word_error[0].value
    difference = [100 * value / symbol if symbol else 0.0 for value in result.symbol_difference]
    of_words = [100 * value / word if word else 0.0 for value in result.word_difference]
    return {
        "data": task,
        "recipe": name,
        "symbol error": result.symbol_error[1].value,
        "word error": result.word_error[1].value,
        **dict(zip(("symbols %", "lower", "upper"), difference, strict=True)),
        **dict(zip(("words %", "words lower", "words upper"), of_words, strict=True)),
        "p": result.p_symbol,
        "l2, rate, batch, epochs": setting,
        "seconds": seconds,
    }


def pooled(name: str, results: list[Comparison]) -> dict[str, Any]:
    """Return the mean of the relative differences over data sets, with Student intervals.

    The sample consists of the data sets, so the interval is about other, similar data sets.
    """
    from scipy.stats import ttest_1samp

    shown: dict[str, Any] = {"data": f"mean of {len(results)}", "recipe": name}
    shown["symbol error"] = float(np.mean([r.symbol_error[1].value for r in results]))
    shown["word error"] = float(np.mean([r.word_error[1].value for r in results]))
    p = math.nan
    for unit, names in (
        ("word", ("words %", "words lower", "words upper")),
        ("symbol", ("symbols %", "lower", "upper")),
    ):
        relative = np.array(
            [
                100 * getattr(r, f"{unit}_difference").value / getattr(r, f"{unit}_error")[0].value
                for r in results
            ]
        )
        test = ttest_1samp(relative, 0.0)
        interval, p = test.confidence_interval(0.95), float(test.pvalue)
        shown |= dict(
            zip(names, map(float, (relative.mean(), interval.low, interval.high)), strict=True)
        )
    return {**shown, "p": p, "l2, rate, batch, epochs": "-", "seconds": None}


def main() -> None:
    """Run the groups of data named on the command line, by default all."""
    given = _harness.arguments(__doc__ or "", choices=tuple(SETS))
    size = QUICK if given.quick else FULL
    title = "Recipes that train for the loss, and likelihood"
    done = _harness.report(title, rows(given.names or tuple(SETS), size))
    if given.json:
        content = {**_harness.environment(), "size": size._asdict(), "rows": done}
        pathlib.Path(given.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
