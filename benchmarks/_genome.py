"""Artificial genome sequences after Joachims, Galor, Elber (2006), and a linear model of them.

A native of 50 letters has one homolog, made from a part of it by 30 alignment operations, and ten
random decoys, all of 50 letters.  The generator follows the description; its probabilities are
parameters, as the paper's exact ones could not be checked.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import _genome_strings
import numpy as np

import fstgrad as fg

LETTERS = 20
SYMBOLS = fg.Alphabet("ABCDEFGHIJKLMNOPQRST")
FREQUENCIES = np.arange(1, LETTERS + 1) / 210  # letter c of 1 .. 20 has the probability c / 210


class Task(NamedTuple):
    """One native with its candidates; index 0 is the homolog.

    candidates : (11, 50); features : (11, d); scores : (11,) Smith-Waterman scores against the
    native; loss : minus these scores, of any string; related : see `_genome_strings.relations`.
    """

    candidates: np.ndarray
    features: np.ndarray
    scores: np.ndarray
    loss: fg.TargetLoss
    related: np.ndarray

    @property
    def gold(self) -> int:
        """The candidate that is closest to the native."""
        return int(np.argmax(self.scores))


Split = tuple[list[Task], list[Task]]  # to train, to test


def homolog(
    native: np.ndarray, rng: np.random.Generator, match: float, operations: int = 30
) -> np.ndarray:
    """Apply random operations to a random part of the native, and fill up with random letters.

    match : probability of copying a letter; 0.6 - match of putting the next letter for it.
    """
    kinds = rng.choice(4, size=operations, p=[match, 0.6 - match, 0.2, 0.2])  # and ins, del
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
    """Return the bigram counts of y, and for each bigram the occurrences that x shares, (800,)."""
    counts = np.zeros((2, LETTERS, LETTERS))
    for row, string in zip(counts, (x, y), strict=True):
        np.add.at(row, (string[:-1], string[1:]), 1)
    return np.concatenate([counts[1].ravel(), counts.min(axis=0).ravel()])


def train(tasks: list[Task], scale: float, l2: float) -> np.ndarray:
    """Return w by L-BFGS: softmax margin with `scale` times the loss, cross-entropy for scale 0."""
    from scipy.optimize import minimize

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = 0.5 * l2 * float(w @ w), l2 * w
        for task in tasks:
            # The loss is minus the alignment score, measured from that of the gold candidate.
            losses = scale * (task.scores[task.gold] - task.scores)
            part, marginals = softmax_margin(task.features @ w, task.gold, losses)
            value += part / len(tasks)
            gradient = gradient + task.features.T @ marginals / len(tasks)
        return value, gradient

    start = np.zeros(tasks[0].features.shape[1])
    return minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x


def softmax_margin(scores: np.ndarray, gold: int, losses: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the softmax margin over a list of candidates and its gradient in their scores."""
    logits = scores + losses
    largest = logits.max()
    weights = np.exp(logits - largest)
    gradient = weights / weights.sum()
    gradient[gold] -= 1
    return float(largest + np.log(weights.sum()) - scores[gold]), gradient


def picks_of_list(train_on: list[Task], test: list[Task], scale: float) -> tuple[list[int], float]:
    """Return the candidates picked after training over the candidates; no sampling."""
    w = train(train_on, scale, l2=0.01)
    return [int(np.argmax(task.features @ w)) for task in test], float("nan")


def picks_of_strings(
    train_on: list[Task], test: list[Task], scale: float
) -> tuple[list[int], float]:
    """Return the candidates picked after training over all strings, and effective samples."""
    w, effective = _genome_strings.train(
        [task.related for task in train_on],
        [task.candidates[task.gold] for task in train_on],
        [task.loss for task in train_on] if scale else None,
    )
    chosen = [_genome_strings.candidate_scores(w, t.related, t.candidates) for t in test]
    return [int(np.argmax(scores)) for scores in chosen], effective


def measures(tasks: list[Task], picks: list[int]) -> tuple[float, float]:
    """Return the mean alignment score of the picked candidates, and how many are the best."""
    scores = [task.scores[pick] for task, pick in zip(tasks, picks, strict=True)]
    right = [pick == task.gold for task, pick in zip(tasks, picks, strict=True)]
    return float(np.mean(scores)), float(np.mean(right))


