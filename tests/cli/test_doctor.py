"""`fstgrad doctor`: what it lists, what it compiles."""

import configparser
import pathlib
import re

import fstgrad as fg
from fstgrad.cli.commands.doctor import OPTIONAL, PACKAGES
from fstgrad.core import precompile

ROOT = pathlib.Path(__file__).parents[2]


def packages(text):
    return {re.split(r"[>=<;\s]", line)[0] for line in text.split("\n") if line.strip()}


def test_every_dependency_is_listed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    optional = {
        name: packages(extras[name]) for name in extras if name not in ("test", "dev", "docs")
    }
    assert OPTIONAL.keys() == set().union(*optional.values())
    for package, (extra, _) in OPTIONAL.items():
        assert package in optional[extra]
    assert packages(config["options"]["install_requires"]) - {"pynini"} == set(PACKAGES)


def test_what_is_missing_is_said(run, monkeypatch):
    monkeypatch.setattr(
        "fstgrad.cli.commands.doctor._version", lambda name: "" if name == "conllu" else "1"
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    code, out, _ = run("doctor")
    assert code == 0
    assert "conllu        not installed; for treebanks: pip install 'fstgrad[trees]'" in out
    assert "dot           not found; for pictures of automata" in out


def test_kernels_are_compiled_for_this_processor(run, monkeypatch):
    calls = []
    monkeypatch.setattr(precompile, "warm", lambda: calls.append(1))
    code, out, _ = run("doctor", "--warm")
    assert (code, calls) == (0, [1])
    assert f"warm   {len(precompile.read_manifest())} kernels for this processor" in out


def test_kernels_that_are_not_compiled_are_said_in_one_line(run, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho OSError: no space >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    code, out, _ = run("doctor", "--warm")
    assert code == 1
    assert out.splitlines()[-1] == "FAILED kernels were not compiled: OSError: no space"


def test_doctor_finds_all_well(run):
    code, out, _ = run("doctor")
    assert code == 0
    assert out.startswith(f"fstgrad {fg.__version__}, Python 3.")
    assert out.count("\nok ") == 7


def test_doctor_tells_of_a_failure(run, monkeypatch):
    monkeypatch.setattr("fstgrad.cli.commands.doctor.is_empty", lambda fst: False)
    code, out, _ = run("doctor")
    assert code == 1
    assert "FAILED empty compositions are seen" in out
