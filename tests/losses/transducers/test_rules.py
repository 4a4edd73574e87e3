"""Grammars of rules: against a recursion from the definition, and what is wrong in a file."""

import itertools
import math
import re

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


def test_losses_of_random_grammars_are_those_of_the_definition():
    """Insertions beside each other and beside other rules, with the same contexts and others."""
    rng = np.random.default_rng(0)
    strings = ["".join(y) for n in range(4) for y in itertools.product("abc", repeat=n)]
    for _ in range(60):
        lines = {
            f"{read} -> {written} {{}} / {before} _ {after}"
            for read, written in rng.choice(["0", "a", "b", "ab", "c"], (4, 2)) if read != written
            for before, after in [rng.choice(["", "a", "#"], 2), rng.choice(["", "b", "#"], 2)]
        }  # fmt: skip
        costs = [line.format(rng.integers(1, 9) / 8) for line in sorted(lines)]
        rules = RuleSet.parse("\n".join(["alphabet = abc", *costs]))
        loss = fg.RuleLoss(rules)
        for x, y in rng.choice(strings, (40, 2)):
            assert loss(x, y) == oracle.loss(rules, x, y), (costs, x, y)


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


def test_obligatory_rules_with_the_same_contexts_are_searched_together():
    """At one place any of them applies; with other contexts, the earlier line applies first."""
    text = "alphabet = abc\nedit = none\nmode = obligatory\na -> b 0.25 / _ {}\na b -> c 0.5\n"
    together, apart = (fg.RuleLoss(text.format(after)) for after in ("", "b*"))
    assert (together("ab", "bb"), together("ab", "c")) == (0.25, 0.5)
    assert (apart("ab", "bb"), apart("ab", "c")) == (0.25, math.inf)
    last = fg.RuleLoss("alphabet = abc\nedit = none\nmode = obligatory\nb c -> b 1\na b -> a 0.5")
    assert (last("abc", "ac"), last("abc", "ab")) == (0.5, math.inf)  # the leftmost match


def test_costs_keep_their_digits_and_rules_their_names():
    rules = RuleSet.parse("alphabet = ab\na -> b 0.1\nlast: b -> a 0.2 / _ #")
    compiled = compile_rules(rules)
    assert compiled.names == ("a -> b", "last")
    assert set(compiled.fst.weight.tolist()) == {0.0, 0.1, 0.2, 1.0}
    assert fg.RuleLoss(rules)("ab", "ba") == pytest.approx(0.3, abs=1e-12)  # in a unit of 2^-44
    fit = fg.fit_costs(fg.RuleLoss(rules), [("ab", "ba"), ("ab", "ab")], tie="rule", smoothing=0.1)
    assert {"a -> b", "last", "copy 0", "substitute 1"} <= {row.name for row in fit.rows}


def test_another_alphabet_leaves_rules_out_and_knows_new_symbols():
    with pytest.warns(fg.UnusedArcsWarning, match="rules: its alphabet lacks '!', which no rule"):
        loss = fg.RuleLoss(RULES, fg.Alphabet("sch!"))
    assert loss("sch", "sh") == 0.25
    assert loss("s!", "s") == 1.0


@pytest.mark.parametrize("edit", ["1", "none"])
def test_a_smaller_alphabet_changes_no_loss_of_its_strings(edit):
    """Also where an obligatory rule would write a symbol outside it."""
    rng = np.random.default_rng(4)
    strings = ["".join(y) for n in range(4) for y in itertools.product("ab", repeat=n)]
    sides, contexts = ["a", "b", "ab", "c", "ca"], ["", "a", "c"]
    changing = 0
    for _ in range(40):
        lines = {
            f"{read} -> {written} {cost / 8} / {before} _ {after} {mode}"
            for read, written in rng.choice(sides, (3, 2)) if read != written
            for before, after in [rng.choice(contexts, 2)]
            for cost, mode in [(rng.integers(1, 9), rng.choice(["obligatory", "optional"]))]
        }  # fmt: skip
        rules = RuleSet.parse("\n".join(["alphabet = abc", f"edit = {edit}", *sorted(lines)]))
        few, all_ = fg.RuleLoss(rules, fg.Alphabet("ab")), fg.RuleLoss(rules)
        for x, y in rng.choice(strings, (40, 2)):
            assert few(x, y) == all_(x, y), (lines, x, y)
            changing += few(x, x) == math.inf
    assert changing > 20


