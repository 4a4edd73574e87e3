"""PyTorch: lattices of a CTC model
================================

Lattices of a CTC model are trained to minimize the word error rate, exactly over all their paths.

    python examples/torch_ctc_lattice.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

WORDS, LENGTH, DIM, BLANK = 6, 4, 8, 6
ABC = fg.Alphabet(f"w{i}" for i in range(WORDS))
LOSS = fg.WordErrorRate(ABC)
SOUNDS = np.random.default_rng(1).normal(size=(WORDS, DIM))


def utterances(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return frames (count, 3 * LENGTH, DIM) and references (count, LENGTH)."""
    references = rng.integers(WORDS, size=(count, LENGTH))
    frames = np.repeat(SOUNDS[references], 3, axis=1) * np.tile([1, 1, 0.3], LENGTH)[:, None]
    frames += rng.normal(size=frames.shape)
    return torch.tensor(frames, dtype=torch.float32), torch.as_tensor(references)


def lattice_of(labels: np.ndarray) -> tuple[fg.Lattice, np.ndarray, np.ndarray]:
    """Return the lattice of two labels per frame (T, 2), and the frame and label of each arc."""
    before, states, arcs = {BLANK: 0}, 1, []  # a state is (frame, previous label)
    for frame, kept in enumerate(labels.tolist()):
        after = {label: states + i for i, label in enumerate(kept)}
        for last, source in before.items():
            for label, target in after.items():  # CTC writes a repeated label once
                written = -1 if label in (last, BLANK) else label
                arcs.append((source, target, written, frame, label))
        before, states = after, states + len(kept)
    source, target, written, frames, own = np.array(arcs).T
    given = source, target, written, np.zeros(len(arcs)), ABC
    return fg.Lattice.from_arcs(*given, final=before.values()), frames, own


def scored(log_probs: torch.Tensor) -> tuple[list[torch.Tensor], list[fg.Lattice]]:
    """Return the lattices of a batch and the scores of their arcs."""
    made = [lattice_of(labels) for labels in log_probs.detach().topk(2, dim=2).indices.numpy()]
    rows = zip(log_probs, made, strict=True)
    scores = [lattice.scatter(own[frames, labels]) for own, (lattice, frames, labels) in rows]
    return scores, [lattice for lattice, *_ in made]


def error_rate(scores: torch.Tensor, references: torch.Tensor) -> float:
    """Return the mean word error rate of the most probable strings of the lattices."""
    found = fgt.LatticeStrings(*scored(torch.log_softmax(scores.detach(), -1))).decode().numpy()
    return float(LOSS.pairwise([row[row >= 0] for row in found], references.numpy()).mean())


def main(ctc_steps: int = 40, risk_steps: int = 80) -> dict[str, float]:
    """Train by CTC, then by risk; return the word error rate on new utterances after each."""
    rng, _, found = np.random.default_rng(0), torch.manual_seed(0), {}
    model, new = torch.nn.Linear(DIM, WORDS + 1), utterances(200, rng)
    ctc, risk = fgt.CTCLoss(blank=BLANK), fgt.LatticeRiskLoss(LOSS)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for phase, count in (("CTC", ctc_steps), ("then minimum risk", risk_steps)):
        for _ in range(count):
            frames, references = utterances(32, rng)
            optimizer.zero_grad()
            log_probs = torch.log_softmax(model(frames), -1)
            on_lattices = phase != "CTC"
            inputs = scored(log_probs) if on_lattices else (log_probs,)
            (risk if on_lattices else ctc)(*inputs, references).backward()
            optimizer.step()
        found[phase] = error_rate(model(new[0]), new[1])
        print(f"word error rate, {phase}: {found[phase]:.3f}")
    return found


if __name__ == "__main__":
    figure = fg.plot.bars(main(), xlabel="word error rate", log=False)
