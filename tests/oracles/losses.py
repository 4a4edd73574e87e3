"""Enumeration for alignments and kernels: all alignments, all subsequences, all n-grams.

Strings are tuples of ids.
"""

import itertools
import math


def spans(tags):
    """The spans (type, start, stop) of tags, by the rules of the Perl script conlleval."""
    parts = [("O", "") if tag == "O" else (tag[0], tag[2:]) for tag in (*tags, "O")]
    found, start, before = [], None, ("O", "")
    for i, (letter, kind) in enumerate(parts):
        other = kind != before[1]
        ends = before[0] in "ESLU" or (before[0] in "BIM" and (letter in "BSUO" or other))
        if start is not None and ends:
            found.append((before[1], start, i))
            start = None
        follows = before[0] in "OESLU" or other
        if letter in "BSU" or (letter in "IMEL" and follows):
            start = i
        before = letter, kind
    return found


def alignments(y, z):
    """Yield all alignments as strings of m (aligned pair), d (symbol of y), i (symbol of z)."""
    if not y and not z:
        yield ""
        return
    if y and z:
        yield from ("m" + rest for rest in alignments(y[1:], z[1:]))
    if y:
        yield from ("d" + rest for rest in alignments(y[1:], z))
    if z:
        yield from ("i" + rest for rest in alignments(y, z[1:]))


def affine_cost(y, z, costs, *, gap_open, gap_extend, free=""):
    """Return the least cost of an alignment; first or last runs of `free` operations cost nothing.

    Without free operations, alignments with d right after i are left out: d before i is the same
    alignment, and only one of the two orders opens each gap once.
    """
    best = math.inf
    for operations in alignments(y, z):
        if "id" in operations and not free:
            continue
        runs = [(kind, len(list(run))) for kind, run in itertools.groupby(operations)]
        total, left, right = 0.0, iter(y), iter(z)
        for position, (kind, size) in enumerate(runs):
            if kind == "m":
                total += sum(costs[next(left)][next(right)] for _ in range(size))
                continue
            for _ in range(size):
                next(left if kind == "d" else right)
            if kind not in free or position not in (0, len(runs) - 1):
                total += gap_open + (size - 1) * gap_extend
        best = min(best, total)
    return best


def factors(s):
    return {s[i:j] for i in range(len(s) + 1) for j in range(i, len(s) + 1)}


def local_affine_cost(y, z, costs, **gaps):
    return min(affine_cost(u, v, costs, **gaps) for u in factors(y) for v in factors(z))


def longest_common_subsequence(y, z):
    common = subsequences(y) & subsequences(z)
    return max(len(u) for u in common)


def subsequences(s):
    return {u for k in range(len(s) + 1) for u in itertools.combinations(s, k)}


def string_alignment(y, z, insert, delete, substitute, transpose):
    """Return the optimal string alignment distance by its recursion."""
    found = [0.0] if not y and not z else []
    if y:
        found.append(delete + string_alignment(y[:-1], z, insert, delete, substitute, transpose))
    if z:
        found.append(insert + string_alignment(y, z[:-1], insert, delete, substitute, transpose))
    if y and z:
        own = 0.0 if y[-1] == z[-1] else substitute
        found.append(own + string_alignment(y[:-1], z[:-1], insert, delete, substitute, transpose))
    if len(y) > 1 and len(z) > 1 and y[-2:] == z[-2:][::-1] and y[-1] != y[-2]:
        found.append(
            transpose + string_alignment(y[:-2], z[:-2], insert, delete, substitute, transpose)
        )
    return min(found)


def ngrams(s, order):
    return [s[i : i + order] for i in range(len(s) - order + 1)]


def ngram_sum(y, z, weights):
    """Return sum_n w_n (number of pairs of equal n-grams)."""
    return sum(
        weight * sum(u == v for u in ngrams(y, order) for v in ngrams(z, order))
        for order, weight in enumerate(weights, start=1)
    )


def gappy_kernel(y, z, order, decay):
    """Return the sum over pairs of equal subsequences of decay^(total span of their positions)."""

    def weighted(s):
        for places in itertools.combinations(range(len(s)), order):
            yield tuple(s[i] for i in places), decay ** (places[-1] - places[0] + 1)

    return sum(a * b for u, a in weighted(y) for v, b in weighted(z) if u == v)


def mismatch_kernel(y, z, order, mismatches, n):
    """Return the sum over all u of (n-grams near u in y) * (n-grams near u in z)."""

    def near(s, u):
        return sum(
            sum(a != b for a, b in zip(gram, u, strict=True)) <= mismatches
            for gram in ngrams(s, order)
        )

    return sum(near(y, u) * near(z, u) for u in itertools.product(range(n), repeat=order))


def collapse(z, kind, blank=2):
    """Return what ids z collapse to; None if a symbol follows an end."""
    if kind == "ctc":
        z = [a for i, a in enumerate(z) if i == 0 or a != z[i - 1]]
    if kind == "end" and blank in z:
        first = list(z).index(blank)
        return tuple(z[:first]) if all(a == blank for a in z[first:]) else None
    return tuple(a for a in z if a != blank)
