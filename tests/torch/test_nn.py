"""The CRF as a layer: equal to pytorch-crf where it is installed, and to sums over all tags."""

import copy
import io
import itertools
import pickle

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

SHAPE = (3, 4, 5)  # (B, T, n)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
HOLES = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0], [0, 1, 1, 0]]).bool()


def layer(batch_first=True, **options):
    torch.manual_seed(0)
    module = fgt.nn.CRF(SHAPE[2], batch_first, **options).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(10)
    return module


def inputs(seed=1):
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    return emissions.requires_grad_(), torch.randint(SHAPE[2], SHAPE[:2], generator=generator)


def sequences(module, emissions, mask):
    """Yield {tags: score} of all tags of each item, with what the layer allows."""
    parts = module.start_transitions, module.transitions, module.end_transitions
    names = ("_not_allowed_start", "_not_allowed", "_not_allowed_end")
    start, steps, end = (
        part if getattr(module, name) is None else part.masked_fill(getattr(module, name), -1e30)
        for part, name in zip(parts, names, strict=True)
    )
    for own, kept in zip(emissions, mask, strict=True):
        rows = own[kept]
        yield {
            y: start[y[0]] + end[y[-1]] + sum(row[tag] for row, tag in zip(rows, y, strict=True))
            + sum(steps[a, b] for a, b in itertools.pairwise(y))
            for y in itertools.product(range(SHAPE[2]), repeat=len(rows))
        }  # fmt: skip


CONSTRAINTS = {
    "none": {},
    "scheme": {"scheme": fg.TagScheme(["O", "B-x", "I-x", "B-y", "I-y"])},
    "pairs": {"allowed": [(0, 1), (1, 1), (1, 4), (4, 0)], "allowed_end": [1, 4]},
    "bool": {"allowed_start": torch.tensor([0, 1, 0, 0, 1]).bool()},
}


@pytest.mark.parametrize("mask", [MASK, HOLES], ids=["padding", "holes"])
@pytest.mark.parametrize("which", CONSTRAINTS)
def test_equals_the_sum_over_all_tags(which, mask):
    module = layer(**CONSTRAINTS[which])
    emissions, _ = inputs()
    every = list(sequences(module, emissions, mask))
    decoded, ranked = module.decode(emissions, mask), module.nbest(emissions, 3, mask)
    gold = torch.zeros(SHAPE[:2], dtype=torch.long)
    expected = []
    for i, scores in enumerate(every):
        log_p = torch.stack(list(scores.values())).log_softmax(0)
        known = sorted(zip(log_p.tolist(), scores, strict=True), key=lambda pair: -pair[0])
        known = [(list(y), value) for value, y in known if value > -1e20]
        assert decoded[i] == known[0][0]
        assert [y for y, _ in ranked[i]] == [y for y, _ in known[:3]]
        assert [p for _, p in ranked[i]] == pytest.approx([p for _, p in known[:3]], abs=1e-10)
        second = known[min(1, len(known) - 1)][0]
        gold[i, mask[i]] = torch.tensor(second)
        expected.append(log_p[list(scores).index(tuple(second))])
    found = module(emissions, gold, mask, reduction="none")
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-10)
    given = [emissions, *module.parameters()]
    slopes, wanted = (
        torch.autograd.grad((v * torch.arange(1.0, 4.0)).sum(), given)
        for v in (found, torch.stack(expected))
    )
    for own, other in zip(slopes, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-10)
    by_tags = module(emissions, gold.masked_fill(~mask, -100), reduction="none")
    assert torch.equal(by_tags, found)
    turned = layer(False, **CONSTRAINTS[which])
    swapped = turned(emissions.transpose(0, 1), gold.T, mask.T, reduction="none")
    assert torch.equal(swapped, found)
    assert turned.decode(emissions.transpose(0, 1), mask.T) == decoded


