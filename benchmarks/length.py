"""Time of compiling and of a gradient step by length, at a fixed cap: it is linear in l.

The loss is the unit edit distance over 10 letters, with random targets.  The table also has the
time per position, which is constant if the time is linear.  Short strings have fewer states per
position, because the first and last positions have few states; "times state" is therefore the time
per state, relative to the first length.  Steps of all lengths are timed in turn.
"""

from collections.abc import Iterator

from _harness import (
    Row,
    interleaved_medians,
    median_seconds,
    one_thread,
    peak_megabytes,
    run,
)

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402


def rows(quick: bool) -> Iterator[Row]:
    loss, cap = fg.EditDistance(fg.Alphabet("abcdefghij")), 4.0 if quick else 6.0
    done, steps = {}, {}
    for length in (50, 100) if quick else (50, 100, 200, 300, 400, 800):
        rng = np.random.default_rng(0)
        target, scores = rng.integers(10, size=length), rng.normal(size=(length, 11, 10))
        compiling = median_seconds(lambda: loss.compile(target, cap=cap))  # noqa: B023
        b = loss.compile(target, cap=cap)
        done[length] = b, compiling
        steps[str(length)] = lambda s=scores, y=target, b=b: fg.softmax_margin(s, y, b)
    medians = interleaved_medians(steps, 21)
    first = medians["50"] / 50, medians["50"] / done[50][0].num_states
    for length, (b, compiling) in done.items():
        step = medians[str(length)]
        yield {
            "l": length,
            "cap": cap,
            "states": b.num_states,
            "states/l": b.num_states / length,
            "MB of B": b.nbytes / 1e6,
            "MB of a step": b.bigram_layout.nbytes / 1e6,
            "MB peak": peak_megabytes(),
            "seconds compile": compiling,
            "seconds step": step,
            "seconds step / l": step / length,
            "times step / l of the first": step / length / first[0],
            "times state": step / b.num_states / first[1],
        }


if __name__ == "__main__":
    run("Cost against length at a fixed cap", rows)
