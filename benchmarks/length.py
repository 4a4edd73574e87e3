"""Cost of compiling and of a gradient step against the length, at a fixed cap: linear in l.

Unit edit distance over 10 letters, random y; the cost of a length is also shown for each position,
which stays the same where the cost is linear.
"""

from collections.abc import Iterator

from _harness import Row, median_seconds, one_thread, peak_megabytes, run

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402


def rows(quick: bool) -> Iterator[Row]:
    loss, cap = fg.EditDistance(fg.Alphabet("abcdefghij")), 4.0 if quick else 6.0
    first: float | None = None
    for length in (50, 100) if quick else (50, 100, 200, 300, 400, 800):
        rng = np.random.default_rng(0)
        target, scores = rng.integers(10, size=length), rng.normal(size=(length, 11, 10))
        compiling = median_seconds(lambda: loss.compile(target, cap=cap))  # noqa: B023
        b = loss.compile(target, cap=cap)
        step = median_seconds(lambda: fg.softmax_margin(scores, target, b))  # noqa: B023
        passes = (b.num_states * 11 * 8 + b.flat.weight.nbytes) / 1e6
        first = step / length if first is None else first
        yield {
            "l": length,
            "cap": cap,
            "states": b.num_states,
            "states/l": b.num_states / length,
            "MB of B": b.nbytes / 1e6,
            "MB of a step": passes,
            "MB peak": peak_megabytes(),
            "seconds compile": compiling,
            "seconds step": step,
            "seconds step / l": step / length,
            "times step / l of the first": step / length / first,
        }


if __name__ == "__main__":
    run("Cost against length at a fixed cap", rows)
