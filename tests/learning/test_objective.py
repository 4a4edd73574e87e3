import os
import pathlib

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.cache import AutomatonCache
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
PAIRS = [("x", "cab"), ("y", "ab"), ("z", "bbca")]

# loss -> its value by the oracle, for ids
LOSSES = {
    "edit": (fg.EditDistance(ABC, 0.5, 1.5, 1.0), lambda y, z: oracle.edit_distance(
        y, z, insert=0.5, delete=1.5)),
    "smith-waterman": (fg.SmithWaterman(ABC), oracle.smith_waterman),
    "ngram": (fg.NGram(ABC, 2), lambda y, z: oracle.ngram_loss(y, z, 2)),
    "hamming": (fg.Hamming(ABC), oracle.hamming),
    "none": (None, lambda y, z: 0.0),
}  # fmt: skip


def naive(features, w, pairs, of_pair, kind):
    """Mean objective, gradient and log Z of each pair by enumeration."""
    values, gradients, log_zs = [], [], []
    for x, y in pairs:
        gold = tuple(int(i) for i in ABC.encode(y))
        losses = [of_pair(z, gold) for z in oracle.all_strings(len(ABC), len(y))]
        scores = features.scores(w, x, len(y))
        function = oracle.risk if kind == "risk" else oracle.softmax_margin
        value, table = function(*([scores] if kind == "risk" else [scores, gold]), losses)
        base = [0.0 if np.isfinite(loss) else np.inf for loss in losses]
        values.append(value)
        gradients.append(features.gradient(table, x))
        log_zs.append(oracle.log_partition(scores, base if kind == "risk" else losses))
    return np.mean(values), np.mean(gradients, axis=0), log_zs


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(
    "kind, name",
    [("softmax-margin", name) for name in LOSSES]
    + [("risk", name) for name in LOSSES if name != "none"]
    + [("crf", "none")],
)
def test_objective_is_that_of_enumeration(kind, name, order):
    loss, of_pair = LOSSES[name]
    features = fg.QGramCounts(ABC, order)
    w = np.random.default_rng(order).normal(size=features.shape)
    objective = fg.PairObjective(features, loss, kind)
    value, gradient, log_zs = naive(features, w, PAIRS, of_pair, kind)
    mine, my_gradient = objective.mean(w, PAIRS)
    assert mine == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(my_gradient, gradient, rtol=1e-10, atol=1e-12)
    for (x, y), log_z in zip(PAIRS, log_zs, strict=True):
        assert objective(w, x, y).log_partition == pytest.approx(log_z, rel=1e-10)
        assert objective.distribution(w, x, y).log_partition() == pytest.approx(log_z, rel=1e-10)


@pytest.mark.parametrize("kind", ["softmax-margin", "risk"])
def test_gradient_in_w_is_the_central_difference(kind):
    features = fg.PositionalQGrams(ABC, 2, max_length=5)
    objective = fg.PairObjective(features, fg.EditDistance(ABC), kind, cap=2.0)
    w = np.random.default_rng(0).normal(size=features.shape)
    _, gradient = objective.mean(w, PAIRS)
    step = 1e-5
    for index in [(0, 3, 1), (1, 0, 1), (2, 2, 0), (4, 1, 1)]:
        ends = []
        for sign in (1, -1):
            moved = w.copy()
            moved[index] += sign * step
            ends.append(objective.mean(moved, PAIRS)[0])
        assert gradient[index] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-9)


@pytest.mark.parametrize("kind", ["softmax-margin", "risk"])
def test_engines_agree(kind):
    features, loss = fg.QGramCounts(ABC, 2), fg.EditDistance(ABC)
    w = np.random.default_rng(1).normal(size=features.shape)
    layered = fg.PairObjective(features, loss, kind).mean(w, PAIRS)
    reference = fg.PairObjective(features, loss, kind, engine="openfst").mean(w, PAIRS)
    assert layered[0] == pytest.approx(reference[0], rel=1e-6)
    np.testing.assert_allclose(layered[1], reference[1], atol=1e-6)


def test_crf_takes_no_loss():
    features = fg.QGramCounts(ABC, 2)
    w = np.ones(features.shape)
    with_loss = fg.PairObjective(features, fg.Hamming(ABC), "crf")(w, None, "abc")
    without = fg.PairObjective(features)(w, None, "abc")
    assert with_loss.value == without.value
    assert with_loss.states == without.states == 0


