"""Goodness of fit: what samples of a model share with the data, and which rows support a set."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fstgrad.checks import FloatArray, Seed
from fstgrad.summary import short_repr

MOST_ROWS = 500  # of each side in the discrepancies of pairs
MOST_PAIRS = 200


@dataclass(frozen=True)
class FitReport:
    """Data and samples side by side.

    names : the p columns.  data, samples : dict of "mean", "variance", "zeros" to (p,) float64.
    spearman : float, the mean absolute difference of the rank correlations of all pairs.
    discrepancy : float, the mean over pairs of the squared maximum mean discrepancy of
        log(1 + x) over its standard deviation, with a Gaussian kernel of width 1; near 0 where the
        laws agree.
    r_hat : float, the largest of the samples.
    """

    names: list[str]
    data: dict[str, FloatArray]
    samples: dict[str, FloatArray]
    spearman: float
    discrepancy: float
    r_hat: float

    __repr__ = short_repr

    def __str__(self) -> str:
        """Return a table with one line for each column, then the numbers of the pairs."""
        head = f"{'column':20s} {'mean':>10s} {'sampled':>10s} {'variance':>10s} {'sampled':>10s} "
        lines = [head + f"{'zeros':>7s} {'sampled':>7s}"]
        for i, name in enumerate(self.names):
            d, s = self.data, self.samples
            lines.append(
                f"{name[:20]:20s} {d['mean'][i]:10.4g} {s['mean'][i]:10.4g} "
                f"{d['variance'][i]:10.4g} {s['variance'][i]:10.4g} "
                f"{d['zeros'][i]:7.3f} {s['zeros'][i]:7.3f}"
            )
        lines.append(
            f"Spearman difference {self.spearman:.4f}, pairwise MMD^2 {self.discrepancy:.5f}, "
            f"largest R-hat {self.r_hat:.3f}"
        )
        return "\n".join(lines)


def fit_report(model: Any, x: FloatArray, *, samples: int, rng: Seed) -> FitReport:
    """Compare `samples` Gibbs draws of a fitted model with the data x (n, p)."""
    from fstgrad import checks

    generator = checks.generator(rng)
    samples = checks.positive_integer("samples", samples)
    draws = model.gibbs(samples, generator, chains=min(100, samples))
    known = draws.r_hat[~np.isnan(draws.r_hat)]
    return FitReport(
        list(model.names_), _columns(x), _columns(draws.values),
        spearman_difference(x, draws.values), pair_discrepancy(x, draws.values, generator),
        float(known.max()) if known.size else np.nan,
    )  # fmt: skip


def spearman_difference(x: FloatArray, y: FloatArray) -> float:
    """Return the mean absolute difference of the rank correlations of all pairs of columns."""
    from scipy.stats import rankdata

    upper = np.triu_indices(x.shape[1], 1)
    if not upper[0].size:
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        ranks = (np.asarray(np.corrcoef(rankdata(z, axis=0), rowvar=False)) for z in (x, y))
        one, other = (np.nan_to_num(matrix)[upper] for matrix in ranks)
    return float(np.abs(one - other).mean())


def pair_discrepancy(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> float:
    """Return the mean squared maximum mean discrepancy of pairs of columns (unbiased)."""
    p = x.shape[1]
    first, second = np.triu_indices(p, 1)
    if not first.size:
        return 0.0
    left, right = (np.log1p(np.abs(part)) * np.sign(part) for part in (x, y))
    scale = np.maximum(left.std(axis=0), 1e-3)
    left = left[rng.permutation(len(left))[:MOST_ROWS]] / scale
    right = right[rng.permutation(len(right))[:MOST_ROWS]] / scale
    chosen = rng.permutation(first.size)[:MOST_PAIRS]
    found = []
    for a, b in zip(first[chosen], second[chosen], strict=True):
        u, v = left[:, [a, b]], right[:, [a, b]]
        inside = [(_kernel(w, w).sum() - len(w)) / (len(w) * (len(w) - 1)) for w in (u, v)]
        found.append(sum(inside) - 2 * _kernel(u, v).mean())
    return float(np.mean(found))


def supporting_rows(model: Any, x: FloatArray, names: tuple[str, ...], top: int = 5) -> list[int]:
    """Return the rows in which the product of the columns `names` is largest, the largest first."""
    columns = [model.names_.index(name) for name in names]
    product = np.abs(x[:, columns]).prod(axis=1)
    order = np.argsort(-product, kind="stable")[:top]
    return [int(row) for row in order if product[row] > 0]


def _columns(x: FloatArray) -> dict[str, FloatArray]:
    return {"mean": x.mean(axis=0), "variance": x.var(axis=0), "zeros": (x == 0).mean(axis=0)}


def _kernel(u: FloatArray, v: FloatArray) -> FloatArray:
    square = ((u[:, None] - v[None]) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * square))
