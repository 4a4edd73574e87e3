"""The first run on an empty cache: kernels are compiled, and the user is told."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.slow
def test_the_first_gradient_says_that_kernels_are_compiled(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("cat\tgat\n", encoding="utf-8")
    command = [sys.executable, "-c", "from fstgrad.cli.main import main; main()"]
    arguments = ["grad", str(pairs), "--loss", "edit", "--random-weights", "0"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    runs = [
        subprocess.run(
            command + arguments,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert "compiling kernels" in runs[0].stderr
    assert "compiling kernels" not in runs[1].stderr
    # the kernels of determinization, each for one kind of arguments: what more costs seconds
    compiled = [path.name for path in (tmp_path / "numba").rglob("*.nbk")]
    determinization = [
        name.split("-")[0] for name in compiled if name.startswith(("tropical", "tables", "levels"))
    ]
    assert len(determinization) == 5
    assert len(determinization) == len(set(determinization))
    assert runs[0].stdout.split("seconds")[0] == runs[1].stdout.split("seconds")[0]


def test_one_announcement_for_all_kernels():
    from fstgrad.core.compiler import kernel
    from fstgrad.core.kernel_cache import announce_compilation

    said = []
    announce_compilation(lambda: said.append("compiling"))

    def one(x: float) -> float:
        return x + 1.0

    def two(x: float) -> float:
        return x + 2.0

    assert kernel(one)(1.0) == 2.0
    assert kernel(two)(1.0) == 3.0
    assert said in (["compiling"], [])
