"""Objectives of spanning trees; their gradients are products with the covariance of the arcs."""

from typing import Literal

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.errors import InvalidInputError
from fstgrad.objectives.base import Array, Arrays, Objective, zeros
from fstgrad.objectives.threads import ALONE, Team
from fstgrad.trees.base import TreeDistribution
from fstgrad.trees.projective import ProjectiveTrees
from fstgrad.trees.spanning import SpanningTrees

TreeKind = Literal["log partition", "nll", "partial nll", "entropy", "kl"]
Found = tuple[Array, list[Array]]


class TreeObjective(Objective):
    """One objective of each item; constants are the lengths (B,) and what the kind asks for.

    nll : gold trees (B, n) or (B, n, 2).  partial nll : partial trees, or a bool table like the
    scores.  kl : scores of p and of q.
    """

    def __init__(self, kind: TreeKind, single_root: bool, labeled: bool, projective: bool) -> None:
        self.kind, self.single_root = kind, single_root
        self.labeled, self.projective = labeled, projective
        self.what = f"{kind} of trees"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Solve all items together."""
        if len(scores[0]) == 0:
            return np.zeros(0), zeros(scores)
        lengths, *rest = constants
        trees = [self._trees(table, lengths) for table in scores]
        found, gradients = self._found(trees[0], [*trees[1:], *rest])
        return np.asarray(found), gradients

    def _trees(self, scores: Array, lengths: Array) -> TreeDistribution:
        family = ProjectiveTrees if self.projective else SpanningTrees
        return family(
            scores.astype(np.float64),
            single_root=self.single_root,
            lengths=lengths.astype(np.int64),
            labeled=self.labeled,
        )

    def _found(self, trees: TreeDistribution, rest: list[Array | TreeDistribution]) -> Found:
        match self.kind, rest:
            case "log partition", []:
                return trees.log_partition(), [trees.marginals()]
            case "entropy", []:
                return trees.entropy(), [-self._product(trees, _centered(trees))]
            case "nll" | "partial nll", [np.ndarray() as gold]:
                answer = trees.nll if self.kind == "nll" else trees.partial_nll
                value, slope = answer(gold)
                return value, [slope]
            case "kl", [TreeDistribution() as other]:
                by_p = self._product(trees, _centered(trees) - _centered(other))
                return trees.kl(other), [by_p, other.marginals() - trees.marginals()]
        raise InvalidInputError(f"{self.what} got {len(rest)} constants")

    def _product(self, trees: TreeDistribution, along: FloatArray) -> FloatArray:
        return trees.covariance_product(np.where(trees.marginals() > 0, along, 0.0))

    def is_twice_differentiable(self) -> bool:
        """Whether the gradient is made of marginals."""
        return self.kind in ("log partition", "nll", "partial nll")

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the covariance, less that of the trees which agree, times the direction."""
        if not self.is_twice_differentiable():
            raise self.no_second_derivative()
        if len(scores[0]) == 0:
            return zeros(scores)
        trees = self._trees(scores[0], constants[0])
        product = self._product(trees, directions[0])
        if self.kind == "partial nll":
            agreeing = trees.with_arcs(allowed=constants[1])
            product = product - self._product(agreeing, directions[0])
        return [product]


def _centered(trees: TreeDistribution) -> FloatArray:
    """Return scores less a constant of each dependent, which no covariance sees; 0 for -inf."""
    scores = np.where(np.isfinite(trees.scores), trees.scores, -np.inf)
    flat = scores.max(axis=-1) if trees.labeled else scores
    shift = flat.max(axis=-2, keepdims=True)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    return np.where(scores > -np.inf, scores - (shift[..., None] if trees.labeled else shift), 0.0)
