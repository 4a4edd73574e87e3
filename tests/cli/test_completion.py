"""Completion: what the program answers, and what bash, zsh and fish make of it at a tab."""

import os
import select
import shlex
import shutil
import subprocess
import sys
import time

import click
import pytest

from fstgrad.cli.main import fstgrad

pty = pytest.importorskip("pty", reason="shells at a terminal are tested on Unix")

# name -> (how to start it, what it reads before the command)
SHELLS = {
    "bash": (("bash", "--norc", "--noprofile", "-i"), 'eval "$(fstgrad completion bash)"'),
    "zsh": (("zsh", "-f", "-i"), 'eval "$(fstgrad completion zsh)"'),
}
CASES = [
    ("fstgrad gra", ["grad", "grammar"]),
    ("fstgrad grad --obj", ["--objective"]),
    ("fstgrad grad --objective r", ["risk", "raml"]),
    ("fstgrad loss pairs.tsv --loss smi", ["smi", "smith-waterman", "smiles"]),
    ("fstgrad grammar show key", ["key", "keyboard"]),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with `fstgrad` on the path and an empty home."""
    folder = tmp_path_factory.mktemp("home")
    program = folder / "fstgrad"
    main = "from fstgrad.cli.main import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{main}" "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return os.environ | {"PATH": path, "HOME": str(folder), "TERM": "dumb", "PS1": "> "}


@pytest.mark.parametrize(
    "shell, words, expected",
    [*(("bash", *case) for case in CASES), ("zsh", *CASES[3]), ("fish", *CASES[3])],
)
def test_the_program_answers(run, monkeypatch, shell, words, expected):
    monkeypatch.setenv("_FSTGRAD_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    place = words.split(" ")[-1] if shell == "fish" else str(words.count(" "))
    monkeypatch.setenv("COMP_CWORD", place)
    code, out, _ = run()
    assert code == 0
    lines = out.splitlines()[1::3]  # of zsh: type, name, description, a line each
    if shell != "zsh":
        lines = [line.partition(",")[2].partition("\t")[0] for line in out.splitlines()]
    assert lines == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion(run, shell):
    code, out, _ = run("completion", shell)
    assert code == 0
    assert f"_FSTGRAD_COMPLETE={shell}_complete" in out


def typed(environment, folder, shell, keys, wanted, seconds=60):
    """Return what a shell shows at a terminal until `wanted` is there, or the time is up."""
    argv, first = SHELLS[shell]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, f"{first}\n{keys}\t".encode())
    shown, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and wanted.encode() not in shown:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the shell has ended
                break
    process.kill()
    process.wait()
    os.close(ours)
    return shown.decode(errors="replace")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "keys, line",
    [
        ("fstgrad loss pairs.tsv --loss smit", "fstgrad loss pairs.tsv --loss smith-waterman"),
        ("fstgrad loss pai", "fstgrad loss pairs.tsv"),
    ],
)
def test_a_tab_completes(environment, tmp_path, shell, keys, line):
    """A name of `--loss`, and a file: the shell starts without any settings of its own."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "pairs.tsv").touch()
    assert line in typed(environment, tmp_path, shell, keys, line)


@pytest.mark.parametrize(
    "words, expected",
    [
        ("fstgrad loss pairs.tsv --loss smi", ["smiles", "smith-waterman"]),
        ("fstgrad gra", ["grad", "grammar"]),
    ],
)
def test_fish_completes(environment, tmp_path, words, expected):
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    script = f"fstgrad completion fish | source; complete -C {shlex.quote(words)}"
    done = subprocess.run(
        ["fish", "-c", script],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = sorted(line.partition("\t")[0] for line in done.stdout.splitlines())
    assert [name for name in found if name] == expected


def test_commands_and_options_are_completed():
    found = fstgrad.shell_complete(click.Context(fstgrad), "")
    assert [item.value for item in found] == [*fstgrad.table]
    assert all(item.help for item in found)
    assert "--version" in [i.value for i in fstgrad.shell_complete(click.Context(fstgrad), "--")]
