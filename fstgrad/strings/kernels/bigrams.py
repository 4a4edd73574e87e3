"""Bigram weights from emissions and transitions, and sums over such tables."""

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel, sum_kernel


@kernel
def spread(emissions: FloatArray, transitions: FloatArray, table: FloatArray) -> None:
    """Write table[t, k, b] = emissions[t, b] transitions[k, b]; 0 in contexts that cannot occur.

    emissions : (l, n), exp(emission)
    transitions : (n + 1, n), exp(transition); row n is the start
    table : (l, n + 1, n)
    """
    length, n = emissions.shape
    for t in range(length):
        for k in range(n + 1):
            occurs = (k == n) == (t == 0)
            for b in range(n):
                table[t, k, b] = emissions[t, b] * transitions[k, b] if occurs else 0.0


@sum_kernel
def fold(table: FloatArray, emissions: FloatArray, transitions: FloatArray) -> None:
    """Write the sums over contexts to `emissions`; add the sums over positions to `transitions`.

    table : (l, n + 1, n); emissions : (l, n); transitions : (n + 1, n), zeros at first
    """
    length, contexts, n = table.shape
    for t in range(length):
        for b in range(n):
            emissions[t, b] = 0.0
        lo, hi = (contexts - 1, contexts) if t == 0 else (0, contexts - 1)
        for k in range(lo, hi):
            for b in range(n):
                emissions[t, b] += table[t, k, b]
                transitions[k, b] += table[t, k, b]
