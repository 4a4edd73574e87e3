"""`fstgrad score`: forms of files, groups, n-best lists, lattices, comparisons, bad input."""

import gzip
import json
import pathlib
import re

import pytest

import fstgrad as fg
from fstgrad.cli.commands.score_page import aligned_words


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**texts):
        for name, text in texts.items():
            path = tmp_path / name.replace("__", ".")
            path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def rows(run, *args):
    code, out, err = run("score", *args, "--json", "--resamples", 50)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


HYP = {"u1": "the cat sad", "u2": "", "u3": "a mat on"}
REF = {"u1": "the cat sat", "u2": "hat", "u3": "the mat"}
# form -> how an utterance is written, and the options of both files
FORMS = {
    "txt": ("{text}\n", ()),
    "tsv": ("{name}\t{text}\n", ()),
    "tsv_with_header": ("{text}\t{name}\n", ()),
    "trn": ("{text} ({name})\n", ()),
    "kaldi": ("{name} {text}\n", ("--format", "kaldi", "--reference-format", "kaldi")),
    "csv": ('{name},"{text}",{name[0]}\n', ()),
    "jsonl": ('{{"id": "{name}", "text": "{text}", "room": "A"}}\n', ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_files_have_the_same_errors(form, files, run):
    line, options = FORMS[form]
    head = {"csv": "id,text,room\n", "tsv_with_header": "text\tid\n"}.get(form, "")
    written = {
        name: head + "".join(line.format(name=n, text=t) for n, t in texts.items())
        for name, texts in (("hyp", HYP), ("ref", dict(reversed(REF.items()))))
    }
    if form == "txt":  # by position
        written["ref"] = "".join(f"{text}\n" for text in REF.values())
    files(**{f"{name}__{form}": text for name, text in written.items()})
    if form == "trn":  # also by its lines
        files(**{name: text.encode() for name, text in written.items()})
        assert rows(run, "hyp", "ref", "--by", "speaker")[-1]["symbols"] == 6
    found = rows(run, f"hyp.{form}", f"ref.{form}", *options)[0]
    names = ("substitutions", "deletions", "insertions", "symbols", "pairs", "wrong_pairs")
    assert [found[name] for name in names] == [2, 1, 1, 6, 3, 3]
    assert found["error_rate"][0] == 4 / 6


def test_words_of_a_ctm_are_in_the_order_of_time(files, run):
    files(h__ctm=";; made\nu1 1 0.5 0.2 cat\nu1 1 0.1 0.2 the 0.9\n", r__tsv="u1\tthe cat\nu2\ta\n")
    code, out, err = run("score", "h.ctm", "r.tsv", "--json")
    assert code == 0
    assert (json.loads(out)["deletions"], "1 references have no words" in err) == (1, True)
    files(two__ctm="u 1 0 1 a\nu 2 0 1 b\n", r__tsv="u-1\ta\nu-2\tb\n")
    assert rows(run, "two.ctm", "r.tsv")[0]["errors"] == 0


STM = """;; comment
f 1 ann 2.0 3.0 <o,f0,male> d e
f 1 bob 0.0 1.9 a b
g 1 ann 0 1 b
f 1 ann 4.0 5.0
"""
COUNTS = ("substitutions", "deletions", "insertions", "symbols", "pairs")


def test_words_of_a_ctm_are_cut_into_the_segments_of_an_stm(files, run):
    """A word belongs to the segment before whose end its middle is; the last one has the rest."""
    words = "f 1 0.1 .1 a\nf 1 1.7 .3 c\nf 1 1.8 .3 d\ng 1 0 1 b\nf 1 9 .1 x\nf 1 8 .1 y\n"
    files(h__ctm=words, r__stm=STM)
    found = rows(run, "h.ctm", "r.stm", "--by", "speaker")
    assert [found[-1][name] for name in COUNTS] == [1, 1, 2, 5, 4]
    # d, spoken from 1.8 to 2.1, is ann's; the rest of her channel is of her last segment
    assert [(row["group"], row["errors"]) for row in found[:2]] == [("ann", 3), ("bob", 1)]
    assert rows(run, "h.ctm", "r.stm", "--by", "label")[0]["group"] == "o,f0,male"
    assert run("score", "h.ctm", "r.stm", "-o", "o.tsv")[0] == 0
    files(h__trn="a c d y x (f)\nb (g)\n")  # without times, the segments are joined
    assert [rows(run, "h.trn", "r.stm")[0][name] for name in COUNTS] == [2, 0, 1, 5, 2]


def test_the_strings_of_segments_are_written(files, run, tmp_path):
    files(h__ctm="f 1 0 1 a\nf 1 2 1 c\n", r__stm="f A ann 2 3 b\nf A ann 0 1 (uh) a\n")
    assert run("score", "h.ctm", "r.stm", "-o", "o.tsv")[0] == 0
    assert (tmp_path / "o.tsv").read_text() == "ann-000\tc\nann-001\ta\n"


def test_segments_that_sclite_ignores_are_left_out_with_their_words(files, run):
    files(
        h__ctm="f 1 0 1 a\nf 1 2 1 x\nf 1 2.5 1 y\nf 1 4 1 c\n",
        r__stm="f 1 ann 0 1.5 a\nf 1 ann 1.5 3.9 <o> IGNORE_TIME_SEGMENT_IN_SCORING\n"
        "f 1 ann 4 5 c\ng 1 bob 0 1 b\n",
    )
    code, out, err = run("score", "h.ctm", "r.stm", "--json")
    assert (code, [json.loads(out)[name] for name in COUNTS]) == (0, [0, 1, 0, 3, 3])
    assert "left out: 1 segment IGNORE_TIME_SEGMENT_IN_SCORING, with 2 words of h.ctm" in err
    assert "h.ctm has no words of 1 of the channels, such as g A" in err
    files(u__ctm="F 1 0 1 A\r\nF 1 4 1 C\r\ng 1 0 1 b\r\n")
    assert rows(run, "u.ctm", "r.stm", "--ignore-case")[0]["errors"] == 0
    files(h__tsv="f-1\ta x y c\ng-1\tb\n", x__ctm="z 1 0 1 a\n")
    code, _, err = run("score", "h.tsv", "r.stm")
    assert (code, "r.stm:2: a segment that is not scored; give the hyp" in err) == (1, True)
    assert "x.ctm:1: no segment of the references has" in run("score", "x.ctm", "r.stm")[2]


def test_alternatives_of_sclites_files(files, run):
    """Also of ctm: an empty one is no word."""
    alternatives = "f 1 * * <ALT_BEGIN>\nf 1 1 1 {}\nf 1 * * <ALT>\n{}f 1 * * <ALT_END>\n"
    files(
        h__trn="c (u1)\n{ x / b } (u2)\n", r__trn="{ A b / @ } c (uh) (u1)\nb (u2)\n",
        h__ctm="f 1 0 1 c\n" + alternatives.format("x", "f 1 1 .5 y\nf 1 1.5 .5 b\n"),
        r__ctm="f 1 0 1 c\n" + alternatives.format("y", ""),
        r__stm="f 1 s 0 .9 { a / b } c\nf 1 s 1 2 { y @ / z } { b / { c / d e } }\n",
        h__tsv="u1\t{ d / c }\nu2\tb\n", r__tsv="u1\t{ a b / @ } c (uh)\nu2\tb\n",
    )  # fmt: skip
    for name, options in (("trn", ()), ("tsv", ("--alternatives",))):
        code, out, err = run("score", f"h.{name}", f"r.{name}", "--json", *options)
        assert (code, [json.loads(out)[key] for key in COUNTS]) == (0, [0, 0, 0, 3, 2])
        assert "optional words: 1, such as (uh)" in err
    assert [rows(run, "h.ctm", "r.ctm")[0][name] for name in COUNTS] == [0, 0, 1, 2, 1]
    assert [rows(run, "h.ctm", "r.stm")[0][name] for name in COUNTS] == [0, 1, 0, 4, 2]
    options = ("--drop", "b", "--replace", "rules", "--ignore-case")
    files(rules="A\t\nuh\tc\n")  # an alternative that is left out is no word
    assert [rows(run, "h.trn", "r.trn", *options)[0][name] for name in COUNTS] == [0, 0, 0, 2, 2]
    assert rows(run, "h.trn", "r.trn", "--loss", "cer")[0]["errors"] == 0
    found = rows(run, "h.trn", "r.trn", "--loss", "edit", "--html", "p.html")[0]
    assert (found["errors"], found["loss"][0]) == (0, 0.0)


def test_groups(files, run, tmp_path):
    files(
        t__csv="id,hyp,ref,room\na-1,x,y,R\na-2,y,y,S\nb-1,y,y,R\n", g="a-1 one\na-2 two\nb-1 two\n"
    )
    for by, groups in (("room", "RS"), ("speaker", "ab"), ("^.(.)", "-"), ("g", ["one", "two"])):
        found = rows(run, "t.csv", "t.csv", "--by", by)
        assert [row["group"] for row in found] == [*groups, "all"]
        assert sum(row["errors"] for row in found) == 2
    code, _, err = run("score", "t.csv", "t.csv", "--by", "rom")
    assert (code, "no such column, but hyp, ref, room" in err) == (2, True)
    files(g="a-1 one\n")
    assert "no utterance 'a-2'" in run("score", "t.csv", "t.csv", "--by", "g")[2]
    files(i__tsv="Ann-1\tX\nBob-1\ty\n", j__tsv="ANN-1\tx\nBOB-1\tz\n")
    files(g="Ann-1 One\nboB-1 Two\n", twice="Ann-1 One\nann-1 Two\nbob-1 Two\n")
    (tmp_path / "lat").mkdir()
    for name in ("aNN-1", "bOB-1"):
        (tmp_path / "lat" / f"{name}.txt").write_text("0 1 X\n1\n")
    for by, groups in (("g", ["One", "Two"]), ("^([A-Z]+)-", ["ann", "bob"])):
        for hypotheses in ("i.tsv", "lat"):
            options = ("--by", by, "--ignore-case", "--compare", "i.tsv")
            found = rows(run, hypotheses, "j.tsv", *options)
            assert [row["errors"] for row in found[:2]] == [0, 1]
            assert [row["group"] for row in found] == [*groups, "all"] * 2
    said = run("score", "i.tsv", "j.tsv", "--by", "twice", "--ignore-case")[2]
    assert "twice:2: 'ann-1' has another group before" in said
    (tmp_path / "lat" / "ANN-1.txt").write_text("0 1 x\n1\n")
    said = run("score", "lat", "j.tsv", "--ignore-case")[2]
    assert "lat has the name 'ann-1' more than once" in said
    files(k="a b\tV;1\tx y\n", r="a b\tV;1\tx z\n", g="a b\tV;1\ttwo\n")  # ids with tags
    assert rows(run, "k", "r", "--by", "g")[0]["group"] == "two"


NBEST = "a\t-1.5\tthe cat sad\nb\t-1\ta mat\na\t-2\tthe cat sat\n"
REFS = "b\tthe mat\na\tthe cat sat\n"


def test_rows_of_one_text_add_up_but_for_the_best_row(files, run):
    """The row x has p = 0.4, the rows y 0.3 each: their text is the likeliest, which is noted."""
    files(
        n__tsv="a\t-0.916\tx\na\t-1.204\ty\na\t-1.204\ty\nb\t0\tx\nb\t-9\tx\n",
        r__tsv="a\ty\nb\tx\n", plain__tsv="a\tx\nb\tx\n",
    )  # fmt: skip
    code, out, err = run("score", "n.tsv", "r.tsv", "--json", "-o", "k.tsv", "--nbest", 1)
    assert (code, json.loads(out)["errors"]) == (0, 1)
    assert "n.tsv: 1 lists, such as a, have a text whose rows add up to more" in err
    assert [line.split("\t")[2] for line in pathlib.Path("k.tsv").read_text().splitlines()] == [
        "y", "x",
    ]  # fmt: skip
    code, out, _ = run(
        "score", "n.tsv", "r.tsv", "--json", "--decode", "mbr", "--compare", "plain.tsv"
    )
    found = [json.loads(line) for line in out.splitlines()]  # a file of plain texts is as it is
    assert (code, found[0]["errors"], found[1]["symbol_difference"][0]) == (0, 0, 0.5)
    assert found[1]["symbol_error"][0] == found[0]["error_rate"]
    files(n__tsv="a\t1\tx\na\t0\tx\na\t-5\ty\n", r__tsv="a\tx\n")  # the likeliest either way
    assert "add up" not in run("score", "n.tsv", "r.tsv")[2]


def test_nbest_lists_in_json_are_those_of_tables(files, run):
    """As one object for each list, or one for each text."""
    lists: dict[str, list] = {}
    for line in NBEST.splitlines():
        name, score, text = line.split("\t")
        lists.setdefault(name, []).append({"text": text, "score": float(score)})
    whole = [{"id": name, "nbest": listed} for name, listed in lists.items()]
    single = [{"id": name, **one} for name, listed in lists.items() for one in listed]
    for objects in (whole, single):
        files(n__json="".join(f"{json.dumps(one)}\n" for one in objects), n__tsv=NBEST, r__tsv=REFS)
        for decode in ("best", "oracle", "mbr"):
            args = ("r.tsv", "--json", "--decode", decode)
            assert run("score", "n.json", *args)[:2] == run("score", "n.tsv", *args)[:2]
    for listed in ([], ["a"], {"text": "a"}, [{"text": 1, "score": 0}]):
        files(n__json=json.dumps({"id": "a", "nbest": listed}) + "\n")
        code, _, err = run("score", "n.json", "r.tsv")
        assert (code, "n.json:1: the entry 'nbest' is no list of objects" in err) == (1, True)


def test_references_without_words_are_told(files, run):
    files(h__tsv="a\tx\nb\tx\n", r__tsv="a\t\nb\tx\n")
    _, out, err = run("score", "h.tsv", "r.tsv", "--by", "^.")
    assert "the references have no words (rows a); the rate is then the number of errors" in err
    assert "100.00" in out.splitlines()[1]
    assert "no words" not in run("score", "h.tsv", "r.tsv")[2]


def test_the_columns_of_predict_are_an_nbest_list(files, run):
    """Its scores are last; a column of texts may hold numbers in some rows."""
    fields = [line.split("\t") for line in f"{NBEST}b\t-3\t17\n".splitlines()]
    listed = "".join(f"{name}\t{text}\t{score}\n" for name, score, text in fields)
    files(n__tsv=NBEST, p__tsv=listed, r__tsv=REFS)
    expected = rows(run, "n.tsv", "r.tsv", "--decode", "best", "--decode", "mbr")
    assert rows(run, "p.tsv", "r.tsv", "--decode", "best", "--decode", "mbr") == expected


def test_fillers_and_spellings(files, run, tmp_path):
    """Texts, a list and a lattice with fillers are right without them."""
    files(
        h__tsv="a\tUH the [noise] cat\nb\tgonna <unk>\n", r__tsv="a\tthe cat {uh}\nb\tgoing to\n",
        n__tsv="a\t-1\tuh the cat\nb\t-1\tgoing to um\n", s__tsv="gonna\tgoing to\n{uh}\t\n",
        s__glm=";; x\n* case_sensitive = 'F'\n[gonna] => [going to] / [ ] __ [ ]\n{uh} => \n",
    )  # fmt: skip
    drop = [arg for word in ("uh", "UM", r"^\[.*", "<unk>") for arg in ("--drop", word)]
    for name, rules in (("h.tsv", "s.tsv"), ("h.tsv", "s.glm"), ("n.tsv", "s.tsv")):
        found = rows(run, name, "r.tsv", *drop, "--replace", rules, "--ignore-case")
        assert [(row["symbols"], row["errors"]) for row in found] == [(4, 0)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("0 1 the\n1 2 uh\n2 3 cat\n3\n")
    (tmp_path / "folder" / "b.txt").write_text("0 1 goin\n1 2 to\n2\n")
    files(one="goin => going\n")
    found = rows(run, "folder", "r.tsv", "--drop", "uh", "--drop", "{uh}", "--replace", "one")
    assert found[0]["errors"] == 0
    options = ("--drop", "uhm", "--drop", "^z+", "--drop", "to", "--replace", "rows")
    files(rows="gonna\tgoing to\nthe mat\t\nthe hat\tx\n")
    for name in ("h.tsv", "n.tsv"):
        code, _, err = run("score", name, "r.tsv", *options)
        assert (code, "fstgrad: --drop: no text has 'uhm', '^z+' to drop\n" in err) == (0, True)
        gonna = "'gonna', " if name == "n.tsv" else ""
        assert f"fstgrad: --replace: no text has {gonna}'the mat', 'the hat' to replace\n" in err
    assert "the mat" in run("score", "folder", "r.tsv", "--replace", "rows")[2]
    for wrong in ("x => { a / b }\n", "x => y / [ ] __ z\n", "x\n", "x\ty\tz\n", "x\ty\nx\tz\n"):
        files(wrong=wrong)
        code, _, err = run("score", "h.tsv", "r.tsv", "--replace", "wrong")
        assert (code, f"wrong:{wrong.count(chr(10))}: " in err) == (1, True), err
    assert "no regular expression" in run("score", "h.tsv", "r.tsv", "--drop", "^[")[2]


def test_ids_on_one_side_alone_are_told(files, run):
    """A tab in each line may be between words, too."""
    files(h="a cat\nsat down\n", r="the\tcat\nsit\tdown\n", q="the cat\nsit down\n")
    for sides in (("h", "r"), ("r", "h")):
        code, _, err = run("score", *sides)
        assert code == 0
        assert "r has ids, the first is 'the', and h has none: texts match by line" in err
    for sides, option in ((("q", "r"), "--reference-format"), (("r", "q"), "--format")):
        code, _, err = run("score", *sides)
        assert code != 0
        assert f"or {option} lines if r has words there" in err
        code, out, err = run("score", *sides, option, "lines", "--json")
        assert json.loads(out.splitlines()[0])["errors"] == 0
        assert "has ids" not in err


def test_brackets_that_are_no_ids_are_words(files, run):
    for text, symbols in (("a (laughs)\nb (sighs)\n", 4), ("a (1)\nb (1)\n", 4), ("a (1)\nb\n", 3)):
        files(t=text)
        files(h=text)
        assert rows(run, "h", "t")[0]["symbols"] == symbols


@pytest.mark.parametrize(("ids", "option"), [
    (("U1", "u1"), ("--ignore-case",)), (("u\u0308", "\u00fc"), ("--normalize", "nfc")),
])  # fmt: skip
def test_ids_that_are_written_in_another_way_name_the_option(ids, option, files, run, tmp_path):
    files(h=f"{ids[0]}\ta b\n", r=f"{ids[1]}\ta b\n")
    (tmp_path / "lattices").mkdir()
    (tmp_path / "lattices" / f"{ids[0]}.txt").write_text("0 1 a\n1 2 b\n2\n")
    for hypotheses in ("h", "lattices"):
        assert f"give {' '.join(option)}" in run("score", hypotheses, "r")[2]
        assert rows(run, hypotheses, "r", *option)[0]["errors"] == 0


def test_the_head_of_a_loss_says_what_it_counts(files, run):
    files(h="u\tab c\n", r="u\tab\n")
    assert " words " in run("score", "h", "r", "--loss", "osa")[1].splitlines()[0]
    characters = run("score", "h", "r", "--loss", "osa", "--tokens", "chars")[1]
    assert " symbols " in characters.splitlines()[0]


def test_tags_of_sclites_words_are_no_part_of_them(files, run):
    """The counts of NIST for the speaker "tags" of sclite's own test."""
    c = "c;;reftag2 d;reftag1;reftag2"
    read, swapped = (rf"a aa\;a b\;b\;b;{t} b;reftag1 {c}" for t in (r"h\;1;h2", r"h1;h\;2"))
    x = r"z aa\;a b\;b\;b;h1;h2 y;h1 x;;h2 w;h1;h2"
    other, xs, ys = swapped.replace("reftag", "hyptag"), 13 * " x", 12 * " y"
    files(
        r__trn=f"{read} (t-1)\n{swapped} (t-2)\n(t-3)\n{read} (t-4)\n{{{read} /{ys}}} (t-5)\n",
        h__trn=f"{other} (t-1)\n(t-2)\n{other} (t-3)\n{x} (t-4)\n{{ {x} /{xs} }} (t-5)\n",
        h__ctm="f 1 0 1 a\\;S;tag\n", r__stm="f 1 s 0 1 { a;1 / a\\;s;2; } \n",
    )  # fmt: skip
    found = rows(run, "h.trn", "r.trn", "--align", "sclite")[0]
    names = ("substitutions", "deletions", "insertions", "correct", "symbols")
    assert [found[name] for name in names] == [8, 6, 6, 10, 24]
    assert rows(run, "h.ctm", "r.stm", "--ignore-case")[0]["errors"] == 0


def test_alternatives_outside_of_sclites_files_are_noted(files, run):
    files(h="u1\ta b\n", r="u1\t{ a / uh } b\n")
    code, _, err = run("score", "h", "r")
    assert (code, "r:1: '{ a / uh }' looks like alternatives" in err) == (0, True)
    assert "--alternatives reads alternatives as sclite does" in err
    for text, shown in (
        ("{a/uh} b", "'{a/uh}'"),
        ("b { a / { c / d } } {x}", "'{ a / { c / d }'"),
        ("{uh} a / b {um}", None),
        ("x{a/b} 1/2", None),
    ):
        files(h=f"{text}\n", r=f"{text}\n")
        err = run("score", "h", "r")[2]
        assert ("looks like alternatives" in err) == (shown is not None)
        assert shown is None or f"h:1: {shown} looks" in err


def test_a_manifest_has_both_texts(files, run):
    files(m__json='{"audio_filepath": "a.wav", "text": "a b", "pred_text": "a c"}\n')
    assert rows(run, "m.json", "m.json")[0]["errors"] == 1


def test_channels_of_a_ctm_are_those_of_the_stm(files, run):
    files(
        h__ctm="f 1 0 1 the\nf 1 1 1 cat\ng 1 0 1 x\n", b__ctm="f B 0 1 the\nf B 1 1 cat\n",
        r__stm="f A bob 0 2 the cat\nf B amy 0 2 yes\ng A bob 0 1 x\n",
        a__stm="f A bob 0 2 the cat\n",
    )  # fmt: skip
    found = rows(run, "h.ctm", "r.stm")[0]
    assert (found["pairs"], found["errors"], found["deletions"]) == (3, 1, 1)
    code, _, err = run("score", "b.ctm", "a.stm")
    assert code != 0
    assert "'f'" in err


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("n.tsv", "a\t12\t-1\na\t13\t-2\n", "n.tsv: the second and the third column are numbers"),
        ("n.tsv", "a\tx y\t-1\nb\tz\t-", "n.tsv:2: the score is '-'"),
        ("n.tsv", "a\t1_0\tx y\na\t9\tz\n", "n.tsv:1: the score is '1_0'"),
        (
            "n.json",
            '{"id": "a", "text": "x", "text": "y"}\n',
            "n.json:1: the entry 'text' is given",
        ),
        ("n.json", '{"id": "a", "text": null}\n', "n.json:1: the entry 'text' is null; give a"),
        ("n.json", '{"id": "a", "text": 12}\n', "n.json:1: the entry 'text' is 12; give a text"),
        ("n.json", '{"id": "a", "words": "x"}\n', "n.json:1: no text; name it hypothesis or"),
        ("n.json", '{"id": "a", "text": "x"}\n' + "[" * 100_000, "n.json:2: not JSON"),
        ("s.stm", "f A ann 5 1 the cat\n", "s.stm:1: the end, 1 s, is before the start, 5 s"),
    ],
)
def test_what_is_ambiguous_or_damaged_is_refused(name, text, said, files, run):
    files(**{name.replace(".", "__"): text}, r__tsv=REFS)
    code, _, err = run("score", name, "r.tsv")
    assert code != 0
    assert said in err


OTHER_IDS = {
    "upper case": ('{"ID": 2, "Text": "b"}\n{"ID": 1, "Text": "a"}\n', "id;text\n1;a\n2;b\n", ""),
    "hypotheses": ('{"key": 2, "text": "b"}\n{"key": 1, "text": "a"}\n', "id,text\n1,a\n2,b\n",
                   "h.json has no id, but 'key' is that of r.csv; name it id"),
    "references": ('{"id": 2, "text": "b"}\n{"id": 1, "text": "a"}\n', "utt;text\n1;a\n2;b\n",
                   "r.csv has no id, but 'utt' is that of h.json; name it id"),
    "both": ('{"utt": 2, "text": "b"}\n{"utt": 1, "text": "a"}\n', "utt;text\n1;a\n2;b\n",
             "have no ids, but the same 'utt' in another order; name this column id"),
    "none": ('{"text": "a"}\n{"text": "b"}\n', "id\ttext\n1\ta\n2\tb\n",
             "h.json has no ids: its rows and those of r.csv match by position"),
}  # fmt: skip


@pytest.mark.parametrize("hypotheses, references, said", OTHER_IDS.values(), ids=OTHER_IDS)
def test_ids_in_a_column_of_another_name_are_no_positions(hypotheses, references, said, files, run):
    files(h__json=hypotheses, r__csv=references)
    code, out, err = run("score", "h.json", "r.csv", "--json")
    assert said in err
    assert code == ("no id" in said and "position" not in said)
    if not code:
        assert json.loads(out)["errors"] == 0


def test_nbest_lists_and_what_is_written(files, run, tmp_path):
    files(n__tsv=NBEST, r__tsv=REFS)
    decodes = [arg for how in ("best", "oracle", "mbr") for arg in ("--decode", how)]
    found = rows(run, "n.tsv", "r.tsv", *decodes)
    assert [(row["decode"], row["errors"]) for row in found] == [
        ("best", 2), ("oracle", 1), ("mbr", 2)
    ]  # fmt: skip
    assert run("score", "n.tsv", "r.tsv", "--decode", "oracle", "-o", "o.tsv")[0] == 0
    assert (tmp_path / "o.tsv").read_text() == "b\ta mat\na\tthe cat sat\n"
    assert run("score", "n.tsv", "r.tsv", "--nbest", "5", "-o", "k.tsv")[0] == 0
    written = [line.split("\t") for line in (tmp_path / "k.tsv").read_text().splitlines()]
    assert [text for _, _, text in written] == ["a mat", "the cat sad", "the cat sat"]
    assert float(written[1][1]) - float(written[2][1]) == pytest.approx(0.5, abs=2e-6)
    again = rows(run, "k.tsv", "r.tsv", *decodes)
    assert [row["errors"] for row in again] == [2, 1, 2]


def test_lattices(files, run, tmp_path):
    abc = fg.Alphabet(["the", "cat", "sat", "sad"])
    slots = [[("the", 0.0)], [("cat", 0.0)], [("sat", -1.0), ("sad", 0.0)]]
    (tmp_path / "folder").mkdir()
    fg.Lattice.from_confusion_network(slots, abc).to_fst().write(str(tmp_path / "folder/a.fst"))
    (tmp_path / "folder" / "b.txt").write_text("0 1 a a\n1 2 mat mat\n2\n")
    files(r__tsv=REFS)
    found = rows(run, "folder", "r.tsv", "--decode", "best", "--decode", "oracle")
    assert [row["errors"] for row in found] == [2, 1]


def test_the_page_has_errors_confusions_and_lattices(files, run, tmp_path):
    nbest = "a\t1\tx <b> c\nb\t0\ty\nb\t-1\tz\n"
    files(n__tsv=nbest, r__tsv="a\tx d\nb\tz z\n", m__tsv=nbest)
    code, _, err = run(
        "score", "n.tsv", "r.tsv", "--compare", "m.tsv", "--decode", "best", "--html", "p.html"
    )
    assert (code, err) == (0, "")
    page = (tmp_path / "p.html").read_text()
    assert "x &lt;b&gt; c\n. I   S\nx -   d" in page
    assert re.search("<td>substituted</td><td>c</td><td>d</td>", page)
    assert "<b>" not in page
    assert (page.count("<svg"), page.count("MAPSSWE")) == (2, 1)
    assert "n.tsv and m.tsv against r.tsv" in page
    assert "Comparison of n.tsv (first) and m.tsv (second)" in page
    assert "b: 2 errors; oracle: z; reference: z z" in page
    files(h="a\n", r="a\n")
    assert run("score", "h", "r", "--html", "empty.html")[0] == 0
    assert "The 0 worst of 0 wrong pairs" in (tmp_path / "empty.html").read_text()


def test_words_of_a_reference_below_those_of_a_hypothesis():
    ref = ["so", "the", "mat", "sat", "there"]
    assert aligned_words(["the", "mat", "sat"], ref) == ["so+ the", "mat", "sat +there"]
    assert aligned_words(["x", "so", "the"], ["so", "the"]) == [None, "so", "the"]
    assert aligned_words([], ["a"]) == []


def test_comparison_and_lines_of_text(files, run):
    files(a="x b\nc\n" * 20, b="a b\nd\n" * 20, r="a b\nc\n" * 20, c="a b\nc\n" * 20)
    code, out, _ = run("score", "a", "r", "--compare", "b")
    assert code == 0
    assert "40 segments, +0 errors per segment, z = 0, p = 1" in out
    assert "33.33%   33.33%     +0.00 %" in out
    code, out, err = run("score", "a", "r", "--compare", "c", "--json", "--errors")
    test = json.loads(out.splitlines()[1])["matched_pairs"]
    assert test == {"segments": 20, "difference": -1.0, "z": None, "p_value": None}
    assert "x for a" in err


def test_systems_are_compared_in_each_group(files, run):
    """As if the group were alone; decoded once, with the references of alternatives."""
    hyp, other = ["a", "b c", "d", "a x"], ["a", "b", "a", "a"]
    ref = ["a", "{ b / x } c (uh)", "a", "{ a y / a x }"]
    for name, lines in (("h", hyp), ("o", other), ("r", ref)):
        rows_of = [f"{line} ({speaker}-{i})\n" for i, line in enumerate(lines) for speaker in "uv"]
        files(**{f"{name}__trn": "".join(rows_of), f"{name}u__trn": "".join(rows_of[::2])})
    options = ("--json", "--resamples", 50)
    both = run("score", "h.trn", "r.trn", "--by", "^.", "--compare", "o.trn", *options)[1]
    alone = run("score", "hu.trn", "ru.trn", "--compare", "ou.trn", *options)[1]
    found = [json.loads(line) for line in both.splitlines()[3:]]
    assert [line["group"] for line in found] == ["u", "v", "all"]
    expected = json.loads(alone.splitlines()[1])
    assert found[0] == expected | {"group": "u"}
    assert found[0]["symbol_error"][0][0] == 1 / 7  # d; uh is optional and counts
    text = run("score", "h.trn", "r.trn", "--by", "^.", "--compare", "o.trn")[1]
    assert "error rates by group\nu " in text
    assert "few pairs differ in u, v: their intervals" in text


def test_another_loss_adds_its_mean(files, run):
    files(a="a b\n\n", r="a c\nb\n")
    found = rows(run, "a", "r", "--loss", "edit", "--substitute-cost", "0.5")[0]
    assert (found["loss"][0], found["errors"]) == (0.75, 2)


def test_a_table_of_both_names_its_columns(files, run):
    files(p="a b\ta c\nc\tb\n")  # as for fstgrad loss
    code, out, err = run("score", "p", "p")
    assert (code, out, "p is given twice" in err) == (2, "", True)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (("a\n", "a\nb\n"), (), "r has 2 utterances and h has 1 utterance, which"),
        (("", "a\n"), (), "h has no utterances"),
        ((b"a\n\xff\n", "a\nb\n"), (), "h:2: not UTF-8"),
        (("u1\ta\nu1\tb\n", "u1\ta\nu2\tb\n"), (), "h has the id 'u1' more than once"),
        (("u1\tx\ta\nu2\t1\tb\n", "u1\ta\nu2\tb\n"), (), "h:1: the score is 'x'"),
        (("u1\t1\ta\nu2\tb\n", "u1\ta\nu2\tb\n"), (), "h:2: no score for 'u2'"),
        (("u1\ta\nu3\ta\n", "u1\ta\nu2\tb\n"), (), "h has no utterance 'u2'"),
        (("u1 a\nu2 b\n", "u1 a\nu2 b\n"), (), "may be ids; give --format kaldi"),
        (("utt-1 a\n", "utt-1 b\n"), (), "may be ids; give --format kaldi"),
        (("u2 b\nu1 a\n", "u1\ta\nu2\tb\n"), (), "begin with those of r; give --format kaldi,"),
        (("u1\t1\ta\n", "u1 a\n"), (), "begin with those of h; give --reference-format kaldi"),
        (("a\n", "{ a / b (u1)\n"), ("--reference-format", "trn"), "r:1: a { without its }"),
        (("a\n", "f 1 s 0 1 <o> a } b\n"), ("--reference-format", "stm"), "r:1: '}': alternat"),
        (("a\n", "f 1 * * <ALT>\n"), ("--reference-format", "ctm"), "r:1: <ALT> without <ALT_BEG"),
        (("a\n", "f 1 * * <ALT_BEGIN>\n"), ("--reference-format", "ctm"), "without <ALT_END>"),
        (
            ("a\n", "f 1 * * <ALT_BEGIN>\nf 1 0 1 a/b\nf 1 * * <ALT_END>\n"),
            ("--reference-format", "ctm"),
            "r:3: 'a/b' in alternatives",
        ),
        (("u\t1\t{ a / b }\n", "u\ta\n"), ("--alternatives",), "h:1: alternatives in an n-best"),
        (("a\n", "f 1 s 0\n"), ("--reference-format", "stm"), "r:1: 4 field(s); a line is file"),
        (("a\n", "f 1 s 0 x a\n"), ("--reference-format", "stm"), "r:1: the end is 'x'"),
        (
            ("a\n", "f 1 s 0 1 IGNORE_TIME_SEGMENT_IN_SCORING\n"),
            ("--reference-format", "stm"),
            "r:1: a segment that is not scored",
        ),
        (("a\n", "a b\n"), ("--reference-format", "trn"), "r:1: 'a b' does not end with the id"),
        (('{"id": 1}\n', "1\ta\n"), (), "h:1: no text; name it hypothesis"),
        (("a\n", "a\n"), ("--decode", "oracle"), "needs n-best lists with scores, or lattices"),
        (("a\n", "a\n"), ("--nbest", "2"), "no effect without -o"),
        (("a\n", "a\n"), ("--symbols", "h"), "--symbols has no effect without lattices"),
        (("a\n", "a\n"), ("--loss", "cer", "--tokens", "words"), "counts chars"),
        (("a\n", "a\n"), ("--loss", "none"), "give another loss"),
        (("u\t1\ta\n", "u\t1\ta\nu\t2\tb\n"), (), "r:1: 'u' has 2 texts; a reference has one"),
    ],
)
def test_bad_input(texts, options, message, files, run):
    files(h=texts[0], r=texts[1])
    code, out, err = run("score", "h", "r", *options)
    assert code in (1, 2)
    assert (message in err, out) == (True, "")


