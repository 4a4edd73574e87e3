"""Numbers of the command line keep their bounds, outputs are no inputs, no option is ignored."""

import re
import subprocess
import sys

import click
import pytest

import fstgrad as fg
from fstgrad.cli import parameter_types
from fstgrad.cli.commands.train import train
from fstgrad.cli.main import fstgrad, main
from tests.fuzz.commands import TEMPLATES, fill


@pytest.mark.parametrize(
    "name, inside, outside",
    [
        ("COUNT", ["1", "2147483647"], ["0", "2147483648", "1.5", "nan", "1_0", "\u0661"]),
        ("THREADS", ["1", "-1", "-2", "1024"], ["0", "1025", "-1025", "1.5"]),
        ("SEED", ["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
        ("POSITIVE", ["5e-324", "1e308"], ["0", "-1", "inf", "nan", "1_0", "\u0661"]),
        ("NOT_NEGATIVE", ["0", "0.5"], ["-1e-9", "inf", "nan"]),
        ("COST", ["0", "inf"], ["-1e-9", "nan", "-inf"]),
    ],
)
def test_bounds_of_numbers(name, inside, outside):
    kind = getattr(parameter_types, name)
    for text in inside:
        wanted = float(text) if isinstance(kind, parameter_types.Number) else int(text)
        assert kind.convert(text, None, None) == wanted
    for text in outside:
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def _commands(group=fstgrad):
    for command in group.commands.values():
        yield from _commands(command) if isinstance(command, click.Group) else [command]


def test_no_option_reads_numbers_as_python_does():
    """float() and int() read 1_0 as 10, and the digits of all scripts."""
    for command in _commands():
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType | click.types.IntParamType):
                assert isinstance(option.type, parameter_types.Integer), (command, option)


@pytest.mark.parametrize("text", ["1", "1.5", "-0.1", "nan", "inf", "0_0"])
def test_a_held_out_share_is_below_one(text):
    (option,) = (option for option in train.params if option.name == "held_out")
    assert option.type.convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter):
        option.type.convert(text, None, None)


def _run(arguments, capsys):
    """Return the exit code and standard error of a command line."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code, capsys.readouterr().err


def _output_places(words):
    """Return where the names of outputs stand among the words of a command line."""
    context, command, flags = click.Context(fstgrad), fstgrad, {}
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word)
    for option in command.params:
        if isinstance(option.type, parameter_types.Output):
            flags |= dict.fromkeys(option.opts, option)
    return [i + 1 for i, word in enumerate(words) if word in flags]


@pytest.mark.parametrize("template", [line for line in TEMPLATES if " {out}" in line])
def test_no_output_is_an_input_of_any_kind(template, tmp_path, capsys):
    """Files, grammars and transducers alike: nothing is read before the names are compared."""
    names = set(re.findall(r"{([a-z]+\.[a-z]+)}", template))
    for name in names:
        (tmp_path / name).write_text("before")
    (tmp_path / "lines.jsonl.npz").write_text("before")
    words = fill(template, tmp_path, tmp_path).arguments
    for place in _output_places(words):
        for name in names:
            given = [*words[:place], str(tmp_path / name), *words[place + 1 :]]
            code, said = _run(given, capsys)
            assert (code, len(said.splitlines())) == (2, 1), said
            assert "both read and written" in said
            assert (tmp_path / name).read_text() == "before"


def test_outputs_that_are_inputs_by_other_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.tsv", "x.fst", "one.txt"):
        (tmp_path / name).write_text("a\tb\n")
    for given in (
        ("grad", "pairs.tsv", "--loss", "x.fst:edit", "-o", "x.fst"),
        ("grad", "pairs.tsv", "--loss", "./x.fst", "-o", "x.fst"),
        ("risk", "pairs.tsv", "--lattices", ".", "--posteriors", "one.txt"),
        ("grad", "pairs.tsv", "-o", "-"),
    ):
        code, said = _run(given, capsys)
        assert (code, len(said.splitlines())) == (2, 1), said
    assert (tmp_path / "x.fst").read_text() == "a\tb\n"


def test_what_a_shell_reads_is_not_written(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n")
    with pairs.open() as stdin:
        done = subprocess.run(
            [sys.executable, "-c", "from fstgrad.cli import run; run()", "grad", "-", "-o", pairs],
            stdin=stdin, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 2
    assert "both read and written" in done.stderr
    assert pairs.read_text() == "a\tb\n"


@pytest.mark.parametrize(
    "options, refused",
    [
        (("--objective", "crf", "--insert-cost", "3"), "--insert-cost"),
        (("--objective", "crf", "--no-log"), "--log"),
        (("--loss", "smith-waterman", "--matrix", "NUC44", "--match-cost", "3"), "--match-cost"),
        (("--loss", "smith-waterman", "--gap-open", "2", "--delete-cost", "3"), "--delete-cost"),
    ],
)
def test_costs_without_effect_are_refused(options, refused, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ac\tga\n")
    code, said = _run(["grad", pairs, *options], capsys)
    assert (code, len(said.splitlines())) == (2, 1), said
    assert f"{refused} has no effect" in said


def test_whole_numbers_out_of_range_name_the_range():
    with pytest.raises(click.BadParameter, match="0 is not between 1 and 2147483647"):
        parameter_types.COUNT.convert("0", None, None)


def test_errors_of_losses_name_their_options(tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ab\tba\n")
    for loss in ("ngram", "ngram-sum"):
        given = ["grad", pairs, "--loss", loss, "--smoothing", 1, "--ngram-order", 2**31 - 1]
        assert "--ngram-order is 2147483647" in _run(given, capsys)[1]


def test_constants_of_kernels_are_refused_by_costs(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("a\ta\n")
    (tmp_path / "x.txt").write_text("0 0 a a\n0\n")
    given = ["grad", tmp_path / "pairs.tsv", "--loss", tmp_path / "x.txt"]
    assert (
        "smoothing is 3 and log is True with tropical"
        in _run([*given, "--smoothing", 3], capsys)[1]
    )
    assert "has no --log" in _run([*given, "--log"], capsys)[1]


def test_processes_beyond_all_machines_are_refused(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    code, said = _run(["grad", tmp_path / "pairs.tsv", "--jobs", 2**31 - 1], capsys)
    assert (code, "not between 1 and 1024" in said) == (2, True)
    with pytest.raises(fg.InvalidInputError, match="1,024 processes"):
        fg.Batch(fg.PairObjective(fg.QGramCounts(fg.Alphabet("ab"))), jobs=2**31 - 1)


def test_every_value_of_an_option_given_again_is_checked(run, tmp_path):
    """The last one counts."""
    (tmp_path / "p.tsv").write_text("a\tb\n")
    line = ("loss", tmp_path / "p.tsv")
    for wrong, right in (
        (("--substitute-cost", "nan"), ("--substitute-cost", "1")),
        (("--tokens-x=letters",), ("--tokens-x", "chars")),
        (("--alphabet", tmp_path / "missing"), ("--alphabet", "dna")),
    ):
        code, out, err = run(*line, *wrong, *right)
        assert (code, out) == (2, "")
        assert f"Invalid value for '{wrong[0].partition('=')[0]}'" in err
    assert run(*line, "--substitute-cost", 3, "--substitute-cost", 0.5)[:2] == (0, "0.5\n")
    assert "'--cap': nan" in run("grad", *line[1:], "--cap", "nan", "--cap", 3)[2]
    same = ("-o", tmp_path / "out", "-o", tmp_path / "out")
    assert run("grad", tmp_path / "p.tsv", *same)[0] == 0
