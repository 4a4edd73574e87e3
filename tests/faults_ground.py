"""What the faults program stands on: runs of the command line in processes of their own."""

import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from tests.repeated import SECONDS, write_inputs

# what runs in the background of a shell inherits an ignored SIGINT
PROGRAM = [sys.executable, "-c", "import signal; from fstgrad.cli import run; "
           "signal.signal(signal.SIGINT, signal.default_int_handler); run()"]  # fmt: skip


class Failure(Exception):
    """A result was lost, or an output lies."""


class Ground:
    """A folder with inputs, and runs in it."""

    def __init__(
        self, folder: pathlib.Path, kills: int, seed: int, part: slice = slice(None)
    ) -> None:
        self.folder, self.kills, self.random = folder, kills, random.Random(seed)
        self.part = part  # of the targets that are killed, and of the commands that repeat
        self.pairs = folder / "pairs.tsv"
        write_inputs(folder)

    def run(
        self, *arguments: object, environment: dict[str, str] | None = None, **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; a traceback is a failure whatever was asked."""
        more.setdefault("capture_output", True)
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            env={**os.environ, **(environment or {})},
            check=False,
            timeout=600,
            **more,  # type: ignore[call-overload]
        )
        if b"Traceback" in (done.stderr or b""):
            raise Failure(done.stderr.decode())
        return done

    def _start(
        self, command: Sequence[object], out: pathlib.Path, stderr: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        words = [str(word).replace("{}", str(out)) for word in command]
        return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=stderr)

    def _finished(self, command: Sequence[object], again: Sequence[str], name: str) -> pathlib.Path:
        out = self.folder / name
        self._code(0, *(str(word).replace("{}", str(out)) for word in [*command, *again]))
        return out

    def _code(self, code: int, *arguments: object) -> None:
        done = self.run(*arguments)
        if done.returncode != code:
            raise Failure(f"{arguments} gave {done.returncode}: {done.stderr.decode()[-500:]}")

    @staticmethod
    def _result(path: pathlib.Path) -> bytes:
        return arrays_of(path)


def arrays_of(path: pathlib.Path) -> bytes:
    """Return the bytes of all arrays of an npz file, seconds left out."""
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in sorted(archive.files) if name not in ("text", "settings")]
        return b"".join(name.encode() + archive[name].tobytes() for name in names)


def content(path: pathlib.Path) -> bytes:
    """Return what a file says, seconds left out."""
    data = path.read_bytes()
    return arrays_of(path) if data.startswith(b"PK") else SECONDS.sub(b"", data)


def written(place: pathlib.Path) -> bytes:
    """Return what the files of a folder say."""
    return b"\0".join(content(path) for path in sorted(place.iterdir()))


def limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
