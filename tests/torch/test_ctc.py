"""CTC objectives: against torch's own loss, enumeration of paths, and differences."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle
from tests.oracles.losses import collapse

torch = pytest.importorskip("torch")
fgt = pytest.importorskip("fstgrad.torch")

ABC = fg.Alphabet("ab_")  # the blank is label 2
EDITS = fg.EditDistance(ABC)


def scores_for(seed, *shape, dtype=torch.float64):
    return torch.tensor(
        np.random.default_rng(seed).normal(size=shape), dtype=dtype, requires_grad=True
    )


@pytest.mark.parametrize("integer", [np.int64, np.uint8])
def test_the_blank_may_be_an_integer_of_numpy(integer):
    def found(blank):
        return [
            fgt.ctc_nll(scores, gold, blank=blank),
            fgt.ctc_risk(scores, gold, EDITS, blank=blank),
            fgt.ctc_align(scores, gold, blank=blank).log_prob[0],
        ]

    scores, gold = scores_for(0, 1, 3, 3), [[0]]
    assert found(integer(2)) == found(2)
    with fgt.use_device_paths():
        assert found(integer(2)) == found(2)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-6)])
def test_nll_is_that_of_torch_on_a_padded_batch(dtype, tolerance):
    raw = scores_for(0, 4, 9, 5, dtype=dtype)
    gold = torch.tensor([[1, 1, 2, 4], [3, -100, -100, -100], [2, 3, -100, -100], [-100] * 4])
    lengths = torch.tensor([9, 1, 7, 5])  # the last item is silent
    log_p = raw.log_softmax(-1)
    ours = fgt.ctc_nll(log_p, gold, lengths=lengths, reduction="none")
    theirs = torch.nn.functional.ctc_loss(
        log_p.transpose(0, 1), gold.clamp(min=0), lengths, (gold >= 0).sum(1), reduction="none"
    )
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    weights = torch.tensor([0.5, -2.0, 3.0, 1.5], dtype=dtype)
    (mine,) = torch.autograd.grad((weights * ours).sum(), raw, retain_graph=True)
    (other,) = torch.autograd.grad((weights * theirs).sum(), raw)
    torch.testing.assert_close(mine, other, atol=10 * tolerance, rtol=10 * tolerance)
    # scores that are not normalized: the same value
    again = fgt.ctc_nll(log_p + 3.0, gold, lengths=lengths, reduction="none")
    torch.testing.assert_close(again, ours, atol=10 * tolerance, rtol=tolerance)


def by_enumeration(table, target, blank, direction):
    """Return -log p(target), its gradient, and the Hessian times a direction, by all paths."""
    paths = oracle.all_strings(table.shape[1], len(table))
    parts = np.eye(table.shape[1])[np.array(paths)]
    total, along = (parts * table).sum((1, 2)), (parts * direction).sum((1, 2))
    is_gold = np.array([collapse_with(z, blank) == tuple(target) for z in paths])
    value, gradient, product = 0.0, 0.0, 0.0
    for sign, kept in ((1, np.ones(len(paths), bool)), (-1, is_gold)):
        log_z = np.logaddexp.reduce(total[kept])
        p = np.exp(total[kept] - log_z)
        mean = np.tensordot(p, parts[kept], 1)
        value, gradient = value + sign * log_z, gradient + sign * mean
        product = product + sign * np.tensordot(p * (along[kept] - p @ along[kept]), parts[kept], 1)
    return value, gradient, product


def collapse_with(z, blank):
    merged = [a for a, before in zip(z, (None, *z[:-1]), strict=True) if a != before]
    return tuple(a for a in merged if a != blank)


@pytest.mark.parametrize("target", [(), (1,), (1, 2), (1, 1), (2, 1, 2), (1, 1, 2)])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_nll_and_two_derivatives_equal_enumeration_of_paths(target, spread):
    rng = np.random.default_rng(len(target))
    table, direction = spread * rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    table[1, 2] = table[3, 0 if target else 1] = -np.inf
    scores = torch.tensor(table, requires_grad=True)
    gold = torch.tensor([target], dtype=torch.int64)
    value = fgt.ctc_nll(scores[None], gold, reduction="none")[0]
    (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
    (product,) = torch.autograd.grad((gradient * torch.tensor(direction)).sum(), scores)
    with np.errstate(invalid="ignore"):
        expected = by_enumeration(np.where(table < -1e9, -1e9, table), target, 0, direction)
    assert value.item() == pytest.approx(expected[0], abs=1e-10)
    np.testing.assert_allclose(gradient.detach().numpy(), expected[1], atol=1e-10)
    np.testing.assert_allclose(product.numpy(), expected[2], atol=1e-10)
    assert gradient[1, 2] == product[1, 2] == 0.0


def plain_nll(scores, target, frames):
    """Return -log p(target) by the recursion of Graves et al. 2006 (Eq. 6, 7), for autograd."""
    labels = [0]
    for label in target:
        labels += [label, 0]
    skips = torch.tensor(
        [s > 1 and labels[s] != 0 and labels[s] != labels[s - 2] for s in range(len(labels))]
    )
    log_p = scores[:frames].log_softmax(1)[:, labels]
    least = torch.full((2,), -1e30, dtype=scores.dtype)
    alpha = torch.cat([log_p[0, :2], least[:1].expand(len(labels) - 2)])
    for row in log_p[1:]:
        before = torch.cat([least, alpha])
        skipped = torch.where(skips, before[:-2], least[0])
        alpha = row + torch.stack([alpha, before[1:-1], skipped]).logsumexp(0)
    return -alpha[-2:].logsumexp(0)


@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_nll_and_two_derivatives_equal_autograd_of_the_recursion(spread):
    # several blocks of frames, repeats, and weights of one frame that span more than float64 does
    rng = np.random.default_rng(5)
    raw = torch.tensor(spread * rng.normal(size=(2, 131, 4)), requires_grad=True)
    direction, lengths = torch.tensor(rng.normal(size=(2, 131, 4))), [131, 97]
    gold = torch.tensor(rng.integers(1, 4, size=(2, 40)))
    gold[1, 25:] = -100
    results = []
    for value in (
        fgt.ctc_nll(raw, gold, lengths=lengths, reduction="sum"),
        sum(plain_nll(raw[i], gold[i][gold[i] > 0].tolist(), lengths[i]) for i in range(2)),
    ):
        (gradient,) = torch.autograd.grad(value, raw, create_graph=True)
        (product,) = torch.autograd.grad((gradient * direction).sum(), raw)
        results.append((value.detach() / value.item(), gradient.detach(), product))
        assert value.item() > 100
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-10, rtol=1e-10)


def test_thousands_of_frames():
    raw = scores_for(6, 1, 5000, 5)
    gold = torch.randint(1, 5, (1, 400), generator=torch.Generator().manual_seed(0))
    log_p = raw.log_softmax(-1).transpose(0, 1)
    ours = fgt.ctc_nll(raw, gold)
    theirs = torch.nn.functional.ctc_loss(log_p, gold, [5000], [400], reduction="sum")
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    (mine,) = torch.autograd.grad(ours, raw)
    (other,) = torch.autograd.grad(theirs, raw)
    torch.testing.assert_close(mine, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize("mask", [-1e9, float(torch.finfo(torch.float32).min), -1e300])
def test_masks_keep_the_digits_of_what_they_leave(mask):
    # a label of gold is masked: the paths that read it once remain, and differ by other scores
    table, direction = 3.0 * np.random.default_rng(7).normal(size=(2, 6, 3))
    expected, values, gradients = [], [], []
    for shift in (-1000.0, mask):
        table[:, 2] = shift
        expected.append(by_enumeration(table, (1, 2), 0, direction))
        scores = torch.tensor(table[None], requires_grad=True)
        values.append(fgt.ctc_nll(scores, [[1, 2]]))
        gradients.append(torch.autograd.grad(values[-1], scores)[0][0].numpy())
    assert values[0].item() == pytest.approx(expected[0][0], abs=1e-10)
    assert values[1].item() - values[0].item() == pytest.approx(-1000.0 - mask, rel=1e-12)
    np.testing.assert_allclose(gradients[1], expected[0][1], atol=1e-10)
    # a whole frame is masked, which is no preference
    table = np.random.default_rng(7).normal(size=(6, 3))
    for shift in (0.0, mask):
        table[4] = shift
        scores = torch.tensor(table[None], requires_grad=True)
        gradients.append(torch.autograd.grad(fgt.ctc_nll(scores, [[1, 2]]), scores)[0].numpy())
    np.testing.assert_allclose(gradients[3], gradients[2], atol=1e-10)


@pytest.mark.parametrize("mask", [-1e200, float(np.finfo(np.float64).min)])
def test_the_deepest_masks_are_as_minus_infinity(mask):
    for table in 3.0 * np.random.default_rng(8).normal(size=(20, 4, 3)):
        table[[0, 3], [0, 1]] = mask  # paths that avoid these cells remain
        scores = torch.tensor(table[None], requires_grad=True)
        value = fgt.ctc_nll(scores, [[1, 2]])
        table[table == mask] = -1e4
        expected = by_enumeration(table, (1, 2), 0, np.zeros_like(table))
        assert value.item() == pytest.approx(expected[0], abs=1e-10)
        gradient = torch.autograd.grad(value, scores)[0][0].numpy()
        np.testing.assert_allclose(gradient, expected[1], atol=1e-10)
    table[:, 1:] = -1.7e308  # two cells of every path: the loss is beyond float64
    with pytest.raises(fg.InfeasibleError, match="has a score of -inf on every path"):
        fgt.ctc_nll(torch.tensor(np.minimum(table[None], -mask)), [[1, 2]])


def test_padding_threads_and_other_items_change_no_bit():
    raw, gold = torch.randn(5, 70, 6), torch.randint(1, 6, (5, 20))
    gold[:, ::2] = 3
    lengths, padded = [70, 50, 64, 33, 41], raw.clone()
    for i, length in enumerate(lengths):
        padded[i, length:] = torch.nan
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        padded.requires_grad_()
        value = fgt.ctc_nll(padded, gold, lengths=lengths, reduction="none")
        found.append((value, *torch.autograd.grad(value.sum(), padded)))
        torch.set_num_threads(before)
    for i, length in enumerate(lengths):
        alone = raw[i, :length].clone().requires_grad_()
        value = fgt.ctc_nll(alone, gold[i], reduction="none")
        (gradient,) = torch.autograd.grad(value, alone)
        for values, gradients in found:
            assert torch.equal(values[i], value)
            assert torch.equal(gradients[i, :length], gradient)
            assert not gradients[i, length:].any()


def test_alignments_are_the_best_paths():
    raw, lengths = scores_for(8, 3, 6, 3), [6, 4, 5]
    raw.data[0, 2, 1] = -torch.inf
    gold = torch.tensor([[1, 1, 2], [2, -100, 1], [-100] * 3])
    best = fgt.ctc_align(raw, gold, lengths=lengths)
    for i, frames in enumerate(lengths):
        table, target = raw[i, :frames].detach(), tuple(gold[i][gold[i] >= 0].tolist())
        log_p = table.log_softmax(1).numpy()
        paths = [z for z in oracle.all_strings(3, frames) if collapse_with(z, 0) == target]
        scores = [log_p[np.arange(frames), z].sum() for z in paths]
        labels = best.labels[i].tolist()
        assert tuple(labels[:frames]) == paths[int(np.argmax(scores))]
        assert labels[frames:] == [-100] * (6 - frames)
        assert best.log_prob[i].item() == pytest.approx(max(scores), abs=1e-10)
        for j, label in enumerate(gold[i].tolist()):
            start, end = best.start[i, j].item(), best.end[i, j].item()
            if label < 0:
                assert start == end == -100
            else:
                assert end > start
                assert set(labels[start:end]) == {label}
    equal = fgt.ctc_align(torch.zeros(4, 3), [1, 2])
    assert equal.labels.tolist() == [1, 2, 0, 0]  # the last label ends first
    with pytest.raises(fg.InfeasibleError, match=r"gold\[0\] needs 3 frames, has 2"):
        fgt.ctc_align(torch.zeros(2, 3), [1, 1])


def test_labels_that_follow_themselves_need_a_blank_between():
    table = torch.zeros(3, 3, dtype=torch.float64)
    assert fgt.ctc_nll(table, [1, 2, 1]).item() == pytest.approx(3 * np.log(3), rel=1e-12)
    with pytest.raises(fg.InfeasibleError, match=r"gold\[0\] needs 4 frames, has 3"):
        fgt.ctc_nll(table, [1, 2, 2])


def test_margin_and_risk_equal_enumeration_of_paths():
    raw, target, loss = scores_for(1, 4, 3), (0, 1), fg.EditDistance(ABC)
    paths = oracle.all_strings(3, 4)
    losses = [oracle.edit_distance(collapse(z, "ctc"), target) for z in paths]
    seen = [0.0 if collapse(z, "ctc") == target else np.inf for z in paths]
    table = raw.detach().numpy()
    value = fgt.ctc_softmax_margin(raw, list(target), loss, blank=2)
    expected = oracle.log_partition(table, losses) - oracle.log_partition(table, seen)
    assert value.item() == pytest.approx(expected, abs=1e-10)
    risk = fgt.ctc_risk(raw, list(target), loss, blank=2)
    (gradient,) = torch.autograd.grad(risk, raw)
    by_hand = oracle.risk(table, losses)
    assert risk.item() == pytest.approx(by_hand[0], abs=1e-10)
    np.testing.assert_allclose(gradient.numpy(), by_hand[1], atol=1e-10)


@pytest.mark.parametrize("name", ["ctc_nll", "ctc_softmax_margin", "ctc_risk"])
def test_gradients_pass_gradcheck(name):
    loss = () if name == "ctc_nll" else (fg.EditDistance(ABC),)
    gold = torch.tensor([[0, 1], [1, -100]])

    def function(scores):
        return getattr(fgt, name)(scores, gold, *loss, blank=2, lengths=[4, 3], reduction="none")

    assert torch.autograd.gradcheck(function, (scores_for(2, 2, 4, 3),), fast_mode=True)
    if name != "ctc_risk":
        assert torch.autograd.gradgradcheck(function, (scores_for(2, 2, 4, 3),), fast_mode=True)


def test_modules_are_their_functions():
    raw, gold = scores_for(4, 2, 4, 3), torch.tensor([[0, 1], [1, -100]])
    loss = fg.EditDistance(ABC)
    for module, function, given in (
        (fgt.CTCLoss(blank=2), fgt.ctc_nll, ()),
        (fgt.CTCSoftmaxMarginLoss(loss, blank=2), fgt.ctc_softmax_margin, (loss,)),
        (fgt.CTCRiskLoss(loss, blank=2), fgt.ctc_risk, (loss,)),
    ):
        found = module(raw, gold, lengths=[4, 3])
        assert found.item() == function(raw, gold, *given, blank=2, lengths=[4, 3]).item()


@pytest.mark.parametrize("module", [fgt.CTCSoftmaxMarginLoss, fgt.CTCRiskLoss])
def test_sampled_margins_and_risks_have_valid_intervals(module, monkeypatch):
    raw, gold, loss = scores_for(9, 2, 5, 3), torch.tensor([[0, 1, 1], [1, -100, -100]]), EDITS
    exact = module(loss, "none", blank=2)
    values = exact(raw, gold)
    (gradient,) = torch.autograd.grad(values.sum(), raw)
    assert [estimate.how for estimate in exact.last] == ["exact", "exact"]
    monkeypatch.setattr("fstgrad.objectives.strings.AUTO_STATES", 1)
    sampled = module(loss, "none", blank=2, sampling=fgt.Sampling(4000))
    estimates = sampled(raw, gold)
    (other,) = torch.autograd.grad(estimates.sum(), raw)
    for known, value, estimate in zip(sampled.last, values, estimates, strict=True):
        assert known.interval[0] <= value.item() <= known.interval[1]
        assert known.value == estimate.item() != value.item()
        assert known.how.startswith("4000 samples (plain")
    assert (gradient - other).abs().max() < 0.1


def test_long_items_are_sampled_and_limits_name_what_the_function_takes(monkeypatch):
    n, frames = 8, 120
    loss = fg.EditDistance(fg.Alphabet(f"s{i}" for i in range(n)))
    raw, gold = scores_for(10, 1, frames, n), torch.arange(25)[None] % (n - 1) + 1
    module = fgt.CTCRiskLoss(loss, sampling=fgt.Sampling(samples=200))
    value = module(raw, gold)
    value.backward()
    assert "200 samples" in module.last[0].how
    assert module.last[0].interval[0] <= value.item() <= module.last[0].interval[1]
    assert raw.grad.sum(2).abs().max() < 1e-9
    few = fg.AutomatonCache()
    monkeypatch.setattr(
        "fstgrad.objectives.strings._AUTOMATA.automaton",
        lambda *given, **options: few.automaton(*given, **options, max_states=9),
    )
    with pytest.raises(fg.StateLimitError, match="Give method='auto'"):
        fgt.ctc_risk(raw, gold, loss, method="exact")


def test_a_cap_bounds_the_margin_of_long_items():
    raw, loss = scores_for(3, 2, 40, 6), fg.EditDistance(fg.Alphabet("_abcde"))
    gold = torch.tensor([[1, 2, 3, 1, 5, 5], [2, 2, 4, -100, -100, -100]])
    small, large = (
        fgt.ctc_softmax_margin(raw, gold, loss, cap=cap, reduction="none") for cap in (1.0, 2.0)
    )
    assert (small <= large + 1e-12).all()
    assert (large <= small + 1.0 + 1e-12).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"blank": 3}, "blank is 3; the scores are for the labels 0 to 2"),
        ({"gold": torch.tensor([[2]])}, "gold has the blank, 2"),
        ({"loss": fg.EditDistance(fg.Alphabet("ab"))}, "a loss over 2 symbols"),
        ({"scores": torch.zeros(3)}, r"give \(B, T, n\)"),
        ({"lengths": [9]}, "lengths"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {
        "scores": torch.zeros(1, 4, 3),
        "gold": torch.tensor([[0]]),
        "loss": fg.EditDistance(ABC),
        "blank": 2,
    } | change
    with pytest.raises(fg.InvalidInputError, match=message):
        fgt.ctc_softmax_margin(**given)
    with pytest.raises(fg.InfeasibleError):
        fgt.ctc_nll(torch.zeros(1, 2, 3), torch.tensor([[0, 0]]), blank=2)