def test_numbers_that_may_be_labels_of_a_table_are_named(run, tmp_path):
    (tmp_path / "h.att").write_text("0\t1\t1\n1\t2\t2\n2\n")
    (tmp_path / "words.txt").write_text("<eps> 0\nthe 1\ncat 2\n")
    (tmp_path / "r.tsv").write_text("h\tthe cat\n")
    code, _, err = run("score", tmp_path / "h.att", tmp_path / "r.tsv")
    assert (code, "give it as --symbols" in err) == (0, True)
    code, _, err = run(
        "score", tmp_path / "h.att", tmp_path / "r.tsv", "--symbols", tmp_path / "words.txt"
    )
    assert (code, "--symbols" in err) == (0, False)


def test_references_of_lattices_that_begin_with_ids_need_their_format(run, tmp_path):
    (tmp_path / "lat").mkdir()
    (tmp_path / "lat" / "u1.txt").write_text("0\t1\ta\n1\n")
    (tmp_path / "r").write_text("u1 a\n")
    score = ("score", tmp_path / "lat", tmp_path / "r", "--json")
    code, _, err = run(*score)
    assert (code, "begin with those of" in err) == (1, True)
    assert json.loads(run(*score, "--reference-format", "kaldi")[1])["errors"] == 0
    assert json.loads(run(*score, "--reference-format", "lines")[1])["errors"] == 1


