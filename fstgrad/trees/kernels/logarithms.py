"""Steps of `elimination` on logarithms, with derivatives along up to two directions.

A number is a column of slots: its logarithm l, the derivatives l_a and l_b of l along a and b, and
the mixed derivative l_ab.  Arrays have 1, 2 or 4 slots along axis 0.  Zero is (-inf, 0, 0, 0).
Products add slots.  A sum of x and y with the shares p and q = 1 - p has

    l_a = p x_a + q y_a,    l_ab = p x_ab + q y_ab + p q (x_a - y_a) (x_b - y_b).
"""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel


@kernel
def add(sums: FloatArray, terms: FloatArray) -> None:
    """Add the terms (slots, m) to the sums (slots, m), element by element."""
    for j in range(sums.shape[1]):
        x, y = sums[0, j], terms[0, j]
        if y == -np.inf:
            continue
        if x == -np.inf:
            for slot in range(len(sums)):
                sums[slot, j] = terms[slot, j]
            continue
        if x >= y:
            small = np.exp(y - x)
            sums[0, j] = x + np.log1p(small)
            share = small / (1.0 + small)
        else:
            small = np.exp(x - y)
            sums[0, j] = y + np.log1p(small)
            share = 1.0 / (1.0 + small)
        if len(sums) > 1:
            gap = terms[1, j] - sums[1, j]
            sums[1, j] += share * gap
        if len(sums) > 2:
            other = terms[2, j] - sums[2, j]
            sums[2, j] += share * other
            both = share * (1.0 - share) * gap * other
            sums[3, j] += share * (terms[3, j] - sums[3, j]) + both


@kernel
def multiply(factor: FloatArray, row: FloatArray, out: FloatArray) -> None:
    """Write factor (slots, 1) times row (slots, m)."""
    for j in range(row.shape[1]):
        zero = factor[0, 0] == -np.inf or row[0, j] == -np.inf
        for slot in range(len(row)):
            out[slot, j] = factor[slot, 0] + row[slot, j]
            if zero:
                out[slot, j] = -np.inf if slot == 0 else 0.0


@kernel
def eliminate(x: FloatArray, k: int, low: int, high: int, single: bool, work: FloatArray) -> float:
    """Eliminate node k from the nodes low .. high-1; return log s_k.

    work : (slots, m), m at least the number of nodes of x.
    """
    pivot = np.zeros((len(x), 1))
    pivot[0, 0] = -np.inf
    if not single:
        add(pivot, x[:, 0, k : k + 1])
    for i in range(low + 1, high + 1):
        add(pivot, x[:, i, k : k + 1])
    if pivot[0, 0] == -np.inf:
        return -np.inf
    for step in range(low, high + 1):
        i = 0 if step == low else step
        share = x[:, i, k : k + 1]
        if share[0, 0] > -np.inf:
            for slot in range(len(x)):
                share[slot, 0] -= pivot[slot, 0]
            through = work[:, : high - low]
            multiply(share, x[:, k + 1, low:high], through)
            add(x[:, i, low:high], through)
    return float(pivot[0, 0])


@kernel
def substitute(
    x: FloatArray, k: int, low: int, high: int, reach: FloatArray, out: FloatArray, work: FloatArray
) -> None:
    """Add the sum over the nodes i in low .. high-1 of p_ik e_i to `out`, rows (slots, m).

    reach : (slots, nodes + 1, m), e of the root and the nodes of x.
    """
    through = work[:, : out.shape[1]]
    for i in range(low, high):
        share = x[:, i + 1, k : k + 1]
        if share[0, 0] > -np.inf:
            multiply(share, reach[:, i + 1], through)
            add(out, through)
