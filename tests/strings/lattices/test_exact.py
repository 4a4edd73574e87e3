"""Every quantity of a lattice against enumeration of its paths, and against the dense engine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fstgrad as fg
from fstgrad.openfst import Fst, FstArrays, from_arrays
from tests.helpers.losses import KINDS, make_loss
from tests.oracles.lattices import Paths
from tests.strings.lattices.random_lattice import ABC, RandomLattice

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True)
LATTICES = {
    "seed": st.integers(0, 2**32 - 1),
    "scale": st.sampled_from([1.0, 50.0]),
    "masked": st.booleans(),
}


def is_feasible(case):
    """Whether there is a path of finite score; if not, the lattice says so."""
    if case.paths.paths and case.paths.log_z() > -np.inf:
        return True
    with pytest.raises(fg.InfeasibleError):
        case.lattice().log_partition()
    return False


@SETTINGS
@given(**LATTICES)
def test_quantities_of_paths(seed, scale, masked):
    case = RandomLattice(seed, scale=scale, masked=masked)
    if not is_feasible(case):
        return
    lattice, paths = case.lattice(), case.paths
    assert lattice.num_paths == len(paths.paths)
    assert lattice.log_partition() == pytest.approx(paths.log_z(), abs=1e-10 * scale)
    case.same(lattice, lattice.marginals(), paths.posteriors(), atol=1e-10)
    assert lattice.entropy() == pytest.approx(paths.entropy(), abs=1e-10 * scale)
    direction = np.random.default_rng(seed).normal(size=lattice.num_arcs)
    expected = paths.covariance(case.table(lattice, direction))
    case.same(lattice, lattice.covariance_product(direction), expected, atol=1e-10)
    other = np.random.default_rng(seed + 1).normal(size=lattice.num_arcs)
    expected = paths.third_order(case.table(lattice, direction), case.table(lattice, other))
    case.same(lattice, lattice.third_order(direction, other), expected, atol=1e-10)
    scores = np.where(np.isfinite(lattice.scores), lattice.scores, 0.0)
    value, slope = lattice.entropy_and_gradient()
    expected = -paths.covariance(case.table(lattice, scores))
    assert value == lattice.entropy()
    case.same(lattice, slope, expected, atol=1e-10 * scale)
    arcs, log_prob = lattice.best_path()
    assert log_prob == pytest.approx(paths.totals.max() - paths.log_z(), abs=1e-10 * scale)
    assert tuple(lattice.string(arcs)) in paths.strings


@SETTINGS
@given(**LATTICES)
def test_quantities_of_strings(seed, scale, masked):
    case = RandomLattice(seed, scale=scale, masked=masked)
    if not is_feasible(case):
        return
    lattice, paths = case.lattice(), case.paths
    sums = paths.log_sums_of_strings()
    for string, total in sums.items():
        y = np.array(string, dtype=np.int64)
        log_prob = total - paths.log_z()
        assert lattice.log_prob(y) == pytest.approx(log_prob, abs=1e-10 * scale)
        _, posteriors = paths.posteriors_of_string(string)
        case.same(lattice, lattice.parts(y), posteriors, atol=1e-10)
        value, gradient = lattice.nll(y)
        assert value == pytest.approx(-log_prob, abs=1e-10 * scale)
        case.same(lattice, gradient, paths.posteriors() - posteriors, atol=1e-10)
    missing = np.array([0] * 10)
    assert lattice.log_prob(missing) == -np.inf
    with pytest.raises(fg.InfeasibleError, match="closest"):
        lattice.nll(missing)


@SETTINGS
@given(**LATTICES)
def test_kbest_are_the_strings_of_the_largest_sums(seed, scale, masked):
    case = RandomLattice(seed, scale=scale, masked=masked)
    if not is_feasible(case):
        return
    lattice, sums = case.lattice(), case.paths.log_sums_of_strings()
    best = lattice.kbest(len(sums) + 5)
    assert len(best) == len(sums)
    assert {tuple(y.tolist()) for y, _ in best} == set(sums)
    for (y, log_prob), expected in zip(best, sorted(sums.values())[::-1], strict=True):
        assert log_prob == pytest.approx(expected - case.paths.log_z(), abs=1e-10 * scale)
        assert log_prob == pytest.approx(
            sums[tuple(y.tolist())] - case.paths.log_z(), abs=1e-10 * scale
        )
    assert lattice.kbest(1)[0][1] == best[0][1]


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(**LATTICES)
def test_risk_and_softmax_margin(kind, seed, scale, masked):
    case = RandomLattice(seed, scale=scale, masked=masked)
    if not is_feasible(case):
        return
    rng = np.random.default_rng(seed)
    lattice, paths = case.lattice(), case.paths
    target = tuple(rng.integers(3, size=int(rng.integers(1, 5))).tolist())
    loss, by_hand = make_loss(kind, rng, ABC, target)
    losses = {string: by_hand(string) for string in paths.strings}
    sums = paths.log_sums_of_strings()
    if not any(losses[string] < np.inf for string in sums):
        with pytest.raises(fg.InfeasibleError):
            fg.risk(lattice, np.array(target), loss)
        return
    value, gradient = fg.risk(lattice, np.array(target), loss)
    expected, table = paths.risk(losses)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    case.same(lattice, gradient, table, atol=1e-10)
    b = lattice.compile(loss, np.array(target))
    gold = next(iter(sums))
    value, gradient = fg.softmax_margin(lattice, np.array(gold, dtype=np.int64), b)
    expected, table = paths.softmax_margin(gold, losses)
    assert value == pytest.approx(expected, abs=1e-10 * scale)
    case.same(lattice, gradient, table, atol=1e-10)
    closest, least = b.closest()
    assert least == pytest.approx(min(losses[string] for string in sums), abs=1e-10)
    assert losses[tuple(closest.tolist())] == pytest.approx(least, abs=1e-10)
    assert b.range[1] == pytest.approx(
        max(loss for loss in losses.values() if loss < np.inf), abs=1e-10
    )


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "confusion", "ngram-smooth"])
@SETTINGS
@given(seed=st.integers(0, 2**32 - 1), cap=st.sampled_from([0.5, 1.0, 1.23]))
def test_cap_is_the_minimum(kind, seed, cap):
    case = RandomLattice(seed)
    if not is_feasible(case):
        return
    rng = np.random.default_rng(seed)
    target = tuple(rng.integers(3, size=3).tolist())
    loss, by_hand = make_loss(kind, rng, ABC, target)
    lattice = case.lattice()
    value, gradient = fg.risk(lattice, lattice.compile(loss, np.array(target), cap=cap))
    expected, table = case.paths.risk({s: min(by_hand(s), cap) for s in case.paths.strings})
    assert value == pytest.approx(expected, abs=1e-10)
    case.same(lattice, gradient, table, atol=1e-10)


@pytest.mark.parametrize(
    "kinds", [("edit", "smith-waterman"), ("hamming", "edit"), ("ngram", "edit", "ngram-smooth")]
)
@SETTINGS
@given(seed=st.integers(0, 2**32 - 1), capped=st.booleans())
def test_sums_of_losses(kinds, seed, capped):
    case = RandomLattice(seed)
    if not is_feasible(case):
        return
    rng = np.random.default_rng(seed)
    target = tuple(rng.integers(3, size=3).tolist())
    pairs = [make_loss(kind, rng, ABC, target) for kind in kinds]
    losses = {s: 0.5 * pairs[0][1](s) + sum(f(s) for _, f in pairs[1:]) for s in case.paths.strings}
    total = 0.5 * pairs[0][0]
    for loss, _ in pairs[1:]:
        total = total + loss
    lattice = case.lattice()
    cap = 1.25 if capped and "ngram" not in kinds else None
    if cap is not None:
        losses = {s: min(loss, cap) for s, loss in losses.items()}
    if not any(losses[s] < np.inf for s in case.paths.log_sums_of_strings()):
        with pytest.raises(fg.InfeasibleError):
            fg.risk(lattice, lattice.compile(total, np.array(target), cap=cap))
        return
    b = lattice.compile(total, np.array(target), cap=cap)
    value, gradient = fg.risk(lattice, b)
    expected, table = case.paths.risk(losses)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    case.same(lattice, gradient, table, atol=1e-10)


@SETTINGS
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["edit", "hamming", "confusion"]))
def test_several_references_are_the_minimum(seed, kind):
    case = RandomLattice(seed)
    if not is_feasible(case):
        return
    rng = np.random.default_rng(seed)
    targets = [tuple(rng.integers(3, size=length).tolist()) for length in (2, 3, 3)]
    state = np.random.default_rng(seed)
    loss, _ = make_loss(kind, state, ABC, targets[0])
    by_hand = [make_loss(kind, np.random.default_rng(seed), ABC, target)[1] for target in targets]
    losses = {s: min(each(s) for each in by_hand) for s in case.paths.strings}
    lattice = case.lattice()
    references = fg.Lattice.from_nbest(
        [np.array(target) for target in targets], np.zeros(3), ABC
    ).to_fst()
    if not any(losses[s] < np.inf for s in case.paths.log_sums_of_strings()):
        with pytest.raises(fg.InfeasibleError):
            fg.risk(lattice, references, loss)
        return
    value, gradient = fg.risk(lattice, references, loss)
    expected, table = case.paths.risk(losses)
    assert value == pytest.approx(expected, abs=1e-10)
    case.same(lattice, gradient, table, atol=1e-10)


def delta(scores, abc):
    """Delta^l with scores (l, n + 1, n) as a lattice, and the position of each arc's score."""
    length, n = len(scores), len(abc)
    arcs, where = [], []
    for t in range(length):
        for before in range(n) if t else [n]:
            for symbol in range(n):
                source = 0 if t == 0 else 1 + (t - 1) * n + before
                arcs.append((source, 1 + t * n + symbol, symbol))
                where.append((t, before, symbol))
    source, target, label = np.array(arcs).T
    values = scores[tuple(np.array(where).T)]
    final = [1 + (length - 1) * n + symbol for symbol in range(n)]
    return fg.Lattice.from_arcs(source, target, label, values, abc, final=final), where


