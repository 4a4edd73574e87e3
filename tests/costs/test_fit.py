"""Learning costs: counts and steps against enumeration, monotone likelihood, planted tables."""

import math

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.commands.grammar_fit import _progress
from fstgrad.costs import Schedule, pair_transducer, with_costs
from fstgrad.costs.em import Estimator, Weights
from fstgrad.costs.fit import _estimator
from fstgrad.costs.parameter_tying import ParameterTying
from fstgrad.costs.transducer import Pairs, PairTransducer
from fstgrad.openfst import FstArrays, from_arrays
from tests.oracles import costs as oracle

ABC = fg.Alphabet("ab")
GIVEN = {"nothing": None, "hypothesis": 0, "target": 1}


def random_machine(rng, *, states=3, arcs=14, silent=True):
    """A transducer over "ab" with epsilons on either side and silent cycles of positive cost."""
    found = []
    for _ in range(arcs):
        read, written = rng.integers(-1, 2, size=2).tolist()
        if read < 0 and written < 0 and not silent:
            continue
        cost = rng.uniform(0.1, 2.0) + (3.0 if read < 0 and written < 0 else 0.0)
        ends = rng.integers(0, states, size=2).tolist()
        symbols = (None if read < 0 else read, None if written < 0 else written)
        found.append((ends[0], *symbols, cost, ends[1]))
    # every pair has a path
    found += [
        (0, a, b, 2.0, 0) for a in (None, 0, 1) for b in (None, 0, 1) if (a, b) != (None,) * 2
    ]
    return 0, found, {0: 0.5, states - 1: 1.25}


def as_fst(machine):
    start, arcs, final = machine
    states = 1 + max(max(arc[0], arc[4]) for arc in arcs)
    states = max(states, 1 + max(final))
    ends = np.full(states, np.inf)
    ends[list(final)] = list(final.values())
    label = {None: 0, 0: 1, 1: 2}
    columns = [np.array([arc[i] for arc in arcs], dtype=float) for i in (0, 3, 4)]
    sides = [np.array([label[arc[i]] for arc in arcs]) for i in (1, 2)]
    source, cost, nextstate = columns
    return FstArrays("log64", start, ends, source.astype(int), *sides, nextstate.astype(int), cost)


