"""Batches of any size: none, one item, one position, many labels; padding that holds NaN."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import fstgrad as fg  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402

ROOT = {"single_root": True}


def strings(name, **options):
    """A row of scores (B, L, n); the loss is over n symbols."""

    def row(b, t, n):
        loss = fg.EditDistance(fg.Alphabet([f"s{i}" for i in range(n)]))
        settings = {"loss": loss, "reduction": "none", **options}
        return [(b, t, n)], lambda s, gold: getattr(fgt, name)(s, gold, **settings), (b, t), n

    return row


def trees(name, *constants):
    """A row of scores (B, L+1, L+1)."""

    def call(scores, heads):
        given = [c(scores) if callable(c) else c for c in constants]
        return getattr(fgt, name)(scores, *given, **ROOT)

    return lambda b, t, n: ([(b, t + 1, t + 1)], call, (b, t), n)


def tree_nll(scores, heads):
    return fgt.spanning_tree_nll(scores, torch.arange(heads.shape[1]).expand_as(heads), **ROOT)


def field(nodes, edges, gold):
    length, n = nodes.shape[1:]
    ends = np.stack([np.arange(length - 1), np.arange(1, length)], axis=1)
    graph = fg.PairwiseMRF(np.zeros((length, n)), np.zeros((n, n)), ends)
    return fgt.mrf_nll(nodes, edges, gold, graph, reduction="none")


# name: from B, L, n to the shapes of the scores, the call, the shape of gold, labels
ROWS = {
    "softmax_margin": strings("softmax_margin", band=1),
    "risk": strings("risk", cap=1.0),
    "ctc_risk": strings("ctc_risk", band=1, blank=0),
    "linear_chain_nll": lambda b, t, n: (
        [(b, t, n), (n, n), (n,), (n,)],
        lambda e, s, i, j, gold: fgt.linear_chain_nll(e, s, gold, start=i, end=j, reduction="none"),
        (b, t), n,
    ),
    "log_partition": trees("spanning_tree_log_partition"),
    "tree nll": lambda b, t, n: ([(b, t + 1, t + 1)], tree_nll, (b, t), n),
    "entropy": trees("spanning_tree_entropy"),
    "kl": trees("spanning_tree_kl", lambda s: 0.5 * s.detach()),
    "tree risk": trees("spanning_tree_risk", lambda s: torch.ones_like(s)),
    "marginals": trees("spanning_tree_marginals"),
    "expectation": trees(
        "spanning_tree_generalized_expectation",
        lambda s: torch.ones(*s.shape, 2), torch.zeros(2),
    ),
    "partial": trees("spanning_tree_partial_nll", lambda s: s.detach() < torch.inf),
    "mrf_nll": lambda b, t, n: ([(b, t, n), (n, n)], field, (b, t), n),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", ROWS)


def made(name, sizes, dtype=torch.float64):
    source = torch.Generator().manual_seed(0)
    shapes, call, places, n = ROWS[name](*sizes)
    scores = [torch.randn(s, generator=source, dtype=torch.float64).to(dtype) for s in shapes]
    gold = torch.randint(n, places, generator=source)
    if name == "ctc_risk":
        gold = gold[:, :1].clamp(min=1)
    return [s.requires_grad_() for s in scores], call, gold


@EVERY
@pytest.mark.parametrize("sizes", [(0, 3, 3), (1, 3, 3), (2, 1, 2), (2, 2, 300)])
def test_sizes(name, sizes):
    if name in ("mrf_nll", "ctc_risk") and sizes[2] > 100:
        sizes = (*sizes[:2], 30)
    scores, call, gold = made(name, sizes)
    value = call(*scores, gold)
    assert value.shape[0] == sizes[0]
    assert value.isfinite().all()
    for slope, tensor in zip(torch.autograd.grad(value.sum(), scores), scores, strict=True):
        assert slope.shape == tensor.shape
        assert slope.isfinite().all()
    halves = [call(*(s[i : i + 1] if s.ndim == scores[0].ndim and s.shape[0] == sizes[0] else s
                     for s in scores), gold[i : i + 1]) for i in range(sizes[0])]  # fmt: skip
    if sizes[0]:
        torch.testing.assert_close(torch.cat(halves), value, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("name", ["softmax_margin", "linear_chain_nll", "tree nll"])
def test_one_graph_for_batches_of_any_size(name):
    """Once sizes have changed, PyTorch's graph is one for all of them."""
    torch._dynamo.reset()
    call = ROWS[name](1, 1, 3)[1]
    compiled = torch.compile(
        lambda *given: call(*given).sum(), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for sizes in [(2, 3, 3), (4, 5, 3)]:
        scores, _, gold = made(name, sizes)
        found, expected = compiled(*scores, gold), call(*scores, gold).sum()
        assert found.item() == pytest.approx(expected.item(), abs=1e-12)
        slopes = [torch.autograd.grad(value, scores) for value in (found, expected)]
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)


def test_log_probs_beyond_a_list_are_not_read():
    hypotheses = [["ab", "a"], ["b"]]
    scores = torch.tensor([[0.0, 1.0], [0.0, torch.nan]], requires_grad=True)
    loss = fg.EditDistance(fg.Alphabet("ab"))
    value = fgt.nbest_risk(scores, hypotheses, ["ab", "a"], loss, reduction="none")
    value.sum().backward()
    assert value.tolist() == pytest.approx([torch.sigmoid(torch.tensor(1.0)).item(), 1.0])
    assert scores.grad[1].tolist() == [0.0, 0.0]
