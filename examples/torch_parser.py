"""PyTorch: a parser with entropy regularisation
=============================================

A parser is trained on gold trees for a few sentences, and on the entropy of many without (Smith and
Eisner 2007; Zmigrod et al. 2021).  A word prefers heads of the next class.

    python examples/torch_parser.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

CLASSES, LENGTH = 5, 7


def treebank(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return classes (count, LENGTH + 1), CLASSES for the root, and heads."""
    classes = rng.integers(CLASSES, size=(count, LENGTH + 1))
    classes[:, 0] = CLASSES
    fits = (classes[:, :, None] - classes[:, None, :]) % CLASSES == 1
    distance = np.abs(np.arange(LENGTH + 1)[:, None] - np.arange(LENGTH + 1))
    scores = 3.0 * fits - 0.5 * distance + rng.gumbel(scale=0.3, size=fits.shape)
    heads = fg.SpanningTrees(scores, single_root=True, labeled=False).mode()
    return torch.as_tensor(classes), torch.as_tensor(heads)


class Biaffine(torch.nn.Module):
    """Scores of arcs from the embeddings of head and dependent, and from their distance."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.head = torch.nn.Embedding(CLASSES + 1, width)
        self.dependent = torch.nn.Embedding(CLASSES + 1, width)
        self.distance = torch.nn.Embedding(LENGTH + 1, 1)

    def forward(self, classes: torch.Tensor) -> torch.Tensor:
        """Return scores[:, head, dependent], (batch, LENGTH + 1, LENGTH + 1)."""
        position = torch.arange(LENGTH + 1)
        gap = self.distance((position[:, None] - position).abs())[..., 0]
        return self.head(classes) @ self.dependent(classes).transpose(1, 2) + gap


def attachment(model: Biaffine, classes: torch.Tensor, heads: torch.Tensor) -> float:
    """Return the share of correct heads."""
    found = fgt.Trees(model(classes), single_root=True).decode()
    return float((found == heads).float().mean())


def arcs(model: Biaffine, classes: torch.Tensor) -> np.ndarray:
    """Return the arc probabilities of one sentence."""
    scores = model(classes[None])[0].detach().double().numpy()
    return fg.SpanningTrees(scores, single_root=True).marginals()


def main(labelled: int = 10, unlabelled: int = 30, steps: int = 60) -> tuple[float, dict, list]:
    """Train; return the attachment score, and marginals and gold heads of one new sentence."""
    rng, _ = np.random.default_rng(0), torch.manual_seed(0)
    (classes, heads), (others, _) = treebank(labelled, rng), treebank(unlabelled, rng)
    model, new = Biaffine(), treebank(50, rng)
    marginals = {"before training": arcs(model, new[0][0])}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    likelihood = fgt.SpanningTreeLoss(single_root=True)
    entropy = fgt.SpanningTreeEntropyLoss(single_root=True)
    for _ in range(steps):
        optimizer.zero_grad()
        unsure = entropy(model(others))
        (likelihood(model(classes), heads) + 0.1 * unsure).backward()
        optimizer.step()
    found, marginals["after training"] = attachment(model, *new), arcs(model, new[0][0])
    print(f"attachment score on new sentences {found:.3f}, entropy {unsure:.2f} nats")
    return found, marginals, new[1][0].tolist()


if __name__ == "__main__":
    _, marginals, gold = main()
    figure = fg.plot.trees(marginals, heads=gold)
