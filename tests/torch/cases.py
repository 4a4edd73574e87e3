"""Every objective on tensors as one function of its scores: what the tables of tests go through."""

import numpy as np
import torch
from torch.func import functional_call

import fstgrad as fg
import fstgrad.torch as fgt
from fstgrad.mrf.dense import Kernel

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
GOLD = torch.tensor([[0, 1, 2, -100], [2, -100, 1, 0]])
WRITTEN = torch.tensor([[1, 2], [1, -100]])  # what CTC paths collapse to; 0 is the blank
HYPOTHESES = torch.tensor([[[0, 1, 2], [0, 1, -100]], [[2, 1, -100], [-100, -100, -100]]])
HEADS = torch.tensor([[0, 1, 2], [2, 0, -100]])
KNOWN = torch.tensor([[0, -1, 2], [-1, 0, -1]])
FEATURES = torch.linspace(-1, 1, 2 * 4 * 4 * 2).reshape(2, 4, 4, 2)
COSTS = torch.linspace(0, 1, 2 * 4 * 4).reshape(2, 4, 4)
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))
LABELS = torch.tensor([[0, 1, 1], [1, 0, 0]])
LATTICES = [
    fg.Lattice.from_nbest(["ab", "abc", "ca"], np.zeros(3), ABC),
    fg.Lattice.from_nbest(["b", "cb"], np.zeros(2), ABC),
]
TEXTS = ["abc", "cb"]
SIZES = [lattice.num_arcs for lattice in LATTICES]


COSTS_OF_TAGS = torch.tensor([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 1.0, 0.0]])
PICTURES = torch.linspace(0, 1, 2 * 3 * 3).reshape(2, 3, 3)
PAIRS = [("ab", "b"), ("a", "ba"), ("", "ab")]


def weighted(table):
    """A sum of a table in which every entry counts differently."""
    return (torch.linspace(-1, 1, table.numel()).to(table).reshape(table.shape) * table).sum()


def costs_of_pairs(module, changes):
    """The losses of pairs under the module's costs and what is added to them."""
    wide = changes if changes.dtype == torch.float64 else changes.float()
    costs = 2 + module.costs.to(wide.dtype) + wide.sum(0)
    return functional_call(module, {"costs": costs}, (PAIRS,)).sum()


def kept(scores):
    """The mask of `GOLD`, on the device of the scores."""
    return (GOLD >= 0).to(scores.device)


