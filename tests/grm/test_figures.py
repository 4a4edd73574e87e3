"""The program of the pictures: laws of mass one, bounds that close, files."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")
PROGRAM = pathlib.Path(__file__).parents[2] / "benchmarks" / "figures_grm.py"


@pytest.mark.nightly
def test_laws_and_bounds_are_drawn(tmp_path):
    out = tmp_path / "bounds.json"
    done = subprocess.run(
        [sys.executable, PROGRAM, "--quick", "--json", out, "--plot", tmp_path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.findall(r"(\S) +([\d.]+) +([\d.]+) +(-?[\d.e-]+)\n", done.stdout.split("\n\n")[1])
    mass, mean, correlation = zip(*(map(float, row[1:]) for row in found), strict=True)
    assert len(found) == 5
    assert all(0.98 < m <= 1.0 for m in mass)
    assert mean[0] == pytest.approx(4, abs=1e-3)
    assert mean[1] < mean[0] < mean[2]
    assert abs(correlation[0]) < 1e-9
    assert correlation[1] < -0.1
    assert correlation[2] > 0.1
    assert abs(correlation[3]) < 1e-9  # a triple does nothing where one of it is 0
    assert correlation[4] > 0.05
    rows = json.loads(out.read_text())["rows"]
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        for side in ("above", "below"):
            assert 0 <= many[side] < few[side]
    for name in ("figure1.svg", "figure2.svg"):
        assert (tmp_path / name).read_text().lstrip().startswith("<?xml")
