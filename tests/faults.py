"""What fstgrad does when it is killed, starved and lied to: no result lost, no output that lies.

    python tests/faults.py            # 100 kills a target
    python tests/faults.py --kills 3  # a quick look

Every check runs the command line in processes of its own and prints a line.
"""

import argparse
import functools
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from tests.faults_commands import EveryCommand
from tests.faults_ground import PROGRAM, Failure, limit_files, limit_memory, written
from tests.repeated import LINES, REPEATED


class Faults(EveryCommand):
    """The checks, in a folder of their own."""

    @functools.cached_property
    def whole(self) -> bytes:
        """The arrays of a gradient that nothing disturbs."""
        return self._result(self._finished(["grad", self.pairs, "-o", "{}"], [], "whole.npz"))

    def kills_leave_resumable_runs(self) -> str:
        """Kill `grad --journal`, `train --resume` and `grm fit --checkpoint`, and go on."""
        targets = {
            "grad": (["grad", self.pairs, "--journal", "{}.jsonl", "-o", "{}"], []),
            "train": (["train", self.pairs, "--epochs", "6", "--window", "1", "-o", "{}"],
                      ["--resume"]),
            "grm": (["grm", "fit", self.folder / "counts.csv", "--alpha", "0.02", "--threads", "1",
                     "--k", "3", "--checkpoint", "{}.kept", "-o", "{}"], []),
        }  # fmt: skip
        names = list(targets)[self.part]
        for name in names:
            command, again = targets[name]
            begun = time.monotonic()
            wanted = self._result(self._finished(command, again, f"{name}-whole.npz"))
            seconds = time.monotonic() - begun
            out = self.folder / f"{name}-killed.npz"
            for kill in range(self.kills):
                if kill % 10 == 0:
                    for old in self.folder.glob(f"{name}-killed*"):
                        old.unlink()
                process = self._start([*command, *(again if kill % 10 else [])], out)
                time.sleep(self.random.uniform(0.2, 1.1) * seconds)
                process.send_signal(signal.SIGKILL)
                process.wait()
                if out.exists() and self._result(out) != wanted:
                    raise Failure(f"{name}: a killed run left a wrong {out.name}")
            if self._result(self._finished(command, again, out.name)) != wanted:
                raise Failure(f"{name}: after {self.kills} kills the result differs")
        return f"{self.kills} kills of each of {', '.join(names)}: results to the last bit"

    def signals_end_runs_cleanly(self) -> str:
        """Interrupt and terminate: 130 and 143, one line, no temporary file, nothing replaced."""
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = self.folder / "signalled.npz"
            out.write_text("before")
            command = ["train", self.pairs, "--epochs", "100000", "--held-out", "0", "-o", out]
            process = self._start(command, out, stderr=subprocess.PIPE)
            for line in process.stderr or ():
                if line.startswith(b"epoch 2"):
                    break
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
            if process.returncode != code or b"Traceback" in said:
                raise Failure(f"{number!r} gave {process.returncode}: {said.decode()[-300:]}")
            if out.read_text() != "before" or list(self.folder.glob(".fstgrad-*")):
                raise Failure(f"{number!r} left {list(self.folder.iterdir())}")
        return "SIGINT 130, SIGTERM 143, the file in place as before"

    def full_disks_lose_nothing(self) -> str:
        """Let every write fail beyond some bytes: an error, and the old output as it was."""
        sizes = (0, 50, 200)
        commands = {
            "out.npz": ["grad", self.pairs, "-o"],
            "model.npz": ["train", self.pairs, "--epochs", "1", "-o"],
            "roots.npz": ["grm", "fit", self.folder / "counts.csv", "--threads", "1", "-o"],
            "grammar.far": ["grammar", "build", "caseless", "--symbols", "ab", "-o"],
            "marginals.npz": ["marginals", self.pairs, "-o"],
        }
        for name, command in commands.items():
            out = self.folder / name
            for size in sizes:
                out.write_text("before")
                done = self.run(*command, out, preexec_fn=lambda size=size: limit_files(size))
                if done.returncode == 0 or out.read_bytes() != b"before":
                    raise Failure(f"{name}: a full disk gave {done.returncode}, {done.stderr!r}")
            out.unlink()
        if list(self.folder.glob(".fstgrad-*")):
            raise Failure("temporary files are left")
        with open("/dev/full", "w") as full:
            done = self.run("loss", self.pairs, capture_output=False, stderr=subprocess.PIPE,
                            stdout=full)  # fmt: skip
        if done.returncode != 1 or len(done.stderr.splitlines()) != 1:
            raise Failure(f"/dev/full gave {done.returncode}, {done.stderr!r}")
        return f"{len(commands) * len(sizes) + 1} writes failed, each said so"

    def outputs_are_checked_first(self) -> str:
        """Read-only folders and files, inputs as outputs, links, devices."""
        other = self.folder / "precious"
        other.write_text("before")
        link = self.folder / "link.npz"
        link.symlink_to(other)
        self._code(0, "grad", self.pairs, "-o", link)
        if other.read_text() != "before" or link.is_symlink():
            raise Failure("a link was followed")
        for out in (self.pairs, self.folder, "/dev/null", self.folder / "none" / "x.npz",
                    "/dev/full"):  # fmt: skip
            before = self.pairs.read_bytes()
            self._code(2, "grad", self.pairs, "-o", out)
            if self.pairs.read_bytes() != before:
                raise Failure(f"{out} was written")
        return "links replaced, inputs, folders and devices refused before the work"

    def streams_may_be_closed(self) -> str:
        """Closed and broken pipes."""
        shell = f"{' '.join(map(repr, PROGRAM))} loss {self.pairs}"
        for redirection, codes in ((">&-", {1}), ("2>&-", {0}), ("<&-", {0})):
            done = subprocess.run(f"{shell} {redirection}", shell=True, capture_output=True)
            if done.returncode not in codes or b"Traceback" in done.stderr:
                raise Failure(f"{redirection} gave {done.returncode}: {done.stderr!r}")
        out = self.folder / "piped.npz"
        many = self.folder / "many.tsv"
        many.write_text(LINES * 50)
        words = " ".join(map(shlex.quote, PROGRAM))
        command = f"{words} grad {many} -o {out} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True)
        if done.stdout.splitlines()[-1] not in (b"141", b"0") or b"Traceback" in done.stderr:
            raise Failure(f"a broken pipe gave {done.stdout!r} {done.stderr!r}")
        if done.stdout.splitlines()[-1] == b"141" and out.exists():
            raise Failure("a broken pipe left an output")
        return "closed standard output is an error, a broken pipe 141"

    def two_processes_share(self) -> str:
        """Run twice at once on one cache, one output, and one file of lines."""
        cache, out = self.folder / "cache", self.folder / "shared.npz"
        command = ["grad", self.pairs, "--cache", cache, "-o", out]
        both = [self._start(command, out) for _ in range(2)]
        if [process.wait() for process in both] != [0, 0]:
            raise Failure("two runs on one cache failed")
        if self._result(out) != self.whole:
            raise Failure("two runs on one cache gave another result")
        lines = self.folder / "shared.jsonl"
        many = self.folder / "longer.tsv"
        many.write_text(LINES * 100)
        first = self._start(["grad", many, "--journal", lines], out)
        while not lines.exists() or not lines.stat().st_size:
            time.sleep(0.05)
        done = self.run("grad", many, "--journal", lines)
        first.kill()
        first.wait()
        if done.returncode != 1 or b"another run" not in done.stderr:
            raise Failure(f"two runs on one file: {done.returncode}, {done.stderr!r}")
        return "one cache and one output for two, one file of lines for one"

    def flipped_bits_are_seen(self) -> str:
        """Flip a bit in every file of every cache: the same result, no crash."""
        cache, kernels = self.folder / "bits", self.folder / "kernels"
        environment = {"NUMBA_CACHE_DIR": str(kernels)}
        command = ["grad", self.pairs, "--cache", cache, "-o", self.folder / "bits.npz"]
        self.run(*command, environment=environment)
        flipped = 0
        for file in [*cache.rglob("*"), *kernels.rglob("*")]:
            if file.is_file():
                data = bytearray(file.read_bytes())
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
                file.write_bytes(data)
                flipped += 1
        done = self.run(*command, environment=environment)
        if done.returncode or self._result(self.folder / "bits.npz") != self.whole:
            raise Failure(f"flipped bits gave {done.returncode}, {done.stderr!r}")
        return f"{flipped} files with a flipped bit, the same result"

    def poor_surroundings_are_enough(self) -> str:
        """No HOME, no writable folder for kernels, no shared memory."""
        nowhere = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent",
                   "NUMBA_CACHE_DIR": "/proc/none", "TMPDIR": str(self.folder)}  # fmt: skip
        done = self.run("loss", self.pairs, environment=nowhere)
        if done.returncode or len(done.stderr.splitlines()) > 4:
            raise Failure(f"no folder for kernels: {done.returncode}, {done.stderr!r}")
        out, program = self.folder / "no-shm.npz", " ".join(map(shlex.quote, PROGRAM))
        command = f"{program} grad {self.pairs} --jobs 2 -o {out}"
        hide = "mount -t tmpfs -o ro,size=4k none /dev/shm && "
        can = subprocess.run(["unshare", "-rm", "sh", "-c", hide + "true"], capture_output=True)
        if can.returncode:  # no name spaces here: joblib is told of a folder that is not there
            done = self.run(*shlex.split(f"grad {self.pairs} --jobs 2 -o {out}"),
                            environment={"JOBLIB_TEMP_FOLDER": "/proc/none"})  # fmt: skip
        else:
            done = subprocess.run(["unshare", "-rm", "sh", "-c", hide + command],
                                  capture_output=True)  # fmt: skip
        if done.returncode or self._result(out) != self.whole:
            raise Failure(f"no shared memory: {done.returncode}, {done.stderr[-500:]!r}")
        return f"no HOME, no cache, no /dev/shm{' (emulated)' if can.returncode else ''}"

    def small_memory_is_enough(self) -> str:
        """Any --max-states in an address space of 4 GB; an operation of OpenFst is interrupted."""
        long = self.folder / "long.tsv"
        long.write_text("x\t" + "abcdefghijklmnopqrst" * 2 + "\n")
        command = ["grad", long, "--max-states", 2**31 - 1]
        done = self.run(*command, preexec_fn=limit_memory)
        if done.returncode != 1 or len(done.stderr.splitlines()) > 2:
            raise Failure(f"4 GB: {done.returncode}, {done.stderr[-500:]!r}")
        long.write_text("x\tabcdefghijklmn\n")  # no limit is passed, and OpenFst takes minutes
        begun = subprocess.Popen([*PROGRAM, *map(str, command), "--engine", "openfst"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 preexec_fn=limit_memory)  # fmt: skip
        children = pathlib.Path(f"/proc/{begun.pid}/task/{begun.pid}/children")
        while begun.poll() is None and not children.read_text().split():
            time.sleep(0.1)
        time.sleep(2.0)
        begun.send_signal(signal.SIGINT)
        sent = time.monotonic()
        try:
            _, said = begun.communicate(timeout=60)
        finally:
            begun.kill()
        seconds = time.monotonic() - sent
        if begun.returncode != 130 or len(said.splitlines()) > 2:
            raise Failure(f"an interrupted operation: {begun.returncode}, {said[-500:]!r}")
        return f"4 GB of addresses: one line; OpenFst interrupted after {seconds:.2f} s"

    def lost_workers_lose_nothing(self) -> str:
        """A worker of a dask cluster ends in the middle of its shard: another does it again."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-k", "lost_worker",
             "tests/learning/test_shards.py"], capture_output=True, timeout=300)  # fmt: skip
        if done.returncode:
            raise Failure(f"a lost worker of dask: {done.stdout.decode()[-1500:]}")
        return "a worker of dask lost, the sums to the last bit"

    def threads_agree(self) -> str:
        """Eight threads at once on one loss and one distribution."""
        import fstgrad as fg

        abc = fg.Alphabet("abcd")
        loss, scores = fg.EditDistance(abc), np.random.default_rng(0).normal(size=(4, 4))
        wanted = fg.softmax_margin(scores, "abca", loss.compile("abca"))
        wrong: list[object] = []

        def work() -> None:
            for _ in range(50):
                value, gradient = fg.softmax_margin(scores, "abca", loss.compile("abca"))
                if value != wanted[0] or (gradient != wanted[1]).any():
                    wrong.append(value)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise Failure(f"{len(wrong)} results of threads differ")
        return "8 threads x 50 gradients, equal to the last bit"

    def results_repeat(self) -> str:
        """Run every command in each of several processes, with address randomization."""
        runs = max(3, min(20, self.kills))
        names = [name for name, *_ in REPEATED]
        chosen = [str(number) for number in range(len(names))[self.part]]
        for run in range(runs):
            place = self.folder / str(run)
            done = subprocess.run([sys.executable, "-m", "tests.repeated", place, *chosen],
                                  cwd=pathlib.Path(__file__).parent.parent, capture_output=True,
                                  timeout=3600)  # fmt: skip
            if done.returncode:
                raise Failure(done.stderr.decode()[-1500:])
        for number in chosen:
            found = {written(self.folder / str(run) / number) for run in range(runs)}
            if len(found) > 1:
                raise Failure(f"{names[int(number)]}: {len(found)} different results")
        return f"{runs} runs of {len(chosen)} commands, equal to the last bit"


CHECKS: tuple[Callable[[Faults], str], ...] = (
    Faults.outputs_are_checked_first,
    Faults.streams_may_be_closed,
    Faults.full_disks_lose_nothing,
    Faults.every_stream_may_be_lost,
    Faults.every_output_is_whole_or_untouched,
    Faults.every_output_refuses_inputs,
    Faults.every_command_ends_at_a_signal,
    Faults.signals_end_runs_cleanly,
    Faults.two_processes_share,
    Faults.flipped_bits_are_seen,
    Faults.poor_surroundings_are_enough,
    Faults.small_memory_is_enough,
    Faults.lost_workers_lose_nothing,
    Faults.threads_agree,
    Faults.results_repeat,
    Faults.kills_leave_resumable_runs,
)


def run_all(kills: int, seed: int, names: Sequence[str] = (), part: slice = slice(None)) -> int:
    """Run the checks, a line each; return how many failed."""
    failed = 0
    for check in CHECKS:
        if names and check.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                print("ok    ", check(Faults(pathlib.Path(folder), kills, seed, part)), flush=True)
            except Failure as error:
                failed += 1
                print("FAILED", f"{check.__name__}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th target and command, from I")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    part = slice(first, None, step)
    sys.exit(1 if run_all(given.kills, given.seed, given.names, part) else 0)
