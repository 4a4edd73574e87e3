"""Python runs the small work of kernels that are not compiled yet.

A first automaton of some hundred states takes milliseconds in Python, and its kernels take seconds
to compile.  A kernel of integers, or of floats whose operations are rounded one by one (no
`sum_kernel`, no `fused_kernel`, no function of `math` or of linear algebra), gives the same bits
either way.
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
    """The steps of about a microsecond that this process may still interpret."""

    steps: int = 500_000

    def take(self, steps: int) -> bool:
        """Return whether this many steps are left, and subtract them."""
        if steps > self.steps:
            return False
        self.steps -= steps
        return True


INTERPRETER = Interpreter()


def few(kernel: Function, steps: int) -> Function:
    """Return a kernel, or its source for Python where `steps` cost less than to compile it.

    The work of this process is added up, so that the kernels of large or of many problems are
    compiled.
    """
    own: Any = kernel
    if getattr(own, "overloads", True) or own._cache.is_there():
        return kernel
    return cast(Function, interpreted(kernel)) if INTERPRETER.take(steps) else kernel


@contextlib.contextmanager
def compiled_only() -> Iterator[None]:
    """Leave nothing to Python within the block."""
    left, INTERPRETER.steps = INTERPRETER.steps, -1
    try:
        yield
    finally:
        INTERPRETER.steps = left


@functools.cache
def interpreted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel without its compiler; numbers come back as Python's."""
    source = _function(kernel)

    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):  # as compiled code does: hashes wrap, inf - inf is NaN
            result = source(*arguments)
        return tuple(map(_plain, result)) if isinstance(result, tuple) else _plain(result)

    return run


@functools.cache
def _function(kernel: Any) -> Callable[..., Any]:
    """Return the function of a kernel, which calls functions where the kernel calls kernels."""
    function = kernel.py_func
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if hasattr(names.get(name), "py_func"):
            names[name] = _function(names[name])
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
