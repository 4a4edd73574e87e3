"""Builders against enumeration, and their sizes."""

import itertools
import math

import numpy as np
import pynini
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import transducers
from tests.machines import paths
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
SHORT = [y for length in range(4) for y in oracle.all_strings(2, length)]
ARC_TYPES = ("standard", "log64")


def tropical_value(fst, y, z):
    return oracle.min_path_cost(*paths(fst), y, z, epsilon=-1)


def size(fst):
    arrays = openfst.to_arrays(fst)
    return arrays.num_states, arrays.num_arcs


@pytest.mark.parametrize("arc_type", ARC_TYPES)
def test_a_string_acceptor_accepts_its_string(arc_type):
    fst = transducers.string_acceptor(ABC, "cab", arc_type=arc_type)
    assert size(fst) == (4, 3)
    for z in oracle.all_strings(3, 3):
        assert tropical_value(fst, z, z) == (0.0 if z == (2, 0, 1) else math.inf)


def test_a_string_acceptor_takes_symbols_ids_and_nothing():
    words = fg.Alphabet(["to", "be", "[or]"])
    by_symbol = transducers.string_acceptor(words, ["[or]", "be"])
    assert pynini.equal(by_symbol, transducers.string_acceptor(words, np.array([2, 1])))
    assert size(transducers.string_acceptor(words, [])) == (1, 0)
    with pytest.raises(fg.AlphabetError, match="'not'"):
        transducers.string_acceptor(words, ["not"])


def test_sigma_power_accepts_all_strings_of_its_length():
    fst = transducers.sigma_power(ABC, 2)
    assert size(fst) == (2 + 1, 2 * 3)
    for length in (1, 2, 3):
        for z in oracle.all_strings(3, length):
            assert tropical_value(fst, z, z) == (0.0 if length == 2 else math.inf)
    with pytest.raises(fg.InvalidInputError, match="length is 0"):
        transducers.sigma_power(ABC, 0)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_ngram_counter_counts(order):
    fst = transducers.ngram_counter(ABC, order)
    assert fst.arc_type() == "log64"
    assert size(fst) == (order + 1, (order + 2) * 3)
    y = (0, 0, 1, 0, 0, 1, 2)
    for u in oracle.all_strings(3, order):
        count = sum(y[i : i + order] == u for i in range(len(y) - order + 1))
        assert oracle.path_sum(*paths(fst), y, u, epsilon=-1) == count


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_composition_of_counters_is_the_similarity(order):
    counter = transducers.ngram_counter(fg.Alphabet("ab"), order)
    similarity = openfst.compose(counter, pynini.invert(counter))
    for y, z in itertools.product(SHORT[-8:], SHORT[-8:]):
        assert oracle.path_sum(*paths(similarity), y, z, epsilon=-1) == oracle.ngram_count(
            y, z, order
        )


COSTS = [(1.0, 1.0, 1.0), (1.0, 2.0, 3.0), (0.5, 0.25, 1.75), (0.0, 1.0, 0.0)]


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("arc_type", ARC_TYPES)
def test_edit_distance_whole_and_factored(costs, arc_type):
    names = dict(zip(("insert_cost", "delete_cost", "substitute_cost"), costs, strict=True))
    two = fg.Alphabet("ab")
    whole = transducers.edit_transducer(two, **names, arc_type=arc_type)
    product = openfst.compose(*transducers.edit_factors(two, **names, arc_type=arc_type))
    insert, delete, substitute = costs
    for y, z in itertools.product(SHORT, SHORT):
        expected = oracle.edit_distance(y, z, insert=insert, delete=delete, substitute=substitute)
        assert tropical_value(whole, y, z) == expected
        assert tropical_value(product, y, z) == expected


def test_deletion_removes_from_the_hypothesis():
    fst = transducers.edit_transducer(ABC, insert_cost=2.0, delete_cost=5.0)
    assert tropical_value(fst, (0, 1), (0,)) == 5.0
    assert tropical_value(fst, (0,), (0, 1)) == 2.0


