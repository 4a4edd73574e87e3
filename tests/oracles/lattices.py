"""Enumeration for lattices: every path of an acyclic acceptor, one at a time.

Arcs are (source, target, label, score), where label -1 is epsilon; `final` maps states to scores.
"""

import math

import numpy as np


def all_paths(arcs, start, final):
    """Return (arc numbers, string, total score, final state) of all paths from `start`."""
    found = []

    def walk(state, path, string, total):
        if state in final:
            found.append((path, string, total + final[state], state))
        for number, (source, target, label, score) in enumerate(arcs):
            if source == state:
                read = string if label == -1 else (*string, label)
                walk(target, (*path, number), read, total + score)

    walk(start, (), (), 0.0)
    return found


class Paths:
    """Sums over all paths; `losses` maps a string to its loss, and +inf leaves it out."""

    def __init__(self, arcs, start, final):
        self.paths = all_paths(arcs, start, final)
        self.num_arcs = len(arcs)
        self.states = sorted(final)
        self.totals = np.array([total for _, _, total, _ in self.paths])
        self.strings = [string for _, string, _, _ in self.paths]
        # (paths, arcs + final states): 1 for the arcs of a path and for its final state
        self.table = np.zeros((len(self.paths), len(arcs) + len(self.states)))
        for row, (path, _, _, state) in zip(self.table, self.paths, strict=True):
            row[list(path)] = 1
            row[len(arcs) + self.states.index(state)] = 1

    def log_z(self):
        return log_sum(self.totals)

    def probs(self):
        return np.exp(self.totals - self.log_z())

    def posteriors(self):
        return self.probs() @ self.table

    def entropy(self):
        p = self.probs()
        return -sum(x * math.log(x) for x in p if x > 0)

    def covariance(self, r):
        """Return Cov[table, <r, table>] over paths."""
        p, values = self.probs(), self.table @ r
        return (p * (values - p @ values)) @ self.table

    def third_order(self, r, s):
        """Return the third central moments E[(table - mean) (R - E R) (S - E S)] over paths."""
        p, centered = self.probs(), self.table - self.posteriors()
        return (p * (centered @ r) * (centered @ s)) @ centered

    def log_sums_of_strings(self):
        """Return {string: log of the sum over its paths}, without strings of probability zero."""
        sums = {}
        for string, total in zip(self.strings, self.totals, strict=True):
            if total > -math.inf:
                sums[string] = float(np.logaddexp(sums.get(string, -math.inf), total))
        return sums

    def posteriors_of_string(self, string):
        mine = np.array([s == string for s in self.strings])
        weights = np.where(mine, self.totals, -math.inf)
        return log_sum(weights), np.exp(weights - log_sum(weights)) @ self.table

    def risk(self, losses):
        finite = np.array([losses[s] < math.inf for s in self.strings])
        weights = np.where(finite, self.totals, -math.inf)
        p = np.exp(weights - log_sum(weights))
        values = np.array([losses[s] if losses[s] < math.inf else 0.0 for s in self.strings])
        mean = float(p @ values)
        return mean, (p * (values - mean)) @ self.table

    def softmax_margin(self, gold, losses):
        values = np.array([losses[s] if losses[s] < math.inf else -math.inf for s in self.strings])
        weights = self.totals + values
        of_gold, gold_table = self.posteriors_of_string(gold)
        q = np.exp(weights - log_sum(weights)) @ self.table
        return log_sum(weights) - of_gold, q - gold_table


def log_sum(values):
    largest = max(values)
    if largest == -math.inf:
        return -math.inf
    return float(largest + math.log(math.fsum(np.exp(np.asarray(values) - largest))))
