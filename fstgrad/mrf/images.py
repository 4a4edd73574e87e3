"""Images as Markov random fields: segmentation and denoising with a Potts model."""

import io
import itertools
import os
import pathlib
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, extra, positive_integer, positive_number, real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.io import read_bytes, write_bytes
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.graph import grid_edges

LLOYD_STEPS = 50
LUMA = np.array([0.299, 0.587, 0.114])  # of red, green and blue (ITU-R BT.601)
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM", "WEBP")


class Segmentation(NamedTuple):
    """A Potts model of an image, the gray level or colour of each label, and the noise.

    Attributes
    ----------
    model : PairwiseMRF
    means : (k,) or (k, 3) float64
        One for each label, darkest first.
    noise : float
        The probability that a pixel has the level of another label.
    deviation : float
        The standard deviation of pixels around their level.
    """

    model: PairwiseMRF
    means: FloatArray
    noise: float
    deviation: float

    def __repr__(self) -> str:
        return short_repr(self)


def segmentation(
    image: npt.ArrayLike,
    labels: int,
    *,
    coupling: float = 1.0,
    contrast: float = 0.0,
    connectivity: int = 4,
    noise: float | None = None,
    means: npt.ArrayLike | None = None,
) -> Segmentation:
    """Return the model of an image with k gray levels (or colours), noise and a Potts coupling.

    The labels have the levels m_1, ..., m_k, given or found by k-means on the pixels.  K-means
    mixes a level that few pixels have with others, so give the levels if you know them.  With
    probability
    1 - `noise`, a pixel with label c has the level m_c, otherwise that of one of the other labels,
    and in both cases normal residuals with the standard deviation sd of the pixels around their
    nearest level (at least 0.001 of the smallest distance of two levels).  The node score is the
    log-density of that mixture, and neighbours with equal labels add `coupling`.

    Parameters
    ----------
    image : (height, width) or (height, width, 3) float64
        Gray values or colours.
    labels : int
        k >= 2.
    coupling : float
        In nats, >= 0, for each pair of neighbours with equal labels.
    contrast : float
        If > 0, weakens the coupling of neighbours with different colours: it is multiplied by
        exp(-contrast d^2 / (2 mean d^2)), with d the distance of the colours (Boykov and Jolly
        2001).
    connectivity : 4 or 8
        The number of neighbours of an inner pixel.
    noise : float, optional
        Above 0 and below (k - 1) / k, where labels would say nothing about pixels.  By default the
        share of pixels whose nearest level differs from the median label of their 3 x 3
        neighbourhood, between 0.01 and 0.4.
    means : (k,) or (k, 3), optional
        The levels in the unit of the image, all different; sorted by brightness.

    Raises
    ------
    InvalidInputError
        An argument is out of range, or the image has fewer different values than labels.
    """
    pixels = real_array("image", image)
    pixels = real_array("image", pixels, (None, None, None) if pixels.ndim == 3 else (None, None))
    labels = positive_integer("labels", labels, minimum=2)
    given = _levels(pixels, labels) if means is None else _given_levels(means, pixels, labels)
    means = _by_brightness(given)
    distance = squared_distance(pixels, means)
    noise = _flip_rate(distance.argmin(axis=2)) if noise is None else _checked_noise(noise, labels)
    levels = means.reshape(labels, -1)
    apart = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(levels, 2))
    deviation = max(np.sqrt(distance.min(axis=2).mean() / levels.shape[1]), 0.001 * apart)
    node = _log_densities(distance / (2 * deviation**2), noise)
    height, width = pixels.shape[:2]
    edge = positive_number("coupling", coupling, allow_zero=True) * np.eye(labels)
    if positive_number("contrast", contrast, allow_zero=True) > 0:
        left, right = pixels.reshape(height * width, -1)[grid_edges(height, width, connectivity).T]
        jump = ((left - right) ** 2).sum(axis=1)
        edge = np.exp(-contrast * jump / (2 * max(jump.mean(), 1e-300)))[:, None, None] * edge
    model = PairwiseMRF.grid(height, width, node, edge, connectivity=connectivity)
    return Segmentation(model, means, noise, float(deviation))