def trimmed(machine):
    """The machine without what is on no path, its arcs in the order of an transducer."""
    transducer = PairTransducer.from_fst(as_fst(machine), ABC)
    arcs = [
        (int(s), int(a) - 1 if a else None, int(b) - 1 if b else None, float(c), int(t))
        for s, a, b, c, t in zip(
            transducer.source,
            transducer.ilabel,
            transducer.olabel,
            transducer.cost[: transducer.num_arcs],
            transducer.nextstate,
            strict=True,
        )
    ]
    final = transducer.cost[transducer.num_arcs :]
    ends = {s: float(cost) for s, cost in enumerate(final) if np.isfinite(cost)}
    return transducer, (transducer.start, arcs, ends)


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_all_paths(seed):
    rng = np.random.default_rng(seed)
    transducer, machine = trimmed(random_machine(rng))
    rows = [rng.integers(0, 2, size=rng.integers(0, 4, size=2)[k % 2]) for k in range(8)]
    pairs = Pairs.encode(ABC, list(zip(rows[::2], rows[1::2], strict=True)))
    values, counts = transducer.expected_counts(pairs, -transducer.cost)
    expected = np.zeros(len(counts))
    for n, (x, y) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        total, found = oracle.expected_counts(machine, x.tolist(), y.tolist())
        assert values[n] == pytest.approx(math.log(total), abs=1e-10)
        for event, count in found.items():
            expected[event if isinstance(event, int) else transducer.num_arcs + event[1]] += count
    np.testing.assert_allclose(counts, expected, atol=1e-10)
    np.testing.assert_allclose(transducer.log_sums(pairs, -transducer.cost), values, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_alignment_is_the_best_of_all_paths(seed):
    rng = np.random.default_rng(seed)
    transducer, machine = trimmed(random_machine(rng))
    x, y = rng.integers(0, 2, size=3), rng.integers(0, 2, size=2)
    best = max(weight for weight, _ in oracle.paths(machine, x.tolist(), y.tolist(), 1e-9))
    events, value = transducer.best_path(x, y, -transducer.cost)
    assert value == pytest.approx(math.log(best), abs=1e-12)
    assert -transducer.cost[events].sum() == pytest.approx(value, abs=1e-12)
    pairs = Pairs.encode(ABC, [(x, y, 2.0)])
    values, counts = transducer.best_counts(pairs, -transducer.cost)
    assert values[0] == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(counts, 2.0 * np.bincount(events, minlength=len(counts)))


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_that_of_enumeration(seed, given):
    """Starting from normalized weights, one step of EM on random transducers with epsilons."""
    rng = np.random.default_rng(seed)
    transducer, _ = trimmed(random_machine(rng))
    ties = ParameterTying.of(transducer, "arc", given)
    estimator = Estimator(transducer, ties, np.zeros(len(ties.cell_class)), 0.0)
    weights = estimator.initial()
    start = -estimator.log_weights(weights)
    arcs = [
        (int(s), int(a) - 1 if a else None, int(b) - 1 if b else None, float(c), int(t))
        for s, a, b, c, t in zip(
            transducer.source,
            transducer.ilabel,
            transducer.olabel,
            start,
            transducer.nextstate,
            strict=False,
        )
    ]
    ends = {s: float(c) for s, c in enumerate(start[transducer.num_arcs :]) if np.isfinite(c)}
    rows = [([0, 1], [1]), ([1], [1, 0]), ([0, 0], [0, 1])]
    expected = oracle.maximized((transducer.start, arcs, ends), rows, GIVEN[given])
    pairs = Pairs.encode(ABC, rows)
    found = -estimator.log_weights(estimator.step(weights, pairs)[2])
    for event, cost in expected.items():
        number = event if isinstance(event, int) else transducer.num_arcs + event[1]
        assert found[number] == pytest.approx(cost, abs=1e-8) or math.exp(-cost) < 1e-12


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("tie", ["arc", "pair", "cost", lambda read, written, cost: bool(read)])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_likelihood_never_decreases(given, tie, smoothing):
    rng = np.random.default_rng(3)
    rows = [
        (rng.integers(0, 2, size=rng.integers(0, 4)), rng.integers(0, 2, size=rng.integers(0, 4)))
        for _ in range(30)
    ]
    fst = as_fst(random_machine(rng))
    loss = fg.TransducerLoss(from_arrays(fst), ABC)
    transducer = PairTransducer.from_fst(fst, ABC)
    ties = ParameterTying.of(transducer, tie, given)
    estimator = Estimator(transducer, ties, np.full(len(ties.cell_class), smoothing), smoothing)
    weights, pairs, before = estimator.initial(), Pairs.encode(ABC, rows), -np.inf
    for _ in range(12):
        values, _, after = estimator.step(weights, pairs)
        value = values.sum() + estimator.log_prior(weights)
        assert value >= before - 1e-9 * abs(value)
        before, weights = value, after
    schedule = Schedule(max_iter=11, tolerance=0.0)
    fit = fg.fit_costs(loss, rows, given=given, tie=tie, smoothing=smoothing, schedule=schedule)
    assert fit.log_likelihood[0] == pytest.approx(
        PairTransducer.log_sums(fit.pair_transducer, pairs, -fit.initial_cost).sum(), abs=1e-9
    )
    assert fit.log_likelihood[-1] > fit.log_likelihood[0]


@pytest.mark.parametrize("tie", ["arc", "pair", "cost"])
def test_probabilities_of_alternatives_sum_to_one(tie):
    rng = np.random.default_rng(5)
    loss = fg.TransducerLoss(from_arrays(as_fst(random_machine(rng))), ABC)
    rows = [("ab", "b"), ("a", "ba"), ("bb", "ab")]
    joint = fg.fit_costs(loss, rows, tie=tie, smoothing=0.1)
    transducer, p = joint.pair_transducer, np.exp(-joint.cost)
    leaving = np.bincount(
        transducer.source, p[: transducer.num_arcs], minlength=transducer.num_states
    )
    np.testing.assert_allclose(leaving + p[transducer.num_arcs :], 1.0, atol=1e-12)
    assert {row.given for row in joint.rows} == {""}
    fit = fg.fit_costs(loss, rows, tie=tie, smoothing=0.1, given="hypothesis")
    assert {row.given for row in fit.rows} == {"", "a", "b"}
    p = np.exp(-fit.cost)
    for state in range(transducer.num_states):
        here = fit.pair_transducer.source == state
        free = p[: transducer.num_arcs][here & (fit.pair_transducer.ilabel == 0)].sum()
        for label in (1, 2):
            reading = p[: transducer.num_arcs][here & (fit.pair_transducer.ilabel == label)]
            assert not len(reading) or free + reading.sum() == pytest.approx(1.0, abs=1e-12)


def test_one_edit_distance_by_hand():
    """Copies only: the counts are those of the symbols, and of two ends."""
    fit = fg.fit_costs(fg.Hamming(ABC), [("ab", "ab"), ("aab", "abb")])
    cost = {row.name: row.cost for row in fit.rows}
    assert cost["a -> a"] == pytest.approx(-math.log(2 / 7))
    assert cost["b -> b"] == pytest.approx(-math.log(2 / 7))
    assert cost["a -> b"] == pytest.approx(-math.log(1 / 7))
    assert cost["b -> a"] == math.inf
    assert cost["(end)"] == pytest.approx(-math.log(2 / 7))
    assert fit.loss()("ab", "bb") == pytest.approx(-math.log((1 / 7) * (2 / 7) ** 2))
    assert fit.loss()("b", "a") == math.inf


def test_the_probability_of_a_pair_is_that_of_the_loss():
    rows = [("ab", "b"), ("a", "ba"), ("bb", "ab")]
    fit = fg.fit_costs(fg.EditDistance(ABC), rows, smoothing=0.2)
    values = fit.pair_transducer.log_sums(Pairs.encode(ABC, rows), -fit.cost)
    loss = fit.loss("probability")
    for (x, y), value in zip(rows, values, strict=True):
        assert loss(x, y) == pytest.approx(-value, abs=1e-10)
    assert fit.log_likelihood[-1] == pytest.approx(values.sum(), abs=1e-10)


def planted(rng, abc, count):
    """Pairs of a memoryless transducer with a random table of confusions, and the table."""
    n = len(abc)
    p = rng.dirichlet(np.full((n + 1) ** 2 - 1, 2.0)) * 0.2 + 1e-4
    table = np.append(p, 0.0).reshape(n + 1, n + 1)  # index n: no symbol
    table[np.arange(n), np.arange(n)] += 0.8 / n
    table /= table.sum() / 0.9  # a pair ends with 0.1
    flat = np.append(table.ravel(), 0.1)
    pairs = []
    while len(pairs) < count:
        x, y = [], []
        while (k := int(rng.choice(len(flat), p=flat))) < (n + 1) ** 2:
            x += [k // (n + 1)] * (k // (n + 1) < n)
            y += [k % (n + 1)] * (k % (n + 1) < n)
        pairs.append((np.array(x, dtype=int), np.array(y, dtype=int)))
    return pairs, table


def test_a_planted_table_is_recovered_within_its_standard_errors():
    rng = np.random.default_rng(11)
    abc = fg.Alphabet("abcd")
    pairs, table = planted(rng, abc, 2000)
    fit = fg.fit_costs(fg.EditDistance(abc), pairs, schedule=Schedule(tolerance=1e-9))
    errors = fit.standard_errors()
    index = {symbol: i for i, symbol in enumerate(abc)} | {"0": len(abc)}
    z = []
    for row, error in zip(fit.rows, errors, strict=True):
        read, arrow, written = row.name.partition(" -> ")
        p = table[index[read], index[written]] if arrow else 0.1
        if p * 2000 * 9 > 30:  # enough for the normal approximation
            z.append((row.cost + math.log(p)) / error)
    assert len(z) >= 20
    assert np.max(np.abs(z)) < 4
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.4


def test_held_out_pairs_stop_early_and_restarts_are_kept_apart():
    rng = np.random.default_rng(2)
    abc = fg.Alphabet("abc")
    pairs, _ = planted(rng, abc, 60)
    settings = {"held_out": 0.3, "rng": 4, "schedule": Schedule(restarts=3, tolerance=0.0)}
    fit = fg.fit_costs(fg.EditDistance(abc), pairs, smoothing=0.01, **settings)
    assert len(fit.starts) == 3
    assert max(fit.held_out_log_likelihood) == max(fit.starts)
    assert len(fit.held_out_log_likelihood) == len(fit.log_likelihood) < 100
    again = fg.fit_costs(fg.EditDistance(abc), pairs, smoothing=0.01, **settings)
    np.testing.assert_array_equal(fit.cost, again.cost)
    assert again.starts == fit.starts
    kept = fit.pair_transducer.log_sums(fit.pairs, -fit.cost).sum()
    assert fit.log_likelihood[fit.kept] == pytest.approx(kept, abs=1e-10)
    assert fit.held_out_log_likelihood[fit.kept] == max(fit.held_out_log_likelihood)
    assert len(fit.log_likelihood) - 1 - fit.kept == 3  # the patience


@pytest.mark.parametrize("given", ["nothing", "hypothesis", "target"])
def test_a_cost_is_the_share_of_its_class_its_size_and_its_gate(given, tmp_path):
    """With the counts of one more step than the last, which EM no longer changes."""
    rng = np.random.default_rng(3)
    pairs, _ = planted(rng, fg.Alphabet("abc"), 200)
    settings = {"given": given, "tie": lambda x, y, _: (bool(x), bool(y), x == y)}
    schedule = Schedule(max_iter=2000, tolerance=0.0)
    fit = fg.fit_costs(fg.EditDistance(fg.Alphabet("abc")), pairs, schedule=schedule, **settings)
    groups = {}
    for row in fit.rows:
        groups.setdefault(row.name, []).append(row)
    alone = [own[0] for own in groups.values() if len(own) == 1 and math.isfinite(own[0].cost)]
    assert len(alone) >= (5 if given == "nothing" else 2)
    for row in alone:
        share = (row.times + row.prior) / row.total
        cost = -math.log(share) + math.log(row.size) - math.log(row.gate)
        assert row.cost == pytest.approx(cost, abs=1e-4)
    assert {row.size for row in alone} >= {1.0, 3.0}
    assert (given == "nothing") == all(row.gate == 1 for row in alone)
    fit.write(tmp_path / "x.tsv")
    head, *lines = [line.split("\t") for line in (tmp_path / "x.tsv").read_text().splitlines()[1:]]
    for row in (dict(zip(head, line, strict=True)) for line in lines):
        if row["class"] in {one.name for one in alone}:
            cost, times, prior, total, arcs, gate = (
                float(row[name]) for name in ("cost", "count", "prior", "total", "arcs", "gate")
            )
            expected = -math.log((times + prior) / total) + math.log(arcs) - math.log(gate)
            assert cost == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("rules", "is_whole"), [
    ("V -> V 0.5\na -> b 0.3 / # _\n0 -> a 0.5 / _ #\nab -> c 0.5", True),
    ("V -> V 0.5\nc -> ab 0.5", False),
    ("V -> V 0.5\nb -> c 0.5 / _ a", False),
])  # fmt: skip
def test_probabilities_of_typed_words_sum_to_1_unless_a_rule_needs_what_follows(rules, is_whole):
    """Against linear equations: the weights of all paths that write a word, whatever they read."""
    rng = np.random.default_rng(0)
    pairs = [tuple("".join(rng.choice(list("abc"), 4)) for _ in range(2)) for _ in range(40)]
    loss = fg.RuleLoss("alphabet = abc\nV = a b\n" + rules)
    fit = fg.fit_costs(loss, pairs, tie="rule", given="target", smoothing=0.1, held_out=0.0)
    u, weight, word = fit.pair_transducer, np.exp(-fit.cost), [1, 2, 1, 3, 3, 1, 2]
    states = len(fit.cost) - u.num_arcs
    system = np.eye((len(word) + 1) * states)
    arcs = zip(u.source, u.olabel, u.nextstate, weight[: u.num_arcs], strict=True)
    for source, label, nextstate, probability in arcs:
        for at in range(len(word) + (label == 0)):
            if label in (0, word[at] if at < len(word) else 0):
                system[at * states + source, (at + (label > 0)) * states + nextstate] -= probability
    ends = np.zeros(len(system))
    ends[-states:] = weight[u.num_arcs :]
    total = np.linalg.solve(system, ends)[u.start]
    assert 0.5 < total < 1 + 1e-10
    assert (total == pytest.approx(1.0, abs=1e-10)) == is_whole


def test_a_prior_of_the_transducer_keeps_what_was_not_seen():
    rows = [("ab", "ab")] * 5
    loss = fg.EditDistance(ABC, substitute_cost=3.0, insert_cost=1.0)
    fit = fg.fit_costs(loss, rows, smoothing=1.0, prior="transducer")
    cost = {row.name: row.cost for row in fit.rows}
    # a deletion and an insertion explain a copy too, so that these have a few counts of their own
    assert cost["a -> b"] - cost["0 -> b"] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    "error, said, settings",
    [
        (fg.InvalidInputError, "pairs is empty", {"pairs": []}),
        (fg.InvalidInputError, "1 fields", {"pairs": [("a",)]}),
        (fg.InvalidInputError, "mass", {"pairs": [("a", "b", 0)]}),
        (fg.AlphabetError, r"pairs\[1\]\[0\]\[0\] is 'z'", {"pairs": [("a", "b"), ("z", "a")]}),
        (fg.InvalidInputError, "tie is 'letter'", {"tie": "letter"}),
        (fg.InvalidInputError, "no arc of the transducer names a rule", {"tie": "rule"}),
        (fg.InvalidInputError, "given is 'x'", {"given": "x"}),
        (fg.InvalidInputError, "prior is 'x'", {"prior": "x"}),
        (fg.InvalidInputError, "smoothing is -1", {"smoothing": -1}),
        (fg.InvalidInputError, "held_out is 1.5", {"held_out": 1.5}),
        (fg.InvalidInputError, "leaves no pair", {"held_out": 0.9, "pairs": [("a", "b")]}),
        (fg.InvalidInputError, "restarts is 0", {"schedule": Schedule(restarts=0)}),
        (fg.InvalidInputError, "source is a str", {"source": "edit"}),
        (fg.InfeasibleError, r"pairs\[1\] is 'a' against 'ab'", {"source": fg.Hamming(ABC)}),
    ],
)
def test_bad_input(error, said, settings):
    given = {"source": fg.EditDistance(ABC), "pairs": [("a", "b"), ("a", "ab")]} | settings
    with pytest.raises(error, match=said):
        fg.fit_costs(given.pop("source"), given.pop("pairs"), **given)


