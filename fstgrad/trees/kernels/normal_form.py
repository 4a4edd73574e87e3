"""Normal form of a table of scores: without negligible arcs and without a constant of all trees.

The chosen scores y_c of a search for the best tree (`arborescence`) are a solution of the dual
linear program: with the reduced score r_ij = s_ij - sum of y_c over the components c that the arc
i -> j enters, the score of a tree is

    sum of y_c over all c  +  sum of r over its arcs  +  sum of y_c (entries into c - 1),

where r <= 0, y_c <= 0 for a contracted cycle c, and both of the last sums are 0 for the best tree.
Let H = sum_j log sum_i exp(r_ij).  All trees that use the arc i -> j together weigh at most
exp(r_ij + H) times the best tree, and those that enter c twice at most exp(y_c + H) times.  So arcs
below a limit of -(H + 50) are dropped, and y_c is raised to the limit: log Z and marginals change
by less than e^-50.  Scores such as -1e30 that stand for "forbidden" then have no effect on the
other numbers, in whichever cells they are.

Single root: a closed component, which only root arcs enter, contains the root's only dependent.
All trees enter it once, so its y_c is a constant, and root arcs to other nodes are dropped.

Sums of y_c are pairs (value, rounding error), because 0.3 - 1e30 + 1e30 must be 0.3.
"""

import numpy as np

from fstgrad.core.checks import LARGEST_SCORE, BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.trees.kernels.arborescence import best_heads, expand, search
from fstgrad.trees.kernels.matrix_tree import LEAST

# Arcs and second entries are negligible if their weight relative to all trees is below exp(-50).
MARGIN = 50.0
# Scores beyond this may hide others by rounding; the best tree is then searched in the normal form.
LARGE = 1e5
# Scores this far below others (nats) have no weight, not even all trees with them together.
FAR = 1e5
# Scores over a range below this keep their digits next to masks.
HUGE = 1e10


@kernel
def lift_masks(scores: FloatArray, out: FloatArray) -> bool:
    """Write scores (n+1, n+1) with the same probabilities and masks just below the other scores.

    If a group of scores is so far below all higher ones that a tree with one more of its arcs has
    no weight, then its distance does not matter, and the whole group is raised to where this only
    just holds.  Masks would otherwise hide other scores, and each other, by rounding.  Return
    whether scores changed.
    """
    raise_least(scores, out)
    out[:, 0] = -np.inf
    for i in range(len(out)):
        out[i, i] = -np.inf
    values = np.sort(out.reshape(-1))[::-1]
    values = values[: np.sum(values > -np.inf)]
    if len(values) == 0 or values[0] - values[-1] < HUGE:
        return False
    base = values[0] if abs(values[0]) > HUGE else 0.0  # nothing but masks
    lifted = values - base
    n, first, groups = len(out) - 1, 0, int(base != 0.0)
    for k in range(1, len(values)):
        if groups > 0:
            lifted[k] = lifted[first] + (values[k] - values[first])
        gap, above = values[k - 1] - values[k], lifted[0] - lifted[k - 1]
        wide = max(HUGE, FAR + n * above)
        if gap > wide:
            last = k
            while last + 1 < len(values) and values[last] - values[last + 1] <= wide:
                last += 1
            spread = values[k] - values[last]
            lifted[k] = lifted[k - 1] - min(gap, FAR + n * (above + spread))
            first = k
            groups += 1
    if groups == 0:
        return False
    for i in range(len(out)):
        for j in range(len(out)):
            if out[i, j] > -np.inf:
                out[i, j] = lifted[np.searchsorted(-values, -out[i, j])]
    return True


@kernel
def raise_least(scores: FloatArray, out: FloatArray) -> None:
    """Write the scores, with finite ones below LEAST raised to LEAST."""
    for i in range(len(out)):
        for j in range(len(out)):
            value = scores[i, j]
            out[i, j] = LEAST if -np.inf < value < LEAST else value


@part_kernel
def add_exactly(high: float, low: float, value: float) -> tuple[float, float]:
    """Return the pair (high, low) plus a value, by Knuth's two-sum."""
    total = high + value
    back = total - high
    return total, low + ((high - (total - back)) + (value - back))


