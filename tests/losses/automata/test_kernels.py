"""The compiled kernels against their definitions in numpy."""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses.automata.composition import compose_arrays, string_arrays
from fstgrad.losses.automata.determinize import determinize, minimize, minimize_finals
from fstgrad.losses.automata.machine import Arcs, symbol_classes
from fstgrad.losses.automata.reduction import target_machine
from fstgrad.losses.automata.semiring import PROBABILITY, TROPICAL
from fstgrad.openfst import FstArrays
from fstgrad.strings.algebra import Log, Real
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights
from fstgrad.strings.solve import solve, used_contexts
from fstgrad.strings.tangents import tangent
from tests.helpers.losses import KINDS, make_loss
from tests.oracles import determinization as oracle_determinization
from tests.oracles import reduction as oracle_reduction
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")


@pytest.mark.parametrize("algebra", [Real(), Log()], ids=["real", "log"])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_passes_equal_the_twin(order, algebra, scale):
    """Scale 1 runs the kernel in floats, 200 the one in logarithms; both twins fit at scale 1."""
    rng = np.random.default_rng(order)
    scores = scale * rng.normal(size=(6, *(4,) * (order - 1), 3))
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    b = fg.EditDistance(ABC).compile("abcacb", cap=3)
    if scale > 1 and isinstance(algebra, Real):
        return
    passes = Passes(scores, loss_weights(b, scale=1.0), algebra=algebra)
    expected, _ = passes.forward()
    log_z, marginals = solve(scores, b)
    assert log_z == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(marginals, passes.backward()[0], rtol=0, atol=1e-13)


LOSSES = {
    "edit": fg.EditDistance(ABC),
    "n-gram": fg.NGram(ABC, 3),  # infinite for strings that share no trigram: dead arcs
    "far": fg.EditDistance(ABC, substitute_cost=500.0, insert_cost=300.0, delete_cost=300.0),
}


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("kind, target", [*((k, "cabca") for k in LOSSES), ("edit", "a")])
def test_tangents_equal_the_twin(kind, target, order):
    """Along the losses, along a direction of the scores, and along both; losses weigh or do not."""
    rng = np.random.default_rng(order)
    shape = (len(target), *(4,) * (order - 1), 3)
    scores, direction = rng.normal(size=shape), rng.normal(size=shape)
    scores[rng.random(shape) < 0.1] = -np.inf
    b = LOSSES[kind].compile(target)
    for scale, slope, along in ((0, 1, None), (1, 1, None), (1, 0, direction), (0, 1, direction)):
        paths = loss_weights(b, scale=scale, slope=slope)
        passes = Passes(scores, paths, along, algebra=Log())
        log_z, expected = passes.forward()
        marginals, change = passes.backward()
        found = tangent(scores, b, scale=scale, slope=slope, direction=along)
        assert found.log_partition == pytest.approx(log_z, rel=1e-12)
        assert found.slope == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(found.marginals, marginals, rtol=0, atol=1e-12)
        size = max(1.0, np.abs(change).max())
        np.testing.assert_allclose(found.change, change, rtol=0, atol=1e-12 * size)


