"""The examples on real data: a loss made for its domain puts the right string first."""

import importlib

import pytest

from tests.helpers.sources import ROOT


@pytest.fixture
def table(monkeypatch, capsys):
    """Run an example; the numbers of its table by the name of the loss."""
    monkeypatch.syspath_prepend(ROOT / "examples")

    def run(name, *args):
        importlib.import_module(name).main(*args)
        found = {}
        for line in capsys.readouterr().out.splitlines()[2:]:
            *loss, own, other, first = line.split()
            found[" ".join(loss)] = float(own), float(other), float(first.rstrip("%"))
        return found

    return run


def test_spelling(shared_data, table):
    losses = table("spelling", shared_data / "spelling" / "pairs.tsv", 12)
    assert set(losses) == {"edit", "damerau", "keyboard", "ocr"}
    for name in ("damerau", "keyboard", "ocr"):
        own, _, first = losses[name]
        assert 0 < own <= losses["edit"][0]  # no edit costs more than in the edit distance
        assert first > 50


@pytest.mark.nightly
@pytest.mark.parametrize("kind, matrix", [("protein", "BLOSUM62"), ("dna", "NUC.4.4")])
def test_homologs(shared_data, table, kind, matrix):
    losses = table("homologs", kind, shared_data / f"{kind}_homologs", 12)
    own, other, first = losses[f"{matrix} 10/0.5"]
    assert own < other < 0  # minus a score
    assert first == 100
    own, other, first = losses[f"grammar {kind}"]
    assert 0 < own < other
    assert first >= losses["edit distance"][2]


@pytest.mark.parametrize("kind", ["protein", "dna"])
def test_homologs_quickly(shared_data, table, kind):
    losses = table("homologs", kind, shared_data / f"{kind}_homologs", 1)
    assert all(own < other for own, other, _ in losses.values())