def test_costs_are_those_of_edits_and_the_page_has_the_letters_of_errors(files, run, tmp_path):
    """A word that the hypothesis adds is an insertion (I) of the cost --delete-cost."""
    files(h__tsv="u\ta b\n", r__tsv="u\ta\n")
    for option, loss in (("--insert-cost", 1.0), ("--delete-cost", 5.0)):
        found = rows(run, "h.tsv", "r.tsv", "--loss", "edit", option, 5, "--html", "p.html")[0]
        assert (found["insertions"], found["deletions"], found["loss"][0]) == (1, 0, loss)
        page = (tmp_path / "p.html").read_text()
        assert "I added, D missing" in page
        assert "a b\n. I\na -" in page
    files(h__tsv="u\ta\n", r__tsv="u\ta b\n")
    assert rows(run, "h.tsv", "r.tsv", "--html", "p.html")[0]["deletions"] == 1
    assert "a -\n. D\na b" in (tmp_path / "p.html").read_text()


def test_standard_input_is_not_read_twice(run):
    code, out, err = run("score", "-", "-")
    assert (code, out) == (2, "")
    assert "standard input is read twice; give a file" in err


@pytest.mark.parametrize("options", [(), ("--loss", "cer")])
def test_texts_in_different_unicode_forms_are_noted(files, run, options):
    files(h__txt="cafe\u0301\n", r__txt="caf\u00e9\n", same__txt="caf\u00e9\n")
    for pair in (("h.txt", "r.txt"), ("r.txt", "h.txt")):
        code, _, err = run("score", *pair, *options)
        assert code == 0
        assert "only some of the files are in Unicode form NFC" in err
        assert "give --normalize nfc" in err
        for form in ("nfc", "nfd"):
            code, out, err = run("score", *pair, *options, "--normalize", form, "--json")
            assert (code, json.loads(out)["errors"], "NFC" in err) == (0, 0, False)
    assert "NFC" not in run("score", "same.txt", "r.txt", *options)[2]
    assert "NFC" in run("score", "same.txt", "r.txt", "--compare", "h.txt", *options)[2]


