"""The fused kernels, interpreted on the CPU: `test_fused` runs these with TRITON_INTERPRET=1.

A name that pytest does not collect: the interpreter is chosen before Triton is imported.
"""

import numpy as np
import pytest
import torch

import fstgrad.torch as fgt
from fstgrad.mrf.graph import Graph, grid_edges
from fstgrad.torch.device import chains, ctc, fields, trees
from fstgrad.torch.fused.available import Fused

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, log(0) and NaN
    pytest.mark.filterwarnings("ignore::DeprecationWarning:triton"),  # of Triton 3.6
]
INF = float("inf")


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Collect the passes of fused kernels: no definition is compared with itself."""
    passes = []
    forward = Fused.forward

    def counted(*given):
        passes.append(given)
        return forward(*given)

    monkeypatch.setattr(Fused, "forward", staticmethod(counted))
    return passes


def compared(call, tensors, used, monkeypatch, *, second=True, atol=1e-12):
    """Compare values, gradients and products of second derivatives with the definition's."""
    results = []
    for setting in ("1", "0"):
        monkeypatch.setenv("FSTGRAD_FUSED", setting)
        given = [t.clone().requires_grad_() for t in tensors]
        value = call(*given)
        rows = torch.where(value.isfinite(), value, 0.0)
        weights = torch.arange(1, len(value) + 1, dtype=value.dtype)
        slopes = torch.autograd.grad((weights * rows).sum(), given, create_graph=second)
        results.append([value, *slopes])
        if second:
            products = sum((s * s).sum() for s in slopes)
            results[-1] += torch.autograd.grad(products, given)
        assert bool(used) == (setting == "1")
        used.clear()
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=atol, equal_nan=True)


def normal(*shape, seed=0, scale=2.0):
    return scale * torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("n", [1, 3, 16, 17])
def test_chains(n, used, monkeypatch):
    emissions, steps = normal(2, 5, n), normal(n, n, seed=1)
    mask = torch.tensor([[True] * 5, [False, True, False, True, False]])
    if n == 3:
        steps[0, 1] = -INF
        steps[2] = -1e30
        emissions[0, 2, 1] = -INF
    compared(lambda e, t: chains.log_partition(e, t, mask), [emissions, steps], used, monkeypatch)


def test_a_bad_chain_is_nan_alone(used):
    emissions, mask = normal(4, 4, 3), torch.ones(4, 4, dtype=torch.bool)
    emissions[0, 1, 1], emissions[1, 2] = torch.nan, -INF
    mask[2] = False
    value = chains.log_partition(emissions.requires_grad_(), normal(3, 3), mask)
    assert used
    assert value.isnan().tolist() == [True, True, True, False]
    (slope,) = torch.autograd.grad(value[3], emissions)
    assert bool(slope.isfinite().all())
    assert not slope[:3].any()


def test_float32_chains_have_the_bits_of_their_first_run(used):
    emissions, mask = normal(2, 8, 7).float(), torch.ones(2, 8, dtype=torch.bool)
    results = []
    for dtype in (torch.float32, torch.float32, torch.float64):
        given = emissions.to(dtype).requires_grad_()
        value = chains.log_partition(given, normal(7, 7).to(dtype), mask)
        results.append([value, *torch.autograd.grad(value.sum(), given)])
    assert len(used) == 3
    assert all(torch.equal(a, b) for a, b in zip(*results[:2], strict=True))
    torch.testing.assert_close(results[0][0], results[2][0], rtol=1e-5, atol=0)
    torch.testing.assert_close(results[0][1].double(), results[2][1], rtol=0, atol=1e-6)


def test_paths_with_blanks(used, monkeypatch):
    gold = torch.tensor([[1, 1, 2], [2, -1, -1], [-1, -1, -1], [1, 2, 1]])
    frames = torch.tensor([8, 5, 3, 2])  # too few for the last one
    scores = normal(4, 8, 4)
    scores[0, 3, 1:] = -1e30
    scores[1, 0, 2] = -INF
    states = ctc.states_of(scores, gold, frames, blank=0, ignored=-1)
    compared(lambda s: ctc.nll(s, states), [scores], used, monkeypatch)


@pytest.mark.parametrize("single_root", [True, False])
def test_trees(single_root, used, monkeypatch):
    arcs = normal(3, 6, 6, scale=4.0)
    arcs[0, :, 3] = -1e30
    arcs[0, 1, 3] = 0.0
    arcs[1, 0, 2:] = -INF  # the root has one word to begin with
    inside = torch.arange(5) < torch.tensor([5, 5, 3])[:, None]
    compared(
        lambda a: trees.log_partition(a, inside, single_root, False), [arcs], used, monkeypatch
    )


def test_a_sentence_without_a_tree_is_nan_alone(used):
    arcs = normal(2, 4, 4)
    arcs[0, :, 2] = -INF
    value = trees.log_partition(arcs, torch.ones(2, 3, dtype=torch.bool), False, False)
    assert used
    assert value.isnan().tolist() == [True, False]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_sweeps_of_grids(shared, damping, monkeypatch):
    graph = Graph(12, grid_edges(3, 4))
    nodes = normal(2, 12, 3)
    tables = normal(2, 3, 3, seed=1) if shared else normal(2, len(graph.edges), 3, 3, seed=1)
    tables[0, ..., 0, 1], nodes[1, 4, 0] = -INF, -INF
    run = fields.Run("bp", 12, 0.05, damping)
    ends = fields.ends_of(graph, nodes.device)
    results = []
    for setting in ("1", "0"):
        monkeypatch.setenv("FSTGRAD_FUSED", setting)
        with monkeypatch.context() as patch:
            if setting == "1":
                patch.setattr(fields, "_messages", None)  # not called
            results.append(fields.beliefs(nodes, tables, ends, run))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_an_objective_uses_them(used):
    scores, gold = normal(2, 4, 3), torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])
    steps = normal(3, 3, seed=1)
    expected = fgt.linear_chain_nll(scores, steps, gold, reduction="none")
    with fgt.use_device_paths():
        found = fgt.linear_chain_nll(scores, steps, gold, reduction="none")
    assert used
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
