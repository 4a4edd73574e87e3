"""Letters to phones on the CMU pronouncing dictionary: one model, three objectives.

EM aligns each letter of a word with one phone or the empty phone.  The loss is the edit distance of
the phones; empty phones cost nothing.
"""

import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pynini
import pywrapfst

import fstgrad as fg
from fstgrad.core.checks import FloatArray
from fstgrad.io import read_pairs
from fstgrad.learning.measures import edit_distance
from fstgrad.learning.objective import ObjectiveKind
from fstgrad.learning.sequence import SequenceModel

EMPTY = "_"
ROOT = pathlib.Path(__file__).parent.parent
DATA = pathlib.Path(os.environ.get("FSTGRAD_DATA", ROOT.parent / "shared" / "data"))
Words = list[tuple[str, tuple[str, ...]]]


def read_words(count: int) -> Words:
    """Return shuffled words and their phones without stress, from the data or the sample."""
    path = DATA / "g2p_cmudict" / "cmudict20k.tsv"
    path = path if path.exists() else ROOT / "data" / "cmudict2000.tsv"
    words = [
        ("".join(letters), tuple(phone.rstrip("012") for phone in phones))
        for letters, phones in read_pairs(path, tokens_y="words")
    ]
    order = np.random.default_rng(0).permutation(len(words))
    return [words[i] for i in order[:count]]


def align(words: Words, iterations: int = 6) -> Words:
    """Return the words with at most one phone per letter, with EMPTY for letters without a phone.

    EM with hard counts estimates p(phone | letter), from a uniform start.  An iteration counts the
    best alignment of each word under the last probabilities, and adds one to every count.
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
    """Return the id of the phone of each letter; the last id means no phone."""
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
    """Return the edit distance in which inserting or deleting EMPTY costs nothing."""
    fst = pynini.Fst(arc_type="log64")
    state = fst.add_state()
    fst.set_start(state)
    fst.set_final(state, pywrapfst.Weight("log64", 0))
    costs = {symbol: 0 if symbol == EMPTY else 1 for symbol in alphabet}
    for i, a in enumerate(alphabet, start=1):
        fst.add_arc(state, pywrapfst.Arc(i, 0, pywrapfst.Weight("log64", costs[a]), state))
        fst.add_arc(state, pywrapfst.Arc(0, i, pywrapfst.Weight("log64", costs[a]), state))
        for j, b in enumerate(alphabet, start=1):
            if EMPTY not in (a, b):
                cost = pywrapfst.Weight("log64", int(a != b))
                fst.add_arc(state, pywrapfst.Arc(i, j, cost, state))
    return fg.TransducerLoss(fst, alphabet)


class Setting(NamedTuple):
    """Sizes of the experiment; runs have their own training words and the same test words."""

    train: int
    test: int
    epochs: int
    runs: int


QUICK = Setting(train=150, test=200, epochs=4, runs=2)
FULL = Setting(train=2000, test=2000, epochs=10, runs=5)
LONGEST = 12  # letters of a training word; with 15, its automaton has 100,000 states

# Each recipe has objectives, with their l2, that share the epochs equally.  l2 is the one of 1e-3,
# 1e-4 and 1e-5 (for risk after cross-entropy: of the last two) with the least phone error on 1,000
# words after training on 1,000 others; none of these words is used below.
RECIPES: dict[str, tuple[tuple[ObjectiveKind, float], ...]] = {
    "cross-entropy": (("crf", 1e-4),),
    "softmax margin": (("softmax-margin", 1e-4),),
    "risk": (("risk", 1e-5),),
    "cross-entropy, then risk": (("crf", 1e-4), ("risk", 1e-4)),
}


def trained(
    words: Words, recipe: tuple[tuple[ObjectiveKind, float], ...], epochs: int
) -> SequenceModel:
    """Return a model trained on aligned words with the objectives of the recipe, one by one."""
    model = SequenceModel(phone_loss, features="aligned", min_count=2, batch_size=16)
    for objective, l2 in recipe:
        model.set_params(objective=objective, l2=l2, epochs=epochs // len(recipe))
        model.fit([word for word, _ in words], [phones for _, phones in words])
        model.set_params(warm_start=True)
    return model


def error_rates(model: SequenceModel, test: Words) -> tuple[float, float]:
    """Return the phone error rate and the word error rate."""
    predictions = [
        [phone for phone in y if phone != EMPTY] for y in model.predict([word for word, _ in test])
    ]
    errors = [edit_distance(y, gold) for y, (_, gold) in zip(predictions, test, strict=True)]
    return sum(errors) / sum(len(gold) for _, gold in test), float(np.mean(np.array(errors) > 0))


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row per objective: mean and standard deviation of error rates over training sets."""
    setting = QUICK if quick else FULL
    words = read_words(setting.runs * setting.train + setting.test)
    test, rest = words[: setting.test], words[setting.test :]
    trainings = [
        [pair for pair in align(rest[i : i + setting.train]) if len(pair[0]) <= LONGEST]
        for i in range(0, len(rest), setting.train)
    ]
    phone_errors: dict[str, FloatArray] = {}
    for name, recipe in RECIPES.items():
        start, results = time.process_time(), []
        for training in trainings:
            results.append(error_rates(trained(training, recipe, setting.epochs), test))
            print(f"  {name}: phone error {results[-1][0]:.4f}", file=sys.stderr, flush=True)
        phone_errors[name], word_errors = np.array(results).T
        yield {
            "objective": name,
            "phone error": float(phone_errors[name].mean()),
            "phone error sd": float(phone_errors[name].std(ddof=1)),
            "word error": float(word_errors.mean()),
            "word error sd": float(word_errors.std(ddof=1)),
            "p, cross-entropy": paired_p(phone_errors[name], phone_errors["cross-entropy"]),
            "p, margin": paired_p(phone_errors[name], phone_errors.get("softmax margin")),
            "seconds": (time.process_time() - start) / setting.runs,
        }


def paired_p(values: FloatArray, others: FloatArray | None) -> float | None:
    """Return the two-sided p-value of a paired t-test; None without other values."""
    from scipy.stats import ttest_rel

    if others is None or values is others:
        return None
    return float(ttest_rel(values, others).pvalue)
