"""Markov random fields in PyTorch."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.torch.mrf import bethe_nll  # noqa: E402

EDGES = np.array([[0, 1], [1, 2], [3, 1]])
TREE = fg.PairwiseMRF(np.zeros((4, 3)), np.zeros((3, 3, 3)), EDGES)


def scores(graph, *, shared, seed=0, batch=2):
    generator = torch.Generator().manual_seed(seed)
    labels = graph.num_labels
    nodes = torch.randn(batch, graph.num_nodes, labels, generator=generator, dtype=torch.float64)
    edges = () if shared else (len(graph.graph.edges),)
    edge = torch.randn(*edges, labels, labels, generator=generator, dtype=torch.float64)
    gold = torch.randint(labels, (batch, graph.num_nodes), generator=generator)
    return nodes.requires_grad_(), edge.requires_grad_(), gold


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("method", ["exact", "bp", "pseudolikelihood"])
def test_gradcheck(shared, method):
    nodes, edge, gold = scores(TREE, shared=shared)
    options = {"tol": 1e-12} if method == "bp" else {}

    def function(n, e):
        return fgt.mrf_nll(n, e, gold, TREE, method=method, reduction="none", **options)

    assert torch.autograd.gradcheck(function, (nodes, edge))


@pytest.mark.parametrize("method", ["exact", "bp", "pseudolikelihood", "cd"])
def test_equals_the_arrays(method):
    nodes, edge, gold = scores(TREE, shared=True)
    options = {"rng": 0} if method == "cd" else {}
    values = fgt.mrf_nll(nodes, edge, gold, TREE, method=method, reduction="none", **options)
    upstream = torch.tensor([0.5, -2.0], dtype=torch.float64)
    values.backward(upstream)
    by_edge = np.zeros((3, 3))
    for i in range(2):
        model = fg.PairwiseMRF(nodes[i].detach().numpy(), edge.detach().numpy(), EDGES)
        value, gradient = model.nll(gold[i].numpy(), method=method, **options)
        np.testing.assert_allclose(values[i].detach().item(), value, atol=1e-12)
        own = upstream[i].item() * gradient.node
        np.testing.assert_allclose(nodes.grad[i].numpy(), own, atol=1e-12)
        by_edge += upstream[i].item() * gradient.edge
    np.testing.assert_allclose(edge.grad.numpy(), by_edge, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_tensor_belief_propagation_equals_the_arrays(shared):
    """What runs on a GPU is plain tensor operations: here they run on the CPU."""
    zeros = np.zeros((3, 3)) if shared else np.zeros((12, 3, 3))
    grid = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 3)), edge_scores=zeros)
    nodes, edge, gold = scores(grid, shared=shared, seed=1)
    nodes, edge = nodes.detach(), 0.3 * edge.detach()
    mine = bethe_nll(nodes, edge, gold, grid, tol=1e-14, max_iter=500)
    for i in range(2):
        model = grid.with_scores(nodes[i].numpy(), edge.numpy())
        value, gradient = model.nll(gold[i].numpy(), method="bp", tol=1e-14, max_iter=500)
        np.testing.assert_allclose(mine[0][i].item(), value, atol=1e-10)
        np.testing.assert_allclose(mine[1][i].numpy(), gradient.node, atol=1e-10)
        np.testing.assert_allclose(mine[2][i].numpy(), gradient.edge, atol=1e-10)


def test_dtype_reduction_and_bad_shapes():
    nodes, edge, gold = scores(TREE, shared=True)
    narrow = nodes.detach().to(torch.float32).requires_grad_()
    value = fgt.mrf_nll(narrow, edge.detach().to(torch.float32), gold, TREE, reduction="sum")
    value.backward()
    assert value.dtype == narrow.grad.dtype == torch.float32
    one = fgt.mrf_nll(nodes[0], edge, gold[0], TREE)
    assert one.ndim == 0
    with pytest.raises(fg.InvalidInputError, match="gold"):
        fgt.mrf_nll(nodes, edge, gold[0], TREE)
    with pytest.raises(fg.InvalidInputError, match="none, mean, sum"):
        fgt.mrf_nll(nodes, edge, gold, TREE, reduction="max")


def test_the_path_of_the_gpu(monkeypatch):
    """Belief propagation there takes batches, weights and dtypes as the arrays do here."""
    nodes, edge, gold = scores(TREE, shared=True)
    upstream = torch.tensor([0.5, -2.0], dtype=torch.float64)

    def evaluated():
        values = fgt.mrf_nll(nodes, edge, gold, TREE, method="bp", reduction="none", tol=1e-12)
        return values, *torch.autograd.grad((values * upstream).sum(), (nodes, edge))

    expected = evaluated()
    monkeypatch.setattr("fstgrad.torch.functions.on_gpu", lambda tensor: True)
    monkeypatch.setattr("fstgrad.torch.mrf._on_cpu", None)
    for mine, other in zip(evaluated(), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_a_gpu_leaves_forbidden_labels_to_the_cpu_and_warns(monkeypatch):
    nodes, edge, gold = scores(TREE, shared=True)
    with torch.no_grad():
        nodes[:, 0, 0] = -torch.inf
        gold[:, 0] = 1
    expected = fgt.mrf_nll(nodes, edge, gold, TREE, method="bp")
    monkeypatch.setattr("fstgrad.torch.functions.on_gpu", lambda tensor: True)
    with pytest.warns(RuntimeWarning, match="forbidden labels are computed on the CPU"):
        assert fgt.mrf_nll(nodes, edge, gold, TREE, method="bp").item() == expected.item()