def test_silent_cycles_that_do_not_converge():
    machine = (0, [(0, None, None, 0.0, 0), (0, 0, 0, 0.0, 0)], {0: 0.0})
    transducer = PairTransducer.from_fst(as_fst(machine), ABC)
    with pytest.raises(fg.FstError, match="paths diverges"):
        transducer.log_sums(Pairs.encode(ABC, [("a", "a")]), -transducer.cost)
    worse = (0, [(0, None, None, -1.0, 0), (0, 0, 0, 0.0, 0)], {0: 0.0})
    transducer = PairTransducer.from_fst(as_fst(worse), ABC)
    with pytest.raises(fg.FstError, match="negative cost"):
        transducer.best_path("a", "a", -transducer.cost)


def test_extreme_costs_and_long_strings():
    loss = fg.EditDistance(ABC, substitute_cost=1e4)
    transducer = pair_transducer(loss)
    x, y = "ab" * 150, "ba" * 150
    pairs = Pairs.encode(ABC, [(x, y), ("", ""), ("", "a")])
    values, counts = transducer.expected_counts(pairs, -1000.0 * transducer.cost)
    assert np.isfinite(values).all()
    assert values[1] == 0.0
    assert values[2] == -1000.0
    assert np.isfinite(counts).all()
    assert -transducer.best_counts(pairs, -transducer.cost)[0][0] == loss(x, y)


