"""Faults of every command and of every output, which come from the commands themselves.

A command or an output without a line in `tests.fuzz.commands.TEMPLATES` is an error.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from fstgrad.cli.main import fstgrad
from fstgrad.cli.parameter_types import Output
from tests.faults_ground import PROGRAM, Failure, Ground, content, limit_files
from tests.fuzz.commands import TEMPLATES, Case, fill
from tests.fuzz.seeds import write_seeds
from tests.repeated import SECONDS

CONTINUED = {"--journal", "--checkpoint"}  # of another run: refused, and as it was
# signals wait until the process has said what they do
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_WAITING = [sys.executable, "-c", "import signal; from fstgrad.cli import interrupts, run; "
            "signal.signal(signal.SIGINT, signal.SIG_DFL); "
            "signal.pthread_sigmask(signal.SIG_SETMASK, ()); run()"]  # fmt: skip
_MOUNT = """
mount -t tmpfs -o size=8k none disk && head -c 4096 /dev/zero > disk/fill || exit 99
[ -z "$OLD" ] || printf before > "disk/$OLD"
[ -n "$OLD" ] || mount -o remount,ro disk || exit 99
"$@"
code=$?
ls -A disk > listing
[ -z "$OLD" ] || cat "disk/$OLD" > kept
exit $code
"""


class Written(NamedTuple):
    """A command, an option that names an output, and a line that has it."""

    name: str
    option: str
    template: str


def commands_of(command: click.Command, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command of a group, as it is called."""
    if not isinstance(command, click.Group):
        yield before.strip(), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands_of(found, f"{before} {name}")


def lines() -> dict[str, str]:
    """Return a line for every command."""
    found = {}
    for name, _ in commands_of(fstgrad):
        words = name.split()
        own = [line for line in TEMPLATES if line.split()[: len(words)] == words]
        if not own:
            raise Failure(f"no line of tests.fuzz.commands runs `fstgrad {name}`")
        found[name] = own[0]
    return found


def outputs() -> list[Written]:
    """Return a line for every output of every command."""
    found = []
    for name, command in commands_of(fstgrad):
        words = name.split()
        for option in command.params:
            if not isinstance(option.type, Output):
                continue
            own = [line for line in TEMPLATES if line.split()[: len(words)] == words
                   and set(option.opts) & set(line.split())]  # fmt: skip
            if not own:
                raise Failure(f"no line of tests.fuzz.commands has {name} {option.opts[-1]}")
            found.append(Written(name, option.opts[-1], own[0]))
    return found