def test_a_cap_is_a_cap():
    features = fg.QGramCounts(ABC, 1)
    objective = fg.PairObjective(features, fg.Hamming(ABC), "risk", cap=1.0)
    # uniform y: P(y = y_i) = 1/9, every other loss is at least 1
    assert objective(np.zeros(3), None, "ab").value == pytest.approx(8 / 9, rel=1e-12)


@pytest.mark.parametrize("kind", ["softmax-margin", "risk"])
def test_a_pruned_objective_is_that_of_the_pruned_automaton(kind):
    features, loss = fg.QGramCounts(ABC, 2), fg.EditDistance(ABC)
    w = np.random.default_rng(4).normal(size=features.shape)
    objective = fg.PairObjective(features, loss, kind, prune=1.0)
    part, b = objective(w, None, "abca"), loss.compile("abca", prune=1.0)
    scores = features.scores(w, None, 4)
    of_scores = fg.softmax_margin(scores, "abca", b) if kind != "risk" else fg.risk(scores, b)
    assert (part.value, part.method, part.states) == (of_scores[0], "pruned", b.num_states)
    assert part.value != fg.PairObjective(features, loss, kind)(w, None, "abca").value
    with fg.Batch(objective, jobs=1) as batch:
        assert batch.sums(w, [(None, "abca")]).value == part.value


def test_the_value_of_a_pruned_direct_loss_is_the_full_loss_of_the_best_string():
    features, loss = fg.QGramCounts(ABC, 1), fg.EditDistance(ABC)
    w = np.full(features.shape, -100.0)
    w[..., 2] = 0.0  # the best string is "ccc", of loss 3
    part = fg.PairObjective(features, loss, "direct", prune=0.5)(w, None, "aba")
    assert part.value == loss("ccc", "aba") == 3.0
    assert loss.compile("aba", prune=0.5).loss("ccc") == np.inf


