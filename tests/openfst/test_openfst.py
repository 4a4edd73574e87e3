"""The bridge, and one test for each hazard of OpenFst from Python."""

import math
import os
import tempfile

import numpy as np
import pynini
import pytest
import pywrapfst

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import transducers
from fstgrad.openfst import conversion
from fstgrad.openfst.library import caught_messages

ARC_TYPES = ("standard", "log", "log64")


def random_arrays(rng, arc_type="log64", states=6, arcs=20, symbols=None):
    """An acyclic transducer with final states, parallel arcs and epsilons on either side."""
    ends = np.sort([rng.choice(states, 2, replace=False) for _ in range(arcs)], axis=1)
    costs = rng.normal(size=arcs + states)
    if arc_type != "log64":
        costs = costs.astype(np.float32).astype(np.float64)
    return openfst.FstArrays(
        arc_type=arc_type,
        start=0,
        final=np.where(rng.random(states) < 0.5, costs[arcs:], np.inf),
        source=ends[:, 0],
        ilabel=rng.integers(0, 4, arcs),
        olabel=rng.integers(0, 4, arcs),
        nextstate=ends[:, 1],
        weight=costs[:arcs],
        input_symbols=symbols,
        output_symbols=symbols,
    )


def assert_same(left, right):
    assert (left.arc_type, left.start) == (right.arc_type, right.start)
    assert left.input_symbols == right.input_symbols
    assert left.output_symbols == right.output_symbols
    for name in ("final", "source", "ilabel", "olabel", "nextstate", "weight"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


def two_paths(arc_type, first, second):
    """Two states, two parallel arcs with label 1 and these costs."""
    return openfst.from_arrays(
        openfst.FstArrays(
            arc_type, 0, np.array([np.inf, 0.0]), [0, 0], [1, 1], [1, 1], [1, 1], [first, second]
        )
    )


@pytest.mark.parametrize("arc_type", ARC_TYPES)
@pytest.mark.parametrize("symbols", [None, ((0, "<eps>"), (1, "a"), (2, "é"), (3, "["), (9, "x"))])
def test_arrays_survive_the_round_trip(arc_type, symbols):
    for seed in range(5):
        arrays = random_arrays(np.random.default_rng(seed), arc_type, symbols=symbols)
        fst = openfst.from_arrays(arrays)
        assert fst.verify()
        assert_same(openfst.to_arrays(fst), arrays)


@pytest.mark.parametrize("arc_type", ARC_TYPES)
def test_the_fst_survives_the_round_trip(arc_type):
    fst = pynini.accep("abc", weight=2.5, arc_type=arc_type) | pynini.accep("x", arc_type=arc_type)
    again = openfst.from_arrays(openfst.to_arrays(fst))
    assert pynini.equal(fst, again)
    assert fst.num_input_epsilons(fst.start()) == again.num_input_epsilons(again.start())


def test_arcs_that_pynini_added_are_read():
    fst = pynini.Fst(arc_type="log64")
    fst.add_states(2)
    fst.set_start(1)
    fst.set_final(0, 0.25)
    fst.add_arc(1, pynini.Arc(3, 0, pynini.Weight("log64", 1.5), 0))
    arrays = openfst.to_arrays(fst)
    assert (arrays.arc_type, arrays.start) == ("log64", 1)
    assert (arrays.num_states, arrays.num_arcs) == (2, 1)
    np.testing.assert_array_equal(arrays.final, [0.25, np.inf])
    arc = [arrays.source[0], arrays.ilabel[0], arrays.olabel[0], arrays.nextstate[0]]
    assert (arc, arrays.weight[0]) == ([1, 3, 0, 0], 1.5)


@pytest.mark.parametrize("kind", ["const", "vector", "compact_acceptor"])
def test_every_kind_of_fst_is_read(kind):
    symbols = openfst.symbol_table(fg.Alphabet("ab"))
    fst = pynini.accep("a b b a", token_type=symbols)
    fst.set_input_symbols(symbols)
    arrays = openfst.to_arrays(pywrapfst.convert(fst, kind))
    np.testing.assert_array_equal(arrays.ilabel, [1, 2, 2, 1])
    assert arrays.input_symbols == ((0, "<eps>"), (1, "a"), (2, "b"))


def test_an_empty_fst_has_no_start():
    arrays = openfst.to_arrays(pynini.Fst())
    assert (arrays.start, arrays.num_states, arrays.num_arcs) == (-1, 0, 0)
    assert openfst.is_empty(openfst.from_arrays(arrays))


def test_arcs_are_sorted_and_frozen():
    given = np.array([2.0, 1.0])
    arrays = openfst.FstArrays(
        "log64", 0, np.zeros(2), [1, 0], [2, 1], [2, 1], [1, 0], weight=given
    )
    np.testing.assert_array_equal(arrays.source, [0, 1])
    np.testing.assert_array_equal(arrays.weight, [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        arrays.weight[0] = 3.0


@pytest.mark.parametrize(
    "changed, error, said",
    [
        ({"arc_type": "log32"}, fg.FstError, "'log32'"),
        ({"nextstate": [5]}, fg.InvalidInputError, r"nextstate has states outside 0 .. 1"),
        ({"start": 2}, fg.InvalidInputError, "start is 2; there are 2 states"),
        ({"weight": [1.0, 2.0]}, fg.InvalidInputError, r"weight has shape \(2,\); there are 1"),
    ],
)
def test_arrays_that_are_no_fst(changed, error, said):
    fields = {
        "arc_type": "log64", "start": 0, "final": [0.0, 0.0], "source": [0], "ilabel": [1],
        "olabel": [1], "nextstate": [1], "weight": [0.0],
    }  # fmt: skip
    with pytest.raises(error, match=said):
        openfst.FstArrays(**{**fields, **changed})


# Hazard 1: float(weight) goes through a string of nine digits.


def test_weights_do_not_pass_through_nine_digits():
    cost = 314.15926535897932
    fst = two_paths("log64", cost, math.pi)
    (first, _) = (float(arc.weight) for arc in fst.arcs(0))
    assert first != cost  # the hazard: should this become exact, read weights as you like
    assert abs(first - cost) < 1e-6
    np.testing.assert_array_equal(openfst.to_arrays(fst).weight, [cost, math.pi])


def test_distances_do_not_pass_through_nine_digits():
    fst = two_paths("log64", 314.15926535897932, 314.15926535897932)
    expected = 314.15926535897932 - math.log(2)
    np.testing.assert_array_equal(
        openfst.shortest_distance(fst, delta=1e-15)[1], pytest.approx(expected, abs=1e-13)
    )


# Hazard 2: determinize and shortest distance quantise.


def test_delta_decides_what_determinization_tells_apart():
    # the paths 1 2 (cost 0) and 1 3 (cost 1.3e-7) share the first arc of the result
    cost = 1.3e-7
    final = [np.inf, np.inf, np.inf, 0.0]
    labels = [1, 1, 2, 3]
    fst = openfst.from_arrays(
        openfst.FstArrays(
            "log64", 0, final, [0, 0, 1, 2], labels, labels, [1, 2, 3, 3], [0.0, cost, 0.0, 0.0]
        )
    )

    def error(delta):
        arrays = openfst.to_arrays(openfst.determinize(fst, delta=delta))
        first, third = (arrays.weight[arrays.ilabel == label].item() for label in (1, 3))
        return abs(first + third - cost)

    assert 1e-8 < error(1e-6) < 1e-6
    assert error(1e-15) < 1e-14


# Hazard 3: "log" and "standard" are float32.


@pytest.mark.parametrize("arc_type, exact", [("standard", False), ("log", False), ("log64", True)])
def test_only_log64_keeps_float64(arc_type, exact):
    kept = openfst.to_arrays(two_paths(arc_type, 0.1, 2.0**24 + 1)).weight
    expected = [0.1, 2.0**24 + 1] if exact else [float(np.float32(0.1)), 2.0**24]
    np.testing.assert_array_equal(kept, expected)


def test_standard_widens_to_log64_exactly():
    fst = two_paths("standard", 0.1, 2.0**24)
    wide = openfst.with_arc_type(fst, "log64")
    assert wide.arc_type() == "log64"
    np.testing.assert_array_equal(openfst.to_arrays(wide).weight, openfst.to_arrays(fst).weight)
    assert pynini.equal(openfst.with_arc_type(wide, "standard"), fst)


# Hazard 5: mixed arc types and symbols fail without a reason, an empty result without a word.


def test_mixed_arc_types_are_named(capfd):
    with pytest.raises(fg.FstError, match=r"'standard' with 'log64'.*with_arc_type"):
        openfst.compose(two_paths("standard", 0, 1), two_paths("log64", 0, 1))
    assert capfd.readouterr().err == ""  # OpenFst was not asked


def test_clashing_symbols_are_named(capfd):
    fst = two_paths("log64", 0, 1)
    left, right = (openfst.with_symbols(fst, fg.Alphabet(symbols)) for symbols in ("ab", "ac"))
    with pytest.raises(fg.FstError, match="label 2 is 'b' on the left and 'c' on the right"):
        openfst.compose(left, right)
    assert capfd.readouterr().err == ""
    assert not openfst.is_empty(openfst.compose(left, fst))  # one table is no clash


def test_an_empty_composition_is_seen():
    other = openfst.from_arrays(
        openfst.FstArrays("log64", 0, [np.inf, 0.0], [0], [2], [2], [1], [0.0])
    )
    empty = openfst.compose(two_paths("log64", 0, 1), other)
    assert openfst.is_empty(empty)
    assert openfst.to_arrays(empty).num_states == 0


def test_a_failure_of_openfst_is_an_fst_error(capfd):
    mixed = openfst.from_arrays(openfst.FstArrays("log64", 0, [0.0], [0], [1], [2], [0], [0.0]))
    with pytest.raises(fg.FstError, match=r"could not minimize.*stderr"):
        openfst.minimize(two_paths("log64", 0, 1) + mixed, delta=1e-12)
    assert "deterministic" in capfd.readouterr().err


# Hazard 6: brackets are special in pynini's strings.


def test_brackets_are_plain_symbols():
    with pytest.raises(pynini.FstStringCompilationError):
        pynini.accep("[a")
    alphabet = fg.Alphabet("[a]")
    label = alphabet.encode("[a]") + 1
    fst = openfst.with_symbols(
        openfst.from_arrays(
            openfst.FstArrays(
                "standard", 0, [np.inf, np.inf, np.inf, 0.0], [0, 1, 2], label, label, [1, 2, 3],
                np.zeros(3),
            )
        ),
        alphabet,
    )  # fmt: skip
    assert fst.string(token_type=openfst.symbol_table(alphabet)) == "[ a ]"


# Operations


def test_distances_add_paths_in_log_and_take_the_best_in_tropical():
    costs = (1.0, 3.0)
    for reverse, state in ((False, 1), (True, 0)):
        best = openfst.shortest_distance(
            two_paths("standard", *costs), delta=1e-12, reverse=reverse
        )
        total = openfst.shortest_distance(two_paths("log64", *costs), delta=1e-15, reverse=reverse)
        assert best[state] == 1.0
        assert total[state] == pytest.approx(-math.log(math.exp(-1.0) + math.exp(-3.0)), abs=1e-14)


def test_distances_of_a_larger_machine_follow_the_sums():
    arrays = random_arrays(np.random.default_rng(3), states=8, arcs=30)
    mass = np.zeros(8)
    mass[0] = 1.0
    for source, target, cost in zip(arrays.source, arrays.nextstate, arrays.weight, strict=True):
        mass[target] += mass[source] * math.exp(-cost)  # sources ascend, so their sums are whole
    rest = np.exp(-arrays.final)
    for arc in reversed(range(arrays.num_arcs)):
        step = math.exp(-arrays.weight[arc]) * rest[arrays.nextstate[arc]]
        rest[arrays.source[arc]] += step
    fst = openfst.from_arrays(arrays)
    for reverse, expected in ((False, mass), (True, rest)):
        found = openfst.shortest_distance(fst, delta=1e-300, reverse=reverse)
        np.testing.assert_allclose(np.exp(-found), expected, rtol=1e-13)
    assert openfst.shortest_distance(pynini.Fst(), delta=1e-300).shape == (0,)


def test_operations_leave_their_argument_alone():
    fst = openfst.from_arrays(random_arrays(np.random.default_rng(1)))
    before = openfst.to_arrays(fst)
    for operation in (
        lambda: openfst.project(fst, "input"),
        lambda: openfst.connect(fst),
        lambda: openfst.arc_sort(fst, "olabel"),
        lambda: openfst.remove_epsilons(fst, delta=1e-12),
        lambda: openfst.with_symbols(fst, fg.Alphabet("abc")),
        lambda: openfst.with_arc_type(fst, "log64").set_start(3),
    ):
        operation()
        assert_same(openfst.to_arrays(fst), before)


def test_determinization_stops_at_the_state_limit():
    # (1|2)* 1 (1|2)^3: 2^4 subsets
    arcs = [(0, 1, 0), (0, 2, 0), (0, 1, 1), *((s, a, s + 1) for s in (1, 2, 3) for a in (1, 2))]
    source, label, target = np.array(arcs).T
    fst = openfst.from_arrays(
        openfst.FstArrays(
            "standard", 0, [np.inf] * 4 + [0.0], source, label, label, target, np.zeros(len(arcs))
        )
    )
    assert openfst.determinize(fst, delta=1e-6).num_states() == 16
    assert openfst.determinize(fst, delta=1e-6, max_states=5).num_states() == 5
    with pytest.raises(fg.FstError, match="no state limit for arc type 'log64'"):
        openfst.determinize(openfst.with_arc_type(fst, "log64"), delta=1e-6, max_states=5)


def test_pruning_keeps_the_paths_near_the_best():
    fst = two_paths("standard", 1.0, 3.0)
    assert openfst.to_arrays(openfst.prune(fst, 1.5)).weight.tolist() == [1.0]
    assert openfst.to_arrays(openfst.prune(fst, 2.5)).weight.tolist() == [1.0, 3.0]
    with pytest.raises(fg.FstError, match="'log64'; pruning needs 'standard'"):
        openfst.prune(openfst.with_arc_type(fst, "log64"), 1.0)


def test_shape_questions():
    fst = two_paths("log64", 0, 1)
    loop = fst.copy().closure()
    assert openfst.is_acceptor(fst)
    assert openfst.is_acyclic(fst)
    assert not openfst.is_acyclic(loop)
    assert not openfst.is_acceptor(openfst.from_arrays(random_arrays(np.random.default_rng(0))))


def test_what_is_no_fst_is_refused():
    with pytest.raises(fg.FstError, match=r"a str; give a pynini.Fst"):
        openfst.read("abc")


def test_messages_without_a_place_for_a_file(monkeypatch):
    """No temporary folder: the reason of an error is lost, the error itself is not."""

    def refuse(*_arguments, **_options):
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with caught_messages() as reasons:
        os.write(2, b"ERROR: lost\n")
    assert reasons == []


def test_an_unknown_arc_type_is_refused():
    class Other:
        def arc_type(self):
            return "signed_log"

    with pytest.raises(fg.FstError, match="'signed_log'; use one of standard, log"):
        conversion._checked_arc_type(Other())


def test_a_cycle_has_no_topological_order():
    loop = pynini.closure(pynini.accep("a"))
    for operation in (openfst.topsort, openfst.string_lengths):
        with pytest.raises(fg.FstError, match="has a cycle"):
            operation(loop)


def test_a_word_for_pynini_has_the_labels_of_the_grammar():
    """Strings of pynini have the labels of bytes, so that a composition with them is empty."""
    abc, sounds = fg.Alphabet("abc"), fg.Alphabet(["K", "AE"])
    grammar = openfst.with_symbols(transducers.edit_transducer(abc), abc)
    word, byte_string = openfst.acceptor_for("ab", grammar), pynini.accep("ab")
    assert pynini.accep("a b", token_type=grammar.input_symbols()) == word
    assert not openfst.is_empty(openfst.compose(word, grammar))
    assert pynini.compose(byte_string, grammar).num_states() == 0
    for left, right, side in ((byte_string, grammar, "left"), (grammar, byte_string, "right")):
        with pytest.raises(
            fg.FstError, match=f"the composition is empty, and {side} has no symbol"
        ):
            openfst.compose(left, right)
    with pytest.raises(fg.FstError, match=r"for a word, fstgrad.openfst.acceptor_for\(word, fst\)"):
        openfst.compose("ab", grammar)
    with pytest.raises(fg.FstError, match="if it is the byte of 'a', make all strings with a"):
        fg.TransducerLoss(pynini.union(grammar, "a"), abc)
    beyond = pynini.union(*"aé").closure()  # two labels for é
    with pytest.raises(fg.FstError, match=r"has the bytes of 'é': build its strings .*utf8"):
        fg.TransducerLoss(openfst.with_character_symbols(beyond), fg.Alphabet("aé"))
    with pytest.raises(fg.AlphabetError, match="'z' in sequence is no symbol of the input side"):
        openfst.acceptor_for("az", grammar)
    phones = openfst.with_symbols(transducers.edit_transducer(sounds), sounds)
    spelled = openfst.acceptor_for(["K", "AE"], phones, "output")
    assert spelled == pynini.accep("K AE", token_type=phones.output_symbols())
    assert openfst.acceptor_for("ab", pynini.cross("ab", "c")) == openfst.with_character_symbols(
        byte_string
    )
    log64 = openfst.with_arc_type(grammar, "log64")
    assert openfst.acceptor_for("", log64).arc_type() == "log64"


@pytest.mark.parametrize("operation", [openfst.remove_epsilons, openfst.shortest_distance])
@pytest.mark.parametrize(
    "arc_type, costs, diverges",
    [
        ("log64", (0.0,), True),
        ("log64", (-0.001,), True),
        ("log64", (np.log(2), np.log(2)), True),
        ("log64", (0.7,), False),
        ("standard", (0.0,), False),
        ("standard", (-0.001,), True),
        ("standard", (1.0, -0.5), True),
    ],
)
def test_epsilon_cycles_whose_sum_diverges_are_refused(operation, arc_type, costs, diverges):
    """A cycle through two states: 1 / (1 - sum of exp(-cost)) is infinite, or a cost falls."""
    there = np.arange(len(costs) + 1) > 0
    fst = openfst.from_arrays(
        openfst.FstArrays(
            arc_type=arc_type, start=0, final=np.array([0.0, np.inf]),
            source=np.append(np.ones(len(costs), dtype=np.int64), 0),
            ilabel=np.zeros(len(there), dtype=np.int64),
            olabel=np.zeros(len(there), dtype=np.int64),
            nextstate=np.append(np.zeros(len(costs), dtype=np.int64), 1),
            weight=np.append(costs, 0.0),
        )
    )  # fmt: skip
    if diverges:
        with pytest.raises(fg.FstError, match="around state 0 diverges"):
            operation(fst, delta=1e-9)
        return
    total = -np.log(1 / (1 - np.exp(-costs[0]))) if arc_type == "log64" else 0.0
    found = operation(fst, delta=1e-12)
    first = openfst.to_arrays(found).final[0] if operation is openfst.remove_epsilons else found[0]
    assert first == pytest.approx(total, abs=1e-9)
