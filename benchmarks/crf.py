"""Conditional random fields beside python-crfsuite: the same features, data and iterations.

CMUdict without stress, each letter with one phone or the empty phone (EM).  Features are the spans
of up to 3 letters in a window of 3, paired with the phones they occur with, and pairs of phones.
Both train with L-BFGS and the same penalty, and tag words from their letters, features included.
Seconds are CPU seconds of one thread, the least of several rounds that take turns.

    python benchmarks/crf.py [--quick] [--json FILE]

Needs python-crfsuite.
"""

import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import _harness

_harness.one_thread()

import _g2p  # noqa: E402
import numpy as np  # noqa: E402

from fstgrad.training.sequence import SequenceModel  # noqa: E402
from fstgrad.training.templates import Window  # noqa: E402

L2 = 1e-3  # of the mean objective; crfsuite adds c2 |w|^2 to the sum: c2 = N l2 / 2
ITERATIONS = 15
WINDOW = Window(3, 3)


def names(word: str) -> list[list[str]]:
    """Return the features of each letter; the first one has a feature of its own."""
    found = [list(WINDOW(word, s, len(word))) for s in range(len(word))]
    found[0].append("start")
    return found


def crfsuite_trained(words: list[str], phones: list[list[str]], path: str) -> None:
    """Train with crfsuite, from words to a file."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for word, y in zip(words, phones, strict=True):
        trainer.append(names(word), y)
    trainer.set_params(
        {
            "c2": len(words) * L2 / 2,
            "max_iterations": ITERATIONS,
            "feature.possible_transitions": True,
            "epsilon": 0.0,
            "delta": 0.0,
        }
    )
    trainer.train(path)


def crfsuite_tagger(path: str) -> Callable[[list[str]], list[list[str]]]:
    """Return what tags words by a file of crfsuite."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    return lambda words: [tagger.tag(names(word)) for word in words]


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield seconds of training and tagging, and the share of words that are right."""
    train, test, rounds = (300, 300, 2) if quick else (3000, 3000, 3)
    words = _g2p.read_words(train + test)
    aligned = _g2p.align(words[test:])
    xs, ys = [word for word, _ in aligned], [list(y) for _, y in aligned]
    held_out = [word for word, _ in words[:test]]
    gold = [y for _, y in words[:test]]
    seconds: dict[str, list[float]] = {}

    def timed(name: str, task: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = task()
        seconds.setdefault(name, []).append(time.process_time() - started)
        return result

    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "crfsuite")
        for i in range(rounds + 1):  # the first round loads the compiled loops
            model = SequenceModel(
                None, "aligned", objective="crf", l2=L2, optimizer="lbfgs", epochs=ITERATIONS
            )
            timed("fit", lambda model=model: model.fit(xs, ys))
            timed("crfsuite fit", lambda: crfsuite_trained(xs, ys, path))
            predict = timed("open", lambda: crfsuite_tagger(path))
            ours = timed("tag", lambda model=model: model.predict(held_out))
            theirs = timed("crfsuite tag", lambda predict=predict: predict(held_out))
            if i == 0:
                seconds.clear()
        for name, prefix, found in (
            ("fstgrad", "", ours),
            ("python-crfsuite", "crfsuite ", theirs),
        ):
            shown = [[p for p in y if p != _g2p.EMPTY] for y in found]
            right = [list(y) == list(g) for y, g in zip(shown, gold, strict=True)]
            yield {
                "tool": name,
                "pairs": len(xs),
                "weights": model.coef_.size if name == "fstgrad" else None,
                "seconds training": min(seconds[f"{prefix}fit"]),
                "seconds tagging": min(seconds[f"{prefix}tag"]),
                "word error": 1 - float(np.mean(right)),
            }


def main() -> None:
    """Run the comparison."""
    given = _harness.arguments(__doc__ or "", choices=())
    done = _harness.report("Conditional random fields", rows(given.quick))
    if given.json:
        content = {**_harness.environment(), "rows": done}
        pathlib.Path(given.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