def test_a_result_stays_valid_and_comes_again():
    """A step works in memory of its own: what it returned is not written to, and never differs."""
    b = fg.EditDistance(ABC).compile("abcacb")
    first, second = np.random.default_rng(0).normal(size=(2, 6, 4, 3))
    value, gradient = fg.softmax_margin(first, "abcacb", b)
    risk, risk_gradient = fg.risk(first, b)
    kept = gradient.copy(), risk_gradient.copy()
    fg.softmax_margin(second, "abcacb", b)
    fg.risk(second, b)
    again, other = fg.softmax_margin(first, "abcacb", b), fg.risk(first, b)
    assert (value, risk) == (again[0], other[0])
    found = (gradient, risk_gradient), kept, (again[1], other[1])
    for array, copy, repeated in zip(*found, strict=True):
        np.testing.assert_array_equal(array, copy)
        np.testing.assert_array_equal(array, repeated)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_layouts_by_enumeration(loss):
    """Both layouts lead every string along the arcs of B, and give it its loss."""
    b = loss.compile("cabca")
    for layout, contexts in ((b.bigram_layout, 4), (b.plain_layout, 1)):
        for y in oracle.all_strings(3, 5):
            entry, total = contexts - 1, b.initial
            for t, symbol in enumerate(y):
                most = layout.dense[t]
                state = (
                    entry // contexts
                    if entry < most * contexts
                    else (entry - most * (contexts - 1))
                )
                if state >= most:
                    assert layout.symbol[layout.offsets[t] + state] == y[t - 1]
                row, c = layout.offsets[t] + state, layout.class_of[symbol]
                total += layout.cost[row, c] if layout.alive[row, c] else np.inf
                entry = layout.next_entry[row, c] + (symbol if contexts > 1 else 0)
                if total == np.inf:
                    break
            else:
                most = layout.dense[-1]
                state = (
                    entry // contexts
                    if entry < most * contexts
                    else (entry - most * (contexts - 1))
                )
                total += layout.final_cost[state]
            assert total == pytest.approx(b.loss(np.array(y)), rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_determinization_equals_the_twin(kind, seed):
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=5))
    loss, _ = make_loss(kind, rng, ABC, target)
    machine = loss.machine(np.array(target))
    fast = determinize(machine, 5, max_states=10_000)
    plain = oracle_determinization.determinize(machine, 5)
    if machine.semiring.name == "probability":
        np.testing.assert_allclose(sorted(fast.final), sorted(plain.final), rtol=1e-14)
        merged, twins = minimize_finals(fast), [oracle_determinization.minimize_finals(fast)]
    else:
        merged = minimize(fast)
        twins = [oracle_determinization.minimize(raw) for raw in (plain, fast)]
    for twin in twins:
        assert merged.initial == twin.initial
        for a, b in zip(merged.levels, twin.levels, strict=True):
            assert a.nextstate.shape == b.nextstate.shape
            np.testing.assert_array_equal(sorted(a.cost.ravel()), sorted(b.cost.ravel()))


def with_epsilons_back(fst, cost):
    """The FST with an arc back along each epsilon of the input side: cycles that converge."""
    silent = np.flatnonzero(fst.ilabel == 0)
    nothing = np.zeros(len(silent), dtype=np.int64)
    columns = {
        "source": fst.nextstate[silent],
        "ilabel": nothing,
        "olabel": nothing,
        "nextstate": fst.source[silent],
        "weight": np.full(len(silent), cost),
    }
    return replace(fst, **{k: np.append(getattr(fst, k), new) for k, new in columns.items()})


def value(machine, y):
    row = machine.initial[:, None]
    for symbol in y:
        row = machine.advance(row, machine.class_of[symbol])
    return float(machine.value(row)[0])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.5, 2.0**-30], [3, 4]], ids=repr)
def test_symbols_with_equal_arcs_are_one_class(weights):
    """Weights that differ in a few bits, between few states: what hashes confuse most easily."""
    rng = np.random.default_rng(0)
    for states in (1, 2, 4):
        shape = 40, states
        target = np.tile(np.arange(states), (40, 1))
        source, weight = rng.integers(2, size=shape), rng.choice(weights, size=shape)
        label = np.repeat(np.arange(40), states)
        arcs = Arcs(source.ravel(), target.ravel(), weight.ravel())
        class_of, classes = symbol_classes(arcs, label, 41)
        rows = zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
        own = [frozenset(zip(*row, strict=True)) for row in rows]
        own.append(frozenset())
        assert len(classes) == len(set(own))
        for symbol, expected in enumerate(own):
            found = classes[class_of[symbol]]
            assert set(zip(found.source, found.nextstate, found.weight, strict=True)) == expected


LETTERS = fg.Alphabet("abcd")


@pytest.mark.parametrize(
    ("loss", "states"),
    [
        (fg.SmithWaterman(LETTERS), 11),
        (fg.SmithWaterman(LETTERS, gap_open=2.0, gap_extend=0.5), 20),
        (fg.OptimalStringAlignment(LETTERS), 9),
    ],
    ids=["linear gaps", "affine gaps", "transpositions"],
)
def test_reduced_costs_equal_the_twin(loss, states):
    fst = compose_arrays(openfst.to_arrays(loss.factors[0]), string_arrays(LETTERS.encode("abbab")))
    fast = target_machine(fst, 4, TROPICAL)
    plain = oracle_reduction.target_machine(fst, 4, TROPICAL)
    assert fast.num_states == plain.num_states == states
    assert len(fast.arcs) == len(plain.arcs)
    for y in oracle.all_strings(4, 4):
        assert value(fast, y) == value(plain, y)