def corrected_t_test(difference: np.ndarray, share: float) -> float:
    """Return the two-sided p of paired results of random splits; `share` is test over train.

    The splits overlap, so that the variance is that of Nadeau and Bengio (2003), Eq. 10.
    """
    from scipy.stats import t

    variance = float(difference.var(ddof=1)) * (1 / len(difference) + share)
    return float(2 * t.sf(abs(difference.mean()) / np.sqrt(variance), len(difference) - 1))


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the results for both probabilities of a match that descriptions give."""
    count, folds, unseen = (60, 5, 200) if quick else (200, 10, 1000)
    for match in (0.2, 0.4):
        tasks = make_tasks(count, 0, match)
        splits = random_splits(tasks, folds)
        yield from compare(splits, match, "candidates", (0.0, 1.0, 0.1), picks_of_list)
        yield from compare(splits, match, "all strings", (0.0, 1.0), picks_of_strings)
        yield from known(tasks, match)
        apart = separate_sets(match, folds, count * 4 // 5, unseen)
        yield from compare(apart, match, "all, separate", (0.0, 1.0), picks_of_strings)


def random_splits(tasks: list[Task], folds: int) -> list[Split]:
    """Return random divisions into four fifths to train and a fifth to test."""
    splits = []
    for fold in range(folds):
        order = np.random.default_rng([1, fold]).permutation(len(tasks))
        shuffled = [tasks[i] for i in order]
        splits.append((shuffled[len(tasks) // 5 :], shuffled[: len(tasks) // 5]))
    return splits


def separate_sets(match: float, sets: int, size: int, unseen: int) -> list[Split]:
    """Return training sets without a native in common, and one large set to test them all."""
    test = make_tasks(unseen, 1, match)
    return [(make_tasks(size, 100 + k, match), test) for k in range(sets)]


def compare(
    splits: list[Split],
    match: float,
    hypotheses: str,
    scales: tuple[float, ...],
    picks: Callable[[list[Task], list[Task], float], tuple[list[int], float]],
) -> Iterator[dict[str, Any]]:
    """Yield the mean and standard deviation over the splits of each objective."""
    from scipy.stats import ttest_rel

    base = np.zeros(len(splits))
    for scale in scales:
        results, effective = [], []
        for training, test in splits:
            picked, drawn = picks(training, test, scale)
            results.append(measures(test, picked))
            effective.append(drawn)
        score, accuracy = np.array(results).T
        base = base if scale else score
        difference = score - base
        differs = bool(difference.any())
        overlaps = splits[0][1] is not splits[1][1]
        yield {
            "match": match,
            "hypotheses": hypotheses,
            "objective": f"margin, {scale:g} x loss" if scale else "cross-entropy",
            "score": float(score.mean()),
            "score sd": float(score.std(ddof=1)),
            "accuracy": float(accuracy.mean()),
            "accuracy sd": float(accuracy.std(ddof=1)),
            "paired p": float(ttest_rel(score, base).pvalue) if differs else None,
            "corrected p": corrected_t_test(difference, 0.25) if differs and overlaps else None,
            "samples": None if np.isnan(effective).any() else float(np.mean(effective)),
        }


def known(tasks: list[Task], match: float) -> Iterator[dict[str, Any]]:
    """Yield what picks without a model reach."""
    nothing = dict.fromkeys(("accuracy sd", "paired p", "corrected p", "samples"))
    best = float(np.mean([task.scores.max() for task in tasks]))
    blind = float(np.mean([task.scores.mean() for task in tasks]))
    first = np.array([(task.scores[0], task.gold == 0) for task in tasks]).mean(axis=0)
    for name, score, accuracy in (
        ("always the best", best, 1.0),
        ("always the homolog", float(first[0]), float(first[1])),
        ("a random candidate", blind, 1 / 11),
    ):
        row = {"match": match, "hypotheses": "-", "objective": name, "score": score}
        yield {**row, "score sd": None, "accuracy": accuracy, **nothing}
