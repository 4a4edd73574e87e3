"""Pictures on the subjects of Figures 1 and 2 of Inouye, Ravikumar and Dhillon (2016).

These are not copies of the paper's figures: they show the two central subjects of the paper with
our own parameters.

1. Joint distributions of counts, p(x_1, x_2): independent; the square-root model (k = 2) with a
   negative and a positive theta; and, with k = 3, p(x_1, x_2 | x_3) of a positive triple for two
   values of x_3.
2. Bounds of the log-partition function of one node, k = 3: the distance of the piecewise-linear
   bounds from the direct value, by the number of domains.

    python benchmarks/figures_grm.py [--quick] [--json FILE] [--plot FOLDER]

The pictures are FOLDER/figure1.svg, which divides each distribution by its largest probability,
and FOLDER/figure2.svg.
"""

import argparse
import pathlib
import sys

from _harness import one_thread, report

one_thread()

import numpy as np  # noqa: E402

from fstgrad import plot  # noqa: E402
from fstgrad.grm.blocks import Term  # noqa: E402
from fstgrad.grm.families import BASES  # noqa: E402
from fstgrad.grm.parameters import Interactions, Parameters  # noqa: E402
from fstgrad.grm.partition import log_partition  # noqa: E402

SIDE = 20  # counts 0, ..., SIDE - 1 on each axis of a picture
INTERCEPT = np.log(4.0)  # of every variable; without interactions, its mean is 4
GRID = np.stack(np.meshgrid(*[np.arange(float(SIDE))] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
ETA = {
    "poisson": [0.5, -1.0, 2.0], "exponential": [-1.0, 0.5, 1.0], "gaussian": [-0.5, 0.5, 0.5],
}  # fmt: skip


def law(features, values, size):
    """Return the Poisson model of some variables, with coefficient `values` for one set of them."""
    intercepts = np.zeros((features, size))
    intercepts[:, 0] = INTERCEPT
    sets = np.arange(size)[None, :]
    found = (Interactions(Term(size, size), sets, np.array([values])),) if size > 1 else ()
    return Parameters((BASES["poisson"],) * features, size, intercepts, found)


def panels():
    """Yield the title and the probabilities p(x_1, x_2), (SIDE, SIDE), of each distribution."""
    pairs = {
        "independent": law(2, 0.0, 1),
        "k = 2, theta = -1": law(2, -1.0, 2),
        "k = 2, theta = 1": law(2, 1.0, 2),
    }
    for title, parameters in pairs.items():
        exact = log_partition(parameters, "exact", samples=2, steps=1, rng=0)
        yield title, np.exp(parameters.log_potential(GRID) - exact.value).reshape(SIDE, SIDE)
    triple = law(3, 1.0, 3)
    for third in (0.0, 9.0):
        x = np.column_stack([GRID, np.full(len(GRID), third)])
        wide = np.column_stack([np.arange(200.0), np.zeros(200), np.full(200, third)])
        rest = triple.conditional_log_partition(1, wide)  # log sum over x_2, given x_1 and x_3
        total = np.logaddexp.reduce(triple.log_potential(wide) + rest)
        height = triple.log_potential(x) - total
        yield f"k = 3, x_3 = {third:.0f}", np.exp(height).reshape(SIDE, SIDE)


def law_rows(laws):
    """Yield the numbers behind each picture of the first figure."""
    for title, mass in laws.items():
        x = np.arange(SIDE)
        total = mass.sum()
        mean = np.array([mass.sum(axis=1) @ x, mass.sum(axis=0) @ x]) / total
        square = np.array([mass.sum(axis=1) @ x**2, mass.sum(axis=0) @ x**2]) / total
        cross = x @ mass @ x / total - mean.prod()
        yield {
            "law": title, "mass of the picture": float(total), "mean of x_1": float(mean[0]),
            "correlation": float(cross / np.sqrt(np.prod(square - mean**2))),
        }  # fmt: skip


def bound_rows(quick):
    """Yield the distances (nats) of the bounds from the direct value."""
    for name, eta in ETA.items():
        base = BASES[name]
        value = float(base.log_partition(eta).value)
        for domains in (4, 8) if quick else (3, 4, 6, 8, 12, 16, 24, 32):
            found = base.log_partition(eta, method="bounds", domains=domains)
            yield {
                "base": name, "domains": domains, "log-partition": value,
                "above": float(found.upper) - value, "below": value - float(found.lower),
            }  # fmt: skip


def draw(folder, laws, rows):
    """Write the two pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    scaled = {title: mass[:, ::-1].T / mass.max() for title, mass in laws.items()}
    plot.save(plot.strip(scaled), folder / "figure1.svg")
    series = {}
    for row in rows:
        lines = series.setdefault(row["base"], {"upper": ([], []), "lower": ([], [])})
        for name, side in (("upper", "above"), ("lower", "below")):
            lines[name][0].append(row["domains"])
            lines[name][1].append(max(row[side], 1e-16))
    figure = plot.curves(series, xlabel="domains", ylabel="distance from A (nats)")
    plot.save(figure, folder / "figure2.svg")


def main(arguments):
    """Print both tables and draw both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plot", metavar="FOLDER")
    options = parser.parse_args(arguments)
    laws = dict(panels())
    bounds = list(bound_rows(options.quick))
    report("Figure 1: joint laws of counts", list(law_rows(laws)), None)
    report("Figure 2: bounds of the log-partition of a node, k = 3", bounds, options.json)
    if options.plot:
        draw(pathlib.Path(options.plot), laws, bounds)


if __name__ == "__main__":
    main(sys.argv[1:])
