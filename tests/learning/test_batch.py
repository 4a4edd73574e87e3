"""Passes over many pairs: order, sums, errors, processes; methods of the objective."""

import pickle

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.batch import _split_into_chunks
from fstgrad.learning.outcomes import Sums

ABC = fg.Alphabet("abc")
FEATURES = fg.QGramCounts(ABC, 2)
W = np.random.default_rng(0).normal(size=(3, 3))


def make_pairs(count, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=count)
    return [("x", "".join(rng.choice(list("abc"), size=length))) for length in lengths]


def outcomes(batch, pairs):
    return [outcome for chunk in batch.chunks(W, pairs) for outcome in chunk.outcomes]


def test_a_pass_is_the_mean_of_the_pairs():
    pairs = make_pairs(37)
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC))
    expected, expected_gradient = objective.mean(W, pairs)
    batch = fg.Batch(objective)
    value, gradient = batch.sums(W, pairs).mean()
    assert value == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-13, atol=1e-14)
    assert [o.place for o in outcomes(batch, pairs)] == list(range(37))
    values = [objective(W, *pair).value for pair in pairs]
    assert [o.value for o in outcomes(batch, pairs)] == values


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:an estimate is not reliable")  # 50 samples
def test_results_are_identical_for_any_number_of_processes():
    pairs = make_pairs(75)
    pairs[20] = ("x", "axb")
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC), method="sampled", samples=50)
    results = []
    for jobs in (1, 3):
        failed, counts = [], []
        with fg.Batch(objective, jobs=jobs) as batch:
            for _ in range(2):  # the second pass takes automata from the caches
                sums = batch.sums(
                    W,
                    iter(pairs),
                    on_error=failed.append,
                    progress=counts.append,
                )
                results.append((sums.value, sums.gradient.tobytes(), sums.done, sums.variance))
        assert [o.place for o in failed] == [20, 20]
        assert counts == [1, 15, 16, 16, 16, 11] * 2
    assert len(set(results)) == 1
    assert results[0][2] == 74


def test_one_bad_pair_is_reported_without_losing_the_others():
    pairs = [("x", "ab"), ("x", ""), ("x", "ad"), InvalidInputError("unreadable"), ("x", "bb")]
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC))
    batch = fg.Batch(objective)
    failed = []
    sums = batch.sums(W, pairs, on_error=failed.append)
    assert [o.place for o in failed] == [1, 2, 3]
    assert [type(o.error) for o in failed] == [
        InvalidInputError,
        fg.UnknownSymbolError,
        InvalidInputError,
    ]
    value, gradient = objective.mean(W, [pairs[0], pairs[4]])
    assert sums.mean()[0] == pytest.approx(value, rel=1e-15)
    np.testing.assert_allclose(sums.mean()[1], gradient, rtol=1e-14)
    with pytest.raises(fg.InvalidInputError, match="y is empty"):
        batch.sums(W, pairs)


def test_state_limits_can_cross_processes():
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC), max_states=4)
    failed = []
    sums = fg.Batch(objective).sums(W, [("x", "abcab"), ("x", "a")], on_error=failed.append)
    assert (sums.done, sums.failed) == (1, 1)
    assert pickle.loads(pickle.dumps(failed[0])).error.limit == 4


def test_nothing_to_average():
    batch = fg.Batch(fg.PairObjective(FEATURES, fg.EditDistance(ABC)))
    with pytest.raises(fg.InvalidInputError, match="pairs is empty"):
        batch.sums(W, []).mean()
    with pytest.raises(fg.InvalidInputError, match="all 1 pairs failed"):
        batch.sums(W, [("x", "")], on_error=lambda o: None).mean()


@pytest.mark.slow
def test_chunks_stay_with_the_process_that_had_least_to_do():
    """64 pairs keep two processes busy, and later passes, in any order, go where the first went."""
    pairs = make_pairs(64)
    with fg.Batch(fg.PairObjective(FEATURES, fg.EditDistance(ABC)), jobs=2) as batch:
        values = [o.value for o in outcomes(batch, pairs)]
        assert batch._worker_of_chunk == {0: 0, 1: 1, 2: 1, 3: 0}
        chunks = [(first, pairs[first : first + 16]) for first in (48, 0, 32, 16)]
        done = [o for chunk in batch.numbered(W, chunks) for o in chunk.outcomes]
        assert [o.place for o in done] == [
            *range(48, 64),
            *range(16),
            *range(32, 48),
            *range(16, 32),
        ]
        assert [o.value for o in done] == [values[o.place] for o in done]
        assert batch._worker_of_chunk == {0: 0, 1: 1, 2: 1, 3: 0}


def test_automata_are_compiled_once():
    batch = fg.Batch(fg.PairObjective(FEATURES, fg.EditDistance(ABC)))
    pairs = [("x", "abc"), ("y", "abc"), ("x", "cab")]
    for _ in range(3):
        batch.sums(W, pairs)
    assert (batch.objective.cache.misses, batch.objective.cache.hits) == (2, 7)


