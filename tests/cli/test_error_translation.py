"""Errors and warnings on the command line name its options, never the arguments of Python."""

import re

import click
import pytest

from fstgrad.cli.command import Command
from fstgrad.cli.error_translation import with_option_names
from fstgrad.cli.loss_options import ARGUMENTS
from fstgrad.cli.main import fstgrad, main
from fstgrad.cli.pair_options import LOSS_PARAMETERS
from fstgrad.core.errors import MemoryLimitError

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
        (["grad", "PAIRS", "--objective", "hinge", "--cap", "auto"], "--objective is 'hinge'"),
        (["grad", "PAIRS", "--order", 2**31 - 1], "a smaller --order"),
        (["train", "PAIRS", "-o", "m", "--order", 2**31 - 1], "a smaller --order"),
        (["marginals", "PAIRS", "--line", 2], "--line is 2"),
        (["train", "PAIRS", "-o", "m", "--l2", 1e300], "a smaller --learning-rate or --l2"),
        (["train", "PAIRS", "-o", "m", "--span", 2**31 - 1], "a smaller --span"),
        (["grad", "PAIRS", "--loss", "ngram", "--method", "sampled", "--proposal", "cap"],
         "--proposal plain"),
        (["grm", "fit", "COUNTS", "-o", "m", "--threads", 0], "'--threads': 0"),
        (["grm", "fit", "COUNTS", "-o", "m", "--k", 5], "--k is 5, and 2 columns of COUNTS.csv"),
        (["grm", "fit", "COUNTS", "-o", "m", "--max-gib", 1e-9], "raise --max-gib"),
        (["grm", "fit", "COUNTS", "-o", "m", "--max-gib", 4.8e-7], "--symmetrize average"),
    ],
)  # fmt: skip
def test_messages_name_options(arguments, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PAIRS").write_text("kitten\tsitting\n")
    (tmp_path / "LONG").write_text(LONG)
    (tmp_path / "UAI").write_text(UAI)
    (tmp_path / "COUNTS.csv").write_text("a,b\n" + "0,2\n3,1\n1,4\n2,0\n")
    arguments = [a if a != "COUNTS" else "COUNTS.csv" for a in arguments]
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
        ("lower cap, or give cap > 0", "lower --cap, or give --cap > 0"),
        ("a cap is low; raise max_states.", "a cap is low; raise --max-states."),
        ("engine='openfst' stays", "engine='openfst' stays"),
        ("min(L, cap) stays, handicap=3 too", "min(L, cap) stays, handicap=3 too"),
        ("use infer('bp')", "use --method bp"),
        ("method 'exact' fits", "--method exact fits"),
        ("use method 'icm', 'graph-cut' or 'trw', or", "use --method icm, graph-cut or trw, or"),
        ("max_states.txt:1: no max_states", "max_states.txt:1: no --max-states"),
        ("no option 'x'; it has cap, tol", "no option 'x'; it has --cap"),  # no --tol
        ("no option 'x'; it has tol", "no option 'x'; it has none"),
    ],
)  # fmt: skip
def test_arguments_as_options(text, expected):
    assert with_option_names(text, PARAMETERS) == expected
    assert with_option_names(text, []) == text


def test_arguments_stay_outside_a_command():
    assert with_option_names("raise max_states") == "raise max_states"


@pytest.mark.parametrize("name, gib", [("grad", 0.25), ("risk", 0.25), ("train", 1)])
def test_the_memory_of_compiled_losses_is_bounded_by_default(name, gib):
    """The numbers of docs/cli/files.md."""
    command = fstgrad.get_command(click.Context(fstgrad), name)
    (option,) = [p for p in command.params if p.name == "cache_gib"]
    assert option.default == gib


def test_arguments_named_as_the_flag_are_options_too():
    assert with_option_names("raise max_states=3", [click.Option(["limit", "--max-states"])]) == (
        "raise --max-states 3"
    )


def test_every_argument_of_a_loss_has_an_option():
    """A new argument of a constructor needs an option, or a place in `_ONLY_IN_PYTHON`."""
    options = {option for found in ARGUMENTS.values() for option in found}
    assert options == set(LOSS_PARAMETERS) - {"loss"}


def test_help_has_the_defaults_of_the_constructors(run):
    said = " ".join(run("loss", "--help")[1].split())
    assert "[default: ngram, gappy 2; ngram-sum 4; mismatch 3]" in said
    assert "a match, for smith-waterman. [default: -2]" in said
    assert "a substitution, for edit, edit- factored, osa, wer, cer, smith-waterman and" in said
    assert "arc type log or log64" in said


def test_a_lack_of_memory_names_the_options_with_large_numbers():
    def fail(**_):
        raise MemoryError

    options = [click.Option([flag], type=int, default=10**6) for flag in ("--few", "-n", "--many")]
    command = Command("draw", params=options, callback=fail)
    with pytest.raises(MemoryLimitError, match=r"lower -n 20000 or --many 1000000000$"):
        command.main(["--few", "3", "-n", "20000", "--many", "1000000000"], standalone_mode=False)
    with pytest.raises(MemoryError):
        command.main(["--few", "3"], standalone_mode=False)
