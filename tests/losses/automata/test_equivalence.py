"""States with equal futures, and epsilons in cycles, where machines are large."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.automata import determinize, equivalence, product, reduction
from fstgrad.losses.automata.kernels.tables import SPAN
from fstgrad.losses.automata.machine import Arcs, TargetMachine
from fstgrad.losses.automata.semiring import PROBABILITY, TROPICAL
from fstgrad.losses.transducers import edit_transducer, hamming_transducer
from fstgrad.openfst import FstArrays
from tests.oracles import strings as oracle

AB = fg.Alphabet("ab")
ABC = fg.Alphabet("abc")
NONE = Arcs(*(np.empty(0, dtype=np.int64) for _ in range(3)))


def random_machine(rng, states, *, silent):
    """Few weights and a few states, so that many futures are equal; epsilons lead up."""

    def arcs(number):
        ends = rng.integers(states, size=(2, number))
        return Arcs(*ends, rng.integers(2, size=number))

    low, high = np.sort(rng.integers(states, size=(2, states)), axis=0)
    up = low < high
    epsilon = Arcs(low[up], high[up], rng.integers(2, size=int(up.sum()))) if silent else NONE
    initial = TROPICAL.full((states,))
    initial[0] = 0
    machine = TargetMachine(
        TROPICAL, np.arange(2), (arcs(states), arcs(states)), epsilon, initial,
        np.where(rng.random(states) < 0.4, 0, TROPICAL.zero), 1.0,
    )  # fmt: skip
    return reduction.order_epsilons(machine)


def values(machine, length):
    """The value of every string of a length."""
    found = []
    for y in oracle.all_strings(2, length):
        rows = machine.initial[:, None]
        for symbol in y:
            rows = machine.advance(rows, machine.class_of[symbol])
        found.append(int(machine.value(rows)[0]))
    return found


@pytest.mark.parametrize("silent", [False, True], ids=["no epsilons", "epsilons"])
@pytest.mark.parametrize("seed", range(8))
def test_merging_arc_by_arc_changes_no_value(monkeypatch, seed, silent):
    machine = random_machine(np.random.default_rng(seed), 12, silent=silent)
    whole = equivalence.merge_equivalent_states(machine)
    monkeypatch.setattr(equivalence, "_CELLS", 0)
    by_arcs = equivalence.merge_equivalent_states(machine)
    assert whole.num_states <= by_arcs.num_states <= machine.num_states
    for length in range(5):
        assert values(by_arcs, length) == values(machine, length)


@pytest.mark.parametrize("arcs", [0, 2**20], ids=["no round", "all rounds"])
def test_equal_chains_become_one(monkeypatch, arcs):
    """Two chains of five states side by side, from one start: five states are equal in pairs."""
    step = np.arange(1, 5)
    source = np.concatenate([[0, 0], step, step + 5])
    nextstate = np.concatenate([[1, 6], step + 1, step + 6])
    reading = Arcs(source, nextstate, np.ones(len(source), dtype=np.int64))
    initial, final = TROPICAL.full((11,)), TROPICAL.full((11,))
    initial[0] = final[5] = final[10] = 0
    machine = TargetMachine(
        TROPICAL, np.zeros(2, dtype=np.int64), (reading,), NONE, initial, final, 1.0
    )
    monkeypatch.setattr(equivalence, "_CELLS", 0)
    monkeypatch.setattr(equivalence, "_ARCS", arcs)
    merged = equivalence.merge_equivalent_states(machine)
    assert merged.num_states == (6 if arcs else 11)
    assert [values(merged, n) for n in range(7)] == [values(machine, n) for n in range(7)]


@pytest.mark.parametrize("seed", range(4))
def test_hashes_that_collide_merge_nothing_that_differs(monkeypatch, seed):
    """Half of the time all arcs hash alike; what is merged is compared arc by arc in the end."""
    machine = random_machine(np.random.default_rng(seed), 12, silent=True)
    whole, calls = equivalence.hash_arcs, []

    def mix(*columns):
        calls.append(1)
        return whole(*columns) if len(calls) % 2 else np.ones_like(columns[0])

    monkeypatch.setattr(equivalence, "_CELLS", 0)
    monkeypatch.setattr(equivalence, "hash_arcs", mix)
    merged = equivalence.merge_equivalent_states(machine)
    assert calls
    assert [values(merged, n) for n in range(5)] == [values(machine, n) for n in range(5)]


def test_the_rounds_of_a_long_target_are_bounded(monkeypatch):
    """A target of one symbol takes a round for each of its 400 positions."""
    cells = []

    def refine(machine, block, blocks):
        cells.append((len(machine.arcs) + 1) * machine.num_states * blocks)
        return equivalence.refine_by_class(machine, block, blocks)

    monkeypatch.setattr(equivalence, "_CELLS", 2**16)
    monkeypatch.setattr(equivalence, "refine_costs", refine)
    loss = fg.TransducerLoss(hamming_transducer(AB), AB)
    machine = loss.machine("a" * 400)
    assert machine.num_states == 401
    assert sum(cells) <= 2**16
    row = machine.initial[:, None]
    for symbol in [0] * 398 + [1, 1]:
        row = machine.advance(row, machine.class_of[symbol])
    assert machine.value(row)[0] * machine.unit == 2.0


def with_cycle(fst, cost):
    """The transducer with a second state, which epsilons lead to and back from."""
    more = np.array([0, fst.num_states])
    return FstArrays(
        "log64",
        fst.start,
        np.append(fst.final, np.inf),
        np.append(fst.source, more),
        np.append(fst.ilabel, [0, 0]),
        np.append(fst.olabel, [0, 0]),
        np.append(fst.nextstate, more[::-1]),
        np.append(fst.weight, [cost, cost]),
    )


@pytest.fixture
def closed(monkeypatch):
    """How many states the closures had."""
    sizes, whole = [], reduction._cyclic_closure

    def closure(semiring, arcs, size):
        sizes.append(size)
        return whole(semiring, arcs, size)

    monkeypatch.setattr(reduction, "_cyclic_closure", closure)
    return sizes


def test_cycles_of_epsilons_are_closed_one_by_one(closed):
    """A cycle at each position of the target; around each, u grows by 1 / (1 - e^-10)."""
    fst = edit_transducer(ABC)
    fst = fst if isinstance(fst, FstArrays) else fg.TransducerLoss(fst, ABC)._arrays[0]
    target = "abcab"
    for semiring in ("tropical", "probability"):
        plain = fg.TransducerLoss(fst, ABC, semiring=semiring)
        cyclic = fg.TransducerLoss(with_cycle(fst, 5.0), ABC, semiring=semiring)
        assert cyclic.machine("ab" * 40).num_states >= 81
        assert max(closed) == 2
        for y in oracle.all_strings(3, 3):
            expected = plain.machine(target)
            found = cyclic.machine(target)
            rows = [m.initial[:, None] for m in (expected, found)]
            for symbol in y:
                rows = [
                    m.advance(row, m.class_of[symbol])
                    for m, row in zip((expected, found), rows, strict=True)
                ]
            one, other = (
                float(m.value(row)[0]) for m, row in zip((expected, found), rows, strict=True)
            )
            if semiring == "tropical":
                assert other * found.unit == one * expected.unit
            else:
                assert other > one


def test_weights_around_cycles_are_summed():
    """A state that maps a to a, and a cycle of epsilons: after n symbols, (1 - c^2)^-(n + 1)."""
    one = np.array([0])
    copies = FstArrays("log64", 0, np.zeros(1), one, one + 1, one + 1, one, np.zeros(1))
    a = fg.Alphabet("a")
    machine = fg.TransducerLoss(with_cycle(copies, 1.0), a, semiring="probability").machine("aaa")
    row = machine.initial[:, None]
    for _ in range(3):
        row = machine.advance(row, 0)
    assert machine.semiring is PROBABILITY
    assert machine.value(row)[0] == pytest.approx((1 - np.exp(-2)) ** -4, rel=1e-13)


def test_a_product_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    long = "abc" * 350
    both = fg.EditDistance(ABC) + 2.5 * fg.EditDistance(ABC, insert_cost=3.0)
    with pytest.raises(fg.MemoryLimitError, match="1,051 x 1,051 states"):
        both.compile(long)
    monkeypatch.setattr(product, "memory_limit", lambda: 2**10)
    with pytest.raises(fg.MemoryLimitError, match="shorten the strings"):
        both.compile("abc")


def test_bounds_that_do_not_fit_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(determinize, "memory_limit", lambda: 2**10)
    with pytest.raises(fg.StateLimitError, match="would bring memory to"):
        fg.EditDistance(ABC).compile("abcabcabc")


def test_rows_hold_fewer_states_than_their_spans(monkeypatch):
    monkeypatch.setattr(determinize.kernels.tables, "SPAN", 4)
    with pytest.raises(fg.NotSupportedError, match="has 4 states, but fewer than 4"):
        fg.EditDistance(ABC).compile("abc")
    assert SPAN == 2**20