def squared_distance(pixels: FloatArray, means: FloatArray) -> FloatArray:
    """Return the squared distances (height, width, k) of pixels from gray levels or colours."""
    colours = pixels.reshape(*pixels.shape[:2], 1, -1)
    return np.asarray(((colours - means.reshape(len(means), -1)) ** 2).sum(axis=3))


def _flip_rate(nearest: npt.NDArray[np.int64]) -> float:
    """Return the share of labels that differ from the median around them, in [0.01, 0.4]."""
    from scipy.ndimage import median_filter

    return float(np.clip(np.mean(median_filter(nearest, size=3) != nearest), 0.01, 0.4))


def _checked_noise(noise: float, labels: int) -> float:
    noise = positive_number("noise", noise)
    if noise >= 1 - 1 / labels:
        raise InvalidInputError(
            f"noise is {noise:g} and must be below {1 - 1 / labels:g} for {labels} labels, where a "
            "pixel says nothing about its label; give a smaller value"
        )
    return noise


def _log_densities(energy: FloatArray, noise: float) -> FloatArray:
    """Return the log-densities (height, width, k) of pixels, up to a constant for each.

    `energy` has |x - m_c|^2 / (2 sd^2).
    """
    least = energy.min(axis=2, keepdims=True)
    density = np.exp(least - energy)
    others = (density.sum(axis=2, keepdims=True) - density) / (density.shape[2] - 1)
    return np.asarray(np.log((1 - noise) * density + noise * others))