EDIT = fg.EditDistance(ABC)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda f: fg.PairObjective(f, None, "risk"), "'risk' without a loss"),
        (lambda f: fg.PairObjective(f, EDIT, prune=-1.0), "prune is -1.0"),
        (lambda f: fg.PairObjective(f, prune=1.0), "prune is for a loss"),
        (lambda f: fg.PairObjective(f, EDIT, prune=1.0, cap=2.0), "prune is 1 with a cap"),
        (lambda f: fg.PairObjective(f, None, "hinge"), "kind is 'hinge'"),
        (lambda f: fg.PairObjective(f, fg.Hamming(fg.Alphabet("ab"))), "the features have"),
        (lambda f: fg.PairObjective(f)(np.zeros((3, 3)), None, ""), "y is empty"),
        (lambda f: fg.PairObjective(f)(np.zeros((3, 3)), None, "abx"), r"y\[2\] is 'x'"),
        (lambda f: fg.PairObjective(f).mean(np.zeros((3, 3)), []), "pairs is empty"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call(fg.QGramCounts(ABC, 2))


def long_pair():
    """Forty letters over ten, and weights without positions."""
    alphabet = fg.Alphabet("abcdefghij")
    y = "".join(alphabet.decode(np.random.default_rng(0).integers(10, size=40)))
    w = np.random.default_rng(1).normal(size=(10, 10))
    return alphabet, y, w


def test_auto_beyond_exact_determinization():
    """Exact would take more states than a second allows; the interval is as narrow as asked."""
    alphabet, y, w = long_pair()
    objective = fg.PairObjective(
        fg.QGramCounts(alphabet, 2), fg.EditDistance(alphabet), method="auto"
    )
    part = objective(w, "x", y)
    assert part.method == "sampled"
    assert part.proposal.startswith("band")
    assert part.reason.startswith("exact exceeds")
    assert part.is_reliable
    assert part.lower <= part.value <= part.upper <= part.lower + 0.07
    again = objective(w, "x", y)
    assert (again.value, again.lower) == (part.value, part.lower)
    scores = objective.features.scores(w, "x", 40)
    above, _ = fg.softmax_margin(scores, y, objective.loss.compile(y, band=2))
    assert part.value <= above  # L_2 >= L


def test_an_estimate_that_is_not_reliable_warns():
    alphabet, y, w = long_pair()
    objective = fg.PairObjective(
        fg.QGramCounts(alphabet, 2),
        fg.SmithWaterman(alphabet, match=-6.0),
        method="sampled",
        proposal="plain",
    )
    with pytest.warns(RuntimeWarning, match=r"not reliable: .* 95% in \["):
        part = objective(w, "x", y)
    assert not part.is_reliable
    with fg.Batch(objective) as batch, pytest.warns(RuntimeWarning, match="not reliable") as seen:
        batch.sums(w, [("x", y), ("x", y)])
    assert len(seen) == 1


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_a_training_counts_estimates_that_are_not_reliable(optimizer):
    model = fg.SequenceModel(
        "smith-waterman", epochs=2, optimizer=optimizer, method="sampled", samples=20
    )
    with pytest.warns(RuntimeWarning, match="3 of 3 estimates of softmax-margin are not") as seen:
        model.fit(["abcd", "bcda", "cabd"], ["bcda", "abcd", "dbca"])
    assert len(seen) == 1
    assert all(epoch.unreliable >= 3 for epoch in model.history_)


def test_a_budget_is_above_zero():
    alphabet, _, _ = long_pair()
    for name in ("seconds", "memory", "width"):
        with pytest.raises(fg.InvalidInputError, match=name):
            fg.PairObjective(fg.QGramCounts(alphabet, 2), method="auto", **{name: 0.0})


@pytest.mark.parametrize("kind", ["hinge", "raml", "direct"])
def test_other_objectives_are_those_of_the_scores(kind):
    """Through the features: the same value, and the adjoint of the same table."""
    abc = fg.Alphabet("abc")
    features, loss = fg.QGramCounts(abc, 2), fg.EditDistance(abc)
    w = np.random.default_rng(0).normal(size=(3, 3))
    objective = fg.PairObjective(features, loss, kind, temperature=0.7, epsilon=0.3)
    part = objective(w, "x", "abca")
    scores, b = features.scores(w, "x", 4), loss.compile("abca")
    value, table = {
        "hinge": lambda: fg.hinge(scores, "abca", b),
        "raml": lambda: fg.raml(scores, b, 0.7),
        "direct": lambda: fg.direct_loss(scores, b, 0.3),
    }[kind]()
    expected = np.zeros((3, 3))
    features.accumulate(table, "x", expected)
    assert part.value == value
    np.testing.assert_array_equal(part.gradient, expected)
    capped = fg.PairObjective(features, loss, kind, cap=1.0)(w, "x", "abca")
    assert (capped.cap, capped.method) == (1.0, "capped")
    if kind != "direct":  # whose value is constant in pieces
        step = 1e-6 * np.random.default_rng(1).normal(size=(3, 3))
        up, down = (objective(w + s * step, "x", "abca").value for s in (1, -1))
        assert (up - down) / 2 == pytest.approx(float((part.gradient * step).sum()), rel=1e-6)
    for wrong in ({"method": "sampled"}, {"method": "auto"}, {"cap": "auto"}):
        with pytest.raises(fg.NotSupportedError, match="exactly"):
            fg.PairObjective(features, loss, kind, **wrong)
    with pytest.raises(fg.InvalidInputError, match="without a loss"):
        fg.PairObjective(features, None, kind)
    model = fg.SequenceModel("edit", objective=kind, order=1, epochs=2, proposal="band", seconds=2)
    assert model.fit(["abc", "ca"], ["xyz", "zx"]).coef_.shape[0] > 0


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_stays_flat_over_auto_pairs():
    """Exact and sampled pairs in turn: once the cache is full, nothing more is kept."""

    def resident():
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    rng, abc = np.random.default_rng(0), fg.Alphabet("abcdef")
    w, out = rng.normal(size=(6, 6)), np.zeros((6, 6))
    objective = fg.PairObjective(
        fg.QGramCounts(abc, 2),
        fg.EditDistance(abc),
        method="auto",
        seconds=0.005,
        cache=AutomatonCache(2**22),
    )
    methods, early = set(), 0
    for i in range(1200):
        y = rng.integers(6, size=int(rng.integers(4, 16)))
        methods.add(objective.pair(w, "x", y, out=out).method)
        if i == 399:
            early = resident()
    assert methods == {"exact", "sampled"}
    assert resident() - early < 2 * 2**20  # 0.7 MB over 9,000 pairs
