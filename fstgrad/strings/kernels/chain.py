"""Strings drawn from a Markov chain by inversion."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def draw(cumulative: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return the strings (k, l) at the quantiles `uniforms` (k, l) in [0, 1); cost O(k l n).

    cumulative : (l, X, n) the distribution function of each symbol by its context, the last entry
        1; contexts are numbers in base n + 1, the oldest symbol first, n before the start.
    """
    length, contexts, n = cumulative.shape
    strings = np.empty(uniforms.shape, dtype=np.int64)
    for i in range(len(uniforms)):
        context = contexts - 1
        for t in range(length):
            point = uniforms[i, t]
            symbol = 0
            while cumulative[t, context, symbol] <= point:
                symbol += 1
            strings[i, t] = symbol
            context = (context * (n + 1) + symbol) % contexts
    return strings
