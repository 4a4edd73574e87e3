"""PyTorch: minimum word errors on n-best lists
============================================

Inputs repeat and garble words; the network, which hypotheses are drawn from, corrects them.

    python examples/torch_mwer.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

WORDS, LENGTH, DROP = 8, 6, 8
LOSS = fg.WordErrorRate(fg.Alphabet(f"w{i}" for i in range(WORDS)))


def corpus(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (count, 2 * LENGTH), padded with WORDS, and references (count, LENGTH)."""
    inputs = np.full((count, 2 * LENGTH), WORDS)
    references = rng.integers(WORDS, size=(count, LENGTH))
    for row, reference in zip(inputs, references, strict=True):
        heard = np.repeat(reference, rng.integers(1, 3, size=LENGTH))
        heard = np.where(rng.random(len(heard)) < 0.1, rng.integers(WORDS, size=len(heard)), heard)
        row[: len(heard)] = heard
    return torch.as_tensor(inputs), torch.as_tensor(references)


class Corrector(torch.nn.Module):
    """Log-probabilities of each word and of DROP at each position, from a window of 3 inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS + 1, 32)
        self.near = torch.nn.Conv1d(32, 32, 3, padding=1)
        self.emit = torch.nn.Linear(32, WORDS + 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities (batch, positions, WORDS + 1); at first, they favour copies."""
        hidden = torch.relu(self.near(self.embed(inputs).transpose(1, 2)).transpose(1, 2))
        copy = 2.0 * torch.nn.functional.one_hot(inputs, WORDS + 1)
        return torch.log_softmax(self.emit(hidden) + copy, dim=-1)


def sample(log_probs: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the best and sampled hypotheses (batch, size, positions); -100 drops; and log p."""
    chosen = torch.distributions.Categorical(logits=log_probs).sample((size,)).transpose(0, 1)
    chosen[:, 0] = log_probs.argmax(dim=-1)
    total = log_probs[:, None].expand(-1, size, -1, -1).gather(3, chosen[..., None]).sum((2, 3))
    return chosen.masked_fill(chosen == DROP, -100), total


def error_rate(model: Corrector, inputs: torch.Tensor, references: torch.Tensor) -> float:
    """Return the mean word error rate of the best outputs."""
    best = model(inputs).argmax(dim=-1).numpy()
    return float(LOSS.pairwise([y[y != DROP] for y in best], references.numpy()).mean())


def main(steps: int = 150) -> dict[int, float]:
    """Train; return the word error rates on new inputs, by the number of steps."""
    rng, _ = np.random.default_rng(0), torch.manual_seed(0)
    model, new = Corrector(), corpus(100, rng)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rates = {0: error_rate(model, *new)}
    for step in range(1, steps + 1):
        inputs, references = corpus(32, rng)
        hypotheses, log_probs = sample(model(inputs), size=8)
        optimizer.zero_grad()
        fgt.nbest_risk(log_probs, hypotheses, references, LOSS).backward()
        optimizer.step()
        rates |= {step: error_rate(model, *new)} if step % 10 == 0 else {}
    print(f"word error rate before {rates[0]:.3f}, after {rates[steps]:.3f}")
    return rates


if __name__ == "__main__":
    panels = {"new inputs": {"corrector": tuple(zip(*main().items(), strict=True))}}
    figure = fg.plot.curves(panels, xlabel="step", ylabel="word error rate", log=False)
