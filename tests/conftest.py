"""Fixtures for all tests."""

import gc
import io
import os
import pathlib
import sys

import pytest

# threads of two workers would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# JAX keeps what it compiles, by content, as compiled kernels are kept
_CACHES = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHES / "fstgrad-tests" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# a fifth of the time of the tests went into looking for garbage among the imported modules
gc.disable()
SHARED = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parent.parent.parent / "shared" / "data")
)


def pytest_collection_finish():
    """Leave what was imported and collected out of the search for garbage, and search seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def shared_data():
    """Return the folder of reference data (FSTGRAD_DATA or beside the project); skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data in {SHARED}")
    return SHARED


@pytest.fixture(autouse=True, scope="session")
def _quiet_compilation():
    """Suppress the notice of the test that compiles the first kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fstgrad.core.kernel_cache.COMPILATIONS.begin", lambda module: None)
        yield


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs a command: (exit code, standard output, standard error)."""
    from fstgrad.cli.main import main

    def call(*args, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in args])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
