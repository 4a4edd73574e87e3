"""Lattice objectives in PyTorch."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

ABC = fg.Alphabet("abc")
LATTICE = fg.Lattice.from_nbest(["ab", "abc", "ca", "b"], [0.1, -0.3, 0.5, 0.0], ABC)
LOSS = LATTICE.compile(fg.EditDistance(ABC), "abb")
MARGIN = LATTICE.compile(fg.EditDistance(ABC), "abc")


def arcs():
    return torch.tensor(LATTICE.scores, dtype=torch.float64, requires_grad=True)


FUNCTIONS = {
    "risk": (lambda s: fgt.lattice_risk(s, LATTICE, LOSS), lambda: fg.risk(LATTICE, LOSS)),
    "margin": (
        lambda s: fgt.lattice_softmax_margin(s, LATTICE, "abc", MARGIN),
        lambda: fg.softmax_margin(LATTICE, "abc", MARGIN),
    ),
    "nll": (
        lambda s: fgt.lattice_softmax_margin(s, LATTICE, "abc"),
        lambda: fg.softmax_margin(LATTICE, "abc"),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_the_arrays_and_gradcheck(name):
    function, expected = FUNCTIONS[name]
    scores = arcs()
    value = function(scores)
    (3 * value).backward()
    wanted, gradient = expected()
    assert value.detach().item() == pytest.approx(wanted, abs=1e-12)
    np.testing.assert_allclose(scores.grad.numpy(), 3 * gradient, atol=1e-12)
    assert torch.autograd.gradcheck(function, arcs())


def test_float32_and_bad_shapes():
    scores = arcs().detach().to(torch.float32).requires_grad_()
    value = fgt.lattice_risk(scores, LATTICE, LOSS)
    value.backward()
    assert value.dtype == scores.grad.dtype == torch.float32
    with pytest.raises(fg.InvalidInputError, match="arcs"):
        fgt.lattice_risk(scores[:1], LATTICE, LOSS)
    value = fgt.lattice_risk(scores, LATTICE, LOSS)
    (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="risk"):
        gradient.sum().backward()
