"""`fstgrad doctor`: what it lists, what it compiles."""

import configparser
import pathlib
import re

import pytest

import fstgrad as fg
from fstgrad.cli.doctor import OPTIONAL, PACKAGES
from fstgrad.cli.warm import STEPS

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
    monkeypatch.setattr("fstgrad.cli.doctor._version", lambda name: "" if name == "conllu" else "1")
    monkeypatch.setattr("shutil.which", lambda name: None)
    code, out, _ = run("doctor")
    assert code == 0
    assert "conllu        not installed; for treebanks: pip install 'fstgrad[trees]'" in out
    assert "dot           not found; for pictures of automata" in out


@pytest.mark.nightly
@pytest.mark.parametrize("name", STEPS)
def test_every_family_is_warmed(name):
    STEPS[name]()


def test_a_step_that_fails_is_said(run, monkeypatch):
    monkeypatch.setattr("fstgrad.cli.warm.STEPS", {"one": lambda: None, "two": lambda: 1 / 0})
    code, out, _ = run("doctor", "--warm")
    assert code == 1
    assert "warm   one: 0.0 s" in out
    assert "FAILED two: division by zero" in out


def test_doctor_finds_all_well(run):
    code, out, _ = run("doctor")
    assert code == 0
    assert out.startswith(f"fstgrad {fg.__version__}, Python 3.")
    assert out.count("\nok ") == 7


def test_doctor_tells_of_a_failure(run, monkeypatch):
    monkeypatch.setattr("fstgrad.cli.doctor.is_empty", lambda fst: False)
    code, out, _ = run("doctor")
    assert code == 1
    assert "FAILED empty compositions are seen" in out


def test_every_result_of_trees_is_warmed(monkeypatch):
    called = []
    for family in (fg.SpanningTrees, fg.ProjectiveTrees):
        for name in ("marginals", "entropy", "sample", "kbest", "mode"):
            monkeypatch.setattr(
                family, name, lambda *a, _key=(family, name), **k: called.append(_key)
            )
    STEPS["trees"]()
    assert len(set(called)) == 10