def test_insertions_with_contexts_follow_one_another():
    """Any of them, any number of times, whether their contexts are the same or not."""
    rules = ["0 -> e r 0.25 / _ #", "0 -> s 0.5 / _ #", "0 -> e n 0.75 / l _ #", "0 -> i 1 / b _"]
    loss = fg.RuleLoss("\n".join(["alphabet = biersln", "edit = none", *rules]))
    ends = {"er": 0.25, "s": 0.5, "en": 0.75}
    for n in range(4):
        for parts in itertools.product(ends, repeat=n):
            assert loss("bl", "bl" + "".join(parts)) == sum(ends[part] for part in parts)
    assert loss("bl", "biil") == 2.0
    assert loss("b", "bsiers") == 2.25
    assert loss("b", "ben") == loss("bl", "blel") == math.inf


def test_quotes_and_zero():
    loss = fg.RuleLoss('alphabet = "01# "\nO: "0" -> 1 0.25\n"#" -> " " 0.5\n1 -> 0.125')
    assert (loss("0", "1"), loss("#", " "), loss("1", "")) == (0.25, 0.5, 0.125)


LINES = {
    "alphabet = abca": "the alphabet has 'a' more than once",
    "alphabet = nn\u0303m\u0303": "is the file in NFC form",
    'alphabet = a b "x y"': "only ' ' may have a space",
    "alphabet = abcd # letters": "a # in the alphabet; write a comment on a separate line",
    "a : labial # stop": "a # among features; write a comment on a separate line",
    "a -> b 0.25 || _ #": "a context begins with '/'",
    "a -> b 0.25 \\ _ c": "a context begins with '/'",
    "a -> b / _ # 0.25": "the cost comes before the context",
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
    "a -> VV 0.5": "'V' of 'VV', which is no class either, is not in the alphabet",
    "[stup] -> a 0.5": "no symbol has the features",
    "a -> b 0.5 / c": "'BEFORE _ AFTER'",
    "a -> b 0.5 / a # _": "# is inside a context",
    "a -> b -> c 1": "more than one arrow",
    "c a -> V a 0.5": "the class V is written but not read",
    "V -> V V 0.5": "written more often than it is read; .* 'V1 -> V1 V1'",
    "c -> V1 0.5": "V1 is written but not read",
    "c -> a 0.5 / _ V1": "V1 is a class with a number, which only READ and WRITTEN",
    "V1 = a b": "the class V1 exists beside V, but a class with a number",
    "N = ^ANY": "ANY has all of them",
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


@pytest.mark.parametrize(
    "text, line",
    [
        ("alphabet = ab\nC = q\nD = C a\nD -> C .5\n^C -> D .5 / _ D*\nC1 -> C1 C1 .3", 2),
        ("alphabet = aba\nC = ^a\nANY -> 0 .3\nANY1 -> ANY1 ANY1 .3", 1),
        ("alphabet = ab\nq : lab\na : stop\n[lab] -> [stop] .3\na -> b 1 / [lab] _", 2),
    ],
)
def test_one_fault_is_one_error(text, line):
    """What uses a wrong class, alphabet or feature is not wrong itself."""
    with pytest.raises(fg.FstError) as caught:
        RuleSet.parse(text, "x.rules")
    assert str(caught.value).count("x.rules:") == str(caught.value).count(f"x.rules:{line}: ") == 1


DOUBLED = "alphabet = abcde\nV = a e\nC = ^V\n"


@pytest.mark.parametrize(
    "rule, equal_rules",
    [
        ("C1 -> C1 C1", ["b -> bb", "c -> cc", "d -> dd"]),
        ("C1 C1 -> C1", ["bb -> b", "cc -> c", "dd -> d"]),
        (
            "V1 C V2 -> V2 C V1",
            [f"{v}{c}{w} -> {w}{c}{v}" for v in "ae" for c in "bcd" for w in "ae"],
        ),
        ("V1 c V1 -> V1", ["aca -> a", "ece -> e"]),
        ("^V1 a -> ^V1 ^V1", ["ba -> bb", "ca -> cc", "da -> dd"]),
    ],
)
def test_a_class_with_a_number_is_the_same_symbol(rule, equal_rules):
    """The pairs of the rules that had to be written one by one."""
    (one,) = RuleSet.parse(f"{DOUBLED}{rule} 0.25").rules
    others = RuleSet.parse(DOUBLED + "\n".join(f"{text} 0.25" for text in equal_rules)).rules
    assert sorted(one.pairs) == sorted(pair for other in others for pair in other.pairs)
    loss = fg.RuleLoss(f"{DOUBLED}double: C1 -> C1 C1 0.25")
    assert (loss("abe", "abbe"), loss("abe", "abce")) == (0.25, 1.0)


def test_numbers_of_bundles_and_names_that_end_in_digits():
    """A symbol AA1 of the alphabet, and a class L1, stay what they are."""
    features = "alphabet = p b\np : stop\nb : stop voiced\n[stop]1 [stop]1 -> [stop]1 0.5"
    assert [pair[0] for pair in RuleSet.parse(features).rules[0].pairs] == [("p",) * 2, ("b",) * 2]
    phones = RuleSet.parse("alphabet = AA AA1 B\nAA1 -> AA 0.5\nX = AA B\nX1 -> X1 X1 1")
    assert phones.rules[0].pairs == ((("AA1",), ("AA",)),)
    digits = RuleSet.parse("alphabet = ab\nL1 = a b\nL1 -> L1 1\nL12 -> L12 L12 1")
    assert digits.rules[0].pairs == ((("a",), ("b",)), (("b",), ("a",)))
    assert digits.rules[1].pairs == ((("a",), ("a", "a")), (("b",), ("b", "b")))
    with pytest.raises(fg.FstError, match="in quotes for these symbols"):
        RuleSet.parse("alphabet = ab^\n^a -> b 1")
    assert RuleSet.parse('alphabet = ab^\n"^a" -> b 1').rules[0].pairs == ((("^", "a"), ("b",)),)


def test_a_repeated_class_that_may_mean_the_same_symbol_gives_a_warning():
    with pytest.warns(fg.AmbiguousRuleWarning, match=r"x.rules:4: .*'C1 C1 -> C1'.*'C1 C2 -> C1'"):
        (rule,) = RuleSet.parse(f"{DOUBLED}halve: C C -> C 0.2", "x.rules").rules
    assert (("b", "c"), ("b",)) in rule.pairs
    RuleSet.parse(f"{DOUBLED}C1 C2 -> C1 0.2\nC C -> 0 0.2\nC C -> C C 0.2")  # no warning


def test_a_list_of_symbols_in_a_rule_is_a_string_and_gives_a_warning():
    letters = "alphabet = oóöőab\n"
    said = r"x.rules:2: .* string 'oó'; .* 'o <-> ö' and 'ó <-> ő', for the string 'oó <-> öő'"
    with pytest.warns(fg.AmbiguousRuleWarning, match=said) as warned:
        first, _ = RuleSet.parse(f"{letters}accent: o ó <-> ö ő 0.5", "x.rules").rules
    assert len(warned) == 1
    assert first.pairs == ((("o", "ó"), ("ö", "ő")),)
    for rule in ("oó <-> öő 1", "o ó -> ó o 1", "o ó -> ö 1", "V a -> V b 1", '"o" ó -> ö ő 1'):
        RuleSet.parse(f"{letters}V = o ó\n{rule}")  # no warning
    RuleSet.parse("alphabet = AA A B C D\nA B -> C D 1")


@pytest.mark.parametrize("key", ["insret", "Insert", "edti", "subsitute", "Delete"])
def test_a_setting_with_a_slip_is_no_class(key):
    """Where the number is a symbol of the alphabet."""
    with pytest.raises(
        fg.FstError, match=f"no rule uses the class {key}; did you mean the setting"
    ):
        fg.RuleLoss(f"alphabet = 0123456789\n{key} = 3\n1 -> 2 0.5")
    loss = fg.RuleLoss(f"alphabet = 0123456789\n{key} = 3\n{key} -> 2 0.5")
    assert loss("3", "2") == 0.5


@pytest.mark.parametrize(
    "said, lines",
    [
        ("x.rules:3: vowel is .* write vowels for the class, which", "vowels = a e\nvowel -> 0 1"),
        (
            "x.rules:3: vowel is .* write vowels",
            "vowels = a e\nt -> 0 0.1 / vowel _\nvowels -> o 1",
        ),
        ("x.rules:2: vowel is .* write vowels", "cons = ^vowel\nvowels = a e\ncons -> 0 1"),
        ("x.rules:3: vowel is .* write Vowel", "Vowel = a e\nvowel -> 0 1"),
        ("x.rules:3: vov is .* write vow", "vow = a e\nvov -> 0 1"),
    ],
)
def test_a_word_that_is_almost_a_class_gives_a_warning(said, lines):
    text = f"alphabet = abcdefghijklmnopqrstuvwxyz\n{lines}"
    with pytest.warns(fg.AmbiguousRuleWarning, match=said) as warned:
        RuleSet.parse(text, "x.rules")
    assert len(warned) == 1
    (key,) = re.findall(r"(\w*vow\w*) =", text, re.I)
    quoted = re.sub(r"\^?\b(vowel|vov)\b(?! =)", r'"\1"', text)
    RuleSet.parse(f"{quoted}\n{key} -> q 1")  # no warning


def test_a_class_that_might_be_a_setting_is_used_or_told():
    for line in ("replace = none", "order = rtl"):
        with pytest.warns(fg.AmbiguousRuleWarning, match=f"x:2: no rule uses the class {line[:5]}"):
            RuleSet.parse(f"alphabet = abcdefghijklmnopqrstuvwxyz\n{line}\na -> b 1", "x")
    RuleSet.parse("alphabet = abc\nV = a\nC = b c\na -> b 1")  # no warning


@pytest.mark.parametrize(
    "said, lines",
    [
        ("x:3: edit sets .* line 2 sets; put edit first", "insert = 3\nedit = 1"),
        ("x:3: line 2 sets edit", "edit = 1\nedit = 2"),
        ("x:3: line 2 sets mode .* after their costs", "mode = optional\nmode = obligatory"),
        ("x:2: line 1 sets alphabet", "alphabet = abcd"),
        ("x:2: obligatory stands .* 'a -> b 0.25 obligatory'", "a -> b obligatory 0.5"),
        ("x:2: obligatry stands .* 'a -> b 0.25 obligatory'", "obligatry a -> b 0.5"),
        ("x:2: sim stands .* 'a -> b 0.25 sim'", "a -> b sim 0.5"),
    ],
)
def test_settings_twice_and_modes_inside_rules_are_refused(said, lines):
    with pytest.raises(fg.FstError, match=said):
        RuleSet.parse(f"alphabet = ablogtryims\n{lines}\na -> b 0.1", "x")
    loss = fg.RuleLoss('alphabet = ablogtryims\nedit = 1\ninsert = 3\na -> "obligatory" 0.5')
    assert (loss("a", "obligatory"), loss("", "a"), loss("a", "")) == (0.5, 3.0, 1.0)


@pytest.mark.parametrize("rule", ["a: -> a 0.25", "t a: -> t a 0.25"])
def test_a_symbol_with_a_colon_is_no_name(rule):
    text = f"alphabet = t a a:\n{rule}"
    with pytest.raises(fg.FstError, match='write "a:" in quotes'):
        RuleSet.parse(text)
    with pytest.raises(fg.FstError, match='write "a:" in quotes'):
        RuleSet.parse("alphabet = ta:\na: -> a 0.25")
    loss = fg.RuleLoss(text.replace(" a: ->", ' "a:" ->').replace("\na:", '\n"a:"'))
    assert loss(["t", "a:"], ["t", "a"]) == 0.25
    assert fg.RuleLoss("alphabet = t a a:\nlong: a: -> a 0.5")(["a:"], ["a"]) == 0.5


@pytest.mark.parametrize("alphabet", ['a c z "^E"', '"^E" a c "z"', "^E a c z"])
def test_symbols_of_an_alphabet_may_have_quotes(alphabet):
    loss = fg.RuleLoss(f'alphabet = {alphabet}\nc -> z c 0.1 / _ "^E"')
    assert loss(["c", "^E"], ["z", "c", "^E"]) == 0.1
    assert fg.RuleLoss('alphabet = "ab c"\n" " -> 0.5')("a b", "ab") == 0.5


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


def test_undercut_rules_are_those_that_change_no_loss():
    lines = [
        "ANY -> 0 2",
        "x: a b -> b a 0.75",
        "y: b c -> c b 2.5",
        "0 -> c 1 / a _",
        "V -> V 1.5",
    ]
    lines += ["a -> c 0.125", "c -> a 1.25", "b -> c 2 obligatory", "b c -> 0 1.5"]
    lines += ["c -> 0.7 / _ #", "ANY -> c 0.5"]
    head = "alphabet = abc\nV = a b\ninsert = 0.5\nfeature = 0.25\na : p\nc : p q"
    undercut = RuleSet.parse("\n".join([head, *lines])).undercut
    costs = {"ANY -> 0": 1.0, "y": 1.5, "0 -> c / a _": 0.5, "V -> V": 1.0, "c -> a": 0.25}
    assert undercut == costs
    strings = [y for length in range(3) for y in itertools.product("abc", repeat=length)]
    for line in lines:
        with_rule, without = (fg.RuleLoss(f"{head}\n{text}") for text in (line, ""))
        changes = any(with_rule(y, z) != without(y, z) for y in strings for z in strings if y != z)
        (rule,) = with_rule.rules.rules
        assert changes == (rule.name not in undercut), line


def test_symbols_of_several_characters_do_not_read_strings_of_characters():
    text = "alphabet = ch c h a t x\nch -> x 0.25"
    assert fg.RuleLoss(text)(["ch", "a", "t"], "xat") == 0.25
    with pytest.warns(fg.UnusedArcsWarning, match="rules with the symbols 'ch' do not apply"):
        assert fg.RuleLoss(text, fg.Alphabet("chatx"))("chat", "xat") == 2
    fg.RuleLoss(text, fg.Alphabet(["a", "t", "x"]))  # no warning: nothing spells "ch"
    with pytest.warns(fg.UnusedArcsWarning, match="'ch'"):
        fg.RuleLoss("alphabet = ch c h a\na -> c 0.25 / ch _", fg.Alphabet("cha"))


def test_a_quoted_space_is_a_symbol_beside_longer_ones():
    loss = fg.RuleLoss('alphabet = ch b " "\n" " -> b 0.25\nch -> 0 0.5 / " " _')
    assert loss([" "], ["b"]) == 0.25
    assert loss(["ch"], []) == 1
    assert loss([" ", "ch"], [" "]) == 0.5


def test_symbols_outside_the_alphabet_are_not_any_symbol():
    loss = fg.RuleLoss("alphabet = ab\nANY -> 0 0.25")
    assert loss("ab", "a") == 0.25
    with pytest.warns(
        fg.UnusedArcsWarning, match="lacks 'c', which no rule reads, not even with A"
    ):
        wider = fg.RuleLoss(loss.rules, fg.Alphabet("abc"))
    assert (wider("ab", "a"), wider("ac", "a")) == (0.25, 1.0)
