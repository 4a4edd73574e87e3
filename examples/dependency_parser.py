"""A parser from part-of-speech tags
=================================

An arc-factored parser from part-of-speech tags is trained by likelihood or by expectations.

The score of an arc is a sum of weights for its tags, direction and distance.  Three parsers are
evaluated on the last fifth of a treebank by the attachment score of the best trees, the expected
attachment score over all trees, and the entropy:

0. without training: all trees have the same probability;
1. trained without trees, on nine expectations: the shares of determiners, adjectives and
   adpositions whose head is a noun to their right, of nouns, pronouns, auxiliaries and adverbs
   whose head is a verb, and so on.  A generalized-expectation criterion moves every sentence
   towards these shares (Druck, Mann and McCallum 2009);
2. trained on the likelihood of the trees of the other sentences.

    python examples/dependency_parser.py [TREEBANK.conllu]
"""

import collections
import pathlib
import sys
import time

import numpy as np

import fstgrad as fg
from fstgrad.trees.treebank import read_conllu

DATA = pathlib.Path(__file__).parents[1] / "data"
BINS = np.array([1, 2, 3, 4, 6, 10])
TABLE = 1 << 16  # number of weights; a feature is hashed to one of them


class Batch:
    """b sentences padded to m words: feature ids (b, m+1, m+1, 5), heads (b, m), lengths (b,)."""

    def __init__(self, sentences, tags):
        self.lengths = np.array([len(s.heads) for s in sentences])
        m = self.lengths.max()
        self.heads = np.full((len(sentences), m), -1)
        self.tags = np.zeros((len(sentences), m + 3), dtype=np.int64)
        for i, s in enumerate(sentences):
            self.heads[i, : len(s.heads)] = s.heads
            self.tags[i, 1 : len(s.tags) + 1] = [tags[t] for t in s.tags]
        self.features = self._features(self.tags)

    def _features(self, tags):
        m = tags.shape[1] - 3
        head, dependent = np.indices((m + 1, m + 1))
        gap = np.sign(dependent - head) * np.digitize(abs(dependent - head), BINS)
        gap = np.where(head == 0, 9, gap) + 8  # an arc from the root has no distance

        def at(index):
            return np.where(index < 0, 0, tags[:, index])

        h, d = at(head), at(dependent)
        ids = [
            (1, h, d, gap),
            (2, h, d, np.sign(gap - 8)),
            (3, d, gap),
            (4, h, d, at(head + 1), at(dependent - 1), np.sign(gap - 8)),
            (5, h, d, at(head - 1), at(dependent + 1), np.sign(gap - 8)),
        ]
        return np.stack([hashed(key) for key in ids], axis=-1)

    def trees(self, weights):
        scores = weights[self.features].sum(axis=-1)
        return fg.SpanningTrees(scores, single_root=True, lengths=self.lengths, labeled=False)

    def pull_back(self, gradient):
        """Return the gradient in the weights (TABLE,), given the gradient in the scores."""
        ids = self.features.ravel()
        return np.bincount(ids, np.repeat(gradient.ravel(), self.features.shape[-1]), TABLE)


def hashed(key):
    total = np.zeros(1, dtype=np.int64)
    for part in key:
        total = (total * 1_000_003 + part + 7) % ((1 << 31) - 1)
    return total * 40_503 % TABLE


def expectation_features(batch, names):
    """Return the arcs that follow each of F rules, (b, m+1, m+1, F), and how many are possible.

    The second array (b, F) counts the words that have at least one arc of the rule.
    """
    known = {name: i for i, name in enumerate(names, start=1)}
    tag = collections.defaultdict(lambda: -1, known)  # -1 for a tag that the treebank lacks
    head, dependent = np.indices((batch.heads.shape[1] + 1,) * 2)
    h, d = batch.tags[:, head], batch.tags[:, dependent]
    rules = [(d == tag[t]) & (h == tag["NOUN"]) & (head > dependent) for t in ("DET", "ADJ", "ADP")]
    rules += [(d == tag[t]) & (h == tag["VERB"]) for t in ("NOUN", "PRON", "AUX", "ADV")]
    rules += [(head == 0) & (d == tag["VERB"]), (d == tag["NOUN"]) & (h == tag["NOUN"])]
    features = np.stack(rules, axis=-1) * (dependent > 0)[..., None]
    return features.astype(float), features.max(axis=1).sum(axis=1)


def likelihood(batch, weights):
    """Return the gradient of the negative log-likelihood of the gold trees in the scores."""
    return batch.trees(weights).nll(batch.heads)[1]


def expectations(names, shares):
    """Return a function of a batch and weights: the gradient of 1/2 |E f - shares * possible|^2."""

    def gradient(batch, weights):
        features, possible = expectation_features(batch, names)
        return batch.trees(weights).generalized_expectation(features, shares * possible)[1]

    return gradient


def train(batches, objective, epochs, step=0.3):
    """Return weights trained by Adagrad with a little weight decay."""
    weights, squares = np.zeros(TABLE), np.full(TABLE, 1e-3)
    for _ in range(epochs):
        for batch in batches:
            change = batch.pull_back(objective(batch, weights)) + 0.01 * weights
            squares += change**2
            weights -= step * change / np.sqrt(squares)
    return weights


def report(name, batches, weights):
    right = expected = entropy = words = 0
    for batch in batches:
        trees = batch.trees(weights)
        real = batch.heads >= 0
        right += (trees.mode() == batch.heads)[real].sum()
        expected += trees.expectation(trees.parts(batch.heads)).sum()
        entropy += trees.entropy().sum()
        words += real.sum()
    print(
        f"{name:<28} best trees {right / words:.1%}   expected {expected / words:.1%}   "
        f"entropy {entropy / words:.2f} nats per word"
    )
    return right / words


def main(path=DATA / "turkish_web.conllu"):
    start = time.perf_counter()
    sentences = list(read_conllu(path))
    names = sorted({tag for s in sentences for tag in s.tags})
    tags = {name: i for i, name in enumerate(names, start=1)}
    known = len(sentences) * 4 // 5
    by_length = sorted(sentences[:known], key=lambda s: len(s.heads))
    batches = [Batch(by_length[i : i + 32], tags) for i in range(0, known, 32)]
    tests = [Batch(sentences[i : i + 32], tags) for i in range(known, len(sentences), 32)]
    shares = np.array([0.9, 0.8, 0.7, 0.6, 0.7, 0.7, 0.6, 0.3, 0.3])
    guided = train(batches, expectations(names, shares), 4)
    weights = train(batches, likelihood, 8)
    scores = {
        "all trees alike": report("0. all trees alike", tests, np.zeros(TABLE)),
        "nine expectations": report("1. nine expectations", tests, guided),
        "likelihood": report(f"2. likelihood of {known} trees", tests, weights),
    }
    print(f"{time.perf_counter() - start:.0f} s")
    sentence = next(s for s in sentences[known:] if len(s.heads) == 9)
    models = {"nine expectations": guided, "likelihood": weights}
    marginals = {
        name: Batch([sentence], tags).trees(own).marginals()[0] for name, own in models.items()
    }
    return [
        fg.plot.trees(marginals, sentence.forms, heads=sentence.heads),
        fg.plot.bars({"": scores}, xlabel="right heads", log=False),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    figures = main(*sys.argv[1:])
