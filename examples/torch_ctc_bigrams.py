"""PyTorch: CTC with bigrams of labels
======================================

Here p(y | x) is p_CTC(y | x) times a weight for each pair of neighbouring labels, normalized over
all strings.  A chain sums over all paths: a state is a label, or a blank with the label before it.

    python examples/torch_ctc_bigrams.py
"""

import itertools

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

LABELS, LENGTH, DIM = 6, 5, 8  # label 0 is the blank
SOUNDS = np.random.default_rng(1).normal(size=(LABELS, DIM))


def utterances(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, list[list[int]]]:
    """Return noisy frames (count, 2 * LENGTH, DIM) and strings: a label has two followers."""
    strings = rng.integers(1, LABELS, size=(count, LENGTH))
    for i in range(1, LENGTH):
        strings[:, i] = 1 + (strings[:, i - 1] + rng.integers(2, size=count)) % (LABELS - 1)
    paths = np.stack([strings, np.zeros_like(strings)], axis=2).reshape(count, -1)
    frames = SOUNDS[paths] + 1.5 * rng.normal(size=(*paths.shape, DIM))
    return torch.tensor(frames, dtype=torch.float32), strings.tolist()


def chain(scores: torch.Tensor, pairs: torch.Tensor) -> fgt.CRF:
    """Return all paths, from scores (B, T, n) and weights (n, n), whose row 0 is the start."""
    same = torch.eye(len(pairs), dtype=torch.bool)
    stay = torch.full_like(pairs, -torch.inf).masked_fill(same, 0.0)
    after_blank = torch.cat([stay, pairs[:, 1:]], 1)
    after_label = torch.cat([stay, pairs.masked_fill(same, 0.0)[:, 1:]], 1)  # a repeat is one label
    emissions = torch.cat([scores[..., :1].expand_as(scores), scores[..., 1:]], 2)
    return fgt.CRF(emissions, torch.cat([after_blank, after_label[1:]]), start=after_blank[0])


def nll(scores: torch.Tensor, gold: list[list[int]], pairs: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log p(gold | x): that of CTC, plus log Z, minus the weights of gold."""
    weights = [pairs[[0, *y[:-1]], y].sum() for y in gold]
    log_z = chain(scores.log_softmax(-1), pairs).log_partition()
    return fgt.ctc_nll(scores, gold) + (log_z - torch.stack(weights)).mean()


def error_rate(scores: torch.Tensor, gold: list[list[int]], pairs: torch.Tensor) -> float:
    """Return the edit distance of the best paths per label of gold."""
    paths = (chain(scores, pairs).decode() - (LABELS - 1)).clamp(min=0).tolist()
    found = [[b for a, b in itertools.pairwise([0, *path]) if b not in (0, a)] for path in paths]
    loss = fg.EditDistance(fg.Alphabet(f"{label}" for label in range(LABELS)))
    return float(loss.pairwise(found, gold).sum()) / sum(map(len, gold))


def main(steps: int = 300) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Train with and without bigrams; return the label error rates, and marginals by frame."""
    found, marginals = {}, {}
    for name in ("CTC", "CTC with bigrams"):
        rng, _ = np.random.default_rng(0), torch.manual_seed(0)
        model, new = torch.nn.Linear(DIM, LABELS), utterances(200, rng)
        pairs = torch.zeros(LABELS, LABELS, requires_grad=name != "CTC")
        optimizer = torch.optim.Adam([*model.parameters(), pairs], 0.03)
        for _ in range(steps):
            frames, gold = utterances(32, rng)
            optimizer.zero_grad()
            nll(model(frames), gold, pairs).backward()
            optimizer.step()
        with torch.no_grad():
            found[name] = error_rate(model(new[0]), new[1], pairs)
            q = chain(model(new[0][:1]), pairs).marginals()[0]  # of states, blanks first
            marginals[name] = torch.cat([q[:, :LABELS].sum(1, keepdim=True), q[:, LABELS:]], 1)
        print(f"label error rate, {name}: {found[name]:.3f}")
    return found, marginals


if __name__ == "__main__":
    figure = fg.plot.marginals(main()[1], fg.Alphabet(["blank", *"abcde"]))
