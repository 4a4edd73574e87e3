"""Runs cases in forked processes and judges what they do: tracebacks, crashes, hangs, nonsense."""

import argparse
import collections
import contextlib
import functools
import io
import json
import math
import os
import pathlib
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from fstgrad.cli.main import main
from tests.fuzz.calls import calls
from tests.fuzz.commands import TEMPLATES, Case, fill, random_case
from tests.fuzz.examples import FORKED, recorded
from tests.fuzz.judging import file_of_descriptor, judged, made_call, short, signature
from tests.fuzz.seeds import write_seeds
from tests.fuzz.wrong import Call, all_values, is_work, random_call

TIMEOUT = 60.0  # seconds of computing of one case; a loaded machine takes longer
# the reference engine takes minutes for long targets, which Ctrl-C ends
SLOW = "'--engine' 'openfst'"
SILENCE = 600.0  # seconds that a case may wait for nothing
MEMORY = 6 * 2**30  # bytes of addresses of a process
CHUNK = 200  # cases of one process
SWEPT = ("loss.fst", "loss.far", "lattices.far", "weights.npz", "scores.npz", "counts.npz",
         "trained.npz", "roots.npz")  # fmt: skip
STRIDE = 10_007  # a prime: the first numbers reach all parts of all files


class Finding(NamedTuple):
    """What was wrong with one case."""

    kind: str
    index: int
    what: str
    case: str


