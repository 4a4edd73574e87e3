"""PyTorch: a tagger with the bigram loss
======================================

A word's tag is its number modulo the number of tags; every fifth word's depends on the word before.

    python examples/torch_tagger.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

WORDS, TAGS, LENGTH = 40, 4, 8


def sentences(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and tags, both (count, LENGTH)."""
    words = rng.integers(WORDS, size=(count, LENGTH))
    tags = words % TAGS
    rare = words % 5 == 0
    tags[:, 1:] = np.where(rare[:, 1:], (tags[:, :-1] + 1) % TAGS, tags[:, 1:])
    return torch.as_tensor(words), torch.as_tensor(tags)


class Tagger(torch.nn.Module):
    """Word embeddings, a BiLSTM, and a score for each pair of neighbouring tags."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, width)
        self.lstm = torch.nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.emit = torch.nn.Linear(2 * width, TAGS)
        self.follow = torch.nn.Parameter(torch.zeros(TAGS + 1, TAGS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores (batch, LENGTH, TAGS + 1, TAGS) of pairs (previous tag, tag)."""
        hidden, _ = self.lstm(self.embed(words))
        return self.emit(hidden)[:, :, None, :] + self.follow


def accuracy(model: Tagger, words: torch.Tensor, tags: torch.Tensor) -> float:
    """Return the share of correct tags in the most probable sequences."""
    best = fgt.Strings(model(words)).decode()
    return float((best == tags).float().mean())


def marginals_of(model: Tagger, words: torch.Tensor) -> np.ndarray:
    """Return the probabilities of pairs (previous tag, tag) in one sentence."""
    return fg.StringDistribution(model(words[None])[0].detach().double().numpy()).marginals()


def main(train: int = 200, epochs: int = 15) -> tuple[float, dict, np.ndarray]:
    """Train; return the accuracy on new sentences, and marginals and gold tags of one of them."""
    rng, _ = np.random.default_rng(0), torch.manual_seed(0)
    words, tags = sentences(train, rng)
    new, model = sentences(100, rng), Tagger()
    marginals = {"before training": marginals_of(model, new[0][0])}
    loss = fg.NGram(fg.Alphabet("abcd"), order=2, smoothing=0.5)
    criterion = fgt.SoftmaxMarginLoss(loss)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        for batch in torch.randperm(train).split(25):
            optimizer.zero_grad()
            value = criterion(model(words[batch]), tags[batch])
            value.backward()
            optimizer.step()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1:3}  softmax margin {value.detach():.3f}")
    found = accuracy(model, *new)
    print(f"accuracy on new sentences {found:.3f}")
    marginals["after training"] = marginals_of(model, new[0][0])
    return found, marginals, new[1][0].numpy()


if __name__ == "__main__":
    _, marginals, gold = main()
    figure = fg.plot.marginals(marginals, fg.Alphabet("abcd"), target=gold)
