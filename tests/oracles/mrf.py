"""Enumeration of the labelings of a graph: the definitions of the results of fstgrad.mrf."""

import itertools

import numpy as np


def labelings(sizes):
    """Return all labelings of nodes with the given numbers of labels."""
    return [np.array(y) for y in itertools.product(*(range(k) for k in sizes))]


def parts(y, shape, edges):
    """Return the indicator tables of one labeling: nodes (I, C) and edges (E, C, C)."""
    node, edge = np.zeros(shape), np.zeros((len(edges), shape[1], shape[1]))
    for i, label in enumerate(y):
        node[i, label] = 1
    for e, (i, j) in enumerate(edges):
        edge[e, y[i], y[j]] = 1
    return node, edge


def score(y, node, edge, edges):
    """Return the score of one labeling; `edge` is (E, C, C) or (C, C)."""
    total = sum(node[i, label] for i, label in enumerate(y))
    for e, (i, j) in enumerate(edges):
        total += (edge if edge.ndim == 2 else edge[e])[y[i], y[j]]
    return total


def solve(node, edge, edges, sizes=None):
    """Return log Z, node marginals, edge marginals and the best score, by enumeration.

    If every labeling is forbidden, there are no marginals: (-inf, None, None, -inf).
    """
    ys = labelings(sizes if sizes is not None else [node.shape[1]] * len(node))
    scores = np.array([score(y, node, edge, edges) for y in ys])
    log_z = np.logaddexp.reduce(scores)
    if log_z == -np.inf:
        return log_z, None, None, log_z
    tables = [parts(y, node.shape, edges) for y in ys]
    probs = np.exp(scores - log_z)
    nodes = sum(p * t[0] for p, t in zip(probs, tables, strict=True))
    pairs = sum(p * t[1] for p, t in zip(probs, tables, strict=True))
    return log_z, nodes, pairs, scores.max()


def transfer_matrix(node, edge):
    """Return log Z of a chain with scores (I, C) and (I - 1, C, C), by matrix products."""
    vector, log_scale = np.exp(node[0]), 0.0
    for i in range(1, len(node)):
        vector = (vector @ np.exp(edge[i - 1])) * np.exp(node[i])
        log_scale += np.log(vector.sum())
        vector = vector / vector.sum()
    return log_scale + np.log(vector.sum())


def flooding(node, edge, edges, iterations, damping=0.0):
    """Return sum-product messages (2E, C), with maximum 1, by the textbook formula."""
    arcs = [arc for i, j in edges for arc in ((i, j), (j, i))]
    tables = [t for e in range(len(edges)) for t in (np.exp(edge[e]), np.exp(edge[e]).T)]
    messages = np.ones((len(arcs), node.shape[1]))
    for _ in range(iterations):
        fresh = np.empty_like(messages)
        for number, (i, j) in enumerate(arcs):
            said = np.exp(node[i])
            for other, (k, head) in enumerate(arcs):
                if head == i and k != j:
                    said = said * messages[other]
            new = said @ tables[number]
            new = new / new.max()
            mixed = new ** (1 - damping) * messages[number] ** damping
            fresh[number] = mixed / mixed.max()
        messages = fresh
    return messages


def conditional(y, i, node, edge, edges, size):
    """Return P(y_i = c | all other labels), (size,), by the definition."""
    scores = []
    for c in range(size):
        moved = np.array(y)
        moved[i] = c
        scores.append(score(moved, node, edge, edges))
    return np.exp(np.array(scores) - np.logaddexp.reduce(scores))
