"""Dense random fields: the filters of `fstgrad.mrf.dense` as products of matrices."""

import numpy as np
import torch

from fstgrad.core.checks import FloatArray
from fstgrad.mrf.dense import FINENESS, GRID_REACH, PIXEL_REACH, Kernel, grid_deviations
from fstgrad.torch.arrays import to_device


class Filter:
    """Sums over all other pixels, weighted by a kernel.

    Rows and columns of pixels are spread to the cells of a grid, by interpolation, and blurred, by
    one matrix each, and read by another one; without a contrast, cells are pixels.  With one, the
    grid has levels of gray values too, as many as the range of the image needs.
    """

    def __init__(self, image: torch.Tensor, kernel: Kernel, device: torch.device) -> None:
        self.kernel = kernel
        pace, sd, reach = 1.0, kernel.distance, PIXEL_REACH
        if kernel.contrast is not None:
            pace, sd, reach = max(1.0, sd / FINENESS), grid_deviations(kernel)[0], GRID_REACH
        read = [_interpolation(np.arange(size) / pace) for size in image.shape]
        spread = [_blur(len(table.T), sd, reach) @ table.T for table in read]
        self.read, self.spread = ([to_device(x, device) for x in side] for side in (read, spread))
        if kernel.contrast is not None:
            step = kernel.contrast / FINENESS
            low, high = map(float, image.double().aminmax())
            level = (image.to(device, torch.float64, non_blocking=True) - low) / step
            cells = torch.arange(int(np.ceil((high - low) / step)) + 2, device=device)
            self.shares = (1.0 - (level[..., None] - cells).abs()).clamp_min(0.0)
            blur = _blur(len(cells), grid_deviations(kernel)[2], reach)
            self.blur = to_device(blur, device)
            rows, columns = (
                to_device((x * y.T).sum(axis=1), device) for x, y in zip(read, spread, strict=True)
            )
            levels = (self.shares @ self.blur * self.shares).sum(dim=-1)
            scale = (rows[:, None] * columns * levels).rsqrt()  # so that the grid's k(i, i) is 1
            self.shares = self.shares * scale[..., None]

    def __call__(self, q: torch.Tensor) -> torch.Tensor:
        """Return the sums (H, W, C) of q (H, W, C)."""
        if self.kernel.contrast is None:
            total = _filtered(self.read, _filtered(self.spread, q))
        else:
            shares = self.shares[..., None].unbind(2)
            grid = torch.stack([_filtered(self.spread, share * q) for share in shares])
            levels = torch.tensordot(self.blur, grid, dims=1).unbind()
            total = torch.zeros_like(q)
            for share, level in zip(shares, levels, strict=True):
                total = total + share * _filtered(self.read, level)
        return self.kernel.weight * (total - q)


def _filtered(matrices: list[torch.Tensor], table: torch.Tensor) -> torch.Tensor:
    """Return a table (H, W, C) times matrices of rows and of columns."""
    rows, columns = matrices
    return torch.matmul(columns, torch.tensordot(rows, table, dims=1))


def _interpolation(place: FloatArray) -> FloatArray:
    """Return the shares (places, cells) of the cells 0, 1, ... of a grid at ascending places."""
    cells = np.arange(int(np.ceil(place[-1])) + 2)
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - cells))


def _blur(size: int, sd: float, reach: float) -> FloatArray:
    """Return the weights (size, size) of cells, cut off as in `fstgrad.mrf.dense`."""
    gap = np.subtract.outer(np.arange(size), np.arange(size))
    return np.where(np.abs(gap) <= np.ceil(reach * sd), np.exp(-(gap**2) / (2 * sd**2)), 0.0)
