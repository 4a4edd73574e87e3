"""The strings family meets the contract, with and without a loss, for q = 1, 2, 3."""

import numpy as np
import pytest

import fstgrad as fg
from tests.contract import DistributionContract, Enumerated
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")


def used_contexts(shape):
    """Mask of the entries of a score table that some string uses."""
    length, n = shape[0], shape[-1]
    return sum(oracle.parts(y, np.zeros(shape)) for y in oracle.all_strings(n, length)) > 0


def enumerated(scores, losses, b):
    length, n = len(scores), scores.shape[-1]
    strings = oracle.all_strings(n, length)
    keep = [i for i in range(len(strings)) if losses is None or losses[i] < np.inf]
    return Enumerated(
        fg.StringDistribution(scores, b),
        [np.array(strings[i]) for i in keep],
        [(oracle.parts(strings[i], scores),) for i in keep],
        [0.0 if losses is None else losses[i] for i in keep],
        (scores,),
        lambda tables: fg.StringDistribution(tables[0], b),
    )


class TestStrings(DistributionContract):
    def cases(self):
        rng = np.random.default_rng(0)
        cases = []
        for order in (1, 2, 3):
            shape = (3, *(4,) * (order - 1), 3)
            scores = np.where(used_contexts(shape), rng.normal(size=shape), 0.0)
            cases.append(enumerated(scores, None, None))
            target = (0, 1, 0)
            losses = [oracle.edit_distance(y, target) for y in oracle.all_strings(3, 3)]
            b = fg.EditDistance(ABC).compile(np.array(target))
            cases.append(enumerated(scores, losses, b))
            masked = scores.copy()
            masked[1, ..., 2] = -np.inf
            cases.append(enumerated(masked, losses, b))
        losses = [oracle.ngram_loss(y, (0, 1, 0), 2) for y in oracle.all_strings(3, 3)]
        b = fg.NGram(ABC, 2).compile(np.array([0, 1, 0]))
        scores = np.where(used_contexts((3, 4, 3)), rng.normal(size=(3, 4, 3)), 0.0)
        cases.append(enumerated(scores, losses, b))
        return cases


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kbest_is_the_sorted_enumeration(order):
    rng = np.random.default_rng(order)
    scores = rng.normal(size=(4, *(4,) * (order - 1), 3))
    b = fg.EditDistance(ABC).compile("abca")
    d = fg.StringDistribution(scores, b)
    best = d.kbest(100)
    everything = sorted((d.log_prob(np.array(y)), y) for y in oracle.all_strings(3, 4))[::-1]
    assert len(best) == 81
    for (ids, log_prob), (expected, y) in zip(best, everything, strict=False):
        assert log_prob == pytest.approx(expected, abs=1e-12)
        assert tuple(ids) == y
