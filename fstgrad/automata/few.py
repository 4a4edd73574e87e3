"""Run small problems in Python while their kernels are not compiled yet.

Python builds a first automaton of a few hundred states in milliseconds; compiling its kernels takes
seconds.  Both give the same bits if a kernel computes on integers, or on floats with each operation
rounded separately (no `sum_kernel`, no `fused_kernel`, no function of `math` or linear algebra).
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Interpreter:
    """The number of steps (about a microsecond each) that this process may still run in Python."""

    steps: int = 500_000

    def take(self, steps: int) -> bool:
        """Return whether this many steps are left; if so, subtract them."""
        if steps > self.steps:
            return False
        self.steps -= steps
        return True


INTERPRETER = Interpreter()


def few(kernel: Function, steps: int) -> Function:
    """Return the kernel, or its Python function if it is not compiled and the work is small.

    The `steps` of all calls in this process add up, so that large or many problems use compiled
    kernels.
    """
    own: Any = kernel
    if getattr(own, "overloads", True) or own._cache.is_there():
        return kernel
    return cast(Function, interpreted(kernel)) if INTERPRETER.take(steps) else kernel


@contextlib.contextmanager
def compiled_only() -> Iterator[None]:
    """Make `few` return compiled kernels only, within the block."""
    left, INTERPRETER.steps = INTERPRETER.steps, -1
    try:
        yield
    finally:
        INTERPRETER.steps = left


@functools.cache
def interpreted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel as a Python function, which returns Python numbers."""
    source = _function(kernel)

    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):  # like compiled code: hashes wrap, inf - inf is NaN
            result = source(*arguments)
        return tuple(map(_plain, result)) if isinstance(result, tuple) else _plain(result)

    return run


@functools.cache
def _function(kernel: Any) -> Callable[..., Any]:
    """Return the Python function of a kernel; it calls the functions of other kernels likewise."""
    function = kernel.py_func
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if hasattr(names.get(name), "py_func"):
            names[name] = _function(names[name])
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
