"""Run long OpenFst operations in a separate process.

During an operation OpenFst holds the interpreter lock and ignores signals, and when memory runs out
it kills the process.  A long operation therefore runs in a fresh interpreter, which receives the
FSTs and returns the result in OpenFst's binary form.  This adds about a tenth of a second.
"""

import json
import os
import subprocess
import sys

from fstgrad.core.errors import FstError, MemoryLimitError
from fstgrad.core.threads import has_interpreter
from fstgrad.io import memory_limit
from fstgrad.openfst.conversion import Fst, read
from fstgrad.openfst.library import pynini, pywrapfst

_REFUSED = 3  # exit code of the process if OpenFst raises FstOpError
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


def run_in_subprocess(name: str, *fsts: pywrapfst.Fst, **options: float) -> Fst:
    """Return `pynini.NAME(*fsts, **options)`, computed in another process.

    An exception in this process, such as KeyboardInterrupt, kills the other one.  Its memory limit
    is `fstgrad.io.memory_limit()`, half of the memory of this process.  If `sys.executable` is not
    Python, the operation runs in this process.

    Raises
    ------
    pywrapfst.FstOpError
        OpenFst rejects the operation; its reason goes to standard error, as in this process.
    MemoryLimitError
        The process runs out of memory.
    FstError
        The process fails for another reason.
    """
    if not has_interpreter():
        return read(getattr(pynini, name)(*fsts, **options))
    binary_fsts = [fst.write_to_string() for fst in fsts]
    sizes, memory = [len(fst) for fst in binary_fsts], memory_limit()
    arguments = json.dumps([sys.path, name, options, sizes, memory, _REFUSED])
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            result, messages = process.communicate(b"".join(binary_fsts))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode == 0:
        return Fst.read_from_string(result)
    if process.returncode == _REFUSED:
        os.write(2, messages)
        raise pywrapfst.FstOpError(result.decode())
    if process.returncode < 0 or b"MemoryError" in messages:
        raise MemoryLimitError(
            f"{name} of OpenFst takes more than half of the memory, {memory:,} bytes; use "
            "engine='layered', shorter strings, or a cap="
        )
    *_, reason = messages.decode("utf-8", "replace").strip().splitlines() or ["it gives no reason"]
    raise FstError(f"{name} of OpenFst failed in a separate process: {reason}")
