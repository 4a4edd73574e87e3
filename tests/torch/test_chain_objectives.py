"""Objectives of linear chains, and their gradients, against sums over all sequences of tags."""

import itertools

import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402
from tests.helpers.selection import pairwise  # noqa: E402
from tests.oracles import losses as by_hand  # noqa: E402

NAMES = ["O", "B-x", "I-x"]
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]).bool()
GOLD = torch.tensor([[0, 1, 2, 0, 1], [2, 1, 0, 0, 0], [1, 1, 2, 2, 0], [0, 0, 0, 2, 0]])
COSTS = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.5, 1.0], [0.25, 4.0, -1.0]], dtype=torch.float64)
SPANS = fg.SpanHamming(fg.Alphabet(NAMES))


def parts(seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 5, 3), (3, 3), (3,), (3,)]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64) * scale for s in shapes]
    return [tensor.requires_grad_() for tensor in tensors]


def crf_of(emissions, transitions, start, end, mask=MASK):
    return fgt.CRF(emissions, transitions, mask, start=start, end=end)


class Enumerated:
    """The same distributions as a list, for each item, of all sequences and log-probabilities."""

    def __init__(self, emissions, transitions, start, end):
        self.items = []
        for own, kept in zip(emissions, MASK, strict=True):
            rows = own[kept]
            ys = list(itertools.product(range(3), repeat=len(rows)))
            scores = torch.stack(
                [
                    start[y[0]] + end[y[-1]] + sum(row[t] for row, t in zip(rows, y, strict=True))
                    + sum((transitions[a, b] for a, b in itertools.pairwise(y)), torch.tensor(0.0))
                    for y in ys
                ]
            )  # fmt: skip
            allowed = scores > -torch.inf
            ys = [y for y, one in zip(ys, allowed, strict=True) if one]
            self.items.append((ys, scores[allowed]))

    def entropy(self):
        each = [scores.log_softmax(0) for _, scores in self.items]
        return torch.stack([-(p.exp() * p).sum() for p in each])

    def kl(self, other):
        found = []
        for (ys, own), (zs, theirs) in zip(self.items, other.items, strict=True):
            p, q = own.log_softmax(0), dict(zip(zs, theirs.log_softmax(0), strict=True))
            found.append(sum(a.exp() * (a - q[y]) for y, a in zip(ys, p, strict=True)))
        return torch.stack(found)

    def losses(self, loss):
        for i, (ys, scores) in enumerate(self.items):
            gold = tuple(GOLD[i, MASK[i]].tolist())
            yield gold, ys, scores, torch.tensor([float(loss(y, gold)) for y in ys]).double()

    def risk(self, loss):
        each = self.losses(loss)
        return torch.stack([(scores.softmax(0) * costs).sum() for _, _, scores, costs in each])

    def margin(self, loss):
        each = self.losses(loss)
        return torch.stack(
            [(s + costs).logsumexp(0) - s[ys.index(gold)] for gold, ys, s, costs in each]
        )


def sum_of_costs(y, gold):
    return sum(COSTS[b, a] for a, b in zip(y, gold, strict=True))


def of_spans(y, gold):
    own, target = (set(by_hand.spans([NAMES[i] for i in tags])) for tags in (y, gold))
    return len(own ^ target)


OBJECTIVES = {
    "entropy": (lambda c: c.entropy(), lambda e: e.entropy()),
    "risk of tags": (
        lambda c: c.risk(GOLD, COSTS, reduction="none"), lambda e: e.risk(sum_of_costs)),
    "margin of tags": (
        lambda c: c.softmax_margin(GOLD, COSTS, reduction="none"),
        lambda e: e.margin(sum_of_costs)),
    "risk of spans": (lambda c: c.risk(GOLD, SPANS, reduction="none"), lambda e: e.risk(of_spans)),
    "margin of spans": (
        lambda c: c.softmax_margin(GOLD, SPANS, reduction="none"), lambda e: e.margin(of_spans)),
}  # fmt: skip
UPSTREAM = torch.tensor([0.3, -2.0, 1.7, 0.5], dtype=torch.float64)