def test_costs_are_a_transducer_and_a_table(tmp_path):
    rows = [("ab", "b"), ("a", "ba"), ("bb", "ab")] * 3
    loss = fg.EditDistance(ABC)
    for settings in ({}, {"given": "hypothesis"}, {"given": "target", "tie": "arc"}):
        fit = fg.fit_costs(loss, rows, smoothing=0.3, **settings)
        learned = fit.loss()
        fit.write(tmp_path / "x.far", "table")
        fit.write(tmp_path / "x.fst")
        fit.write(tmp_path / "x.tsv")
        for path in (f"{tmp_path}/x.far:table", f"{tmp_path}/x.fst"):
            read = fg.TransducerLoss.from_file(path, ABC, semiring="tropical")
            assert read("ab", "ba") == pytest.approx(learned("ab", "ba"), abs=1e-6)  # float32
        read = with_costs(loss, tmp_path / "x.tsv")
        assert read("ab", "ba") == pytest.approx(learned("ab", "ba"), abs=1e-7)
    assert fit.changes(2)[0].times > 0
    with pytest.raises(fg.InvalidInputError, match=r"x\.csv"):
        fit.write("x.csv")
    text = (tmp_path / "x.tsv").read_text().splitlines()
    bad = {
        "not a table": [],
        "not a table of": ["state", *text[1:]],
        ":3: 3 column": [*text[:2], "0\ta\tb"],
        ":3: 'a -> z from": [*text[:2], text[2].replace("-> ", "-> z", 1)],
        "cost is 'x'": [*text[:2], "\t".join([*text[2].split("\t")[:3], "x", *"000000"])],
        ":4: the class has a row": [*text[:3], text[2]],
        "cost is 'nan'": [*text[:2], "\t".join([*text[2].split("\t")[:3], "nan", *"000000"])],
    }
    for said, lines in bad.items():
        (tmp_path / "x.tsv").write_text("\n".join(lines))
        with pytest.raises(fg.FstgradError, match=said.replace("'a -> z from", "'")):
            with_costs(loss, tmp_path / "x.tsv")


