"""Help: printed as help, in sections, with examples that run."""

import re

import click
import pytest

from fstgrad.cli.command import Command
from tests.helpers.commands import LEAVES, run_examples


@pytest.mark.parametrize("command", [(), ("grammar",), ("trees",), ("mrf",), ("grm",)])
def test_a_group_alone_prints_its_help_as_help(run, command):
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert out == run(*command, "--help")[1]
    assert len(out.splitlines()) > 5


@pytest.mark.parametrize("name", LEAVES)
def test_help_has_sections_and_an_example(run, name):
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert isinstance(LEAVES[name], Command)
    assert LEAVES[name].examples
    assert "\n    ".join(["  Examples:", *LEAVES[name].examples]) in out
    assert max(map(len, out.split("Examples:")[0].splitlines())) <= 80
    assert str(2**31 - 1) not in out


def test_options_are_in_sections(run):
    _, out, _ = run("grad", "--help")
    sections = re.findall(r"^(\w.*):$", out, re.MULTILINE)
    assert sections == [
        "Options", "Loss", "Exact, capped or sampled", "Weights of the q-grams",
        "How the pairs are read", "Lattices", "Processes and continued runs",
    ]  # fmt: skip
    assert "--insert-cost" in out.split("\nLoss:")[1].split("\nExact, capped")[0]
    assert "PAIRS" not in out.split("\nOptions:")[1].split("\nLoss:")[0]


@pytest.mark.nightly
@pytest.mark.parametrize("name", LEAVES)
def test_examples_run(name, tmp_path):
    if name == "mrf denoise":
        pytest.importorskip("PIL")
    done = run_examples(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout or list(tmp_path.iterdir())


@pytest.mark.parametrize("name", LEAVES)
def test_help_shows_every_default(name):
    for option in LEAVES[name].params:
        value = option.default
        has_value = isinstance(value, int | float | str) and not isinstance(value, bool)
        if isinstance(option, click.Option) and has_value:
            assert option.show_default or "default" in option.help, (option.opts, value)