def test_confusion_costs_pairs_and_the_diagonal():
    confusion = np.array([[0.125, 2.0], [0.5, -1.0]])
    fst = transducers.edit_transducer(fg.Alphabet("ab"), confusion=confusion, arc_type="log64")
    for y, z in itertools.product(SHORT, SHORT):
        assert tropical_value(fst, y, z) == oracle.edit_distance(y, z, confusion=confusion)
    assert tropical_value(fst, (0,), (1,)) == 2.0  # rows are the hypothesis, and a + b costs 2
    assert tropical_value(fst, (1,), (0,)) == 0.5


def test_costs_are_float64_in_log64_and_float32_in_standard():
    exact, rounded = (
        openfst.to_arrays(transducers.edit_transducer(ABC, insert_cost=0.1, arc_type=t)).weight
        for t in ("log64", "standard")
    )
    assert 0.1 in exact
    assert 0.1 not in rounded
    assert float(np.float32(0.1)) in rounded


@pytest.mark.parametrize("n", [2, 10, 200])
def test_sizes_of_edit(n):
    alphabet = fg.Alphabet([f"s{i}" for i in range(n)])
    assert size(transducers.edit_transducer(alphabet)) == (1, n * (n + 2))
    for factor in transducers.edit_factors(alphabet):
        assert size(factor) == (1, 3 * n + 1)  # linear in the alphabet
    assert size(transducers.hamming_transducer(alphabet)) == (1, n * n)
    assert size(transducers.smith_waterman_transducer(alphabet)) == (3, n * (n + 6) + 2)


def test_factors_composed_from_the_right_stay_linear():
    n, length = 200, 5
    alphabet = fg.Alphabet([f"s{i}" for i in range(n)])
    target = transducers.string_acceptor(alphabet, np.arange(length))
    left, right = transducers.edit_factors(alphabet)
    states, arcs = size(openfst.compose(left, openfst.compose(right, target)))
    assert states == length + 1
    assert arcs == length * (1 + n + 1) + (length + 1) * n  # a:a, any:b, insert b; delete any


@pytest.mark.parametrize("costs", [(-2.0, 1.0, 1.0, 1.0), (-1.0, 0.5, 0.25, 2.0)])
def test_local_alignment(costs):
    match, substitute, insert, delete = costs
    named = {"match": match, "substitute": substitute, "insert": insert, "delete": delete}
    fst = transducers.smith_waterman_transducer(fg.Alphabet("ab"), **named)
    short = [y for y in SHORT if len(y) < 3] + [(0, 1, 0), (1, 1, 0)]
    for y, z in itertools.product(short, short):
        assert tropical_value(fst, y, z) == oracle.smith_waterman(y, z, **named)


def test_local_alignment_may_align_nothing():
    fst = transducers.smith_waterman_transducer(ABC)
    assert tropical_value(fst, (0, 0), (1, 1)) == 0.0
    assert tropical_value(fst, (2, 0, 1), (0, 1, 1)) == -2.0 - 2.0


def test_hamming():
    fst = transducers.hamming_transducer(fg.Alphabet("ab"), cost=0.5)
    for y, z in itertools.product(SHORT, SHORT):
        assert tropical_value(fst, y, z) == oracle.hamming(y, z, cost=0.5)


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: transducers.edit_transducer(ABC, insert_cost=-1.0), "insert_cost is -1.0"),
        (lambda: transducers.edit_factors(ABC, substitute_cost=math.nan), "substitute_cost is nan"),
        (lambda: transducers.edit_transducer(ABC, confusion=np.zeros((2, 3))), r"\(2, 3\).*\(3, 3"),
        (lambda: transducers.smith_waterman_transducer(ABC, match=math.inf), "match.* is inf"),
        (lambda: transducers.hamming_transducer(ABC, cost=-0.5), "cost is -0.5"),
        (lambda: transducers.ngram_counter(ABC, 0), "order is 0"),
    ],
)
def test_bad_costs(build, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        build()