def test_a_wrong_class_of_a_table_gets_near_names_of_its_state(tmp_path):
    loss, path = fg.EditDistance(ABC), tmp_path / "x.tsv"
    fg.fit_costs(loss, [("ab", "b"), ("a", "ba")] * 3, held_out=0.0).write(path)
    lines = path.read_text().splitlines()
    fields = lines[2].split("\t")
    lines[2] = "\t".join([*fields[:2], fields[2] + "x", *fields[3:]])
    path.write_text("\n".join(lines))
    with pytest.raises(fg.FstgradError, match="did you mean") as caught:
        with_costs(loss, path)
    assert "another grammar" not in str(caught.value)
    assert fields[2] in str(caught.value).split("did you mean")[1]


def test_steps_replace_one_another_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _progress(1, 2, 3.0)
    _progress(1, 3, 2.5)
    assert capsys.readouterr().err == (
        "\rstart 1 step 2: 3.0000 nats per pair\rstart 1 step 3: 2.5000 nats per pair"
    )


def test_a_pair_transducer_of_lists():
    made = pair_transducer(fg.EditDistance(ABC))
    names = ("ilabel", "olabel", "source", "nextstate", "rule")
    lists = {name: getattr(made, name).tolist() for name in names}
    again = PairTransducer(made.alphabet, made.start, cost=made.cost, rules=made.rules, **lists)
    for name in names:
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
        assert getattr(again, name).dtype == getattr(made, name).dtype


