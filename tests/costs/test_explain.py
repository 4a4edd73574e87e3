"""Explanations: their parts add up to the cost of the pair, and rules have their names."""

import itertools
import random

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs import explain, pair_transducer, with_costs
from fstgrad.losses.transducers.rules import CONTINUED, NO_RULE, RuleSet, write_rules
from tests.oracles import rules as oracle

SIDES = ("a", "b", "c", "ab", "cd", "V", "V c", "", "abc", "dcb", "d V")
CONTEXTS = ("", " / _ #", " / # _", " / a _", " / _ V", " / ^V _")


def random_grammar(rng):
    """Return the text of a grammar: up to four optional rules with names."""
    lines = ["alphabet = abcd", "V = a b"]
    for k in range(rng.randint(1, 4)):
        read = rng.choice(SIDES)
        written = rng.choice([side for side in SIDES if "V" not in side or "V" in read])
        if read != written or read == "V":
            cost, context = rng.choice([0.25, 0.3, 0.5, 0.1]), rng.choice(CONTEXTS)
            lines.append(f"r{k}: {read} -> {written} {cost}{context}")
    return "\n".join(lines)


def random_pairs(rng, count=8):
    words = ["".join(rng.choices("abcd", k=rng.randint(0, 5))) for _ in range(2 * count)]
    return list(zip(words[::2], words[1::2], strict=True))


def check_sums(loss, pairs):
    """The operations of each alignment sum to its cost, and the cheapest costs what the loss is."""
    for x, y in pairs:
        explanation = explain(loss, x, y)
        assert explanation.cost == pytest.approx(loss(x, y), abs=1e-10)
        for alignment in explanation.alignments:
            parts = [step.cost for step in alignment.operations]
            assert sum(parts) == pytest.approx(alignment.cost, abs=1e-10)
            sides = zip(*((s.read, s.written) for s in alignment.operations), strict=True)
            texts = ["".join(itertools.chain(*side)) for side in sides]
            assert texts == [x, y] or not (x or y)


@pytest.mark.parametrize("seed", range(8))
def test_the_parts_of_random_grammars_add_up(seed, tmp_path):
    """Also with learned costs, in an archive, and in a table."""
    rng = random.Random(seed)
    loss = fg.RuleLoss(random_grammar(rng))
    pairs = random_pairs(rng)
    rule_set = RuleSet.parse(random_grammar(random.Random(seed)))
    for x, y in pairs:
        assert loss(x, y) == pytest.approx(oracle.loss(rule_set, x, y), abs=1e-10)
    check_sums(loss, pairs)
    tie = ("pair", "rule", "cost", "arc")[seed % 4] if rule_set.rules else "pair"
    given = ("nothing", "target", "hypothesis")[seed % 3]
    fit = fg.fit_costs(loss, pairs, tie=tie, given=given, smoothing=0.1)
    check_sums(fit.loss(), pairs)
    fit.write(tmp_path / "x.far")
    read = fg.TransducerLoss.from_file(tmp_path / "x.far")
    check_sums(read, pairs)
    fit.write(tmp_path / "x.tsv")
    table = with_costs(loss, tmp_path / "x.tsv")
    check_sums(table, pairs)
    for other in (read, table):
        for x, y in pairs:
            one, two = ([s.name for s in explain(of, x, y, 1).alignments[0].operations]
                        for of in (fit.loss(), other))  # fmt: skip
            assert one == two


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("read, written", [("c", "d"), ("c", ""), ("cab", "dc"), ("c", "dab")])
def test_a_rule_is_a_path_of_the_longer_of_its_sides(read, written, context):
    """So a rule of one symbol each is one arc, which has its name and its cost."""
    text = f"alphabet = abcd\nV = a b\nedit = none\nown: {read} -> {written} 0.3{context}"
    transducer = pair_transducer(fg.RuleLoss(text))
    x, y = f"a{read}b", f"a{written}b"
    if "#" in context:
        x, y = (x[1:], y[1:]) if "# _" in context else (x[:-1], y[:-1])
    if "^V" in context:
        x, y = f"d{x[1:]}", f"d{y[1:]}"
    events, value = transducer.best_path(x, y, -transducer.cost)
    rules = transducer.rule[events[:-1]].tolist()
    size = max(len(read), len(written))
    own = [0] + [CONTINUED] * (size - 1)
    assert [k for k in rules if k != NO_RULE] == own
    assert value == -0.3
    names = [step.name for step in explain(fg.RuleLoss(text), x, y).alignments[0].operations]
    assert [name for name in names if name != "copy"] == ["own"]


