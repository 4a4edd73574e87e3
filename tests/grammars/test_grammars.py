"""Grammars through the command line: listed, shown, built, tested, drawn, and used as losses."""

import json
import shutil

import pytest

import fstgrad as fg
from fstgrad.grammars import NAMES, Grammar
from fstgrad.plot import automata
from grammars import ipa

OWN = '''"""A vowel for another costs a quarter."""

import pynini

EXAMPLES = [("pat", "pit", 0.25), ("pat", "pat", 0.0)]


def build(alphabet=None):
    vowel = pynini.union(*"aeiou")
    other = pynini.cross(vowel, vowel) + pynini.accep("", weight=0.25)
    return pynini.union(other, *"abcdefghijklmnopqrstuvwxyz").closure().optimize()


def half():
    return pynini.union(pynini.accep("p"), pynini.cross("a", "i")).closure()
'''


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "vowels.py"
    path.write_text(OWN)
    return path


def test_all_grammars_are_listed(run):
    code, out, _ = run("grammar", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(NAMES)
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_grammar_gives_its_examples(run, name):
    code, out, err = run("grammar", "test", name)
    assert (code, err) == (0, "")
    assert out.count("ok ") == len(Grammar.load(name).examples) >= 4
    assert "negative          no   no pair" in out
    if name != "codons":  # a protein is no DNA
        assert "accepts identity  yes" in out
        assert "zero at identity  yes" in out


@pytest.mark.parametrize("name", NAMES)
def test_a_grammar_says_what_it_is(run, name):
    code, out, _ = run("grammar", "show", name)
    assert code == 0
    assert "Source: " in out
    assert "semiring  tropical" in out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")  # letters of the grammar alone
def test_a_built_grammar_is_the_same_loss(run, tmp_path, name):
    y, target, value = Grammar.load(name).examples[1]
    (tmp_path / "pair.tsv").write_text(f"{y}\t{target}\n")
    tokens = "chars" if Grammar.load(name).alphabet.is_characters else "words"
    options = ("--tokens-x", tokens, "--tokens-y", tokens)
    code, out, _ = run("grammar", "build", name, "-o", tmp_path / "x.far")
    assert code == 0
    assert f"--loss {tmp_path}/x.far:{name}" in out
    losses = [name, f"{tmp_path}/x.far:{name}"]
    if name == "damerau":
        run("grammar", "build", name, "-o", tmp_path / "x.fst")
        losses.append(tmp_path / "x.fst")
    for loss in losses:
        code, out, err = run("loss", tmp_path / "pair.tsv", "--loss", loss, *options)
        assert (code, float(out)) == (0, value), err


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")
def test_a_grammar_of_ones_own(run, own, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("pat\tpit\n")
    for reference in (own, f"{own}:build"):
        assert run("loss", pairs, "--loss", reference)[:2] == (0, "0.25\n")
    (tmp_path / "ap").write_text("p\npip\npap\n")
    code, out, _ = run("grad", pairs, "--loss", f"{own}:build")
    assert code == 0
    assert json.loads(out)["states"] > 0
    code, out, _ = run("grammar", "test", own, "--symbols", "abcdefghijklmnopqrstuvwxyz")
    assert code == 0
    assert "ok    'pat' against 'pit': 0.25" in out
    (tmp_path / "abc.txt").write_text("p\na\ni\nt\n")
    assert run("grammar", "test", own, "--alphabet", tmp_path / "abc.txt")[0] == 0
    assert run("grammar", "build", own, "-o", tmp_path / "v.far")[0] == 0
    assert run("loss", pairs, "--loss", f"{tmp_path}/v.far:vowels")[1] == "0.25\n"
    with pytest.warns(fg.UnusedArcsWarning, match="'a' 'i'"):
        loss = Grammar.load(f"{own}:half").loss(fg.Alphabet("p"))
    assert loss("pp", "pp") == 0.0


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")
def test_a_wrong_example_fails(run, own):
    own.write_text(OWN.replace('"pit", 0.25', '"pit", 0.5'))
    code, out, err = run("grammar", "test", own, "--symbols", "pait")
    assert code == 1
    assert "WRONG 'pat' against 'pit': 0.25, the example says 0.5" in out
    assert err.endswith("fstgrad: 1 of 2 examples are wrong\n")


@pytest.mark.parametrize(
    "code, said, args",
    [
        (1, "no grammar 'keybord'; did you mean keyboard", ["show", "keybord"]),
        (1, "choose one of articulation, azerty", ["show", "zzz"]),
        (1, "No such file", ["show", "absent.py"]),
        (1, "BAD.py:1: ModuleNotFoundError", ["show", "BAD.py"]),
        (1, "which is no function of OWN.py", ["show", "OWN.py:bild"]),
        (
            1,
            "build() of the grammar 'FAILS' failed: FAILS.py:2: ValueError: no",
            ["show", "FAILS.py"],
        ),
        (1, "returned a int; return a pynini.Fst", ["show", "INT.py"]),
        (1, "returned an empty FST", ["show", "EMPTY.py"]),
        (1, "alphabet has 'X'", ["test", "OWN.py", "--symbols", "aX"]),
        (2, "name two alphabets", ["test", "OWN.py", "--symbols", "a", "--alphabet", "OWN.py"]),
        (2, "ends in .far or .fst", ["build", "dna", "-o", "x.txt"]),
        (2, "the folder of", ["build", "dna", "-o", "absent/x.far"]),
        (2, "ends in .svg, .pdf, .png, .dot", ["draw", "dna", "-o", "x.gif"]),
    ],
)
def test_bad_input_is_one_line(run, own, tmp_path, monkeypatch, code, said, args):
    monkeypatch.chdir(tmp_path)
    own.rename("OWN.py")
    for name, text in {
        "BAD": "import nothing_of_this_name",
        "FAILS": "def build():\n    raise ValueError('no')",
        "INT": "def build():\n    return 1",
        "EMPTY": "import pynini\n\ndef build():\n    return pynini.Fst()",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found, _, err = run("grammar", *args)
    assert found == code
    assert said in err
    assert err.count("\n") == 1


def test_drawings_have_symbols(run, tmp_path, monkeypatch):
    code, out, _ = run("grammar", "draw", "dna", "--symbols", "AG")
    assert code == 0
    assert '0 -> 0 [label="A, G\\nA:G, G:A / 0.5"]' in out
    assert run("grammar", "draw", "dna", "-o", tmp_path / "x.dot")[0] == 0
    assert "A:G, C:T, G:A, T:C / 0.5" in (tmp_path / "x.dot").read_text()
    monkeypatch.setattr(automata.shutil, "which", lambda name: None)
    code, _, err = run("grammar", "draw", "dna", "-o", tmp_path / "x.svg")
    assert code == 1
    assert "not installed" in err
    assert "write DOT text" in err


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_svg_by_graphviz(run, tmp_path):
    assert run("grammar", "draw", "dna", "-o", tmp_path / "x.svg")[0] == 0
    assert "A:G, C:T, G:A, T:C / 0.5" in (tmp_path / "x.svg").read_text()


def test_svg_is_what_dot_writes(run, tmp_path, monkeypatch):
    """A program in the place of dot: its output is the file, its failure an error."""
    dot = tmp_path / "dot"
    dot.write_text("#!/bin/sh\necho '<svg>'; cat\n")
    dot.chmod(0o755)
    monkeypatch.setattr(automata.shutil, "which", lambda name: str(dot))
    assert run("grammar", "draw", "dna", "-o", tmp_path / "x.svg")[0] == 0
    assert (tmp_path / "x.svg").read_text().startswith("<svg>\ndigraph {")
    dot.write_text("#!/bin/sh\necho 'bad graph' >&2; exit 1\n")
    code, _, err = run("grammar", "draw", "dna", "-o", tmp_path / "y.svg")
    assert (code, err) == (1, "fstgrad: dot failed: bad graph\n")
    assert not (tmp_path / "y.svg").exists()


def test_grammars_agree_with_the_library():
    letters = fg.Alphabet("aehtx")
    own, theirs = Grammar.load("damerau").loss(letters), fg.OptimalStringAlignment(letters)
    for y, target in (("hte", "the"), ("htex", "thex"), ("ax", "eta"), ("xaxe", "axex")):
        assert own(y, target) == theirs(y, target)
    bases = Grammar.load("dna").loss()
    scores = [[-bases(a, b) for b in "ACGT"] for a in "ACGT"]
    aligned = fg.GlobalAlignment(fg.Alphabet("ACGT"), scores, 1.5, 0.5)
    for y, target in (("ACGTACGT", "AGT"), ("AAAC", "GTGG"), ("CCGT", "TCCAG")):
        assert bases(y, target) == aligned(y, target)


def test_a_sound_that_the_table_lacks_costs_one():
    loss = Grammar.load("articulation").loss(fg.Alphabet(["t", "d", "?"]))
    assert [loss(["t"], ["?"]), loss(["?"], ["t"]), loss(["t"], ["d"])] == [1.0, 1.0, 0.125]


@pytest.mark.parametrize(
    "name, key, near",
    [
        ("keyboard", "s", "adwzx"),
        ("keyboard", "a", "qsz"),
        ("qwertz", "z", "tuh"),
        ("azerty", "q", "asw"),
        ("dvorak", "o", "ae,q"),
    ],
)
def test_neighbours_on_a_keyboard_cost_half(name, key, near):
    keys = "abcdefghijklmnopqrstuvwxyz,"
    loss = Grammar.load(name).loss(fg.Alphabet(keys))
    assert {other for other in keys if loss([key], [other]) == 0.5} == set(near)
    assert {loss([key], [other]) for other in keys if other not in {key, *near}} == {1.0}


def test_a_vowel_is_cheap_for_another_vowel_alone():
    loss = Grammar.load("morphology").loss(fg.Alphabet("aenrst"))
    stem = "strensttrs"  # the first two positions and the last four have costs of their own
    assert loss(stem, "stransttrs") == 0.5
    assert loss(stem, "strsnsttrs") == loss("strsnsttrs", stem) == 1.0


@pytest.mark.parametrize("x, y, expected", [
    ("+", "-", 0.5), ("+", "=", 1.0), ("x", "y", 0.25), ("1", "2", 0.25), ("x", "1", 1.0),
])  # fmt: skip
def test_tokens_of_one_kind_or_group_are_cheap_to_exchange(x, y, expected):
    loss = Grammar.load("code_tokens").loss()
    assert loss([x], [y]) == loss([y], [x]) == expected


def test_only_punctuation_is_cheap_to_leave_out():
    loss = Grammar.load("code_tokens").loss()
    assert loss(["x", "("], ["x"]) == loss(["x"], ["x", "("]) == 0.5
    assert loss(["x", "+"], ["x"]) == loss(["x"], ["x", "+"]) == 1.0


def test_confusions_of_sounds_cost_at_most_a_substitution():
    sounds = list(fg.Alphabet(ipa.ALPHABET))
    costs = [ipa._confusion(read, written) for read in sounds for written in sounds]
    assert (min(costs), max(costs)) == (0.125, 1.0)
    assert ipa._confusion("p", "a") == 1.0