def test_a_grammar_of_one_rule_may_be_tied_by_rule():
    made = pair_transducer(fg.EditDistance(ABC))
    names = ("ilabel", "olabel", "source", "nextstate")
    lists = {name: getattr(made, name) for name in names}
    one = PairTransducer(
        made.alphabet, made.start, cost=made.cost, rules=("any",), rule=0 * made.rule, **lists
    )
    assert ParameterTying.of(one, "rule", "nothing").names == ("any", "(end)")
    with pytest.raises(fg.InvalidInputError, match="no arc of the transducer names a rule"):
        ParameterTying.of(made, "rule", "nothing")


def test_progress_is_the_likelihood_of_each_step():
    seen = []
    schedule = Schedule(max_iter=3, progress=lambda *step: seen.append(step))
    pairs = [("ab", "b", 2.0), ("a", "ba"), ("bb", "ab")]
    fit = fg.fit_costs(fg.EditDistance(ABC), pairs, held_out=0.0, schedule=schedule)
    assert [step[:2] for step in seen] == [(0, i) for i in range(len(fit.log_likelihood))]
    assert [step[2] for step in seen] == pytest.approx([v / 4 for v in fit.log_likelihood])


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("tie", ["pair", "arc", "cost"])
def test_both_priors_have_equally_many_counts(given, tie):
    """`smoothing` for each class of a group in total, however they are divided."""
    transducer = pair_transducer(fg.EditDistance(ABC, substitute_cost=3.0))
    ties = ParameterTying.of(transducer, tie, given)
    totals = {}
    for prior in ("uniform", "transducer"):
        pseudo = _estimator(transducer, ties, 0.7, prior).pseudo
        totals[prior] = np.bincount(ties.cell_group, pseudo)
    expected = 0.7 * np.bincount(ties.cell_group)
    np.testing.assert_allclose(totals["uniform"], expected, rtol=1e-12)
    np.testing.assert_allclose(totals["transducer"], expected, rtol=1e-12)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("prior", ["uniform", "transducer"])
def test_a_step_maximizes_the_likelihood_with_the_prior(given, prior):
    """No other weights have a greater sum of expected complete log-likelihood and log-prior."""
    rng = np.random.default_rng(1)
    transducer = pair_transducer(fg.EditDistance(ABC, substitute_cost=2.0))
    estimator = _estimator(transducer, ParameterTying.of(transducer, "pair", given), 0.7, prior)
    counts = np.where(np.isfinite(transducer.cost), rng.uniform(size=len(transducer.cost)), 0.0)
    best = estimator.maximized(estimator.initial(), counts)

    def objective(weights):
        log_weights = estimator.log_weights(weights)
        used = counts > 0
        return counts[used] @ log_weights[used] + estimator.log_prior(weights)

    highest = objective(best)
    for _ in range(50):
        rows = (best.log_gate + 0.1 * rng.normal(size=len(best.log_gate))).reshape(-1, 2)
        gates = (rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)).ravel()
        other = Weights(best.theta + 0.1 * rng.normal(size=len(best.theta)), gates)
        assert objective(other) <= highest + 1e-12
