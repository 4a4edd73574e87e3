"""Training on shards: resumable to the last bit, and equal to training on the pairs in one list."""

import pathlib
from dataclasses import replace

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.learning import trainer
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.shard_training import Saving, fit_shards, train_shards
from fstgrad.learning.shards import Shards
from fstgrad.learning.trainer import Settings

ABC = fg.Alphabet("abc")
OBJECTIVE = fg.PairObjective(fg.PositionalQGrams(ABC, 2, max_length=5), kind="crf")
LBFGS = Settings("lbfgs", epochs=5, l2=0.01)
STEPS = {
    "adam": Settings("adam", epochs=4, batch_size=2, learning_rate=0.1, l2=0.01, seed=3),
    "sgd": Settings("sgd", epochs=4, batch_size=2, learning_rate=0.1, l2=0.01, seed=3),
    "lbfgs": Settings("lbfgs", epochs=45, l2=1e-5),
}


@pytest.fixture
def shards(tmp_path):
    rng = np.random.default_rng(1)
    paths = []
    for k in range(5):
        path = tmp_path / f"{k}.tsv"
        rows = ("".join(rng.choice(list("abc"), 5)) for _ in range(7))
        path.write_text("".join(f"{y.translate(str.maketrans('abc', 'xyz'))}\t{y}\n" for y in rows))
        paths.append(path)
    return Shards(paths)


@pytest.mark.parametrize("optimizer", STEPS)
def test_slow_epochs_are_announced(shards, optimizer, monkeypatch):
    monkeypatch.setattr(trainer, "SLOW_EPOCH", 0.0)
    objective = fg.PairObjective(OBJECTIVE.features, fg.EditDistance(ABC), kind="risk", cap=3.0)
    with pytest.warns(RuntimeWarning, match="cap=1 instead of 3 is faster") as warned:
        train_shards(objective, shards, replace(STEPS[optimizer], epochs=2))
    assert len(warned) == 1


class Stopped(Exception):
    """The end of a run in the middle."""


@pytest.mark.parametrize("optimizer", STEPS)
def test_a_run_that_goes_on_ends_in_the_same_bits(shards, tmp_path, optimizer, monkeypatch):
    monkeypatch.setattr(trainer, "LBFGS_ROUND", 4)  # iterations between two checkpoints
    settings, path = STEPS[optimizer], tmp_path / "state"
    whole = train_shards(OBJECTIVE, shards, settings)
    last = 6 if optimizer == "lbfgs" else 2

    def stop(epoch):
        if epoch.epoch == last:
            raise Stopped

    assert len(whole.history) > last
    with pytest.raises(Stopped):
        train_shards(OBJECTIVE, shards, settings, saving=Saving(path), callbacks=[stop])
    seen = []
    again = train_shards(
        OBJECTIVE, shards, settings, saving=Saving(path, resume=True), callbacks=[seen.append]
    )
    assert seen[0].epoch == (5 if optimizer == "lbfgs" else 2)  # it went on, not from the start
    assert again.w.tobytes() == whole.w.tobytes()
    assert [e.objective for e in again.history] == [e.objective for e in whole.history]


def test_a_checkpoint_of_other_files_is_refused(shards, tmp_path):
    path, settings = tmp_path / "state", Settings("lbfgs", epochs=2)
    train_shards(OBJECTIVE, shards, settings, saving=Saving(path))
    with pytest.raises(InvalidInputError, match="other pairs or settings"):
        train_shards(OBJECTIVE, Shards(shards.paths[1:]), settings, saving=Saving(path, True))


def test_a_bad_pair_does_not_end_a_training(shards, tmp_path):
    expected = train_shards(OBJECTIVE, shards, LBFGS)
    with open(shards.paths[2], "a", encoding="utf-8") as file:
        file.write("x\tad\n")
    places = set()
    found = train_shards(
        OBJECTIVE, shards, LBFGS, on_error=lambda path, o: places.add((path, o.place))
    )
    assert places == {(shards.paths[2], 7)}
    assert found.w.tobytes() == expected.w.tobytes()
    with pytest.raises(fg.AlphabetError, match="'d'"):
        train_shards(OBJECTIVE, shards, LBFGS)


@pytest.mark.parametrize("objective", ["crf", "softmax-margin"])
def test_a_model_of_shards_is_that_of_its_pairs(shards, objective):
    pairs = [
        line.split("\t")
        for path in shards.paths
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    ]
    X, Y = zip(*pairs, strict=True)
    settings = {"objective": objective, "features": "aligned", "optimizer": "lbfgs", "l2": 1.0}
    whole = SequenceModel("hamming", epochs=60, **settings).fit(X, Y)
    sample = SequenceModel("hamming", epochs=1, **settings).fit(X, Y)
    fit_shards(sample.set_params(epochs=60), shards)
    assert sample.history_[-1].objective == pytest.approx(whole.history_[-1].objective, abs=1e-5)
    assert sample.predict(["xyz"]) == whole.predict(["xyz"]) == ["abc"]


def test_what_cannot_be_done_in_shards_is_named(shards):
    model = SequenceModel("edit", alignment="em", epochs=1).fit(["xy", "z"], ["ab", "cc"])
    with pytest.raises(NotSupportedError, match="alignment='given'"):
        fit_shards(model, shards)
    with pytest.raises(InvalidInputError, match="fit first"):
        fit_shards(SequenceModel(), shards)
    model = SequenceModel("hamming", "aligned", epochs=1).fit(["xy", "z"], ["ab", "c"])
    with pytest.raises(NotSupportedError, match="crf-then-risk"):
        fit_shards(model.set_params(objective="crf-then-risk"), shards)
