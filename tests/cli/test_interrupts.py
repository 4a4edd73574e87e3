"""SIGINT where the exception of its handler would be lost: compilers, finalizers, processes."""

import _thread
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
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
    (tmp_path / "counts.csv").write_text("1,0\n0,2\n2,1\n" * 9)
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


ROW = "{}\tw\t_\t_\t_\t_\t_\t_\t_\t_\n"


@pytest.mark.parametrize(
    "command, lines, code",
    [
        ("trees decode scores.npz --conllu words.conllu -o out.conllu", 1, 0),
        ("grad pairs.tsv --order 1", 0, 141),
        ("risk pairs.tsv --lattices lattices --posteriors out.tsv", 0, 0),
    ],
)
def test_a_reader_that_leaves_early_costs_no_file(tmp_path, command, lines, code):
    """Like `trees decode -o | head -1`: the file is finished, and a line says so."""
    words, many = "".join(ROW.format(k) for k in (1, 2)), 400
    (tmp_path / "words.conllu").write_text(f"{words}\n" * many)
    names = {str(k): np.eye(3) for k in range(many)}
    np.savez(tmp_path / "scores.npz", **names)
    (tmp_path / "pairs.tsv").write_text("ab\tba\n" * many)
    (tmp_path / "lattices").mkdir()
    (tmp_path / "lattices" / "ab.txt").write_text("0 1 a a\n1 2 b b\n2\n")
    program = [sys.executable, "-c", "from fstgrad.cli.main import main; main()"]
    process = subprocess.Popen(
        [*program, *command.split()], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(120) == code, told
    process.stderr.close()
    outputs = list(tmp_path.glob("out.*"))
    assert len(outputs) == (code == 0)
    for out in outputs:
        line = f"fstgrad: standard output was closed before its end; {out.name} is complete"
        assert line in told.splitlines()
        counted = "\n\n" if out.suffix == ".conllu" else "ab\t"
        assert out.read_text().count(counted) == (many if out.suffix == ".conllu" else 2)


@pytest.mark.parametrize("command", ["grm fit c.csv --alpha 0.1 -o m.npz", "loss c.tsv"])
def test_a_reader_of_both_streams_that_leaves_early(tmp_path, command):
    """Like `2>&1 | head -1`: notes that nobody can read neither cost a file nor come again."""
    (tmp_path / "c.csv").write_text("a,b,c\n" + "1,2,0\n3,1,0\n0,2,0\n2,0,0\n" * 5)
    (tmp_path / "c.tsv").write_text("ab\tba\n" * 5)
    process = subprocess.Popen(
        [sys.executable, "-c", "from fstgrad.cli.main import main; main()", *command.split()],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    process.stdout.close()
    writes = command.startswith("grm")
    assert process.wait(120) == (0 if writes else 141)
    assert len(list(tmp_path.glob("m.npz"))) == writes


@pytest.mark.parametrize("place", [1, 10])
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


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_an_interruption_of_processes_that_start(run, delay):
    before = f"""
        import time
        import fstgrad.learning.batch as batch
        started = batch.Batch._worker_processes
        def processes(self):
            workers = started(self)
            time.sleep({delay})
            os.killpg(0, signal.SIGINT)
            return workers
        batch.Batch._worker_processes = processes
    """
    done = run(before, "grad", "pairs.tsv", "--jobs", "2")
    assert (done.returncode, done.stderr.splitlines()) == (130, [LINE])


@pytest.mark.slow
def test_an_interruption_while_threads_work(run):
    """Python would wait for the thread of a node, which compiles or runs a kernel."""
    before = """
        import time
        from fstgrad.grm.problem import Problem
        def endless(self, *args):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(600)
        Problem.fit_node = endless
    """
    done = run(before, "grm", "fit", "counts.csv", "--symmetrize", "average", "-o", "o.npz")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, LINE)


@pytest.mark.slow
def test_an_interruption_while_another_thread_compiles(run):
    before = """
        import threading, time
        import fstgrad.core.compiler
        from numba.core.compiler_lock import global_compiler_lock as lock
        taken = threading.Event()
        def compile_long():
            with lock:
                taken.set()
                time.sleep(5)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(600)
        threading.Thread(target=compile_long, daemon=True).start()
        taken.wait()
    """
    done = run(before, "loss", "pairs.tsv")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, LINE)


def test_an_error_after_an_interruption_is_told(run):
    before = """
        import fstgrad.cli.commands.loss as loss
        from fstgrad.core.errors import InvalidInputError
        def failing(*args, **kwargs):
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException:
                raise InvalidInputError("the disk is full")
        loss.rows_and_alphabet = failing
    """
    done = run(before, "loss", "pairs.tsv")
    assert (done.returncode, done.stderr) == (130, "fstgrad: interrupted; the disk is full\n")


def test_an_interruption_before_the_command_line_is_there(tmp_path):
    program = PROGRAM.format(before="import fstgrad.cli.interrupts as there").replace(
        "from fstgrad.cli.main import main\nmain()",
        "there.Interrupts.__init__ = lambda self: signal.raise_signal(signal.SIGINT)\n"
        "import fstgrad.cli\nfstgrad.cli.run()",
    )
    done = subprocess.run([sys.executable, "-c", program, "doctor"], capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
@pytest.mark.parametrize("early", [0, 1, 3])
def test_a_signal_in_a_finalizer_is_not_lost(number, error, early, monkeypatch):
    """Not even where it comes again, a few times, before the hook that sends it again is over."""
    start, times = _thread.start_new_thread, list(range(early))

    def start_late(*args):
        if times:
            times.pop()
            signal.raise_signal(number)
        return start(*args)

    monkeypatch.setattr(_thread, "start_new_thread", start_late)

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


@pytest.mark.parametrize(
    "number, code, line, after",
    [
        ("SIGINT", 130, LINE, "raise ImportError('numpy failed to import')"),
        ("SIGTERM", 143, LINE.replace("interrupted", "stopped"), "time.sleep(60)"),
    ],
)
def test_a_signal_that_a_module_in_c_prints(run, number, code, line, after):
    """Its initialization prints the exception, and raises an ImportError or goes on."""
    before = f"""
        import ctypes, time
        import fstgrad.cli.commands.loss as loss
        def loading(*args, **kwargs):
            source = b"import signal; signal.raise_signal(signal.{number})"
            assert ctypes.pythonapi.PyRun_SimpleString(source) == -1  # which calls PyErr_Print
            {after}
        loss.rows_and_alphabet = loading
    """
    done = run(before, "loss", "pairs.tsv")
    assert (done.returncode, done.stderr) == (code, f"{line}\n")


def test_other_errors_that_c_prints_are_shown(capsys):
    import ctypes

    with Interrupts().handled():
        assert ctypes.pythonapi.PyRun_SimpleString(b"1 / 0") == -1
    assert "ZeroDivisionError" in capsys.readouterr().err