@pytest.mark.parametrize("kind", KINDS)
def test_delta_as_a_lattice_equals_the_dense_engine(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    target = (0, 1, 1, 2)
    loss, _ = make_loss(kind, rng, ABC, target)
    scores = rng.normal(size=(4, 4, 3))
    lattice, where = delta(scores, ABC)
    b = loss.compile(np.array(target))
    for mine, dense in [
        (fg.risk(lattice, np.array(target), loss), fg.risk(scores, b)),
        (
            fg.softmax_margin(lattice, np.array(target), loss),
            fg.softmax_margin(scores, np.array(target), b),
        ),
    ]:
        assert mine[0] == pytest.approx(dense[0], abs=1e-11)
        table = np.zeros_like(scores)
        for arc in np.flatnonzero(~lattice.ends):
            table[where[lattice.origin[arc]]] = mine[1][arc]
        used = np.zeros(scores.shape, dtype=bool)
        used[tuple(np.array(where).T)] = True
        np.testing.assert_allclose(table[used], dense[1][used], atol=1e-11)
    d = fg.StringDistribution(scores)
    for (y, log_prob), (dense_y, dense_log_prob) in zip(
        lattice.kbest(20), d.kbest(20), strict=True
    ):
        assert tuple(y) == tuple(dense_y)
        assert log_prob == pytest.approx(dense_log_prob, abs=1e-11)


@pytest.mark.parametrize("kind", ["edit", "ngram-smooth", "confusion"])
def test_gradients_by_central_differences(kind):
    rng = np.random.default_rng(8)
    target = (0, 1, 2)
    loss, _ = make_loss(kind, rng, ABC, target)
    case = RandomLattice(11)
    lattice = case.lattice()
    b = lattice.compile(loss, np.array(target))
    gold = lattice.mode()
    step = 1e-5
    functions = [lambda x: fg.risk(x, b), lambda x: fg.softmax_margin(x, gold, b)]
    for function in functions:
        _, gradient = function(lattice)
        for arc in range(lattice.num_arcs):
            ends = []
            for sign in (1, -1):
                moved = lattice.scores.copy()
                moved[arc] += sign * step
                ends.append(function(lattice.with_scores(moved))[0])
            assert gradient[arc] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_the_oracle_on_a_lattice_by_hand():
    # a:0.5 or b:0 to state 1, then c:0 or nothing; two paths in a hundred words
    lattice = fg.Lattice.from_text("0 1 a -0.5\n0 1 b\n1 2 c\n1\n2", ABC)
    z = 2 * (np.exp(0.5) + 1)
    assert lattice.log_partition() == pytest.approx(np.log(z), abs=1e-12)
    assert lattice.log_prob("ac") == pytest.approx(0.5 - np.log(z), abs=1e-12)
    edit = fg.EditDistance(ABC)
    # losses against "ac": ac 0, a 1, bc 1, b 2
    expected = (0 + np.exp(0.5) * 1 + 1 + 2) / z
    assert fg.risk(lattice, "ac", edit)[0] == pytest.approx(expected, abs=1e-12)
    paths = Paths([(0, 1, 0, 0.5), (0, 1, 1, 0.0), (1, 2, 2, 0.0)], 0, {1: 0.0, 2: 0.0})
    assert paths.log_z() == pytest.approx(np.log(z), abs=1e-12)


def as_fst(case, abc):
    """The arcs of a random lattice as a pynini.Fst with weights -score."""
    names = sorted({s for arc in case.arcs for s in arc[:2]} | set(case.final) | {case.start})
    number = {name: i for i, name in enumerate(names)}
    final = np.full(len(names), np.inf)
    for state, score in case.final.items():
        final[number[state]] = -score
    label = np.array([arc[2] + 1 for arc in case.arcs])
    return from_arrays(
        FstArrays(
            arc_type="log64",
            start=number[case.start],
            final=final,
            source=[number[arc[0]] for arc in case.arcs],
            ilabel=label,
            olabel=label,
            nextstate=[number[arc[1]] for arc in case.arcs],
            weight=[-arc[3] for arc in case.arcs],
        )
    )


@SETTINGS
@given(seed=st.integers(0, 2**32 - 1))
def test_from_fst_and_back(seed):
    case = RandomLattice(seed)
    if not is_feasible(case):
        return
    lattice = fg.Lattice.from_fst(as_fst(case, ABC), ABC)
    again = fg.Lattice.from_fst(lattice.to_fst(), ABC)
    for each in (lattice, again):
        assert isinstance(each.to_fst(), Fst)
        assert each.log_partition() == pytest.approx(case.paths.log_z(), abs=1e-12)
        assert {tuple(y.tolist()) for y, _ in each.kbest(10_000)} == set(
            case.paths.log_sums_of_strings()
        )


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_losses_along_lattices(seed):
    """Risk and margin of a sum, composed part by part, against enumeration of the strings."""
    rng = np.random.default_rng(seed)
    case = RandomLattice(seed)
    if not is_feasible(case):
        return
    target = tuple(int(i) for i in rng.integers(3, size=int(rng.integers(1, 5))))
    names = rng.choice(["edit", "confusion", "smith-waterman", "ngram-smooth"], size=2)
    parts = [make_loss(name, rng, ABC, target) for name in names]
    factor = float(rng.choice([0.5, 1.0, 3.0]))
    loss = parts[0][0] + factor * parts[1][0]
    lattice, paths = case.lattice(), case.paths
    losses = np.array([parts[0][1](y) + factor * parts[1][1](y) for y in paths.strings])
    weights = np.exp(paths.totals - paths.log_z())
    value, _ = fg.risk(lattice, np.array(target), loss)
    assert value == pytest.approx(weights @ losses, abs=1e-10)
    compiled = lattice.compile(loss, np.array(target))
    log_z, _ = compiled.augmented(lattice.graph, lattice.scores)
    assert log_z == pytest.approx(np.logaddexp.reduce(paths.totals + losses), abs=1e-10)


def test_a_sum_of_losses_of_the_empty_string():
    loss = fg.EditDistance(ABC) + 0.5 * fg.EditDistance(ABC, delete_cost=3.0)
    value, gradient = fg.risk(fg.Lattice.from_text("0\n", ABC), "abca", loss)
    assert value == pytest.approx(loss("", "abca"), abs=1e-12)
    assert value > 0
    assert gradient.shape == (0,)


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def expected_counts_and_edits(network, pivot):
    """The expected count of each symbol, and of edits, of a network; its slots sum to 1."""
    counts, edits = dict.fromkeys("abc", 0.0), 0.0
    of_pivot = dict(zip(network.pivot.tolist(), pivot, strict=True))
    assert sorted(of_pivot) == network.pivot.tolist()
    for k, slot in enumerate(network.slots):
        p = {symbol: np.exp(score) for symbol, score in slot}
        assert sum(p.values()) == pytest.approx(1.0, abs=1e-10)
        edits += 1.0 - p.get(of_pivot.get(k), 0.0)
        for symbol in p.keys() - {None}:
            counts[symbol] += p[symbol]
    return counts, edits


@SETTINGS
@given(**LATTICES)
def test_a_confusion_network_keeps_the_words_of_all_paths(seed, scale, masked):
    """Expected counts of symbols against enumeration; edits are at least those of each path."""
    case = RandomLattice(seed, scale=scale, masked=masked)
    if not is_feasible(case):
        return
    lattice, paths = case.lattice(), case.paths
    path = lattice.sample_paths(1, seed)[0]
    for pivot, network in (
        (lattice.string(lattice.best_path()[0]), lattice.to_confusion_network()),
        (lattice.string(path), lattice.to_confusion_network(path)),
    ):
        counts, edits = expected_counts_and_edits(network, ABC.decode(pivot))
        strings = [ABC.decode(np.array(y, dtype=np.int64)) for y in paths.strings]
        for symbol in "abc":
            expected = paths.probs() @ [y.count(symbol) for y in strings]
            assert counts[symbol] == pytest.approx(expected, abs=1e-9)
        least = paths.probs() @ [levenshtein(y, ABC.decode(pivot)) for y in strings]
        assert edits >= least - 1e-9


@SETTINGS
@given(seed=st.integers(0, 2**32 - 1))
def test_the_confusion_network_of_an_nbest_list_has_the_edits_of_each_hypothesis(seed):
    rng = np.random.default_rng(seed)
    lists = ["".join(rng.choice(list("abc"), size=rng.integers(0, 7))) for _ in range(6)]
    scores = rng.normal(size=6)
    lattice = fg.Lattice.from_nbest(lists, scores, ABC)
    counts, edits = expected_counts_and_edits(
        lattice.to_confusion_network(), best := lists[int(scores.argmax())]
    )
    p = np.exp(scores) / np.exp(scores).sum()
    assert edits == pytest.approx(p @ [levenshtein(y, best) for y in lists], abs=1e-9)
    assert counts["a"] == pytest.approx(p @ [y.count("a") for y in lists], abs=1e-9)


def test_a_word_of_all_paths_is_one_word_of_the_confusion_network():
    """The last word of a lattice whose paths have two to five words; one word before forty."""
    abc = fg.Alphabet(["ja", "ich", "will", "bitte", *map(str, range(40))])
    lists = [["ich", "will", "bitte"], ["ja", "bitte"], ["ja", "ich", "will", "will", "bitte"]]
    arcs = [(0, 1, "ja"), (0, 1, None), (1, 2, "ich"), (1, 2, None), (2, 3, "will"), (2, 3, None)]
    columns = zip(*[*arcs, (3, 4, "bitte")], strict=True)
    source, nextstate, words = map(list, columns)
    labels = [-1 if word is None else int(abc.encode([word])[0]) for word in words]
    shared = fg.Lattice.from_arcs(source, nextstate, labels, np.zeros(7), abc, final=[4])
    for lattice in (shared, fg.Lattice.from_nbest(lists, np.zeros(3), abc)):
        slots = lattice.to_confusion_network().slots
        assert slots[-1] == [("bitte", pytest.approx(0.0, abs=1e-12))]
        assert all("bitte" not in dict(slot) for slot in slots[:-1])
    long = fg.Lattice.from_nbest([["bitte"], list(map(str, range(40)))], [1.0, 0.0], abc)
    assert len(long.to_confusion_network().slots) == 40
    empty = fg.Lattice.from_nbest([[], ["ja", "ich"]], [1.0, 0.0], abc).to_confusion_network()
    assert [slot[1][0] for slot in empty.slots] == ["ja", "ich"]
    assert empty.pivot.tolist() == []
    again = fg.Lattice.from_confusion_network(empty.slots, abc)
    assert again.log_prob(["ja", "ich"]) == pytest.approx(2 * np.log(1 / (1 + np.e)))
    with pytest.raises(fg.InvalidInputError, match="path"):
        long.to_confusion_network([99])