def test_words_and_names_of_lattices_are_changed_as_those_of_texts(files, run):
    """Also before words are left out."""
    files(u__lat="U\n0 1 The\n1 2 Cafe\u0301\n2 3 UH\n3\n", r__tsv="u\tthe caf\u00e9\n")
    options = ("--ignore-case", "--normalize", "nfc", "--drop", "uh")
    assert rows(run, "u.lat", "r.tsv", *options)[0]["errors"] == 0


def test_scales_and_costs_of_words_change_the_best_path(files, run):
    """Costs: a b 3 graph + 4 acoustic, c 5 graph + 1 acoustic, and the empty string 9."""
    text = "u\n0 1 a 1.0,4.0,\n1 2 b 2.0,0.0,\n0 2 c 5.0,1.0,\n0 2 <eps> 9.0,0.0,\n2\n"
    files(k__lat=text, r__tsv="u\ta b\n", costs="c 1.5\n\nb -0.25\n")
    files(n__tsv="u\t-7\ta b\nu\t-6\tc\nu\t-9\t\n", a__lat="0 1 a a 3,0\n1\n")
    for options, best in (
        ((), "c"),  # 7, 6, 9
        (("--acoustic-scale", "0.1"), "a b"),  # 3.4, 5.1, 9
        (("--lm-scale", "2"), "a b"),  # 10, 11, 18
        (("--word-penalty", "-1.5"), "a b"),  # 4, 4.5, 9
        (("--word-penalty", "4"), ""),  # 15, 10, 9
        (("--word-costs", "costs"), "a b"),  # 6.75, 7.5, 9
        (("--word-costs", "costs", "--word-penalty", "1"), "c"),  # 8.75, 8.5, 9
    ):
        names = ["k.lat"] if options and "scale" in options[0] else ["k.lat", "n.tsv"]
        for name in names:
            assert run("score", name, "r.tsv", *options, "-o", "o.tsv")[0] == 0
            assert pathlib.Path("o.tsv").read_text() == f"u\t{best}\n", (name, options)
    for name, options, said in (
        ("n.tsv", ("--lm-scale", "2"), "--lm-scale has no effect without lattices"),
        (
            "o.tsv",
            ("--word-penalty", "2"),
            "--word-penalty has no effect without lattices or n-best",
        ),
        ("k.lat", ("--word-costs", "r.tsv"), "r.tsv:1: 3 field(s); a row is word, space, cost"),
    ):
        assert said in run("score", name, "r.tsv", *options)[2]
    files(k__lat="0 1 a a 3\n1\n", r__tsv="k\ta\n")
    said = run("score", "k.lat", "r.tsv", "--lm-scale", "2")[2]
    assert "k.lat: costs of one part; --acoustic-scale and --lm-scale are for" in said
    for wrong in ("a 1\na 2\n", "a x\n", "a inf\n"):
        files(wrong=wrong)
        assert "wrong:" in run("score", "k.lat", "r.tsv", "--word-costs", "wrong")[2]


