"""Pruning of M by a threshold against OpenFst's and against the definition."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import reference
from fstgrad.losses.automata import pruning
from fstgrad.losses.transducers import string_acceptor
from tests.oracles import strings as oracle

EXACT = 1e-10


def random_transducer(rng, n, states=3, arcs=18):
    """Arcs with epsilons on at most one side; costs are multiples of 1/4, exact in float32."""
    source, nextstate = rng.integers(0, states, (2, arcs))
    ilabel, olabel = rng.integers(0, n + 1, (2, arcs))
    olabel[(ilabel == 0) & (olabel == 0)] = 1
    final = np.where(np.arange(states) == states - 1, 0.25, np.inf)
    weight = rng.integers(0, 9, arcs) / 4
    return openfst.from_arrays(
        openfst.FstArrays("log64", 0, final, source, ilabel, olabel, nextstate, weight)
    )


def losses_of_all_kinds(rng, abc):
    costs = rng.integers(1, 9, 3) / 4
    edit = fg.EditDistance(
        abc, insert_cost=costs[0], delete_cost=costs[1], substitute_cost=costs[2]
    )
    yield from (fg.EditDistance(abc), edit, 0.5 * edit, fg.SmithWaterman(abc))
    yield fg.SmithWaterman(abc, match=-1.5, gap_open=costs[0] + 0.25, gap_extend=0.25)
    for factors in (1, 2, 2):
        yield fg.TransducerLoss([random_transducer(rng, len(abc)) for _ in range(factors)], abc)


@pytest.mark.parametrize("order", [1, 2])
def test_pruning_equals_the_reference_engine(order):
    rng = np.random.default_rng(order)
    compared = dropped = 0
    for _ in range(5):
        abc = fg.Alphabet("abc"[: rng.integers(2, 4)])
        n, length = len(abc), int(rng.integers(1, 6))
        scores = rng.normal(size=(length, *[n + 1] * (order - 1), n), scale=2.0)
        gold = rng.integers(0, n, length)
        for loss in losses_of_all_kinds(rng, abc):
            target = rng.integers(0, n, rng.integers(1, 5))
            if rng.random() < 0.2:
                target = openfst.union(string_acceptor(abc, target), string_acceptor(abc, "ab"))
            options = {"prune": rng.integers(0, 13) / 4, "length": length}
            try:
                expected = loss.compile(target, engine="openfst", **options)
            except fg.InfeasibleError:
                with pytest.raises(fg.InfeasibleError):
                    loss.compile(target, **options)
                continue
            b = loss.compile(target, **options)
            assert b.prune == expected.prune == options["prune"]
            log_z, terms = reference.gradient_terms(scores, expected.to_fst(), abc)
            value, gradient = fg.softmax_margin(scores, gold, b)
            assert value + oracle.score(gold, scores) == pytest.approx(log_z, abs=EXACT)
            distribution = fg.StringDistribution(scores, b)
            np.testing.assert_allclose(distribution.marginals(), terms, rtol=0, atol=EXACT)
            np.testing.assert_allclose(
                gradient, terms - distribution.parts(gold), rtol=0, atol=EXACT
            )
            for one, other in zip(fg.risk(scores, b), fg.risk(scores, expected), strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=EXACT)
            compared += 1
            dropped += not b.is_complete
    assert compared > 30
    assert dropped > 10


def test_losses_within_the_threshold_stay_and_others_never_shrink():
    rng = np.random.default_rng(3)
    abc = fg.Alphabet("abc")
    for loss in (fg.EditDistance(abc, delete_cost=0.5), fg.SmithWaterman(abc)):
        target = rng.integers(0, 3, 5)
        strings = [list(y) for y in itertools.product(range(3), repeat=4)]
        exact = np.array([loss(y, target) for y in strings])
        for prune in (0.0, 1.0, 2.5):
            b = loss.compile(target, 4, prune=prune)
            pruned = np.array([b.loss(y) for y in strings])
            within = exact <= exact.min() + prune
            np.testing.assert_array_equal(pruned[within], exact[within])
            assert (pruned[~within] >= exact[~within]).all()
            assert prune > 0 or (pruned == np.inf).any()
        whole = loss.compile(target, 4, prune=1e300)
        np.testing.assert_array_equal([whole.loss(y) for y in strings], exact)
        assert whole.num_states == loss.compile(target, 4).num_states


def test_a_decimal_threshold_includes_the_costs_that_equal_it():
    abc = fg.Alphabet("ab")
    loss = fg.EditDistance(abc, insert_cost=0.2, delete_cost=0.2, substitute_cost=0.3)
    for prune in (0.3, 0.1 * 3):  # 0.3 / 0.1 is below 3, and 0.1 * 3 above 0.3
        assert loss.compile("a", prune=prune).loss("b") == pytest.approx(0.3)
    assert loss.compile("a", prune=0.29).loss("b") == np.inf


def test_the_pruned_loss_is_small_where_the_exact_one_is_not():
    abc = fg.Alphabet("abcdefghij")
    target = np.random.default_rng(0).integers(0, 10, 40)
    loss = fg.EditDistance(abc)
    assert loss.compile(target, prune=3.0).num_states < 1_000
    with pytest.raises(fg.StateLimitError, match=r"Lower the threshold \(prune=\)"):
        loss.compile(target, prune=12.0, max_states=2_000)


def test_sums_and_collapses_are_pruned_too():
    abc = fg.Alphabet("ab_")
    total = fg.EditDistance(abc) + 2 * fg.Hamming(abc)
    assert total.compile("aab", prune=3.0).loss("abb") == 3.0
    assert total.compile("aab", prune=2.0).loss("bba") == np.inf
    latent = fg.CollapsedLoss(fg.EditDistance(abc), abc, blank="_")
    assert latent.compile("ab", 4, prune=0.0).loss("a_b_") == 0.0
    assert latent.compile("ab", 4, prune=0.0).loss("a_bb") == np.inf


def test_what_pruning_cannot_do_is_an_error():
    abc = fg.Alphabet("ab")
    loss = fg.EditDistance(abc)
    for prune in (-1.0, np.nan, np.inf, "auto"):
        with pytest.raises(fg.InvalidInputError, match="prune is"):
            loss.compile("ab", prune=prune)
    for options in ({"cap": 1.0}, {"band": 1}):
        with pytest.raises(fg.NotSupportedError, match="prune excludes cap and band"):
            loss.compile("ab", prune=1.0, **options)
    for engine in ("layered", "openfst"):
        with pytest.raises(fg.NotSupportedError, match="sums over paths"):
            fg.NGram(abc).compile("ab", prune=1.0, engine=engine)
        with pytest.raises(fg.NotSupportedError, match="prune of a sum"):
            (loss + fg.NGram(abc)).compile("ab", prune=1.0, engine=engine)
    with pytest.raises(fg.InfeasibleError, match="no hypothesis of length 3"):
        fg.Hamming(abc).compile("ab", 3, prune=1.0)
    pruned = fg.StringDistribution(np.zeros((2, 2)), loss.compile("ab", prune=1.0))
    for call in (pruned.log_partition_bounds, lambda: pruned.bound("lower")):
        with pytest.raises(fg.NotSupportedError, match=r"pruned .*bounds nothing"):
            call()


def test_the_cache_keeps_pruned_losses_apart_and_out_of_files(tmp_path):
    abc = fg.Alphabet("ab")
    loss, cache = fg.EditDistance(abc), fg.AutomatonCache(directory=tmp_path)
    thresholds = [None, 0.0, 1.0, 0.0]
    automata = [cache.automaton(loss, "aab", prune=prune) for prune in thresholds]
    assert [b.prune for b in automata] == thresholds
    assert (cache.hits, cache.misses, len(list(tmp_path.iterdir()))) == (1, 3, 1)


def test_memory_is_counted_before_it_is_used(monkeypatch):
    loss = fg.EditDistance(fg.Alphabet("ab"))
    # 9^2 pairs of states, then 162 arcs without epsilons, then those at all positions
    for size, arcs in ((10_000, 81), (20_000, 162), (30_000, r"\d{3}")):
        monkeypatch.setattr(pruning, "memory_limit", lambda size=size: size)
        with pytest.raises(fg.MemoryLimitError, match=rf"pruning needs {arcs} arcs .* or band="):
            loss.compile("abababab", prune=100.0)
    assert loss.compile("abababab", prune=2.0).num_states > 8
