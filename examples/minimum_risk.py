"""Minimum-risk training on lattices
=================================

A model that corrects a recognizer's hypotheses is trained to minimize the expected word error rate.

For each utterance, a lattice is built from the recognizer's best hypothesis: a word may be kept,
replaced by a word with a similar spelling, or, if it has at most three letters, dropped.  A state
is a position and the word chosen there.  (If every word could be dropped, the hypotheses would be
all subsequences, and the exact composition would exceed its state limit.)  A linear model scores
the arcs with a few features: the kind of edit, the change of the spelling, and how often the word
and the pair of words occur in the references of other utterances.  The weights are trained on one
half of the utterances, once with the exact gradient of the expected word error rate, and once with
a gradient estimated from 200 sampled paths.  Both models are evaluated on the other half.

    python examples/minimum_risk.py [UTTERANCES.tsv]

The file has the columns id, ref and hyp; an example is NIST's csrnab test of sclite (45 utterances
without alternatives in the reference).  Without a file, the references are sentences of a
treebank, and the hypotheses are simulated: one word in five is replaced by a word with a similar
spelling, or dropped.  There is little text to learn from, so compare the expected word error rate
with the oracle error rate, which is the least that any model can reach.
"""

import argparse
import csv
import difflib
import pathlib
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import fstgrad as fg
from fstgrad.learning.score import oracle_path
from fstgrad.trees.treebank import read_conllu

DATA = pathlib.Path(__file__).parents[1] / "data"
LONGEST_DROPPED = 3
FEATURES = ("drop", "replace", "spelling", "word count", "pair count")


@dataclass
class Utterance:
    """A lattice, the features (A, F) of its arcs, and the loss against its reference."""

    lattice: fg.Lattice
    features: np.ndarray
    b: fg.LatticeLoss
    against: fg.TargetLoss
    words: int

    def scored(self, weights):
        return self.lattice.with_scores(self.features @ weights)


def counts_of(lines):
    """Return the counts of words and of pairs of neighbouring words."""
    words = Counter(w for line in lines for w in line)
    pairs = Counter(pair for line in lines for pair in pairwise(["<s>", *line]))
    return words, pairs


def arcs_of(hypothesis, vocabulary, words, pairs):
    """Return the arcs (source, target, word or None, features) and the final states."""
    before, arcs, states = {"<s>": 0}, [], 1
    for word in hypothesis:
        near = difflib.get_close_matches(word, vocabulary, n=4, cutoff=0.65)
        after = {}
        for choice in dict.fromkeys([word, *near]):
            alike = difflib.SequenceMatcher(None, word, choice).ratio()
            after.setdefault(choice, states + len(after))
            for last, source in before.items():
                seen = np.log1p(words[choice]), np.log1p(pairs[last, choice])
                row = [0.0, float(choice != word), 1 - alike, *seen]
                arcs.append((source, after[choice], choice, row))
        skipped = before.items() if len(word) <= LONGEST_DROPPED else ()
        for last, source in skipped:  # the new state keeps the previous word
            after.setdefault(last, states + len(after))
            arcs.append((source, after[last], None, [1.0, 0.0, 0.0, 0.0, 0.0]))
        states += len(after)
        before = after
    return arcs, list(before.values())


def utterance(hyp, ref, vocabulary, others, abc, loss):
    """Return the utterance, with counts from the references `others`."""
    arcs, final = arcs_of(hyp, vocabulary, *counts_of(others))
    source, target, words, features = zip(*arcs, strict=True)
    label = [-1 if word is None else int(abc.encode([word])[0]) for word in words]
    lattice = fg.Lattice.from_arcs(source, target, label, np.zeros(len(arcs)), abc, final=final)
    table = np.vstack([features, np.zeros((1, len(FEATURES)))])  # arcs to the end: zeros
    rows = np.where(lattice.ends, len(arcs), lattice.origin)
    return Utterance(lattice, table[rows], lattice.compile(loss, ref), loss.against(ref), len(ref))


def expected(utterances, weights, samples=None, seed=0):
    """Return the expected word error rate, and its gradient (F,) in the weights."""
    errors, gradient = 0.0, np.zeros(len(weights))
    for i, u in enumerate(utterances):
        if samples is None:
            value, arc_gradient = fg.risk(u.scored(weights), u.b)
        else:
            r = fg.sampled_risk(
                u.scored(weights), None, u.against, samples=samples, rng=1000 * seed + i
            )
            value, arc_gradient = r.value, r.gradient
        errors += value
        gradient += arc_gradient @ u.features
    total = sum(u.words for u in utterances)
    return errors / total, gradient / total


def decoded(utterances, weights, loss_of):
    """Return the word error rate of the most probable strings."""
    errors = sum(loss_of(u, u.scored(weights).mode()) for u in utterances)
    return errors / sum(u.words for u in utterances)


