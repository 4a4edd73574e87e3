"""Grammars of rules: against a recursion from the definition, and what is wrong in a file."""

import math

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs.explain import explain
from fstgrad.losses.transducers.rules import RuleSet, compile_rules
from tests.oracles import rules as oracle

RULES = """# Rules of all kinds
# more of them
alphabet = abcdehs
V = a e
sch -> sh 0.25
e -> 0 0.5 / _ #
vowels: V -> V 0.5 / b _
ab <-> ba 0.75
h -> hh 0.125 / a V* _ ^V
V s -> V 0.3 / # d _
-> d 0.2 / e _ e
? sch => sh 0.25
"""


@pytest.mark.parametrize("settings", ["", "delete = 0.7\ninsert = none\nsubstitute = 1.5\n"])
def test_the_loss_is_that_of_the_definition(settings):
    rules = RuleSet.parse(RULES + settings)
    loss = fg.RuleLoss(rules)
    rng = np.random.default_rng(0)
    for _ in range(400):
        x = "".join(rng.choice(list("aaabbcdeehs"), rng.integers(0, 7)))
        y = "".join(rng.choice(list("aabcdeehs"), rng.integers(0, 7)))
        y = x[:2] + y[2:] if rng.random() < 0.5 else y
        expected = oracle.loss(rules, x, y)
        assert loss(x, y) == pytest.approx(expected, abs=1e-6)
        if math.isfinite(expected):
            found = explain(loss, x, y, k=1)
            assert found.cost == pytest.approx(expected, abs=1e-12)
            assert sum(step.cost for step in found.alignments[0].operations) == found.cost


def test_symbols_of_several_characters_and_features():
    text = """alphabet = P B T D S sil
feature = 0.25
P : - labial stop
B : + labial stop
T : - alveolar stop
D : + alveolar stop
S : - alveolar fricative
voicing: [-] -> [+] 0.125
sil T -> S 0.5 / _ [labial]
"""
    loss = fg.RuleLoss(text)
    assert loss(["P"], ["B"]) == 0.125
    assert loss(["B"], ["P"]) == 0.25
    assert loss(["P"], ["D"]) == 0.5
    assert loss(["P"], ["sil"]) == 1.0
    assert loss(["sil", "T", "B"], ["S", "B"]) == 0.5
    assert loss(["sil", "T", "D"], ["S", "D"]) == 1.25


def test_obligatory_rules_leave_no_choice():
    """Overlapping places are found from the left, or from the right."""
    text = "alphabet = ab\nedit = none\naa -> b 0.25 {}"
    ltr, rtl = (fg.RuleLoss(text.format(f"obligatory {way}")) for way in ("ltr", "rtl"))
    assert (ltr("aaa", "ba"), ltr("aaa", "ab")) == (0.25, math.inf)
    assert (rtl("aaa", "ba"), rtl("aaa", "ab")) == (math.inf, 0.25)
    assert ltr("aa", "aa") == math.inf
    assert fg.RuleLoss(text.format("optional"))("aa", "aa") == 0.0


def test_costs_keep_their_digits_and_rules_their_names():
    rules = RuleSet.parse("alphabet = ab\na -> b 0.1\nlast: b -> a 0.2 / _ #")
    compiled = compile_rules(rules)
    assert compiled.names == ("a -> b", "last")
    assert set(compiled.fst.weight.tolist()) == {0.0, 0.1, 0.2, 1.0}
    assert fg.RuleLoss(rules)("ab", "ba") == pytest.approx(0.3, abs=1e-12)  # in a unit of 2^-44
    fit = fg.fit_costs(fg.RuleLoss(rules), [("ab", "ba"), ("ab", "ab")], tie="rule", smoothing=0.1)
    assert {"a -> b", "last", "copy 0", "substitute 1"} <= {row.name for row in fit.rows}


def test_another_alphabet_leaves_rules_out_and_knows_new_symbols():
    loss = fg.RuleLoss(RULES, fg.Alphabet("sch!"))
    assert loss("sch", "sh") == 0.25
    assert loss("s!", "s") == 1.0


