"""The built wheel in an empty environment, as `make dist-test` sets it up."""

import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = {"fstgrad": "fstgrad", "cli": "fstgrad/cli", "grammars": "fstgrad/grammars"}
NEEDS_AN_EXTRA = {"GeneralizedRootModel"}  # scikit-learn, which the plain install leaves out


def modules():
    """Every module of the checkout by the path it has in the wheel."""
    for folder, installed in FOLDERS.items():
        for path in (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.rules")):
            yield f"{installed}/{path.relative_to(ROOT / folder).as_posix()}"


def fstgrad(*args):
    program = pathlib.Path(sys.executable).with_name("fstgrad")
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_what_is_tested():
    import fstgrad

    assert ROOT / "fstgrad" not in pathlib.Path(fstgrad.__file__).parents


def test_every_module_is_in_the_wheel():
    files = {str(path) for path in importlib.metadata.files("fstgrad")}
    assert set(modules()) <= files
    assert {"fstgrad/py.typed", "fstgrad/__init__.pyi", "fstgrad/losses/ncbi/BLOSUM62"} <= files


@pytest.mark.parametrize("package", ["fstgrad", "fstgrad.cli.main", "fstgrad.grammars"])
def test_packages_import(package):
    importlib.import_module(package)


def test_every_public_name_loads():
    import fstgrad

    assert "softmax_margin" in fstgrad.__all__
    for name in set(fstgrad.__all__) - NEEDS_AN_EXTRA:
        assert getattr(fstgrad, name) is not None


@pytest.mark.parametrize("name", sorted(NEEDS_AN_EXTRA))
def test_a_name_that_needs_an_extra_says_which(name):
    import fstgrad

    with pytest.raises(fstgrad.MissingDependencyError, match=r"pip install 'fstgrad\["):
        getattr(fstgrad, name)


def test_doctor_finds_all_well():
    assert "FAILED" not in fstgrad("doctor")


def test_a_small_gradient(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("x\tab\ny\tba\n")
    out = fstgrad("grad", str(pairs), "--loss", "hamming", "--output", str(tmp_path / "g.npz"))
    assert [json.loads(line)["y"] for line in out.splitlines()] == ["ab", "ba"]
    assert (tmp_path / "g.npz").exists()


STEPS = """
import runpy, sys
from numba.core import event
compiled = []
class Compilations(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func)
    def on_end(self, event):
        pass
event.register("numba:compile", Compilations())
from fstgrad.core.errors import MissingDependencyError
for step in runpy.run_path(sys.argv[1])["STEPS"].values():
    try:
        step()
    except MissingDependencyError:
        pass
print([f"{f.__module__}.{f.__qualname__}" for f in compiled])
"""


def test_first_steps_compile_nothing(tmp_path):
    """With an empty cache: all kernels come with the wheel."""
    steps = ROOT / "tests/first_steps.py"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", STEPS, str(steps)],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


DAMAGED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import fstgrad as fg
from fstgrad.core.kernel_cache import COMPILATIONS, SHIPPED
assert str(SHIPPED).startswith(sys.argv[1])
value = fg.StringDistribution(np.zeros((5, 3, 2))).log_partition()
print(value / np.log(2.0), COMPILATIONS.count)
"""


@pytest.mark.parametrize("damage, is_used", [(0, True), (1, False)])
def test_damaged_kernels_are_not_used(tmp_path, damage, is_used):
    """A bit is flipped in every file: the same 2^5 strings, by kernels that are compiled."""
    import fstgrad

    shutil.copytree(pathlib.Path(fstgrad.__file__).parent, tmp_path / "fstgrad")
    for path in (tmp_path / "fstgrad/core/compiled").rglob("*.nbk"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= damage
        path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-I", "-c", DAMAGED, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "own")},
    )  # fmt: skip
    value, count = done.stdout.split()
    assert float(value) == pytest.approx(5.0, rel=1e-12)
    assert (count == "0") == is_used


def test_doctor_says_which_kernels_are_used():
    assert re.search(r"shipped +\d+ for ", fstgrad("doctor"))
