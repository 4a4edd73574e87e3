"""The debug mode in which new arrays are filled, in Python and in kernels."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from fstgrad.core import kernel_cache, uninitialized

ROOT = pathlib.Path(__file__).parents[2]
KERNEL = """
import numpy as np
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty, empty_like

@kernel
def made(x, n):
    return empty(n), empty((n, 2), np.int32), empty(n, np.bool_), empty_like(x), empty(n, x.dtype)

from_python = (made.py_func if hasattr(made, "py_func") else made)(np.zeros(1), 3)
for one, other in zip(made(np.zeros(1), 3), from_python, strict=True):
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes(), (one, other)
    print(one.ravel()[0])
"""


def test_the_normal_mode_is_numpy():
    if uninitialized.IS_FILLED:
        pytest.skip("this run has the debug mode")
    assert uninitialized.empty is np.empty
    assert uninitialized.empty_like is np.empty_like


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (np.float64, np.nan),
        (np.float32, np.nan),
        (np.int64, -0x5555555555555556),
        (np.int8, -0x56),
        (np.uint8, 0xAA),
        (np.bool_, True),
    ],
)
def test_what_the_debug_mode_writes(dtype, expected):
    made = uninitialized.filled((2, 3), dtype), uninitialized.filled_like(np.zeros((2, 3), dtype))
    for array in made:
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, np.full((2, 3), expected, dtype=dtype))


def test_the_cache_keeps_the_modes_apart(monkeypatch):
    from fstgrad.strings import kernels

    own, codegen = kernels.one_state.one_state_pass._cache, type("", (), {"magic_tuple": tuple})
    paths = []
    for mode in (False, True):
        monkeypatch.setattr(kernel_cache, "IS_FILLED", mode)
        paths.append(own.path("sig", codegen))
    assert paths[0] != paths[1]


@pytest.mark.slow
def test_the_debug_mode_fills_arrays_of_kernels(tmp_path):
    script = tmp_path / "filling.py"
    script.write_text(KERNEL, encoding="utf-8")
    environment = {"FSTGRAD_DEBUG_EMPTY": "1", "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    for _ in range(2):  # compiled, then from the cache
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["nan", "-1431655766", "True", "nan", "nan"]