def train(utterances, weights, steps, samples=None):
    """Return weights trained on the expected word error rate by Adagrad with weight decay."""
    squares = np.full(len(weights), 1e-8)
    for step in range(steps):
        _, gradient = expected(utterances, weights, samples, step)
        gradient = gradient + 1e-4 * weights
        squares += gradient**2
        weights = weights - 0.5 * gradient / np.sqrt(squares)
    return weights


def gain(u, models):
    """Return by how much training lowers the expected errors; -inf if a word cannot be right."""
    if u.b.closest()[1] > 0 or u.words > 8:
        return -np.inf
    before, after = (expected([u], models[name])[0] for name in ("start", "exact"))
    return (before - after) * u.words


def heard(count=60):
    """Return references and hypotheses of a simulated recognizer."""
    sentences = read_conllu(DATA / "turkish_web.conllu")
    refs = [[w.lower() for w in s.forms if w.isalpha()] for s in sentences][:count]
    rng, words = np.random.default_rng(0), sorted({w for ref in refs for w in ref})
    hyps = []
    for ref in refs:
        hyp = []
        for word in ref:
            alike = difflib.get_close_matches(word, words, n=3, cutoff=0.5)[1:]
            if rng.random() > 0.2:
                hyp.append(word)
            elif alike:
                hyp.append(alike[rng.integers(len(alike))])
        hyps.append(hyp)
    return refs, hyps


def read(path):
    """Return the references and the hypotheses of a file, lists of words."""
    with open(path, encoding="utf-8") as file:
        table = [row for row in csv.DictReader(file, delimiter="\t") if "{" not in row["ref"]]
    return tuple([row[side].split() for row in table] for side in ("ref", "hyp"))


def main():
    parser = argparse.ArgumentParser(description="Minimum-risk training on lattices")
    parser.add_argument("file", nargs="?")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    refs, hyps = heard() if given.file is None else read(given.file)
    abc = fg.Alphabet.from_sequences(refs + hyps)
    loss = fg.EditDistance(abc, factored=True)
    training = range(0, len(refs), 2)
    known = [refs[i] for i in training]
    vocabulary = sorted({w for line in known for w in line})
    utterances = [
        utterance(
            hyps[i], refs[i], vocabulary,
            [refs[j] for j in training if j != i], abc, loss,
        )
        for i in range(len(refs))
    ]  # fmt: skip
    halves = {"training": utterances[::2], "test": utterances[1::2]}
    arcs = sum(u.lattice.num_arcs for u in utterances)
    paths = max(u.lattice.num_paths for u in utterances)
    print(f"{len(refs)} utterances, {arcs:,} arcs, up to {paths:.1e} paths per lattice")

    def loss_of(u, y):
        return float(u.against.losses_of(y[None])[0])

    start = np.array([-3.0, -3.0, -1.0, 0.0, 0.0])
    models = {"start": start}
    for name, samples in (("exact", None), ("200 paths", 200)):
        begin = time.perf_counter()
        models[name] = train(halves["training"], start, given.steps, samples)
        seconds = time.perf_counter() - begin
        print(f"{given.steps} steps of training, {name}: {seconds:.1f} s")
    print(f"\n{'word error rate':>16}  {'recognizer':>10}  {'oracle':>8}  ", end="")
    print("  ".join(f"{name + ': expected':>20}  {'decoded':>8}" for name in models))
    for half, chosen in halves.items():
        total = sum(u.words for u in chosen)
        index = training if half == "training" else range(1, len(refs), 2)
        one_best = sum(loss(hyps[i], refs[i]) for i in index) / total
        oracle = sum(u.b.closest()[1] for u in chosen) / total
        print(f"{half:>16}  {one_best:10.2%}  {oracle:8.2%}  ", end="")
        cells = [
            f"{expected(chosen, w)[0]:20.2%}  {decoded(chosen, w, loss_of):8.2%}"
            for w in models.values()
        ]
        print("  ".join(cells))
    for name, weights in models.items():
        shown = ", ".join(f"{f} {w:+.2f}" for f, w in zip(FEATURES, weights, strict=True))
        print(f"{name:>16}: {shown}")
    rates = {
        half: {name: expected(chosen, w)[0] for name, w in models.items()}
        for half, chosen in halves.items()
    }
    shown = max(range(1, len(refs), 2), key=lambda i: gain(utterances[i], models))
    lattices = {
        f"{name} (framed: the words of the reference)": utterances[shown].scored(models[model])
        for name, model in (("before training", "start"), ("after training", "exact"))
    }
    path = oracle_path(utterances[shown].lattice, refs[shown])
    return [
        fg.plot.confusion_network(lattices, top=4, path=path),
        fg.plot.bars(rates, xlabel="expected word error rate", log=False),
    ]


if __name__ == "__main__":
    figures = main()
