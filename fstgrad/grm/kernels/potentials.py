"""Kernels for the interactions of all sets: in node conditionals and in the joint potential.

A set S of the term with root j has the coefficient theta_S and the potential
theta_S prod_{t in S} t_j(x_t), in nats.  The sets are the arrays of `Parameters.flat`: sizes (m,),
roots (m,) from 1, members (m, largest size) padded with -1, values (m,) = theta_S.
"""

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel


@kernel
def add_interactions(
    statistics: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    eta: FloatArray,
) -> None:
    """Add theta_S prod_{t in S, t != s} t_j(x_t) to eta[row, s, j - 1], for every S and s in S.

    statistics : (n, p, >= k).  eta : (n, p, >= k), changed in place.
    Cost O(n m size^2); a set is skipped in a row in which two of its members are 0.
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
    """Add sum_S theta_S prod_{t in S} t_j(x_t) to energy (n,), for statistics (n, p, >= k).

    Cost O(n m size).
    """
    for row in range(statistics.shape[0]):
        for number in range(values.shape[0]):
            product = values[number]
            for a in range(sizes[number]):
                product *= statistics[row, members[number, a], roots[number] - 1]
            energy[row] += product
