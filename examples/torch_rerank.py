"""PyTorch: re-ranking lattices
============================

Word lattices are re-ranked with a model trained on the exact expected word error rate.

Each lattice has a few words for every position; some positions are optional.  The features of an
arc are a noisy confidence and the noisy length of its word.  The weights minimize the risk.

    python examples/torch_rerank.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

WORDS = [f"w{i}" for i in range(30)]
ABC = fg.Alphabet(WORDS)


def utterance(rng: np.random.Generator) -> tuple[fg.Lattice, torch.Tensor, list[str]]:
    """Return a lattice, its arc features (A, 2) and the reference."""
    reference = [WORDS[i] for i in rng.integers(len(WORDS), size=6)]
    source, target, labels, features = [], [], [], []
    for position, right in enumerate(reference):
        others = [WORDS[i] for i in rng.integers(len(WORDS), size=3)]
        for word in dict.fromkeys([right, *others]):
            source.append(position)
            target.append(position + 1)
            labels.append(WORDS.index(word))
            features.append([(word == right) + rng.normal(), len(word) + rng.normal()])
        if rng.random() < 0.3:  # a deletion: the word may be skipped
            source.append(position)
            target.append(position + 1)
            labels.append(-1)
            features.append([rng.normal(), 0.0])
    zeros = np.zeros(len(source))
    lattice = fg.Lattice.from_arcs(source, target, labels, zeros, ABC, final=[len(reference)])
    return lattice, torch.tensor(features, dtype=torch.float64), reference


def error_rate(corpus, layer: torch.nn.Linear) -> float:
    """Return the word error rate of the best paths."""
    loss, errors, words = fg.EditDistance(ABC), 0.0, 0
    for lattice, features, reference in corpus:
        with torch.no_grad():
            scored = lattice.with_scores(layer(features)[:, 0].numpy())
        errors += loss(scored.string(scored.best_path()[0]), reference)
        words += len(reference)
    return errors / words


def main(count: int = 40, steps: int = 30) -> tuple[float, float]:
    """Train on one half; return the error rate of the other half before and after."""
    rng = np.random.default_rng(0)
    corpus = [utterance(rng) for _ in range(count)]
    train, test = corpus[: count // 2], corpus[count // 2 :]
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([0.0, 1.0])  # rank by length alone
    before = error_rate(test, layer)
    criterion = fgt.LatticeRiskLoss(fg.WordErrorRate(ABC))
    lattices, features, references = zip(*train, strict=True)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        scores = [layer(own)[:, 0] for own in features]
        criterion(scores, lattices, references).backward()
        optimizer.step()
    after = error_rate(test, layer)
    print(f"word error rate before {before:.3f}, after {after:.3f}")
    return before, after


if __name__ == "__main__":
    rates = dict(zip(("before", "after"), main(), strict=True))
    figure = fg.plot.bars(rates, xlabel="word error rate", log=False)
