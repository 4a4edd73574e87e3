"""PyTorch: contrast-sensitive segmentation
========================================

The pictures show two noisy grey discs.  The coupling of two neighbours is w exp(-beta d^2), where d
is their difference in grey, so each edge of each image has its own table.  Node scores, w and beta
are trained together.  The ring around an object is not annotated: its gold label is -100, and the
loss sums over its labels.

    python examples/torch_segmentation.py
"""

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt

SIZE, LABELS = 8, 3
GRID = fg.PairwiseMRF.grid(
    SIZE, SIZE, node_scores=np.zeros((SIZE * SIZE, LABELS)), edge_scores=np.zeros((LABELS, LABELS))
)
ENDS = torch.tensor(np.array(GRID.graph.edges))
SAME = torch.eye(LABELS)


def pictures(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pictures (count, 1, SIZE, SIZE) and their labels (count, SIZE, SIZE)."""
    rows, columns = np.indices((SIZE, SIZE))
    labels = np.zeros((count, SIZE, SIZE), dtype=np.int64)
    for label in (1, 2):
        place = rng.uniform(2, SIZE - 2, size=(count, 2, 1, 1))
        labels[(rows - place[:, 0]) ** 2 + (columns - place[:, 1]) ** 2 < 6] = label
    noisy = labels + rng.normal(scale=0.6, size=labels.shape)
    return torch.tensor(noisy[:, None], dtype=torch.float32), torch.as_tensor(labels)


class Segmenter(torch.nn.Module):
    """Node scores from a convolution, and edge scores from the contrast."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = torch.nn.Conv2d(1, LABELS, kernel_size=3, padding=1)
        self.smooth = torch.nn.Conv2d(1, 1, kernel_size=3, padding=1)
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 0.0]))  # w and log beta

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return node scores (B, LABELS, SIZE, SIZE) and edge scores (B, E, LABELS, LABELS)."""
        grey = self.smooth(images).flatten(1)
        contrast = (grey[:, ENDS[:, 0]] - grey[:, ENDS[:, 1]]).square()
        tie = self.weight[0] * torch.exp(-self.weight[1].exp() * contrast)
        return self.nodes(images), tie[..., None, None] * SAME


def main(count: int = 20, steps: int = 40) -> tuple[float, float, dict[str, torch.Tensor]]:
    """Train; return the share of correct pixels without and with the edges, and one new image."""
    rng, _ = np.random.default_rng(0), torch.manual_seed(0)
    images, labels = pictures(count, rng)
    inside = torch.nn.functional.max_pool2d((labels > 0).float(), 3, 1, padding=1) > 0
    gold = labels.masked_fill(inside & (labels == 0), -100)
    model = Segmenter()
    criterion = fgt.MRFLoss(GRID)  # exact; use "bp" or "trw" for larger pictures
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(*model(images), gold).backward()
        optimizer.step()
    images, labels = pictures(20, rng)
    nodes, edges = model(images)
    alone, tied = nodes.argmax(1), fgt.RandomFields(nodes, edges, GRID).mbr()
    shares = [float((y == labels).float().mean()) for y in (alone, tied)]
    print("pixels right on new images: alone {:.3f}, with the edges {:.3f}".format(*shares))
    grey = (images[0, 0] - images[0].min()) / (images[0].max() - images[0].min())
    shown = {"image": grey, "pixels alone": alone[0], "with edges": tied[0], "labels": labels[0]}
    return shares[0], shares[1], shown


if __name__ == "__main__":
    *_, panels = main()
    figure = fg.plot.strip(panels)