# methods


@pytest.mark.parametrize("kind", ["softmax-margin", "risk"])
def test_sampled_agrees_with_exact(kind):
    exact = fg.PairObjective(FEATURES, fg.EditDistance(ABC), kind)(W, "x", "abcab")
    sampled = fg.PairObjective(
        FEATURES, fg.EditDistance(ABC), kind, method="sampled", samples=20_000
    )(W, "x", "abcab")
    assert sampled.method == "sampled"
    assert 0 <= sampled.standard_error < 0.02
    assert sampled.value == pytest.approx(exact.value, abs=3 * sampled.standard_error + 1e-3)
    assert sampled.log_partition == pytest.approx(exact.log_partition, abs=0.06)
    np.testing.assert_allclose(sampled.gradient, exact.gradient, atol=0.1)
    assert sampled.effective_samples <= 20_000


@pytest.mark.filterwarnings("ignore:an estimate is not reliable")  # 50 samples
def test_samples_of_a_pair_depend_on_the_seed_and_y():
    def value(seed, x, y):
        objective = fg.PairObjective(
            FEATURES,
            fg.EditDistance(ABC),
            method="sampled",
            samples=50,
            seed=seed,
            proposal="plain",
        )
        return objective(W, x, y).value

    assert value(0, "x", "abca") == value(0, "other", "abca")
    assert value(0, "x", "abca") != value(1, "x", "abca")


def test_auto_takes_the_first_method_that_fits():
    def method(limit, cap):
        objective = fg.PairObjective(
            FEATURES, fg.EditDistance(ABC), method="auto", max_states=limit, cap=cap, samples=10
        )
        return objective(W, "x", "abcabcab").method

    states = fg.EditDistance(ABC).compile("abcabcab").num_states
    capped = fg.EditDistance(ABC).compile("abcabcab", cap=1.0).num_states
    assert capped * 4 < states
    assert method(20 * states, None) == "exact"
    assert method(20 * states, 1.0) == "exact"
    assert method(2 * capped, 1.0) == "capped"
    assert method(2 * capped, None) == "sampled"
    assert method(3, 1.0) == "sampled"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"method": "exact", "cap": 1.0}, "leave one of them out"),
        ({"method": "capped"}, "without a cap"),
        ({"method": "best"}, "choose one of"),
        ({"samples": 1}, "samples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_methods_that_do_not_fit(settings, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        fg.PairObjective(FEATURES, fg.EditDistance(ABC), **settings)


# a cap that is raised until its bounds meet


@pytest.mark.parametrize("kind", ["softmax-margin", "risk"])
@pytest.mark.parametrize("tolerance", [1.0, 0.05, 0.0])
def test_auto_cap_is_within_its_tolerance_of_exact(kind, tolerance):
    loss = fg.EditDistance(ABC)
    exact = fg.PairObjective(FEATURES, loss, kind)
    raised = fg.PairObjective(FEATURES, loss, kind, cap="auto", tolerance=tolerance)
    for pair in make_pairs(8):
        true, part = exact(W, *pair), raised(W, *pair)
        assert part.method == "capped"
        assert part.reason in ("tolerance", "exact")
        assert part.lower == part.value <= true.value + 1e-10
        assert true.value <= part.upper + 1e-10
        assert part.upper - part.lower <= tolerance + 1e-10
        fixed = fg.PairObjective(FEATURES, loss, kind, cap=part.cap)(W, *pair)
        assert (part.value, part.states) == (fixed.value, fixed.states)
        np.testing.assert_array_equal(part.gradient, fixed.gradient)
        assert (fixed.cap, fixed.reason) == (part.cap, "")
        assert np.isnan(true.cap)


def test_auto_cap_says_that_it_met_the_state_limit():
    objective = fg.PairObjective(
        FEATURES, fg.EditDistance(ABC), cap="auto", tolerance=0.0, max_states=60
    )
    exact = fg.PairObjective(FEATURES, fg.EditDistance(ABC))(W, "x", "abcabcab")
    part = objective(W, "x", "abcabcab")
    assert part.reason == "state limit"
    assert part.states <= 60
    assert part.lower < exact.value < part.upper
    table = objective.distribution(W, "x", "abcabcab").marginals()
    np.testing.assert_allclose(table.sum(axis=(1, 2)), 1.0, atol=1e-12)
    with pytest.raises(fg.StateLimitError):
        fg.PairObjective(FEATURES, fg.EditDistance(ABC), cap="auto", max_states=3)(W, "x", "abc")
    with pytest.raises(fg.InvalidInputError, match="choose_cap"):
        objective.automaton("abc")


def test_auto_raises_a_cap_before_it_samples():
    """Determinization passes 288 states up to cap 5, 432 at cap 6, 539 without a cap."""
    loss, pair = fg.EditDistance(ABC), ("x", "abcabcababca")

    def part(limit, tolerance, loss=loss, **settings):
        objective = fg.PairObjective(
            FEATURES, loss, method="auto", max_states=limit, tolerance=tolerance, samples=10,
            **settings,
        )  # fmt: skip
        return objective(W, *pair)

    chosen = part(400, 3.0, cap="auto")
    assert (chosen.method, chosen.reason, chosen.cap) == ("capped", "tolerance", 5.0)
    for cap in (None, "auto"):
        sampled = part(400, 1.0, cap=cap)
        assert (sampled.method, sampled.reason) == ("sampled", "exact exceeds 400 states")
        assert sampled.proposal.startswith("band")
        assert sampled.is_reliable
        assert sampled.lower <= part(539, 1.0, cap=cap).value <= sampled.upper
        assert part(539, 1.0, cap=cap).method == "exact"
    fixed = part(400, 3.0, cap=1.0)
    assert (fixed.method, fixed.reason, fixed.cap) == ("capped", "", 1.0)
    rational = fg.NGram(ABC, 2, smoothing=1.0)
    assert part(5, 3.0, rational).method == "sampled"
    assert part(5, 3.0, loss).method == "sampled"
    with pytest.raises(fg.NotSupportedError, match="rational"):
        part(5, 3.0, rational, cap="auto")
    for bad in ({"cap": "all"}, {"cap": float("nan")}, {"tolerance": -1.0}):
        with pytest.raises(fg.InvalidInputError):
            fg.PairObjective(FEATURES, loss, **bad)


def test_gaps_add_up():
    pairs = make_pairs(40)
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC), cap="auto", tolerance=0.5)
    exact = fg.PairObjective(FEATURES, fg.EditDistance(ABC)).mean(W, pairs)[0]
    batch = fg.Batch(objective)
    sums, again = (batch.sums(W, pairs) for _ in range(2))
    assert (sums.value, sums.gap) == (again.value, again.gap)
    done = outcomes(batch, pairs)
    assert sums.value <= exact * 40 <= sums.value + sums.gap
    assert sums.gap == pytest.approx(sum(o.upper - o.lower for o in done), rel=1e-12)
    assert {o.reason for o in done} <= {"tolerance", "exact"}


