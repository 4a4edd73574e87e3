"""Arrays whose entries are not set yet: `empty` and `empty_like`, in Python and in kernels.

They are those of NumPy.  If the environment variable FSTGRAD_DEBUG_EMPTY is 1, new arrays are
filled instead, so that an entry that is read before it is written shows: floats with NaN, integers
with bytes 0xAA (as an index, far outside of any array) and booleans with True.  The cache of
compiled kernels keeps those of the two modes apart.
"""

import os
from typing import Any, cast

import numpy as np
import numpy.typing as npt

IS_FILLED = os.environ.get("FSTGRAD_DEBUG_EMPTY") == "1"

empty = np.empty
empty_like = np.empty_like


def filler(dtype: npt.DTypeLike) -> Any:
    """Return what the debug mode writes into the entries of a new array."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.frombuffer(b"\xaa" * dtype.itemsize, dtype)[0]
    return np.array(np.nan if dtype.kind in "fc" else True, dtype)[()]


def filled(shape: Any, dtype: Any = np.float64) -> Any:
    """Return a new array in the debug mode; a kernel compiles this too."""
    array = np.empty(shape, dtype)
    _fill(array)
    return array


def filled_like(prototype: Any, dtype: Any = None) -> Any:
    """Return a new array of the shape and dtype of another in the debug mode."""
    array = np.empty_like(prototype, dtype)
    _fill(array)
    return array


def _fill(array: npt.NDArray[Any]) -> None:
    array.fill(filler(array.dtype))


if IS_FILLED:
    from numba.extending import overload, register_jitable

    from fstgrad.core.numba_internals import as_dtype

    def _fill_in_kernels(array: Any) -> Any:
        value = filler(as_dtype(array.dtype))

        def fill(array: Any) -> None:
            array.fill(value)

        return fill

    overload(_fill)(_fill_in_kernels)
    empty = cast(Any, register_jitable(filled))
    empty_like = cast(Any, register_jitable(filled_like))
