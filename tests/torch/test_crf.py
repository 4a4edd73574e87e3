"""The linear-chain CRF: equal to StringDistribution on the table that it does not make."""

import numpy as np
import pytest

import fstgrad as fg

torch = pytest.importorskip("torch")
import fstgrad.torch as fgt  # noqa: E402

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]).bool()
GOLD = torch.tensor([[0, 1, 2, 0, 1], [2, 1, 0, 0, 0], [1, 1, 2, 2, 0], [0, 0, 0, 2, 0]])


def parts(scale=1.0, n=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 5, n), (n, n), (n,), (n,)]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64) * scale for s in shapes]
    return [tensor.requires_grad_() for tensor in tensors]


def full_tables(emissions, transitions, start, end, mask=MASK):
    """The scores (l, n + 1, n) of each item."""
    for own, kept in zip(emissions, mask, strict=True):
        rows = own[kept].clone()
        rows[0] = rows[0] + start
        rows[-1] = rows[-1] + end
        steps = torch.cat([transitions, torch.zeros_like(transitions[:1])])
        yield rows[:, None, :] + steps


def crf_of(emissions, transitions, start, end):
    return fgt.CRF(emissions, transitions, MASK, start=start, end=end)


# a step that is forbidden by -inf or -1e4, and scores beyond the range of floats
@pytest.mark.parametrize("scale, forbidden", [(1.0, None), (1.0, -torch.inf), (3.0, -1e4),
                                              (500.0, None), (500.0, -torch.inf)])  # fmt: skip
def test_equals_the_full_table(scale, forbidden):
    mine, others = parts(scale), parts(scale)
    upstream = torch.tensor([0.3, -2.0, 1.7, 0.5], dtype=torch.float64)

    def barred(transitions):
        if forbidden is None:
            return transitions
        mask = torch.zeros_like(transitions, dtype=torch.bool)
        mask[1, 0] = True
        return transitions.masked_fill(mask, forbidden)

    emissions, transitions, start, end = mine
    crf = crf_of(emissions, barred(transitions), start, end)
    gold = GOLD.masked_fill(GOLD == 0, 2)
    values = crf.nll(gold, reduction="none")
    values.backward(upstream)
    emissions, transitions, start, end = others
    tables = list(full_tables(emissions, barred(transitions), start, end))
    expected = torch.stack(
        [fgt.crf_nll(table, own[kept]) for table, own, kept in zip(tables, gold, MASK, strict=True)]
    )
    expected.backward(upstream)
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-10)
    for own, other in zip(mine, others, strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=1e-10)
    decoded, (lists, log_probs), node = crf.decode(), crf.nbest(4), crf.marginals()
    for i, table in enumerate(tables):
        d = fg.StringDistribution(table.detach().numpy())
        assert decoded[i, MASK[i]].tolist() == d.mode().tolist()
        assert (decoded[i, ~MASK[i]] == -100).all()
        best = d.kbest(4)
        for j, (ids, log_prob) in enumerate(best):
            assert lists[i, j, MASK[i]].tolist() == ids.tolist()
            assert log_probs[i, j].item() == pytest.approx(log_prob, abs=1e-9)
        assert (log_probs[i, len(best) :] == -torch.inf).all()
        assert (lists[i, len(best) :] == -100).all()
        np.testing.assert_allclose(node[i, MASK[i]], d.marginals().sum(axis=1), atol=1e-11)
        assert not node[i, ~MASK[i]].any()


def test_gradcheck_and_no_second_derivative():
    inputs = parts()
    assert torch.autograd.gradcheck(
        lambda *a: crf_of(*a).nll(GOLD, reduction="none"), inputs, fast_mode=True
    )
    assert torch.autograd.gradcheck(lambda *a: crf_of(*a).log_partition(), inputs, fast_mode=True)
    (first,) = torch.autograd.grad(crf_of(*inputs).nll(GOLD), inputs[0], create_graph=True)
    with pytest.raises(fg.NotSupportedError, match="crf_nll"):
        first.sum().backward()


