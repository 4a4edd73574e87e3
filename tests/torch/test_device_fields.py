"""Random fields on a device: operations of PyTorch give what the compiled passes give."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.mrf.dense import Kernel  # noqa: E402
from tests.torch import cases  # noqa: E402


def field(shared, scale=1.0):
    """Grids of 3 x 3 pixels with three labels, two items."""
    zeros = np.zeros((3, 3)) if shared else np.zeros((12, 3, 3))
    grid = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 3)), edge_scores=zeros)
    generator = torch.Generator().manual_seed(8)
    nodes = scale * torch.randn(2, 9, 3, generator=generator, dtype=torch.float64)
    edges = 0.3 * scale * torch.randn(zeros.shape, generator=generator, dtype=torch.float64)
    gold = torch.randint(3, (2, 9), generator=generator)
    return grid, nodes, edges, gold


FIELDS = {
    "plain": lambda nodes, edges, gold: None,
    "-inf": lambda nodes, edges, gold: (nodes[:, 4, 0].fill_(-torch.inf), gold[:, 4].fill_(1)),
    "hard zeros": lambda nodes, edges, gold: (
        edges[..., 0, 1].fill_(-torch.inf), nodes[:, 0, 1:].fill_(-torch.inf), gold.fill_(0)),
    "a masked node": lambda nodes, edges, gold: nodes[:, 2].fill_(-1e30),
    "a masked edge": lambda nodes, edges, gold: edges[3].fill_(-1e30),
    "masked edges": lambda nodes, edges, gold: edges.fill_(torch.finfo(torch.float64).min),
    "unknown": lambda nodes, edges, gold: gold[:, 1:7:3].fill_(-100),
}  # fmt: skip


OPTIONS = {
    "bp": {"tol": 1e-13, "max_iter": 90, "damping": 0.2},
    "trw": {"tol": 1e-13, "max_iter": 120, "damping": 0.2},
    "mean-field": {"tol": 1e-14, "max_iter": 100},
    "pseudolikelihood": {},
}


@pytest.mark.parametrize("change", FIELDS)
@pytest.mark.parametrize("method", OPTIONS)
def test_fields(method, change):
    """Losses, log Z, marginals, and their derivatives, the second where the CPU has them."""
    grid, nodes, edges, gold = field(shared=change in ("plain", "a masked node", "masked edges"))
    FIELDS[change](nodes, edges, gold)
    if (change, method) in (("unknown", "pseudolikelihood"), ("hard zeros", "mean-field")):
        return  # the one needs all labels, the other no forbidden pairs
    options = OPTIONS[method]
    twice = method in ("bp", "trw")

    def results():
        tables = [nodes.clone().requires_grad_(), edges.clone().requires_grad_()]
        nll = fgt.mrf_nll(*tables, gold, grid, method=method, reduction="none", **options)
        weights = torch.tensor([0.3, -2.0], dtype=torch.float64)
        found = [nll, *torch.autograd.grad(nll @ weights, tables, create_graph=twice)]
        if method == "pseudolikelihood":
            return found
        if change != "a masked node":
            log_z = fgt.mrf_log_partition(*tables, grid, method=method, **options)
            found += [log_z, *torch.autograd.grad(log_z @ weights, tables)]
        marginals = fgt.mrf_marginals(*tables, grid, method=method, **options)
        found += list(marginals)
        if twice:
            for tensors in (marginals, found[1:3]):
                total = sum(cases.weighted(table) for table in tensors)
                found += torch.autograd.grad(total, tables, retain_graph=True)
        return found

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("method", OPTIONS)
def test_a_bad_field_is_nan_alone(method):
    """Also one without a labeling, which counts 0 with infeasible="zero"."""
    grid, nodes, edges, gold = field(shared=True)
    edges.requires_grad_()
    options = {"method": method, "reduction": "none", **OPTIONS[method]}
    for value in (torch.nan, -torch.inf):
        nodes[0, 3] = value
        with fgt.use_device_paths():
            values = fgt.mrf_nll(nodes, edges, gold, grid, **options)
            assert values.isnan().tolist() == [True, False]
            assert torch.autograd.grad(values[1], edges)[0].isfinite().all()
            values = fgt.mrf_nll(nodes, edges, gold, grid, infeasible="zero", **options)
            assert (values[0] == 0.0) == (value == -torch.inf)
        with fgt.use_device_paths(validate=True), pytest.raises(fg.FstgradError):
            fgt.mrf_nll(nodes, edges, gold, grid, **options)
    gold[1, 0] = 3  # on the CPU, gold can be read
    with fgt.use_device_paths(), pytest.raises(fg.InvalidInputError, match="has the label 3"):
        fgt.mrf_nll(nodes, edges, gold, grid, method=method)


def test_labels_that_a_node_does_not_have():
    """They have no probability, whatever their scores; and the constant of the graph counts."""
    ends = np.array([[0, 1], [1, 2]])
    graph = fg.PairwiseMRF(np.zeros((3, 3)), np.zeros((2, 3, 3)), ends, labels_per_node=[2, 3, 2])
    nodes = torch.randn(1, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    edges = torch.zeros(2, 3, 3, dtype=torch.float64)
    expected = fgt.mrf_log_partition(nodes, edges, graph)
    with fgt.use_device_paths():
        found = [fgt.mrf_log_partition(nodes, edges, graph, method=m) for m in list(OPTIONS)[:3]]
    torch.testing.assert_close(found, [expected] * 3, rtol=0, atol=1e-12)
    expected = fgt.RandomFields(nodes, edges, graph).mbr()
    with fgt.use_device_paths():
        assert torch.equal(fgt.RandomFields(nodes, edges, graph).mbr("bp"), expected)


def test_dense_fields():
    """Marginals, with their first and second derivatives."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(2, 3, 6, 7, generator=generator, dtype=torch.float64)
    nodes[0, 0, 1, 1], nodes[0, 1:, 2, 2] = -torch.inf, -1e30
    image = 100 * torch.rand(2, 6, 7, generator=generator)
    kernels = [Kernel(0.2, 1.0), Kernel(0.1, 2.0, 20.0), Kernel(0.02, 9.0, 40.0)]

    def results():
        given = [nodes, torch.ones(3), torch.eye(3)]
        given = [table.double().clone().requires_grad_() for table in given]
        p = fgt.mrf_dense_marginals(
            given[0], image, kernels, given[1], compatibility=given[2], iterations=3
        )
        slopes = torch.autograd.grad(cases.weighted(p), given, create_graph=True)
        total = sum(cases.weighted(slope) for slope in slopes)
        return [p, *slopes, *torch.autograd.grad(total, given)]

    expected = results()
    with fgt.use_device_paths():
        found = results()
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_a_field_without_edges():
    graph = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((0, 2, 2)), np.zeros((0, 2), dtype=int))
    nodes = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(0)).double()
    gold, none = torch.tensor([[0, 1, 1]]), torch.zeros(0, 2, 2, dtype=torch.float64)
    expected = -nodes.log_softmax(-1).gather(2, gold[..., None]).sum().item()
    for method in OPTIONS:
        with fgt.use_device_paths():
            value = fgt.mrf_nll(nodes, none, gold, graph, method=method)
        assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", ["mean-field", "pseudolikelihood"])