def layer():
    """A layer in which tag 0 does not follow itself, with fixed parameters."""
    module = fgt.nn.CRF(3, batch_first=True, allowed=torch.arange(9).reshape(3, 3) > 0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return module


LAYER = layer()  # one for all tests: transforms of PyTorch do not make parameters


def arcs(scores):
    return [row[:size] for row, size in zip(scores, SIZES, strict=True)]


class Function(torch.nn.Module):
    """A function of fstgrad.torch that has no module, by name, so that it can be pickled."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, *given, **named):
        """Return what the function returns."""
        return getattr(fgt, self.name)(*given, **named)


# a row of each operator, for what depends on the operator alone
EACH_OPERATOR = [
    "SoftmaxMarginLoss", "LinearChainLoss", "CRF risk", "nn CRF", "CTCRiskLoss", "LatticeRiskLoss",
    "SpanningTreeKLLoss", "MRFLoss",
]  # fmt: skip
# name: the shapes of the scores, the module, how it is called on the scores
MODULES = {
    "SoftmaxMarginLoss": ([(2, 4, 4, 3)], lambda: fgt.SoftmaxMarginLoss(EDIT),
                          lambda m, s: m(s, GOLD)),
    "SoftmaxMarginLoss cap": ([(2, 4, 3)], lambda: fgt.SoftmaxMarginLoss(EDIT, cap=1.0),
                              lambda m, s: m(s, GOLD)),
    "SoftmaxMarginLoss band": ([(2, 4, 3)], lambda: fgt.SoftmaxMarginLoss(EDIT, band=1),
                               lambda m, s: m(s, GOLD)),
    "SoftmaxMarginLoss auto": ([(2, 4, 3)], lambda: fgt.SoftmaxMarginLoss(EDIT, method="auto"),
                               lambda m, s: m(s, GOLD)),
    "RiskLoss": ([(2, 4, 4, 3)], lambda: fgt.RiskLoss(EDIT), lambda m, s: m(s, GOLD)),
    "CRFLoss": ([(2, 4, 4, 3)], lambda: fgt.CRFLoss(), lambda m, s: m(s, GOLD)),
    "LinearChainLoss": ([(2, 4, 3), (3, 3)], lambda: fgt.LinearChainLoss(),
                        lambda m, e, t: m(e, t, GOLD)),
    "NBestRiskLoss": ([(2, 2)], lambda: fgt.NBestRiskLoss(EDIT),
                      lambda m, s: m(s, HYPOTHESES, GOLD)),
    "CTCLoss": ([(2, 5, 3)], lambda: fgt.CTCLoss(), lambda m, s: m(s, WRITTEN)),
    "CTCRiskLoss": ([(2, 5, 3)], lambda: fgt.CTCRiskLoss(EDIT), lambda m, s: m(s, WRITTEN)),
    "CTCSoftmaxMarginLoss": ([(2, 5, 3)], lambda: fgt.CTCSoftmaxMarginLoss(EDIT),
                             lambda m, s: m(s, WRITTEN)),
    "LatticeSoftmaxMarginLoss": ([(2, max(SIZES))], lambda: fgt.LatticeSoftmaxMarginLoss(EDIT),
                                 lambda m, s: m(arcs(s), LATTICES, TEXTS)),
    "LatticeRiskLoss": ([(2, max(SIZES))], lambda: fgt.LatticeRiskLoss(EDIT),
                        lambda m, s: m(arcs(s), LATTICES, TEXTS)),
    "LatticeRiskLoss band": (
        [(2, max(SIZES))], lambda: fgt.LatticeRiskLoss(EDIT, band=1, method="auto"),
        lambda m, s: m(arcs(s), LATTICES, TEXTS)),
    "LatticeCRFLoss": ([(2, max(SIZES))], lambda: fgt.LatticeCRFLoss(),
                       lambda m, s: m(arcs(s), LATTICES, TEXTS)),
    "lattice_log_partition": ([(2, max(SIZES))], lambda: Function("lattice_log_partition"),
                              lambda m, s: m(arcs(s), LATTICES).mean()),
    "lattice_entropy": ([(2, max(SIZES))], lambda: Function("lattice_entropy"),
                        lambda m, s: m(arcs(s), LATTICES).mean()),
    "lattice_marginals": ([(2, max(SIZES))], lambda: Function("lattice_marginals"),
                          lambda m, s: sum(map(weighted, m(arcs(s), LATTICES)))),
    "SpanningTreeLoss": ([(2, 4, 4)], lambda: fgt.SpanningTreeLoss(single_root=True),
                         lambda m, s: m(s, HEADS, torch.tensor([3, 2]))),
    "SpanningTreeEntropyLoss": ([(2, 4, 4)], lambda: fgt.SpanningTreeEntropyLoss(single_root=True),
                                lambda m, s: m(s)),
    "SpanningTreeKLLoss": ([(2, 4, 4), (2, 4, 4)],
                           lambda: fgt.SpanningTreeKLLoss(single_root=False),
                           lambda m, p, q: m(p, q)),
    "SpanningTreeRiskLoss": ([(2, 4, 4)], lambda: fgt.SpanningTreeRiskLoss(single_root=True),
                             lambda m, s: m(s, COSTS)),
    "SpanningTreeGeneralizedExpectationLoss": (
        [(2, 4, 4)],
        lambda: fgt.SpanningTreeGeneralizedExpectationLoss(single_root=True),
        lambda m, s: m(s, FEATURES, torch.tensor([0.5, 0.1]))),
    "MRFLoss": ([(2, 3, 2), (2, 2)], lambda: fgt.MRFLoss(GRAPH), lambda m, n, e: m(n, e, LABELS)),
    "MRFLoss edges": ([(2, 3, 2), (2, 2, 2, 2)], lambda: fgt.MRFLoss(GRAPH),
                      lambda m, n, e: m(n, e, LABELS)),
    "MRFLoss bp": ([(2, 3, 2), (2, 2)], lambda: fgt.MRFLoss(GRAPH, method="bp"),
                   lambda m, n, e: m(n, e, LABELS)),
    "spanning_tree_log_partition": (
        [(2, 4, 4)], lambda: Function("spanning_tree_log_partition"),
        lambda m, s: m(s, single_root=True).mean()),
    "spanning_tree_partial_nll": (
        [(2, 4, 4)], lambda: Function("spanning_tree_partial_nll"),
        lambda m, s: m(s, KNOWN, single_root=True).mean()),
    "spanning_tree_marginals": (
        [(2, 4, 4)], lambda: Function("spanning_tree_marginals"),
        lambda m, s: weighted(m(s, single_root=True))),
    "mrf_marginals": ([(2, 3, 2), (2, 2)], lambda: Function("mrf_marginals"),
                      lambda m, n, e: sum(map(weighted, m(n, e, GRAPH)))),
    "mrf_dense_marginals": (
        [(2, 2, 3, 3), (1,)], lambda: Function("mrf_dense_marginals"),
        lambda m, n, w: weighted(m(n, PICTURES, [Kernel(0.5, 1.0)], w))),
    "CRF": ([(2, 4, 3), (3, 3), (3,), (3,)], lambda: Function("CRF"),
            lambda m, e, t, first, last: m(e, t, start=first, end=last).nll(GOLD)),
    "CRF risk": ([(2, 4, 3), (3, 3)], lambda: Function("CRF"),
                 lambda m, e, t: m(e, t, kept(e)).risk(GOLD, COSTS_OF_TAGS)),
    "CRF kl": ([(2, 4, 3), (2, 4, 3), (3, 3)], lambda: Function("CRF"),
               lambda m, p, q, t: m(p, t, kept(p)).kl(m(q, 0.5 * t, kept(q))).mean()),
    "nn CRF": ([(2, 4, 3)], lambda: LAYER, lambda m, e: -m(e, GOLD, reduction="token_mean")),
    "TransducerCosts": (
        [(2, 9)], lambda: fgt.TransducerCosts(fg.EditDistance(fg.Alphabet("ab"))),
        lambda m, c: costs_of_pairs(m, c)),
    "mrf_log_partition": ([(2, 3, 2), (2, 2)], lambda: Function("mrf_log_partition"),
                          lambda m, n, e: m(n, e, GRAPH).mean()),
}  # fmt: skip


def scores_of(name, dtype=torch.float64, seed=0):
    """Random scores of one row, requiring gradients."""
    generator = torch.Generator().manual_seed(seed)
    shapes = MODULES[name][0]
    wide = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.to(dtype).requires_grad_() for tensor in wide]


def value(name, scores, module=None):
    """The module of one row on scores."""
    _, make, call = MODULES[name]
    return call(make() if module is None else module, *scores)


def gradients(name, scores, module=None):
    """The value as a float, and the gradients."""
    found = value(name, scores, module)
    return found.item(), list(torch.autograd.grad(found, scores))
