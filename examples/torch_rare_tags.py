"""PyTorch: a tagger trained with the cost of each error
=====================================================

Missing a rare tag costs five times as much as other errors, and the softmax margin has these costs.

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
    _, model = torch.manual_seed(0), Tagger()
    words, tags = sentences(train, np.random.default_rng(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        for batch in torch.randperm(train).split(25):
            optimizer.zero_grad()
            crf = fgt.CRF(model(words[batch]), model.transitions)
            crf.softmax_margin(tags[batch], costs).backward()
            optimizer.step()
    return model


def main(train: int = 200, epochs: int = 12) -> tuple[dict[str, float], dict, np.ndarray]:
    """Train without and with costs; return the recall of the rare tag, marginals and gold tags."""
    new, found, marginals = sentences(200, np.random.default_rng(1)), {}, {}
    shown = int(((new[1] == RARE).sum(1) * (new[1][:, -1] >= 0)).argmax())  # most rare tags
    for name, costs in (("likelihood", 0 * COSTS), ("with costs", COSTS)):
        found[name], every = recall(model := trained(costs, train, epochs), *new)
        marginals[name] = fgt.CRF(model(new[0]), model.transitions).marginals()[shown].detach()
        print(f"{name}: rare tags found {found[name]:.3f}, tags right {every:.3f}")
    return found, marginals, new[1][shown].numpy()


if __name__ == "__main__":
    _, marginals, gold = main()
    figure = fg.plot.marginals(marginals, fg.Alphabet(["0", "1", "2", "rare"]), target=gold)
