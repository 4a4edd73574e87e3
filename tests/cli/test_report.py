"""`fstgrad report`: what is on the page, that all is escaped, and that a browser runs it."""

import html.parser
import importlib
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import fstgrad as fg

EVIL = "<b>&'"  # a symbol of the data for each of these


class Links(html.parser.HTMLParser):
    """Collects what a page would load, and the tags that are open at the end."""

    def __init__(self):
        super().__init__()
        self.loaded, self.open = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "input", "link", "path", "use", "br"):
            self.open.append(tag)
        given = dict(attributes)
        self.loaded += [
            v for k, v in given.items() if k in ("src", "href") and not v.startswith("#")
        ]

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    rows = [f"{EVIL[i:]}{'ab'[i % 2]}\t{'ba'[i % 2]}{EVIL[: i + 1]}" for i in range(5)]
    (path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    (path / "counts.csv").write_text("cat,dog\n0,2\n3,1\n1,4\n2,0\n")
    return path


@pytest.fixture
def page(folder, run):
    pairs, out = folder / "pairs.tsv", folder / "report.html"
    if not out.exists():
        model, arrays, lines = folder / "model.npz", folder / "g.npz", folder / "lines.jsonl"
        fitted = folder / "grm.npz"
        assert run("train", pairs, "--epochs", 2, "--l2", 9, "-o", model)[0] == 0
        code, text, _ = run("grad", pairs, "--order", 1, "-o", arrays)
        lines.write_text(text)
        assert code == 0
        code, text, _ = run("evaluate", model, pairs)
        (folder / "evaluate.json").write_text(text)
        assert run("grm", "fit", folder / "counts.csv", "--alpha", 0.1, "-o", fitted)[0] == 0
        code, text, err = run(
            "report", model, lines, arrays, folder / "evaluate.json", fitted, "--pairs", pairs,
            "-o", out,
        )  # fmt: skip
        assert (code, err) == (0, "")
        assert text == f"wrote {out}\n"
    return out


def test_the_page(page):
    text = page.read_text()
    for part in ("learning_rate", "1-gram", "mean objective", "accuracy", "worst of", "alpha"):
        assert part in text
    assert text.count("<svg") == 2  # curves of the model, and the word graph
    assert "large together" in text
    number = r'<td class="number">'
    for size, names in ((1, r"\w+"), (2, r"\w+ \+ \w+")):
        assert re.search(rf"<tr>{number}{size}</td>{number}[^<]+</td><td>{names}</td></tr>", text)
    mean_loss = json.loads((page.parent / "evaluate.json").read_text())["loss"]
    rows = re.findall(rf"<tr><td>loss</td>{number}([^<]+)</td></tr>", text)
    assert [float(value) for value in rows] == pytest.approx([mean_loss] * 2, rel=1e-5)
    assert "words that" not in text
    assert "<td>l2</td><td></td>" not in text
    assert ">nan<" not in text.lower()
    links = Links()
    links.feed(text)
    assert not links.open
    assert all(link.startswith("data:") for link in links.loaded)
    assert "default-src 'none'" in text
    assert "<b>&'" not in text
    assert "&lt;b&gt;&amp;&#x27;" in text


def test_a_report_says_which_stage_an_epoch_belongs_to(folder, tmp_path, run):
    """More epochs than asked for, and a jump of the objective, have a reason."""
    rows = [f"{x}\t{x[0]} {x[1:]}\n" for x in ("aab", "bba", "abb", "bab", "baa", "bbb") * 12]
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    model, out = tmp_path / "model.npz", tmp_path / "page.html"
    code, _, told = run("train", tmp_path / "pairs.tsv", "--tokens-y", "words", "--objective",
                        "crf-then-risk", "--epochs", 2, "--seed", 1, "-o", model)  # fmt: skip
    assert code == 0
    assert "epoch 1 (crf): objective" in told
    assert re.search(r"\(risk\): objective [\d.]+, gradient", told)  # a risk is not in nats
    assert "(risk, all pairs)" in told
    other = tmp_path / "other.tsv"
    other.write_text("aab\tb aa\n")
    assert run("report", model, "--pairs", other, "-o", out)[0] == 0
    text = out.read_text()
    assert "Objectives of different stages are not comparable." in text
    for stage in ("crf", "risk", "risk, all pairs"):
        assert f"<td>{stage}</td>" in text
    assert "0.1, then 0.03 (default)" in text


def test_alignments_keep_the_spaces_between_words_of_one_letter():
    shown = fg.EditDistance(fg.Alphabet("abc")).align("ab", "ac")
    assert str(shown) == "ab\n.S\nac"
    assert shown.text(" ") == "a b\n. S\na c"


def test_a_signal_that_the_import_of_a_package_swallows_leaves_no_page(
    page, folder, tmp_path, run, monkeypatch
):
    """Modules in C turn the exception of a signal into an ImportError."""
    load = importlib.import_module

    def loaded(name, *args):
        if name == "matplotlib.figure":
            try:
                signal.raise_signal(signal.SIGTERM)
            except BaseException as error:
                raise ImportError("a part of it failed to import") from error
        return load(name, *args)

    monkeypatch.setattr(importlib, "import_module", loaded)
    out = tmp_path / "report.html"
    code, _, said = run("report", folder / "model.npz", "-o", out)
    assert (code, out.exists()) == (143, False)
    assert "cannot be imported (a part of it failed to import)" in said


def test_a_page_without_the_package_of_pictures_says_so(page, folder, tmp_path, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "report.html"
    assert run("report", folder / "model.npz", "-o", out)[0] == 0
    assert "No picture:" in out.read_text()
    assert "which is not installed" in out.read_text()


CHECKS = """<script>
const boxes = [...document.querySelectorAll("section.table")];
const box = boxes.find(b => b.textContent.includes("1-gram"));
const body = box.querySelector("tbody"), head = box.querySelectorAll("th")[1];
const column = () => [...body.rows].map(row => parseFloat(row.cells[1].textContent));
const sorted = (values, sign) => values.every((v, i) => !i || sign * (v - values[i - 1]) >= 0);
head.firstChild.click();
let found = "rising " + sorted(column(), 1);
head.firstChild.click();
found += " falling " + sorted(column(), -1);
const input = box.querySelector("input");
input.value = "&";
input.dispatchEvent(new Event("input"));
found += " shown " + [...body.rows].filter(row => !row.hidden).length;
document.title = found;
</script></body>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_page_in_a_browser(page, tmp_path):
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", CHECKS))
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probed.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "CONSOLE" not in done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    assert title == "rising true falling true shown 1"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "has no lines"),
        ("no json\n", ":1: not JSON"),
        ("[1]\n", ":1: not a JSON object"),
        ("PK not an archive", "PK"),
    ],
)
def test_what_is_no_run(run, tmp_path, text, said):
    path = tmp_path / "PK.jsonl"
    path.write_text(text)
    code, _, err = run("report", path, "-o", tmp_path / "r.html")
    assert code == 1
    assert said in err
    assert not (tmp_path / "r.html").exists()


def test_a_gradient_has_one_entry_for_each_symbol(run, tmp_path):
    for size, code in ((2, 0), (3, 1), (1, 1)):
        np.savez(tmp_path / "g.npz", gradient=np.zeros((2, size)), symbols=["a", "b"])
        found, _, err = run("report", tmp_path / "g.npz", "-o", tmp_path / "r.html")
        assert found == code, err
    assert "shape (2, 1), which is not one axis of 2 symbols" in err


def test_pairs_need_a_model(run, folder, tmp_path):
    (tmp_path / "e.json").write_text('{"accuracy": 1.0, "loss": null}\n')
    options = ("report", tmp_path / "e.json", "-o", tmp_path / "r.html")
    assert run(*options)[0] == 0
    code, _, err = run(*options, "--pairs", folder / "pairs.tsv")
    assert code == 2
    assert "--pairs has no effect without a model of fstgrad train" in err


def test_the_loss_of_a_file_is_given_again(page, run, folder, tmp_path):
    """A model does not contain the transducer that it was trained with."""
    swap, model, out = tmp_path / "swap.txt", tmp_path / "m.npz", tmp_path / "r.html"
    swap.write_text("0 0 a a\n0 0 b b\n0 0 a b 0.5\n0 0 b a 0.5\n0\n")
    pairs = tmp_path / "p.tsv"
    pairs.write_text("ab\tab\nba\tba\nbb\tab\nbb\tba\n" * 3)
    train = ("train", pairs, "--loss", swap, "--objective", "softmax-margin", "--epochs", 1)
    assert run(*train, "-o", model)[0] == 0
    options = ("report", model, "--pairs", pairs, "-o", out)
    assert "give it with --loss" in run(*options)[2]
    assert run(*options, "--loss", swap)[0] == 0
    measured = json.loads(run("evaluate", model, pairs, "--loss", swap)[1])["loss"]
    shown = re.search(r"<td>loss</td><td[^>]*>([\d.]+)</td>", out.read_text())[1]
    assert float(shown) == pytest.approx(measured, abs=1e-5)
    assert measured > 0
    assert "--loss has no effect without --pairs" in run(*options[:2], "-o", out, "--loss", swap)[2]
