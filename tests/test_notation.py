"""The page of notation: every row names code that is in the file to which it links.

What a row says to run by default is observed to run.
"""

import importlib
import importlib.util
import pathlib
import re
import sys
import threading

import numpy as np
import pytest

import fstgrad as fg

PAGE = pathlib.Path(__file__).parent.parent / "docs/internals/notation.md"
PAPERS = ["Strings", "Spanning trees", "Markov random fields", "Generalized root models"]
CODE = PAGE.parent.parent / "code_lines.py"
SPEC = importlib.util.spec_from_file_location("code_lines", CODE)
code_lines = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(code_lines)
LINK = re.compile(r"\[[^]]*\]\(([^)#]+)\)")


def cells_of_rows():
    """Yield the cells of the rows of all tables."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and LINK.search(cells[3]):
            assert cells[-1], f"{cells[0]} has no source"
            yield cells


def rows():
    """Yield (letter, names, file) of the rows of all tables."""
    for cells in cells_of_rows():
        yield cells[0], re.findall(r"`([\w.]+)", cells[2]), LINK.search(cells[3])[1]


ROWS = list(rows())
DEFAULTS = [
    (cells[0], name)
    for cells in cells_of_rows()
    for name in re.findall(r"`(\w+\.[\w.]+)`", cells[4])
]


def test_all_four_papers_have_a_table():
    text = PAGE.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(parts) == PAPERS
    assert all(len(LINK.findall(part)) > 8 for part in parts.values())


@pytest.mark.parametrize("letter, names, file", ROWS, ids=[f"{row[0][:30]}" for row in ROWS])
def test_the_file_has_the_name(letter, names, file):
    path = (PAGE.parent / file).resolve()
    assert path.is_file()
    code = path.read_text(encoding="utf-8")
    folder = path.parent if path.name == "__init__.py" else None
    if folder:  # a package: its modules
        code = "\n".join(part.read_text(encoding="utf-8") for part in folder.glob("*.py"))
    assert names or "never built" in PAGE.read_text(encoding="utf-8")
    for name in names:
        defined = rf"(?:def|class) {name}\b|\b{name}\b *[:=]|self\.{name}\b|\b{name},"
        assert re.search(defined, code), f"{name} of {letter} is not in {file}"


def strings_objective(letter):
    """Run the documented case: an objective of an edit distance and bigram scores."""
    rng = np.random.default_rng(0)
    # costs that no other test has, so that no automaton comes from a cache
    loss = fg.EditDistance(fg.Alphabet("abc"), substitute_cost=0.75)
    automaton = loss.compile("abca")
    scores = rng.normal(size=(4, 4, 3))
    if letter.startswith("R(w)"):
        fg.risk(scores, automaton)
    else:
        fg.softmax_margin(scores, "abca", automaton)


def trees_expectations(letter):
    """Run the documented case: the quantities of one unlabeled tree with one root."""
    scores, r = np.random.default_rng(0).normal(size=(2, 5, 5))
    trees = fg.SpanningTrees(scores, single_root=True)
    trees.marginals()
    trees.expectations(r[..., None])
    trees.second_moments(r[..., None], r[..., None])
    trees.expected_product(np.exp(r))


def field_inference(letter):
    """Run the documented case: a picture, a loop, a loop with a hard zero."""
    rng = np.random.default_rng(0)
    edge = rng.normal(size=(3, 3))
    picture = fg.PairwiseMRF.grid(4, 4, rng.normal(size=(16, 3)), edge)
    picture.infer("bp", max_iter=2)
    picture.nll(np.zeros(16, dtype=int), "pseudolikelihood")
    pairs = [(i, (i + 1) % 40) for i in range(40)]
    scores = rng.normal(size=(40, 3))
    loop = fg.PairwiseMRF(scores, edge, pairs)
    loop.infer("bp", max_iter=2)
    loop.infer("gibbs", samples=80, burn_in=1, rng=0)
    edge[0, 1] = -np.inf
    fg.PairwiseMRF(scores, edge, pairs).infer("bp", max_iter=2)


def root_model(letter):
    """Run the documented case: regressions of Poisson counts, and A of one node."""
    counts = np.random.default_rng(0).poisson(2.0, size=(30, 3))
    fg.GeneralizedRootModel(k=2, alpha=0.1).fit(counts)
    fg.GeneralizedRootModel(k=2, alpha=0.1, symmetrize="average", n_jobs=1).fit(counts)
    fg.grm.families.Poisson().log_partition([0.5, -0.1])


CASES = {
    "strings": strings_objective, "losses": strings_objective, "trees": trees_expectations,
    "mrf": field_inference, "grm": root_model,
}  # fmt: skip


def owner_of(name):
    """Return the module or class that has a function, and the function's name."""
    *path, attribute = f"fstgrad.{name}".split(".")
    owner = importlib.import_module(path[0])
    for i, part in enumerate(path[1:], start=2):
        if not hasattr(owner, part):
            importlib.import_module(".".join(path[:i]))
        owner = getattr(owner, part)
    return owner, attribute


@pytest.mark.parametrize("letter, name", DEFAULTS, ids=[f"{row[0][:30]}" for row in DEFAULTS])
def test_what_runs_by_default_runs(letter, name, monkeypatch):
    """A compiled function is replaced by one that notes its calls; others, a profiler sees."""
    owner, attribute = owner_of(name)
    function, calls = getattr(owner, attribute), []
    if hasattr(function, "py_func"):

        def noted(*args):
            calls.append(name)
            return function(*args)

        monkeypatch.setattr(owner, attribute, noted)
    code = getattr(function, "__code__", None)
    before = sys.getprofile()

    def profile(frame, event, argument):
        if frame.f_code is code:
            calls.append(name)

    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        CASES[name.split(".")[0]](letter)
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    assert calls, f"{letter}: {name} does not run"


def test_every_file_that_architecture_names_is_there():
    text = (PAGE.parent / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", text))
    assert len(named) > 20
    root = PAGE.parent.parent.parent
    missing = []
    for name in named:
        bases = [root / name, root / "fstgrad" / name]
        if not any(base.exists() or base.with_suffix(".py").exists() for base in bases):
            missing.append(name)
    assert not missing


def test_the_site_names_the_line_of_each_row():
    text = code_lines.with_lines(PAGE.read_text(encoding="utf-8"), PAGE.parent)
    in_modules = [file for _, names, file in ROWS if names and file.endswith(".py")]
    assert text.count(", line ") == len(in_modules)


def test_a_line_is_that_of_the_definition():
    code = "from a import f\n\n\ndef g():\n    return f()\n\n\nclass f:\n    pass\n"
    assert code_lines.line_of(code, "g") == 4
    assert code_lines.line_of(code, "f") == 8
    assert code_lines.line_of(code, "h") is None
