"""The pieces of `benchmarks/g2p.py`: the pair n-gram, the networks, and the errors of runs."""

import itertools
import math
import pathlib
import sys
from collections import Counter

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.comparison import compare

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("_pair_ngram", "_ctc_network", "_g2p_runs"):
        sys.modules.pop(name, None)


def sequences(count, seed=0):
    rng = np.random.default_rng(seed)
    tokens = [(a, (b,)) for a, b in ("ax", "ay", "bx", "by", "cz")]
    shares = [0.4, 0.1, 0.2, 0.1, 0.2]
    return [
        tuple(tokens[i] for i in rng.choice(5, size=rng.integers(1, 6), p=shares))
        for _ in range(count)
    ]


def direct(data, order, token, context, start, end):
    """p(token | context) by the recursion, from counts that are made anew for every context."""
    padded = [(start, *row, end) for row in data]
    grams = [
        tuple(row[i : i + k]) for row in padded for k in range(1, order + 1)
        for i in range(len(row) - k + 1) if i + k > 1
    ]  # fmt: skip
    vocabulary = {token for row in padded for token in row[1:]}

    def counts(k):
        """Of the k-grams that end behind the start: occurrences, or different tokens before."""
        found = {g for g in grams if len(g) == k}
        if k == order:
            return Counter(g for g in grams if len(g) == k)
        longer = {g for g in grams if len(g) == k + 1}
        at_start = Counter(g for g in grams if len(g) == k and g[0] == start)
        return {g: at_start.get(g, 0) + sum(h[1:] == g for h in longer) for g in found}

    def p(token, context):
        own = counts(len(context) + 1)
        number = Counter(own.values())
        if all(number[k] for k in (1, 2, 3, 4)):
            y = number[1] / (number[1] + 2 * number[2])
            cuts = [k - (k + 1) * y * number[k + 1] / number[k] for k in (1, 2, 3)]
            cuts = [min(max(cut, 0.05), k - 0.05) for k, cut in zip((1, 2, 3), cuts, strict=True)]
        else:
            cuts = [0.5, 0.5, 0.5]
        below = p(token, context[1:]) if context else 1 / (len(vocabulary) + 1)
        here = {g: c for g, c in own.items() if g[:-1] == context}
        if not here:
            return below
        total = sum(here.values())
        left = sum(cuts[min(c, 3) - 1] for c in here.values())
        c = here.get((*context, token), 0)
        return (c - cuts[min(c, 3) - 1] if c else 0) / total + left / total * below

    return p(token, context[max(0, len(context) - order + 1) :])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_kneser_ney_is_its_definition_and_sums_to_one(order):
    import _pair_ngram as pairs

    data = sequences(60)
    model = pairs.KneserNey(data, order)
    tokens = sorted(model.tokens)
    unknown = ("?", ("?",))
    contexts = [(), (pairs.START,), (pairs.START, *data[0]), data[1], (unknown, tokens[1])]
    for context in contexts:
        found = [model.p(token, context) for token in (*tokens, unknown)]
        assert sum(found) == pytest.approx(1, abs=1e-12)
        expected = [
            direct(data, order, token, context, pairs.START, pairs.END)
            for token in (*tokens, unknown)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        short = model.state(context)
        np.testing.assert_allclose(found, [model.p(t, short) for t in (*tokens, unknown)], atol=0)


def test_decoding_is_enumeration():
    import _pair_ngram as pairs

    rng = np.random.default_rng(1)
    spelled = {"a": ["x", "y"], "b": ["xy", "z"], "c": ["", "z"]}
    data = []
    for _ in range(60):
        x = tuple(rng.choice([*"abc"], size=rng.integers(1, 5)))
        y = tuple("".join(spelled[s][int(rng.integers(2))] for s in x))
        data += [(x, y)] if y else []
    model = pairs.PairNGram(data, order=3, beam=10**6)
    for x in [("a", "b", "c"), ("c", "c", "a", "b"), ("b",)]:
        best, found = -np.inf, None
        for strings in itertools.product(*(model.given[s] for s in x)):
            history = (pairs.START,)
            total = 0.0
            for token in (*zip(x, strings, strict=True), pairs.END):
                total += math.log(model.model.p(token, history))
                history = (*history, token)
            if total > best:
                best, found = total, sum(strings, ())
        assert model.predict(x) == found


def test_objectives_of_networks_are_those_of_the_library():
    torch = pytest.importorskip("torch")
    import _ctc_network as networks

    import fstgrad.torch as fgt

    torch.manual_seed(0)
    scores = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    gold, lengths = [[1, 2], [3, 3], [2]], torch.tensor([5, 5, 3])
    loss = fg.EditDistance(fg.Alphabet("_abc"))
    cost = networks.WRONG
    costly = fg.EditDistance(fg.Alphabet("_abc"), cost, cost, cost)
    options = {"blank": 0, "lengths": lengths}
    nll = fgt.ctc_nll(scores.log_softmax(-1), gold, reduction="none", **options)
    own = networks.negative_log_likelihood(scores, gold, lengths)
    torch.testing.assert_close(own, nll, atol=1e-10, rtol=0)
    risk = fgt.ctc_risk(scores, gold, loss, cap=1, **options)
    for ours, value in (
        (networks.likelihood, nll.mean()),
        (networks.margin, fgt.ctc_softmax_margin(scores, gold, costly, cap=cost, **options)),
        (networks.risk, risk),
        (networks.smoothed_risk, nll.mean() + 3 * risk),
        (networks.scaled, 4 * nll.mean()),
    ):
        found = ours(own)
        torch.testing.assert_close(found, value, atol=1e-10, rtol=0)
        ((expected,), (gradient,)) = (
            torch.autograd.grad(v, scores, retain_graph=True) for v in (value, found)
        )
        torch.testing.assert_close(gradient, expected, atol=1e-10, rtol=0)


def test_bigrams_are_enumeration():
    torch = pytest.importorskip("torch")
    import _ctc_network as networks

    torch.manual_seed(0)
    scores, lengths = torch.randn(3, 5, 4, dtype=torch.float64), torch.tensor([5, 4, 1])
    gold = [[1, 2, 2], [3, 3], [2]]
    bigrams = networks.Bigrams(4).double()
    plain = networks.negative_log_likelihood(scores, gold, lengths)
    equal = networks.negative_log_likelihood(scores, gold, lengths, bigrams)
    torch.testing.assert_close(equal, plain, atol=1e-10, rtol=0)  # with weights of zero
    bigrams.table.data.normal_()
    found = networks.negative_log_likelihood(scores, gold, lengths, bigrams)
    decoded = bigrams.best(scores, lengths)
    log_p = scores.log_softmax(-1)
    for i, length in enumerate(lengths.tolist()):
        total, best, own = 0.0, (-np.inf, []), 0.0
        for path in itertools.product(range(4), repeat=length):
            y = networks.collapsed(path)
            score = sum(float(log_p[i, t, label]) for t, label in enumerate(path))
            score += sum(bigrams.table[a, b].item() for a, b in itertools.pairwise([0, *y]))
            total += math.exp(score)
            own += math.exp(score) if y == gold[i] else 0.0
            best = max(best, (score, list(path)))
        assert found[i].item() == pytest.approx(math.log(total / own), abs=1e-10)
        assert decoded[i] == best[1]


def test_networks_learn_and_predict(monkeypatch):
    pytest.importorskip("torch")
    import _ctc_network as networks

    monkeypatch.setattr(networks.time, "process_time", itertools.count().__next__)  # per step
    pairs = [(tuple(x), tuple(y)) for x, y in (("ab", "xy"), ("ba", "yx"), ("aab", "xxy"))] * 8
    for bigrams in (False, True):
        model = networks.CTCModel(pairs, bigrams=bigrams).fit(networks.STAGES["margin"], 80)
        assert model.epochs == 79
        assert [model.predict([x])[0] for x, _ in pairs[:2]] == [y for _, y in pairs[:2]]


def test_paths_collapse():
    pytest.importorskip("torch")
    import _ctc_network as networks

    assert networks.collapsed([0, 1, 1, 0, 1, 2, 2, 0]) == [1, 1, 2]
    assert networks._needed([1, 1, 2]) == 4


def test_errors_of_one_run_are_those_of_a_comparison():
    import _g2p_runs as runs

    rng = np.random.default_rng(0)
    targets = ["".join(rng.choice([*"abc"], size=4)) for _ in range(400)]
    first, second = (
        [y if rng.random() < right else y[1:] for y in targets] for right in (0.5, 0.7)
    )
    expected = compare(first, second, targets)
    one, two = (runs.Errors.of([found], targets) for found in (first, second))
    for found, value in (
        (one.word_error(), expected.word_error[0]),
        (two.symbol_error(), expected.symbol_error[1]),
        (two.word_difference(one), expected.word_difference),
    ):
        assert found.value == pytest.approx(value.value, abs=1e-12)
        np.testing.assert_allclose(found[1:], value[1:], atol=0.01)  # other draws


def test_intervals_include_the_variation_between_runs():
    import _g2p_runs as runs

    targets = ["ab"] * 200
    equal = [[*["ab"] * 100, *["b"] * 100]] * 4
    varied = [[*["ab"] * k, *["b"] * (200 - k)] for k in (20, 60, 140, 180)]
    narrow, wide = (runs.Errors.of(found, targets).word_error() for found in (equal, varied))
    assert narrow.value == wide.value == 0.5
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)
