"""The formulas of McAllester's slides on exponential softmax as they stand there, in NumPy.

These functions define what the kernels compute; tests compare all of them.  What runs:

- Belief propagation: `kernels.bp_grid` on images and `kernels.bp_linear` on other graphs;
  `kernels.bp_log_vectorized` if plain floats cannot hold the messages, with `kernels.bp_factors`
  for factors over more than two nodes; `kernels.bp_log` for the residual schedule and on forests;
  `kernels.trw_log` for tree-reweighted messages.  `messages.belief_propagation` chooses.
- Pseudolikelihood: `kernels.sites`.

Letters: n, m, k are nodes, e = (n, m) edges (E, 2), c labels.  s_n (I, C) and s_e (E, C, C) are the
scores s^N and s^E in nats.  Z (2E, C) holds the messages, each with maximum 1: Z[2e] is that from
the first node of edge e to the second, Z[2e + 1] that back.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray


def into(n: int, edges: IntArray, without: int = -1) -> list[int]:
    """Return the rows of Z that go to node n, except the row `without`."""
    rows = [2 * e + (n == first) for e, (first, second) in enumerate(edges) if n in (first, second)]
    return [row for row in rows if row != without]


def updated_messages(
    s_n: FloatArray,
    s_e: FloatArray,
    edges: IntArray,
    z: FloatArray,
    damping: float = 0.0,
    *,
    maximum: bool = False,
) -> FloatArray:
    """Return all messages after one iteration from Z (flooding), scaled to maximum 1.

    Z_(n -> m)[c'] = sum_c exp(s_n[n, c] + s_e[e, c, c']) prod_(k != m) Z_(k -> n)[c]; max-product
    takes the maximum over c.  Damping: new^(1 - damping) old^damping.
    """
    new = np.zeros_like(z)
    for e, (first, second) in enumerate(edges):
        for row, n, table in ((2 * e, first, s_e[e]), (2 * e + 1, second, s_e[e].T)):
            others = z[into(n, edges, without=row ^ 1)].prod(axis=0)
            terms = (np.exp(s_n[n]) * others)[:, None] * np.exp(table)
            new[row] = terms.max(axis=0) if maximum else terms.sum(axis=0)
    new /= new.max(axis=1, keepdims=True)
    new = new ** (1 - damping) * z**damping
    scaled: FloatArray = new / new.max(axis=1, keepdims=True)
    return scaled


def node_belief(n: int, s_n: FloatArray, edges: IntArray, z: FloatArray) -> FloatArray:
    """Return exp(s_n[n, c]) prod_k Z_(k -> n)[c], (C,): the marginal of node n times Z_n."""
    product: FloatArray = np.exp(s_n[n]) * z[into(n, edges)].prod(axis=0)
    return product


def edge_belief(
    e: int, s_n: FloatArray, s_e: FloatArray, edges: IntArray, z: FloatArray
) -> FloatArray:
    """Return the marginal of the ends of edge e times Z_e, (C, C)."""
    n, m = edges[e]
    left = np.exp(s_n[n]) * z[into(n, edges, without=2 * e + 1)].prod(axis=0)
    right = np.exp(s_n[m]) * z[into(m, edges, without=2 * e)].prod(axis=0)
    product: FloatArray = left[:, None] * np.exp(s_e[e]) * right[None, :]
    return product


def bethe_log_partition(s_n: FloatArray, s_e: FloatArray, edges: IntArray, z: FloatArray) -> float:
    """Return sum_n (1 - degree of n) log Z_n + sum_e log Z_e in nats; exact on trees."""
    total = 0.0
    for n in range(len(s_n)):
        log_z_n = np.log(node_belief(n, s_n, edges, z).sum())
        total += (1 - len(into(n, edges))) * float(log_z_n)
    for e in range(len(edges)):
        total += float(np.log(edge_belief(e, s_n, s_e, edges, z).sum()))
    return total


def conditional(
    n: int, s_n: FloatArray, s_e: FloatArray, edges: IntArray, y: IntArray
) -> FloatArray:
    """Return P(c | y without n) for each label c, (C,)."""
    score = s_n[n].copy()
    for e, (first, second) in enumerate(edges):
        if n == first:
            score += s_e[e, :, y[second]]
        elif n == second:
            score += s_e[e, y[first], :]
    weight = np.exp(score - score.max())
    p: FloatArray = weight / weight.sum()
    return p


def pseudolikelihood(
    s_n: FloatArray, s_e: FloatArray, edges: IntArray, y: IntArray
) -> tuple[float, FloatArray, FloatArray]:
    """Return -log prod_n P(y[n] | y without n) in nats, and its gradients by s_n and s_e."""
    loss, grad_n, grad_e = 0.0, np.zeros_like(s_n), np.zeros_like(s_e)
    for n in range(len(s_n)):
        p = conditional(n, s_n, s_e, edges, y)
        loss -= float(np.log(p[y[n]]))
        difference = p - (np.arange(len(p)) == y[n])
        grad_n[n] += difference
        for e, (first, second) in enumerate(edges):
            if n == first:
                grad_e[e, :, y[second]] += difference
            elif n == second:
                grad_e[e, y[first], :] += difference
    return loss, grad_n, grad_e