def compared(found, expected, mine, others, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    slopes = torch.autograd.grad(found, mine, UPSTREAM)
    wanted = torch.autograd.grad(expected, others, UPSTREAM)
    for own, other in zip(slopes, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "on_device, name, forbidden, scale",  # scale: within and beyond the range of floats
    pairwise([False, True], OBJECTIVES, [None, -torch.inf, -1e9], [1.0, 300.0]),
)
def test_equals_the_sum_over_all_sequences(on_device, name, forbidden, scale):
    mine, others = parts(scale=scale), parts(scale=scale)

    def barred(emissions, transitions, start, end):
        if forbidden is None:
            return emissions, transitions, start, end
        step = torch.zeros(3, 3, dtype=torch.bool)
        step[0, 0] = True
        own = torch.zeros(4, 5, 3, dtype=torch.bool)
        own[2, 3, 0] = True
        return (
            emissions.masked_fill(own, forbidden), transitions.masked_fill(step, forbidden), start,
            end,
        )  # fmt: skip

    ours, enumerated = OBJECTIVES[name]
    every = Enumerated(*barred(*others))
    with fgt.use_device_paths(enabled=on_device):
        compared(ours(crf_of(*barred(*mine))), enumerated(every), mine, others, 1e-10 * scale)


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("on_device", [False, True])
def test_kl(on_device, scale):
    mine, others = parts(scale=scale), parts(scale=scale)
    mine_q, others_q = parts(1), parts(1)
    expected = Enumerated(*others).kl(Enumerated(*others_q))
    with fgt.use_device_paths(enabled=on_device):
        found = crf_of(*mine).kl(crf_of(*mine_q))
        compared(found, expected, [*mine, *mine_q], [*others, *others_q], 1e-10 * scale)
    own = crf_of(*mine).kl(crf_of(*mine))
    assert own.abs().max() < 1e-12 * scale


def test_kl_is_infinite_where_only_the_other_forbids():
    emissions, transitions, start, end = parts()
    step = torch.zeros(3, 3, dtype=torch.bool)
    step[1, 2] = True
    barred = crf_of(emissions, transitions.masked_fill(step, -torch.inf), start, end)
    plain = crf_of(emissions, transitions, start, end)
    found = plain.kl(barred)
    assert found[:3].tolist() == [torch.inf] * 3
    assert found[3].item() < 1e-12  # of one position: no step
    assert plain.kl(barred).isinf().any()
    assert barred.kl(plain).isfinite().all()
    both = crf_of(emissions + 1.0, transitions.masked_fill(step, -torch.inf), start, end)
    assert barred.kl(both).abs().max() < 1e-12
    tag = torch.zeros(4, 5, 3, dtype=torch.bool)
    tag[3, 3, 1] = tag[1, 4, 0] = True  # the latter is outside of the mask
    found = plain.kl(crf_of(emissions.masked_fill(tag, -torch.inf), transitions, start, end))
    assert found.isinf().tolist() == [False, False, False, True]
    assert torch.autograd.grad(found[:3].sum(), emissions)[0].isfinite().all()


def test_second_derivatives_are_refused():
    inputs = parts()
    (first,) = torch.autograd.grad(crf_of(*inputs).entropy().sum(), inputs[0], create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="first derivatives"):
        first.sum().backward()


def test_without_costs_the_margin_is_the_likelihood():
    """And a cost of the gold tags themselves is in the sum alone."""
    crf = crf_of(*parts())
    torch.testing.assert_close(crf.softmax_margin(GOLD, 0 * COSTS), crf.nll(GOLD))
    constant = crf.softmax_margin(GOLD, torch.ones_like(COSTS), reduction="none")
    torch.testing.assert_close(constant, crf.nll(GOLD, reduction="none") + MASK.sum(1))


@pytest.mark.parametrize("by", [-1e9, 1e12, torch.finfo(torch.float64).min])
def test_masks_of_whole_positions_cost_no_digits(by):
    emissions, transitions, start, end = (tensor.detach() for tensor in parts())
    emissions[:, 3] = 0.0
    masked = emissions.clone()
    masked[:, 3] = by
    one, other = (crf_of(table, transitions, start, end) for table in (masked, emissions))
    for ours, _ in OBJECTIVES.values():
        torch.testing.assert_close(ours(one), ours(other), rtol=0, atol=1e-12)
    torch.testing.assert_close(one.kl(other), torch.zeros(4).double(), rtol=0, atol=1e-12)


def test_tags_masked_by_the_least_number():
    """finfo.min for a tag at many positions, as attention masks have it, is as good as -inf."""
    emissions, transitions, start, end = (tensor.detach() for tensor in parts())
    low, barred = emissions.clone(), emissions.clone()
    low[:, 1:4, 0], barred[:, 1:4, 0] = torch.finfo(torch.float64).min, -torch.inf
    one, other = (crf_of(table, transitions, start, end) for table in (low, barred))
    for name in ("entropy", "risk of tags", "risk of spans"):
        ours = OBJECTIVES[name][0]
        torch.testing.assert_close(ours(one), ours(other), rtol=0, atol=1e-12)
    assert one.kl(other).abs().max() < 1e-12
    assert other.kl(one).abs().max() < 1e-12


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda c: c.risk(GOLD, COSTS[:2]), r"loss has the shape \(2, 3\); give \(3, 3\)"),
        (lambda c: c.risk(GOLD, COSTS * torch.nan), "loss holds NaN"),
        (lambda c: c.risk(GOLD, "hamming"), "loss is a str; give a Loss over the 3 tags"),
        (lambda c: c.risk(GOLD, None), "give a Loss over the 3 tags"),
        (lambda c: c.risk(GOLD, fg.Hamming(fg.Alphabet("ab"))), "loss is for 2 tags"),
        (lambda c: c.softmax_margin(GOLD + 1, COSTS), "the tag 3"),
        (lambda c: c.risk(GOLD, COSTS, reduction="max"), "none, mean, sum"),
        (lambda c: c.kl(c.emissions), "other is .*; give an fstgrad.torch.CRF"),
        (lambda c: c.kl(fgt.CRF(c.emissions[:2], c.transitions)), "the emissions of other"),
        (lambda c: c.kl(fgt.CRF(c.emissions, c.transitions)), "other has another mask"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call(crf_of(*parts()))


def test_nothing_waits_for_a_device():
    """Tensors on the device meta have no numbers to read."""
    scores, others = ([t.detach().to("meta").requires_grad_() for t in parts(i)] for i in (0, 1))
    mask, gold, costs = MASK.to("meta"), GOLD.to("meta"), COSTS.to("meta")
    with fgt.use_device_paths():
        p, q = crf_of(*scores, mask), crf_of(*others, mask)
        values = p.entropy(), p.kl(q), p.risk(gold, costs), p.softmax_margin(gold, costs)
        for value in values:
            value.sum().backward()
    assert all(tensor.grad.shape == tensor.shape for tensor in (*scores, *others))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", ["risk", "softmax_margin"])
@pytest.mark.parametrize("kind", ["costs", "loss"])
def test_infeasible_items_are_left_out(name, kind, on_device):
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
    emissions[1, 1] = -torch.inf  # no tags
    mask = torch.ones(4, 3, dtype=torch.bool)
    mask[2] = False
    gold = torch.tensor([[0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0]])
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    loss = costs if kind == "costs" else fg.Hamming(fg.Alphabet("ab"))
    given = emissions.clone().requires_grad_()
    with fgt.use_device_paths(on_device):
        crf = fgt.CRF(given, torch.zeros(2, 2, dtype=torch.float64), mask)
        found = getattr(crf, name)(gold, loss, reduction="none", infeasible="zero")
        (slope,) = torch.autograd.grad(found.sum(), given)
        with_all = getattr(crf, name)(gold, loss, infeasible="zero")
    kept = [0, 3]
    alone = fgt.CRF(emissions[kept], torch.zeros(2, 2, dtype=torch.float64), mask[kept])
    expected = getattr(alone, name)(gold[kept], loss, reduction="none")
    torch.testing.assert_close(found[kept], expected, rtol=0, atol=1e-12)
    assert found[[1, 2]].tolist() == [0.0, 0.0]
    assert not bool(slope[[1, 2]].any())
    assert with_all.item() == pytest.approx(expected.sum().item() / 4, abs=1e-12)
    with pytest.raises(fg.InfeasibleError):
        getattr(fgt.CRF(emissions, torch.zeros(2, 2), mask), name)(gold, loss)