def test_fields_that_have_no_second_derivative(method):
    grid, nodes, edges, gold = field(shared=True)
    nodes.requires_grad_()
    edges.requires_grad_()

    def second():
        with fgt.use_device_paths():
            value = fgt.mrf_nll(nodes, edges, gold, grid, method=method)
        slopes = torch.autograd.grad(value, (nodes, edges), create_graph=True)
        cases.weighted(slopes[0]).backward()

    with pytest.raises(fg.NotSupportedError, match=r"have no derivative|no second derivative"):
        second()


@pytest.mark.parametrize("method", ["bp", "trw"])
def test_chains_are_exact_whatever_the_tolerance(method):
    chain = fg.PairwiseMRF.grid(1, 5, np.zeros((5, 2)), np.zeros((2, 2)))
    generator = torch.Generator().manual_seed(3)
    nodes = torch.randn(2, 5, 2, generator=generator, dtype=torch.float64)
    edges = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    exact = [chain.with_scores(table.numpy(), edges.numpy()).marginals().node for table in nodes]
    for options in ({"tol": 10.0}, {"tol": 0.1, "damping": 0.9}):
        with fgt.use_device_paths():
            found = fgt.mrf_marginals(nodes, edges, chain, method=method, **options)
        np.testing.assert_allclose(found[0].numpy(), exact, atol=1e-8)
