"""Batches of models on one graph; they share the plans for this graph."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    instance,
    integers,
    log_weights,
    positive_integer,
    score_array,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible, feasible_results
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.objectives import UNKNOWN, feasible_nll, item_options, zeros
from fstgrad.mrf.result import Inference
from fstgrad.mrf.scored_graph import Table

Result = TypeVar("Result")


class PairwiseMRFBatch(Sequence[PairwiseMRF]):
    """B models of the same graph; item b is a `PairwiseMRF`.

    Parameters
    ----------
    model : PairwiseMRF
        The model whose graph, numbers of labels, larger factors and offset are used; the scores of
        its nodes and edges are not.
    node_scores : (B, I, C) float64
        Log-weights in nats.
    edge_scores : (C, C), (E, C, C) or (B, E, C, C) float64
        Log-weights in nats: shared by all edges and items, by all items, or separate for each item.
    infeasible : {"raise", "zero"}
        "raise": one error names every item whose labelings are all forbidden (Z = 0) or, in `nll`,
        whose gold labeling is.  "zero": their labels are -1, and their log Z, marginals, losses and
        gradients are 0.

    Raises
    ------
    InvalidInputError
        There are no items, or shapes do not match.
    InfeasibleError
        By the methods, if items are infeasible and `infeasible` is "raise".

    Notes
    -----
    Results have a leading batch axis.  A gradient belongs to the value of one item, even if edge
    scores are shared; sum the gradients over the batch for the gradient of the total.

    Examples
    --------
    >>> one = PairwiseMRF.grid(2, 2, np.zeros((4, 2)), np.eye(2))
    >>> batch = PairwiseMRFBatch(one, np.zeros((5, 4, 2)), np.eye(2))
    >>> batch.log_partition().shape, batch.marginals().edge.shape
    ((5,), (5, 4, 2, 2))
    """

    def __repr__(self) -> str:
        return f"PairwiseMRFBatch({len(self):,} models)"

    def __init__(
        self,
        model: PairwiseMRF,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        *,
        infeasible: Infeasible = "raise",
    ) -> None:
        self.infeasible = check_infeasible(infeasible)
        instance("model", model, PairwiseMRF, "a PairwiseMRF")
        node = log_weights(
            "node_scores", node_scores, (None, model.num_nodes, model.num_labels)
        )  # fmt: skip
        edge = score_array("edge_scores", edge_scores)
        if edge.ndim == 4 and len(edge) != len(node):
            raise InvalidInputError(
                f"edge_scores has shape {edge.shape} and node_scores {node.shape}; "
                "give both the same number of items"
            )
        if len(node) == 0:
            raise InvalidInputError("node_scores has no items; give at least one")
        self.items = [
            model.with_scores(scores, edge[b] if edge.ndim == 4 else edge)
            for b, scores in enumerate(node)
        ]

    @overload
    def __getitem__(self, index: int) -> PairwiseMRF: ...
    @overload
    def __getitem__(self, index: slice) -> list[PairwiseMRF]: ...
    def __getitem__(self, index: int | slice) -> PairwiseMRF | list[PairwiseMRF]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def _each(self, run: Callable[[int], Result], rest: Callable[[], Result]) -> list[Result]:
        """Return run(b) for each item, and rest() for infeasible ones that count as zero."""
        results = feasible_results(range(len(self)), run, self.infeasible)
        return [rest() if result is None else result for result in results]

    def log_partition(self) -> FloatArray:
        """Return log Z of each item (B,), in nats."""
        return np.array(self._each(lambda b: self[b].log_partition(), float))

    def marginals(self) -> Table:
        """Return marginals of nodes (B, I, C), edges (B, E, C, C) and larger factors (B, cells)."""
        return _stacked(self._each(lambda b: self[b].marginals(), self._no_marginals))

    def _no_marginals(self) -> Table:
        model, size = self[0], self[0].num_labels
        edge = np.zeros((model.graph.num_edges, size, size))
        return Table(np.zeros_like(model.scores.node), edge, np.zeros_like(model.factors.table))

    def infer(self, method: str = "exact", **options: Any) -> list[Inference]:
        """Return the result of `PairwiseMRF.infer` for each item.

        That of an infeasible item that counts as zero is of the kind "none", with zeros.
        """
        return self._each(
            lambda b: self[b].infer(method, **options), lambda: self._no_inference(method)
        )

    def _no_inference(self, method: str) -> Inference:
        none = self._no_marginals()
        return Inference(
            method, 0.0, "none", none.node, lambda low, high: none.edge[low:high], len(none.edge),
            factors=none.factors,
        )  # fmt: skip

    def nll(
        self, gold: npt.ArrayLike, method: str = "exact", **options: Any
    ) -> tuple[FloatArray, Table]:
        """Return the losses (B,) of labelings gold (B, I), and the gradient of each loss.

        Methods and options as in `PairwiseMRF.nll`.  The arrays of the gradient have a leading axis
        B; its edge part is (B, C, C) for edge scores (C, C), else (B, E, C, C).
        """
        labels = integers("gold", gold)
        if labels.ndim < 2 or len(labels) != len(self):
            raise InvalidInputError(
                f"gold has shape {labels.shape}; give one labeling for each of {len(self)} items"
            )
        if "rng" in options:  # one generator for all items, so that they draw different numbers
            options["rng"] = generator(options["rng"])

        def run(b: int) -> tuple[float, Table]:
            chosen = item_options(options, b, len(self))
            return feasible_nll(self[b], labels[b], method, **chosen)

        results = self._each(run, lambda: (0.0, zeros(self[0])))
        return np.array([value for value, _ in results]), _stacked([table for _, table in results])

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent, exact labelings of each item (B, k, I) int64."""
        random, count = generator(rng), positive_integer("k", k, minimum=0)
        none = np.full((count, self[0].num_nodes), UNKNOWN)
        return np.stack(self._each(lambda b: self[b].sample(count, random), lambda: none))

    def mode(self) -> IntArray:
        """Return the best labeling of each item (B, I) int64."""
        none = np.full(self[0].num_nodes, UNKNOWN)
        return np.stack(self._each(lambda b: self[b].mode(), lambda: none))


def _stacked(tables: list[Table]) -> Table:
    return Table(
        np.stack([t.node for t in tables]),
        np.stack([t.edge for t in tables]),
        np.stack([t.factors for t in tables]),
    )
