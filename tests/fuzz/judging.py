"""What is wrong with the end of a case: tracebacks, noise, nonsense."""

import contextlib
import os
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fstgrad as fg
from tests.fuzz import wrong
from tests.fuzz.wrong import Call
from tests.helpers.sources import ROOT

OURS = tuple(str(ROOT / folder) for folder in ("fstgrad", "grammars", "cli"))
_NAN = re.compile(r"^nan$|\tnan$|: NaN|: -?Infinity|= nan", re.M)
WRONG = wrong.__file__
_NOTICE = re.compile(r"^(fstgrad: )?compil(ing|ed \d+) kernels.*\n", re.M)
_NOISE = re.compile(r"Traceback|Warning|^(ERROR|FATAL|WARNING|INFO): |Segmentation|free\(\)", re.M)


def judged(code: object, out: str, err: str, arguments: list[str]) -> str:
    """Return what is wrong with a run of the command line, "" if nothing is."""
    if code not in (0, 1, 2):
        return f"exit {code}: {err.strip()[-1500:]}"
    if _NOISE.search(err):
        return f"noise on standard error: {err.strip()[-1500:]}"
    last = err.strip().splitlines()[-1:] or [""]
    if code and not last[0].startswith("fstgrad: "):
        return f"exit {code} without a line: {err.strip()[-500:]}"
    if "--align" in arguments:  # a loss, three lines of letters, such as "nan", an empty line
        out = "\n".join(out.split("\n")[::5])
    if code == 0 and "--skip-errors" not in arguments and _NAN.search(out):
        return f"accepted nonsense: {out.strip()[:500]}"
    return ""


def made_call(call: Call, arguments: dict[str, Any]) -> str:
    """Make a call; return what is wrong with its end."""
    with file_of_descriptor(2) as raw, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = call(arguments)
        except fg.FstgradError:
            result = 0.0
        except (MemoryError, OSError):
            result = 0.0
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            if any(frame.filename.startswith(("<doctest", "<block")) for frame in frames):
                return ""  # the error of a function of the caller
            ours = [frame for frame in frames if frame.filename.startswith(OURS)] or frames
            if frames[-1].filename == WRONG:  # raised by a function or an iterator of the caller
                return ""
            place = ours[-1]
            return f"{type(error).__name__}: {error} at {place.filename}:{place.lineno}"
        noise = _NOTICE.sub("", raw())
        try:
            nonsense = _has_nan(result)
        except MemoryError:  # a valid result of gigabytes
            nonsense = False
    if noise.strip():
        return f"noise on standard error: {noise[-500:]}"
    return "accepted nonsense: NaN" if nonsense else ""


def _has_nan(value: Any) -> bool:
    if hasattr(value, "_fields"):  # records say with NaN what does not apply
        return False
    if isinstance(value, tuple | list):
        return any(_has_nan(part) for part in value[:20])
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    if type(value).__module__ == "torch" and hasattr(value, "is_floating_point"):
        return value.is_floating_point() and bool(value.isnan().any())
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isnan(value).any())


def signature(what: str) -> str:
    """Return what findings of one cause have in common."""
    return re.sub(r"0x[0-9a-f]+|\d+|/\S*/|'[^']*'", "_", what)[-160:]


def short(value: Any) -> str:
    """Return the first letters of a value, the same in every process."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return re.sub(" at 0x[0-9a-f]+", "", " ".join(text.split()))[:80]


@contextlib.contextmanager
def file_of_descriptor(number: int) -> Iterator[Callable[[], str]]:
    """Catch what libraries in C write to a descriptor."""
    kept = os.dup(number)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)

        def read() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield read
        finally:
            os.dup2(kept, number)
            os.close(kept)