def _levels(pixels: FloatArray, labels: int) -> FloatArray:
    """Return k gray levels (k,) or colours (k, 3): k-means from even quantiles."""
    from scipy.cluster.vq import kmeans2

    points = pixels.reshape(pixels.shape[0] * pixels.shape[1], -1)
    values = points[:1] if (points == points[:1]).all() else np.unique(points, axis=0)
    if len(values) == 1:
        raise InvalidInputError(
            "every pixel of the image has the same value; give one of two or more"
        )
    if len(values) < labels:
        raise InvalidInputError(
            f"the image has {len(values)} different values and labels is {labels}; use fewer labels"
        )
    if points.shape[1] == 1:
        start = np.quantile(values, (np.arange(labels) + 0.5) / labels)[:, None]
    else:
        ranked = values[np.argsort(values.sum(axis=1), kind="stable")]
        start = ranked[((np.arange(labels) + 0.5) / labels * len(ranked)).astype(np.int64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a level that is nearest to no pixel keeps its value
        means, _ = kmeans2(points, start, iter=LLOYD_STEPS, minit="matrix")
    return np.asarray(means[:, 0] if points.shape[1] == 1 else means)


def _given_levels(means: npt.ArrayLike, pixels: FloatArray, labels: int) -> FloatArray:
    """Return levels (k,) or (k, 3) after checks."""
    levels = real_array("means", means, (labels, *pixels.shape[2:]))
    if len(np.unique(levels, axis=0)) < labels:
        raise InvalidInputError(f"means has a level twice: {levels.tolist()}; give each once")
    return levels


def _by_brightness(levels: FloatArray) -> FloatArray:
    order = np.argsort(levels.reshape(len(levels), -1).sum(axis=1), kind="stable")
    return np.asarray(levels[order])


def read_image(path: str | os.PathLike[str], *, colour: bool = False) -> FloatArray:
    """Return an image file as values in [0, 1], (height, width) float64; needs Pillow.

    With `colour`, an image that is not gray is returned as (height, width, 3); otherwise, colours
    become their luma.  Integers of 8 bits are divided by 255, those of 16 bits by 65535; floats
    must be in [0, 1].  Transparent pixels become white, a photograph is rotated according to its
    metadata, and only the first of several frames is read.

    Raises
    ------
    InvalidInputError
        The file is not an image, is damaged or huge, or has floats outside [0, 1] or no numbers.
    """
    pillow = extra("PIL.Image", "mrf", "reading an image")
    data = io.BytesIO(read_bytes(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of images large enough to be an attack
            with pillow.open(data, formats=FORMATS) as image:
                return _values(extra("PIL.ImageOps", "mrf", "").exif_transpose(image), colour)
    except InvalidInputError:
        raise
    except pillow.UnidentifiedImageError as error:
        raise InvalidInputError(
            f"{path} is not an image in a known format ({', '.join(FORMATS)}); give a PNG"
        ) from error
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        reason = str(error).rstrip(".")
        raise InvalidInputError(f"{path} cannot be read: {reason}; give an intact PNG") from error


def _values(image: Any, colour: bool) -> FloatArray:
    """Return the values of a Pillow image in [0, 1], (height, width) or, in colour, (..., 3)."""
    if image.mode[0] in "IF":  # integers of 16 or 32 bits, floats
        full = 1.0 if image.mode == "F" else 65535.0
        values = real_array("image", np.asarray(image, np.float64))
        if values.min() < 0 or values.max() > full:
            raise InvalidInputError(
                f"the image has values from {values.min():g} to {values.max():g}; give floats in "
                "[0, 1] or integers of at most 16 bits"
            )
        return values / full
    if image.mode.endswith("A") or "transparency" in image.info:
        seen = np.asarray(image.convert("RGBA"), np.float64) / 255.0
        values = seen[..., 3:] * seen[..., :3] + (1.0 - seen[..., 3:])
    else:
        values = np.asarray(image.convert("RGB"), np.float64) / 255.0
    if (values == values[..., :1]).all():
        return np.ascontiguousarray(values[..., 0])
    return values if colour else np.asarray(values @ LUMA)


def write_image(path: str | os.PathLike[str], values: FloatArray) -> None:
    """Write values in [0, 1], (height, width) or (height, width, 3), in 8 bits; needs Pillow.

    The suffix of the path gives the format; raises InvalidInputError if it is not in FORMATS.
    Values outside [0, 1] are clipped.
    """
    pillow = extra("PIL.Image", "mrf", "writing an image")
    gray = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    data = io.BytesIO()
    kind = pillow.registered_extensions().get(pathlib.Path(path).suffix.lower())
    if kind not in FORMATS:
        raise InvalidInputError(f"{path} has no known ending; give a name that ends in .png")
    pillow.fromarray(gray).save(data, kind)
    write_bytes(path, data.getvalue())


def marginal_panels(node: FloatArray, height: int, width: int) -> FloatArray:
    """Return the marginals (I, C) of a grid as one image: a panel for each label, left to right.

    For two labels there is one panel, the probability of label 1.
    """
    panels = node.T.reshape(-1, height, width)
    if len(panels) == 2:
        return np.asarray(panels[1])
    gap = np.ones((height, 1))
    parts = [part for panel in panels for part in (panel, gap)]
    return np.asarray(np.concatenate(parts[:-1], axis=1))


def before_and_after(
    pixels: FloatArray, restored: FloatArray, node: FloatArray | None
) -> FloatArray:
    """Return an image, its restoration and, if given, the marginals (I, C), side by side."""
    shown = [pixels, restored]
    if node is not None:
        shown.append(marginal_panels(node, *pixels.shape[:2]))
    if pixels.ndim == 3:
        shown = [p if p.ndim == 3 else np.repeat(p[..., None], 3, axis=2) for p in shown]
    gap = np.ones((len(pixels), 2, *pixels.shape[2:]))
    parts = [part for panel in shown for part in (panel, gap)]
    return np.asarray(np.concatenate(parts[:-1], axis=1))
