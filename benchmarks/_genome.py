"""Artificial genome sequences after Joachims, Galor, Elber (2006), and a linear model of them.

A native string of 50 letters has one homolog, made from a part of it by 30 alignment operations,
and ten random decoys, all of 50 letters.  The generator follows the paper's description.  Its
probabilities are parameters, because the exact values of the paper could not be checked.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import _genome_strings
import numpy as np

import fstgrad as fg

LETTERS = 20
SYMBOLS = fg.Alphabet("ABCDEFGHIJKLMNOPQRST")
FREQUENCIES = np.arange(1, LETTERS + 1) / 210  # letter c = 1 .. 20 has probability c / 210


class Task(NamedTuple):
    """One native and its candidates; candidate 0 is the homolog.

    candidates : (11, 50) letters; features : (11, d); scores : (11,) Smith-Waterman scores against
    the native; loss : minus this score, of any string; related : see `_genome_strings.relations`.
    """

    candidates: np.ndarray
    features: np.ndarray
    scores: np.ndarray
    loss: fg.TargetLoss
    related: np.ndarray

    @property
    def gold(self) -> int:
        """Return the index of the candidate with the largest score."""
        return int(np.argmax(self.scores))


Split = tuple[list[Task], list[Task]]  # for training, for testing
RATES = (0.2, 0.4, 0.6, 0.8)  # probabilities of a match
PENALTIES = (0.1, 1e-2, 1e-3, 1e-4)  # values of l2 for candidates
USUAL = 1e-2  # l2 for all strings
OBJECTIVES = {"cross-entropy": 0.0, "margin": 1.0, "margin, loss / 10": 0.1}


def homolog(
    native: np.ndarray, rng: np.random.Generator, match: float, operations: int = 30
) -> np.ndarray:
    """Apply random operations to a random part of the native, and pad with random letters.

    match : the probability of copying a letter.  Half of the rest is the probability of replacing a
    letter by its successor, a quarter that of inserting, and a quarter that of deleting a letter.
    """
    rest = 1 - match
    kinds = rng.choice(4, size=operations, p=[match, rest / 2, rest / 4, rest / 4])
    read = int((kinds != 2).sum())
    place = int(rng.integers(0, len(native) - read + 1))
    made = []
    for kind in kinds:
        if kind == 2:
            made.append(int(rng.choice(LETTERS, p=FREQUENCIES)))
            continue
        if kind != 3:
            made.append(int(native[place] if kind == 0 else (native[place] + 1) % LETTERS))
        place += 1
    missing = len(native) - len(made)
    left = int(rng.integers(0, missing + 1))
    around = rng.choice(LETTERS, size=missing, p=FREQUENCIES)
    return np.concatenate([around[:left], made, around[left:]]).astype(np.int64)


def make_tasks(
    count: int, seed: int, match: float, *, length: int = 50, decoys: int = 10
) -> list[Task]:
    """Return the tasks of `count` natives."""
    rng = np.random.default_rng(seed)
    loss = fg.SmithWaterman(SYMBOLS)
    tasks = []
    for _ in range(count):
        native = rng.choice(LETTERS, size=length, p=FREQUENCIES)
        others = rng.choice(LETTERS, size=(decoys, length), p=FREQUENCIES)
        candidates = np.array([homolog(native, rng, match), *others])
        features = np.array([shared_and_own_bigrams(native, y) for y in candidates])
        against = loss.against(native)
        related = _genome_strings.relations(native, FREQUENCIES)
        tasks.append(Task(candidates, features, -against.losses_of(candidates), against, related))
    return tasks


def shared_and_own_bigrams(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return (800,): the bigram counts of y, then the smaller of the counts of x and y."""
    counts = np.zeros((2, LETTERS, LETTERS))
    for row, string in zip(counts, (x, y), strict=True):
        np.add.at(row, (string[:-1], string[1:]), 1)
    return np.concatenate([counts[1].ravel(), counts.min(axis=0).ravel()])


