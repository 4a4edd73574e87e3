"""The parts of a training: two values of l2, pairs that are held out, two objectives."""

import itertools

import numpy as np
import pytest

from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.batch import Batch
from fstgrad.learning.recipes import hold_out
from fstgrad.learning.sequence import SequenceModel, pair_objective
from fstgrad.learning.templates import Tagged
from fstgrad.learning.trainer import Settings, State, Trainer
from tests.helpers.training import SMALL, Killed, X, Y


def joined_settings(**more):
    return {**SMALL, "epochs": 8, "held_out": 0.2, **more}


def test_pairs_that_are_held_out_choose_the_epoch_and_join_the_others():
    inputs, targets = [x for x in X for _ in range(4)], [y for y in Y for _ in range(4)]
    assert len(inputs) >= 50
    model = SequenceModel(**joined_settings()).fit(inputs, targets)
    assert [epoch.validation is None for epoch in model.history_] == [False] * 8 + [True] * 2
    alone = SequenceModel(**joined_settings(held_out=0.0)).fit(inputs, targets)
    assert len(alone.history_) == 8
    ended = SequenceModel(**joined_settings(), callbacks=[lambda epoch: epoch.epoch == 3])
    assert len(ended.fit(inputs, targets).history_) == 3
    with pytest.raises(InvalidInputError, match=r"held_out is 1.5; give a share"):
        SequenceModel(**joined_settings(held_out=1.5)).fit(inputs, targets)


def test_pairs_with_the_same_input_are_held_out_together():
    pairs = [(Tagged(f"{i % 25}", (f"{i}",)), (f"{i}",)) for i in range(100)]
    kept, (xs, ys) = hold_out(pairs, pairs, 0.13, seed=0)
    assert len(xs) == 12  # three inputs with four outputs each
    assert not {x.symbols for x in xs} & {x.symbols for x, _ in kept}
    assert sorted([*kept, *zip(xs, ys, strict=True)], key=pairs.index) == pairs
    assert len(hold_out(pairs, pairs, 0.03, seed=0)[1][0]) == 3  # one by one
    alone = [(x, x) for x in map(tuple, itertools.product("abcdefgh", repeat=2))]
    assert len(hold_out(alone, alone, 0.13, seed=0)[1][0]) == int(0.13 * 64)


def unrelated():
    """Return pairs on which every model makes errors."""
    ys = np.random.default_rng(0).permutation([y for y in Y for _ in range(4)])
    return [x for x in X for _ in range(4)], ys.tolist()


def test_of_two_objectives_the_second_has_the_pairs_that_were_held_out():
    inputs, targets = unrelated()
    settings = joined_settings(objective="crf-then-risk", epochs=4)
    model = SequenceModel(**settings).fit(inputs, targets)
    parts = [(e.validation is None, e.epoch) for e in model.history_]
    assert parts == [(False, i) for i in range(1, 13)] + [(True, 13)]  # crf twice, risk, all pairs


@pytest.mark.parametrize("better", [True, False])
def test_a_smaller_l2_is_kept_where_it_has_fewer_errors(better):
    xs, ys = X[:6], Y[:6]
    model = SequenceModel(**SMALL, objective="crf", optimizer="sgd").fit(xs, ys)
    objective, pairs = pair_objective(model), list(zip(xs, ys, strict=True))
    settings = Settings("sgd", 3, batch_size=6, learning_rate=0.4, l2=0.5, weaker_l2=0.05)
    errors = iter([0.5, 0.4, 0.3] + ([0.2, 0.15, 0.1] if better else [0.3] * 3))
    with Batch(objective) as batch:
        trainer = Trainer(batch, pairs, settings, lambda w: next(errors))
        state = State.start(np.zeros(model.features_.shape))
        trainer.run(state)
        trainer.train_with_weaker_l2(state)
        trainer.train_on_all(state, pairs)

    def after(w, rates, l2):
        for rate in rates:
            w = w - rate * (objective.mean(w, pairs)[1] + l2 * w)
        return w

    w = after(np.zeros(model.features_.shape), (0.4, 0.8 / 3, 0.4 / 3), 0.5)
    if better:
        w = after(w, (0.2, 0.4 / 3, 0.2 / 3), 0.05)
    np.testing.assert_allclose(state.w, after(w, [0.08], 0.05 if better else 0.5), atol=1e-13)
    assert len(state.history) == 7


def test_l2_is_tried_only_where_it_is_open():
    inputs, targets = unrelated()
    settings = joined_settings(objective="crf", epochs=2)
    for more, epochs in (
        ({}, 5), ({"l2": 3e-4}, 3), ({"patience": 5}, 3), ({"optimizer": "lbfgs"}, 3),
        ({"held_out": 0.0}, 2),
    ):  # fmt: skip
        assert len(SequenceModel(**{**settings, **more}).fit(inputs, targets).history_) == epochs


@pytest.mark.parametrize(
    "at, objective",
    [(5, "softmax-margin"), (8, "softmax-margin"), (9, "softmax-margin"), (8, "crf"), (12, "crf")],
)
def test_a_run_that_is_killed_goes_on_in_its_part(at, objective, tmp_path):
    inputs, targets = unrelated()
    settings = joined_settings(objective=objective)
    whole = SequenceModel(**settings).fit(inputs, targets)
    assert len(whole.history_) == (18 if objective == "crf" else 10)

    def kill(epoch):
        if epoch.epoch == at + 1:
            raise Killed

    path = str(tmp_path / "state")
    with pytest.raises(Killed):
        SequenceModel(**settings, checkpoint=path, callbacks=[kill]).fit(inputs, targets)
    again = SequenceModel(**settings, checkpoint=path).fit(inputs, targets, resume=True)
    assert again.coef_.tobytes() == whole.coef_.tobytes()
    assert [e.objective for e in again.history_] == [e.objective for e in whole.history_]
