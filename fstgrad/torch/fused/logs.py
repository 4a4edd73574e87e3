"""Sums of exponentials within a kernel."""

import triton
import triton.language as tl


@triton.jit
def finite(values):
    """Return the values with 0 for -inf."""
    return tl.where(values == -float("inf"), 0.0, values)


@triton.jit
def log_add(a, b):
    """Return log(exp(a) + exp(b)), -inf of two -inf."""
    top = finite(tl.maximum(a, b))
    return tl.log(tl.exp(a - top) + tl.exp(b - top)) + top
