"""Artificial genomes with all strings of length 50 as hypotheses, as in Cortes et al. (2018).

p(y | native) is a Markov model that scores a pair of letters by its relations to the native.
Cross-entropy is exact.  The automaton of the Smith-Waterman margin is too large at this length, so
every step samples the margin, with proposals from the model.  The scores do not depend on the
position; on such scores, the model has more effective samples than bands, at 1 percent of the cost.
"""

import numpy as np

import fstgrad as fg
from fstgrad.core.estimates import SampledObjective

RELATIONS = 5
MOST = 12_800  # largest number of strings drawn for one native
SIZE = 20 + 2 * RELATIONS  # weights of letters, relations, and relations times surprise


def relations(native: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return (10, 20, 20): which pairs of letters (a, b) can result from neighbours in the native.

    The first five tables hold 0 or 1: both letters copied; the first copied and the second replaced
    by its successor; the reverse; both replaced; both copied, with the letter between them deleted.
    The other five are these times -log(p(a) p(b)) / 10: pairs of frequent letters tell less.
    """
    letters = len(frequencies)
    after = (native + 1) % letters
    table = np.zeros((RELATIONS, letters, letters))
    for own, left, right in zip(
        table,
        (native[:-1], native[:-1], after[:-1], after[:-1], native[:-2]),
        (native[1:], after[1:], native[1:], after[1:], native[2:]),
        strict=True,
    ):
        own[left, right] = 1.0
    return np.concatenate([table, -table * np.log(np.outer(frequencies, frequencies)) / 10])


def score_table(w: np.ndarray, related: np.ndarray, length: int) -> np.ndarray:
    """Return scores (l, 21, 20) of an order-2 model: of a letter, and of the pair with the last."""
    letters = related.shape[-1]
    scores = np.zeros((length, letters + 1, letters))
    scores[:, :letters] = np.tensordot(w[letters:], related, 1)
    return scores + w[:letters]


def adjoint(table: np.ndarray, related: np.ndarray) -> np.ndarray:
    """Return the gradient in w, given a gradient (l, 21, 20) in the scores."""
    letters = related.shape[-1]
    pairs = table[1:, :letters].sum(axis=0)
    return np.concatenate([table.sum(axis=(0, 1)), np.tensordot(related, pairs, 2)])


def candidate_scores(w: np.ndarray, related: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return the scores w.Psi (m,) of candidates (m, l)."""
    pairs = np.tensordot(w[related.shape[-1] :], related, 1)
    return w[candidates].sum(axis=1) + pairs[candidates[:, :-1], candidates[:, 1:]].sum(axis=1)


def train(
    relations: list[np.ndarray],
    golds: list[np.ndarray],
    losses: list[fg.TargetLoss] | None,
    start: np.ndarray | None = None,
    *,
    epochs: int = 8,
    batch: int = 16,
    rate: float = 0.1,
    l2: float = 0.01,
    samples: int = 400,
    enough: float = 100,
) -> tuple[np.ndarray, list[float]]:
    """Return w trained by Adam, and effective sample sizes; without losses, on cross-entropy.

    If a step of a native has fewer than `enough` effective samples, its samples are doubled, from
    then on, up to `MOST`.
    """
    rng = np.random.default_rng(0)
    w, first, second = np.zeros((3, SIZE))
    if start is not None:
        w = start
    steps, drawn = 0, np.full(len(golds), samples)
    effective: list[float] = []
    for _ in range(epochs):
        for part in np.array_split(rng.permutation(len(golds)), len(golds) // batch):
            gradient = l2 * w
            for i in part:
                scores = score_table(w, relations[i], len(golds[i]))
                if losses is None:
                    table = fg.softmax_margin(scores, golds[i])[1]
                else:
                    sampled = _sampled(scores, golds[i], losses[i], drawn[i], rng)
                    while sampled.effective_samples < enough and drawn[i] < MOST:
                        drawn[i] *= 2
                        sampled = _sampled(scores, golds[i], losses[i], drawn[i], rng)
                    table = sampled.gradient
                    effective.append(sampled.effective_samples)
                gradient = gradient + adjoint(table, relations[i]) / len(part)
            steps += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            scale = np.sqrt(second / (1 - 0.999**steps)) + 1e-8
            w = w - rate * first / (1 - 0.9**steps) / scale
    return w, effective


def _sampled(
    scores: np.ndarray,
    gold: np.ndarray,
    loss: fg.TargetLoss,
    samples: int,
    rng: np.random.Generator,
) -> SampledObjective:
    return fg.sampled_softmax_margin(
        scores, gold, loss, samples=int(samples), rng=rng, proposal="plain"
    )
