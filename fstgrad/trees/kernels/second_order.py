"""Covariances of totals of sparse vectors of arcs: T2^h with sparse accumulation.

The covariances of pairs of arcs are those of `fstgrad.trees.arc_covariances`, computed one at a
time and added where both arcs have non-zeros.
"""

from typing import NamedTuple

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty


class SparseVectors(NamedTuple):
    """Vectors of all arcs: those of arc a are in [starts[a], starts[a + 1]), as in CSR arrays."""

    starts: IntArray
    columns: IntArray
    values: FloatArray


@kernel
def add_covariances(
    w: FloatArray, g: FloatArray, b: FloatArray, r: SparseVectors, s: SparseVectors, out: FloatArray
) -> None:
    """Add sum of Cov[arc, other arc] r_arc s_other' over all pairs of arcs to out (R, S).

    w, g : weights and gradient (n+1, n+1); b (n+1,) as in `fstgrad.trees.arc_covariances`.
    """
    size = len(w)
    row, into, of_j = empty(out.shape[1]), empty(size), empty(size)
    for arc in range(size * size):
        if r.starts[arc] == r.starts[arc + 1]:
            continue
        h, j = arc // size, arc % size
        for l in range(size):
            of_j[l] = g[l, j]
            into[l] = g[h, l] - b[h] * g[j, l]
        # row = Cov[arc, others] s / w_hj; the arc with itself has the marginal w_hj g_hj more
        row[:] = 0.0
        for at in range(s.starts[arc], s.starts[arc + 1]):
            row[s.columns[at]] += g[h, j] * s.values[at]
        for k in range(size):
            for l in range(size):
                covariance = -w[k, l] * (of_j[k] - b[k] * of_j[l]) * into[l]
                for at in range(s.starts[k * size + l], s.starts[k * size + l + 1]):
                    row[s.columns[at]] += covariance * s.values[at]
        for at in range(r.starts[arc], r.starts[arc + 1]):
            factor, line = w[h, j] * r.values[at], out[r.columns[at]]
            for i in range(len(row)):
                line[i] += factor * row[i]
