"""What all objectives of a batch of arrays have in common."""

import gc
import importlib
import inspect
import pickle
import sys

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.objectives.base import Objective
from fstgrad.objectives.strings import StringObjective


def test_an_objective_keeps_no_automaton_that_its_cache_has_dropped(monkeypatch):
    monkeypatch.setattr("fstgrad.objectives.strings._AUTOMATA", fg.AutomatonCache(max_memory=0))
    objective = StringObjective("softmax-margin", fg.EditDistance(fg.Alphabet("abc")))
    objective.evaluate([np.zeros((2, 4, 3))], [np.array([[0, 1, 2, 0], [2, 1, 0, 0]])])
    gc.collect()
    assert len(objective._known) == 0


def test_an_objective_without_values_says_so():
    with pytest.raises(NotImplementedError):
        Objective().evaluate([np.zeros(1)], [])


class Brier(Objective):
    """factor times the squared distance of softmax(scores), (B, n), from the labels gold, (B,)."""

    what = "the Brier score"
    constant_names = ("gold",)

    def __init__(self, factor=1.0):
        self.factor = factor

    def evaluate(self, scores, constants, team=None):
        """Return the values and the gradient."""
        (scores,), (gold,) = scores, constants
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        gap = p - np.eye(p.shape[1])[gold]
        gradient = 2 * p * (gap - (p * gap).sum(axis=1, keepdims=True))
        return self.factor * (gap**2).sum(axis=1), [self.factor * gradient]


SCORES, GOLD = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]]), np.array([1, 2])


def test_a_class_is_a_function_and_a_module_of_pytorch(monkeypatch):
    torch = pytest.importorskip("torch")
    fgt = pytest.importorskip("fstgrad.torch")
    brier, module = fgt.function_of(Brier), fgt.module_of(Brier)
    gold = torch.tensor(GOLD)
    scores = torch.tensor(SCORES, requires_grad=True)
    expected = 2.0 * (torch.softmax(scores, dim=1) - torch.eye(3).double()[gold]).square().sum(1)
    torch.testing.assert_close(brier(scores, gold, factor=2.0, reduction="none"), expected)
    torch.testing.assert_close(module(factor=2.0)(scores, gold), expected.mean())
    assert torch.autograd.gradcheck(
        lambda s: brier(s, gold=gold, reduction="none"), scores, fast_mode=True
    )
    compiled = torch.compile(brier, fullgraph=True, backend="aot_eager")
    assert compiled(scores, gold, factor=2.0).item() == brier(scores, gold, factor=2.0).item()
    assert str(inspect.signature(brier)) == (
        "(scores, gold, *, factor=1.0, infeasible='raise', reduction='mean')"
    )
    assert (brier.__name__, module.__name__, brier.__doc__) == ("Brier", "BrierLoss", Brier.__doc__)
    monkeypatch.setattr(sys.modules[__name__], "BrierLoss", module, raising=False)
    assert pickle.loads(pickle.dumps(module(factor=3.0))).factor == 3.0
    with pytest.raises(fg.NotSupportedError, match="the Brier score has no second derivative"):
        torch.autograd.functional.hessian(lambda s: brier(s, gold), scores.detach())


def test_a_class_is_a_function_of_jax():
    jax = pytest.importorskip("jax")
    fgj = pytest.importorskip("fstgrad.jax")
    brier, gold = fgj.function_of(Brier), jax.numpy.array(GOLD)

    def by_jax(scores):
        return 2.0 * ((jax.nn.softmax(scores, axis=1) - jax.numpy.eye(3)[gold]) ** 2).sum()

    found = jax.jit(jax.grad(lambda s: brier(s, gold, factor=2.0).sum()))(jax.numpy.array(SCORES))
    np.testing.assert_allclose(found, jax.grad(by_jax)(jax.numpy.array(SCORES)), atol=1e-6)
    assert str(inspect.signature(brier)) == ("(scores, gold, *, factor=1.0, infeasible='raise')")


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_wrong_arrays_of_a_class(framework):
    pytest.importorskip(framework)
    brier = importlib.import_module(f"fstgrad.{framework}").function_of(Brier)
    array = importlib.import_module({"torch": "torch", "jax": "jax.numpy"}[framework]).asarray
    with pytest.raises(fg.InvalidInputError, match=r"scores has the shape \(2, 3\), gold \(1,\)"):
        brier(array(SCORES), array(GOLD[:1]))
    with pytest.raises(fg.InvalidInputError, match=r"gold \(\); the first axis is the batch"):
        brier(array(SCORES), array(1))
    with pytest.raises(TypeError, match="gold"):
        brier(array(SCORES))
    with pytest.raises(TypeError, match="scale"):
        brier(array(SCORES), array(GOLD), scale=1.0)