def test_words_with_costs_are_those_of_hypotheses_in_any_case_and_form(files, run):
    """Costs of 1.5 for the best word: -1 - 1.5 against -2; Cafe is in another Unicode form."""
    files(
        n__tsv="a\t-1\tthe CAT\na\t-2\tthe Mat\nb\t-1\tCafe\u0301\nb\t-2\thut\n",
        r__tsv="a\tTHE mat\nb\thut\n", folded="CAT 1.5\ncaf\u00c9 1.5\n", low="cat 1.5\n",
    )  # fmt: skip
    pathlib.Path("lat").mkdir()
    for name, text in (
        ("a", "0 1 the the\n1 2 CAT CAT\n1 2 Mat Mat 1\n2\n"),
        ("b", "0 1 Cafe\u0301 Cafe\u0301\n0 1 hut hut 1\n1\n"),
    ):
        pathlib.Path(f"lat/{name}.txt").write_text(text)
    fold = ("--ignore-case", "--normalize", "nfc")
    for name in ("n.tsv", "lat"):
        assert rows(run, name, "r.tsv", *fold)[0]["errors"] == 2
        assert rows(run, name, "r.tsv", *fold, "--word-costs", "folded")[0]["errors"] == 0
        assert rows(run, name, "r.tsv", "--ignore-case", "--word-costs", "low")[0]["errors"] == 1
        code, _, err = run("score", name, "r.tsv", "--word-costs", "low")
        said = "fstgrad: --word-costs: no scored text or lattice has 'cat'\n"
        assert (code, said in err) == (0, True)
        assert "--word-costs:" not in run("score", name, "r.tsv", *fold, "--word-costs", "low")[2]
        files(two="CAT 1.5\ncat 1\n")
        code, _, err = run("score", name, "r.tsv", "--ignore-case", "--word-costs", "two")
        assert (code, "two:2: 'cat' is the word 'cat', which has another" in err) == (1, True)


