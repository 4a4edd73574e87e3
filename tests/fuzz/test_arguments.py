"""No public function changes its arguments: all take read-only arrays."""

import gc

import numpy as np
import pytest
from numba import types
from numba.core.dispatcher import Dispatcher
from scipy import sparse

from tests.fuzz.calls import calls, make
from tests.fuzz.examples import recorded


def read_only(value, arrays, depth=0):
    """Return a value with copies of its arrays, read-only, which are added to `arrays`."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        copied = value.copy(order="K")
        copied.flags.writeable = False
        arrays.append(copied)
        return copied
    if sparse.issparse(value):
        copied = value.copy()
        own = [array for array in vars(copied).values() if isinstance(array, np.ndarray)]
        for array in own:
            array.flags.writeable = False
        arrays.extend(own)
        return copied
    if depth < 3 and type(value) in (list, tuple):
        return type(value)(read_only(part, arrays, depth + 1) for part in value)
    if depth < 3 and type(value) is dict:
        return {key: read_only(part, arrays, depth + 1) for key, part in value.items()}
    return value


def kernels():
    """Return {kernel: signatures}."""
    found = [o for o in gc.get_objects() if issubclass(type(o), Dispatcher)]  # not their proxies
    return {o: set(o.signatures) for o in found if o.py_func.__module__.startswith("fstgrad.")}


def writable(kind):
    """Return a numba type with all arrays writable."""
    if isinstance(kind, types.Array):
        return kind.copy(readonly=False)
    if isinstance(kind, types.BaseTuple):
        return tuple(map(writable, kind))
    return kind


@pytest.mark.slow
def test_read_only_arrays_are_enough_and_compile_nothing():
    calls()  # with writable arrays
    before = kernels()

    def add(name, function, /, *given, **named):
        arrays = []
        given, named = read_only(given, arrays), read_only(named, arrays)
        content = [array.tobytes() for array in arrays]
        result = function(*given, **named)
        assert [array.tobytes() for array in arrays] == content, name
        return result

    make(add)
    again = set()
    for kernel, now in kernels().items():
        known = before.get(kernel, set())
        plain = {tuple(map(writable, signature)) for signature in known}
        if any(tuple(map(writable, signature)) in plain for signature in now - known):
            again.add(f"{kernel.py_func.__module__}.{kernel.py_func.__name__}")
    assert not sorted(again), "compiled for read-only arrays, too"


@pytest.mark.slow
def test_no_example_changes_its_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in recorded(tmp_path):
        arrays, arguments = [], dict(call.arguments)
        out = arguments.pop("out", None)  # which a function adds to
        arguments = read_only(arguments, arrays)
        if not arrays:
            continue
        if out is not None:
            arguments["out"] = np.array(out)
        content = [array.tobytes() for array in arrays]
        call(arguments)
        assert [array.tobytes() for array in arrays] == content, call.name
