"""Conditional random fields against python-crfsuite: the same features, data and iterations.

The tasks are letters to phones (CMUdict without stress; EM aligns each letter with one phone or the
empty phone; features are the spans of up to 3 letters in a window of 3) and parts of speech (800
sentences of PUD, Universal Dependencies; features are the word, its neighbours, its first letters
and its last letters).  The weights are those of features with labels that occur together, and of
pairs of labels.  Both tools train with L-BFGS and the same penalty.  The time of tagging includes
the computation of the features.

Seconds are CPU seconds of one thread, the least of several rounds in turn.  "objective" is the
value of the last iteration, in nats per pair.  "seconds to it" is the time of a training that stops
at the first iteration that is not above the higher of the two objectives.

    python benchmarks/crf.py [--quick] [--json FILE]

The program needs python-crfsuite.  The treebank is in FSTGRAD_DATA or beside the project.
"""

import importlib.util
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import _harness

_harness.one_thread()

import _g2p  # noqa: E402

from fstgrad.learning.sequence import SequenceModel  # noqa: E402
from fstgrad.learning.templates import Window  # noqa: E402

L2 = 1e-3  # per pair, l2 |w|^2 / 2; crfsuite adds c2 |w|^2 to the sum: c2 = N l2 / 2
ITERATIONS = 15
WINDOW = Window(3, 3)
TEST = 3000  # words to tag
SENTENCES = 200  # sentences to tag


class Task(NamedTuple):
    """Inputs and labels for training and for tagging, and the template of their features."""

    name: str
    xs: list[Any]
    ys: list[list[str]]
    held_out: list[Any]
    gold: list[list[str]]
    template: Any

    def names(self, x: Any) -> list[list[str]]:
        """Return the features of each position; the first position has a special feature."""
        template = WINDOW if self.template == "aligned" else self.template
        found = [list(template(x, s, len(x))) for s in range(len(x))]
        found[0].append("start")
        return found

    def right(self, found: list[list[str]]) -> float:
        """Return the share of held-out items that are correct: words, or labels of sentences."""
        if self.template == "aligned":
            shown = [[p for p in y if p != _g2p.EMPTY] for y in found]
            pairs = [(list(y), list(g)) for y, g in zip(shown, self.gold, strict=True)]
        else:
            both = zip(found, self.gold, strict=True)
            pairs = [p for y, g in both for p in zip(y, g, strict=True)]
        return sum(a == b for a, b in pairs) / len(pairs)


def words(count: int, held_out: int) -> Task:
    """Return the task of letters to phones."""
    read = _g2p.read_words(count + held_out)
    aligned = _g2p.align(read[held_out:])
    test, gold = [word for word, _ in read[:held_out]], [list(y) for _, y in read[:held_out]]
    xs, ys = [word for word, _ in aligned], [list(y) for _, y in aligned]
    return Task(f"phones, {count} words", xs, ys, test, gold, "aligned")


