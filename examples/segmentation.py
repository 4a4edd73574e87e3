"""Segmentation of photographs
===========================

Binary segmentation of real photographs: what contrast-sensitive edges are worth.

The photographs come with scikit-image: coins on a desk, a horse, a stained cell, a printed page.  A
weak classifier says for each pixel whether it is object or ground, and is wrong for three pixels in
ten: its scores are the truth (a threshold of the photograph) in heavy Gaussian noise.  Five ways to
make a labeling of them are compared:

- a threshold of each score, after nothing, a median filter, or total variation denoising;
- the best labeling of a random field with one coupling for all pairs (a minimum cut);
- the same with contrast-sensitive edges: the coupling of a pair is J exp(-b (x_i - x_j)^2), x the
  photograph, so that labels change where the picture does (Boykov and Jolly 2001).

All parameters are chosen on the left half of each picture and tested on the right half.

    python examples/segmentation.py [--figure segmentation.png]
"""

import argparse

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import median_filter
from skimage import data
from skimage.filters import threshold_otsu
from skimage.restoration import denoise_tv_chambolle

import fstgrad as fg
from fstgrad.mrf.graph import grid_edges

SIZE, NOISE = 160, 1.0


def pictures(seed=0):
    """Return {name: (photograph in 0 .. 1, scores of the classifier, truth)}."""
    shown = {
        "coins": data.coins(), "horse": 255.0 * ~data.horse(), "page": data.page(),
        "cell": data.cell(),
    }  # fmt: skip
    rng, found = np.random.default_rng(seed), {}
    for name, image in shown.items():
        step = max(1, min(image.shape[:2]) // SIZE)
        clean = np.asarray(image, float)[::step, ::step][:SIZE, :SIZE] / 255.0
        clean = (clean - clean.min()) / np.ptp(clean)
        truth = clean > threshold_otsu(clean)
        found[name] = clean, truth + NOISE * rng.normal(size=clean.shape), truth
    return found


def field(photo, scores, coupling, sharpness):
    """Return the model of the labels; sharpness 0 gives every pair the same coupling."""
    node = -((scores[..., None] - np.array([0.0, 1.0])) ** 2) / (2 * NOISE**2)
    left, right = photo.ravel()[grid_edges(*photo.shape).T]
    contrast = (left - right) ** 2
    strength = coupling * np.exp(-sharpness * contrast / (2 * contrast.mean()))
    return fg.PairwiseMRF.grid(*photo.shape, node, strength[:, None, None] * np.eye(2))


def cut(photo, scores, coupling, sharpness=0.0):
    """Return the best labeling of the model."""
    labels = field(photo, scores, coupling, sharpness).decode("graph_cut").labels
    return labels.reshape(photo.shape) == 1


WAYS = {
    "threshold": (lambda _, s: s > 0.5, [()]),
    "median filter": (lambda _, s, k: median_filter(s, size=k) > 0.5, [(3,), (5,), (7,)]),
    "total variation": (
        lambda _, s, w: denoise_tv_chambolle(s, weight=w) > 0.5,
        [(w,) for w in (0.5, 1.0, 1.5, 2.0, 3.0)],
    ),
    "one coupling": (cut, [(j,) for j in (0.3, 0.6, 1.0, 1.5, 2.0)]),
    "contrast-sensitive": (
        cut, [(j, s) for j in (0.6, 1.0, 1.5, 2.0, 3.0, 5.0) for s in (0.25, 0.5, 1.0, 2.0)],
    ),
}  # fmt: skip


def accuracies(pairs):
    """Return {way: share of right pixels in the right half of each picture}."""
    found = {}
    for way, (label, settings) in WAYS.items():
        found[way] = []
        for photo, scores, truth in pairs.values():
            half = photo.shape[1] // 2
            right = [label(photo, scores, *given) == truth for given in settings]
            best = max(right, key=lambda ok: ok[:, :half].mean())
            found[way].append(float(best[:, half:].mean()))
    return found


def draw(pairs):
    """Return noisy pictures, P(object) by belief propagation, and the cut's labels."""
    figure = Figure(figsize=(11, 2.3 * len(pairs)), layout="tight")
    axes = figure.subplots(len(pairs), 5)
    for row, (photo, scores, truth) in zip(axes, pairs.values(), strict=True):
        model = field(photo, scores, 2.0, 0.5)
        p = model.infer("bp", damping=0.3, max_iter=100).node[:, 1].reshape(photo.shape)
        labels = model.decode("graph_cut").labels.reshape(photo.shape)
        shown = {
            "photograph": photo, "before": scores > 0.5, "P(object)": p, "after": labels,
            "truth": truth,
        }  # fmt: skip
        for axis, (title, image) in zip(row, shown.items(), strict=True):
            axis.imshow(image, cmap="gray")
            axis.set_title(title, fontsize=8)
            axis.axis("off")
    return figure


def main(arguments=None):
    """Print the table and draw the figure."""
    parser = argparse.ArgumentParser(description="Segmentation of photographs")
    parser.add_argument("--figure", help="write the images here")
    given = parser.parse_args(arguments)
    pairs = pictures()
    found = accuracies(pairs)
    print(" " * 20 + "  ".join(name.rjust(7) for name in pairs) + "     mean")
    for way, values in found.items():
        shown = "  ".join(f"{value:7.4f}" for value in values)
        print(f"{way:20}{shown}  {np.mean(values):7.4f}")
    if given.figure is not None:
        fg.plot.save(draw(pairs), given.figure)
    return found


if __name__ == "__main__":
    main()
    figure = draw(pictures())