@part_kernel
def order_components(
    count: int, n: int, parent: IntArray, order: IntArray, begin: IntArray, end: IntArray
) -> None:
    """Order the dependents so that those of every component c are order[begin[c]:end[c]]."""
    size = np.zeros(count, dtype=np.int64)
    size[1 : n + 1] = 1
    for c in range(1, count):
        if parent[c] >= 0:
            size[parent[c]] += size[c]
    free = np.zeros(count, dtype=np.int64)  # the next free position inside each component
    place = 0
    for c in range(count - 1, 0, -1):
        if parent[c] < 0:
            begin[c] = place
            place += size[c]
        else:
            begin[c] = free[parent[c]]
            free[parent[c]] += size[c]
        free[c] = begin[c]
        end[c] = begin[c] + size[c]
    for d in range(1, n + 1):
        order[begin[d]] = d


@part_kernel
def reduce_scores(
    scores: FloatArray,
    n: int,
    count: int,
    dual: FloatArray,
    parent: IntArray,
    order: IntArray,
    begin: IntArray,
    end: IntArray,
    out: FloatArray,
) -> None:
    """Write the reduced scores (n+1, n+1), -inf on the diagonal and in column 0."""
    out[:, 0] = -np.inf
    for j in range(1, n + 1):
        out[j, j] = -np.inf
        c = j
        high, low = 0.0, 0.0
        while c >= 0:
            high, low = add_exactly(high, low, -dual[c])
            outer = parent[c]
            first, last = (begin[outer], end[outer]) if outer >= 0 else (0, n)
            for place in range(first, last):
                if place < begin[c] or place >= end[c]:
                    i = order[place]
                    total, rest = add_exactly(high, low, scores[i, j])
                    out[i, j] = total + rest if scores[i, j] > -np.inf else -np.inf
            c = outer
        total, rest = add_exactly(high, low, scores[0, j])
        out[0, j] = total + rest if scores[0, j] > -np.inf else -np.inf


@part_kernel
def negligible_below(reduced: FloatArray, heads: IntArray) -> float:
    """Return the limit below which arcs and second entries are negligible: T - (H + 50).

    T is the sum of the reduced scores of the tree `heads`.  It is 0 for the best tree, unless
    rounding hid scores from the search; reduced scores may then be large and positive.
    """
    value = -MARGIN
    for j in range(1, len(heads) + 1):
        largest = reduced[:, j].max()
        value += reduced[heads[j - 1], j] - largest - np.log(np.exp(reduced[:, j] - largest).sum())
    return float(value)


@kernel
def write_normal_form(
    scores: FloatArray,
    n: int,
    single: bool,
    limit: float,
    out: FloatArray,
    closed: BoolArray,
) -> tuple[float, int]:
    """Write the normal form (n+1, n+1); return its constant and the best tree's root dependent.

    limit : the lowest reduced score of an arc, < 0; 0 for -(H + 50).
    closed : (n+1,) a mask of the nodes of a closed component, unless it has all nodes; single root
        only.
    The constant is the log Z of the scores minus that of the normal form.  The root's dependent is
    0 if no tree is allowed.
    """
    score = empty((2 * n + 1, n + 1))
    entry = empty((2 * n + 1, n + 1), dtype=np.int64)
    chosen = np.zeros(2 * n + 1, dtype=np.int64)
    parent = empty(2 * n + 1, dtype=np.int64)
    closed[:] = False
    count = search(scores, n, single, score, entry, chosen, parent)
    if count == 0:
        return -np.inf, 0
    heads = empty(n, dtype=np.int64)
    roots = expand(count, n, chosen, entry, parent, heads)
    if single and roots > 1:
        return -np.inf, 0
    child = 0
    for d in range(n, 0, -1):
        child = d if heads[d - 1] == 0 else child
    dual, kept_dual = np.zeros(count), np.zeros(count)
    places = empty((3, count), dtype=np.int64)
    order, begin, end = places[0], places[1], places[2]
    order_components(count, n, parent, order, begin, end)
    for c in range(1, count):
        dual[c] = score[c, chosen[c]]
    reduce_scores(scores, n, count, dual, parent, order, begin, end, out)
    for c in range(1, count):
        if single and parent[c] < 0 and chosen[c] == 0:
            for d in range(1, n + 1):
                inside = begin[c] <= begin[d] and begin[d] < end[c]
                closed[d] = inside and end[c] - begin[c] < n
                if not inside:
                    out[0, d] = -np.inf
    lowest = limit if limit < 0.0 else negligible_below(out, heads)
    high, low = 0.0, 0.0
    for c in range(1, count):
        if c > n and not (single and chosen[c] == 0):
            kept_dual[c] = max(dual[c], lowest)
        high, low = add_exactly(high, low, dual[c])
        high, low = add_exactly(high, low, -kept_dual[c])
    restore_cycles(n, lowest, kept_dual, parent, order, begin, end, out)
    return high + low, child


