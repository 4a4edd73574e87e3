"""Grammars written, tested, explained, trained and compared on the command line."""

import dataclasses
import pathlib
import subprocess
import sys

import pytest

import fstgrad as fg
from fstgrad.cli.commands.grammar_options import loss_over_data
from fstgrad.core.errors import FstError
from fstgrad.costs import explain
from fstgrad.grammars import Grammar
from fstgrad.grammars.checking import check_examples, updated
from fstgrad.grammars.templates import TEMPLATES

RULES = """# Two rules.
alphabet = abcdefgh
ab -> ba 0.5
end: e -> 0 0.25 / _ #
? ab => ba 0.5
? abe => ab 0.25
"""


@pytest.fixture
def rules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("two.rules")
    path.write_text(RULES)
    return path


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_grammar_passes_its_test(run, tmp_path, monkeypatch, template):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("grammar", "new", "mine", "--template", template)
    assert (code, err) == (0, "")
    file = "mine" + TEMPLATES[template][0]
    assert out.splitlines() == [
        f"wrote {file} and test_mine.py",
        f"next: fstgrad grammar test {file}",
        f"      fstgrad grammar explain {file} HYPOTHESIS TARGET",
        f"      fstgrad grammar fit {file} PAIRS.tsv -o mine.far",
    ]
    code, out, err = run("grammar", "test", file)
    assert (code, err) == (0, "")
    assert out.count("ok ") >= 4
    assert "ambiguous         none" in out
    assert run("grammar", "show", file)[0] == 0
    code, _, err = run("grammar", "new", "mine", "--template", template)
    assert code == 2
    assert "exists already" in err
    code, _, err = run("grammar", "new", "no/mine", "--template", template)
    assert code == 1
    assert "create it first" in err
    scope: dict[str, object] = {"__file__": "test_mine.py"}
    exec(compile(pathlib.Path("test_mine.py").read_text(), "test_mine.py", "exec"), scope)
    for row in Grammar.load(file).examples:
        scope["test_example"](*row)


