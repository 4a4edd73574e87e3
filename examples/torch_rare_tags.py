"""PyTorch: a tagger trained with the cost of each error
=====================================================

For this BiLSTM-CRF tagger, missing a rare tag costs five times as much as other errors, and the
softmax margin has these costs.  Without costs, it is the likelihood.

    python examples/torch_rare_tags.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

WORDS, TAGS, LENGTH, RARE = 50, 4, 12, 3
COSTS = torch.ones(TAGS, TAGS) - torch.eye(TAGS)  # [gold, predicted]
COSTS[RARE] *= 5.0


def sentences(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and tags (count, LENGTH), -100 after the end; a rare tag may follow tag 0."""
    words = rng.integers(WORDS, size=(count, LENGTH))
    tags = words % RARE
    rare = (words[:, 1:] < 15) & (tags[:, :-1] == 0) & (rng.random((count, LENGTH - 1)) < 0.6)
    tags[:, 1:][rare] = RARE
    tags[np.arange(LENGTH) >= rng.integers(5, LENGTH + 1, size=count)[:, None]] = -100
    return torch.as_tensor(words), torch.as_tensor(tags)


class Tagger(torch.nn.Module):
    """Emissions from a BiLSTM, and transition scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 24)
        self.lstm = torch.nn.LSTM(24, 24, bidirectional=True, batch_first=True)
        self.emit = torch.nn.Linear(48, TAGS)
        self.transitions = torch.nn.Parameter(torch.zeros(TAGS, TAGS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return emissions (batch, LENGTH, TAGS)."""
        return self.emit(self.lstm(self.embed(words))[0])


def recall(model: Tagger, words: torch.Tensor, tags: torch.Tensor) -> tuple[float, float]:
    """Return the share of rare tags that are found, and the share of all tags that are correct."""
    found = fgt.CRF(model(words), model.transitions, tags >= 0).decode()
    right = found == tags
    return float(right[tags == RARE].float().mean()), float(right[tags >= 0].float().mean())


def trained(costs: torch.Tensor, train: int, epochs: int) -> Tagger:
    """Return a tagger trained on the softmax margin of the costs; with zeros, on likelihood."""
    torch.manual_seed(0)
    words, tags = sentences(train, np.random.default_rng(0))
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        for batch in torch.randperm(train).split(25):
            optimizer.zero_grad()
            crf = fgt.CRF(model(words[batch]), model.transitions)
            crf.softmax_margin(tags[batch], costs).backward()
            optimizer.step()
    return model


def main(train: int = 200, epochs: int = 12) -> dict[str, float]:
    """Train without and with costs; return the recall of the rare tag on new sentences."""
    new, found = sentences(200, np.random.default_rng(1)), {}
    for name, costs in (("likelihood", 0 * COSTS), ("with costs", COSTS)):
        found[name], every = recall(trained(costs, train, epochs), *new)
        print(f"{name}: rare tags found {found[name]:.3f}, tags right {every:.3f}")
    return found


if __name__ == "__main__":
    figure = fg.plot.bars(main(), xlabel="rare tags found", log=False)
