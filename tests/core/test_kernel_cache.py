"""What a wheel brings compiled is what a user's first steps need."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from fstgrad.core import kernel_cache, precompile
from fstgrad.core.kernel_signatures import decode, encode

ROOT = pathlib.Path(__file__).parents[2]
V3 = "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2"
V3 += ",+ssse3,+xsave,-avx512f"
V4 = V3.replace("-avx512f", "+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl")
LINUX = "x86_64-unknown-linux-gnu"
CASES = [
    (LINUX, "znver3", V3, ["x86-64-v3", "x86-64-v2"]),
    (LINUX, "znver4", V4, ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
    (LINUX, "knl", V4.replace("+avx512vl", "-avx512vl"), ["x86-64-v3", "x86-64-v2"]),
    (LINUX, "nehalem", V3.replace("+avx2", "-avx2"), ["x86-64-v2"]),
    (LINUX, "core2", V3.replace("+popcnt", "-popcnt"), []),
    (LINUX, "generic", "", []),
    (LINUX, "x86-64-v2", "", ["x86-64-v2"]),
    (LINUX, "x86-64-v3", "", ["x86-64-v3", "x86-64-v2"]),
    ("arm64-apple-darwin23", "apple-m1", "+neon", ["generic"]),
    ("riscv64-unknown-linux-gnu", "generic", "", []),
]


@pytest.mark.parametrize("platform, name, features, levels", CASES)
def test_a_processor_runs_its_level_and_those_below(platform, name, features, levels):
    assert kernel_cache.levels_of(platform, name, features) == levels


def test_kernels_of_one_macos_serve_the_next():
    """LLVM's name of the platform has the release of the machine that builds the wheel."""
    names = {
        kernel_cache.platform_of(f"arm64-apple-darwin{release}") for release in ("23.6.0", "25")
    }
    assert names == {"arm64-apple-darwin"}
    assert kernel_cache.platform_of(LINUX) == LINUX


def test_each_line_of_the_list_is_a_kernel_and_its_types():
    kernels = precompile.read_manifest()
    assert len(kernels) > 50
    for module, _, arguments in kernels:
        assert module.startswith("fstgrad.")
        assert [encode(decode(text)) for text in arguments] == arguments


def test_the_best_level_has_kernels_of_the_list_only():
    kernels = precompile.kernels_for("x86-64-v3")
    assert kernels == precompile.read_manifest()
    some = precompile.kernels_for("x86-64-v4")
    assert {(k.module, k.name) for k in some} == precompile.FASTER_WITH_AVX512
    assert set(map(str, some)) < set(map(str, kernels))


def test_a_file_of_a_better_level_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "SHIPPED", tmp_path)
    monkeypatch.setattr(kernel_cache, "host_levels", lambda: ["x86-64-v4", "x86-64-v3"])
    for level, names in (("x86-64-v4", "a"), ("x86-64-v3", "abc"), ("x86-64-v2", "abc")):
        (tmp_path / level).mkdir()
        for name in names:
            (tmp_path / level / f"{name}.nbk").touch()
    levels = [path.name for path in tmp_path.iterdir()]
    versions = {**kernel_cache.shipped_versions(), "levels": levels}
    (tmp_path / "versions.json").write_text(json.dumps(versions))
    assert kernel_cache.describe_shipped() == "1 for x86-64-v4, 2 for x86-64-v3"


def test_a_level_is_compiled_whatever_files_of_other_levels_are_there(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(precompile, "_started", lambda *own: started.append(own) or [])
    monkeypatch.setattr(precompile, "host_levels", lambda: ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
    (tmp_path / "core/compiled").mkdir(parents=True)
    precompile.build(tmp_path, ["host"])
    assert [folder.name for _, _, folder in started] == ["x86-64-v4", "x86-64-v3"]
    for _, own, folder in started:
        assert (own["NUMBA_CPU_NAME"], own[kernel_cache.SWITCH]) == (folder.name, "0")


@pytest.mark.slow
def test_the_list_has_all_kernels_of_the_first_steps(tmp_path):
    """Otherwise run `make kernels`; kernels that are compiled look for those within them, too."""
    listed = {json.dumps(list(kernel)) for kernel in precompile.read_manifest()}
    for run in ("compiles", "loads"):
        folder = tmp_path / run
        folder.mkdir()
        environment = {**os.environ, "FSTGRAD_RECORD_KERNELS": str(folder)}
        program = [sys.executable, "-m", "tests.first_steps"]
        subprocess.run(program, cwd=ROOT, env=environment, check=True)
        needed = {line for path in folder.iterdir() for line in path.read_text().splitlines()}
        if needed <= listed:
            break
    assert len(needed) > 50
    assert needed - listed == set()


@pytest.mark.parametrize(
    "built, switch, expected",
    [
        ({}, "1", "none for generic"),
        (
            {"numba": "0.1", "NUMBA_OPT": "9"},
            "1",
            r"unused: built for numba 0\.1, here .*NUMBA_OPT 9",
        ),
        (
            {"levels": ["x86-64-v9"]},
            "1",
            "unused: built for x86-64-v9, which this processor is not",
        ),
        ({}, "0", "unused: FSTGRAD_SHIPPED_KERNELS is 0"),
    ],
)
def test_why_shipped_kernels_are_not_used(tmp_path, monkeypatch, built, switch, expected):
    monkeypatch.setattr(kernel_cache, "SHIPPED", tmp_path)
    monkeypatch.setattr(kernel_cache, "host_levels", lambda: ["generic"])
    monkeypatch.setenv(kernel_cache.SWITCH, switch)
    assert kernel_cache.describe_shipped().startswith("none (built without them")
    versions = {**kernel_cache.shipped_versions(), "levels": ["generic"], **built}
    (tmp_path / "versions.json").write_text(json.dumps(versions))
    assert re.match(expected, kernel_cache.describe_shipped())


def test_a_compiled_kernel_is_loaded_without_the_compiler():
    """Neither what numba compiles with nor scipy.linalg, half a second of each command."""
    code = "import sys, fstgrad as fg; fg.score(['a b'], ['a c']); print(*sys.modules)"
    program = [sys.executable, "-c", code]
    for _ in range(2):  # the first process may compile
        done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert not {"numba.np.arraymath", "scipy.linalg"} & set(done.stdout.split())


INTERRUPTING = """
import sys, numpy as np, fstgrad as fg
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "scipy.linalg.cython_blas":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
try:
    fg.SpanningTrees(np.zeros((3, 3)), single_root=True).entropy_and_gradient()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_while_a_matrix_product_is_looked_up():
    """In machine code it would end the process."""
    program = [sys.executable, "-c", INTERRUPTING]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted\n"