def test_ignored_gold_is_the_mask():
    emissions, transitions, *_ = parts()
    by_mask = fgt.linear_chain_nll(emissions, transitions, GOLD, MASK)
    by_gold = fgt.linear_chain_nll(emissions, transitions, GOLD.masked_fill(~MASK, -100))
    assert by_gold.item() == by_mask.item()


def test_samples_have_the_marginals():
    crf = crf_of(*parts())
    drawn = crf.sample(20_000, rng=0)
    assert drawn.shape == (4, 20_000, 5)
    shares = torch.nn.functional.one_hot(drawn.clamp(min=0), 3).double().mean(dim=1)
    shares[~MASK] = 0.0
    assert (shares - crf.marginals()).abs().max() < 0.015  # four standard errors
    assert (drawn.transpose(1, 2)[~MASK] == -100).all()
    assert torch.equal(drawn[:, :10], crf_of(*parts()).sample(20_000, rng=0)[:, :10])


def test_mbr_is_the_largest_marginal():
    crf = crf_of(*parts())
    expected = crf.marginals().argmax(dim=2)
    assert torch.equal(crf.mbr()[MASK], expected[MASK])
    assert (crf.mbr()[~MASK] == -100).all()


def test_bits_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr("fstgrad.torch.chain_operators.SMALL", 0)
    emissions = torch.randn(70, 6, 5, requires_grad=True)
    transitions, gold = torch.randn(5, 5, requires_grad=True), torch.randint(5, (70, 6))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            value = fgt.linear_chain_nll(emissions, transitions, gold)
            found.append([value, *torch.autograd.grad(value, (emissions, transitions))])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_gold_of_any_integer_type(dtype):
    emissions, transitions, *_ = parts()
    expected = fgt.CRF(emissions, transitions, MASK).nll(GOLD)
    assert fgt.CRF(emissions, transitions, MASK).nll(GOLD.to(dtype)).item() == expected.item()


def test_one_symbol_one_position():
    crf = fgt.CRF(torch.full((1, 1, 1), 7.0), torch.zeros(1, 1))
    assert crf.log_partition().tolist() == [7.0]
    assert crf.decode().tolist() == [[0]]
    assert crf.nbest(3)[1].tolist() == [[0.0, -np.inf, -np.inf]]


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda e, t: fgt.CRF(e[0], t), "emissions has the shape"),
        (lambda e, t: fgt.CRF(e, t[:2]).decode(), "transitions has the shape"),
        (lambda e, t: fgt.CRF(e, t, MASK.long()), "mask is torch.int64"),
        (lambda e, t: fgt.CRF(e * torch.nan, t).log_partition(), r"emissions\[0, 0\] is nan"),
        (lambda e, t: fgt.CRF(e, t + torch.inf).log_partition(), r"transitions\[0\] is inf"),
        (lambda e, t: fgt.CRF(e, t).nll(GOLD + 1), "the tag 3"),
        (lambda e, t: fgt.CRF(e, t).nll(GOLD[:2]), "gold has the shape"),
        (lambda e, t: fgt.CRF(e, t).nll(GOLD, reduction="max"), "none, mean, sum"),
        (lambda e, t: fgt.CRF(e, t).nbest(0), "k"),
        (lambda e, t: fgt.CRF(e, t).nll(GOLD.float()), "gold is torch.float32"),
        (lambda e, t: fgt.CRF(e.long(), t), "floating-point"),
    ],
)
def test_bad_input(call, said):
    emissions, transitions, *_ = (tensor.detach() for tensor in parts())
    with pytest.raises(fg.InvalidInputError, match=said):
        call(emissions, transitions)


def test_forbidden_strings():
    emissions, transitions, *_ = (tensor.detach() for tensor in parts())
    none = fgt.CRF(emissions, torch.full_like(transitions, -torch.inf))
    for call in (none.log_partition, none.decode, none.marginals, lambda: none.sample(1)):
        with pytest.raises(fg.InfeasibleError, match="item 0"):
            call()
    with pytest.raises(fg.InfeasibleError, match="item 2: no position is left"):
        fgt.CRF(emissions, transitions, MASK & False).log_partition()
    emissions[1, 0, 2] = -torch.inf
    with pytest.raises(fg.InfeasibleError, match=r"gold\[1\]"):
        fgt.CRF(emissions, transitions).nll(GOLD)


