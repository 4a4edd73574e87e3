"""Rows of a weight matrix added up for each position, and the adjoint.

The active features of position s are `ids[starts[s] : starts[s + 1]]`.  In numpy these are
`np.add.reduceat` and `np.add.at`.
"""

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def gather(starts: IntArray, ids: IntArray, weights: FloatArray, out: FloatArray) -> None:
    """Write out[s] = sum of weights[f] over the features f of position s; (F, n) to (l, n)."""
    out[:] = 0.0
    for s in range(len(out)):
        for k in range(starts[s], starts[s + 1]):
            for j in range(out.shape[1]):
                out[s, j] += weights[ids[k], j]


@kernel
def scatter(starts: IntArray, ids: IntArray, table: FloatArray, out: FloatArray) -> None:
    """Add table[s] to out[f] for every feature f of every position s; (l, n) to (F, n)."""
    for s in range(len(table)):
        for k in range(starts[s], starts[s + 1]):
            for j in range(table.shape[1]):
                out[ids[k], j] += table[s, j]
