"""Wrong arguments of every function: one error that names the argument and the remedy."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.mrf.dense import Kernel  # noqa: E402
from tests.torch import cases  # noqa: E402

EDIT, GOLD, LATTICES, GRAPH = cases.EDIT, cases.GOLD, cases.LATTICES, cases.GRAPH
SCORES, FRAMES, LABELS = torch.zeros(2, 4, 3), torch.zeros(2, 5, 3), torch.tensor([[1, 2], [1, 2]])
LISTS, BEAM, STEPS = torch.zeros(2, 2), cases.HYPOTHESES, torch.zeros(3, 3)
ARCS = [torch.zeros(lattice.num_arcs) for lattice in LATTICES]
TREES, HEADS = torch.zeros(2, 4, 4), torch.tensor([[0, 1, 2], [2, 0, 1]])
NODES, EDGES, PIXELS = torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.zeros(2, 2, 3, 3)
KERNELS, PICTURES = [Kernel(0.5, 1.0)], cases.PICTURES
NAN = float("nan")


def tree(function, *given, **options):
    return getattr(fgt, f"spanning_tree_{function}")(*given, **{"single_root": True} | options)


STRINGS = {
    "swapped": (lambda f: f(SCORES, EDIT, GOLD), "give|gold is a EditDistance"),
    "numpy": (lambda f: f(SCORES.numpy(), GOLD), "scores is a ndarray; give a floating"),
    "integers": (lambda f: f(SCORES.long(), GOLD), "scores is torch.int64; give a floating"),
    "gold of floats": (lambda f: f(SCORES, GOLD.float()), "gold is torch.float32; give integer"),
    "gold of no axis": (lambda f: f(SCORES, torch.tensor(1)), r"gold has the shape \(\)"),
    "no gold": (lambda f: f(SCORES, None), "gold is None; give a sequence"),
    "an id": (lambda f: f(SCORES, GOLD.clamp(0) + 3), r"gold\[0\] has the id 3 at position 0"),
    "an id below 0": (lambda f: f(SCORES, GOLD.clamp(0) - 7), r"gold\[0\] has the id -\d at pos"),
    "the id -1": (lambda f: f(SCORES, GOLD.clamp(0) * 0 - 1), r"gold\[0\] has the id -1 at pos"),
    "a length": (lambda f: f(SCORES, GOLD, lengths=[9, 1]), r"lengths\[0\] is 9"),
    "half a length": (lambda f: f(SCORES, GOLD, lengths=[1.5, 2.0]), "lengths is torch.float32"),
    "a word": (lambda f: f(SCORES, GOLD, lengths="ab"), "lengths is 'ab'; give 2 integers"),
    "ignore": (lambda f: f(SCORES, GOLD, ignore_index="x"), "ignore_index is 'x'"),
    "nan": (lambda f: f(SCORES * NAN, GOLD), "position 0 of item 0 is nan"),
    "contexts": (lambda f: f(torch.zeros(2, 4, 3, 3), GOLD), "context axes have 4"),
}


@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize("function", ["softmax_margin", "risk", "crf_nll"])
def test_strings(function, name):
    call, said = STRINGS[name]
    loss = () if function == "crf_nll" else (EDIT,)

    def objective(scores, gold, *given, **options):
        return getattr(fgt, function)(scores, gold, *(given if loss else ()) or loss, **options)

    with pytest.raises(fg.InvalidInputError, match=said):
        call(objective)


OTHERS = {
    "loss": (lambda: fgt.risk(SCORES, GOLD, "edit"), "loss is a str; give a Loss"),
    "loss class": (lambda: fgt.risk(SCORES, GOLD, fg.Hamming), "loss is a ABCMeta; give a Loss"),
    "automata": (lambda: fgt.risk(SCORES, GOLD, [1, 2]), r"loss\[0\] is a int"),
    "sampling": (lambda: fgt.risk(SCORES, GOLD, EDIT, sampling=3), "sampling is a int"),
    "ctc loss": (lambda: fgt.ctc_risk(FRAMES, EDIT, LABELS), "loss is a Tensor; give a Loss"),
    "ctc gold": (lambda: fgt.ctc_nll(FRAMES, None), "gold is None; give a sequence"),
    "ctc blank": (lambda: fgt.ctc_nll(FRAMES, LABELS, blank="-"), "blank is '-'; give the id"),
    "ctc scores": (lambda: fgt.ctc_nll(FRAMES.long(), LABELS), "scores is torch.int64"),
    "list loss": (lambda: fgt.nbest_risk(LISTS, BEAM, GOLD, None), "loss is a NoneType"),
    "beam": (lambda: fgt.nbest_risk(LISTS, None, GOLD, EDIT), "hypotheses is None; give"),
    "references": (lambda: fgt.nbest_risk(LISTS, BEAM, None, EDIT), "references is None"),
    "numbers": (lambda: fgt.nbest_risk(LISTS, BEAM, GOLD, EDIT, [1]), r"lengths has the shape"),
    "nan list": (lambda: fgt.nbest_risk(LISTS * NAN, BEAM, GOLD, EDIT), "log_probs holds NaN"),
    "tags": (lambda: fgt.linear_chain_nll(SCORES, STEPS, [[0]]), "gold is a list; give a tensor"),
    "steps": (lambda: fgt.CRF(SCORES, STEPS.long()), "transitions is torch.int64"),
    "mask": (lambda: fgt.CRF(SCORES, STEPS, [[True]]), "mask is a list; give a tensor"),
    "start": (lambda: fgt.CRF(SCORES, STEPS, start=torch.zeros(5)), r"start has .*; give \(3,\)"),
    "end": (lambda: fgt.CRF(SCORES, STEPS, end="x"), "end is a str; give a floating"),
    "no lattices": (lambda: fgt.lattice_crf_nll([], [], []), "lattice has no items"),
    "no arcs": (lambda: fgt.lattice_crf_nll(None, LATTICES, ["ab", "b"]), "scores is None"),
    "no strings": (lambda: fgt.lattice_crf_nll(ARCS, LATTICES, 3), "gold is 3; give a sequence"),
    "heads": (lambda: tree("nll", TREES, HEADS.tolist()), "gold is a list; give a tensor"),
    "half heads": (lambda: tree("partial_nll", TREES, HEADS.float()), "allowed is torch.float32"),
    "arcs": (lambda: tree("partial_nll", TREES, HEADS[:, :2]), r"allowed .*give \(2, 3\)"),
    "costs": (lambda: tree("risk", TREES, torch.zeros(2, 3)), r"costs has .*give \(2, 4, 4\)"),
    "nan costs": (lambda: tree("risk", TREES, TREES * NAN), "costs holds NaN"),
    "features": (lambda: tree("generalized_expectation", TREES, TREES, GOLD), "features has the"),
    "features of no axis": (
        lambda: tree("generalized_expectation", TREES, torch.tensor(1.0), GOLD),
        "features has the",
    ),
    "target": (
        lambda: tree("generalized_expectation", TREES, cases.FEATURES, torch.zeros(5)),
        r"target has the shape \(5,\); give \(2, 2\)",
    ),
    "q": (lambda: tree("kl", TREES, None), "scores is a NoneType; give a floating"),
    "graph": (lambda: fgt.mrf_nll(NODES, EDGES, GRAPH, cases.LABELS), "graph is a Tensor; give"),
    "pixels": (lambda: fgt.mrf_nll(NODES, EDGES, [[0]], GRAPH), "gold is a list; give a tensor"),
    "edges": (lambda: fgt.mrf_marginals(NODES, EDGES.numpy(), GRAPH), "edge_scores is a ndarray"),
    "kernel": (lambda: fgt.mrf_dense_marginals(PIXELS, PICTURES, [1]), r"kernels\[0\] is a int"),
    "image": (lambda: fgt.mrf_dense_marginals(PIXELS, None, KERNELS), "image is a NoneType"),
    "strings": (lambda: fgt.Strings(SCORES.numpy()), "scores is a ndarray; give a floating"),
    "lengths": (lambda: fgt.Strings(SCORES, [9, 9]), r"lengths\[0\] is 9; give 1 to 4"),
    "no strings at all": (lambda: fgt.Strings(SCORES[:0]), "scores have no items"),
    "mbr": (lambda: fgt.Strings(SCORES).mbr("x"), "loss is a str; give a Loss"),
    "trees": (lambda: fgt.Trees(TREES, single_root=True, lengths=[1]), "there are 2 items"),
    "lattices": (lambda: fgt.LatticeStrings(ARCS, ["a", "b"]), r"lattices\[0\] is a str"),
    "fields": (lambda: fgt.RandomFields(NODES, EDGES, None), "graph is a NoneType; give"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    call, said = OTHERS[name]
    with pytest.raises(fg.InvalidInputError, match=said):
        call()


TREE_FUNCTIONS = {
    "log_partition": (), "marginals": (), "entropy": (), "nll": (HEADS,), "partial_nll": (HEADS,),
    "kl": (TREES,), "risk": (TREES,),
    "generalized_expectation": (cases.FEATURES, torch.zeros(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", TREE_FUNCTIONS)
def test_trees(name):
    def said(match, scores=TREES, **options):
        with pytest.raises(fg.InvalidInputError, match=match):
            tree(name, scores, *TREE_FUNCTIONS[name], **options)

    said("scores is a ndarray; give a floating", np.zeros((2, 4, 4)))
    said("scores is torch.int64; give a floating", TREES.long())
    said("scores is torch.complex64; give a floating", TREES.to(torch.complex64))
    said("lengths is torch.float32; give integer", lengths=torch.tensor([1.5, 2.0]))
    said("lengths is 'ab'; give 2 integers", lengths="ab")
    said("single_root is 'yes'; give True or False", single_root="yes")


@pytest.mark.filterwarnings("ignore:.*effective samples.*:RuntimeWarning")
@pytest.mark.parametrize("name", cases.MODULES)
def test_second_derivatives_are_right_or_an_error(name):
    """Never zeros: the row is multiplied by itself, so that a first derivative goes into it."""
    scores = cases.scores_of(name)

    def squared(*given):
        return cases.value(name, given) ** 2

    first = torch.autograd.grad(squared(*scores), scores, create_graph=True)
    total = sum(slope.square().sum() for slope in first)
    try:
        torch.autograd.grad(total, scores, retain_graph=True)
    except fg.NotSupportedError:
        with pytest.raises(fg.NotSupportedError, match="derivative"):
            torch.autograd.grad(total, scores)
        return
    assert torch.autograd.gradgradcheck(squared, scores, atol=1e-5, fast_mode=True)
