"""Errors and warnings on the command line name its options, never the arguments of Python."""

import re

import click
import pytest

from fstgrad.cli.main import fstgrad, main
from fstgrad.cli.spelling import in_options

UAI = "MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 0 2\n" + 3 * "\n4\n1 2 3 4\n"
LONG = "abcdefgh" * 12 + "\t" + "hgfedcba" * 12 + "\n"
PYTHON = re.compile(r"\b[a-z_]+=|\bfg\.|\binfer\(|\b(max|cache|insert|delete)_[a-z]+")


@pytest.mark.parametrize(
    "arguments, option",
    [
        (["grad", "PAIRS", "--max-states", 3], "--max-states 3"),
        (["grad", "PAIRS", "--max-states", 3], "--cap"),
        (["grad", "PAIRS", "--max-states", 3], "--method sampled"),
        (["risk", "PAIRS", "--max-states", 3], "--max-states 3"),
        (["marginals", "PAIRS", "--line", 1, "--max-states", 3], "--max-states 3"),
        (["grad", "PAIRS", "--skip-errors", "--max-states", 3], "--max-states 3"),
        (["grad", "PAIRS", "--cap", 2, "--engine", "openfst", "--max-states", 3], "--max-states"),
        (["grad", "LONG", "--method", "sampled", "--samples", 8], "--samples"),
        (["train", "PAIRS", "-o", "m", "--alignment", "none", "--max-states", 2], "--max-states"),
        (["mrf", "partition", "UAI", "--max-gib", "1e-9"], "--max-gib"),
        (["mrf", "partition", "UAI", "--max-gib", "1e-9"], "--method bp"),
        (["mrf", "partition", "UAI", "--method", "bp", "--samples", "9"], "no option --samples"),
        (["mrf", "partition", "UAI", "--method", "bp", "--samples", "9"], "--max-iter, --tol"),
        (["mrf", "marginals", "UAI", "--method", "bp", "--damping", "2"], "--damping is 2"),
    ],
)  # fmt: skip
def test_messages_name_options(arguments, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PAIRS").write_text("kitten\tsitting\n")
    (tmp_path / "LONG").write_text(LONG)
    (tmp_path / "UAI").write_text(UAI)
    with pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    said = "\n".join(line for line in capsys.readouterr().err.splitlines() if line[:7] == "fstgrad")
    assert option in said
    assert not PYTHON.search(said), PYTHON.search(said)


PARAMETERS = [
    click.Option(["--cap"]),
    click.Option(["--max-states"]),
    click.Option(["-m", "--method"]),
]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("cap=2.5 and max_states=9", "--cap 2.5 and --max-states 9"),
        ("take cap='auto', (cap=).", "take --cap auto, (--cap)."),
        ("cap is -1; give a number", "--cap is -1; give a number"),
        ("a cap is low; raise max_states.", "a cap is low; raise --max-states."),
        ("engine='openfst' stays", "engine='openfst' stays"),
        ("min(L, cap) stays, handicap=3 too", "min(L, cap) stays, handicap=3 too"),
        ("use infer('bp')", "use --method bp"),
        ("no option 'cap'; it has cap, tol", "no option --cap; it has --cap, tol"),
    ],
)  # fmt: skip
def test_arguments_as_options(text, expected):
    assert in_options(text, PARAMETERS) == expected
    assert in_options(text, []) == text


def test_arguments_stay_outside_a_command():
    assert in_options("raise max_states") == "raise max_states"


@pytest.mark.parametrize("name, megabytes", [("grad", 256), ("risk", 256), ("train", 1024)])
def test_the_memory_of_compiled_losses_is_bounded_by_default(name, megabytes):
    """The numbers of docs/cli/files.md."""
    command = fstgrad.get_command(click.Context(fstgrad), name)
    (option,) = [p for p in command.params if p.name == "cache_memory"]
    assert option.default == megabytes


def test_arguments_named_as_the_flag_are_options_too():
    assert in_options("raise max_states=3", [click.Option(["limit", "--max-states"])]) == (
        "raise --max-states 3"
    )
