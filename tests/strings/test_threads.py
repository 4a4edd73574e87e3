"""Results do not depend on how many threads the libraries below are given."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import sys
import numpy as np
import fstgrad as fg

rng = np.random.default_rng(0)
abc = fg.Alphabet([f"p{i}" for i in range(39)])  # as many symbols as phones: BLAS uses its threads
loss = fg.EditDistance(abc)
features = fg.QGramCounts(abc, 2)
w = rng.normal(size=features.shape)
pairs = [("x", rng.integers(39, size=length)) for length in (3, 9, 11, 11)]
results = []
for kind in ("softmax-margin", "risk"):
    value, gradient = fg.Batch(fg.PairObjective(features, loss, kind)).sums(w, pairs).mean()
    results += [[value], gradient.ravel()]
scores = rng.normal(size=(40, 40, 39))
target = rng.integers(39, size=40)
b = loss.compile(target, cap=4)
distribution = fg.StringDistribution(scores, b)
results += [[distribution.log_partition()], distribution.marginals().ravel()]
sampled = fg.sampled_softmax_margin(scores, target, loss, samples=500, rng=1)
results += [[sampled.value], sampled.gradient.ravel(), sampled.gradient_standard_error.ravel()]
np.save(sys.argv[1], np.concatenate(results))
"""


def results(path, threads):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    command = [sys.executable, "-c", PROGRAM, str(path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return np.load(path)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads(tmp_path):
    one = results(tmp_path / "1.npy", 1)
    two = results(tmp_path / "2.npy", 2)
    assert np.isfinite(one).all()
    assert np.ptp(one) > 1
    np.testing.assert_allclose(two, one, rtol=1e-15, atol=1e-15)
    np.testing.assert_array_equal(results(tmp_path / "again.npy", 1), one)
