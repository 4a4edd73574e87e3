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
    sounds = np.repeat(SOUNDS[references], 3, axis=1) * np.tile([1, 1, 0.3], LENGTH)[:, None]
    frames = torch.tensor(sounds + rng.normal(size=sounds.shape), dtype=torch.float32)
    return frames, torch.as_tensor(references)


def lattice_of(labels: np.ndarray) -> tuple[fg.Lattice, np.ndarray, np.ndarray]:
    """Return the lattice of two labels per frame (T, 2), and the frame and label of each arc."""
    before, arcs = {BLANK: 0}, []  # a state is (frame, previous label)
    for frame, kept in enumerate(labels.tolist()):
        after = {label: 1 + 2 * frame + i for i, label in enumerate(kept)}
        for last, source in before.items():
            for label, target in after.items():  # CTC writes a repeated label once
                written = -1 if label in (last, BLANK) else label
                arcs.append((source, target, written, frame, label))
        before = after
    *arcs, frames, own = np.array(arcs).T
    return fg.Lattice.from_arcs(*arcs, 0.0 * own, ABC, final=before.values()), frames, own


def scored(log_probs: torch.Tensor) -> tuple[list[torch.Tensor], list[fg.Lattice]]:
    """Return the lattices of a batch and the scores of their arcs."""
    made = [lattice_of(labels) for labels in log_probs.detach().topk(2, dim=2).indices.numpy()]
    rows = zip(log_probs, made, strict=True)
    scores = [lattice.scatter(own[frames, labels]) for own, (lattice, frames, labels) in rows]
    return scores, [lattice for lattice, *_ in made]


def error_rate(log_probs: torch.Tensor, references: torch.Tensor) -> float:
    """Return the mean word error rate of the most probable strings of the lattices."""
    found = fgt.LatticeStrings(*scored(log_probs.detach())).decode().numpy()
    return float(LOSS.pairwise([row[row >= 0] for row in found], references.numpy()).mean())


def main(ctc_steps: int = 40, risk_steps: int = 80) -> dict[str, dict[int, float]]:
    """Train by CTC, then by risk; return word error rates on new utterances, by steps."""
    rng, _, rates = np.random.default_rng(0), torch.manual_seed(0), {}
    model = torch.nn.Sequential(torch.nn.Linear(DIM, WORDS + 1), torch.nn.LogSoftmax(-1))
    ctc, risk, end = fgt.CTCLoss(blank=BLANK), fgt.LatticeRiskLoss(LOSS), ctc_steps + risk_steps
    optimizer, new = torch.optim.Adam(model.parameters(), lr=0.01), utterances(200, rng)
    for phase, steps in (("CTC", range(ctc_steps)), ("minimum risk", range(ctc_steps, end))):
        rates[phase], is_ctc = {steps.start: error_rate(model(new[0]), new[1])}, phase == "CTC"
        for step in steps:
            frames, references = utterances(32, rng)
            optimizer.zero_grad()
            inputs = (model(frames),) if is_ctc else scored(model(frames))
            (ctc if is_ctc else risk)(*inputs, references).backward()
            optimizer.step()
            if step % 10 == 9 or step == steps[-1]:
                rates[phase][step + 1] = error_rate(model(new[0]), new[1])
        print(f"word error rate, {phase}: {rates[phase][steps.stop]:.3f}")
    return rates


if __name__ == "__main__":
    lines = {phase: (list(line), list(line.values())) for phase, line in main().items()}
    figure = fg.plot.curves({"": lines}, xlabel="step", ylabel="word error rate", log=False)