class Fuzzer:
    """Cases of one seed, by kind and number; the same number is the same case on every machine."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        self.seed, self.seeds, self.work = seed, folder / "seeds", folder / "work"
        self.files = folder / "files"
        for made in (self.seeds, self.work, self.files):
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
        self.root = os.getcwd()
        self.code: object = 0
        self.said = ""
        self.held: dict[int, list[Any]] = {}
        with _silence():
            write_seeds(self.seeds, captured)
            wrong = [self._try(template) for template in TEMPLATES]  # compiles the kernels, too
            if any(wrong):
                raise RuntimeError("\n".join(filter(None, wrong)))
            calls()
            self.values = len(all_values(np.random.default_rng(0)))  # imports torch for all

    def command(self, index: int) -> tuple[str, Callable[[], str]]:
        """Return a command line and a function that runs it and says what is wrong."""
        rng = np.random.default_rng([self.seed, 0, index])
        case = random_case(self.seeds, self.work, rng)
        return " ".join(map(repr, case.arguments)), lambda: self._run_command(case)

    def call(self, index: int) -> tuple[str, Callable[[], str]]:
        """Return a call of the API and a function that makes it."""
        return self._shown(*random_call(calls(), np.random.default_rng([self.seed, 1, index])))

    def example(self, index: int) -> tuple[str, Callable[[], str]]:
        """Return a call that an example makes, and a function that makes it."""
        every = recorded(self.files, FORKED)
        return self._shown(*random_call(every, np.random.default_rng([self.seed, 2, index])))

    def argument(self, index: int) -> tuple[str, Callable[[], str]]:
        """Return a call in which one argument is wrong, and a function that makes it.

        As many numbers as there are pairs of an argument and a wrong value make each pair once; as
        many as there are values make each value once.
        """
        turn, which = divmod(index, self.values)
        slots = _slots(self.files)
        call, name = slots[(self.seed + turn + which * STRIDE) % len(slots)]
        value = self._values(turn)[which]
        arguments = dict(call.arguments)
        if not is_work(name, value):
            arguments[name] = value
        return self._shown(call, arguments)

    def _values(self, turn: int) -> list[Any]:
        if turn not in self.held:
            self.held = {turn: all_values(np.random.default_rng([self.seed, 3, turn]))}
        return self.held[turn]

    def _shown(self, call: Call, arguments: dict[str, Any]) -> tuple[str, Callable[[], str]]:
        shown = ", ".join(f"{k}={short(v)}" for k, v in arguments.items())

        def run() -> str:
            with contextlib.chdir(self.work):  # names of outputs may be relative
                return made_call(call, arguments)

        return f"{call.name}({shown})", run

    def sweep(self, index: int) -> tuple[str, Callable[[], str]]:
        """Return a file with one byte changed, and a function that reads and uses it.

        As many numbers as the files have bytes change each byte once.
        """
        sizes = [(self.seeds / name).stat().st_size for name in SWEPT]
        ends = np.cumsum(sizes)
        place = index * STRIDE % int(ends[-1])
        number = int(np.searchsorted(ends, place, side="right"))
        name, at = SWEPT[number], place - int(ends[number]) + sizes[number]
        data = (self.seeds / name).read_bytes()
        value = (0xFF, 0x01, 0x80, 0x10)[index // int(ends[-1]) % 4]
        changed = data[:at] + bytes([data[at] ^ value]) + data[at + 1 :]
        template = next(t for t in TEMPLATES if "{" + name in t)
        case = fill(template, self.seeds, self.work)
        case.files[name] = changed
        return f"{name} byte {at} ^ {value:#x}", lambda: self._run_command(case)

    def save(self, finding: Finding, folder: pathlib.Path) -> None:
        """Keep the input of a finding: the command line and its files, or the call."""
        target = folder / f"{finding.kind}-{self.seed}-{finding.index}"
        target.mkdir(parents=True, exist_ok=True)
        (target / "finding.txt").write_text(
            f"{finding.what}\n\n{finding.case}\n", "utf-8", "replace"
        )
        if finding.kind == "command":
            rng = np.random.default_rng([self.seed, 0, finding.index])
            for name, data in random_case(self.seeds, self.work, rng).files.items():
                (target / name).write_bytes(data)

    def _try(self, template: str) -> str:
        """Run a template as it is; return what is wrong with it."""
        wrong = self._run_command(fill(template, self.seeds, self.work))
        return f"{template}: exit {self.code}: {wrong or self.said}" if wrong or self.code else ""

    def _run_command(self, case: Case) -> str:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(exist_ok=True)
        for name, data in case.files.items():
            (self.work / name).write_bytes(data)
        os.chdir(self.work)  # names of outputs may be relative
        try:
            code, out, err = captured(case.arguments)
        finally:
            os.chdir(self.root)
        self.code, self.said = code, err
        return judged(code, out, err, case.arguments)


@functools.cache
def _slots(files: pathlib.Path) -> list[tuple[Call, str]]:
    """Return every argument of one call of each name."""
    by_name = {call.name: call for call in (*recorded(files, FORKED), *calls())}
    return [(call, name) for call in by_name.values() for name in call.arguments]


def captured(arguments: list[str]) -> tuple[object, str, str]:
    """Run a command line in this process; return exit code, standard output and error."""
    out, err = io.BytesIO(), io.BytesIO()
    before = sys.stdout, sys.stderr, sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"ab\tba\n"), "utf-8")
    sys.stdout, sys.stderr = io.TextIOWrapper(out, "utf-8"), io.TextIOWrapper(err, "utf-8")
    code: object = 0
    with file_of_descriptor(2) as raw:
        try:
            main(arguments)
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            code = "traceback"
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                stream.detach()
            sys.stdout, sys.stderr, sys.stdin = before
        text = raw()
    return code, out.getvalue().decode("utf-8", "replace"), err.getvalue().decode() + text


def run_cases(
    kind: str, make: Callable[[int], tuple[str, Callable[[], str]]], numbers: range
) -> Iterator[Finding | None]:
    """Yield a finding or None for every case, run in forked processes."""
    todo = list(numbers)
    while todo:
        done = 0
        for index, shown, what in _in_child(make, todo[:CHUNK]):
            done += 1
            yield Finding(kind, index, what, shown) if what else None
        todo = todo[max(done, 1) :]


def _in_child(
    make: Callable[[int], tuple[str, Callable[[], str]]], numbers: list[int]
) -> Iterator[tuple[int, str, str]]:
    """Yield (number, case, finding) from one process, up to its end or its crash."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _work(make, numbers, write)
    os.close(write)
    current, shown, line = numbers[0], "", None
    try:
        for line in _lines(read):
            if line is None:
                os.kill(child, signal.SIGKILL)
                yield current, shown, f"hang: waits for more than {SILENCE:g} s"
                break
            message = json.loads(line)
            current, shown = message["index"], message["case"]
            if "what" in message:
                yield current, shown, message["what"]
                shown = ""
    finally:
        os.close(read)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        hang = f"hang: computes for more than {TIMEOUT:g} s"
        yield current, shown, "" if SLOW in shown else hang
    elif os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        yield current, shown, f"crash: signal {os.WTERMSIG(status)}"
    elif os.WIFSIGNALED(status) and shown and line is not None:
        yield current, shown, "crash: killed, out of memory"


