"""The documents are run.

In a Markdown file, ```python blocks run in order in one namespace (as a doctest where they have
prompts), and a ```text block right after one is what it prints.  In ```console blocks every line
after `$ ` is a command, followed by what it prints on standard output.  "..." matches anything.
"""

import doctest
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.helpers.documents import blocks, run_python
from tests.helpers.program import fast_program

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/*.md")])


def night(path, *ends):
    """A row that is run at night if the document takes many seconds."""
    marks = [pytest.mark.nightly] if str(path).endswith(ends) else []
    return pytest.param(path, marks=marks, id=str(path.relative_to(ROOT)))


def assert_printed(found, expected, source):
    matches = doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS)
    assert matches, f"{source}\nprinted\n{found}\ninstead of\n{expected}"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a line of bash in a folder with `fstgrad` on the path."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def run(command, folder):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    with fast_program(folder):
        yield run


@pytest.mark.parametrize("path", [night(path, "performance/clusters.md") for path in DOCUMENTS])
def test_blocks(path, shell, tmp_path, monkeypatch):
    """Commands may read the files that blocks of Python before them write, in a folder of its own.

    The folder looks like that of the project; the tasks of the command line start from nothing.
    """
    monkeypatch.chdir(tmp_path)
    for entry in ROOT.iterdir() if path.parent.name != "tasks" else ():
        if entry.name != "build":
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "build").mkdir()
    found = blocks(path)
    for framework in ("torch", "jax"):
        if any(kind == "python" and f"import {framework}" in code for kind, code in found):
            pytest.importorskip(framework)
    namespace = {"__name__": "__main__"}
    for i, (kind, text) in enumerate(found):
        if kind == "python":
            printed = run_python(text, namespace)
            if i + 1 < len(found) and found[i + 1][0] == "text":
                assert_printed(printed, found[i + 1][1], text)
        elif kind == "console":
            for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, expected = block.partition("\n")
                assert_printed(shell(command, tmp_path), expected, command)


def test_blocks_that_are_not_run_only_install_and_make():
    """Whatever else a reader pastes into a shell is in a block that is run."""
    for path in DOCUMENTS:
        for kind, text in blocks(path):
            assert kind in ("python", "console", "text", "sh", "bibtex"), f"{path.name}: {kind}"
            for line in text.splitlines() if kind == "sh" else ():
                assert re.match("pip install|make |fstgrad doctor$|[.]ci/run", line), line


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        if not any(made in link for made in ("gallery/", "_static/plot/")):  # by `make docs`
            assert (path.parent / link).exists(), link


def test_the_guide_lists_every_loss_of_the_command_line():
    from fstgrad.cli.loss_options import LOSSES

    guide = (ROOT / "docs/guide/losses.md").read_text()
    for name in LOSSES:
        assert f"| `{name}` |" in guide


def test_the_readme_is_short():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(re.sub(r"\]\(\S+\)", "]", text).split()) <= 600


def test_the_chart_of_times_shows_the_table():
    times = json.loads((ROOT / "docs/performance/measured.json").read_text())["milliseconds"]
    table = (ROOT / "docs/performance/speed.md").read_text()
    for task, row in times.items():
        own = row["fstgrad"]
        assert f"| {own:g} ms |" in table or f"| {own / 1000:g} s |" in table, task
