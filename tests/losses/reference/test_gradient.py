"""The reference engine against enumeration (Grad-Naive)."""

import math

import numpy as np
import pynini
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import reference, transducers
from tests.machines import paths
from tests.oracles import strings as oracle

TOLERANCE = 1e-6  # float32 costs and quantised residuals; 1e-10 where costs are exact
EXACT = 1e-10


def random_case(rng, order=None):
    """Alphabet, target, length and scores with an -inf here and there."""
    n, length, q = rng.integers(2, 4), rng.integers(1, 5), order or rng.integers(1, 4)
    target = tuple(rng.integers(0, n, rng.integers(2, 6)).tolist())
    scores = rng.normal(size=(length, *[n + 1] * (q - 1), n), scale=2.0)
    scores[rng.random(scores.shape) < 0.04] = -np.inf
    return fg.Alphabet("abc"[:n]), target, int(length), scores


def compare(case, transducer, losses, tolerance, **options):
    """Compare the reference with sums over all strings; return whether any has a finite weight."""
    alphabet, target, length, scores = case
    expected = oracle.log_partition(scores, losses)
    if expected == -math.inf:
        with pytest.raises(fg.InfeasibleError):
            reference.gradient_terms(
                scores,
                reference.loss_acceptor(transducer, alphabet, target, length, **options),
                alphabet,
            )
        return False
    acceptor = reference.loss_acceptor(transducer, alphabet, target, length, **options)
    log_z, terms = reference.gradient_terms(scores, acceptor, alphabet)
    assert log_z == pytest.approx(expected, rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(terms, oracle.marginals(scores, losses), rtol=0, atol=tolerance)
    return True


def losses_of(case, loss, cap=None):
    alphabet, target, length, _ = case
    values = [loss(y, target) for y in oracle.all_strings(len(alphabet), length)]
    return values if cap is None else [min(value, cap) for value in values]


def edit_oracle(insert, delete, substitute):
    return lambda y, z: oracle.edit_distance(
        y, z, insert=insert, delete=delete, substitute=substitute
    )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_edit_distance_equals_enumeration(exact, cap):
    rng = np.random.default_rng(0)
    for _ in range(12):
        case = random_case(rng)
        costs = rng.integers(0, 12, 3) / 4 if exact else 3 * rng.random(3)
        named = dict(zip(("insert_cost", "delete_cost", "substitute_cost"), costs, strict=True))
        losses = losses_of(case, edit_oracle(*costs), cap)
        tolerance = EXACT if exact else TOLERANCE
        whole = transducers.edit_transducer(case[0], **named)
        compare(case, whole, losses, tolerance, cap=cap)
        compare(case, transducers.edit_factors(case[0], **named), losses, tolerance, cap=cap)


def test_confusion_local_alignment_and_hamming_equal_enumeration():
    rng = np.random.default_rng(1)
    for _ in range(12):
        case = random_case(rng)
        confusion = rng.normal(size=(3, 3))[: len(case[0]), : len(case[0])]
        losses = losses_of(
            case, lambda y, z, table=confusion: oracle.edit_distance(y, z, confusion=table)
        )
        fst = transducers.edit_transducer(case[0], confusion=confusion)
        compare(case, fst, losses, TOLERANCE)
        losses = losses_of(case, oracle.smith_waterman)
        compare(case, transducers.smith_waterman_transducer(case[0]), losses, EXACT)
        case = (case[0], case[1][: case[2]], case[2], case[3])
        losses = losses_of(case, oracle.hamming)
        compare(case, transducers.hamming_transducer(case[0]), losses, EXACT)


NGRAM_OPTIONS = [
    {},
    {"smoothing": 0.1},
    {"log": False},
    {"cap": -0.5},
    {"log": False, "cap": -1.5},
    {"smoothing": 0.1, "cap": 0.3},
]


@pytest.mark.parametrize("options", NGRAM_OPTIONS, ids=str)
def test_ngram_losses_equal_enumeration(options):
    rng = np.random.default_rng(2)
    feasible = 0
    kinds = {name: value for name, value in options.items() if name != "cap"}
    for _ in range(12):
        case = random_case(rng)
        order = int(rng.integers(1, 3))
        counter = transducers.ngram_counter(case[0], order)
        similarity = openfst.compose(counter, pynini.invert(counter))
        losses = losses_of(
            case, lambda y, z, n=order: oracle.ngram_loss(y, z, n, **kinds), options.get("cap")
        )
        feasible += compare(case, similarity, losses, 1e-9, **options)
        factors = (counter, openfst.read(pynini.invert(counter)))
        compare(case, factors, losses, 1e-9, **options)
    assert feasible >= 8


def random_transducer(rng, n, states=3, arcs=14):
    """Arcs with epsilons on at most one side, weights of any sign."""
    source, target = rng.integers(0, states, (2, arcs))
    ilabel, olabel = rng.integers(0, n + 1, (2, arcs))
    olabel[(ilabel == 0) & (olabel == 0)] = 1
    final = np.where(np.arange(states) == states - 1, 0.25, np.inf)
    weight = rng.normal(size=arcs)
    return openfst.from_arrays(
        openfst.FstArrays("log64", 0, final, source, ilabel, olabel, target, weight)
    )


def test_random_transducers_equal_enumeration_in_both_semirings():
    rng = np.random.default_rng(3)
    feasible = 0
    for _ in range(40):
        case = random_case(rng)
        case = (case[0], case[1][:3], min(case[2], 3), case[3][:3])
        fst = random_transducer(rng, len(case[0]))
        listed = paths(fst)
        sums = losses_of(case, lambda y, z, u=listed: oracle.path_sum(*u, y, z, epsilon=-1))
        if not any(sums):
            with pytest.raises(fg.InfeasibleError, match="finite loss"):
                reference.loss_acceptor(fst, *case[:3])
            continue
        rational = [-math.log(u) if u else math.inf for u in sums]
        tropical = losses_of(
            case, lambda y, z, u=listed: oracle.min_path_cost(*u, y, z, epsilon=-1)
        )
        feasible += compare(case, fst, rational, 1e-8)
        compare(case, openfst.with_arc_type(fst, "standard"), tropical, TOLERANCE)
    assert feasible >= 10


@pytest.mark.parametrize("scale", [50.0, 100.0])
def test_extreme_scores(scale):
    rng = np.random.default_rng(4)
    for _ in range(5):
        alphabet, target, length, scores = random_case(rng)
        case = (alphabet, target, length, scale * scores)
        losses = losses_of(case, oracle.edit_distance)
        compare(case, transducers.edit_transducer(alphabet), losses, EXACT)


def test_the_gradient_terms_are_the_derivative_of_log_z():
    alphabet, target, length, scores = random_case(np.random.default_rng(5), order=2)
    scores = np.where(np.isfinite(scores), scores, 0.0)
    acceptor = reference.loss_acceptor(
        transducers.edit_transducer(alphabet), alphabet, target, length
    )
    _, terms = reference.gradient_terms(scores, acceptor, alphabet)
    for entry in np.ndindex(scores.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = scores.copy()
            moved[entry] += step
            ends.append(reference.gradient_terms(moved, acceptor, alphabet)[0])
        assert terms[entry] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_the_loss_acceptor_is_deterministic_and_weighs_each_string():
    alphabet = fg.Alphabet("ab")
    fst = reference.loss_acceptor(transducers.edit_transducer(alphabet), alphabet, "abb", 3)
    assert fst.arc_type() == "log64"
    arrays = openfst.to_arrays(fst)
    assert len(set(zip(arrays.source, arrays.ilabel, strict=True))) == arrays.num_arcs
    for y in oracle.all_strings(2, 3):
        (cost,) = oracle.path_costs(*paths(fst), y, y)
        assert cost == -oracle.edit_distance(y, (0, 1, 1))


def test_a_target_may_be_an_acceptor():
    alphabet = fg.Alphabet("ab")
    either = openfst.union(
        transducers.string_acceptor(alphabet, "aab"), transducers.string_acceptor(alphabet, "bb")
    )
    scores = np.random.default_rng(6).normal(size=(3, 2))
    losses = [
        min(oracle.edit_distance(y, (0, 0, 1)), oracle.edit_distance(y, (1, 1)))
        for y in oracle.all_strings(2, 3)
    ]
    case = (alphabet, either, 3, scores)
    assert compare(case, transducers.edit_transducer(alphabet), losses, EXACT)


def test_pruning_keeps_the_losses_within_the_threshold():
    alphabet, target, length = fg.Alphabet("ab"), (0, 1, 0, 0, 1), 4
    for threshold in (0.5, 1.5, 9.0):
        fst = reference.loss_acceptor(
            transducers.edit_transducer(alphabet), alphabet, target, length, prune=threshold
        )
        dropped = 0
        for y in oracle.all_strings(2, length):
            costs = oracle.path_costs(*paths(fst), y, y)
            distance = oracle.edit_distance(y, target)
            if distance <= 1 + threshold:  # the best string is the target less one symbol
                assert costs == [-distance]
            else:
                dropped += not costs
                assert all(-cost >= distance for cost in costs)
        assert (dropped > 0) == (threshold == 0.5)
    counter = transducers.ngram_counter(alphabet, 1)
    with pytest.raises(fg.FstError, match="pruning needs 'standard'"):
        reference.loss_acceptor(
            (counter, pynini.invert(counter)), alphabet, target, length, prune=1.0
        )


TEN = fg.Alphabet("abcdefghij")


@pytest.mark.parametrize(
    "kind, options", [("tropical", {}), ("rational", {}), ("rational", {"smoothing": 0.5})]
)
def test_the_state_limit_stops_determinization(kind, options):
    if kind == "tropical":
        fst = transducers.edit_transducer(TEN)
    else:
        counter = transducers.ngram_counter(TEN, 2)
        fst = (counter, openfst.read(pynini.invert(counter)))
    target = "abcabdacbjdaca" if kind == "rational" else "abcabda"
    with pytest.raises(fg.StateLimitError, match=r"max_states=30\b.*cap=") as caught:
        reference.loss_acceptor(fst, TEN, target, len(target), max_states=30, **options)
    # stopped on the way: at the limit in OpenFst, else a level later, n times the limit
    assert 30 < caught.value.states <= (31 if kind == "tropical" else 10 * 30)
    assert reference.loss_acceptor(fst, TEN, target, len(target), **options).num_states() > 10 * 30
    enough = reference.loss_acceptor(fst, TEN, target[:4], 4, max_states=500, **options)
    states = enough.num_states()
    with pytest.raises(fg.StateLimitError):
        reference.loss_acceptor(fst, TEN, target[:4], 4, max_states=states - 1, **options)
    assert (
        reference.loss_acceptor(fst, TEN, target[:4], 4, max_states=states, **options).num_states()
        == states
    )


def test_merging_futures_keeps_sums_and_makes_the_machine_small():
    counter = transducers.ngram_counter(TEN, 2)
    factors = (counter, openfst.read(pynini.invert(counter)))
    machine = reference.hypothesis_machine(factors, TEN, "abcdabcdab", 10)
    merged = reference.merge_equivalent_states(machine)
    assert merged.num_states() < machine.num_states() / 2
    for y in ("abcdabcdab", "ababababab", "jjjjjjjjab"):
        weights = []
        for fst in (machine, merged):
            matched = openfst.compose(transducers.string_acceptor(TEN, y, arc_type="log64"), fst)
            beta = openfst.shortest_distance(matched, delta=1e-300, reverse=True)
            weights.append(math.exp(-beta[matched.start()]))
        count = oracle.ngram_count(TEN.encode(y).tolist(), TEN.encode("abcdabcdab").tolist(), 2)
        assert weights == pytest.approx([count, count], rel=1e-12)


def test_the_score_transducer_reads_the_numbers_of_its_entries():
    alphabet = fg.Alphabet("ab")
    scores = np.random.default_rng(8).normal(size=(2, 3, 2))
    scores[1, 0, 1] = -np.inf
    arrays = openfst.to_arrays(reference.score_transducer(scores, alphabet))
    # position 0 after "before the start", position 1 after a or b
    entries = [(0, 2, 0), (0, 2, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    numbers = np.ravel_multi_index(np.transpose(entries), scores.shape)
    np.testing.assert_array_equal(np.sort(arrays.ilabel - 1), numbers)
    np.testing.assert_array_equal(arrays.weight, -scores.ravel()[arrays.ilabel - 1])
    np.testing.assert_array_equal(arrays.olabel - 1, (arrays.ilabel - 1) % 2)


def test_what_is_infeasible_is_said():
    alphabet = fg.Alphabet("ab")
    copy_only = openfst.from_arrays(
        openfst.FstArrays("standard", 0, [0.0], [0], [1], [1], [0], [0.0])
    )
    with pytest.raises(fg.InfeasibleError, match="rejects the target"):
        reference.loss_acceptor(copy_only, alphabet, "ab", 2)
    hamming = transducers.hamming_transducer(alphabet)
    with pytest.raises(fg.InfeasibleError, match="no hypothesis of length 3"):
        reference.loss_acceptor(hamming, alphabet, "ab", 3)
    acceptor = reference.loss_acceptor(hamming, alphabet, "ab", 2)
    with pytest.raises(fg.InfeasibleError, match="Z = 0"):
        reference.gradient_terms(np.full((2, 2), -np.inf), acceptor, alphabet)
    with pytest.raises(fg.InvalidInputError, match=r"\(2, 3\); for 2 symbols give \(l, 2\)"):
        reference.gradient_terms(np.zeros((2, 3)), acceptor, alphabet)