def train(tasks: list[Task], scale: float, l2: float) -> np.ndarray:
    """Return w trained on the softmax margin of `scale` times the loss (0: cross-entropy)."""
    from scipy.optimize import minimize

    features = np.concatenate([task.features for task in tasks])
    scores = np.array([task.scores for task in tasks])
    rows, gold = np.arange(len(tasks)), scores.argmax(axis=1)
    # The loss is the alignment score of the gold candidate minus that of the candidate.
    losses = scale * (scores.max(axis=1, keepdims=True) - scores)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the penalized mean softmax margin over lists of candidates, and its gradient."""
        given = (features @ w).reshape(scores.shape)
        logits = given + losses
        largest = logits.max(axis=1, keepdims=True)
        weights = np.exp(logits - largest)
        total = weights.sum(axis=1, keepdims=True)
        values = (largest + np.log(total))[:, 0] - given[rows, gold]
        marginals = weights / total
        marginals[rows, gold] -= 1
        gradient = features.T @ marginals.ravel() / len(tasks) + l2 * w
        return float(values.mean()) + 0.5 * l2 * float(w @ w), gradient

    start = np.zeros(features.shape[1])
    return minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x


def picks_of_list(
    train_on: list[Task], test: list[Task], scale: float, l2: float
) -> tuple[list[int], list[float]]:
    """Return the candidates picked by a model trained on lists of candidates; no sample sizes."""
    w = train(train_on, scale, l2)
    return [int(np.argmax(task.features @ w)) for task in test], []


def picks_of_strings(
    train_on: list[Task], test: list[Task], scale: float, l2: float
) -> tuple[list[int], list[float]]:
    """Return the candidates picked by a model trained on all strings, and effective sample sizes.

    Training is eight epochs of cross-entropy and three of the objective.  The objective is convex,
    so that this start only saves samples.
    """
    related = [task.related for task in train_on]
    golds = [task.candidates[task.gold] for task in train_on]
    start, _ = _genome_strings.train(related, golds, None, l2=l2)
    losses = [task.loss for task in train_on] if scale else None
    w, effective = _genome_strings.train(related, golds, losses, start, epochs=3, l2=l2)
    chosen = [_genome_strings.candidate_scores(w, t.related, t.candidates) for t in test]
    return [int(np.argmax(scores)) for scores in chosen], effective


def measures(tasks: list[Task], picks: list[int]) -> tuple[float, float]:
    """Return the mean alignment score of the picks, and the share of picks that are gold."""
    scores = [task.scores[pick] for task, pick in zip(tasks, picks, strict=True)]
    right = [pick == task.gold for task, pick in zip(tasks, picks, strict=True)]
    return float(np.mean(scores)), float(np.mean(right))


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the results for each probability of a match."""
    sets, size, unseen = (3, 60, 200) if quick else (10, 160, 500)
    for match in (0.2, 0.8) if quick else RATES:
        test = make_tasks(unseen, 1, match)
        splits = [(make_tasks(size, 100 + k, match), test) for k in range(sets)]
        for l2 in PENALTIES:
            same = dict.fromkeys(OBJECTIVES, l2)
            yield from compare(splits, match, "candidates", same, picks_of_list)
        both = dict.fromkeys(("cross-entropy", "margin"), USUAL)
        yield from compare(splits, match, "all strings", both, picks_of_strings)
        yield from known(test, match)


def compare(
    splits: list[Split],
    match: float,
    hypotheses: str,
    penalties: dict[str, float],
    picks: Callable[[list[Task], list[Task], float, float], tuple[list[int], list[float]]],
) -> Iterator[dict[str, Any]]:
    """Yield a row per objective, with its l2: mean and standard deviation over the training sets.

    The gain over cross-entropy has a 95 percent interval (Student's t, paired differences).
    """
    from scipy.stats import ttest_rel

    base = np.zeros(len(splits))
    for name, l2 in penalties.items():
        results: list[tuple[float, float]] = []
        effective: list[float] = []
        for training, test in splits:
            picked, drawn = picks(training, test, OBJECTIVES[name], l2)
            results.append(measures(test, picked))
            effective += drawn
        score, accuracy = np.array(results).T
        first = name == "cross-entropy"
        base = score if first else base
        paired = None if first else ttest_rel(score, base)
        interval = None if paired is None else paired.confidence_interval(0.95)
        yield {
            "match": match,
            "hypotheses": hypotheses,
            "objective": name,
            "l2": l2,
            "score": float(score.mean()),
            "score sd": float(score.std(ddof=1)),
            "accuracy": float(accuracy.mean()),
            "gain": None if first else float((score - base).mean()),
            "lower": None if interval is None else float(interval.low),
            "upper": None if interval is None else float(interval.high),
            "p": None if paired is None else float(paired.pvalue),
            "samples": float(np.mean(effective)) if effective else None,
            "fewest": min(effective, default=None),
        }


def known(tasks: list[Task], match: float) -> Iterator[dict[str, Any]]:
    """Yield the scores and accuracies of picks without a model."""
    nothing = dict.fromkeys(("gain", "lower", "upper", "p", "samples", "fewest"))
    best = float(np.mean([task.scores.max() for task in tasks]))
    blind = float(np.mean([task.scores.mean() for task in tasks]))
    first = np.array([(task.scores[0], task.gold == 0) for task in tasks]).mean(axis=0)
    for name, score, accuracy in (
        ("always the best", best, 1.0),
        ("always the homolog", float(first[0]), float(first[1])),
        ("a random candidate", blind, 1 / 11),
    ):
        row = {"match": match, "hypotheses": "-", "objective": name, "l2": None, "score": score}
        yield {**row, "score sd": None, "accuracy": accuracy, **nothing}