@pytest.mark.parametrize("weights", ["own", "random", "cyclic"])
@pytest.mark.parametrize("kind", ["ngram", "ngram-smooth", "ngram-linear"])
def test_reduced_counts_equal_the_twin(kind, weights):
    rng = np.random.default_rng(3)
    target = rng.integers(3, size=6)
    loss, _ = make_loss(kind, rng, ABC, tuple(target))
    counter, inverse = (openfst.to_arrays(factor) for factor in loss.factors)
    fst = compose_arrays(counter, compose_arrays(inverse, string_arrays(target)))
    if weights != "own":
        doublings = rng.integers(8, size=len(fst.weight))
        fst = replace(fst, weight=fst.weight + doublings * math.log(2))
    if weights == "cyclic":
        fst = with_epsilons_back(fst, 5.0)
    fast = target_machine(fst, 3, PROBABILITY)
    plain = oracle_reduction.target_machine(fst, 3, PROBABILITY)
    assert (fast.num_states, len(fast.arcs)) == (plain.num_states, len(plain.arcs))
    for y in oracle.all_strings(3, 4):
        assert value(fast, y) == pytest.approx(value(plain, y), rel=1e-13)


def random_transducer(rng, states):
    """Acyclic, over labels 1..2 and epsilon on both sides, every weight a power of two."""
    source = np.repeat(np.arange(states - 1), 3)
    target = rng.integers(source + 1, states)
    labels = rng.integers(3, size=(2, len(source)))
    weight = rng.integers(4, size=len(source)).astype(float)
    final = np.where(rng.random(states) < 0.5, 1.0, np.inf)
    return FstArrays("log64", 0, final, source, *labels, target, weight)


def path_weights(fst):
    """{(input, output): {cost: number of paths}} of an acyclic transducer."""
    found = defaultdict(Counter)

    def follow(state, read, written, cost):
        if fst.final[state] < np.inf:
            found[read, written][cost + fst.final[state]] += 1
        for a in np.flatnonzero(fst.source == state):
            step = tuple(fst.ilabel[a : a + 1][fst.ilabel[a : a + 1] > 0])
            out = tuple(fst.olabel[a : a + 1][fst.olabel[a : a + 1] > 0])
            follow(fst.nextstate[a], read + step, written + out, cost + fst.weight[a])

    if fst.start >= 0:
        follow(fst.start, (), (), 0.0)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_composition_has_each_path_once(seed):
    rng = np.random.default_rng(seed)
    left, right = random_transducer(rng, 5), random_transducer(rng, 4)
    expected = defaultdict(Counter)
    for (x, u), ours in path_weights(left).items():
        for (v, z), theirs in path_weights(right).items():
            if u == v:
                for (a, times), (b, more) in itertools.product(ours.items(), theirs.items()):
                    expected[x, z][a + b] += times * more
    result = compose_arrays(left, right)
    assert path_weights(result) == expected
    useful = openfst.connect(openfst.from_arrays(result))
    assert useful.num_states() == result.num_states
    reference = openfst.compose(openfst.from_arrays(left), openfst.from_arrays(right))
    assert path_weights(openfst.to_arrays(reference)) == expected


def test_used_contexts_by_hand():
    n = 2
    assert used_contexts(1, n).tolist() == [[True]]
    assert used_contexts(2, n).tolist() == [[False, False, True], [True, True, False]]
    second = np.zeros((3, 3), dtype=bool)
    second[n, :n] = True
    np.testing.assert_array_equal(used_contexts(3, n)[1].reshape(3, 3), second)


def test_state_limit_comes_with_its_remedies():
    with pytest.raises(fg.StateLimitError, match=r"max_states=50.*\n?.*sampled_softmax_margin"):
        fg.EditDistance(fg.Alphabet("abcdefghij")).compile("abcdefghij", max_states=50)
