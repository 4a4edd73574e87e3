"""The worked example learns."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from fstgrad.trees.treebank import Sentence

ROOT = pathlib.Path(__file__).parents[2]


def test_a_treebank_may_lack_a_tag():
    """The nine expectations name tags that a treebank need not have."""
    pytest.importorskip("conllu")
    spec = importlib.util.spec_from_file_location(
        "dependency_parser", ROOT / "examples" / "dependency_parser.py"
    )
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    heads = np.array([2, 0, 2])
    names = ["ADJ", "NOUN"]  # no verb, no determiner
    sentence = Sentence("1", ("a", "b", "c"), ("ADJ", "NOUN", "NOUN"), heads, ("x",) * 3)
    batch = example.Batch([sentence], {name: i for i, name in enumerate(names, start=1)})
    features, possible = example.expectation_features(batch, names)
    adjectives, nouns = 1, 8  # an adjective headed by a noun to its right; a noun by a noun
    assert possible.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 2]]
    assert features[0, 2, 1, adjectives] == features[0, 2, 3, nouns] == 1
    gradient = example.expectations(names, np.full(9, 0.5))
    assert np.isfinite(gradient(batch, np.zeros(example.TABLE))).all()


@pytest.mark.nightly
def test_the_parser_learns(shared_data):
    pytest.importorskip("conllu")
    treebank = shared_data / "ud" / "UD_English-PUD" / "en_pud-ud-test.conllu"
    program = ROOT / "examples" / "dependency_parser.py"
    done = subprocess.run(
        [sys.executable, program, treebank], capture_output=True, text=True, check=True
    )
    scores = [float(x) for x in re.findall(r"best trees ([\d.]+)%", done.stdout)]
    entropies = [float(x) for x in re.findall(r"entropy ([\d.]+)", done.stdout)]
    assert scores[0] + 20 < scores[1] < scores[2]
    assert scores[2] > 75
    assert entropies[0] > entropies[1] > entropies[2]
