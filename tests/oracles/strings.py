"""Enumeration for strings (Grad-Naive): sums and minima over all of Delta^l, one string at a time.

Strings are tuples of ids, and costs are floats.  Scores have the shape (l, n), (l, n+1, n), ... for
orders q = 1, 2, ..., where index n of a context axis means "before the start".  A string with a
loss of +inf is left out.
"""

import itertools
import math

import numpy as np


def all_strings(n, length):
    return list(itertools.product(range(n), repeat=length))


def edit_distance(y, z, *, match=0.0, insert=1.0, delete=1.0, substitute=1.0, confusion=None):
    """Return the least cost of turning y into z; `confusion[a][b]` replaces match, substitute."""

    def pair(a, b):
        if confusion is not None:
            return float(confusion[a][b])
        return match if a == b else substitute

    row = [j * insert for j in range(len(z) + 1)]
    for i, a in enumerate(y, start=1):
        above, row = row, [i * delete]
        for j, b in enumerate(z, start=1):
            row.append(min(above[j - 1] + pair(a, b), above[j] + delete, row[j - 1] + insert))
    return row[-1]


def factors(s):
    """Return all factors (substrings) of s, with the empty one."""
    return {s[i:j] for i in range(len(s) + 1) for j in range(i, len(s) + 1)}


def smith_waterman(y, z, *, match=-2.0, substitute=1.0, insert=1.0, delete=1.0):
    """Return the least edit cost over all pairs of factors of y and z."""
    costs = {"match": match, "substitute": substitute, "insert": insert, "delete": delete}
    return min(edit_distance(u, v, **costs) for u in factors(y) for v in factors(z))


def hamming(y, z, *, cost=1.0):
    if len(y) != len(z):
        return math.inf
    return cost * sum(a != b for a, b in zip(y, z, strict=True))


def ngram_count(y, z, order):
    """Return sum_u c_u(y) c_u(z), the number of pairs of equal n-grams."""
    grams = [[tuple(s[i : i + order]) for i in range(len(s) - order + 1)] for s in (y, z)]
    return sum(grams[0].count(u) for u in grams[1])


def ngram_loss(y, z, order, *, smoothing=0.0, log=True):
    count = ngram_count(y, z, order)
    if not log:
        return -float(count)
    return -math.log(count + smoothing) if count + smoothing else math.inf


def path_costs(arcs, start, final, y, z, *, epsilon=None):
    """Return the costs of all paths that read y and write z, one float per path.

    arcs: list of (source, input, output, cost, target) with symbols or `epsilon`;
    final: {state: cost}.  With cycles of arcs that are epsilon on both sides, this does not end.
    """
    found = []

    def walk(state, i, j, cost):
        if i == len(y) and j == len(z) and state in final:
            found.append(cost + final[state])
        for source, a, b, weight, target in arcs:
            if source != state:
                continue
            reads, writes = a != epsilon, b != epsilon
            if reads and (i == len(y) or y[i] != a):
                continue
            if writes and (j == len(z) or z[j] != b):
                continue
            walk(target, i + reads, j + writes, cost + weight)

    walk(start, 0, 0, 0.0)
    return found


def min_path_cost(arcs, start, final, y, z, *, epsilon=None):
    """Return the tropical value: the least cost of a path; +inf without a path."""
    return min(path_costs(arcs, start, final, y, z, epsilon=epsilon), default=math.inf)


def path_sum(arcs, start, final, y, z, *, epsilon=None):
    """Return the probability value: the sum over paths of exp(-cost)."""
    return math.fsum(
        math.exp(-cost) for cost in path_costs(arcs, start, final, y, z, epsilon=epsilon)
    )


def order_of(scores):
    return np.ndim(scores) - 1


def parts(y, scores):
    """Return t(y), shaped like `scores`: one at [s, y[s-q+1], ..., y[s]] for each position s."""
    table = np.zeros(np.shape(scores))
    n = np.shape(scores)[-1]
    q = order_of(scores)
    padded = (n,) * (q - 1) + tuple(y)
    for s in range(len(y)):
        table[(s, *padded[s : s + q])] = 1.0
    return table


def score(y, scores):
    table = parts(y, scores)
    return float(sum(np.asarray(scores)[table == 1]))


def log_weights(scores, losses):
    """Return score(y) + L(y) for all y in the order of `all_strings`; -inf if L(y) = +inf."""
    length, n = np.shape(scores)[0], np.shape(scores)[-1]
    strings = all_strings(n, length)
    if losses is None:
        losses = np.zeros(len(strings))
    return np.array(
        [
            -math.inf if loss == math.inf else score(y, scores) + loss
            for y, loss in zip(strings, losses, strict=True)
        ]
    )


def log_partition(scores, losses=None):
    """Return log sum_y exp(score(y) + L(y)); `losses` as in `all_strings`, None means 0."""
    return float(np.logaddexp.reduce(log_weights(scores, losses)))


def marginals(scores, losses=None):
    """Return Q, which is E[t(y)] under exp(score + L) / Z."""
    weights = log_weights(scores, losses)
    probs = np.exp(weights - np.logaddexp.reduce(weights))
    length, n = np.shape(scores)[0], np.shape(scores)[-1]
    table = np.zeros(np.shape(scores))
    for p, y in zip(probs, all_strings(n, length), strict=True):
        table += p * parts(y, scores)
    return table


def softmax_margin(scores, gold, losses=None):
    """Return F of Eq. 1 and its gradient in the scores.

    F = log sum_y exp(L(y) + score(y) - score(gold)), dF/dscores = Q - t(gold).
    """
    value = log_partition(scores, losses) - score(gold, scores)
    return value, marginals(scores, losses) - parts(gold, scores)


def risk(scores, losses):
    """Return E[L] under exp(score) / Z and its gradient in the scores, Cov[L, t].

    Strings with an infinite loss are left out, also from Z.
    """
    weights = log_weights(scores, [0.0 if loss < math.inf else math.inf for loss in losses])
    probs = np.exp(weights - np.logaddexp.reduce(weights))
    length, n = np.shape(scores)[0], np.shape(scores)[-1]
    strings = all_strings(n, length)
    finite = [0.0 if loss == math.inf else loss for loss in losses]
    value = float(probs @ np.array(finite))
    gradient = np.zeros(np.shape(scores))
    for p, loss, y in zip(probs, finite, strings, strict=True):
        gradient += p * (loss - value) * parts(y, scores)
    return value, gradient