def test_padding_by_tags_and_by_the_mask_both_count():
    """A collator gives -100 to special tokens and inner pieces, which attention masks keep."""
    module, (emissions, tags) = layer(), inputs()
    both = module(emissions, tags.masked_fill(~HOLES, -100), MASK.long(), reduction="sum")
    assert both.item() == module(emissions, tags, HOLES & MASK).item()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_equals_pytorch_crf(batch_first, dtype):
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    torch.manual_seed(0)
    theirs = torchcrf.CRF(SHAPE[2], batch_first)
    torch.manual_seed(0)
    ours = fgt.nn.CRF(SHAPE[2], batch_first)
    assert repr(ours) == repr(theirs)
    for name, parameter in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], parameter)
    theirs.double(), ours.double()
    emissions, tags = inputs()
    if not batch_first:
        emissions, tags = emissions.transpose(0, 1), tags.T
    for mask in (None, (MASK if batch_first else MASK.T).to(dtype)):
        checked = torch.ones(tags.shape).bool() if mask is None else mask.bool()
        assert ours.decode(emissions, mask) == theirs.decode(emissions, checked)
        for reduction in ("none", "sum", "mean", "token_mean"):
            found = ours(emissions, tags, mask, reduction)
            expected = theirs(emissions, tags, checked, reduction=reduction)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
            slopes = [
                torch.autograd.grad(value.sum(), (emissions, *module.parameters()))
                for value, module in ((found, ours), (expected, theirs))
            ]
            torch.testing.assert_close(*slopes, rtol=0, atol=1e-10)


def test_state():
    """An old checkpoint loads; constraints are not in it; copies and pickles keep both."""
    module = layer(**CONSTRAINTS["scheme"])
    old = {name: torch.rand(p.shape) for name, p in module.named_parameters()}
    assert list(old) == ["start_transitions", "end_transitions", "transitions"]
    assert str(module.load_state_dict(old)) == "<All keys matched successfully>"
    emissions, _ = inputs()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    copies.append(torch.load(file, weights_only=False))
    plain = layer()
    plain.load_state_dict(module.state_dict())
    for other in copies:
        assert other.decode(emissions) == module.decode(emissions)
        assert other.entropy(emissions).item() == module.entropy(emissions).item()
    assert plain.entropy(emissions).item() > module.entropy(emissions).item()


def test_a_checkpoint_knows_the_order_of_the_tags():
    names = ["O", "B-A", "I-A", "B-B", "I-B"]
    first, same, other = (
        layer(scheme=fg.TagScheme(own)) for own in (names, names, names[1:] + names[:1])
    )
    with pytest.raises(fg.InvalidInputError, match=r"transitions: the tags .* 'O' there and 'B-A'"):
        other.load_state_dict(first.state_dict())
    other.load_state_dict(dict(first.state_dict()))  # a checkpoint without names
    other.load_state_dict(layer().state_dict())
    same.load_state_dict(first.state_dict())


def test_initial_parameters():
    module = fgt.nn.CRF(40)
    for parameter in module.parameters():
        assert 0.09 < parameter.abs().max() <= 0.1
    before = module.transitions.clone()
    module.reset_parameters()
    assert not torch.equal(module.transitions, before)
    assert repr(module) == "CRF(num_tags=40)"


def test_other_objectives_are_those_of_the_distribution():
    module, (emissions, tags) = layer(), inputs()
    mask, costs = HOLES.int(), 1.0 - torch.eye(SHAPE[2])
    crf = module.distribution(emissions, mask)
    other = layer().distribution(emissions + 1.0 * (tags[..., None] == torch.arange(5)), mask)
    spans = fg.SpanHamming(fg.Alphabet(["O", "B-x", "I-x", "B-y", "I-y"]))
    each = {
        "none": lambda v: v, "sum": torch.sum, "mean": torch.mean,
        "token_mean": lambda v: v.sum() / HOLES.sum(),
    }  # fmt: skip
    for reduction, reduced in each.items():
        for found, expected in (
            (module.entropy(emissions, mask, reduction), crf.entropy()),
            (module.kl(emissions, other, mask, reduction), crf.kl(other)),
            (module.risk(emissions, tags, costs, mask, reduction),
             crf.risk(tags, costs, reduction="none")),
            (module.risk(emissions, tags, spans, mask, reduction),
             crf.risk(tags, spans, reduction="none")),
            (module.softmax_margin(emissions, tags, costs, mask, reduction),
             crf.softmax_margin(tags, costs, reduction="none")),
            (module(emissions, tags, mask, reduction), crf.log_prob(tags)),
        ):  # fmt: skip
            torch.testing.assert_close(found, reduced(expected), rtol=1e-13, atol=1e-13)
    assert module.entropy(emissions, None, "token_mean").item() == pytest.approx(
        module.entropy(emissions).item() / 12, rel=1e-14
    )
    turned = layer(False)
    node = turned.marginals(emissions.transpose(0, 1), mask.T)
    assert torch.equal(node.transpose(0, 1), crf.marginals())