def test_quotes_and_zero():
    loss = fg.RuleLoss('alphabet = "01# "\nO: "0" -> 1 0.25\n"#" -> " " 0.5\n1 -> 0.125')
    assert (loss("0", "1"), loss("#", " "), loss("1", "")) == (0.25, 0.5, 0.125)


LINES = {
    "alphabet = abca": "'a' more than once",
    "edit = -1": "edit is -1; give a number >= 0",
    "mode = sometimes": "choose one of optional, obligatory",
    "feature = x": "feature is 'x'",
    "U = a x": "'x' is not in the alphabet",
    "W = W": "contains itself; list its symbols",
    "X = Y\nY = X": "contains Y; put Y first",
    "a = b": "a is a symbol of the alphabet",
    "ANY = a": "is a keyword",
    "Z =": "has no symbols",
    "edti = 1": "'e', 'd', 't', 'i'|is a symbol|not in the alphabet",
    "a => b": "neither a rule",
    "q : stop": "'q' is not in the alphabet",
    "a -> b": "cost is 'b'; give a number",
    "a ->": "no cost",
    "a -> b nan": "give a number >= 0",
    "a -> b -0.5": "give a number >= 0",
    "-> 0.5": "both sides of the rule are empty",
    "a -> q 0.5": "'q' is not in the alphabet",
    "a -> VV 0.5": "'V' is not in the alphabet",
    "[stup] -> a 0.5": "no symbol has the features",
    "a -> b 0.5 / c": "'BEFORE _ AFTER'",
    "a -> b 0.5 / a # _": "# is inside a context",
    "a -> b -> c 1": "more than one arrow",
    "c a -> V a 0.5": "the class V is written but not read",
    "-> a 0.5 / _ # obligatory": "an obligatory insertion",
    "a -> b 1\na -> b 2": "the same rule as in line",
    "? a b 1": "an example is",
    "? a => q 1": "'q' is not in the alphabet",
    "? a => b x": "loss is 'x'",
}


@pytest.mark.parametrize("line", LINES)
def test_an_error_names_its_line(line):
    text = "alphabet = abc\nV = a b\n" if not line.startswith("alphabet") else "\n\n"
    with pytest.raises(fg.FstError, match=LINES[line]) as caught:
        RuleSet.parse(text + line, "x.rules")
    assert str(caught.value).startswith("x.rules:3: " if "\n" not in line else "x.rules:")


def test_every_line_has_its_error():
    lines = [line for line in LINES if "\n" not in line and not line.startswith("alphabet")]
    with pytest.raises(fg.FstError) as caught:
        RuleSet.parse("alphabet = abc\nV = a b\n" + "\n".join(lines), "x.rules")
    for number in range(3, 3 + len(lines)):
        assert f"x.rules:{number}: " in str(caught.value)


def test_near_names():
    text = "alphabet = abc\nvowel = a\nstop : b\nb -> vovel 0.5"
    with pytest.raises(fg.FstError, match="did you mean vowel"):
        RuleSet.parse(text.replace("stop : b\n", ""))
    with pytest.raises(fg.FstError, match="did you mean labial"):
        RuleSet.parse("alphabet = ab\na : labial\n[lbial] -> b 1")
    with pytest.raises(fg.InvalidInputError, match="no alphabet"):
        compile_rules(RuleSet.parse("a -> b 1"))


@pytest.mark.parametrize(
    "said, rule",
    [
        ("11,881,376 pairs of strings", "ANY ANY ANY ANY ANY -> a 0.5"),
        ("read 17,576 strings", "ANY ANY ANY -> 0.5 / a _"),
        ("the context has 21 symbols", "a -> b 0.5 / a " + "ANY " * 20 + "_"),
        ("a comment on a separate line", "a -> b 0.5 # said"),
    ],
)
def test_what_would_grow_beyond_bounds_is_refused(said, rule):
    """A file may come from anyone: it is refused before memory or time are taken."""
    with pytest.raises(fg.FstError, match=said):
        fg.RuleLoss("alphabet = abcdefghijklmnopqrstuvwxyz\n#a comment\n" + rule)


def test_a_class_of_features_holds_the_symbol_that_has_no_others():
    text = "alphabet = P B\nP : labial\nB : labial voiced\n[labial voiced] -> P 0.125\n"
    assert fg.RuleLoss(text)("B", "P") == 0.125
