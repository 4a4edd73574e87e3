"""Fits of five real count matrices: optimal, never below independence, and with their means."""

import pathlib
from collections import Counter

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.grm.files import read_table

datasets = pytest.importorskip("sklearn.datasets")
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:.*constant")]
CLASSIC3 = pathlib.Path(__file__).parents[2] / "data" / "classic3.mat"
ROWS, COLUMNS, DRAWS, CHAINS = 250, 5, 1000, 100


def _most_common(bags, columns):
    """Counts (n, columns) of the most common symbols of bags of symbols."""
    total = Counter(symbol for bag in bags for symbol in bag)
    chosen = [symbol for symbol, _ in total.most_common(columns)]
    return np.array([[bag.count(symbol) for symbol in chosen] for bag in bags], dtype=float)


def _ink(folder):
    return datasets.load_digits().data.reshape(-1, 8, 8)[:, 2:4, 2:5].reshape(-1, 6)[:, :COLUMNS]


def _words(folder):
    table = read_table(CLASSIC3)[0]
    return table[::9, np.argsort(-np.asarray(table.sum(axis=0)).ravel())[:COLUMNS]].toarray()


def _word_classes(folder):
    text = (folder / "ud" / "UD_English-PUD" / "en_pud-ud-test.conllu").read_text("utf-8")
    bags = [
        [line.split("\t")[3] for line in sentence.splitlines() if line[:1].isdigit()]
        for sentence in text.split("\n\n")
    ]
    return _most_common([bag for bag in bags if bag], COLUMNS)


def _residues(folder):
    lines = (folder / "protein_homologs" / "pairs.tsv").read_text("utf-8").splitlines()[1:]
    sequences = sorted({sequence for line in lines for sequence in line.split("\t")[3:5]})
    return _most_common(sequences, COLUMNS)


def _letters(folder):
    lines = (folder / "spelling" / "pairs.tsv").read_text("utf-8").splitlines()[::11]
    return _most_common([line.split("\t")[0] for line in lines], COLUMNS)


@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("matrix", [_ink, _words, _word_classes, _residues, _letters])
def test_a_fit_of_real_counts(matrix, k, alpha, shared_data):
    x = matrix(shared_data)[:ROWS]
    base = "hurdle-negative-binomial"
    model = fg.GeneralizedRootModel(k=k, base=base, alpha=alpha, tol=1e-5).fit(x)
    alone = fg.GeneralizedRootModel(k=1, base=base).fit(x)
    assert model.kkt_.max() <= model.tol
    assert np.isfinite(model.score_samples(x)).all()
    assert model.score(x) >= alone.score(x) - 1e-6
    _check_means(model, x)
    model.calibrate(x, sweeps=200, chains=CHAINS)
    _check_means(model, x)


def _check_means(model, x):
    """The means of samples are within 10 percent of those of the data, Monte Carlo error aside."""
    drawn = model.gibbs(DRAWS, 1, burn_in=100, thin=2, chains=CHAINS)
    assert np.isfinite(drawn.values).all()
    error = drawn.values.std(axis=0) / np.sqrt(drawn.effective)
    gap = np.abs(drawn.values.mean(axis=0) - x.mean(axis=0))
    assert (gap <= 0.1 * x.mean(axis=0) + 3 * error).all()
