"""Segmentation of a photograph
============================

This program separates near from far in a real photograph with measured depth, and shows the benefit
of contrast-sensitive edges.

The motorcycle of scikit-image comes with its depth, measured by structured light (Scharstein et al.
2014): a pixel is near if its disparity is above 35.  One pixel in fifty is annotated.  For every
other pixel, the 15 annotated pixels that are most similar in colour and position vote; their votes
are the evidence.  The program compares five ways to turn the evidence into a labeling:

- a threshold of the evidence: unfiltered, after a median filter, or after total variation
  denoising;
- the best labeling of a random field with one coupling for all pairs (a minimum cut);
- the same with contrast-sensitive edges: the coupling of a pair is ``J exp(-b |x_i - x_j|^2)``,
  where x_i is the colour of pixel i, so that labels change at edges of the picture (Boykov and
  Jolly 2001).

Settings are chosen on one half of the picture and tested on the other half, and vice versa.  Pixels
without a measured depth are ignored.

    python examples/segmentation.py [--figure segmentation.png]
"""

import argparse

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import median_filter
from scipy.spatial import cKDTree
from skimage import color, data
from skimage.restoration import denoise_tv_chambolle

import fstgrad as fg
from fstgrad.mrf.graph import grid_edges

STEP, NEAR, ANNOTATED, VOTES = 3, 35, 0.02, 15


def scene(seed=0):
    """Return the photo, colours (H, W, 3), and (H, W): log-odds of near, truth, is pixel tested."""
    left, _, disparity = data.stereo_motorcycle()
    photo, depth = left[::STEP, ::STEP], disparity[::STEP, ::STEP]
    known = np.isfinite(depth)
    truth = np.where(known, depth, 0) > NEAR
    colours = color.rgb2lab(photo)
    place = np.stack(np.indices(truth.shape), axis=-1) / truth.shape[1]
    features = np.concatenate((colours / 10, place), axis=-1).reshape(-1, 5)
    annotated = known & (np.random.default_rng(seed).random(truth.shape) < ANNOTATED)
    _, alike = cKDTree(features[annotated.ravel()]).query(features, VOTES)
    share = (truth[annotated][alike].sum(axis=1) + 0.5) / (VOTES + 1)
    odds = np.log(share / (1 - share)).reshape(truth.shape)
    return photo, colours, odds, truth, known & ~annotated


def field(colours, odds, coupling, sharpness):
    """Return the model of the labels; with sharpness 0, every pair has the same coupling."""
    height, width = odds.shape
    left, right = colours.reshape(-1, 3)[grid_edges(height, width, 8).T]
    contrast = ((left - right) ** 2).sum(axis=1)
    strength = coupling * np.exp(-sharpness * contrast / (2 * contrast.mean()))
    node, edge = np.stack((0 * odds, odds), axis=-1), strength[:, None, None] * np.eye(2)
    return fg.PairwiseMRF.grid(height, width, node, edge, connectivity=8)


def cut(colours, odds, coupling, sharpness=0.0):
    """Return the best labeling of the model, (H, W) booleans."""
    labels = field(colours, odds, coupling, sharpness).decode("graph-cut").labels
    return labels.reshape(odds.shape) == 1


WAYS = {
    "threshold": (lambda _, s: s > 0, [()]),
    "median filter": (lambda _, s, k: median_filter(s, size=k) > 0, [(3,), (5,), (9,), (15,)]),
    "total variation": (
        lambda _, s, w: denoise_tv_chambolle(s, weight=w) > 0,
        [(w,) for w in (1.0, 2.0, 4.0, 8.0, 16.0)],
    ),
    "one coupling": (cut, [(j,) for j in (0.2, 0.4, 0.6, 1.0, 1.5, 2.0)]),
    "contrast-sensitive": (cut, [(j, s) for j in (1.5, 2.5, 4.0, 6.0) for s in (0.25, 0.5, 1.0)]),
}


def accuracies(colours, odds, truth, counts):
    """Return {way: accuracies on the left and right half, with the setting best on the other}."""
    middle, found = truth.shape[1] // 2, {}
    halves = slice(None, middle), slice(middle, None)
    for way, (label, settings) in WAYS.items():
        right = [label(colours, odds, *given) == truth for given in settings]
        share = np.array([[ok[:, h][counts[:, h]].mean() for h in halves] for ok in right])
        found[way] = [float(share[share[:, 1 - h].argmax(), h]) for h in range(2)]
    return found


def draw(photo, colours, odds, truth):
    """Return a figure: photograph, evidence, P(near) by belief propagation, cut and truth."""
    model = field(colours, odds, 2.5, 0.5)
    near = model.infer("bp", damping=0.5, max_iter=100).node[:, 1].reshape(truth.shape)
    labels = model.decode("graph-cut").labels.reshape(truth.shape)
    shown = {"photograph": photo, "before": odds > 0, "P(near)": near, "after": labels,
             "measured": truth}  # fmt: skip
    figure = Figure(figsize=(12, 2), layout="tight")
    for axis, (title, image) in zip(figure.subplots(1, 5), shown.items(), strict=True):
        axis.imshow(image, cmap="gray")
        axis.set_title(title, fontsize=8)
        axis.axis("off")
    return figure


def main(arguments=None):
    """Print the accuracies and draw the figure."""
    parser = argparse.ArgumentParser(description="Segmentation of a photograph")
    parser.add_argument("--figure", help="write the images here")
    given = parser.parse_args(arguments)
    photo, *rest = scene()
    found = accuracies(*rest)
    print(f"{'right pixels':20} left half  right half    mean")
    for way, (left, right) in found.items():
        print(f"{way:20} {left:9.4f} {right:11.4f} {np.mean((left, right)):7.4f}")
    if given.figure is not None:
        fg.plot.save(draw(photo, *rest[:3]), given.figure)
    return found


if __name__ == "__main__":
    main()
    figure = draw(*scene()[:4])