@part_kernel
def restore_cycles(
    n: int,
    lowest: float,
    kept_dual: FloatArray,
    parent: IntArray,
    order: IntArray,
    begin: IntArray,
    end: IntArray,
    out: FloatArray,
) -> None:
    """Drop arcs below the limit; add the kept part of each cycle's y_c to the arcs into it."""
    for j in range(1, n + 1):
        c = j
        total = 0.0
        while c >= 0:
            total += kept_dual[c]
            outer = parent[c]
            first, last = (begin[outer], end[outer]) if outer >= 0 else (0, n)
            for place in range(first, last):
                if place < begin[c] or place >= end[c]:
                    i = order[place]
                    out[i, j] = out[i, j] + total if out[i, j] >= lowest else -np.inf
            c = outer
        out[0, j] = out[0, j] + total if out[0, j] >= lowest else -np.inf


@kernel
def dual_solution(
    scores: FloatArray,
    n: int,
    single: bool,
    reduced: FloatArray,
    dual: FloatArray,
    inside: BoolArray,
) -> tuple[int, float]:
    """Write reduced scores (n+1, n+1), and y_c (2n+1,) and members (2n+1, n+1) of components.

    Components from n+1 are contracted cycles; y_c is 0 for a cycle that contains the single root's
    dependent, because all trees enter it once.  Return `count`, one more than the last component,
    and the sum of the cycles' y_c that `write_normal_form` keeps.
    """
    score = empty((2 * n + 1, n + 1))
    entry = empty((2 * n + 1, n + 1), dtype=np.int64)
    chosen = np.zeros(2 * n + 1, dtype=np.int64)
    parent = empty(2 * n + 1, dtype=np.int64)
    count = search(scores, n, single, score, entry, chosen, parent)
    places = empty((3, count), dtype=np.int64)
    order, begin, end = places[0], places[1], places[2]
    order_components(count, n, parent, order, begin, end)
    for c in range(1, count):
        dual[c] = score[c, chosen[c]]
        for place in range(begin[c], end[c]):
            inside[c, order[place]] = True
    reduce_scores(scores, n, count, dual, parent, order, begin, end, reduced)
    for c in range(1, count):
        if single and parent[c] < 0 and chosen[c] == 0:  # no tree has other root arcs
            for d in range(1, n + 1):
                reduced[0, d] = reduced[0, d] if inside[c, d] else -np.inf
    heads = empty(n, dtype=np.int64)
    expand(count, n, chosen, entry, parent, heads)
    lowest = negligible_below(reduced, heads)
    kept_total = 0.0
    for c in range(n + 1, count):
        if single and chosen[c] == 0:
            dual[c] = 0.0
        kept_total += max(dual[c], lowest)
    return count, kept_total


@part_kernel
def best_of(scores: FloatArray, n: int, single: bool, heads: IntArray) -> bool:
    """Write the best heads (n,) of a table (m+1, m+1), m >= n; return whether a tree exists.

    If rounding may have hidden a tree from the search, the normal form is searched again.
    """
    roots, largest = best_heads(scores, n, single, heads)
    if largest > LARGE or roots < 0:
        raised, out = empty((n + 1, n + 1)), empty((n + 1, n + 1))
        closed = empty(n + 1, dtype=np.bool_)
        lift_masks(scores[: n + 1, : n + 1], raised)
        if write_normal_form(raised, n, single, 0.0, out, closed)[1] > 0:
            roots = best_heads(out, n, single, heads)[0]
    return roots >= 0 and (roots <= 1 or not single)


@kernel
def best_checked(scores: FloatArray, single: bool, heads: IntArray) -> bool:
    """Write the heads (n,) of the best tree of a table (n+1, n+1), in one call.

    Return False, without valid heads, if a score is NaN or above LARGEST_SCORE, or if no tree is
    allowed.
    """
    bad = 0
    for value in scores.reshape(-1):
        bad += not value <= LARGEST_SCORE
    return bad == 0 and best_of(scores, len(heads), single, heads)


@kernel
def best_batch(scores: FloatArray, lengths: IntArray, single: bool, heads: IntArray) -> int:
    """Write the best heads of every item, -1 past its length and in items without a tree.

    Return the first item without a tree, -1 if there is none.
    """
    heads[:] = -1
    infeasible = -1
    for item in range(scores.shape[0]):
        n = lengths[item]
        if not best_of(scores[item], n, single, heads[item, :n]):
            heads[item] = -1
            infeasible = item if infeasible < 0 else infeasible
    return infeasible
