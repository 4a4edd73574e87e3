"""Losses and log-partition functions of Markov random fields."""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from fstgrad.core.checks import IntArray, generator
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.messages.linear_response import RUNS, linear_response
from fstgrad.mrf.objectives import UNKNOWN, feasible_nll, item_options
from fstgrad.mrf.scored_graph import Table
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team, zeros


class FieldNll(Objective):
    """The loss -log p(gold), or a surrogate, of B labelings of a graph, by `PairwiseMRF.nll`.

    Scores are the node scores (B, N, C) and the edge scores (B, E, C, C), or (B, C, C) if shared;
    constants are the labels (B, N), with `UNKNOWN` for a latent one.

    Parameters
    ----------
    graph : PairwiseMRF
        The graph and its shape; its scores are replaced by those of each item.
    method, options : as in `PairwiseMRF.nll`
    """

    def __init__(self, graph: PairwiseMRF, method: str, options: Mapping[str, Any]) -> None:
        self.graph, self.method, self.options = graph, method, dict(options)
        self.which: Sequence[int] | None = None  # of a batch of `size` items; None: all of them
        self.size: int | None = None
        self.what = f"method {self.method!r} of a Markov random field"
        if "rng" in self.options:  # share one generator, else all items draw the same numbers
            self.options["rng"] = generator(self.options["rng"])

    def part(self, items: IntArray, size: int) -> "FieldNll":
        """Return the objective of some items, with their persistent chains."""
        chosen = copy(self)
        chosen.which, chosen.size = items.tolist(), size
        return chosen

    def is_twice_differentiable(self) -> bool:
        """Return whether the method has a Hessian product."""
        return self.method in ("exact", *RUNS)

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Evaluate with zero scores if the method is exact; otherwise do nothing."""
        if self.method == "exact":
            super().check(scores, constants)

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the losses (B,) in nats and their gradients in node and edge scores."""
        which = range(len(scores[0])) if self.which is None else self.which
        size = len(which) if self.size is None else self.size
        results: list[tuple[float, Table]] = []

        def run(i: int) -> None:
            node, edge, gold = scores[0][i], scores[1][i], constants[0][i]
            options = item_options(self.options, which[i], size)
            value, table = self.one(self.graph.with_scores(node, edge), gold, options)
            results.append((float(value), table))

        ALONE.each(len(which), run)
        if not results:
            return np.zeros(0), zeros(scores)
        losses = np.array([value for value, _ in results])
        return losses, [np.stack([table[k] for _, table in results]) for k in (0, 1)]

    def one(
        self, model: PairwiseMRF, gold: IntArray, options: dict[str, Any]
    ) -> tuple[float, Table]:
        """Return the loss of one item and its gradient."""
        return feasible_nll(model, gold, self.method, **options)

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return (Cov[t] - Cov[t | known labels]) times the directions, for each item.

        The first term is the Hessian of log Z.  The second is that of log Z given the known labels;
        it is 0 if all labels are known, and `FieldLogPartition` omits it.

        Raises
        ------
        NotSupportedError
            The method is none of "exact", "bp" and "trw".
        """
        if not self.is_twice_differentiable():
            raise NotSupportedError(
                f"{self.what} has no second derivative; use method 'exact', 'bp' or 'trw', or "
                "first derivatives only"
            )
        if len(scores[0]) == 0:
            return zeros(scores)
        products = [
            self._covariances(self.graph.with_scores(node, edge), gold, Table(*direction))
            for node, edge, gold, *direction in zip(*scores, constants[0], *directions, strict=True)
        ]
        return [np.stack([table[k] for table in products]) for k in (0, 1)]

    def _covariances(self, model: PairwiseMRF, gold: IntArray, direction: Table) -> Table:
        direction = Table(*direction, np.zeros(len(model.factors.table)))
        free = self._response(model, direction)
        given = np.flatnonzero(gold != UNKNOWN)
        if len(given) < len(gold):  # a completely known labeling has no covariance
            clamped = model.condition({int(i): int(gold[i]) for i in given})
            tied = self._response(clamped, direction) if self.clamps else None
        else:
            tied = None
        edge = free.edge - tied.edge if tied is not None else free.edge
        node = free.node - tied.node if tied is not None else free.node
        return Table(node, edge.sum(axis=0) if model.shared else edge)

    def _response(self, model: PairwiseMRF, direction: Table) -> Table:
        if self.method == "exact":
            return model.covariance_product(direction)
        return linear_response(model, self.method, direction, **self.options)

    clamps = True  # whether the objective subtracts log Z given the known labels


class FieldLogPartition(FieldNll):
    """Log Z in nats and its gradient, the marginals."""

    clamps = False

    def one(
        self, model: PairwiseMRF, gold: IntArray, options: dict[str, Any]
    ) -> tuple[float, Table]:
        """Return log Z in nats and the marginals; warn if the method does not converge."""
        inference = model.infer(self.method, **options)
        if not inference.converged:
            warnings.warn(
                f"{self.method} did not converge; its log Z and marginals are not estimates: raise "
                "max_iter or, except with 'mean-field', damping",
                RuntimeWarning,
                stacklevel=2,
            )
        edge = inference.edge_sum if model.shared else inference.edge
        return inference.log_partition, Table(inference.node, edge)


def check_dense_shapes(
    node_scores: Any, image: Any, kernels: int, weights: Any, compatibility: Any
) -> None:
    """Raise InvalidInputError unless the arrays of `mrf_dense_marginals` have its shapes.

    kernels : their number; weights, compatibility : None for the default
    """
    nodes, gray = tuple(node_scores.shape), tuple(image.shape)
    batch = nodes if len(nodes) == 4 else (1, *nodes)
    grays = gray if len(gray) == 3 else (1, *gray)
    if len(batch) != 4 or 0 in batch or grays != (batch[0], *batch[2:]):
        raise InvalidInputError(
            f"node_scores has shape {nodes}, image {gray}; give (C, H, W) and (H, W), or "
            "(B, C, H, W) and (B, H, W), all sizes > 0"
        )
    for name, given, needed in (
        ("weights", weights, (kernels,)),
        ("compatibility", compatibility, (batch[1], batch[1])),
    ):
        if given is not None and given.shape != needed:
            raise InvalidInputError(f"{name} has shape {tuple(given.shape)}; give {needed}")
