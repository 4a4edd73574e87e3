"""The machine and the automaton of a sum of two losses."""

import time
import tracemalloc

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.automata.machine import Arcs, TargetMachine
from fstgrad.losses.automata.product import automaton_product, product_machine
from fstgrad.losses.automata.semiring import TROPICAL
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
NONE = Arcs(*(np.empty(0, dtype=np.int64) for _ in range(3)))


def one_symbol(weight, unit):
    """The machine of one symbol that costs `weight` units."""
    zero, one, cost = (np.array([x]) for x in (0, 1, weight))
    initial, final = TROPICAL.full((2,)), TROPICAL.full((2,))
    initial[0] = final[1] = 0
    arcs = (Arcs(zero, one, cost),)
    return TargetMachine(TROPICAL, np.zeros(1, dtype=np.int64), arcs, NONE, initial, final, unit)


@pytest.mark.parametrize("weight", [2**20, 2**47])
def test_units_that_are_multiples_stay_exact_while_weights_stay_small(weight):
    """A third and a half have the common unit a sixth, unless 3 x 2^47 of these leave no room."""
    a, b = one_symbol(weight, 1 / 2), one_symbol(1, 1 / 3)
    product = product_machine(a, b)
    row = product.advance(product.initial[:, None], 0)
    assert float(product.value(row)[0]) * product.unit == pytest.approx(
        weight / 2 + 1 / 3, rel=1e-12
    )
    is_exact = product.unit == pytest.approx(1 / 6, rel=1e-15)
    assert is_exact == (weight < 2**47)


def test_costs_too_far_apart_for_one_unit_are_refused():
    """2^57 and a third have no float64 that is their sum."""
    with pytest.raises(fg.InvalidInputError, match=r"4.32e\+17 times as much"):
        product_machine(one_symbol(2**58, 1 / 2), one_symbol(1, 1 / 3))


def test_the_product_of_automata_is_their_sum_on_every_string():
    a = fg.EditDistance(ABC).compile("abca")
    b = fg.NGram(ABC, 2).compile("bcab", 4)
    both = automaton_product(a, b, max_states=1000)
    for y in oracle.all_strings(3, 4):
        expected = a.loss(np.array(y)) + b.loss(np.array(y))
        assert both.loss(np.array(y)) == pytest.approx(expected, rel=1e-13)
    assert automaton_product(a, b, max_states=both.num_states).num_states == both.num_states
    with pytest.raises(fg.StateLimitError, match="product of the automata"):
        automaton_product(a, b, max_states=both.num_states - 1)


def test_a_sum_that_no_string_has():
    a = fg.NGram(ABC, 2).compile("aaaa")
    b = fg.NGram(ABC, 4).compile("bbbb")
    with pytest.raises(fg.InfeasibleError, match="finite sum"):
        automaton_product(a, b, max_states=1000)


@pytest.mark.parametrize("ratio", [(1 / 89, 1 / 97), (1 / 97, 1 / 89)])
def test_units_of_any_small_ratio_have_an_exact_one(ratio):
    product = product_machine(one_symbol(5, ratio[0]), one_symbol(7, ratio[1]))
    assert product.unit == pytest.approx(1 / (89 * 97), rel=1e-12)
    row = product.advance(product.initial[:, None], 0)
    exact = 5 * ratio[0] + 7 * ratio[1]
    assert float(product.value(row)[0]) * product.unit == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("large", [0, 1])
def test_either_side_may_have_the_large_weights(large):
    """Three times 2^47 passes 2^48, which leaves room for sums; then the smaller unit serves."""
    weight = 2**47
    machines = [one_symbol(weight, 1 / 2), one_symbol(1, 1 / 3)]
    product = product_machine(machines[large], machines[1 - large])
    assert product.unit == 1 / 3
    row = product.advance(product.initial[:, None], 0)
    total = float(product.value(row)[0]) * product.unit
    assert total == pytest.approx(weight / 2 + 1 / 3, rel=1e-12)


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda loss: 2.0 * loss])
@pytest.mark.parametrize("more", [{}, {"cap": 3.0}, {"band": 1}])
def test_the_limit_of_states_bounds_the_product_of_long_targets(wrap, more):
    """500 x 500 states take 1.2 GB and minutes; the limit says so before they are allocated."""
    loss = wrap(fg.EditDistance(ABC) + fg.EditDistance(ABC, insert_cost=2.0))
    target = np.random.default_rng(0).integers(3, size=500)
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(fg.StateLimitError, match=r"501 x 501 states.*max_states=2,000,000"):
            loss.compile(target, **more)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun < 20  # with the compilation of kernels
    with pytest.raises(fg.StateLimitError, match="sum of two losses") as caught:
        fg.Lattice.from_nbest([target], [0.0], ABC).compile(loss, target, cap=3.0, max_states=9)
    assert caught.value.states == 0


@pytest.mark.slow
def test_a_higher_limit_of_states_admits_a_longer_target():
    loss = fg.EditDistance(ABC) + fg.EditDistance(ABC, insert_cost=2.0)
    target = np.arange(230) % 3
    with pytest.raises(fg.StateLimitError, match="max_states=1,000"):
        loss.compile(target, cap=1.0, max_states=1000)
    assert loss.machine(target, max_states=2_000_000).num_states > 1000