@pytest.mark.parametrize("name", ["lats.txt", "lat.1.gz", "lat"])
def test_archives_of_kaldi_are_known_by_their_lines(name, files, run, tmp_path):
    """Costs are whole numbers: 5 + 0 for b, 2 + 1 for c; without a name that tells."""
    text = "u1 \n0 1 3 1,0\n1 2 4 5,0\n1 2 5 2,1\n2\n\nu2 \n0 1 3 0,0,7_7\n1\n"
    data = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    (tmp_path / name).write_bytes(data)
    files(words__txt="<eps> 0\na 3\nb 4\nc 5\n", r__tsv="u1\ta c\nu2\ta\n")
    options = ("--symbols", "words.txt")
    assert rows(run, name, "r.tsv", *options)[0]["errors"] == 0
    assert rows(run, name, "r.tsv", *options, "--acoustic-scale", 9)[0]["errors"] == 1
    files(one__lat="0 1 a 5,0\n1\n", r__tsv="one\ta\n")
    said = (
        "one.lat:1: the cost '5,0' has several parts, which only lattices of Kaldi have (a decimal"
    )
    assert said in run("score", "one.lat", "r.tsv")[2]


def test_encodings_of_files(files, run):
    """Files in UTF-8 are read as such beside those in the encoding."""
    text = "u1\tna\u00efve caf\u00e9\r\nu2\t\u00e9t\u00e9\r\n"
    files(l__tsv=text.encode("latin-1"), w__tsv=text.encode("utf-16"), r__tsv=text)
    for name, encoding in (("l.tsv", "latin1"), ("w.tsv", "utf-16")):
        code, _, err = run("score", name, "r.tsv")
        assert (code, "convert the text: --encoding latin1 (or utf-16)" in err) == (1, True)
        assert rows(run, name, "r.tsv", "--encoding", encoding)[0]["errors"] == 0
    assert run("score", "l.tsv", "r.tsv")[0] == 1  # the option ends with its command
    for name, said in (
        ("latin-0", "no encoding 'latin-0'"),
        ("ascii", "l.tsv is neither UTF-8 nor"),
    ):
        assert said in run("score", "l.tsv", "r.tsv", "--encoding", name)[2]


