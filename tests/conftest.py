"""Fixtures for all tests."""

import io
import os
import pathlib
import sys

import pytest

SHARED = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parent.parent.parent / "shared" / "data")
)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of reference data that lies beside the project; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data in {SHARED}")
    return SHARED


@pytest.fixture(autouse=True)
def _quiet_compilation(monkeypatch):
    """No notice on standard error when a test is the first to compile a kernel."""
    monkeypatch.setattr("fstgrad.cli.problem.announce_compilation", lambda: None)
    monkeypatch.setattr("fstgrad.cli.report.announce_compilation", lambda: None)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command: (exit code, standard output, standard error)."""
    from fstgrad.cli.main import main

    def call(*args, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in args])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
