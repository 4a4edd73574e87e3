"""Kernels in Triton: interpreted beside their definitions, and compiled for GPUs without one.

Each runs in a process of its own, since an interpreted kernel cannot be compiled.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip(
    "triton", reason="Triton, which CUDA builds of PyTorch bring, is missing (1 GB)"
)

LEAST = "chains[3] or paths or trees and True or sweeps and 0.5-True or objective"
STACK, SHARED = 512, 48 * 1024  # bytes: of a thread for spilled registers; of a block


def run(*arguments, **variables):
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True,
        env=os.environ | variables, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels_give_what_their_definitions_give():
    """One size of each; the tests at night run the others."""
    report = run(
        "pytest", "-q", "-p", "no:cacheprovider", "tests/torch/fused_kernels.py", "-k", LEAST,
        TRITON_INTERPRET="1",
    )  # fmt: skip
    assert "5 passed" in report


@pytest.mark.nightly
@pytest.mark.parametrize("tests", ["fused_kernels.py", "test_device.py"])
def test_all_of_a_file_with_interpreted_kernels(tests):
    chosen = ("-k", "chains or path or tree or sentence or field", "-W", "ignore::RuntimeWarning")
    whole = () if tests == "fused_kernels.py" else chosen
    run("pytest", "-q", "-p", "no:cacheprovider", f"tests/torch/{tests}", *whole,
        TRITON_INTERPRET="1")  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["--quick"], pytest.param([], marks=pytest.mark.nightly, id="all sizes")]
)
def test_kernels_compile_for_both_targets(arguments):
    rows = list(map(json.loads, run("tests.torch.fused_compiled", *arguments).splitlines()))
    assert {row["target"] for row in rows} == {"sm_80", "sm_90"}
    assert len({row["kernel"] for row in rows}) == 7
    for row in rows:
        assert row["stack"] <= STACK, row
        assert row["shared"] <= SHARED, row