def test_labels_without_symbols_name_the_option(files, run):
    files(l__lat="u\n0 1 3 0.5,1,\n1\n", r__tsv="u\ta\n")
    assert "give --symbols words.txt, or write words" in run("score", "l.lat", "r.tsv")[2]


def test_ids_that_repeat_get_the_remedy_of_alternatives(files, run):
    files(h__tsv="tic\tT IY K\n", r__tsv="tic\tT IH K\ntic\tT IY K\n")
    code, _, err = run("score", "h.tsv", "r.tsv")
    assert code == 1
    assert "write what is right in one row, { a / b }, and give --alternatives" in err
    files(r__tsv="tic\t{ T IH K / T IY K }\n")
    code, out, _ = run("score", "h.tsv", "r.tsv", "--alternatives", "--json")
    assert (code, json.loads(out)["errors"]) == (0, 0)


def test_a_regular_expression_of_groups_may_leave_ids_out(files, run):
    files(h__tsv="a;SG\tx\nb;PL\tx\nc\ty\n", r__tsv="a;SG\tx\nb;PL\ty\nc\ty\n")
    err = run("score", "h.tsv", "r.tsv", "--by", "^.*;(SG|PL)")[2]
    assert "'c' from its start; begin with ^.* to look further on, and end with |" in err
    out = run("score", "h.tsv", "r.tsv", "--by", "^.*;(SG|PL)|", "--json")[1]
    rows = {row["group"]: row["errors"] for row in map(json.loads, out.splitlines())}
    assert rows == {"SG": 0, "PL": 1, "": 0, "all": 1}


