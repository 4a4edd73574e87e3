"""The cache of compiled kernels: an edited kernel runs, a damaged file is compiled anew."""

import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from fstgrad.core import kernel_cache

ROOT = pathlib.Path(__file__).parents[2]
INNER = """
from fstgrad.core.compiler import inner_kernel

@inner_kernel
def step(x: float) -> float:
    return x + 1.0
"""
OUTER = """
from fstgrad.core.compiler import kernel
from fstgrad.inner import step

@kernel
def twice(x: float) -> float:
    return step(step(x))

@kernel
def once(x: float) -> float:
    return step(x)

@kernel
def never(x: float) -> float:
    return x
"""
USE = "from fstgrad.outer import twice; print(twice(1.0), sum(twice.stats.cache_hits.values()))"


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, with a kernel in one file that calls an inner one in another."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fstgrad", tmp_path / "fstgrad", ignore=ignored)
    (tmp_path / "fstgrad/inner.py").write_text(INNER)
    (tmp_path / "fstgrad/outer.py").write_text(OUTER)
    return tmp_path


def run(folder, code, **environment):
    own = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        cwd=folder,
        env={**own, "XDG_CACHE_HOME": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_an_edited_inner_kernel_runs(copy):
    assert run(copy, USE)[0] == "3.0 0"
    (copy / "fstgrad/inner.py").write_text(INNER.replace("1.0", "2.0"))
    assert run(copy, USE)[0] == "5.0 0"
    (copy / "fstgrad/inner.py").write_text(INNER)
    assert run(copy, USE)[0] == "3.0 1", "the old machine code is still there"


def test_two_checkouts_share_their_kernels(copy, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "checkout"
    shutil.copytree(copy, other)
    shared = {"XDG_CACHE_HOME": str(copy / "shared")}
    assert run(copy, USE, **shared)[0] == "3.0 0"
    assert run(other, USE, **shared)[0] == "3.0 1"


def test_the_least_recently_used_files_are_removed_first(tmp_path):
    """Of four files of 100 bytes, 250 bytes keep two; what was interrupted yesterday goes."""
    folder = tmp_path / "fstgrad.trees"
    folder.mkdir()
    now = time.time()
    for days in range(4):
        path = folder / f"{days}.nbk"
        path.write_bytes(bytes(100))
        os.utime(path, (now, now - days * 86_400))
    partial = folder / "0.nbk.17.partial"
    partial.write_bytes(b"")
    os.utime(partial, (now, now - 2 * 86_400))
    assert kernel_cache.trim(tmp_path, 250) == 3
    assert sorted(path.name for path in folder.iterdir()) == ["0.nbk", "1.nbk"]
    assert kernel_cache.usage(tmp_path) == (2, 200)


@pytest.mark.slow
def test_a_file_that_is_used_is_not_the_next_to_be_removed(copy):
    run(copy, USE)
    (path,) = (copy / "cache").rglob("outer*.nbk")
    before = time.time()
    os.utime(path, (before, before - 7_200))
    assert run(copy, USE)[0] == "3.0 1"
    assert path.stat().st_mtime >= before - 1


@pytest.mark.slow
def test_a_damaged_file_is_compiled_anew(copy):
    """Of three kernels: a file with a bit flipped, one that is cut off, and an empty one."""
    use = (
        "from fstgrad.outer import never, once, twice; kernels = never, once, twice;"
        "print([(k(1.0), sum(k.stats.cache_hits.values())) for k in kernels])"
    )
    compiled, loaded = (f"[(1.0, {hits}), (2.0, {hits}), (3.0, {hits})]" for hits in (0, 1))
    assert run(copy, use)[0] == compiled
    flipped, cut, emptied = (copy / "cache").rglob("outer*.nbk")
    whole = flipped.read_bytes()
    middle = len(whole) // 2
    flipped.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    cut.write_bytes(cut.read_bytes()[:100])
    emptied.write_bytes(b"")
    assert run(copy, use)[0] == compiled
    assert run(copy, use)[0] == loaded


@pytest.mark.slow
def test_where_no_folder_is_writable_kernels_run_with_one_line(copy):
    """Paths below a file cannot be made into folders, not even by the superuser."""
    blocked = copy / "a file"
    blocked.write_text("")
    (copy / "tmp").mkdir()
    where = {"NUMBA_CACHE_DIR": str(blocked / "x"), "TMPDIR": str(copy / "tmp")}
    for hits in "01":
        found, said = run(copy, USE, **where)
        assert found == f"3.0 {hits}"
        assert said.count("RuntimeWarning") == 1
        assert "is not writable for you alone; compiled kernels are kept in" in said
    (shared,) = (copy / "tmp").iterdir()
    shared.chmod(0o777)  # what others may write there is not run
    found, said = run(copy, USE, **where)
    assert found == "3.0 0"
    assert said.count("RuntimeWarning") == 1
    assert "compiled in every process" in said


def test_sources_of_a_kernel():
    """The file, what it imports of fstgrad, and what that imports; types alone do not count."""
    folder = ROOT / "fstgrad/losses/automata"
    expected = {
        "kernels/reduction",
        "kernels/tropical",
        "kernels/tables",
        "kernels/arguments",
        "semiring",
    }
    found = kernel_cache.kernel_sources(folder / "kernels/reduction.py")
    shared = ROOT / "fstgrad/core/uninitialized.py"
    assert found == {shared, *(folder / f"{name}.py" for name in expected)}


def test_imports_of_every_form_are_followed(tmp_path, monkeypatch):
    """Over several lines, with another name, of a module, of a package; not within a function."""
    monkeypatch.setattr(kernel_cache, "_ROOT", tmp_path)
    for folder in ("inner", "core"):
        (tmp_path / folder).mkdir()
    names = ["inner/__init__", "inner/one", "inner/two", "inner/three", "inner/four", "last"]
    for name in [*names, "late", "core/checks"]:
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "outer.py").write_text(
        "from fstgrad.inner import (\n    one,  # a comment with )\n    two as other,\n)\n"
        "from fstgrad.inner.three import \\\n    step\n"
        "import numpy, fstgrad.inner.four\n"
        "from fstgrad import last\nfrom fstgrad.core import checks\n"
        "def later():\n    from fstgrad import late\n"
    )
    found = kernel_cache.kernel_sources(tmp_path / "outer.py")
    assert found == {tmp_path / f"{name}.py" for name in [*names, "outer"]}


@pytest.mark.slow
def test_an_edited_kernel_of_the_trees_runs(copy):
    path = copy / "fstgrad/trees/kernels/inverse.py"
    code = (
        "import numpy as np, fstgrad as fg;"
        "print(fg.SpanningTrees(np.zeros((3, 3)), single_root=False).log_partition())"
    )
    before = float(run(copy, code)[0])
    assert before == pytest.approx(math.log(3.0))  # arborescences of two nodes and a root
    text = path.read_text()
    assert text.count("return log_determinant") == 1
    path.write_text(text.replace("return log_determinant", "return 1.0 + log_determinant"))
    assert float(run(copy, code)[0]) == pytest.approx(before + 1.0)


def test_a_part_is_a_plain_function_in_python():
    """Kernels compile it into themselves."""
    from fstgrad.core.compiler import kernel, part_kernel

    def step(x: float) -> float:
        return x + 1.0

    part = part_kernel(step)

    def twice(x: float) -> float:
        return part(part(x))

    assert part is step
    assert kernel(twice)(1.0) == twice(1.0) == 3.0


def test_a_part_has_no_machine_code():
    """It is in that of the kernels that call it."""
    from fstgrad.core.compiler import kernel, part_kernel

    @part_kernel
    def increment(x: float) -> float:
        return x + 1.0

    def one_more(x: float) -> float:
        return increment(x)

    compiled = kernel(one_more)
    assert compiled(1.0) == 2.0
    symbols = compiled.targetctx.codegen()._engine._defined_symbols
    functions = [name for name in symbols if "NumbaEnv" not in name]
    assert [name for name in functions if "one_more" in name]
    assert not [name for name in functions if "increment" in name]


def test_a_folder_of_the_user_holds_the_kernels(tmp_path, monkeypatch):
    """NUMBA_CACHE_DIR comes first; each package has a folder of its own in it."""
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "cache_folder", kernel_cache.cache_folder.__wrapped__)
    files = [ROOT / "fstgrad/trees/kernels/inverse.py", ROOT / "fstgrad/core/vectors.py"]
    names = [kernel_cache._package(file) for file in files]
    folders = [kernel_cache._package_folder.__wrapped__(name) for name in names]
    assert folders == [tmp_path / "fstgrad.trees.kernels", tmp_path / "fstgrad.core"]


