"""The word-error loss against NIST sclite's own counts, and on lattices of real utterances."""

import csv

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle

MARKS = {"{", "}", "/", "@"}


@pytest.fixture(scope="module")
def utterances(shared_data):
    with open(shared_data / "asr_sctk" / "csrnab.tsv", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def words(utterances):
    text = [row[side].split() for row in utterances for side in ("ref", "hyp")]
    return fg.Alphabet.from_sequences([[w for w in line if w not in MARKS] for line in text])


def reference(text, words):
    """An acceptor of a reference with alternatives, `{ a / b c / @ }`, @ for nothing."""
    tokens = text.split()
    arcs, state, states = [], 0, 1
    i = 0
    while i < len(tokens):
        alternatives = [[tokens[i]]]
        if tokens[i] == "{":
            end = tokens.index("}", i)
            inner = " ".join(tokens[i + 1 : end]).split("/")
            alternatives = [[w for w in one.split() if w != "@"] for one in inner]
            i = end
        ends = []
        for alternative in alternatives:
            last = state
            for word in alternative:
                arcs.append((last, states, int(words.encode([word])[0])))
                last, states = states, states + 1
            ends.append(last)
        arcs.extend((last, states, -1) for last in ends)
        state, states = states, states + 1
        i += 1
    source, target, label = zip(*arcs, strict=True)
    scores = np.zeros(len(arcs))
    return fg.Lattice.from_arcs(source, target, label, scores, words, final=[state]).to_fst()


def test_sclite_counts(utterances, words):
    """Errors, and sclite's weighted distance (4 a substitution, 3 a deletion or insertion).

    Both together give its three counts: with E errors and weight W there are W - 3 E
    substitutions, and insertions less deletions are the difference of the lengths.
    """
    errors = fg.EditDistance(words, factored=True)
    weighted = fg.EditDistance(words, 3, 3, 4, factored=True)
    for row in utterances:
        y, target = row["hyp"].split(), reference(row["ref"], words)
        correct, sub, deleted, inserted = (int(row[k]) for k in ("corr", "sub", "del", "ins"))
        assert errors(y, target) == sub + deleted + inserted, row["id"]
        assert weighted(y, target) == 4 * sub + 3 * deleted + 3 * inserted, row["id"]
        assert correct + sub + inserted == len(y)


def test_alternatives_without_weights_are_strings(utterances, words):
    plain = [row for row in utterances if row["has_alternatives"] == "0"][:5]
    errors = fg.EditDistance(words, factored=True)
    for row in plain:
        y, target = row["hyp"].split(), row["ref"].split()
        assert errors(y, target) == errors(y, reference(row["ref"], words))
        assert errors(y, target) == oracle.edit_distance(y, target)


def test_risk_of_an_n_best_list(utterances, words):
    """Hypotheses of three utterances as one list against the reference of the first."""
    row = utterances[1]
    hypotheses = [each["hyp"].split() for each in utterances[1:4]]
    scores = np.array([0.3, -0.2, 0.1])
    lattice = fg.Lattice.from_nbest(hypotheses, scores, words)
    losses = np.array([oracle.edit_distance(y, row["ref"].split()) for y in hypotheses])
    p = np.exp(scores) / np.exp(scores).sum()
    value, gradient = fg.risk(lattice, row["ref"].split(), fg.EditDistance(words, factored=True))
    assert value == pytest.approx(p @ losses, abs=1e-10)
    for i in range(3):
        (arc,) = np.flatnonzero(lattice.origin == i)
        assert gradient[arc] == pytest.approx(p[i] * (losses[i] - p @ losses), abs=1e-10)
