"""PyTorch: a tagger with the bigram loss
======================================

A BiLSTM tagger is trained with the bigram loss, so that predicted tags share bigrams with gold
tags.

The sentences are synthetic.  A word's tag is its number modulo the number of tags.  Every fifth
word is an exception: its tag depends on the word before it, so that context matters.

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


def main(train: int = 200, epochs: int = 15) -> float:
    """Train; return the accuracy on new sentences."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    words, tags = sentences(train, rng)
    model = Tagger()
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
    found = accuracy(model, *sentences(100, rng))
    print(f"accuracy on new sentences {found:.3f}")
    return found


if __name__ == "__main__":
    shares = {"tagger": main(), "by chance": 1 / TAGS}
    figure = fg.plot.bars(shares, xlabel="tags right", log=False)
