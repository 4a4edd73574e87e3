"""The points at which a family of counts is summed (`fstgrad.grm.kernels.counts.Table`)."""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.grm import kernels

if TYPE_CHECKING:
    from fstgrad.grm.kernels.counts import Table

SINGLES = 256  # first counts of a table that are single points
Function = Callable[[FloatArray], FloatArray]


def gauss_points(count: int, nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return points and weights (nodes,) of a quadrature for sums over 0, ..., count - 1.

    It is exact for polynomials of degree 2 nodes - 1: the Gauss quadrature of the discrete
    Chebyshev (Gram) polynomials, from the eigenvalues of their Jacobi matrix (Golub and Welsch,
    Mathematics of Computation 1969).
    """
    from scipy.linalg import eigh_tridiagonal

    n = np.arange(1.0, nodes)
    off = 0.5 * n * np.sqrt((count**2 - n**2) / (4 * n**2 - 1))
    values, vectors = eigh_tridiagonal(np.full(nodes, 0.5 * (count - 1)), off)
    return np.asarray(values), np.asarray(count * vectors[0] ** 2)


def panel_edges(first: int, last: int, width: Function) -> IntArray:
    """Return the first count of each panel from `first` on, then the end of the last panel.

    The last panel contains `last` - 1.  width : a function from x to the number of counts of a
    panel that starts at x; a panel has at least 2 NODES counts.
    """
    edges = [first]
    while edges[-1] < last:
        here = float(width(np.array(float(edges[-1]))))
        edges.append(edges[-1] + max(2 * kernels.counts.NODES, int(here)))
    return np.array(edges, dtype=np.int64)


def smooth_table(
    log_base: Function,
    statistics: Function,
    *,
    last: int,
    width: Function,
    base_limit: float,
    linear: FloatArray,
) -> "Table":
    """Return the table of a family whose B and t are smooth functions of x.

    Parameters
    ----------
    log_base, statistics : functions of x (m,), to (m,) and (m, k)
    last : int
        The panels extend at least up to this count; the family has more counts.
    width : function
        From x to the number of counts of a panel at x: about the standard deviation of the
        narrowest distribution of the family around x.
    base_limit : float
        The limit of B(x + 1) - B(x).
    linear : (k,) float64
        The limits of t_j(x + 1) - t_j(x): 1 for T = x, 0 for its roots.
    """
    edges = panel_edges(SINGLES, last, width)
    points, weights, shares = [np.arange(float(SINGLES))], [np.ones(SINGLES)], []
    for first, end in pairwise(edges.tolist()):
        place, weight = gauss_points(end - first, kernels.counts.NODES)
        points.append(first + place)
        weights.append(weight)
        gaps = place[:, None] - place[None, :] + np.eye(kernels.counts.NODES)
        share = 1.0 / gaps.prod(axis=1)
        shares.append(share / np.abs(share).max())
    x = np.concatenate(points)
    base, values = log_base(x), statistics(x)
    increments = np.column_stack([log_base(x + 1) - base, statistics(x + 1) - values])
    limits = np.concatenate([[base_limit], linear])
    later, earlier = _increment_bounds(increments, limits)
    return kernels.counts.Table(
        x, np.concatenate(weights), base, np.ascontiguousarray(values), later, earlier, SINGLES,
        edges, np.array(shares).reshape(-1, kernels.counts.NODES), False,
    )  # fmt: skip


def finite_table(log_base: FloatArray, statistics: FloatArray) -> "Table":
    """Return the table of a family on the counts 0, ..., m - 1, all single points.

    log_base : (m,), B.  statistics : (m, k), t.
    """
    count = len(log_base)
    base = np.where(np.isneginf(log_base), -1e300, log_base)
    values = np.column_stack([base, statistics])
    increments = np.diff(np.vstack([values, values[-1:]]), axis=0)
    later, earlier = _increment_bounds(increments, np.zeros(values.shape[1]))
    return kernels.counts.Table(
        np.arange(float(count)), np.ones(count), log_base, np.ascontiguousarray(statistics), later,
        earlier, count, np.array([count], dtype=np.int64), np.zeros((0, kernels.counts.NODES)),
        True,
    )  # fmt: skip


def with_zero_indicator(table: "Table") -> "Table":
    """Return the table with one more statistic, 1[x = 0]."""
    indicator = (table.points == 0).astype(float)[:, None]
    falls = np.column_stack([-indicator, np.zeros(len(indicator))])  # least, largest increment
    before = np.column_stack([np.full(len(indicator), -1.0), np.zeros(len(indicator))])
    return table._replace(
        statistics=np.hstack([table.statistics, indicator]),
        later=np.hstack([table.later, falls]),
        earlier=np.hstack([table.earlier, before]),
    )


def _increment_bounds(increments: FloatArray, limits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `later` and `earlier` (q, 1 + 2 k) of a table from increments (q, 1 + k) of B and t.

    increments[q] is the increment from x_q to x_q + 1; beyond the last point, increments tend to
    limits (1 + k,).
    """
    with_limits = np.vstack([increments, limits])
    largest = np.maximum.accumulate(with_limits[::-1], axis=0)[::-1][:-1]
    least = np.minimum.accumulate(with_limits[::-1], axis=0)[::-1][:-1]
    later = empty((len(increments), 1 + 2 * (increments.shape[1] - 1)))
    earlier = empty(later.shape)
    later[:, 0] = largest[:, 0]
    later[:, 1::2], later[:, 2::2] = least[:, 1:], largest[:, 1:]
    earlier[:, 0] = np.minimum.accumulate(increments[:, 0])
    earlier[:, 1::2] = np.minimum.accumulate(increments[:, 1:], axis=0)
    earlier[:, 2::2] = np.maximum.accumulate(increments[:, 1:], axis=0)
    return later, earlier
