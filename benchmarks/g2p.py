"""Models that map strings to strings, with the same budget of CPU seconds.

    python benchmarks/g2p.py [--tasks cmudict,dut] [--models pairs,fstgrad] [--seconds 30]
                             [--runs 3] [--keep FOLDER] [--quick] [--json FILE]

The table has word and symbol errors in percent, with 95 percent bootstrap intervals, on test sets
that were not used for any choice, and differences of word errors by paired bootstrap.  Networks use
the whole budget, and are trained from several initial weights; other models use what they need.
docs/performance/learning.md explains the rows.
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import _harness

_harness.one_thread()

import _g2p  # noqa: E402
import _g2p_runs  # noqa: E402
import _g2p_tasks  # noqa: E402
import _pair_ngram  # noqa: E402
from _g2p_tasks import Symbols, Task  # noqa: E402

from fstgrad.learning.sequence import SequenceModel  # noqa: E402

Predictor = Callable[[Task, float, int], Sequence[Sequence[str]]]


def inputs(task: Task) -> list[Symbols]:
    """Return the inputs of the test set."""
    return [x for x, _ in task.test]


def fstgrad_train(**options: int) -> Predictor:
    """Return a predictor: a model with the defaults of `fstgrad train`, except for the options."""

    def predict(task: Task, seconds: float, seed: int) -> Sequence[Sequence[str]]:
        model = SequenceModel("edit", objective="crf", alignment="auto", held_out=0.1, **options)
        model.fit([x for x, _ in task.train], [y for _, y in task.train])
        return model.predict(inputs(task))

    return predict


def letters_aligned(task: Task, seconds: float, seed: int) -> Sequence[Sequence[str]]:
    """Return predictions of this model with an alignment of at most one phone per letter."""
    aligned = _g2p.align([("".join(x), y) for x, y in task.train])
    model = SequenceModel(
        "edit", objective="crf", alignment="given", features="aligned", held_out=0.1
    )
    model.fit([x for x, _ in aligned], [y for _, y in aligned])
    return [[s for s in y if s != _g2p.EMPTY] for y in model.predict(inputs(task))]


def pair_ngram(task: Task, seconds: float, seed: int) -> Sequence[Sequence[str]]:
    """Return the predictions of the pair 6-gram."""
    model = _pair_ngram.PairNGram(task.train)
    return [model.predict(x) for x in inputs(task)]


def network(name: str, bigrams: bool) -> Predictor:
    """Return a predictor: a network trained with one objective, with or without bigrams."""

    def predict(task: Task, seconds: float, seed: int) -> Sequence[Sequence[str]]:
        import _ctc_network

        model = _ctc_network.CTCModel(task.train, seed, bigrams=bigrams)
        model.fit(_ctc_network.STAGES[name], seconds)
        print(f"  {name} {seed}: {model.epochs:.1f} epochs", file=sys.stderr, flush=True)
        return model.predict(inputs(task))

    return predict


NETWORKS: dict[str, tuple[str, bool]] = {  # their errors depend on the initial weights
    "ctc": ("ctc", False),
    "scaled": ("scaled", False),
    "margin": ("margin", False),
    "risk": ("risk", False),
    "bigrams": ("ctc", True),
    "bigrams-scaled": ("scaled", True),
    "bigrams-margin": ("margin", True),
}
MODELS: dict[str, Predictor] = {
    "copy": lambda task, seconds, seed: inputs(task),
    "pairs": pair_ngram,
    "fstgrad": fstgrad_train(),
    "wide": fstgrad_train(window=4, span=5),
    "letters": letters_aligned,
    **{name: network(*stages) for name, stages in NETWORKS.items()},
}
DEFAULT = "copy,pairs,fstgrad,wide,letters,ctc,bigrams-margin"
ONLY = {"letters": ("cmudict",)}  # model -> its tasks: at most one phone per letter
REFERENCES = {
    "fstgrad": "pairs",
    "wide": "pairs",
    "letters": "fstgrad",
    **{name: "ctc" for name in NETWORKS if name != "ctc"},
}


def predictions(
    name: str, model: str, task: Task, seconds: float, keep: pathlib.Path | None, seed: int
) -> tuple[Sequence[Sequence[str]], float]:
    """Return the predictions and the CPU seconds of a model, from the folder `keep` if present."""
    budget = f"-{seconds:g}s-{seed}" if model in NETWORKS else ""
    path = None if keep is None else keep / f"{name}-{model}{budget}.json"
    if path is not None and path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept["predictions"], kept["seconds"]
    start = time.process_time()
    found = [list(y) for y in MODELS[model](task, seconds, seed)]
    spent = time.process_time() - start
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"predictions": found, "seconds": spent}), encoding="utf-8")
    return found, spent


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the errors of each model on each task, and the difference from its reference."""
    for name in given.tasks:
        task = _g2p_tasks.load(name)
        if given.quick:
            task = Task(task.train[:200], task.dev[:50], task.test[:50])
        targets, done = [y for _, y in task.test], dict[str, _g2p_runs.Errors]()
        for model in given.models:
            if name not in ONLY.get(model, (name,)):
                continue
            seeds = range(given.runs if model in NETWORKS else 1)
            runs = [predictions(name, model, task, given.seconds, given.keep, k) for k in seeds]
            done[model] = _g2p_runs.Errors.of([found for found, _ in runs], targets)
            other = done.get(REFERENCES.get(model, ""))
            yield row(name, model, done[model], other, sum(spent for _, spent in runs) / len(runs))