class EveryCommand(Ground):
    """Checks over the commands that there are."""

    def every_stream_may_be_lost(self) -> str:
        """Close standard output, fill it, break its pipe: 1, 1 and 141, where it says something.

        After a broken pipe, a line with an output finishes it, and says so.
        """
        names = self._chosen(list(lines()))
        templates = {one.template for one in outputs()}  # lines with an output
        for name in names:
            case = self._case(lines()[name])
            whole = self._run(case)
            if whole.returncode:
                raise Failure(f"{name}: {whole.stderr.decode()[-500:]}")
            read, broken = os.pipe()
            os.close(read)
            says = bool(whole.stdout)
            writes = lines()[name] in templates
            pipe = (0, 1) if writes else (141, 0)
            with open("/dev/full", "wb") as full:
                for stdout, code, told in ((full, 1, 1), (broken, *pipe), (None, 1, 1)):
                    done = self._run(self._case(lines()[name]), stdout)
                    code, told = (code, told) if says or stdout is None else (0, 0)
                    self._judge(name, done, {code}, told, whole)
            os.close(broken)
        return f"standard output full, broken and closed under {len(names)} commands"

    def every_output_is_whole_or_untouched(self) -> str:
        """Outputs over a file, on a full disk, in a folder that is read-only, beyond a limit."""
        chosen = self._chosen(outputs())
        can_mount = self._can_mount()
        for one in chosen:
            name = f"{one.name} {one.option}"
            case, out = self._with_output(one)
            whole = self._run(case)
            size = out.stat().st_size if out.is_file() else 100
            wanted = None if one.option in CONTINUED else content(out)
            case, out = self._with_output(one, "before")
            done = self._run(case)
            self._judge(name, done, {0} if wanted else {1, 2}, 0 if wanted else 1, whole)
            self._untouched(name, out, wanted)
            for most in (0, min(50, size // 2)):
                case, out = self._with_output(one, "before")
                done = self._run(case, preexec=lambda most=most: limit_files(most))
                self._judge(name, done, {1, 2}, 1, whole)
                self._untouched(name, out, None)
            for old in ("out", "") if can_mount else ():
                self._mounted(one, old, whole)
        return f"{len(chosen)} outputs whole or untouched{'' if can_mount else ', no disk mounted'}"

    def every_output_refuses_inputs(self) -> str:
        """Every output of every command, given the name of each input."""
        chosen, refused = self._chosen(outputs()), 0
        for one in chosen:
            given = fill(one.template, self._seeds(), self.folder)
            own = self._value(one, given)
            read = [word for i, word in enumerate(given.arguments) if i != own]
            for name in given.files:
                if not any(name in word.split("/")[-1].split(":") for word in read):
                    continue  # what lies beside an input, or is continued
                case, _ = self._with_output(one, to=name)
                path = self.folder / "case" / name
                done = self._run(case)
                self._judge(f"{one.name} {one.option} {name}", done, {2}, 1, None)
                if path.read_bytes() != case.files[name]:
                    raise Failure(f"{one.name} {one.option}: {name} was written")
                refused += 1
        return f"{refused} outputs that are inputs refused"

    def every_command_ends_at_a_signal(self) -> str:
        """SIGINT and SIGTERM at random times: 130 and 143, or done."""
        names, times = self._chosen(list(lines())), max(1, self.kills // 10)
        for name in names:
            case = self._case(lines()[name])
            begun = time.monotonic()
            whole = self._run(case)
            seconds = time.monotonic() - begun
            made = self._made(case)
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)) * times:
                case = self._case(lines()[name])
                process = subprocess.Popen(
                    [*_WAITING, *case.arguments], cwd=self.folder / "case",
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS),
                )  # fmt: skip
                time.sleep(self.random.uniform(0.1, 1.1) * seconds)
                process.send_signal(number)
                try:
                    _, said = process.communicate(timeout=120)
                finally:
                    process.kill()
                done = subprocess.CompletedProcess([], process.returncode, b"", said)
                is_told = process.returncode == code
                self._judge(name, done, {0, code, -number}, int(is_told), whole)
                now = self._made(case)
                if any(now[path] != made.get(path) for path in now if path.suffix != ".jsonl"):
                    raise Failure(f"{name}: {number!r} left {sorted(now)}")
        return f"{2 * times} signals to each of {len(names)} commands"

    def _chosen(self, all_of_them: list[Any]) -> list[Any]:
        return all_of_them[self.part]

    def _seeds(self) -> pathlib.Path:
        """Return the folder of valid inputs, written on first use."""
        folder = self.folder / "seeds"
        if not folder.exists():
            folder.mkdir()

            def run(arguments: list[str]) -> tuple[object, str, str]:
                done = self.run(*arguments)
                return done.returncode, done.stdout.decode(), done.stderr.decode()

            write_seeds(folder, run)
        return folder

    def _case(self, template: str) -> Case:
        """Return a line with fresh files in a fresh folder."""
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        (place / "disk").mkdir(parents=True)
        case = fill(template, self._seeds(), place)
        for name, data in case.files.items():
            (place / name).write_bytes(data)
        return case

    def _with_output(
        self, one: Written, before: str = "", to: str = ""
    ) -> tuple[Case, pathlib.Path]:
        """Return a case and the path of its output, which holds `before`, or is `to`."""
        case = self._case(one.template)
        at = self._value(one, case)
        if to:
            case.arguments[at] = str(self.folder / "case" / to)
        elif one.option == "--journal":  # a run of its own
            case.arguments[at] = str(self.folder / "case" / "out.jsonl")
        path = pathlib.Path(case.arguments[at])
        if before:
            path.write_text(before)
        return case, path

    @staticmethod
    def _value(one: Written, case: Case) -> int:
        """Return which argument of a line is the name of the output."""
        command = dict(commands_of(fstgrad))[one.name]
        opts = next(option.opts for option in command.params if one.option in option.opts)
        return next(i for i, word in enumerate(case.arguments) if word in opts) + 1

    def _run(
        self, case: Case, stdout: Any = subprocess.PIPE, preexec: Any = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a case; a standard output of None is closed."""
        words = [*PROGRAM, *case.arguments]
        if stdout is None:
            words = ["sh", "-c", '"$@" >&-', "sh", *words]
        return subprocess.run(
            words, cwd=self.folder / "case", stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=subprocess.PIPE, preexec_fn=preexec, check=False, timeout=300,
        )  # fmt: skip

    def _mounted(self, one: Written, old: str, whole: "subprocess.CompletedProcess[bytes]") -> None:
        """Write to a full disk over an old file, or to a disk that is read-only."""
        case, out = self._with_output(one)
        name, place = f"{one.name} {one.option}", self.folder / "case"
        target = f"out{out.suffix}"
        at = case.arguments.index(str(out))
        case.arguments[at] = str(place / "disk" / target)
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", _MOUNT, "sh", *PROGRAM, *case.arguments], cwd=place,
            env={**os.environ, "OLD": target if old else ""}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=300,
        )  # fmt: skip
        self._judge(f"{name} on a {'full' if old else 'read-only'} disk", done, {1, 2}, 1, whole)
        listing = (place / "listing").read_text().split()
        if set(listing) - {"fill", target} or (old and (place / "kept").read_text() != "before"):
            raise Failure(f"{name}: a full disk has {listing}")

    @staticmethod
    def _can_mount() -> bool:
        try:
            done = subprocess.run(
                ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
            )
        except FileNotFoundError:
            return False
        return done.returncode == 0

    def _judge(
        self,
        name: str,
        done: "subprocess.CompletedProcess[bytes]",
        codes: set[int],
        told: int,
        whole: "subprocess.CompletedProcess[bytes] | None",
    ) -> None:
        """Raise unless a run ended with one of `codes`, `told` lines, and no temporary file."""
        errors = [line for line in done.stderr.splitlines() if line.startswith(b"fstgrad: ")]
        known = [] if whole is None else SECONDS.sub(b"", whole.stderr).splitlines()
        errors = [
            line
            for line in errors
            if SECONDS.sub(b"", line) not in known and b"serial mode" not in line
        ]  # joblib, without a file to lock; fmt: skip
        noise = b"Traceback" in done.stderr or b"Exception ignored" in done.stderr
        if done.returncode not in codes or len(errors) != told or noise:
            raise Failure(f"{name}: exit {done.returncode}, {done.stderr.decode()[-800:]}")
        left = list((self.folder / "case").rglob(".fstgrad-*"))
        if left:
            raise Failure(f"{name}: {left} left behind")

    @staticmethod
    def _untouched(name: str, out: pathlib.Path, wanted: bytes | None) -> None:
        """Raise unless an output is as before, or, where it is `wanted`, the new one."""
        if content(out) != (b"before" if wanted is None else wanted):
            raise Failure(f"{name}: {out.name} was damaged")

    def _made(self, case: Case) -> dict[pathlib.Path, bytes]:
        """Return what the files say that a run has made."""
        place = self.folder / "case"
        return {
            path: content(path)
            for path in place.rglob("*")
            if path.is_file() and path.name not in case.files
        }
