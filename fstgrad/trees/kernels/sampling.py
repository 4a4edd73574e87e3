"""Random spanning trees: Wilson's loop-erased walks, and head by head after Colbourn."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.trees.kernels.elimination import eliminate, substitute


@kernel
def draw(cumulative: FloatArray, rng: np.random.Generator) -> int:
    """Return an index by its cumulative weights, the last of which is the total."""
    last = len(cumulative) - 1
    target = rng.random() * cumulative[last]
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def wilson(
    w: FloatArray,
    root_chance: FloatArray,
    n: int,
    single: bool,
    rng: np.random.Generator,
    heads: IntArray,
) -> None:
    """Write trees (k, n): from each dependent walk to heads until the tree; loops are overwritten.

    root_chance : (n+1,) the marginals of the root arcs, from which a single one is drawn first.
    """
    cumulative = np.zeros((n + 1, n + 1))
    for j in range(1, n + 1):
        total = 0.0
        for h in range(n + 1):
            if not (single and h == 0):
                total += w[h, j]
            cumulative[j, h] = total
    roots = np.cumsum(root_chance)
    for item in range(heads.shape[0]):
        head = heads[item]
        in_tree = np.zeros(n + 1, dtype=np.bool_)
        in_tree[0] = True
        if single:
            child = draw(roots, rng)
            in_tree[child] = True
            head[child - 1] = 0
        for start in range(1, n + 1):
            node = start
            while not in_tree[node]:
                head[node - 1] = draw(cumulative[node], rng)
                node = head[node - 1]
            node = start
            while not in_tree[node]:
                in_tree[node] = True
                node = head[node - 1]


@kernel
def colbourn(
    w: FloatArray, n: int, single: bool, rng: np.random.Generator, heads: IntArray
) -> bool:
    """Write trees (k, n); return whether all pivots were safe.  O(n^4 / 12) a tree.

    The last node draws its head from its exact marginals, given the heads drawn before, and is
    contracted into it: the arcs out of it become arcs out of its head.  Marginals come from the
    elimination of all other nodes, without subtractions.
    """
    for item in range(heads.shape[0]):
        a = np.zeros((2, n + 1, n))
        a[0] = w[: n + 1, 1 : n + 1]
        holder = np.arange(n + 1)
        open_root = single
        cumulative = np.empty(n + 1)
        for j in range(n - 1, -1, -1):
            x = a[:, : j + 2, : j + 1].copy()
            for k in range(j):
                if eliminate(x, k, k + 1, j + 1, open_root, False) == 0.0:
                    return False
            reach = np.zeros((2, j + 2, j + 1))
            for k in range(j - 1, -1, -1):
                substitute(x, k, k + 1, j + 1, 0, j, j + 1, False, reach)
            reach[0, 0, j] = 1.0
            total = 0.0
            for h in range(n + 1):
                if holder[h] != j + 1 and not (h == 0 and single and not open_root):
                    total += w[h, j + 1] * reach[0, holder[h], j]
                cumulative[h] = total
            if not (total > 0.0 and np.isfinite(total)):
                return False
            head = draw(cumulative, rng)
            heads[item, j] = head
            above = holder[head]
            if head == 0 and open_root:
                a[0, 0, :] = 0.0
                open_root = False
            for h in range(n + 1):
                if holder[h] == j + 1:
                    holder[h] = above
            for k in range(j):
                a[0, above, k] += a[0, j + 1, k]
    return True
