"""The gradient of a corpus on a cluster: shards read by the workers, sums reduced."""

import os

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.io import read_pairs
from fstgrad.training.shards import shard_sums

ABC = fg.Alphabet("abc")
OBJECTIVE = fg.PairObjective(fg.QGramCounts(ABC, 2), fg.EditDistance(ABC))
W = np.random.default_rng(0).normal(size=(3, 3))


@pytest.fixture
def shards(tmp_path):
    rng = np.random.default_rng(1)
    paths = []
    for k in range(4):
        path = tmp_path / f"{k}.tsv"
        path.write_text("".join(f"x\t{''.join(rng.choice(list('abc'), 5))}\n" for _ in range(9)))
        paths.append(str(path))
    return paths


def single(shards):
    return fg.Batch(OBJECTIVE).sums(W, [p for path in shards for p in read_pairs(path)])


def test_shards_are_summed_in_order(shards):
    sums = shard_sums(OBJECTIVE, W, shards)
    expected = single(shards)
    assert sums.done == 36
    assert sums.value == pytest.approx(expected.value, rel=1e-14)
    np.testing.assert_allclose(sums.gradient, expected.gradient, atol=1e-13)


@pytest.mark.slow
def test_a_lost_worker_changes_nothing(shards, tmp_path):
    distributed = pytest.importorskip("distributed")
    import joblib

    class Deadly(fg.QGramCounts):
        """Ends the process of the first worker that comes to the middle of its shard."""

        def accumulate(self, table, x, out):
            super().accumulate(table, x, out)
            if out.sum() != 0 and not mark.exists():
                mark.write_text("one worker is gone")
                os._exit(1)

    mark = tmp_path / "mark"
    deadly = fg.PairObjective(Deadly(ABC, 2), OBJECTIVE.loss)
    expected = shard_sums(OBJECTIVE, W, shards)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        sums = shard_sums(OBJECTIVE, W, shards)
        assert sums.gradient.tobytes() == expected.gradient.tobytes()
        assert sums.value == expected.value
        again = shard_sums(deadly, W, shards)
    assert mark.exists()
    assert again.gradient.tobytes() == expected.gradient.tobytes()
    assert again.value == expected.value
