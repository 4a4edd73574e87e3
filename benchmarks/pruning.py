"""Errors of threshold pruning and of caps against exact log Z and Q, unit edit distance.

The paper's pruning drops the paths of M that cost more than the least loss plus the threshold;
strings without a path drop out of the sum.  A cap at the same loss keeps every string, and its two
bounds enclose log Z.
"""

from collections.abc import Iterator

from _harness import Row, one_thread, run

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402


def rows(quick: bool) -> Iterator[Row]:
    abc, length = fg.Alphabet("abcd"), 6 if quick else 8
    rng = np.random.default_rng(0)
    target, noise = rng.integers(4, size=length), rng.normal(size=(length, 5, 4))
    loss = fg.EditDistance(abc)
    for peak in (0.0, 3.0):  # added to the scores of the target (nats)
        scores = noise.copy()
        scores[np.arange(length), :, target] += peak
        exact = fg.StringDistribution(scores, loss.compile(target))
        log_z, marginals = exact.log_partition(), exact.marginals()
        for threshold in (0.5, 1.5, 2.5, 3.5):
            pruned = fg.StringDistribution(scores, loss.compile(target, prune=threshold))
            b = loss.compile(target, cap=threshold)
            d = fg.StringDistribution(scores, b)
            lower, upper = d.log_partition_bounds()
            yield {
                "peak": peak,
                "threshold": threshold,
                "states pruned": pruned.b.num_states,
                "states capped": b.num_states,
                "log Z": log_z,
                "pruned error": pruned.log_partition() - log_z,
                "cap lower": lower - log_z,
                "cap upper": upper - log_z,
                "Q pruned": float(np.abs(pruned.marginals() - marginals).max()),
                "Q capped": float(np.abs(d.marginals() - marginals).max()),
            }


if __name__ == "__main__":
    run("Threshold pruning and caps against exact values, unit edit distance, 4 letters", rows)
