"""A gradient step on a compiled automaton, against OpenFst's composition and shortest distances.

Arcs are those of the trimmed C = A o B; forward, backward and Q together count once per arc.
"seconds in turn" is the time of a step if every step has a different target of the same kind, so
that no automaton stays in the innermost caches.  "times risk" is the time of the exact expected
loss and its gradient, divided by that of the softmax margin.
"""

from collections.abc import Callable, Iterator
from typing import Any

from _harness import (
    Row,
    interleaved_medians,
    median_seconds,
    one_thread,
    openfst_in_process,
    run,
    seconds_of,
)

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad import openfst  # noqa: E402
from fstgrad.losses.reference import forward_backward, gradient_terms, score_transducer  # noqa: E402

TARGETS = 200


def cases(quick: bool) -> Iterator[tuple[str, fg.EditDistance, np.ndarray, float | None]]:
    rng = np.random.default_rng(0)
    phones = fg.EditDistance(fg.Alphabet([f"p{i}" for i in range(39)]))
    yield "word, 39 phones, l = 7, exact", phones, rng.integers(39, size=7), None
    letters = fg.EditDistance(fg.Alphabet("abcdefghij"))
    yield "10 letters, l = 12, exact", letters, rng.integers(10, size=12), None
    if quick:
        yield "10 letters, l = 30, c = 4", letters, rng.integers(10, size=30), 4.0
    else:
        yield "10 letters, l = 100, c = 8", letters, rng.integers(10, size=100), 8.0


def in_turn(loss: fg.EditDistance, length: int) -> Callable[[], Any]:
    """Return a call that computes one step for each of many random targets."""
    n, rng = len(loss.alphabet), np.random.default_rng(2)
    pairs = [
        (rng.normal(size=(length, n + 1, n)), target, loss.compile(target))
        for target in rng.integers(n, size=(TARGETS, length))
    ]
    return lambda: [fg.softmax_margin(*pair) for pair in pairs]


def rows(quick: bool) -> Iterator[Row]:
    for name, loss, target, cap in cases(quick):
        n = len(loss.alphabet)
        scores = np.random.default_rng(1).normal(size=(len(target), n + 1, n))
        compiling = median_seconds(lambda: loss.compile(target, cap=cap))  # noqa: B023
        b = loss.compile(target, cap=cap)
        calls: dict[str, Callable[[], Any]] = {
            "step": lambda: fg.softmax_margin(scores, target, b),  # noqa: B023
            "risk": lambda: fg.risk(scores, b),  # noqa: B023
        }
        if cap is None:
            calls["in turn"] = in_turn(loss, len(target))
        medians = interleaved_medians(calls, 11)
        step = medians["step"]
        acceptor = b.to_fst()
        joint = openfst.compose(score_transducer(scores, loss.alphabet), acceptor)
        arcs = openfst.to_arrays(joint).num_arcs
        distances = seconds_of(lambda: forward_backward(joint))  # noqa: B023
        whole = seconds_of(lambda: gradient_terms(scores, acceptor, loss.alphabet))  # noqa: B023
        yield {
            "case": name,
            "states": b.num_states,
            "arcs of C": arcs,
            "seconds compile": compiling,
            "seconds step": step,
            "seconds in turn": medians["in turn"] / TARGETS if cap is None else None,
            "times risk": medians["risk"] / step,
            "M arcs/s": arcs / step / 1e6,
            "seconds OpenFst distances": distances,
            "ratio distances": distances / step,
            "ratio compose and distances": whole / step,
        }


if __name__ == "__main__":
    openfst_in_process()
    run("Gradient steps: compiled passes against OpenFst (log64)", rows)
