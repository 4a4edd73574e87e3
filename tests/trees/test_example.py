"""The worked example learns."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
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
