"""Long operations run in a process of their own: the same results, and an end at any time."""

import signal
import time

import numpy as np
import pynini
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses.reference import hypothesis_machine
from fstgrad.openfst import operations, subprocess

OPERATIONS = {
    "compose": lambda fst: openfst.compose(fst, fst),
    "remove_epsilons": lambda fst: openfst.remove_epsilons(fst, delta=1e-300),
    "determinize": lambda fst: openfst.determinize(fst, delta=2.0**-20),
    "with a limit": lambda fst: openfst.determinize(fst, delta=2.0**-20, max_states=5),
}


def machine(length, symbols=3, loss=fg.EditDistance):
    """M of a random target; Det(M) is exponential in its length."""
    abc = fg.Alphabet([f"s{i}" for i in range(symbols)])
    target = np.random.default_rng(0).integers(symbols, size=length)
    return hypothesis_machine(loss(abc).transducer, abc, target, length)


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_the_same_to_the_last_bit(monkeypatch, name):
    operation, fst = OPERATIONS[name], openfst.with_symbols(machine(4), fg.Alphabet("abc"))
    here = operation(fst).write_to_string()
    monkeypatch.setattr(operations, "_LARGE", 0)
    ran = []
    monkeypatch.setattr(
        operations,
        "run_in_subprocess",
        lambda *a, **k: ran.append(a) or subprocess.run_in_subprocess(*a, **k),
    )
    assert operation(fst).write_to_string() == here
    assert len(ran) == 1


def test_the_reference_engine_is_the_same(monkeypatch):
    loss = fg.NGram(fg.Alphabet("abc"), order=2, smoothing=0.5)
    here = loss.compile("abcab", engine="openfst")
    monkeypatch.setattr(operations, "_LARGE", 0)
    there = loss.compile("abcab", engine="openfst")
    np.testing.assert_array_equal(there.final, here.final)
    for one, other in zip(there.levels, here.levels, strict=True):
        np.testing.assert_array_equal(one.nextstate, other.nextstate)


def test_what_openfst_refuses(monkeypatch):
    """The reason is on standard error, as it is without another process."""
    ambiguous = pynini.cross("a", "b") | pynini.cross("a", "c")
    reasons = []
    for large in (operations._LARGE, 0):
        monkeypatch.setattr(operations, "_LARGE", large)
        with openfst.caught_messages() as caught, pytest.raises(fg.FstError, match="could not"):
            openfst.determinize(ambiguous, delta=2.0**-20)
        reasons.append(caught)
    assert reasons[0] == reasons[1] != []


def test_another_failure_is_said():
    with pytest.raises(fg.FstError, match="Unknown determinization type"):
        subprocess.run_in_subprocess("determinize", pynini.accep("a"), det_type="none")


def test_memory_ends_in_an_error(monkeypatch):
    """OpenFst ends its process with std::bad_alloc, which says nothing on standard error."""
    fst = machine(12, 20)
    monkeypatch.setattr(subprocess, "memory_limit", lambda: 60 * 2**20)
    with openfst.caught_messages() as caught, pytest.raises(fg.MemoryLimitError):
        openfst.determinize(fst, delta=2.0**-24, max_states=10**6)
    assert caught == []


def test_an_interruption_ends_an_operation(monkeypatch):
    """This determinization takes an hour."""

    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    started = []

    class Process(subprocess.subprocess.Popen):
        def communicate(self, *given):
            started.append(self)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            return super().communicate(*given)

    monkeypatch.setattr(subprocess.subprocess, "Popen", Process)
    before = signal.signal(signal.SIGALRM, interrupt)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            openfst.determinize(machine(40, 20), delta=2.0**-24, max_states=10**6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < 600
    assert started[0].returncode == -signal.SIGKILL
