"""The threads of PyTorch's OpenMP take the items of a batch."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fstgrad.objectives.base import Team  # noqa: E402
from fstgrad.torch import threads  # noqa: E402
from fstgrad.torch.threads import OpenMPTeam, team  # noqa: E402

needs_openmp = pytest.mark.skipif(threads._openmp() is None, reason="PyTorch without OpenMP")
TEAMS = [Team, pytest.param(OpenMPTeam, marks=needs_openmp)]


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", TEAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("items", [0, 1, 2, 3, 4, 64])
def test_every_item_runs_once(kind, size, items):
    found = []
    kind(size).each(items, found.append)
    assert sorted(found) == list(range(items))
    ranges = []
    kind(size).slices(items, lambda low, high: ranges.append((low, high)))
    assert len(ranges) == min(size, items)
    assert [i for low, high in sorted(ranges) for i in range(low, high)] == list(range(items))


@needs_openmp
def test_items_run_side_by_side_in_threads_of_pytorch():
    meeting = threading.Barrier(2, timeout=60)  # raises if one thread takes both

    def run(low, high):
        meeting.wait()

    before = threading.active_count()
    assert isinstance(team(), OpenMPTeam)
    team().slices(2, run)
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", TEAMS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_an_item_is_raised_after_all_have_run(kind, error):
    done = []

    def run(i):
        if i in (1, 7):
            raise error(i)
        done.append(i)

    with pytest.raises(error, match="1"):
        kind(2).each(8, run)
    assert {0, 4, 5, 6} <= set(done)


@needs_openmp
def test_fewer_threads_than_asked_for_do_all_the_work():
    """A region within a region has one thread."""
    found = []

    def outer(low, high):
        OpenMPTeam(2).each(4, lambda i: found.append((low, i)))

    OpenMPTeam(2).slices(2, outer)
    assert sorted(found) == [(k, i) for k in range(2) for i in range(4)]


FORK = """
import os, torch
import fstgrad as fg, fstgrad.torch as fgt
from fstgrad.torch.threads import OpenMPTeam, team

torch.set_num_threads(2)
assert isinstance(team(), OpenMPTeam)
team().slices(2, lambda low, high: None)
child = os.fork()
if child == 0:
    assert not isinstance(team(), OpenMPTeam)
    loss, gold = fg.Hamming(fg.Alphabet("ab")), torch.zeros(200, 30).long()
    value = fgt.softmax_margin(torch.zeros(200, 30, 2), gold, loss)
    print(f"{float(value):.6f}", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.slow
@needs_openmp
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    """In a process of its own: others may have threads that do not allow a fork."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(30 * np.log(1 + np.e), abs=1e-4)


def test_without_openmp_threads_of_our_own_do_the_work(monkeypatch):
    monkeypatch.setattr(threads, "_openmp", lambda: None)
    assert type(team()) is Team
    torch.set_num_threads(1)
    assert team().size == 1