def test_a_confusion_table_is_that_of_words_in_any_case(run, tmp_path):
    """It may have words that the texts lack, and names of one word with one cost."""
    (tmp_path / "h.tsv").write_text("a\tthe CAT\n")
    (tmp_path / "r.tsv").write_text("a\tthe BAT\n")
    table = tmp_path / "c.tsv"
    options = (
        "score", tmp_path / "h.tsv", tmp_path / "r.tsv", "--loss", "edit", "--confusion", table,
    )  # fmt: skip
    table.write_text("CAT\tBAT\t0.25\ncat\tbat\t0.25\nx\tq\t0.1\n")
    for ignored in ((), ("--ignore-case",)):
        assert "0.25 (0.25 .. 0.25)" in run(*options, *ignored)[1]
    table.write_text("CAT\tBAT\t0.25\ncat\tbat\t0.5\n")
    assert "0.25 (0.25 .. 0.25)" in run(*options)[1]
    assert "c.tsv:2: the pair 'cat', 'bat' has a cost before" in run(*options, "--ignore-case")[2]


def test_speakers_are_those_of_ids_in_any_case(files, run):
    lines = "the cat (Ann-1)\nthe mat (ann-2)\n"
    files(h__trn=lines, r__trn=lines)
    options = ("h.trn", "r.trn", "--by", "speaker")
    groups = [[row["group"] for row in rows(run, *options, *o)] for o in ((), ("--ignore-case",))]
    assert groups == [["Ann", "ann", "all"], ["ann", "all"]]


def test_invisible_characters_of_one_file_are_noted(files, run):
    files(h__txt="the cat\u200f\n", r__txt="the cat\n")
    code, _, err = run("score", "h.txt", "r.txt")
    assert code == 0
    assert "invisible characters (U+200F, RIGHT-TO-LEFT MARK)" in err
    assert "invisible" not in run("score", "h.txt", "h.txt")[2]


def test_words_in_a_row_are_not_replaced_across_alternatives(files, run):
    files(h__trn="the dog sat (a-1)\n", r__trn="the { cat / dog } sat (a-1)\n", m="the dog\tX\n")
    err = run("score", "h.trn", "r.trn", "--replace", "m")[2]
    said = "'the dog' not looked for across alternatives and optional words, as in 'the { cat"
    assert said in err
    with pytest.warns(UserWarning, match="not looked for across alternatives"):
        fg.score(
            ["the dog sat"], ["the { cat / dog } sat"], replace={"the dog": "X"}, alternatives=True
        )
    assert "across" not in run("score", "h.trn", "h.trn", "--replace", "m")[2]


def test_last_words_that_are_read_as_ids_are_told(run, tmp_path):
    h, r = tmp_path / "h.txt", tmp_path / "r.txt"
    h.write_text("born in texas (1990)\ndied in ohio (1950)\n")
    r.write_text("born in texas (1950)\ndied in ohio (1990)\n")
    code, out, err = run("score", h, r, "--json")
    assert (code, json.loads(out.splitlines()[0])["errors"]) == (0, 4)  # paired by year
    assert "h.txt: the last words of the lines, such as (1990), are ids" in err
    lines = ("--format", "lines", "--reference-format", "lines")
    code, out, err = run("score", h, r, "--json", *lines)
    assert (json.loads(out.splitlines()[0])["errors"], err) == (2, "")
    assert run("score", h.rename(tmp_path / "h.trn"), r.rename(tmp_path / "r.trn"))[2] == ""