def test_learned_rules_keep_their_names_in_an_archive(tmp_path, run):
    """One arc for each pair of a class, so that `seperate` is no deletion of an e."""
    text = "alphabet = acehpirst\nV = a e i\nvowels: V -> V 0.5\nsch -> sh 0.25\n"
    assert fg.RuleLoss(text)("seperate", "separate") == 0.5
    (tmp_path / "own.rules").write_text(text)
    (tmp_path / "pairs.tsv").write_text("seperate\tseparate\nschip\tship\ncat\tcat\n" * 4)
    learned = tmp_path / "x.far"
    code, output, _ = run("grammar", "fit", f"{tmp_path}/own.rules", f"{tmp_path}/pairs.tsv",
                          "--tie", "rule", "-o", str(learned))  # fmt: skip
    assert code == 0
    assert "vowels: " in output
    assert "seen " in output
    for x, y, name in (("seperate", "separate", "vowels"), ("schip", "ship", "sch -> sh")):
        shown = run("grammar", "explain", str(learned), x, y, "-k", "1")[1]
        assert name in shown
        assert "delete" not in shown
        assert "insert" not in shown
    again = fg.fit_costs(fg.TransducerLoss.from_file(learned), [("schip", "ship")], tie="rule")
    assert {"vowels", "sch -> sh"} <= {row.name for row in again.rows}
    without = run("grammar", "fit", f"{tmp_path}/own.rules", f"{tmp_path}/pairs.tsv",
                  "-o", f"{tmp_path}/x.fst")[1]  # fmt: skip
    assert "x.fst without the names of rules" in without


def test_counts_and_prior_say_what_a_learned_cost_is():
    """A class of one group: its share of counts and pseudocounts, divided by its arcs."""
    loss = fg.RuleLoss("alphabet = abc\nV = a b\nvowels: V -> V 0.5")
    schedule = fg.costs.Schedule(max_iter=400, tolerance=1e-14)
    pairs = [("ab", "bb"), ("ac", "ac"), ("c", "a"), ("b", "")]
    fit = fg.fit_costs(loss, pairs, tie="rule", smoothing=0.5, schedule=schedule)
    sizes = dict(zip(fit.ties.names, np.bincount(fit.ties.class_of), strict=True))
    for row in fit.rows:
        share = (row.times + row.prior) / row.total
        assert row.cost == pytest.approx(-np.log(share / sizes[row.name]), abs=1e-5)
    assert {row.prior for row in fit.rows} == {0.5}
    assert len({row.total for row in fit.rows}) == 1


def test_names_of_rules_belong_to_their_transducer(tmp_path):
    one, two = (fg.RuleLoss(f"alphabet = ab\nown: a -> b {cost}") for cost in (0.25, 0.5))
    write_rules(tmp_path / "x.far", "x", one.rule_transducer, "log64")
    write_rules(tmp_path / "y.far", "x", two.rule_transducer, "log64")
    from fstgrad.openfst import read_file, write_archive

    entries = {
        "x": read_file(tmp_path / "x.far:x"),
        "x.rules": read_file(tmp_path / "y.far:x.rules"),
    }
    write_archive(tmp_path / "z.far", entries)
    with pytest.raises(fg.FstError, match="names the rules of another transducer"):
        fg.TransducerLoss.from_file(tmp_path / "z.far")
    smaller = fg.TransducerLoss.from_file(tmp_path / "x.far", fg.Alphabet("ab"))
    assert smaller.rule_transducer.names == ("own",)
    with pytest.warns(fg.UnusedArcsWarning):
        part = fg.TransducerLoss.from_file(tmp_path / "x.far", fg.Alphabet("a"))
    assert part.rule_transducer.fst.num_arcs == len(part.rule_transducer.rule)
