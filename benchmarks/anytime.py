"""Strings beyond exact determinization: error or interval, effective samples, seconds, memory.

The losses are the edit distance over 10 symbols (l = 18, compared with the exact value, 40, 100,
300) and over 32 symbols (l = 20, 30), and Smith-Waterman (l = 50, 100).  The scores are uniform, a
bigram model that does not depend on the position, or peaked at the target.  The methods are a
`Budget`, plain samples, and samples from the capped loss.
"""

import tracemalloc
from collections.abc import Iterator

from _harness import Row, one_thread, run

one_thread()

import time  # noqa: E402

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402

WIDTH = 0.05


def models(rng, target, n):
    """Yield (name, scores (l, n+1, n)) of each model."""
    length = len(target)
    yield "uniform", np.zeros((length, n + 1, n))
    bigram = 1.5 * rng.normal(size=(n + 1, n))
    yield "bigram", np.broadcast_to(bigram, (length, n + 1, n)).copy()
    peaked = rng.normal(size=(length, n + 1, n))
    peaked[np.arange(length), :, target] += 4.0
    yield "peaked", peaked


def tasks(quick):
    """Yield (name, class of the loss, length of the target, number of symbols)."""
    for length in (18,) if quick else (18, 40, 100, 300):
        yield "edit", fg.EditDistance, length, 10
    if not quick:
        for length in (20, 30):
            yield "words", fg.EditDistance, length, 32
        for length in (50, 100):
            yield "local", fg.SmithWaterman, length, 10


def answers(scores, target, loss, budget):
    """Yield (method, function that returns its result)."""
    yield (
        "budget",
        lambda: fg.sampled_softmax_margin(scores, target, loss, samples=budget, rng=1),
    )
    for proposal in ("plain", "cap"):
        yield (
            proposal,
            lambda p=proposal: fg.sampled_softmax_margin(
                scores, target, loss, samples=1000, rng=1, proposal=p
            ),
        )


def rows(quick: bool) -> Iterator[Row]:
    """Yield a row for each task, model and method."""
    for name, make, length, n in tasks(quick):
        rng = np.random.default_rng(length)
        target = rng.integers(n, size=length)
        loss = make(fg.Alphabet(str(i) for i in range(n)))
        for model, scores in models(rng, target, n):
            exact = None
            if length == 18:
                exact, _ = fg.softmax_margin(scores, target, loss.compile(target))
            for method, answer in answers(scores, target, loss, fg.Budget(width=WIDTH)):
                try:
                    answer()  # compile the kernels
                except fg.FstgradError:
                    continue
                start = time.process_time()
                result = answer()
                seconds = time.process_time() - start
                tracemalloc.start()
                answer()
                peak = tracemalloc.get_traced_memory()[1] / 2**20
                tracemalloc.stop()
                yield {
                    "loss": name,
                    "l": length,
                    "scores": model,
                    "method": method,
                    "drawn from": result.proposal,
                    "error": "" if exact is None else f"{result.value - exact:+.4f}",
                    "holds": "" if exact is None else result.interval[0] <= exact,
                    "width": f"{result.width:.3f}",
                    "effective": f"{result.effective_samples:.0f}/{result.samples}",
                    "seconds": seconds,
                    "MB": f"{peak:.0f}",
                }


if __name__ == "__main__":
    run("Strings of any length: intervals of 95 percent, of the softmax margin in nats", rows)
