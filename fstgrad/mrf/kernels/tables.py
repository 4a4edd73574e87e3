"""Kernels on dense tables over several variables, flat arrays with the last variable fastest.

`strides[k]` is the step in the smaller table for one step of axis k of the larger one; 0 where the
smaller table does not have that variable.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def add_table(large: FloatArray, shape: IntArray, small: FloatArray, strides: IntArray) -> None:
    """Add `small` to every cell of `large` that projects onto its cells."""
    inner = len(shape) - 1
    position = np.zeros(len(shape), np.int64)
    offset = 0
    for row in range(0, len(large), shape[inner]):
        for c in range(shape[inner]):
            large[row + c] += small[offset + c * strides[inner]]
        offset = advance(position, shape, strides, offset)


@kernel
def sum_table(large: FloatArray, shape: IntArray, small: FloatArray, strides: IntArray) -> None:
    """Add every cell of `large` to its projection in `small`."""
    inner = len(shape) - 1
    position = np.zeros(len(shape), np.int64)
    offset = 0
    for row in range(0, len(large), shape[inner]):
        for c in range(shape[inner]):
            small[offset + c * strides[inner]] += large[row + c]
        offset = advance(position, shape, strides, offset)


@kernel
def advance(position: IntArray, shape: IntArray, strides: IntArray, offset: int) -> int:
    """Step `position`, all axes but the last, like an odometer; return the new offset."""
    for k in range(len(shape) - 2, -1, -1):
        position[k] += 1
        offset += strides[k]
        if position[k] < shape[k]:
            break
        offset -= strides[k] * shape[k]
        position[k] = 0
    return offset


@kernel
def eliminate(clique: FloatArray, size: int, message: FloatArray) -> None:
    """Sum out the last variable: message = log sum exp, clique = P(variable | rest)."""
    for row in range(len(message)):
        at = row * size
        top = -np.inf
        for c in range(size):
            top = max(top, clique[at + c])
        if top == -np.inf:
            message[row] = -np.inf
            clique[at : at + size] = 0.0
            continue
        norm = 0.0
        for c in range(size):
            clique[at + c] = np.exp(clique[at + c] - top)
            norm += clique[at + c]
        for c in range(size):
            clique[at + c] /= norm
        message[row] = top + np.log(norm)


@kernel
def eliminate_maximum(
    clique: FloatArray, size: int, message: FloatArray, best: npt.NDArray[np.int32]
) -> None:
    """Maximise over the last variable: message = maximum, best = where it is."""
    for row in range(len(message)):
        at = row * size
        best[row] = 0
        for c in range(size):
            if clique[at + c] > clique[at + best[row]]:
                best[row] = c
        message[row] = clique[at + best[row]]