@pytest.mark.parametrize(("items", "length", "n"), [(1, 1, 1), (33, 1, 3), (65, 4, 2), (32, 3, 33)])
def test_blocks_of_items_of_any_length(items, length, n):
    """Items are solved in blocks of 32; each has the gradients of its own distribution."""
    rng = np.random.default_rng(items)
    emissions, transitions = rng.normal(size=(items, length, n)), rng.normal(size=(n, n))
    weights, lengths = rng.normal(size=items), rng.integers(1, length + 1, size=items)
    gold = np.where(np.arange(length) < lengths[:, None], n - 1, -100)
    tensors = [torch.tensor(table, requires_grad=True) for table in (emissions, transitions)]
    value = fgt.CRF(*tensors).nll(torch.tensor(gold), reduction="none")
    value.backward(torch.tensor(weights))
    by_emission, by_step = np.zeros_like(emissions), np.zeros_like(transitions)
    for i, size in enumerate(lengths):
        scores = np.zeros((size, n + 1, n))
        scores[:, :n] = transitions
        own = fg.StringDistribution(scores + emissions[i, :size, None, :])
        expected = own.marginals().copy()
        path = np.full(size, n - 1)
        assert value[i].item() == pytest.approx(-own.log_prob(path), abs=1e-10)
        expected -= own.parts(path)
        by_emission[i, :size] = weights[i] * expected.sum(axis=1)
        by_step += weights[i] * expected[:, :n].sum(axis=0)
    np.testing.assert_allclose(tensors[0].grad, by_emission, rtol=0, atol=1e-10)
    np.testing.assert_allclose(tensors[1].grad, by_step, rtol=0, atol=1e-10)


def test_one_tag_and_positions_to_ignore():
    """The only string of one tag is certain, however much of it is ignored."""
    emissions = torch.full((2, 3, 1), 0.7, dtype=torch.float64, requires_grad=True)
    gold = torch.tensor([[0, 0, -100], [-100, 0, -100]])
    loss = fgt.CRF(emissions, torch.zeros(1, 1, dtype=torch.float64)).nll(gold)
    loss.sum().backward()
    np.testing.assert_allclose(loss.detach(), 0.0, atol=1e-12)
    np.testing.assert_allclose(emissions.grad, 0.0, atol=1e-12)


@pytest.mark.parametrize("by", [2e5, -2e5])
def test_a_constant_of_all_positions_is_in_log_z(by):
    """Beyond 1e5 nats, offsets are subtracted; only positions inside the mask count."""
    emissions, transitions, start, end = (tensor.detach() for tensor in parts())
    far = crf_of(emissions + by, transitions, start, end).log_partition()
    near = crf_of(emissions, transitions, start, end).log_partition()
    torch.testing.assert_close(far, near + by * MASK.sum(dim=1), rtol=1e-14, atol=0)


@pytest.mark.parametrize("mask", [-1e9, -1e30, 1e12])
@pytest.mark.parametrize("position", [0, 1, 3, 4, None])
def test_a_position_that_is_masked_whole_costs_no_digits(mask, position):
    """Also the first or the last one of a sequence, to which `start` or `end` is added.

    None: all transitions are masked.
    """
    one, other = (crf_of(*(tensor.detach().clone() for tensor in parts())) for _ in range(2))
    for crf, level in ((one, mask), (other, 0.0)):
        if position is None:
            crf.transitions.fill_(level)
        else:
            crf.emissions[:, position] = level
    for found, expected in (
        (one.nll(GOLD, reduction="none"), other.nll(GOLD, reduction="none")),
        (one.marginals(), other.marginals()),
        (one.nbest(5)[1], other.nbest(5)[1]),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(one.nbest(5)[0], other.nbest(5)[0])
    assert torch.equal(one.sample(9, rng=0), other.sample(9, rng=0))
