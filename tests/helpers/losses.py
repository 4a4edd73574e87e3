"""Losses with random costs, and what enumeration says of them."""

import numpy as np

import fstgrad as fg
from fstgrad.openfst import FstArrays, from_arrays
from tests.oracles import strings as oracle


def random_transducer(rng, n, states, semiring):
    """A complete random transducer: every pair of a symbol or epsilon with another, kept at 60 %.

    Returns (arcs, final) of the oracle's form; epsilon arcs lead to higher states only.
    """
    arcs = []
    for source in range(states):
        for a in [None, *range(n)]:
            for b in [None, *range(n)]:
                if a is None and b is None:
                    continue
                if rng.random() < 0.6 or (source == 0 and a == b):
                    low = source + 1 if a is None else 0
                    if low < states:
                        target = int(rng.integers(low, states)) if a != b else source
                        cost = float(np.round(rng.uniform(0, 2), 3))
                        arcs.append((source, a, b, cost, target))
    return arcs, {s: float(np.round(rng.uniform(0, 1), 3)) for s in range(states)}


def to_fst(arcs, final):
    label = [[0 if arc[i] is None else arc[i] + 1 for arc in arcs] for i in (1, 2)]
    return from_arrays(
        FstArrays(
            arc_type="log64",
            start=0,
            final=np.array([final[s] for s in range(len(final))]),
            source=[arc[0] for arc in arcs],
            ilabel=label[0],
            olabel=label[1],
            nextstate=[arc[4] for arc in arcs],
            weight=[arc[3] for arc in arcs],
        )
    )


def make_loss(kind, rng, abc, target):
    """A loss with random costs and its oracle."""
    n = len(abc)
    if kind == "edit":
        a, b, c = rng.uniform(0.2, 2, size=3)
        return fg.EditDistance(abc, a, b, c), lambda y: oracle.edit_distance(
            y, target, insert=a, delete=b, substitute=c
        )
    if kind == "factored":
        a, b, c = rng.integers(1, 4, size=3)
        return fg.EditDistance(abc, a, b, c, factored=True), lambda y: oracle.edit_distance(
            y, target, insert=a, delete=b, substitute=c
        )
    if kind == "confusion":
        table = rng.integers(0, 8, size=(n, n)) / 4
        return fg.EditDistance(abc, confusion=table), lambda y: oracle.edit_distance(
            y, target, confusion=table
        )
    if kind == "smith-waterman":
        a, b, c, d = rng.uniform(0.2, 2, size=4)
        return fg.SmithWaterman(abc, -a, b, c, d), lambda y: oracle.smith_waterman(
            y, target, match=-a, substitute=b, insert=c, delete=d
        )
    if kind == "ngram":
        return fg.NGram(abc, 2), lambda y: oracle.ngram_loss(y, target, 2)
    if kind == "ngram-smooth":
        return fg.NGram(abc, 1, smoothing=0.3), lambda y: oracle.ngram_loss(
            y, target, 1, smoothing=0.3
        )
    if kind == "ngram-linear":
        return fg.NGram(abc, 2, log=False), lambda y: oracle.ngram_loss(y, target, 2, log=False)
    if kind == "hamming":
        return fg.Hamming(abc, 0.7), lambda y: oracle.hamming(y, target, cost=0.7)
    arcs, final = random_transducer(rng, n, 2, kind)
    fst = to_fst(arcs, final)
    if kind == "user-tropical":
        return fg.TransducerLoss(fst, abc), lambda y: oracle.min_path_cost(
            arcs, 0, final, y, target
        )
    return fg.TransducerLoss(
        fst, abc, semiring="probability", smoothing=0.2
    ), lambda y: -np.log(oracle.path_sum(arcs, 0, final, y, target) + 0.2)


KINDS = [
    "edit", "factored", "confusion", "smith-waterman", "ngram", "ngram-smooth", "ngram-linear",
    "hamming", "user-tropical", "user-probability",
]  # fmt: skip
