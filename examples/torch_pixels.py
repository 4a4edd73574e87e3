"""PyTorch: pixels tied by a random field
======================================

A pixel classifier is trained jointly with a Markov random field on the grid of pixels.

The images show noisy discs.  A 3 x 3 convolution computes the node scores; all edges share one
table of scores.  Both are trained by pseudolikelihood; belief propagation labels new images.

    python examples/torch_pixels.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

SIZE = 16
GRID = fg.PairwiseMRF.grid(
    SIZE, SIZE, node_scores=np.zeros((SIZE * SIZE, 2)), edge_scores=np.zeros((2, 2))
)


def images(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
    """Return noisy images (count, 1, SIZE, SIZE) and their labels (count, SIZE * SIZE)."""
    rows, columns = np.indices((SIZE, SIZE))
    centre = rng.uniform(4, SIZE - 4, size=(count, 2, 1, 1))
    radius = rng.uniform(3, 6, size=(count, 1, 1))
    inside = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2
    noisy = inside + rng.normal(scale=1.2, size=inside.shape)
    labels = inside.reshape(count, -1).astype(np.int64)
    return torch.tensor(noisy[:, None], dtype=torch.float32), labels


class Pixels(torch.nn.Module):
    """Node scores from a convolution, and one table of edge scores."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, 2, kernel_size=3, padding=1)
        self.edge = torch.nn.Parameter(torch.zeros(2, 2))

    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        """Return node scores (batch, SIZE * SIZE, 2)."""
        return self.convolution(noisy).flatten(2).transpose(1, 2)


def labeled(model: Pixels, noisy: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the labels (count, SIZE * SIZE) without and with the edges, and P(y = 1) with them."""
    with torch.no_grad():
        nodes, edge = model(noisy).double().numpy(), model.edge.double().numpy()
    p = [GRID.with_scores(own, edge).infer("bp", damping=0.3).node[:, 1] for own in nodes]
    found = {"pixels alone": nodes.argmax(axis=2), "P(y = 1)": np.array(p)}
    return found | {"random field": found["P(y = 1)"] > 0.5}


def main(count: int = 20, steps: int = 60) -> tuple[float, float, dict[str, np.ndarray]]:
    """Train; return the accuracy on new images without and with the edges, and one of them."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    noisy, labels = images(count, rng)
    model = Pixels()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    criterion = fgt.MRFLoss(GRID, method="pseudolikelihood")
    gold = torch.as_tensor(labels)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(model(noisy), model.edge, gold).backward()
        optimizer.step()
    noisy, labels = images(10, rng)
    found = labeled(model, noisy)
    alone, tied = (float((found[k] == labels).mean()) for k in ("pixels alone", "random field"))
    print(f"pixel accuracy on new images: alone {alone:.3f}, with the random field {tied:.3f}")
    shown = {"labels": labels} | found
    return alone, tied, {name: table[0].reshape(SIZE, SIZE) for name, table in shown.items()}


if __name__ == "__main__":
    figure = fg.plot.strip(main()[2])
