"""Kernels that Python runs while they are not compiled: the same bits, and only for small work."""

import contextlib

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.automata import determinize, few, minimize
from fstgrad.strings import solve
from tests.helpers.losses import KINDS, make_loss

ABC = fg.Alphabet("abc")


class Both:
    """Stands for `few`: runs a kernel both ways and compares the results and the workspace."""

    def __init__(self):
        self.found = set()

    def __call__(self, kernel, steps):
        def run(*arguments):
            twins = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            expected, result = kernel(*arguments), few.interpreted(kernel)(*twins)
            assert_equal((expected, arguments), (result, twins))
            self.found.add(kernel.__name__)
            return result

        assert steps >= 0
        return run


def assert_equal(one, other):
    if isinstance(one, (tuple, list)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
    else:
        assert type(one) is type(other)
        assert one == other


@pytest.fixture
def both(monkeypatch):
    found = Both()
    for module in (determinize, minimize, solve):
        monkeypatch.setattr(module, "few", found)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_automata_have_the_same_bits(kind, seed, both):
    """Random targets, weights, caps and bands of every loss."""
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=rng.integers(1, 6)))
    loss, _ = make_loss(kind, rng, ABC, target)
    loss.compile(np.array(target))
    assert "merge_level" in both.found
    if loss.machine(np.array(target)).semiring.name != "tropical":
        return
    assert both.found >= {"arc_kinds", "bounds", "canonical", "advance"}
    capped = loss.compile(np.array(target), cap=float(rng.choice([0.5, 1.0, 2.0])))
    with contextlib.suppress(fg.NotSupportedError):  # no bound from above is known
        assert capped.cap.upper.num_states > 0
    with contextlib.suppress(fg.InfeasibleError):  # the band leaves out strings
        loss.compile(np.array(target), band=1)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_score_tables_have_the_same_bits(order, seed, both):
    """Scores with symbols that are forbidden, zeros of both signs, and offsets."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(6, *(4,) * (order - 1), 3)) * 10.0 ** rng.integers(-3, 8)
    scores[rng.random(scores.shape) < 0.2] = rng.choice([0.0, -np.inf])
    scores[rng.random(scores.shape) < 0.2] = -0.0
    scores[..., 0] = rng.choice([0.0, -0.0], size=scores.shape[:-1])
    solve.score_table(scores)
    assert both.found == {"shift_scores"}
    scores[3] = -np.inf
    with pytest.raises(fg.InfeasibleError, match=r"scores\[3\] forbids every symbol"):
        solve.score_table(scores)


class Absent:
    """Stands for a kernel that has no compiled form."""

    def __init__(self, is_there=False):
        self.overloads, self._cache, self.is_there = {}, self, lambda: is_there

    @staticmethod
    def py_func():
        return np.int64(3), np.int64(2**62) * np.int64(4)


def test_only_small_work_is_left_to_python(monkeypatch):
    """Up to a number of steps in a process, and nothing that has a compiled form."""
    monkeypatch.setattr(few, "INTERPRETER", few.Interpreter(10))
    absent, there = Absent(), Absent(is_there=True)
    assert few.few(there, 1) is there
    assert few.few(len, 1) is len, "without a compiler"
    with few.compiled_only():
        assert few.few(absent, 1) is absent
    assert few.few(absent, 11) is absent
    assert few.few(absent, 6) is not absent
    assert few.few(absent, 5) is absent, "6 of 10 are spent"
    assert few.few(absent, 4) is few.interpreted(absent)
    assert few.few(absent, 1) is absent
