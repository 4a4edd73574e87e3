"""Alignments of two sequences: expected numbers of links, and the best alignment."""

import math

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty, empty_like


@kernel
def all_links(
    xs: IntArray,
    x_first: IntArray,
    most: IntArray,
    ys: IntArray,
    y_first: IntArray,
    empties: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return (source, nextstate, u, v, first_link, first_node) of the alignments of all pairs.

    xs (positions, max_x) and ys (positions, max_y) hold the numbers of the substrings that start at
    each position.  most (positions + 1,) is the greatest length of v for a u that starts there; for
    an insertion, that of the position before it, or the last entry if x is empty.
    empties = (whether u may be empty, whether v may be empty).
    """
    pairs = len(x_first) - 1
    first_link = np.zeros(pairs + 1, dtype=np.int64)
    first_node = np.zeros(pairs + 1, dtype=np.int64)
    most_x = xs.shape[1]
    # two runs of the same loops: the first counts the links, the second writes them
    # i + a <= size_x and j + b <= size_y, so nextstate < first_node[p + 1]; if a or b is not 0,
    # there is an entry of xs or ys
    source = nextstate = u = v = np.zeros(0, dtype=np.int64)
    for writes in (False, True):
        if writes:
            source = empty(first_link[pairs], dtype=np.int64)
            nextstate, u, v = empty_like(source), empty_like(source), empty_like(source)
        link = 0
        for p in range(pairs):
            size_x, size_y = x_first[p + 1] - x_first[p], y_first[p + 1] - y_first[p]
            for i in range(size_x + 1):
                for j in range(size_y + 1):
                    for a in range(1 - empties[0], min(most_x, size_x - i) + 1):
                        place = x_first[p] + max(0, i - (a == 0))
                        limit = most[place if size_x > 0 else len(most) - 1]
                        for b in range(1 - empties[1], min(limit, size_y - j) + 1):
                            if a + b == 0:
                                continue
                            if writes:
                                source[link] = first_node[p] + i * (size_y + 1) + j
                                nextstate[link] = source[link] + a * (size_y + 1) + b
                                u[link] = xs[x_first[p] + i, a - 1] if a else 0
                                v[link] = ys[y_first[p] + j, b - 1] if b else 0
                            link += 1
            first_link[p + 1] = link
            first_node[p + 1] = first_node[p] + (size_x + 1) * (size_y + 1)
    return source, nextstate, u, v, first_link, first_node


@kernel
def complete_links(
    first_link: IntArray, first_node: IntArray, source: IntArray, nextstate: IntArray
) -> BoolArray:
    """Return a mask (links,) of the links that are on an alignment of their whole pair."""
    # source < nextstate < nodes; links are sorted by source, so each pass meets a node's links in
    # order
    nodes = first_node[-1]
    begun, ended = np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_)
    begun[first_node[:-1]] = True
    ended[first_node[1:] - 1] = True
    for k in range(len(source)):
        begun[nextstate[k]] |= begun[source[k]]
    for k in range(len(source) - 1, -1, -1):
        ended[source[k]] |= ended[nextstate[k]]
    is_complete = empty(len(source), dtype=np.bool_)
    for k in range(len(source)):
        is_complete[k] = begun[source[k]] and ended[nextstate[k]]
    return is_complete


@kernel
def expected_links(
    first_link: IntArray,
    first_node: IntArray,
    source: IntArray,
    nextstate: IntArray,
    kind: IntArray,
    log_p: FloatArray,
    counts: FloatArray,
    log_z: FloatArray,
) -> None:
    """Add the expected number of links of each kind to counts (K,); write log p of each pair.

    This runs a forward and a backward pass over the links of each pair, on logarithms; a pair of
    probability zero adds nothing.  The nodes of pair p are first_node[p] .. first_node[p + 1] - 1,
    the start first.
    """
    # base <= source < nextstate < base + size for the links of a pair, and kind < K
    for p in range(len(first_link) - 1):
        base = first_node[p]
        size = first_node[p + 1] - base
        alpha, beta = np.full(size, -np.inf), np.full(size, -np.inf)
        alpha[0] = beta[size - 1] = 0.0
        for k in range(first_link[p], first_link[p + 1]):
            s, g = source[k] - base, nextstate[k] - base
            alpha[g] = _log_sum(alpha[g], alpha[s] + log_p[kind[k]])
        for k in range(first_link[p + 1] - 1, first_link[p] - 1, -1):
            s, g = source[k] - base, nextstate[k] - base
            beta[s] = _log_sum(beta[s], beta[g] + log_p[kind[k]])
        log_z[p] = alpha[size - 1]
        if log_z[p] == -np.inf:
            continue
        for k in range(first_link[p], first_link[p + 1]):
            s, g = source[k] - base, nextstate[k] - base
            log_posterior = alpha[s] + log_p[kind[k]] + beta[g] - log_z[p]
            counts[kind[k]] += math.exp(min(log_posterior, 0.0))  # above 0 only by rounding


@kernel
def best_links(
    first_link: IntArray,
    first_node: IntArray,
    source: IntArray,
    nextstate: IntArray,
    kind: IntArray,
    log_p: FloatArray,
) -> BoolArray:
    """Return a mask (links,) of the links on the most probable alignment of their pair."""
    # last holds a link of the pair, or -1 at the start, so the loop over node ends at the start
    chosen = np.zeros(len(source), dtype=np.bool_)
    for p in range(len(first_link) - 1):
        base = first_node[p]
        size = first_node[p + 1] - base
        best, last = np.full(size, -np.inf), np.full(size, -1)
        best[0] = 0.0
        for k in range(first_link[p], first_link[p + 1]):
            value = best[source[k] - base] + log_p[kind[k]]
            if value > best[nextstate[k] - base]:
                best[nextstate[k] - base], last[nextstate[k] - base] = value, k
        node = size - 1
        while last[node] >= 0:
            chosen[last[node]] = True
            node = source[last[node]] - base
    return chosen


@inner_kernel
def _log_sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + math.log1p(math.exp(b - a))