def test_equal_scores_go_to_smaller_tags():
    module = fgt.nn.CRF(3, batch_first=True)
    torch.nn.init.zeros_(module.transitions)
    torch.nn.init.zeros_(module.start_transitions)
    torch.nn.init.zeros_(module.end_transitions)
    assert module.decode(torch.zeros(1, 3, 3)) == [[0, 0, 0]]


def test_sequences_that_add_nothing():
    """One without a position, and one whose tags are not allowed, beside a good one."""
    module, (emissions, _) = layer(**CONSTRAINTS["scheme"]), inputs()
    tags = torch.tensor([[-100] * 4, [0, 2, 0, 0], [1, 2, 0, 0]])
    found = module(emissions, tags, infeasible="zero", reduction="none")
    alone = module(emissions[2:], tags[2:])
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2].item() == alone.item()
    slopes = [torch.autograd.grad(v.sum(), module.parameters()) for v in (found, alone)]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)
    with pytest.raises(fg.InfeasibleError, match="2 items are infeasible"):
        module(emissions, tags)


def test_gold_that_is_not_allowed():
    module, (emissions, _) = layer(**CONSTRAINTS["scheme"]), inputs()
    with pytest.raises(fg.InfeasibleError, match=r"gold\[0\]"):
        module(emissions, torch.full(SHAPE[:2], 2))
    with pytest.raises(fg.InfeasibleError):
        layer(allowed=[(0, 1)]).decode(emissions)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda m, e, y: fgt.nn.CRF(0), "num_tags is 0"),
        (lambda m, e, y: fgt.nn.CRF(3, batch_first="yes"), "batch_first"),
        (lambda m, e, y: fgt.nn.CRF(3, scheme="BIO"), "scheme is a str; give an fg.TagScheme"),
        (lambda m, e, y: fgt.nn.CRF(3, scheme=fg.TagScheme("O")), "has 1 tags; num_tags is 3"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed=[[True, False]]), r"give \(2, 2\)"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed=[(0, 2)]), r"allowed\[0, 1\] is 2"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed=[0, 1]), "allowed has"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed_start=[-1]), "is -1"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed_end=[0.5]), "allowed_end"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed=torch.eye(2).long()), "int64; give bool .* pairs"),
        (lambda m, e, y: fgt.nn.CRF(2, allowed_end=torch.ones(2)), "float32; give bool .* of tags"),
        (lambda m, e, y: m.kl(e, m), "other is a CRF; give an fstgrad.torch.CRF, as nn.CRF.dist"),
        (lambda m, e, y: m(e[0], y[0]), r"emissions has .*; give \(B, T, n\)"),
        (lambda m, e, y: m(e[..., :4], y), "num_tags = 5"),
        (lambda m, e, y: m(e, y.T), r"tags has the shape \(4, 3\); give \(3, 4\)"),
        (lambda m, e, y: m(e, y, MASK.T), r"mask has the shape \(4, 3\); give \(3, 4\)"),
        (lambda m, e, y: m(e, y, MASK.double()), "mask is torch.float64; give bool, or int"),
        (lambda m, e, y: m(e, y, 2 * MASK), "other integers than 0 and 1"),
        (lambda m, e, y: m(e, y, MASK & False), "length 0|no position"),
        (lambda m, e, y: m(e, y, reduction="average"), "none, sum, mean, token_mean"),
        (lambda m, e, y: m(e, y + 5), r"tags\[0\] has the tag"),
        (lambda m, e, y: m(e, y.double()), "tags is torch.float64"),
        (lambda m, e, y: m(e.long(), y), "emissions is torch.int64"),
        (lambda m, e, y: m.nbest(e, 0), "k is 0"),
        (lambda m, e, y: m(e[:0], y[:0], reduction="token_mean"), "no items"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.FstgradError, match=said):
        call(layer(), *inputs())


def test_no_items():
    module = layer()
    emissions, tags = (tensor[:0] for tensor in inputs())
    assert module(emissions, tags).item() == 0.0
    assert module.decode(emissions) == []
    assert module.nbest(emissions, 2) == []