@pytest.mark.parametrize("mode, expected", [(0o700, True), (0o755, True), (0o775, False)])
def test_a_folder_that_others_may_write_to_holds_no_kernels(tmp_path, mode, expected):
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(mode)
    assert kernel_cache._is_private(folder) is expected
    assert kernel_cache._is_private(tmp_path / "new")


def test_a_part_of_nothing_is_nothing(monkeypatch):
    """So a call with None is not compiled where there is something."""
    from numba.core import event

    from fstgrad.core.compiler import kernel, optional_part, part_kernel

    monkeypatch.setattr(kernel_cache, "_package_folder", lambda package: None)  # compile it anew

    @optional_part
    def first_of(values: tuple[float, float]) -> float:
        return values[0]

    @part_kernel
    def is_none(x: float | None) -> bool:
        return x is None

    def described(values: tuple[float, float] | None) -> bool:
        return is_none(first_of(values))

    compiled = kernel(described)
    for values in ((1.0, 2.0), None):
        with event.install_recorder("numba:compile") as recorder:
            assert compiled(values) == described(values) == (values is None)
        starts = [what for _, what in recorder.buffer if what.is_start]
        names = [what.data["dispatcher"].py_func.__name__ for what in starts]
        assert names.count("is_none") == 1
    assert first_of((1.0, 2.0)) == 1.0