def parts_of_speech(language: str) -> Task | None:
    """Return the task of parts of speech; None without the treebank."""
    files = sorted((_g2p.DATA / "ud" / f"UD_{language}-PUD").glob("*.conllu"))
    if not files:
        return None
    sentences = []
    for block in files[0].read_text(encoding="utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        sentences.append([(row[1], row[3]) for row in rows if row[0].isdigit()])
    xs = [tuple(word for word, _ in sentence) for sentence in sentences]
    ys = [[tag for _, tag in sentence] for sentence in sentences]
    k = len(xs) - SENTENCES
    return Task(f"UPOS, {language}", xs[:k], ys[:k], xs[k:], ys[k:], of_word)


def of_word(x: tuple[str, ...], s: int, _length: int) -> list[str]:
    """Return the features of a word in its sentence."""
    word = x[s]
    before, after = x[s - 1] if s else "^", x[s + 1] if s + 1 < len(x) else "$"
    return [
        "bias", f"0 {word}", f"-1 {before}", f"1 {after}", f"first {word[:2]}", f"last {word[-1:]}",
        f"last {word[-2:]}", f"last {word[-3:]}", f"upper {word[:1].isupper()}",
    ]  # fmt: skip


def ours(task: Task, iterations: int) -> SequenceModel:
    """Train with fstgrad."""
    model = SequenceModel(
        None, task.template, objective="crf", l2=L2, optimizer="lbfgs", epochs=iterations
    )
    return model.fit(task.xs, task.ys)


def crfsuite(task: Task, iterations: int, path: str) -> list[float]:
    """Train with crfsuite; write the model to a file; return the objective of each iteration."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, y in zip(task.xs, task.ys, strict=True):
        trainer.append(task.names(x), y)
    trainer.set_params(
        {
            "c2": len(task.xs) * L2 / 2,
            "max_iterations": iterations,
            "feature.possible_transitions": True,
            "epsilon": 0.0,
            "delta": 0.0,
        }
    )
    trainer.train(path)
    return [entry["loss"] / len(task.xs) for entry in trainer.logparser.iterations]


def crfsuite_tagger(path: str) -> Any:
    """Return the tagger of a crfsuite model."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    return tagger


def compared(task: Task, rounds: int, path: str) -> Iterator[dict[str, Any]]:
    """Yield one row for each tool."""
    seconds: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = call()
        seconds.setdefault(name, []).append(time.process_time() - started)
        return result

    tool = "fstgrad", "python-crfsuite"
    model = ours(task, ITERATIONS)  # also loads the kernels
    paths = [epoch.objective for epoch in model.history_], crfsuite(task, ITERATIONS, path)
    target = max(values[-1] for values in paths)
    needed = [next(i for i, v in enumerate(p, start=1) if v <= target) for p in paths]
    for _ in range(rounds):
        model = timed("train 0", lambda: ours(task, ITERATIONS))
        timed("train 1", lambda: crfsuite(task, ITERATIONS, path))
        for i, train in enumerate((ours, partial(crfsuite, path=f"{path}.other"))):
            if needed[i] < ITERATIONS:
                timed(f"reach {i}", lambda i=i, train=train: train(task, needed[i]))
        tagger = crfsuite_tagger(path)
        found = (
            timed("tag 0", lambda model=model: model.predict(task.held_out)),
            timed("tag 1", lambda t=tagger: [t.tag(task.names(x)) for x in task.held_out]),
        )
    least = {name: min(values) for name, values in seconds.items()}
    least = {f"reach {i}": least[f"train {i}"] for i in range(2)} | least
    for i in range(2):
        yield {
            "task": task.name,
            "tool": tool[i],
            "pairs": len(task.xs),
            "objective": paths[i][-1],
            "seconds training": least[f"train {i}"],
            "times crfsuite": least["train 1"] / least[f"train {i}"],
            "objective of both": target,
            "seconds to it": least[f"reach {i}"],
            "times crfsuite to it": least["reach 1"] / least[f"reach {i}"],
            "seconds tagging": least[f"tag {i}"],
            "times crfsuite tagging": least["tag 1"] / least[f"tag {i}"],
            "error": 1 - task.right(found[i]),
        }


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of all tasks."""
    tasks: list[Callable[[], Task | None]] = [lambda: words(300, 300)]
    if not quick:
        tasks = [lambda n=n: words(n, TEST) for n in (2000, 5000, 17000)]
        tasks += [lambda name=name: parts_of_speech(name) for name in ("English", "Turkish")]
    with tempfile.TemporaryDirectory() as folder:
        for make in tasks:
            if (task := make()) is not None:
                yield from compared(task, 3, str(pathlib.Path(folder) / "crfsuite"))


def main() -> None:
    """Run the comparison."""
    given = _harness.arguments(__doc__ or "", choices=())
    if importlib.util.find_spec("pycrfsuite") is None:
        print("python-crfsuite is not installed: pip install python-crfsuite")
        return
    done = _harness.report("Conditional random fields", rows(given.quick))
    if given.json:
        content = {**_harness.environment(), "rows": done}
        pathlib.Path(given.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
