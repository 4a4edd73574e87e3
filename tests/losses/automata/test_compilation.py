"""The first run on an empty cache: kernels are compiled, and the user is told."""

import os
import pathlib
import re
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
    assert "fstgrad: compiling kernels of losses for this processor" in runs[0].stderr
    counts = re.search(
        r"fstgrad: compiled (\d+) kernels of (.*) in ([\d.]+) s; they", runs[0].stderr
    )
    assert int(counts[1]) >= 10
    assert float(counts[3]) > 1.0  # the time is said, not promised
    assert "compil" not in runs[1].stderr
    # the kernels of determinization, each for one kind of arguments: what more costs seconds
    compiled = [path.name for path in (tmp_path / "numba").rglob("*.nbk")]
    determinization = [
        name.split("-")[0] for name in compiled if name.startswith(("tropical", "tables", "levels"))
    ]
    assert len(determinization) == 5
    assert len(determinization) == len(set(determinization))
    assert runs[0].stdout.split("seconds")[0] == runs[1].stdout.split("seconds")[0]


def test_compilations_are_announced_by_family_and_counted_with_their_time(caplog, monkeypatch):
    """A kernel that another one calls is compiled within its time."""
    from fstgrad.core import kernel_cache

    seconds = iter([1.0, 4.0, 10.0, 10.5])
    monkeypatch.setattr(kernel_cache.time, "perf_counter", lambda: next(seconds))
    compilations = kernel_cache.Compilations()
    assert compilations.report() is None
    compilations.begin("fstgrad.grm.kernels.one")
    compilations.begin("fstgrad.core.vectors")
    compilations.end()
    compilations.end()
    compilations.begin("fstgrad.grm.kernels.two")
    compilations.end()
    said = [record.getMessage().split(" for this")[0] for record in caplog.records]
    assert said == ["compiling kernels of root models", "compiling kernels of vectors"]
    assert "compiled 3 kernels of root models, vectors in 3.5 s" in compilations.report()
    assert compilations.report() is None
