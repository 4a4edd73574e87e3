"""Long operations of OpenFst, in a process of their own.

OpenFst holds the interpreter lock and looks at no signal until an operation ends, and where memory
ends it ends the process.  So a long operation is run by a fresh interpreter, to which FSTs go, and
which returns the result in OpenFst's binary form; that takes about a tenth of a second.
"""

import json
import os
import subprocess
import sys

from fstgrad.beside import has_interpreter
from fstgrad.errors import FstError, MemoryLimitError
from fstgrad.io import memory_limit
from fstgrad.openfst.binary import Fst, read
from fstgrad.openfst.library import pynini, pywrapfst

_REFUSED = 3  # the exit code where OpenFst raises
_PROGRAM = """
import contextlib, ctypes, json, resource, signal, sys
sys.path[:], name, options, sizes, memory, refused = json.loads(sys.argv[1])
signal.signal(signal.SIGINT, signal.SIG_DFL)
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # on Linux: end when the parent ends
with contextlib.suppress(OSError, ValueError):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
import pynini, pywrapfst
fsts = [pynini.Fst.read_from_string(sys.stdin.buffer.read(size)) for size in sizes]
try:
    result = getattr(pynini, name)(*fsts, **options)
except pywrapfst.FstOpError as error:
    sys.stdout.write(str(error))
    sys.exit(refused)
sys.stdout.buffer.write(result.write_to_string())
"""


def run_apart(name: str, *fsts: pywrapfst.Fst, **options: float) -> Fst:
    """Return `pynini.NAME(*fsts, **options)`, computed by another process.

    An exception here, such as KeyboardInterrupt, ends that process.  Its memory limit is half of
    the limit of this process.

    Raises
    ------
    pywrapfst.FstOpError
        OpenFst refuses; its reason is on standard error, as for a run in this process.
    MemoryLimitError
        The memory does not suffice.
    """
    if not has_interpreter():
        return read(getattr(pynini, name)(*fsts, **options))
    stored = [fst.write_to_string() for fst in fsts]
    sizes, memory = [len(one) for one in stored], memory_limit()
    given = json.dumps([sys.path, name, options, sizes, memory, _REFUSED])
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            result, said = process.communicate(b"".join(stored))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode == 0:
        return Fst.read_from_string(result)
    if process.returncode == _REFUSED:
        os.write(2, said)
        raise pywrapfst.FstOpError(result.decode())
    if process.returncode < 0 or b"MemoryError" in said:
        raise MemoryLimitError(
            f"{name} of OpenFst takes more than half of the memory, {memory:,} bytes; use "
            "engine='layered', shorter strings, or a cap="
        )
    *_, last = said.decode("utf-8", "replace").strip().splitlines() or ["it gives no reason"]
    raise FstError(f"{name} of OpenFst failed in a process of its own: {last}")
