"""Objectives of spanning trees; gradients of entropy and KL are arc covariance products."""

from typing import Literal

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team, zeros
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.projective import ProjectiveTrees
from fstgrad.trees.spanning import SpanningTrees

TreeKind = Literal["log-partition", "nll", "partial-nll", "entropy", "kl"]


def tree_distribution(
    scores: FloatArray,
    lengths: IntArray | None,
    single_root: bool,
    projective: bool,
    labeled: bool = False,
) -> TreeDistribution:
    """Return the distribution over trees of scores, as in `SpanningTrees`."""
    family = ProjectiveTrees if projective else SpanningTrees
    return family(scores, single_root=single_root, lengths=lengths, labeled=labeled)


def on_possible_arcs(trees: TreeDistribution, table: FloatArray) -> FloatArray:
    """Return a table with 0 on arcs whose marginal is 0, so that it may hold masks of any size."""
    return np.where(trees.marginals() > 0, table, 0.0)


class TreeObjective(Objective):
    """An objective of each item, in nats.

    Scores are one array of arc log-weights in nats, like those of `SpanningTrees`; "kl" has two,
    those of p and of q.  The first constant is the lengths (B,).  The second constant is, for
    "nll", the gold trees (B, n) or (B, n, 2), and for "partial-nll", partial trees or a bool table
    of allowed arcs, like the scores.

    With scores theta and arc indicators t, the gradients are
    d H / d theta = -Cov[t] theta,  d KL(p, q) / d theta_p = Cov_p[t] (theta_p - theta_q) and
    d KL(p, q) / d theta_q = E_q[t] - E_p[t]; those of the other kinds are marginals or differences
    of marginals.
    """

    def __init__(self, kind: TreeKind, single_root: bool, labeled: bool, projective: bool) -> None:
        self.kind, self.single_root = kind, single_root
        self.labeled, self.projective = labeled, projective
        self.what = f"{kind.replace('-', ' ')} of trees"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) and the gradients; all items are solved in one batch."""
        if len(scores[0]) == 0:
            return np.zeros(0), zeros(scores)
        lengths, *rest = constants
        trees = [self._trees(table, lengths) for table in scores]
        values, gradients = self._values(trees[0], [*trees[1:], *rest])
        return np.asarray(values), gradients

    def _trees(self, scores: Array, lengths: Array) -> TreeDistribution:
        flags = (self.single_root, self.projective, self.labeled)
        return tree_distribution(scores.astype(np.float64), lengths.astype(np.int64), *flags)

    def _values(
        self, trees: TreeDistribution, rest: list[Array | TreeDistribution]
    ) -> tuple[Array, list[Array]]:
        match self.kind, rest:
            case "log-partition", []:
                return trees.log_partition(), [trees.marginals()]
            case "entropy", []:
                return trees.entropy(), [-self._product(trees, _centered(trees))]
            case "nll" | "partial-nll", [np.ndarray() as gold]:
                if self.kind == "nll":
                    value, gradient = trees.nll(gold)
                else:
                    value, gradient = trees._partial_nll("allowed", gold)
                return value, [gradient]
            case "kl", [TreeDistribution() as other]:
                by_p = self._product(trees, _centered(trees) - _centered(other))
                return trees.kl(other), [by_p, other.marginals() - trees.marginals()]
        raise InvalidInputError(f"{self.what} got {len(rest)} constants")

    def _product(self, trees: TreeDistribution, direction: FloatArray) -> FloatArray:
        return trees.covariance_product(on_possible_arcs(trees, direction))

    def is_twice_differentiable(self) -> bool:
        """Return whether the gradient consists of marginals."""
        return self.kind in ("log-partition", "nll", "partial-nll")

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return Cov[t] times the direction, minus Cov[t | agrees with gold] for "partial-nll".

        Raises
        ------
        NotSupportedError
            The kind is "entropy" or "kl".
        """
        if not self.is_twice_differentiable():
            raise self.no_second_derivative()
        if len(scores[0]) == 0:
            return zeros(scores)
        trees = self._trees(scores[0], constants[0])
        product = self._product(trees, directions[0])
        if self.kind == "partial-nll":
            agreeing = trees.with_arcs(allowed=constants[1])
            product = product - self._product(agreeing, directions[0])
        return [product]


def _centered(trees: TreeDistribution) -> FloatArray:
    """Return the scores minus the largest of each dependent, and 0 for -inf.

    A constant per dependent does not change covariance products.
    """
    scores = np.where(np.isfinite(trees.scores), trees.scores, -np.inf)
    flat = scores.max(axis=-1) if trees.labeled else scores
    shift = flat.max(axis=-2, keepdims=True)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    return np.where(scores > -np.inf, scores - (shift[..., None] if trees.labeled else shift), 0.0)
