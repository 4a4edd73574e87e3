"""Denoising with a Potts model, trained four ways
===============================================

This program trains the two parameters of a conditional Potts model in four ways and compares them.

The score of a clean image y given a noisy one x, on the 4-connected grid of pixels, is

    s(y) = h * (number of pixels with y_i = x_i) + J * (number of neighbours with y_i = y_j).

(h, J) are fitted on small images by the pseudolikelihood, by contrastive divergence (CD-1 and
persistent chains) and by the Bethe approximation of the likelihood.  The marginals of belief
propagation then denoise other images, and the share of correct pixels is printed.

    python examples/denoise.py [--data FOLDER] [--figure denoise.png]

FOLDER holds grids.npz (clean label images by name) and noisy.npz (`<name>__flip15`, 15 percent of
the pixels changed).  Without a folder, the images are random blobs.
"""

import argparse
import pathlib

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

import fstgrad as fg
from fstgrad.mrf.objectives import PersistentChains

TRAINING = [f"blobs_{k}" for k in range(4)]
TESTING = ["blobs_5", "blobs_6", "horse_32", "horse_64", "cell_32", "coins_48", "page_32x64"]
STEPS, RATE = 150, 0.5


def load(folder):
    """Return {name: (clean, noisy)} from the folder, or random blobs."""
    if folder is None:
        rng = np.random.default_rng(0)
        pairs = {}
        for name in TRAINING + TESTING[:2]:
            clean = (gaussian_filter(rng.normal(size=(24, 24)), 2.5) > 0).astype(int)
            pairs[name] = clean, np.where(rng.random(clean.shape) < 0.15, 1 - clean, clean)
        return pairs
    clean, noisy = (np.load(pathlib.Path(folder) / f"{kind}.npz") for kind in ("grids", "noisy"))
    return {
        name: (clean[name].astype(int), noisy[f"{name}__flip15"].astype(int))
        for name in TRAINING + TESTING
    }


def posterior(noisy, h, coupling):
    """Return the model of a clean image given a noisy one, both (height, width) of 0 and 1."""
    node = h * np.eye(2)[noisy.ravel()]
    return fg.PairwiseMRF.grid(*noisy.shape, node, coupling * np.eye(2))


def loss(parameters, pairs, method, options):
    """Return the mean loss per pixel (nats) and its gradient in (h, J), by the chain rule."""
    value, gradient, pixels = 0.0, np.zeros(2), 0
    for k, (clean, noisy) in enumerate(pairs):
        model = posterior(noisy, *parameters)
        part, table = model.nll(clean.ravel(), method, **options(k))
        value += part
        gradient += [np.vdot(table.node, np.eye(2)[noisy.ravel()]), np.trace(table.edge)]
        pixels += clean.size
    return value / pixels, gradient / pixels


def fit_deterministic(pairs, method, **options):
    """Minimise a loss that can be evaluated, pseudolikelihood or Bethe; return (h, J)."""
    start = np.array([1.0, 0.3])
    return minimize(
        loss, start, (pairs, method, lambda _: options), jac=True, method="L-BFGS-B",
        bounds=[(0, 5), (0, 2)],
    ).x  # fmt: skip


def fit_stochastic(pairs, options):
    """Descend the gradients of contrastive divergence; return the mean of the last third."""
    parameters, path = np.array([1.0, 0.3]), []
    for _ in range(STEPS):
        parameters = parameters - RATE * loss(parameters, pairs, "cd", options)[1]
        path.append(parameters)
    return np.mean(path[-STEPS // 3 :], axis=0)


def fit(pairs):
    """Return {method of training: (h, J)}."""
    rng = np.random.default_rng(0)
    chains = [PersistentChains(posterior(noisy, 1.0, 0.3), 3, rng) for _, noisy in pairs]
    return {
        "pseudolikelihood": fit_deterministic(pairs, "pseudolikelihood"),
        "CD-1": fit_stochastic(pairs, lambda _: {"k": 1, "rng": rng}),
        "persistent CD": fit_stochastic(pairs, lambda k: {"persistent": chains[k]}),
        "BP likelihood": fit_deterministic(pairs, "bp", max_iter=500, tol=1e-8, damping=0.3),
    }


def marginal_of_one(noisy, parameters):
    """Return P(y_i = 1 | noisy), (height, width), by belief propagation."""
    result = posterior(noisy, *parameters).infer("bp", damping=0.5, max_iter=300)
    return result.node[:, 1].reshape(noisy.shape)


def draw_figure(pairs, parameters):
    """Return a figure of the clean, noisy, marginal and restored images of the test set."""
    figure = Figure(figsize=(8, 2 * len(pairs)), layout="tight")
    axes = figure.subplots(len(pairs), 4, squeeze=False)
    for row, (name, (clean, noisy)) in zip(axes, pairs.items(), strict=True):
        marginal = marginal_of_one(noisy, parameters)
        shown = {name: clean, "noisy": noisy, "P(y = 1)": marginal, "restored": marginal > 0.5}
        for axis, (title, image) in zip(row, shown.items(), strict=True):
            axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            axis.set_title(title, fontsize=8)
            axis.axis("off")
    return figure


def main(arguments=None):
    """Train and denoise; print the accuracies and draw the figure."""
    parser = argparse.ArgumentParser(description="Denoising with a Potts model")
    parser.add_argument("--data", help="folder with grids.npz and noisy.npz")
    parser.add_argument("--figure", help="write the images here")
    given = parser.parse_args(arguments)
    pairs = load(given.data)
    testing = {name: pairs[name] for name in TESTING if name in pairs}
    fitted = fit([pairs[name] for name in TRAINING])
    print("training".ljust(18) + "     h     J  " + "  ".join(n.rjust(10) for n in testing))
    noise = {name: np.mean(clean == noisy) for name, (clean, noisy) in testing.items()}
    print("(noisy image)".ljust(32) + "  ".join(f"{a:10.4f}" for a in noise.values()))
    accuracies = {}
    for way, parameters in fitted.items():
        accuracies[way] = [
            np.mean((marginal_of_one(noisy, parameters) > 0.5) == clean)
            for clean, noisy in testing.values()
        ]
        shown = "  ".join(f"{a:10.4f}" for a in accuracies[way])
        print(f"{way:18}{parameters[0]:6.3f}{parameters[1]:6.3f}  {shown}")
    if given.figure is not None:
        fg.plot.save(draw_figure(testing, fitted["BP likelihood"]), given.figure)
    return fitted, noise, accuracies


if __name__ == "__main__":
    fitted, *_ = main()
    shown = {name: pair for name, pair in load(None).items() if name in TESTING}
    figure = draw_figure(shown, fitted["BP likelihood"])
