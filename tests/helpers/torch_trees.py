"""Tables of scores of trees for PyTorch."""

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")


MODES = pytest.mark.parametrize("single_root", [True, False])


def tables(seed=0, *, labels=None, size=4):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, size, size) + ((labels,) if labels else ())
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def array_trees(scores, **options):
    return fg.SpanningTrees(scores.detach().numpy(), **options)
