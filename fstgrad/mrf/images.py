"""Images as Markov random fields: segmentation and denoising with a Potts model."""

import io
import os
import pathlib
import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, extra, positive_integer, positive_number, real_array
from fstgrad.errors import InvalidInputError
from fstgrad.io import read_bytes, write_bytes
from fstgrad.mrf.model import PairwiseMRF

LLOYD_STEPS = 50
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM", "WEBP")


class Segmentation(NamedTuple):
    """A Potts model of an image, and the intensity that each label stands for.

    Attributes
    ----------
    model : PairwiseMRF
    means : (k,) float64, ascending
    """

    model: PairwiseMRF
    means: FloatArray


def segmentation(
    image: npt.ArrayLike, labels: int, *, coupling: float = 1.0, connectivity: int = 4
) -> Segmentation:
    """Return the model of k gray levels with Gaussian noise and a Potts coupling.

    Label c has the mean m_c of its pixels (k-means on intensities) and all share the standard
    deviation sd of the rest: node score -(x - m_c)^2 / (2 sd^2); neighbours with equal labels add
    `coupling`.  An image of exactly k gray levels, as a black-and-white one, has no such rest: a
    pixel then shows its label or, with the probability p of a flip, one of the k - 1 others, node
    score log(1 - p) or log(p / (k - 1)).  p is the share of pixels that differ from the median of
    their 3 x 3 neighbourhood.

    Parameters
    ----------
    image : (height, width) float64
    labels : int
        k >= 2.
    coupling : float
        In nats, for each pair of neighbours that agree.
    """
    pixels = real_array("image", image, (None, None))
    means = _levels(pixels, positive_integer("labels", labels, minimum=2))
    distance = (pixels[:, :, None] - means) ** 2
    variance = float(distance.min(axis=2).mean())
    if variance > 0:
        node = -distance / (2 * variance)
    else:
        flips = _flip_rate(pixels)
        node = np.full(distance.shape, np.log(flips / (labels - 1)))
        node[distance == 0] = np.log1p(-flips)
    height, width = pixels.shape
    model = PairwiseMRF.grid(
        height,
        width,
        node,
        positive_number("coupling", coupling, allow_zero=True) * np.eye(labels),
        connectivity=connectivity,
    )
    return Segmentation(model, means)


def _flip_rate(pixels: FloatArray) -> float:
    """Return the share of pixels that differ from the median around them, in [0.01, 0.4]."""
    from scipy.ndimage import median_filter

    return float(np.clip(np.mean(median_filter(pixels, size=3) != pixels), 0.01, 0.4))


def _levels(pixels: FloatArray, labels: int) -> FloatArray:
    """Return k distinct gray levels: Lloyd's algorithm from evenly spaced quantiles."""
    values = np.unique(pixels)
    if len(values) < labels:
        raise InvalidInputError(
            f"the image has {len(values)} different values and labels is {labels}; "
            "take fewer labels"
        )
    means = np.quantile(values, (np.arange(labels) + 0.5) / labels)
    for _ in range(LLOYD_STEPS):
        nearest = np.abs(pixels.reshape(-1, 1) - means).argmin(axis=1)
        sums = np.bincount(nearest, pixels.ravel(), minlength=labels)
        counts = np.bincount(nearest, minlength=labels)
        moved = np.where(counts > 0, sums / np.maximum(counts, 1), means)
        if np.array_equal(moved, means):
            break
        means = moved
    return np.sort(means)


def read_image(path: str | os.PathLike[str]) -> FloatArray:
    """Return an image file as gray values in [0, 1], (height, width); needs Pillow."""
    pillow = extra("PIL.Image", "mrf", "reading an image")
    data = io.BytesIO(read_bytes(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of images so large that they may be an attack
            with pillow.open(data, formats=FORMATS) as image:
                return np.asarray(image.convert("F"), dtype=np.float64) / 255.0
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        said = "" if isinstance(error, pillow.UnidentifiedImageError) else f" ({error})"
        raise InvalidInputError(
            f"{path} is not an image of a format that is read ({', '.join(FORMATS)}){said}; give "
            "a PNG"
        ) from error


def write_image(path: str | os.PathLike[str], values: FloatArray) -> None:
    """Write gray values in [0, 1], (height, width), as an 8-bit image; needs Pillow."""
    pillow = extra("PIL.Image", "mrf", "writing an image")
    gray = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    data = io.BytesIO()
    kind = pillow.registered_extensions().get(pathlib.Path(path).suffix.lower())
    if kind not in FORMATS:
        raise InvalidInputError(f"{path} is of no format that is written; give a name with .png")
    pillow.fromarray(gray).save(data, kind)
    write_bytes(path, data.getvalue())


def marginal_panels(node: FloatArray, height: int, width: int) -> FloatArray:
    """Return the marginals of a grid as one image: a panel for each label, left to right.

    Two labels need one panel, the probability of label 1.
    """
    panels = node.T.reshape(-1, height, width)
    if len(panels) == 2:
        return np.asarray(panels[1])
    gap = np.ones((height, 1))
    parts = [part for panel in panels for part in (panel, gap)]
    return np.asarray(np.concatenate(parts[:-1], axis=1))
