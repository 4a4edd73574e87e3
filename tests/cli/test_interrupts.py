"""SIGINT where the exception of its handler would be lost: compilers, finalizers, processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from fstgrad.cli.interrupts import Interrupts, Terminated

LINE = "fstgrad: interrupted; what was written so far is complete"
PROGRAM = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # may be inherited as ignored
{before}
from fstgrad.cli.main import main
main()
"""


@pytest.fixture
def run(tmp_path):
    """Run the command line after some Python, without compiled kernels."""
    (tmp_path / "pairs.tsv").write_text("ab\tba\nabb\tba\n" * 40)

    def call(before, *args):
        program = PROGRAM.format(before=textwrap.dedent(before))
        return subprocess.run(
            [sys.executable, "-c", program, *args],
            cwd=tmp_path,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")},
            capture_output=True,
            text=True,
            timeout=120,
            start_new_session=True,
        )

    return call


@pytest.mark.parametrize("place", [1, 4, 10])
def test_an_interruption_inside_the_compiler(run, place):
    before = f"""
        import itertools, llvmlite.binding as llvm
        number = itertools.count(1)
        parse = llvm.parse_assembly
        def interrupted(*args, **kwargs):
            if next(number) == {place}:
                try:
                    signal.raise_signal(signal.SIGINT)
                except BaseException:  # as in callbacks of C
                    pass
            return parse(*args, **kwargs)
        llvm.parse_assembly = interrupted
    """
    done = run(before, "loss", "pairs.tsv")
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == LINE
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_an_interruption_of_processes_that_start(run, delay):
    before = f"""
        import time
        import fstgrad.training.batch as batch
        started = batch.Batch._processes
        def processes(self):
            workers = started(self)
            time.sleep({delay})
            os.killpg(0, signal.SIGINT)
            return workers
        batch.Batch._processes = processes
    """
    done = run(before, "grad", "pairs.tsv", "--jobs", "2")
    assert (done.returncode, done.stderr.splitlines()) == (130, [LINE])


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_in_a_finalizer_is_not_lost(number, error, monkeypatch):
    class Finalized:
        def __del__(self):
            if sent:
                sent.pop()
                signal.raise_signal(number)

    def wait_for_it():
        thing = Finalized()
        del thing
        for _ in range(1000):
            time.sleep(0.01)

    sent = [number]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hook = sys.unraisablehook
    interrupts = Interrupts()
    try:
        with pytest.raises(error), interrupts.handled():
            wait_for_it()
        assert interrupts.seen is error
        assert sys.unraisablehook is hook
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