@pytest.mark.slow
def test_the_test_of_a_new_grammar_runs_under_pytest(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("grammar", "new", "mine", "--template", "context")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "6 passed" in done.stdout


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")  # letters of the grammar alone
def test_rules_are_a_loss_everywhere(run, rules, tmp_path):
    (tmp_path / "pairs.tsv").write_text("abe\tba\n")
    assert run("loss", "pairs.tsv", "--loss", "two.rules")[:2] == (0, "0.75\n")
    assert run("grammar", "build", "two.rules", "-o", "two.far")[0] == 0
    code, out, err = run("loss", "pairs.tsv", "--loss", "two.far:two")
    assert (code, out) == (0, "0.75\n"), err
    assert run("grad", "pairs.tsv", "--loss", "two.rules", "--top", "0")[0] == 0
    code, out, _ = run("grammar", "show", "two.rules")
    assert code == 0
    assert "two: Two rules." in out


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")  # letters outside the alphabet
def test_explanations(run, rules):
    code, out, err = run("grammar", "explain", "two.rules", "abe", "ba", "-k", "2")
    assert (code, err) == (0, "")
    assert out.splitlines()[:4] == [
        "0.75  ab e",
        "      ba ·",
        "        0.5  ab -> ba",
        "        0.25  end",
    ]
    assert "without ab -> ba: 2\n" in out
    assert "without end: 1.5" in out
    rules.with_name("new.tsv").write_text("abx\tbay\n")  # outside the alphabet
    cost = float(run("loss", "new.tsv", "--loss", "two.rules")[1])
    code, out, _ = run("grammar", "explain", "two.rules", "abx", "bay", "-k", "1")
    assert (code, float(out.split()[0])) == (0, cost)
    assert "1  substitute x -> y" in out
    code, out, _ = run("grammar", "explain", "phonetic", "K AE T", "G AE T", "-k", "1")
    assert out.splitlines()[:3] == [
        "0.25  K AE T",
        "      G AE T",
        "        0.25  substitute K -> G",
    ]
    found = Grammar.load("damerau").explain("teh", "the", k=2)
    assert found.cost == 1.0
    assert [alignment.cost for alignment in found.alignments] == [1.0, 2.0]
    assert "<pre>" in found._repr_html_()
    assert str(explain(fg.Hamming(fg.Alphabet("ab")), "a", "ab")).startswith("inf: no")


def test_learned_costs_are_explained(run, rules):
    pairs = pathlib.Path("pairs.tsv")
    pairs.write_text("abe\tba\nabc\tabc\nbad\tbae\n" * 20)
    given = ("grammar", "fit", str(rules), str(pairs), "--tie", "rule", "--held-out", "0")
    assert run(*given, "-o", "x.far", "--table", "x.tsv")[0] == 0
    assert "-0\t" not in pathlib.Path("x.tsv").read_text()
    code, out, err = run("grammar", "explain", "x.far:x", "ab", "ba", "-k", "1")
    assert (code, err) == (0, "")
    loss = fg.TransducerLoss.from_file("x.far:x", fg.Alphabet("abcdefgh"))
    assert float(out.split()[0]) == pytest.approx(loss("ab", "ba"), rel=1e-5)


def test_the_loss_of_a_reference_over_given_symbols():
    assert loss_over_data("edit", [("x", "y")], None, "ab").alphabet == fg.Alphabet("ab")
    assert loss_over_data("edit", [("x", "y")], None, None).alphabet == fg.Alphabet("xy")
    assert loss_over_data("phonetic", [], None, "AE K").alphabet == fg.Alphabet(["AE", "K"])


def test_a_grammar_that_is_not_found_says_what_is_near(run, rules):
    for name, said in {
        "two": "did you mean two.rules?",
        "dvork": "did you mean dvorak?",
        "speling": "choose one of articulation, azerty, ",
        "none.rules": "No such file or directory: 'none.rules'",
    }.items():
        code, out, err = run("grammar", "test", name)
        assert (code, out) == (1, "")
        assert said in err
        assert "Errno" not in err


def test_coverage_and_strictness(run, rules):
    code, out, _ = run("grammar", "test", "two.rules")
    assert code == 0
    assert "covered           2 of 5 rules and edits" in out
    assert "unused            " in out
    for name in ("insert 1", "delete 1", "substitute 1"):
        assert name in out
    assert "ties              none" in out
    code, _, err = run("grammar", "test", "two.rules", "--strict")
    assert (code, err) == (1, "fstgrad: 3 unused, 0 undercut, 0 unreachable, 0 tied\n")
    rules.write_text(RULES + "ANY -> 0 2\n")
    code, out, _ = run("grammar", "test", "two.rules")
    assert code == 0
    assert "undercut          ANY -> 0 (edits cost 1): no effect" in out
    assert "1 undercut" in run("grammar", "test", "two.rules", "--strict")[2]
    rules.write_text(RULES + "? a => b 1\n? aa => b 2\n? a => c 1\n")
    code, out, _ = run("grammar", "test", "two.rules")
    assert "ambiguous         'aa' against 'b'" in out
    assert "'aa': 'b' as 'c'" in out


def test_update_writes_the_values_after_the_difference(run, rules, tmp_path):
    rules.write_text(RULES.replace("ba 0.5\nend", "ba 0.75\nend"))
    code, out, err = run("grammar", "test", "two.rules")
    assert (code, err) == (1, "fstgrad: 1 of 2 examples are wrong\n")
    code, out, _ = run("grammar", "test", "two.rules", "--update")
    assert code == 0
    assert "-? ab => ba 0.5\n+? ab => ba 0.75\n" in out
    assert run("grammar", "test", "two.rules")[0] == 0
    module = tmp_path / "own.py"
    module.write_text(
        "from fstgrad.grammars.pieces import costs, finished\n\n"
        "EXAMPLES = [\n    ('äb', 'äb', 1.0),  # kept\n    ('b', 'ä', 0.5)]\n\n\n"
        "def build(alphabet):\n    return finished(alphabet, costs(alphabet, {(a, a): 0.0 "
        "for a in alphabet}))\n"
    )
    code, out, err = run("grammar", "test", module, "--symbols", "äb", "--update")
    assert "+    ('äb', 'äb', 0.0),  # kept" in out, err
    assert "('b', 'ä', float(\"inf\"))]" in module.read_text()


def pairs_file(path, count=200):
    """Vowels for vowels: `a` is written for `e`."""
    words = ["hafe", "cab", "bead", "face", "deaf", "head", "beach", "chafe"]
    lines = [f"{word.replace('e', 'a', 1)}\t{word}\n" for word in words] * (count // 8)
    path.write_text("".join(lines))


def test_fit_and_compare(run, rules, tmp_path):
    pairs_file(tmp_path / "pairs.tsv")
    (tmp_path / "words").write_text("hafe\nhaf\ncab\ncabs\nbead\nbed\nface\nfact\n")
    options = ("--table", "x.tsv", "--rank", "words", "--candidates", "4", "--smoothing", "0.01")
    code, out, err = run("grammar", "fit", "edit", "pairs.tsv", "-o", "x.far", *options)
    assert (code, err) == (0, "")
    assert "180 pairs" in out
    assert "held out, 20 pairs" in out
    assert "a -> e" in out
    assert "costs by ranking: right word first" in out
    learned = fg.TransducerLoss.from_file("x.far:x")
    assert learned("hafa", "hafe") < learned("hafb", "hafe")
    assert "a -> e" in (tmp_path / "x.tsv").read_text()
    code, out, err = run("grammar", "compare", "edit", "x.far:x", "pairs.tsv", "--words", "words")
    assert (code, err) == (0, "")
    reciprocal = {line.split()[0]: line.split()[1] for line in out.splitlines() if "[" in line}
    assert float(reciprocal["x.far:x"]) > float(reciprocal["edit"])
    assert "left out 2 words" in out
    assert "difference" in out
    assert "pairs are ranked differently" in out
    for tie in ("rule", "arc", "cost"):
        code, out, err = run("grammar", "fit", rules, "pairs.tsv", "-o", "y.fst", "--tie", tie)
        assert (code, err) == (0, "")
    code, _, err = run("grammar", "fit", "phonetic", "-", "-o", "z.far", stdin="K AE T\tG AE T\n")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    "code, said, args",
    [
        (1, "pairs is empty|empty.tsv is empty", ["fit", "edit", "empty.tsv", "-o", "x.far"]),
        (1, "bad.tsv:2: 1 column", ["fit", "edit", "bad.tsv", "-o", "x.far"]),
        (2, "ends in .far or .fst or .tsv", ["fit", "edit", "p.tsv", "-o", "x.txt"]),
        (2, "ends in .tsv", ["fit", "edit", "p.tsv", "-o", "x.far", "--table", "x.txt"]),
        (1, "no arc of the transducer names a rule",
         ["fit", "edit", "p.tsv", "-o", "x.far", "--tie", "rule"]),
        (1, "p.tsv:2: pairs.*is not in the alphabet", ["fit", "two.rules", "p.tsv", "-o", "x.far",
                                       "--symbols", "ab"]),
        (1, "--held-out is 1.5", ["fit", "edit", "p.tsv", "-o", "x.far", "--held-out", "1.5"]),
        (1, "no grammar 'edti'", ["fit", "edti", "p.tsv", "-o", "x.far"]),
        (1, "none.tsv is empty", ["compare", "edit", "edit", "none.tsv"]),
        (1, "words is empty", ["compare", "edit", "edit", "p.tsv", "--words", "words"]),
        (1, "hypothesis\\[0\\] is 'x', which is not in the alphabet",
         ["explain", "two.rules", "x", "a", "--symbols", "abe"]),
        (2, "give letters, digits and _", ["new", "no-name"]),
        (1, "the folder|does not exist", ["new", "absent/name"]),
        (2, "choose|Invalid value", ["new", "name", "--template", "x"]),
        (1, "bad.rules:2: .*bad.rules:3: .*bad.rules:4: ", ["test", "bad.rules"]),
        (1, "latin.rules is not UTF-8", ["test", "latin.rules"]),
        (1, "No such file", ["test", "absent.rules"]),
        (1, "fails.py:5: FstOpError: Operation failed \\(Compose: ", ["show", "fails.py"]),
        (1, "syntax.py:2: SyntaxError", ["show", "syntax.py"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(run, rules, tmp_path, code, said, args):
    import re

    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "none.tsv").write_text("")
    (tmp_path / "words").write_text("")
    (tmp_path / "bad.tsv").write_text("a\tb\na\n")
    (tmp_path / "p.tsv").write_text("ab\tba\nac\tbc\n")
    (tmp_path / "bad.rules").write_text("alphabet = ab\na -> c 1\na ->\nnothing\n")
    (tmp_path / "latin.rules").write_bytes(b"# \xe4\n")
    (tmp_path / "fails.py").write_text(
        "import pynini\n\n\ndef build():\n    return pynini.compose(pynini.accep('a'), "
        "pynini.accep('a', arc_type='log'))\n"
    )
    (tmp_path / "syntax.py").write_text("\ndef build(:\n")
    found, _, err = run("grammar", *args)
    assert found == code, err
    assert re.search(said, err), err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_two_alphabets_are_a_usage_error(run, rules, tmp_path, command):
    (tmp_path / "p.tsv").write_text("ab\tba\n")
    (tmp_path / "abc.txt").write_text("a\nb\n")
    args = ("edit", "p.tsv", "-o", "x.far") if command == "fit" else ("edit", "edit", "p.tsv")
    options = ("--alphabet", "abc.txt", "--symbols", "abc")
    code, out, err = run("grammar", command, *args, *options)
    assert (code, out) == (2, "")
    assert "--alphabet and --symbols name two alphabets; give one of them" in err


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("p.tsv", "ab\tba\nac\tbc\n", 2),
        ("p.csv", "hypothesis,target\nab,ba\nac,bc\n", 3),
        ("p.fasta", ">one\nab\n>two\nba\n>three\nac\n>four\nbc\n", 5),
    ],
)
def test_an_error_of_a_pair_names_its_line(run, rules, tmp_path, name, text, line):
    (tmp_path / name).write_text(text)
    code, _, err = run("grammar", "fit", "two.rules", name, "-o", "x.far", "--symbols", "ab")
    assert code == 1
    assert err.startswith(f"fstgrad: {name}:{line}: pairs[1]")


def test_text_transducers_are_explained_and_compared(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("0 0 a a 0\n0 0 a b 0.5\n0 0 b b 0\n0 0\n")
    code, out, err = run("grammar", "explain", "x.txt", "ab", "bb", "-k", "1")
    assert (code, err) == (0, "")
    assert float(out.split()[0]) == 0.5
    (tmp_path / "p.tsv").write_text("ab\tbb\nbb\tbb\n")
    code, out, err = run("grammar", "compare", "x.txt", "x.txt", "p.tsv")
    assert (code, err) == (0, "")
    assert "0 of 2 pairs are ranked differently" in out


def test_unreachable_states_are_counted(run, tmp_path):
    (tmp_path / "odd.py").write_text(
        "import pynini\n\nALPHABET = 'a'\nEXAMPLES = [('a', 'a', 0.0)]\n\n\ndef build():\n"
        "    fst = pynini.accep('a').closure()\n    fst.add_state()\n    return fst\n"
    )
    code, out, _ = run("grammar", "test", tmp_path / "odd.py")
    assert code == 0
    assert "unreachable       1 states" in out
    code, _, err = run("grammar", "test", tmp_path / "odd.py", "--strict")
    assert (code, err) == (1, "fstgrad: 0 unused, 0 undercut, 1 unreachable, 0 tied\n")


def test_explanations_of_long_pairs_with_many_alignments():
    """As many alignments as there are ways through a grid cost the same; a few are shown."""
    abc = fg.Alphabet("ab")
    found = explain(fg.EditDistance(abc), "ab" * 100, "ba" * 100, k=3)
    assert found.cost == 2.0
    assert [a.cost for a in found.alignments] == sorted(a.cost for a in found.alignments)
    far = explain(fg.EditDistance(abc), "a" * 80, "b" * 40, k=2)
    assert far.cost == 80.0
    assert far.is_ambiguous


def test_a_grammar_without_an_alphabet_has_the_symbols_of_its_examples(run, tmp_path):
    path = tmp_path / "vowels.py"
    path.write_text(
        '"""Edits cost 1."""\n'
        "from fstgrad.grammars.pieces import edits, finished\n"
        'EXAMPLES = [("bat", "bet", 1.0), ("cat", "hat", 1.0)]\n\n'
        "def build(alphabet):\n"
        "    one = lambda *symbols: 1.0\n"
        "    return finished(alphabet, edits(alphabet, one, one, one))\n"
    )
    code, out, err = run("grammar", "test", path)
    assert (code, err) == (0, "")
    assert "ok    'bat' against 'bet': 1" in out
    assert run("grammar", "explain", path, "bat", "cat")[0] == 0
    path.write_text(path.read_text().replace("EXAMPLES", "ROWS"))
    code, _, err = run("grammar", "test", path)
    assert code == 1
    assert "has no ALPHABET" in err


def test_examples_of_another_builder_are_not_updated_in_the_rows_of_the_module():
    grammar = Grammar.load("qwertz")
    _, checked, _ = check_examples(grammar)
    wrong = [dataclasses.replace(checked[0], expected=9.0), *checked[1:]]
    assert len(wrong) == len(Grammar.load("keyboard").examples)
    with pytest.raises(FstError, match="EXAMPLES has other rows than those of the grammar"):
        updated(grammar, wrong)


def test_symbols_of_a_file_may_be_words(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.tsv").write_text("K AE T\tG AE T\nK AE\tK AH\n")
    assert run("grammar", "build", "phonetic", "-o", "p.far")[0] == 0
    code, out, _ = run("grammar", "fit", "p.far:phonetic", "p.tsv", "-o", "x.far")
    assert (code, "1 pair, " in out, "held out, 1 pair: " in out) == (0, True, True)
    assert run("grammar", "compare", "p.far:phonetic", "edit", "p.tsv")[0] == 0
