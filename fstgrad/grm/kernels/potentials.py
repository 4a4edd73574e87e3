"""The natural parameters of every node conditional, row by row."""

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def add_interactions(
    statistics: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    eta: FloatArray,
) -> None:
    """Add theta_S prod_{t in S, t != s} t_j(x_t) to eta (n, p, k) for every set S and s in S.

    statistics : (n, p, k).  roots : (m,), from 1.  members : (m, largest size), padded with -1.
    Cost O(n m size^2); a row where two members of a set are 0 is left at once.
    """
    for row in range(statistics.shape[0]):
        for number in range(values.shape[0]):
            j = roots[number] - 1
            zeros = 0
            for a in range(sizes[number]):
                if statistics[row, members[number, a], j] == 0.0:
                    zeros += 1
            if zeros > 1:
                continue
            for a in range(sizes[number]):
                product = values[number]
                for b in range(sizes[number]):
                    if b != a:
                        product *= statistics[row, members[number, b], j]
                eta[row, members[number, a], j] += product


@kernel
def add_energies(
    statistics: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    energy: FloatArray,
) -> None:
    """Add sum_S theta_S prod_{t in S} t_j(x_t) to energy (n,)."""
    for row in range(statistics.shape[0]):
        for number in range(values.shape[0]):
            product = values[number]
            for a in range(sizes[number]):
                product *= statistics[row, members[number, a], roots[number] - 1]
            energy[row] += product
