"""The dense layer: its marginals are those of the arrays, its derivatives those of differences."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fstgrad as fg  # noqa: E402
import fstgrad.torch  # noqa: E402
from fstgrad.mrf.dense import Kernel, dense_mean_field  # noqa: E402

RNG = np.random.default_rng(0)
NODE, IMAGE = RNG.normal(size=(6, 7, 3)), RNG.random((6, 7))
KERNELS = [Kernel(0.2, 1.0), Kernel(0.3, 2.0, 0.3)]


def test_equals_the_arrays():
    scores = torch.tensor(NODE).movedim(-1, 0)
    for iterations in (1, 4):
        found = fstgrad.torch.mrf_dense_marginals(
            torch.stack([scores, 2 * scores]), torch.tensor(np.stack([IMAGE, IMAGE**2])), KERNELS,
            iterations=iterations,
        )  # fmt: skip
        for k, (node, image) in enumerate(((NODE, IMAGE), (2 * NODE, IMAGE**2))):
            goal = dense_mean_field(node, image, KERNELS, max_iter=iterations, tol=0).node
            np.testing.assert_allclose(found[k].movedim(0, -1), goal, atol=1e-12)


def test_gradients():
    scores = torch.tensor(NODE[:3, :4]).movedim(-1, 0).requires_grad_()
    weights = torch.tensor([0.7, 1.3], dtype=torch.float64, requires_grad=True)
    table = torch.tensor(RNG.normal(size=(3, 3)), requires_grad=True)
    image = torch.tensor(IMAGE[:3, :4])

    def layer(scores, weights, table):
        return fstgrad.torch.mrf_dense_marginals(
            scores, image, KERNELS, weights, compatibility=table, iterations=3
        )

    assert torch.autograd.gradcheck(layer, (scores, weights, table), fast_mode=True)
    assert torch.autograd.gradgradcheck(layer, (scores, weights, table), fast_mode=True)


def test_types_and_sizes():
    small = torch.zeros(2, 1, 1, dtype=torch.float32, requires_grad=True)
    found = fstgrad.torch.mrf_dense_marginals(small, torch.zeros(1, 1), KERNELS)
    assert found.dtype == torch.float32
    assert found.tolist() == [[[0.5]], [[0.5]]]
    found[0].sum().backward()
    assert torch.isfinite(small.grad).all()
    with pytest.raises(fg.InvalidInputError, match="image"):
        fstgrad.torch.mrf_dense_marginals(small, torch.zeros(1, 2), KERNELS)
    with pytest.raises(fg.InvalidInputError, match="weights"):
        fstgrad.torch.mrf_dense_marginals(small, torch.zeros(1, 1), KERNELS, torch.zeros(1))
