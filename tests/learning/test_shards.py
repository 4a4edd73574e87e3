"""The gradient of a corpus on a cluster: shards read by the workers, sums reduced."""

import copy
import os

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.io import read_pairs
from fstgrad.learning.outcomes import Sums
from fstgrad.learning.shards import Shards, _dense, _packed, _Tree, shard_sums

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


def test_one_bad_pair_does_not_stop_a_pass(shards):
    expected = shard_sums(OBJECTIVE, W, shards)
    with open(shards[1], "a", encoding="utf-8") as file:
        file.write("x\tabd\nno tab\n")
    with open(shards[3], "ab") as file:
        file.write(b"\xff\tab\n")
    seen = []
    sums = shard_sums(OBJECTIVE, W, shards, on_error=lambda *found: seen.append(found))
    assert [(path, outcome.place) for path, outcome in seen] == [
        (shards[1], 9), (shards[1], 10), (shards[3], 9),
    ]  # fmt: skip
    assert all(isinstance(outcome.error, fg.FstgradError) for _, outcome in seen)
    assert (sums.done, sums.failed) == (36, 3)
    assert sums.gradient.tobytes() == expected.gradient.tobytes()
    with pytest.raises(fg.FstgradError, match=r"'d'|no tab"):
        shard_sums(OBJECTIVE, W, shards)


def test_a_shard_without_a_sound_pair_counts_for_nothing(shards, tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text("x\td\n")
    sums = shard_sums(OBJECTIVE, W, [*shards, path], on_error=lambda *_: None)
    assert (sums.done, sums.failed) == (36, 1)


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 8, 13])
def test_no_order_of_completion_and_no_block_changes_a_bit(leaves):
    """Dense and sparse gradients, whose sums depend on the order of addition."""
    rng = np.random.default_rng(leaves)
    gradients = rng.normal(size=(leaves, 40)) * 10.0 ** rng.integers(-8, 8, (leaves, 1))
    gradients[::2] *= rng.random((len(gradients[::2]), 40)) < 0.1
    parts = [_packed(Sums(g.copy(), value=float(g.sum()), done=1)) for g in gradients]
    assert any(part.support is not None for part in parts)
    found = set()
    for block in (1, 2, 4, 8, 16):
        for _ in range(5):
            starts = range(0, leaves, block)
            tree = _Tree(len(starts), 40)
            for k in rng.permutation(len(starts)).tolist():
                own = range(starts[k], min(leaves, starts[k] + block))
                branch = _Tree(len(own), 40)
                for j in rng.permutation(len(own)).tolist():
                    branch.add(j, copy.deepcopy(parts[own[j]]))
                tree.add(k, branch.root)
            sums = _dense(tree.root, 40)
            assert sums.done == leaves
            np.testing.assert_allclose(sums.gradient, gradients.sum(0), rtol=1e-9, atol=1e-9)
            found.add((sums.gradient.tobytes(), sums.value))
    assert len(found) == 1


def test_few_weights_travel_as_places():
    features = fg.TemplateFeatures.from_pairs(
        ABC, 1, fg.Window(0, 1), [("abcdefghij", "aaaabbbbcc")]
    )
    objective = fg.PairObjective(features, kind="crf")
    w = np.zeros(features.shape)
    whole = objective(w, "a", "a").gradient
    block = _packed(Sums(whole.copy()))
    assert block.support.dtype == np.int32
    assert len(block.support) == np.count_nonzero(whole) < len(w) / 2
    assert _dense(block, len(w)).gradient.tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"paths": []}, "empty"), ({"block": 3}, "power of two"), ({"tokens_y": "lines"}, "tokens_y")],
)
def test_shards_that_cannot_be_are_named(settings, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        Shards(**{"paths": ["a.tsv"], **settings})


@pytest.mark.slow
def test_no_number_of_workers_changes_a_bit(shards):
    import joblib

    expected = shard_sums(OBJECTIVE, W, shards)
    for workers in (1, 2, 3):
        for block in (1, 2):
            with joblib.parallel_config(backend="loky", n_jobs=workers):
                sums = shard_sums(OBJECTIVE, W, Shards(shards, block=block))
            assert sums.gradient.tobytes() == expected.gradient.tobytes()
            assert (sums.value, sums.done) == (expected.value, expected.done)


@pytest.mark.slow
def test_the_workers_of_ray_give_the_same_bits(shards):
    ray = pytest.importorskip("ray")
    import joblib
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config(backend="ray", n_jobs=2):
            sums = shard_sums(OBJECTIVE, W, shards)
    finally:
        ray.shutdown()
    assert sums.gradient.tobytes() == shard_sums(OBJECTIVE, W, shards).gradient.tobytes()


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
