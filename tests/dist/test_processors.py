"""The installed wheel on processors of other levels: `make processors`."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig

import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64"),
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="apt install qemu-user"),
]
FIRST = """
import sys
sys.path.insert(0, sys.argv[1])
from numba.core import event
compiled = []
class Compilations(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Compilations())
import numpy as np
import fstgrad as fg
from fstgrad.core.kernel_cache import host_levels
b = fg.EditDistance(fg.Alphabet("acgt")).compile("gattaca")
value, _ = fg.softmax_margin(np.random.default_rng(0).normal(size=(7, 5, 4)), "gattaca", b)
print(host_levels()[0], compiled, value.hex())
"""


def first_gradient(tmp_path, *emulator, **own):
    """Return the best level, the compiled kernels and the value of a first gradient."""
    python = pathlib.Path(sys.executable).resolve()
    done = subprocess.run(
        [*emulator, python, "-c", FIRST, sysconfig.get_path("purelib")],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), **own},
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize("model, level", [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_a_processor_runs_the_shipped_kernels_of_its_level(tmp_path, model, level):
    """The emulator stops at an instruction that the processor lacks."""
    found = first_gradient(tmp_path, "qemu-x86_64", "-cpu", model)
    assert found[:2] == [level, "[]"]
    here = first_gradient(tmp_path)
    assert float.fromhex(found[2]) == pytest.approx(float.fromhex(here[2]), rel=1e-13)


def test_the_emulator_stops_at_instructions_of_a_better_level(tmp_path):
    """So the test above can fail: numba is told of a level that the processor is not."""
    wrong = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    with pytest.raises(subprocess.CalledProcessError) as stopped:
        first_gradient(tmp_path, "qemu-x86_64", "-cpu", "Nehalem", **wrong)
    assert "Illegal instruction" in stopped.value.stderr
    assert first_gradient(tmp_path, **wrong)[:2] == ["x86-64-v3", "[]"]
