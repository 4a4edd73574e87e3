"""Mean field of a dense random field: Gaussian kernels couple every pair of pixels.

    s(y) = sum_i node[i, y_i] + sum_(i < j) [y_i = y_j] k(i, j),
    k(i, j) = w_1 exp(-|p_i - p_j|^2 / (2 a^2))
            + w_2 exp(-|p_i - p_j|^2 / (2 b^2) - (x_i - x_j)^2 / (2 c^2)),

with the positions p of the pixels and their gray values x.  The sums over all pairs are filters: an
exact filter for the first kernel, and one on a grid of positions and values for the second
(Krähenbühl and Koltun 2011; Chen, Paris and Durand 2007 for the grid).  The grid's k(i, j) / w_2 is
within 0.04 of its value.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    instance,
    log_weights,
    positive_integer,
    positive_number,
    real_array,
    real_number,
)
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr

PIXEL_REACH = 8.5  # standard deviations that the exact filter covers: exp(-8.5^2 / 2) = 2e-16
GRID_REACH = 4.0  # standard deviations that the filter on the grid covers
FINENESS = 2.0  # cells of the grid per standard deviation


class Kernel(NamedTuple):
    """One Gaussian kernel of pairs of pixels.

    Attributes
    ----------
    weight : float
        w >= 0, the score of two equal labels at distance 0 with equal gray values, in nats.
    distance : float
        Standard deviation of the distance, a or b, in pixels.
    contrast : float or None
        Standard deviation c of the difference of gray values; None for a kernel of positions alone.
    """

    weight: float
    distance: float
    contrast: float | None = None


class DenseField(NamedTuple):
    """The product distribution that mean field finds.

    Attributes
    ----------
    node : (height, width, C) float64
        Marginals of each pixel.
    converged : bool
        Whether the last change is at most the tolerance.
    iterations : int
    """

    node: FloatArray
    converged: bool
    iterations: int

    def __repr__(self) -> str:
        return short_repr(self)


def dense_mean_field(
    node_scores: npt.ArrayLike,
    image: npt.ArrayLike,
    kernels: list[Kernel],
    *,
    max_iter: int = 50,
    tol: float = 1e-4,
    damping: float = 0.0,
) -> DenseField:
    """Return the mean-field marginals of a dense random field.

    Each iteration updates all pixels at once: q_i(c) is proportional to
    exp(node[i, c] + sum over kernels and j != i of k(i, j) q_j(c)).

    Parameters
    ----------
    node_scores : (height, width, C) float64
        Log-weights in nats.
    image : (height, width) float64
        Gray values, for kernels with a contrast.
    kernels : list of Kernel
    max_iter : int
    tol : float
        Stop when no marginal changes by more than this.
    damping : float
        In [0, 1): the weight of the old marginals in the new ones.  Strong kernels need it, or the
        updates oscillate.

    Raises
    ------
    InvalidInputError
        The image has no pixels or no labels, or an argument has another type or range.
    InfeasibleError
        All labels of a pixel are forbidden.
    """
    node = log_weights("node_scores", node_scores, (None, None, None))
    if node.size == 0:
        raise InvalidInputError(
            f"node_scores has shape {node.shape}; give at least one pixel and one label"
        )
    check_labels(node, axis=2)
    values = real_array("image", image, node.shape[:2])
    max_iter = positive_integer("max_iter", max_iter)
    tol = positive_number("tol", tol, allow_zero=True)
    damping = real_number("damping", damping)
    if not 0 <= damping < 1:
        raise InvalidInputError(f"damping is {damping}; give a number in [0, 1)")
    filters = [PairSums(values, kernel) for kernel in checked_kernels(kernels)]
    q = _softmax(node)
    change = np.inf
    iterations = 0
    while iterations < max_iter and change > tol:
        iterations += 1
        messages = sum((pair_sums(q) for pair_sums in filters), np.zeros(node.shape))
        fresh = (1 - damping) * _softmax(node + messages) + damping * q
        change = float(np.abs(fresh - q).max())
        q = fresh
    return DenseField(q, change <= tol, iterations)


def check_labels(node_scores: FloatArray, *, axis: int) -> None:
    """Raise InfeasibleError if a pixel has no label, because all of its scores are -inf."""
    if np.isneginf(node_scores.max(axis=axis)).any():
        raise InfeasibleError("node_scores forbid all labels of a pixel; allow at least one")


def _softmax(scores: FloatArray) -> FloatArray:
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def checked_kernels(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Return the kernels as a list.

    Raises
    ------
    InvalidInputError
        One of them is not a Kernel, or has a number that is out of range.
    """
    checked: list[Kernel] = []
    for i, kernel in enumerate(items("kernels", kernels)):
        instance(f"kernels[{i}]", kernel, Kernel, "a Kernel")
        weight = positive_number("weight", kernel.weight, allow_zero=True)
        distance, contrast = positive_number("distance", kernel.distance), kernel.contrast
        if contrast is not None:
            contrast = positive_number("contrast", contrast)
        checked.append(Kernel(weight, distance, contrast))
    return checked


