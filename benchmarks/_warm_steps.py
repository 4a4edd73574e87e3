"""Steps that `make bench-readme` times, timed by request: `first_results.py` starts this program.

It prints the names of the steps.  For every name on standard input, it prints the seconds of a call
of that step: of the processor, as other programs may run.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from _harness import one_thread

one_thread()
sys.path += sys.argv[1:]  # PyTorch, of another environment

import numpy as np  # noqa: E402
from chain import compiled  # noqa: E402
from grid import model  # noqa: E402
from risk import lattice_of  # noqa: E402
from torch_users import ctc, objectives, torch  # noqa: E402

import fstgrad as fg  # noqa: E402


def strings() -> dict[str, Callable[[], Any]]:
    """Return steps of compile.py, engines.py, chain.py and risk.py."""
    rng = np.random.default_rng(0)
    letters = fg.Alphabet("abcdefghij")
    edit, bigram = fg.EditDistance(letters), fg.NGram(letters, 2, smoothing=1.0)
    twelve, thirty, hundred = (rng.integers(10, size=length) for length in (12, 30, 100))
    b, capped = edit.compile(twelve), edit.compile(hundred, cap=8.0)
    short, long = (rng.normal(size=(length, 11, 10)) for length in (12, 100))
    words = fg.Alphabet(f"w{i}" for i in range(10_000))
    lattice, reference = lattice_of(rng, 100, 5, 10_000, words)
    joint = lattice.compile(fg.EditDistance(words, factored=True), reference)
    return {
        "compile, edit distance, 12 letters": lambda: edit.compile(twelve),
        "compile, bigram loss, 30 letters": lambda: bigram.compile(thirty),
        "softmax margin, 12 letters": lambda: fg.softmax_margin(short, twelve, b),
        "risk, 12 letters": lambda: fg.risk(short, b),
        "softmax margin, 100 letters, cap 8": lambda: fg.softmax_margin(long, hundred, capped),
        "risk, 100 letters, cap 8": lambda: fg.risk(long, capped),
        "chain, 100 positions, 10 labels": compiled(rng.normal(size=(100, 11, 10))),
        "chain, 100 positions, 50 labels": compiled(rng.normal(size=(100, 51, 50))),
        "risk, lattice of 100 words": lambda: fg.risk(lattice.with_scores(lattice.scores), joint),
    }


def trees_and_fields() -> dict[str, Callable[[], Any]]:
    """Return steps of trees.py and grid.py."""
    rng = np.random.default_rng(0)
    scores, grid = rng.normal(size=(64, 41, 41)), model(256, 10)
    gold = rng.integers(10, size=256 * 256)

    def first() -> tuple[Any, Any]:
        trees = fg.SpanningTrees(scores, single_root=True)
        return trees.log_partition(), trees.marginals()

    return {
        "trees, 64 x 40 words, marginals": first,
        "trees, entropy and gradient": lambda: fg.SpanningTrees(
            scores, single_root=True
        ).entropy_and_gradient(),
        "trees, modes": lambda: fg.SpanningTrees(scores, single_root=False).mode(),
        "fields, 256 x 256, belief propagation": lambda: grid.infer(
            "bp", max_iter=10, tol=0.0, threads=1
        ),
        "fields, pseudolikelihood": lambda: grid.nll(gold, "pseudolikelihood"),
    }


def tensors() -> dict[str, Callable[[], Any]]:
    """Return steps of torch_users.py."""
    torch.set_num_threads(1)
    return {f"PyTorch, {name}": step for name, step in objectives(40, 20).items()} | {
        "PyTorch, CTC": ctc(quick=False)[1]["CTC"]
    }


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the least CPU seconds of a call, of five timings that last at least 20 ms."""
    found, inner = [], 1
    while len(found) < 5:
        start = time.process_time()
        for _ in range(inner):
            call()
        spent = time.process_time() - start
        if spent < 0.02:
            inner *= 2
        else:
            found.append(spent / inner)
    return min(found)


if __name__ == "__main__":
    steps = strings() | trees_and_fields() | tensors()
    print(*steps, sep="\t", flush=True)
    for line in sys.stdin:
        print(cpu_seconds(steps[line.rstrip("\n")]), flush=True)