def test_the_automata_of_a_raised_cap_are_kept_and_counted():
    objective = fg.PairObjective(FEATURES, fg.EditDistance(ABC), cap="auto", tolerance=0.0)
    batch = fg.Batch(objective)
    for _ in range(3):
        batch.sums(W, [("x", "abcab")])
    cache = batch.objective.cache
    assert cache.misses == len(cache)
    caps = [float(cap) for cap in range(1, cache.misses + 1)]
    kept = [fg.EditDistance(ABC).compile("abcab", cap=cap) for cap in caps]
    assert cache.nbytes > 3 * sum(b.nbytes + b.cap.upper.nbytes for b in kept)


def test_the_first_pair_is_a_chunk_of_its_own():
    """Its result is seen at once; where a pass is cut does not depend on where it starts."""
    pairs = [("ab", "ab")] * 40
    for first in (0, 1, 5, 16, 20):
        parts = list(_split_into_chunks(pairs[first:], first))
        starts = [start for start, _ in parts]
        assert starts == sorted({first, *(cut for cut in (1, 16, 32) if cut > first)})
        assert sum(len(items) for _, items in parts) == 40 - first


def test_chunks_of_a_training_are_smaller_for_long_outputs_and_many_symbols():
    def block(n, length, **more):
        abc = fg.Alphabet([str(i) for i in range(n)])
        objective = fg.PairObjective(fg.QGramCounts(abc, 1), **more)
        return fg.Batch(objective).block([("x", ["0"] * length)] * 3)

    assert [block(40, 8), block(300, 75), block(300, 2000)] == [512, 186, 64]
    assert block(40, 8, loss=fg.Hamming(fg.Alphabet([str(i) for i in range(40)]))) == 64


def test_sums_over_few_weights_add_up():
    """Two chunks that share a weight; their sum, and that of all weights."""
    one = Sums(np.array([1.0, 2.0, 3.0]), 0.5, done=2, support=np.array([4, 0, 2]))
    two = Sums(np.array([10.0, 20.0]), 0.25, done=1, support=np.array([2, 5]))
    whole = Sums(np.zeros(6))
    for part in (one, two):
        whole.add(part)
    assert whole.gradient.tolist() == [2.0, 0.0, 13.0, 0.0, 1.0, 20.0]
    one.add(two)
    again = np.zeros(6)
    again[one.support] = one.gradient
    assert again.tolist() == whole.gradient.tolist()
    assert (one.value, one.done) == (whole.value, whole.done) == (0.75, 3)
