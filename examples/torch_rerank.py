"""PyTorch: re-ranking lattices
============================

Each lattice has a few words for every position; some positions are optional.  The features of an
arc are a noisy confidence and the noisy length of its word.  The weights minimize the expected word
error rate.

    python examples/torch_rerank.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt
from fstgrad.learning.score import oracle_path

WORDS = [f"w{i}" for i in range(30)]
ABC = fg.Alphabet(WORDS)


def utterance(rng: np.random.Generator) -> tuple[fg.Lattice, torch.Tensor, list[str]]:
    """Return a lattice, its arc features (A, 2) and the reference."""
    reference = [WORDS[i] for i in rng.integers(len(WORDS), size=6)]
    source, labels, features = [], [], []
    for position, right in enumerate(reference):
        others = [WORDS[i] for i in rng.integers(len(WORDS), size=3)]
        for word in dict.fromkeys([right, *others]):
            source.append(position)
            labels.append(WORDS.index(word))
            features.append([(word == right) + rng.normal(), len(word) + rng.normal()])
        if rng.random() < 0.3:  # a deletion: the word may be skipped
            source.append(position)
            labels.append(-1)
            features.append([rng.normal(), 0.0])
    target, zeros = np.add(source, 1), np.zeros(len(source))
    lattice = fg.Lattice.from_arcs(source, target, labels, zeros, ABC, final=[len(reference)])
    return lattice, torch.tensor(features, dtype=torch.float64), reference


@torch.no_grad()
def scored(layer: torch.nn.Linear, lattice: fg.Lattice, features: torch.Tensor) -> fg.Lattice:
    """Return the lattice with the scores of a layer."""
    return lattice.with_scores(layer(features)[:, 0].numpy())


def error_rate(layer: torch.nn.Linear, corpus) -> float:
    """Return the word error rate of the best paths."""
    lattices = [scored(layer, lattice, features) for lattice, features, _ in corpus]
    return fg.score(lattices, [reference for *_, reference in corpus]).error_rate.value


def main(count: int = 40, steps: int = 30) -> tuple:
    """Train on one half; return the error rate of the other before and after, and lattices."""
    rng = np.random.default_rng(0)
    corpus = [utterance(rng) for _ in range(count)]
    train, test = corpus[: count // 2], corpus[count // 2 :]
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([0.0, 1.0])  # rank by length alone
    before, shown = error_rate(layer, test), {"before training": scored(layer, *test[0][:2])}
    criterion = fgt.LatticeRiskLoss(fg.WordErrorRate(ABC))
    lattices, features, references = zip(*train, strict=True)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        scores = [layer(own)[:, 0] for own in features]
        criterion(scores, lattices, references).backward()
        optimizer.step()
    after = error_rate(layer, test)
    shown["after training; framed: the reference"] = scored(layer, *test[0][:2])
    print(f"word error rate before {before:.3f}, after {after:.3f}")
    return before, after, (shown, oracle_path(test[0][0], test[0][2]))


if __name__ == "__main__":
    *_, (lattices, path) = main()
    figure = fg.plot.confusion_network(lattices, path=path)