class PairSums:
    """Sums over all other pixels, weighted by a kernel, one of `checked_kernels`.

    values : (height, width) float64, gray values.
    """

    def __init__(self, values: FloatArray, kernel: Kernel) -> None:
        if not np.isfinite(values).all():
            raise InvalidInputError("the image holds NaN or infinity; give finite gray values")
        self.kernel, self.values = kernel, values
        if kernel.contrast is not None:
            step = kernel.contrast / FINENESS
            self.pace = max(1.0, kernel.distance / FINENESS)
            rows, columns = np.indices(values.shape)
            level = (values - values.min()) / step
            self.place = np.stack((rows / self.pace, columns / self.pace, level))
            self.shape = tuple(int(np.ceil(axis.max())) + 2 for axis in self.place)
            self.sd = grid_deviations(kernel)
            share = self.place - np.floor(self.place)
            next_cell = np.exp(-0.5 / np.square(self.sd))[:, None, None]
            own = (1 - share) ** 2 + share**2 + 2 * share * (1 - share) * next_cell
            self.scale = own.prod(axis=0) ** -0.5  # so that the k(i, i) of the grid is 1

    def __call__(self, q: FloatArray) -> FloatArray:
        """Return w * sum over j != i of k(i, j) q_j(c), (height, width, C) like q; k(i, i) = 1."""
        one = self._by_positions if self.kernel.contrast is None else self._by_values
        total = np.stack([one(q[..., c]) for c in range(q.shape[2])], axis=2)
        return np.asarray(self.kernel.weight * (total - q))

    def _by_positions(self, values: FloatArray) -> FloatArray:
        """Return sums (height, width) with the kernel of positions, cut off beyond PIXEL_REACH."""
        return _blurred(values, (self.kernel.distance,) * 2, PIXEL_REACH)

    def _by_values(self, values: FloatArray) -> FloatArray:
        """Return sums (height, width) with the kernel of positions and values, via the grid.

        Values are spread to the grid and read from it by trilinear interpolation.
        """
        from scipy.ndimage import map_coordinates

        grid = np.zeros(self.shape)
        floor = np.floor(self.place).astype(np.int64)
        share = self.place - floor
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(
                [share[a] if bit else 1 - share[a] for a, bit in enumerate(corner)], axis=0
            )
            at = tuple(floor[a] + bit for a, bit in enumerate(corner))
            np.add.at(grid, at, weight * self.scale * values)
        blurred = _blurred(grid, self.sd, GRID_REACH)
        sums = map_coordinates(blurred, self.place, order=1, mode="nearest")
        return np.asarray(self.scale * sums)


def grid_deviations(kernel: Kernel) -> tuple[float, float, float]:
    """Return the sd of the blur along rows, columns and values, in cells of the grid.

    The two linear interpolations add a variance of 1/3 of a squared cell on average, except where
    the cells are pixels.
    """
    between = float(np.sqrt(FINENESS**2 - 1 / 3))
    position = between if kernel.distance > FINENESS else kernel.distance
    return position, position, between


def _blurred(values: FloatArray, deviations: tuple[float, ...], reach: float) -> FloatArray:
    """Return the convolution with exp(-|d|^2 / (2 sd^2)), not normalized, with zeros outside.

    deviations : sd along each axis, in cells.
    reach : number of sd that the convolution covers.
    """
    from scipy.ndimage import convolve1d

    out = values
    for axis, sd in enumerate(deviations):
        cells = min(int(np.ceil(reach * sd)), out.shape[axis])
        weights = np.exp(-(np.arange(-cells, cells + 1) ** 2) / (2 * sd**2))
        out = convolve1d(out, weights, axis=axis, mode="constant")
    return np.asarray(out)
