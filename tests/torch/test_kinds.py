"""Tensors that are not dense tables of real numbers: each is an error that names the remedy."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.mrf.dense import Kernel  # noqa: E402
from tests.helpers.selection import in_turn  # noqa: E402
from tests.torch import cases  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of what is experimental

KINDS = {
    "sparse": (lambda t: t.to_sparse(), r"torch\.sparse_coo; give .*\.to_dense\(\)"),
    "nested": (
        lambda t: torch.nested.nested_tensor(list(t)),
        r"is a nested tensor; give a padded one",
    ),
    "jagged": (
        lambda t: torch.nested.nested_tensor(list(t), layout=torch.jagged),
        r"is a nested tensor; give a padded one",
    ),
    "masked": (
        lambda t: torch.masked.masked_tensor(t, torch.ones_like(t, dtype=torch.bool)),
        r"is a masked tensor; give .*\.to_tensor\(fill\)",
    ),
    "meta": (lambda t: t.to("meta"), "is on the device meta, which holds no numbers"),
    "complex": (lambda t: t.to(torch.complex64), "is torch.complex64.*; give"),
}
RAGGED = ("nested", "jagged")
SCORES_ALONE = {
    "quantized": (
        lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
        r"is quantized; give .*\.dequantize\(\)",
    ),
    "float8": (lambda t: t.float().to(torch.float8_e4m3fn), "is torch.float8_e4m3fn; give"),
    "integers": (lambda t: t.long(), "is torch.int64; give a floating-point tensor"),
}
# the rows of lattices slice their scores, those of costs and dense weights compute with them
LEFT_OUT = ("Lattice", "lattice", "Transducer", "mrf_dense")
ROWS = [name for name in cases.MODULES if not name.startswith(LEFT_OUT)]


@pytest.mark.parametrize(
    ("name", "kind"), in_turn(ROWS, KINDS | SCORES_ALONE, ("SoftmaxMarginLoss", "MRFLoss"))
)
def test_scores(name, kind):
    make, said = (KINDS | SCORES_ALONE)[kind]
    for place in range(len(cases.MODULES[name][0])):
        scores = [tensor.detach() for tensor in cases.scores_of(name)]
        if scores[place].ndim == 1 and kind in RAGGED:
            continue
        scores[place] = make(scores[place])
        with pytest.raises(fg.InvalidInputError, match=said):
            cases.value(name, scores)


@pytest.mark.parametrize("name", cases.MODULES)
def test_scores_that_are_negated_when_they_are_read(name):
    """The imaginary part of a conjugate is a view with a negative bit."""
    given = [scores.detach() for scores in cases.scores_of(name)]
    lazy = [torch.complex(0 * scores, -scores).conj().imag for scores in given]
    assert all(scores.is_neg() for scores in lazy)
    assert torch.equal(cases.value(name, lazy), cases.value(name, given))


def tree(function, *given, **options):
    return getattr(fgt, f"spanning_tree_{function}")(*given, single_root=True, **options)


SCORES, FRAMES, TREES = torch.zeros(2, 4, 3), torch.zeros(2, 5, 3), torch.zeros(2, 4, 4)
STEPS, LISTS, SIZES, LINE = torch.zeros(3, 3), torch.zeros(2, 2), torch.tensor([3, 2]), torch.zeros
EDGES, PIXELS, KERNELS = torch.zeros(2, 2), torch.zeros(2, 2, 3, 3), [Kernel(0.5, 1.0)]
ARCS = [torch.zeros(size) for size in cases.SIZES]
EDIT, GOLD, BEAM, GRAPH = cases.EDIT, cases.GOLD, cases.HYPOTHESES, cases.GRAPH
# what is given beside scores, and what takes it
OTHERS = {
    "gold": (GOLD, lambda t: fgt.crf_nll(SCORES, t)),
    "gold of edits": (GOLD, lambda t: fgt.risk(SCORES, t, EDIT)),
    "rows of gold": (GOLD[0], lambda t: fgt.crf_nll(SCORES, [t, t])),
    "lengths": (SIZES, lambda t: fgt.crf_nll(SCORES, GOLD, lengths=t)),
    "tags": (GOLD, lambda t: fgt.linear_chain_nll(SCORES, STEPS, t)),
    "mask": (GOLD >= 0, lambda t: fgt.CRF(SCORES, STEPS, t)),
    "written": (cases.WRITTEN, lambda t: fgt.ctc_nll(FRAMES, t)),
    "frames": (SIZES, lambda t: fgt.ctc_nll(FRAMES, cases.WRITTEN, lengths=t)),
    "hypotheses": (BEAM, lambda t: fgt.nbest_risk(LISTS, t, GOLD, EDIT)),
    "references": (GOLD, lambda t: fgt.nbest_risk(LISTS, BEAM, t, EDIT)),
    "numbers": (SIZES - 1, lambda t: fgt.nbest_risk(LISTS, BEAM, GOLD, EDIT, t)),
    "strings of lattices": (
        torch.tensor([0, 1]),
        lambda t: fgt.lattice_crf_nll(ARCS, cases.LATTICES, [t, t]),
    ),
    "arcs": (ARCS[0], lambda t: fgt.lattice_crf_nll(t, cases.LATTICES[0], "ab")),
    "heads": (cases.HEADS, lambda t: tree("nll", TREES, t)),
    "words": (SIZES, lambda t: tree("nll", TREES, cases.HEADS, lengths=t)),
    "known": (cases.KNOWN, lambda t: tree("partial_nll", TREES, t)),
    "costs": (cases.COSTS, lambda t: tree("risk", TREES, t)),
    "features": (
        cases.FEATURES,
        lambda t: tree("generalized_expectation", TREES, t, torch.zeros(2)),
    ),
    "target": (
        torch.zeros(2, 2),
        lambda t: tree("generalized_expectation", TREES, cases.FEATURES, t),
    ),
    "labels": (cases.LABELS, lambda t: fgt.mrf_nll(torch.zeros(2, 3, 2), EDGES, t, GRAPH)),
    "pixels": (PIXELS, lambda t: fgt.mrf_dense_marginals(t, cases.PICTURES, KERNELS)),
    "image": (cases.PICTURES, lambda t: fgt.mrf_dense_marginals(PIXELS, t, KERNELS)),
    "weights": (
        torch.ones(1),
        lambda t: fgt.mrf_dense_marginals(PIXELS, cases.PICTURES, KERNELS, t),
    ),
    "compatibility": (
        EDGES,
        lambda t: fgt.mrf_dense_marginals(PIXELS, cases.PICTURES, KERNELS, compatibility=t),
    ),
    "strings": (SCORES, lambda t: fgt.Strings(t)),
    "trees": (TREES, lambda t: fgt.Trees(t, single_root=True)),
    "fields": (torch.zeros(2, 3, 2), lambda t: fgt.RandomFields(t, EDGES, GRAPH)),
    "lattices": (ARCS[0], lambda t: fgt.LatticeStrings([t], cases.LATTICES[:1])),
}


# a nested tensor has rows
PAIRED = [
    (name, kind)
    for name, kind in in_turn(OTHERS, KINDS, ("gold", "pixels"))
    if OTHERS[name][0].ndim > 1 or kind not in RAGGED
]


@pytest.mark.parametrize(("name", "kind"), PAIRED)
def test_what_is_given_beside_scores(name, kind):
    given, call = OTHERS[name]
    make, said = KINDS[kind]
    with pytest.raises(fg.InvalidInputError, match=said):
        call(make(given))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_integers_of_every_width(dtype):
    gold, heads = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 1]]), torch.tensor([[0, 1, 2], [2, 0, 1]])
    calls = {
        "crf": lambda t: fgt.crf_nll(SCORES, t(gold)),
        "risk": lambda t: fgt.risk(SCORES, t(gold), EDIT, lengths=t(SIZES)),
        "chain": lambda t: fgt.linear_chain_nll(SCORES, STEPS, t(gold)),
        "ctc": lambda t: fgt.ctc_nll(FRAMES, t(gold[:, 1:2]), lengths=t(SIZES)),
        "tree": lambda t: tree("nll", TREES, t(heads), lengths=t(SIZES)).mean(),
        "partial": lambda t: tree("partial_nll", TREES, t(heads)).mean(),
        "field": lambda t: fgt.mrf_nll(torch.zeros(2, 3, 2), EDGES, t(cases.LABELS), GRAPH),
    }
    for call in calls.values():
        assert call(lambda t: t.to(dtype)) == call(lambda t: t)


@pytest.mark.parametrize("mark", [255, 7])
def test_bytes_have_a_mark_of_their_own_for_padding(mark):
    """The value of independent positions is a sum over those that are known."""
    scores = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gold = torch.tensor([[0, 1, 2, 0], [2, mark, mark, mark]], dtype=torch.uint8)
    wide = torch.where(gold == mark, -100, gold.long())
    steps, path = torch.zeros(3, 3), np.array([[0, 1], [1, 2], [2, 3]])
    field = fg.PairwiseMRF(np.zeros((4, 3)), np.zeros((3, 3)), path)
    options = {"ignore_index": mark, "reduction": "none"}
    logs = torch.nn.functional.nll_loss(scores.log_softmax(-1).mT, wide, reduction="none").sum(1)
    for found in (
        fgt.crf_nll(scores, gold, **options),
        fgt.linear_chain_nll(scores, steps, gold, **options),
        fgt.mrf_nll(scores, steps, gold, field, **options),
    ):
        torch.testing.assert_close(found, logs, rtol=0, atol=1e-12)
    written = torch.where(gold == 0, 1, gold)
    for call in (
        lambda t, **o: fgt.softmax_margin(scores, t, EDIT, **o),
        lambda t, **o: fgt.risk(scores, t, EDIT, **o),
        lambda t, **o: fgt.ctc_nll(scores, t[:, :2], **o),
        lambda t, **o: fgt.nbest_risk(scores[:, 0, :1], t[:, None], t, EDIT, **o),
    ):
        padded = torch.where(written == mark, -100, written.long())
        assert torch.equal(call(written, **options), call(padded, reduction="none"))
