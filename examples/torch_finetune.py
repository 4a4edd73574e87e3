"""PyTorch: fine-tuning an encoder
===============================

A small encoder is "pretrained" to guess masked pieces, then trained to tag words, with mixed
precision and accumulated gradients.  Inner pieces and padding have tag -100.

    python examples/torch_finetune.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

PIECES, TAGS, LENGTH, MASK = 30, 3, 14, 30
LOSS = fg.Hamming(fg.Alphabet("xyz"))


def sentences(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pieces and tags (count, LENGTH); pieces >= 20 continue a word and have tag -100."""
    pieces = rng.integers(PIECES, size=(count, LENGTH))
    tags = pieces % TAGS
    tags[:, 1:] = (tags[:, 1:] + (pieces[:, :-1] >= 20)) % TAGS  # the previous piece matters
    tags[pieces >= 20] = -100
    tags[np.arange(LENGTH) >= rng.integers(6, LENGTH + 1, size=count)[:, None]] = -100
    return torch.as_tensor(pieces), torch.as_tensor(tags)


class Encoder(torch.nn.Module):
    """Two transformer layers with a head that can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(PIECES + 1, 32), torch.nn.Embedding(LENGTH, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, PIECES)

    def forward(self, pieces: torch.Tensor) -> torch.Tensor:
        """Return scores (batch, LENGTH, outputs of the head)."""
        return self.head(self.layers(self.embed(pieces) + self.place(torch.arange(LENGTH))))


def main(pretrain: int = 60, steps: int = 150, accumulate: int = 2) -> dict[int, float]:
    """Pretrain and fine-tune; return the share of correct tags on new sentences, by step."""
    rng, _, model = np.random.default_rng(0), torch.manual_seed(0), Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(pretrain):
        pieces, _ = sentences(32, rng)
        hidden = torch.rand(pieces.shape) < 0.15
        scores = model(pieces.masked_fill(hidden, MASK))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores[hidden], pieces[hidden]).backward()
        optimizer.step()
    model.head = torch.nn.Linear(32, TAGS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu")  # needed for float16; optional for bfloat16
    criterion = torch.compile(fgt.SoftmaxMarginLoss(LOSS), backend="aot_eager")
    new, shares = sentences(200, rng), {}
    for step in range(steps * accumulate):
        pieces, tags = sentences(16, rng)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = criterion(model(pieces), tags) / accumulate
        scaler.scale(value).backward()
        if step % accumulate == accumulate - 1:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if step % 20 == 19:
            right = model(new[0]).argmax(dim=2) == new[1]  # order 1: positions are independent
            shares[(step + 1) // accumulate] = float(right[new[1] >= 0].float().mean())
    print(f"tags right on new sentences {shares[steps]:.3f}")
    return shares


if __name__ == "__main__":
    line = tuple(zip(*main().items(), strict=True))
    figure = fg.plot.curves({"": {"new sentences": line}}, xlabel="step", ylabel="right", log=False)
