"""Markov random fields in PyTorch."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

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

    assert torch.autograd.gradcheck(function, (nodes, edge), fast_mode=True)


@pytest.mark.parametrize("method", ["exact", "bp", "pseudolikelihood", "cd"])
def test_equals_the_arrays(method):
    nodes, edge, gold = scores(TREE, shared=True)
    options = {"rng": 0} if method == "cd" else {}
    rng = {"rng": np.random.default_rng(0)} if method == "cd" else {}
    values = fgt.mrf_nll(nodes, edge, gold, TREE, method=method, reduction="none", **options)
    upstream = torch.tensor([0.5, -2.0], dtype=torch.float64)
    values.backward(upstream)
    by_edge = np.zeros((3, 3))
    for i in range(2):
        model = fg.PairwiseMRF(nodes[i].detach().numpy(), edge.detach().numpy(), EDGES)
        value, gradient = model.nll(gold[i].numpy(), method=method, **rng)
        np.testing.assert_allclose(values[i].detach().item(), value, atol=1e-12)
        own = upstream[i].item() * gradient.node
        np.testing.assert_allclose(nodes.grad[i].numpy(), own, atol=1e-12)
        by_edge += upstream[i].item() * gradient.edge
    np.testing.assert_allclose(edge.grad.numpy(), by_edge, atol=1e-12)


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


@pytest.mark.parametrize("shared", [True, False])
def test_second_derivatives_are_covariances(shared):
    nodes, edge, gold = scores(TREE, shared=shared)
    gold[0, 1] = -100

    def function(n, e):
        return fgt.mrf_nll(n, e, gold, TREE, reduction="none")

    assert torch.autograd.gradgradcheck(function, (nodes, edge), fast_mode=True)


@pytest.mark.parametrize("method", ["cd", "pseudolikelihood", "mean-field"])
def test_no_second_derivative_is_silently_zero(method):
    nodes, edge, gold = scores(TREE, shared=True)
    value = fgt.mrf_nll(nodes, edge, gold, TREE, method=method)

    def twice():
        (slope,) = torch.autograd.grad(value, nodes, create_graph=True)
        torch.autograd.grad(slope.square().sum(), nodes)

    with pytest.raises(fg.NotSupportedError, match="no second derivative"):
        twice()


@pytest.mark.parametrize("shared", [True, False])
def test_edge_scores_of_each_image(shared):
    nodes, _, gold = scores(TREE, shared=shared)
    edge = torch.randn(2, 3, 3, 3, dtype=torch.float64, requires_grad=True)

    def function(n, e):
        return fgt.mrf_nll(n, e, gold, TREE, reduction="none")

    assert torch.autograd.gradcheck(function, (nodes, edge), fast_mode=True)
    one = fgt.mrf_nll(nodes[1], edge[1], gold[1], TREE)
    assert function(nodes, edge)[1].item() == pytest.approx(one.item(), abs=1e-12)
    with pytest.raises(fg.InvalidInputError, match="for 2 items"):
        function(nodes, edge[:1])


@pytest.mark.parametrize("method", ["exact", "bp"])
def test_ignored_labels(method):
    nodes, edge, gold = scores(TREE, shared=False)
    gold[0, 2], gold[1] = -100, -100
    found = fgt.mrf_nll(
        nodes,
        edge,
        gold,
        TREE,
        method=method,
        reduction="none",
        **({"tol": 1e-12} if method == "bp" else {}),
    )
    parts = []
    for c in range(3):
        full = gold[0].clone()
        full[2] = c
        parts.append(-fgt.mrf_nll(nodes[0], edge, full, TREE))
    assert found[0].item() == pytest.approx(-torch.logsumexp(torch.stack(parts), 0).item())
    assert found[1].item() == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_marginals_are_a_layer(shared):
    nodes, edge, _ = scores(TREE, shared=shared)

    def function(n, e):
        return tuple(fgt.mrf_marginals(n, e, TREE))

    node, by_edge = function(nodes, edge)
    exact = TREE.with_scores(nodes[0].detach().numpy(), edge.detach().numpy()).marginals()
    np.testing.assert_allclose(node[0].detach().numpy(), exact.node, atol=1e-12)
    np.testing.assert_allclose(by_edge[0].detach().numpy(), exact.edge, atol=1e-12)
    assert torch.autograd.gradcheck(function, (nodes, edge), fast_mode=True)
    value = fgt.mrf_log_partition(nodes, edge, TREE)
    expected = TREE.with_scores(nodes[1].detach().numpy(), edge.detach().numpy()).log_partition()
    assert value[1].item() == pytest.approx(expected)


def test_every_step_and_item_of_contrastive_divergence_draws_anew():
    grid = fg.PairwiseMRF.grid(4, 4, np.zeros((16, 2)), np.zeros((2, 2)))
    nodes = torch.zeros(2, 16, 2, dtype=torch.float64, requires_grad=True)
    edge, gold = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 16, dtype=torch.long)
    for rng in (0, np.random.default_rng(0)):
        loss = fgt.MRFLoss(grid, method="cd", rng=rng)
        steps = [torch.autograd.grad(loss(nodes, edge, gold), nodes)[0] for _ in range(2)]
        assert (steps[0] != steps[1]).any()
        assert (steps[0][0] != steps[0][1]).any()


def test_persistent_chains_of_a_batch():
    """Each item has the distribution of its own scores."""
    from fstgrad.mrf.objectives import PersistentChains

    pair = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    nodes = torch.zeros(2, 2, 2, dtype=torch.float64)
    nodes[0, :, 1], nodes[1, :, 0] = 4.0, 4.0
    nodes.requires_grad_()
    edge, gold = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.long)
    chains = PersistentChains(pair, 300, 0, items=2)
    for _ in range(5):
        value = fgt.mrf_nll(
            nodes, edge, gold, pair, method="cd", persistent=chains, reduction="sum"
        )
        (slope,) = torch.autograd.grad(value, nodes)
    goal = np.exp(4) / (1 + np.exp(4))
    np.testing.assert_allclose(slope[0, :, 1], goal, atol=0.05)
    np.testing.assert_allclose(slope[1, :, 1], 1 - goal, atol=0.05)
    with pytest.raises(fg.InvalidInputError, match=r"items=2\)"):
        fgt.mrf_nll(nodes, edge, gold, pair, method="cd", persistent=PersistentChains(pair, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    nodes, edge, gold = scores(TREE, shared=True)
    nodes = nodes.detach().to(dtype).requires_grad_()
    value = fgt.mrf_nll(nodes, edge.detach().to(dtype), gold, TREE)
    value.backward()
    assert nodes.grad.dtype == dtype
    assert torch.isfinite(nodes.grad).all()


def test_images_are_nodes_row_by_row():
    zeros = np.zeros((6, 2))
    grid = fg.PairwiseMRF.grid(2, 3, node_scores=zeros, edge_scores=np.zeros((2, 2)))
    nodes, edge, gold = scores(grid, shared=True)
    gold[0, 2] = -100
    expected = fgt.mrf_nll(nodes, edge, gold, grid, reduction="none")
    image = nodes.detach().transpose(1, 2).reshape(2, 2, 2, 3).requires_grad_()
    value = fgt.mrf_nll(image, edge, gold.reshape(2, 2, 3), grid, reduction="none")
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    flat = fgt.mrf_nll(nodes, edge, gold.reshape(2, 2, 3), grid, reduction="none")
    assert torch.equal(flat, expected)
    (slope,) = torch.autograd.grad(value.sum(), image)
    (wanted,) = torch.autograd.grad(expected.sum(), nodes)
    torch.testing.assert_close(slope.flatten(2).transpose(1, 2), wanted, rtol=0, atol=1e-12)