def _lines(read: int) -> Iterator[bytes | None]:
    """Yield lines as they come, None where none comes for too long."""
    held = b""
    while True:
        ready, _, _ = select.select([read], [], [], SILENCE)
        if not ready:
            yield None
            return
        got = os.read(read, 2**16)
        if not got:
            return
        *lines, held = (held + got).split(b"\n")
        yield from lines


def _work(
    make: Callable[[int], tuple[str, Callable[[], str]]], numbers: list[int], write: int
) -> None:
    """Run cases in a child and leave; nothing of the parent runs on."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "torch" in sys.modules:  # the threads of OpenMP do not survive a fork
        sys.modules["torch"].set_num_threads(1)
    try:
        for index in numbers:
            shown, run = make(index)
            _send(write, {"index": index, "case": shown})
            signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
            _send(write, {"index": index, "case": shown, "what": run()})
    except BaseException:
        _send(write, {"index": index, "case": "the fuzzer", "what": traceback.format_exc()})
    os._exit(0)


def _send(write: int, message: dict[str, Any]) -> None:
    os.write(write, (json.dumps(message) + "\n").encode())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def fuzz(
    seed: int,
    seconds: float,
    folder: pathlib.Path,
    *,
    say: Callable[[str], None],
    kinds: Collection[str] = ("command", "call", "example", "argument", "sweep"),
    cases: float = math.inf,
    start: int = 0,
) -> int:
    """Run all kinds of cases in turn for some seconds, or up to a number of cases of each kind.

    `start` is the number of the first case, so that a long run can go in pieces.

    Returns the number of findings.
    """
    fuzzer = Fuzzer(seed, folder)
    makers = {
        "command": fuzzer.command, "call": fuzzer.call, "example": fuzzer.example,
        "argument": fuzzer.argument, "sweep": fuzzer.sweep,
    }  # fmt: skip
    if {"example", "argument"} & set(kinds):
        recorded(fuzzer.files, FORKED)  # once, and not in every process
    begun, counts = time.monotonic(), collections.Counter[str]()
    kept: dict[str, Finding] = {}
    found = 0
    while time.monotonic() - begun < seconds and max(counts.values(), default=0) < cases:
        for kind in kinds:
            make = makers[kind]
            numbers = range(start + counts[kind], start + counts[kind] + CHUNK)
            counts[kind] += CHUNK
            for finding in run_cases(kind, make, numbers):
                if finding is None:
                    continue
                found += 1
                if signature(finding.what) not in kept:
                    kept[signature(finding.what)] = finding
                    fuzzer.save(finding, folder / "findings")
                    say(f"{finding.kind} {finding.index}: {finding.case}\n    {finding.what}\n")
    total = ", ".join(f"{number:,} {kind}s" for kind, number in counts.items())
    say(f"seed {seed}: {total}; {found:,} findings, {len(kept)} of different kinds")
    return found


def program() -> None:
    """Run the fuzzer from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="command,call,example,argument,sweep")
    parser.add_argument("--cases", type=float, default=math.inf, help="of each kind")
    parser.add_argument("--start", type=int, default=0, help="the number of the first case")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    given = parser.parse_args()
    found = fuzz(
        given.seed,
        given.seconds,
        given.folder.resolve(),
        say=lambda s: print(s, flush=True),
        kinds=given.kinds.split(","),
        cases=given.cases,
        start=given.start,
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    program()
