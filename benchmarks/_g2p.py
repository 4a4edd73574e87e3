"""Letters to phones on the CMU pronouncing dictionary: one model, three objectives.

A word is aligned by EM so that each letter has one phone or the empty phone.  The loss is the edit
distance of the phones: empty phones cost nothing.
"""

import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pynini

import fstgrad as fg
from fstgrad.io import read_pairs
from fstgrad.models.measures import edit_distance
from fstgrad.models.sequence import SequenceModel

EMPTY = "_"
ROOT = pathlib.Path(__file__).parent.parent
DATA = pathlib.Path(os.environ.get("FSTGRAD_DATA", ROOT.parent / "shared" / "data"))
Words = list[tuple[str, tuple[str, ...]]]


def read_words(count: int) -> Words:
    """Return shuffled words with their phones without stress, from the data or the sample here."""
    path = DATA / "g2p_cmudict" / "cmudict20k.tsv"
    path = path if path.exists() else ROOT / "data" / "cmudict2000.tsv"
    words = [
        ("".join(letters), tuple(phone.rstrip("012") for phone in phones))
        for letters, phones in read_pairs(path, tokens_y="words")
    ]
    order = np.random.default_rng(0).permutation(len(words))
    return [words[i] for i in order[:count]]


def align(words: Words, iterations: int = 6) -> Words:
    """Return the words of at most one phone a letter, with EMPTY where a letter has none.

    EM with hard counts: p(phone | letter), starting from equal, with the best alignment of each
    word under the probabilities of the last iteration; one is added to every count.
    """
    usable = [(word, phones) for word, phones in words if len(phones) <= len(word)]
    letters = fg.Alphabet.from_sequences(word for word, _ in usable)
    phones = fg.Alphabet([*fg.Alphabet.from_sequences(p for _, p in usable), EMPTY])
    coded = [(letters.encode(word), phones.encode(y)) for word, y in usable]
    costs = np.zeros((len(letters), len(phones)))
    costs[:, -1] = 0.1
    aligned: list[np.ndarray] = []
    for _ in range(iterations):
        aligned = [best_alignment(x, y, costs) for x, y in coded]
        counts = np.ones_like(costs)
        for (x, _), z in zip(coded, aligned, strict=True):
            np.add.at(counts, (x, z), 1)
        costs = -np.log(counts / counts.sum(axis=1, keepdims=True))
    return [(w, tuple(phones.decode(z))) for (w, _), z in zip(usable, aligned, strict=True)]


def best_alignment(x: np.ndarray, y: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return for each letter the id of its phone, the last id where it has none."""
    empty = costs.shape[1] - 1
    table = np.full((len(x) + 1, len(y) + 1), np.inf)
    table[0, 0] = 0
    for i, letter in enumerate(x):
        table[i + 1] = table[i] + costs[letter, empty]
        table[i + 1, 1:] = np.minimum(table[i + 1, 1:], table[i, :-1] + costs[letter, y])
    result, j = np.full(len(x), empty), len(y)
    for i in range(len(x), 0, -1):
        if j and table[i, j] == table[i - 1, j - 1] + costs[x[i - 1], y[j - 1]]:
            j -= 1
            result[i - 1] = y[j]
    return result


def phone_loss(alphabet: fg.Alphabet) -> fg.TransducerLoss:
    """Return the edit distance in which EMPTY is inserted and deleted for nothing."""
    fst = pynini.Fst(arc_type="log64")
    state = fst.add_state()
    fst.set_start(state)
    fst.set_final(state, pynini.Weight("log64", 0))
    costs = {symbol: 0 if symbol == EMPTY else 1 for symbol in alphabet}
    for i, a in enumerate(alphabet, start=1):
        fst.add_arc(state, pynini.Arc(i, 0, pynini.Weight("log64", costs[a]), state))
        fst.add_arc(state, pynini.Arc(0, i, pynini.Weight("log64", costs[a]), state))
        for j, b in enumerate(alphabet, start=1):
            if EMPTY not in (a, b):
                cost = pynini.Weight("log64", int(a != b))
                fst.add_arc(state, pynini.Arc(i, j, cost, state))
    return fg.TransducerLoss(fst, alphabet)


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield phone and word error rates on held-out words for each objective."""
    train_size, test_size, epochs = (100, 100, 3) if quick else (500, 1000, 10)
    words = read_words(train_size + test_size)
    train = align(words[:train_size])
    test = words[train_size:]
    for objective in ("crf", "softmax-margin", "risk"):
        start = time.perf_counter()
        model = SequenceModel(
            phone_loss,
            features="aligned",
            objective=objective,
            l2=1e-4,
            epochs=epochs,
            min_count=2,
            n_jobs=1 if quick else 2,
        )
        model.fit([word for word, _ in train], [phones for _, phones in train])
        seconds = time.perf_counter() - start
        predictions = [
            [phone for phone in y if phone != EMPTY]
            for y in model.predict([word for word, _ in test])
        ]
        errors = [edit_distance(y, gold) for y, (_, gold) in zip(predictions, test, strict=True)]
        yield {
            "objective": "cross-entropy" if objective == "crf" else objective,
            "training words": len(train),
            "weights": model.features_.shape[0],
            "phone error": sum(errors) / sum(len(gold) for _, gold in test),
            "word error": float(np.mean(np.array(errors) > 0)),
            "seconds": seconds,
        }