def row(
    name: str, model: str, own: _g2p_runs.Errors, other: _g2p_runs.Errors | None, seconds: float
) -> dict[str, Any]:
    """Return a row of the table: means over the runs."""
    word, symbol = own.word_error(), own.symbol_error()
    difference = None if other is None else own.word_difference(other)
    return {
        "task": name,
        "model": model,
        "runs": len(own.edits),
        "word error": percent(word.value),
        "word interval": interval(word),
        "symbol error": percent(symbol.value),
        "symbol interval": interval(symbol),
        "against": "-" if other is None else REFERENCES[model],
        "difference": "-" if difference is None else percent(difference.value),
        "its interval": "-" if difference is None else interval(difference),
        "seconds": seconds,
    }


def interval(found: _g2p_runs.Interval) -> str:
    """Return the ends of an interval in percent."""
    return f"{percent(found.lower)} {percent(found.upper)}"


def percent(share: float) -> float:
    """Return a share in percent, to two decimals."""
    return round(100 * share, 2)


def arguments() -> argparse.Namespace:
    """Return the command-line arguments; --quick is one task with 200 words and two seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = _g2p_tasks.names()
    parser.add_argument("--tasks", help=f"of {','.join(known)}; all if left out")
    parser.add_argument("--models", default=DEFAULT, help=f"of {','.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=30.0, help="of CPU, for each model")
    parser.add_argument("--runs", type=int, default=3, help="of each network, from other weights")
    parser.add_argument("--keep", type=pathlib.Path, help="predictions: written and used again")
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds in all")
    parser.add_argument("--json", metavar="FILE", help="write the rows, machine and versions here")
    given = parser.parse_args()
    chosen = given.tasks or (known[0] if given.quick else ",".join(known))
    given.tasks, given.models = chosen.split(","), given.models.split(",")
    for what, names, all_ in (("task", given.tasks, known), ("model", given.models, MODELS)):
        for name in names:
            if name not in all_:
                parser.error(f"no {what} {name!r}; give some of {', '.join(all_)}")
    if given.runs < 1:
        parser.error(f"--runs is {given.runs}; give at least 1")
    if given.quick:
        given.seconds, given.runs = min(given.seconds, 2.0), min(given.runs, 2)
    return given


def main() -> None:
    """Run the chosen models on the chosen tasks."""
    given = arguments()
    title = f"Strings to strings, {given.seconds:g} CPU seconds for each network"
    _harness.report(title, rows(given), given.json)


if __name__ == "__main__":
    main()
