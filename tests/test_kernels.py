"""The compiled kernels against their numpy twins."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.determinize import determinize
from fstgrad.minimize import minimize, minimize_finals
from fstgrad.strings.algebra import Log, Real
from fstgrad.strings.compiled import solve, used_contexts
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights
from fstgrad.transducers import string_acceptor
from tests.oracles import strings as oracle
from tests.test_strings_exact import KINDS, make_loss

ABC = fg.Alphabet("abc")


@pytest.mark.parametrize("algebra", [Real(), Log()], ids=["real", "log"])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_passes_equal_the_twin(order, algebra, scale):
    """Scale 1 runs the kernel in floats, 200 the one in logarithms; both twins fit at scale 1."""
    rng = np.random.default_rng(order)
    scores = scale * rng.normal(size=(6, *(4,) * (order - 1), 3))
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    b = fg.EditDistance(ABC).compile("abcacb", cap=3)
    if scale > 1 and isinstance(algebra, Real):
        return
    passes = Passes(scores, loss_weights(b, scale=1.0), algebra=algebra)
    expected, _ = passes.forward()
    log_z, marginals = solve(scores, b)
    assert log_z == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(marginals, passes.backward()[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_determinization_equals_the_twin(kind, seed):
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=5))
    loss, _ = make_loss(kind, rng, ABC, target)
    machine = loss.machine(np.array(target))
    fast = determinize(machine, 5, max_states=10_000)
    plain = determinize(machine, 5, max_states=10_000, compiled=False)
    if machine.semiring.name == "probability":
        np.testing.assert_allclose(sorted(fast.final), sorted(plain.final), rtol=1e-14)
        merged, twins = minimize_finals(fast), [minimize_finals(fast, compiled=False)]
    else:
        merged = minimize(fast)
        twins = [minimize(plain, compiled=False), minimize(fast, compiled=False)]
    for twin in twins:
        assert merged.initial == twin.initial
        for a, b in zip(merged.levels, twin.levels, strict=True):
            assert a.target.shape == b.target.shape
            np.testing.assert_array_equal(sorted(a.cost.ravel()), sorted(b.cost.ravel()))


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("factored", "ngram", "ngram-smooth", "ngram-linear")]
)
def test_matching_a_string_equals_composition(kind):
    """A string and its acceptor, which goes through OpenFst, give one machine."""
    rng = np.random.default_rng(7)
    target = np.array([0, 2, 1, 1, 0])
    loss, _ = make_loss(kind, rng, ABC, tuple(target))
    straight = loss.machine(target)
    composed = loss.machine(string_acceptor(ABC, target, arc_type="log64"))
    assert straight.num_states == composed.num_states
    assert len(straight.arcs) == len(composed.arcs)
    for y in oracle.all_strings(3, 3):
        acceptor = string_acceptor(ABC, target, arc_type="log64")
        assert loss(np.array(y), target) == loss(np.array(y), acceptor)


def test_used_contexts_by_hand():
    n = 2
    assert used_contexts(1, n).tolist() == [[True]]
    assert used_contexts(2, n).tolist() == [[False, False, True], [True, True, False]]
    second = np.zeros((3, 3), dtype=bool)
    second[n, :n] = True
    np.testing.assert_array_equal(used_contexts(3, n)[1].reshape(3, 3), second)


def test_state_limit_comes_with_its_remedies():
    with pytest.raises(fg.StateLimitError, match=r"max_states=50.*\n?.*sampled_softmax_margin"):
        fg.EditDistance(fg.Alphabet("abcdefghij")).compile("abcdefghij", max_states=50)
