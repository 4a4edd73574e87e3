"""Batches of models on one graph; they share the plans for this graph."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    float_array,
    generator,
    instance,
    integers,
    log_weights,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.objectives import item_options
from fstgrad.mrf.result import Inference
from fstgrad.mrf.scored_graph import Table


class PairwiseMRFBatch(Sequence[PairwiseMRF]):
    """B models of the same graph; item b is a `PairwiseMRF`.

    Parameters
    ----------
    model : PairwiseMRF
        The model whose graph and numbers of labels are used; its scores are not.
    node_scores : (B, I, C) float64
        Log-weights in nats.
    edge_scores : (C, C), (E, C, C) or (B, E, C, C) float64
        Log-weights in nats: shared by all edges and items, by all items, or separate for each item.

    Raises
    ------
    InvalidInputError
        There are no items, or shapes do not match.

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
        self, model: PairwiseMRF, node_scores: npt.ArrayLike, edge_scores: npt.ArrayLike
    ) -> None:
        instance("model", model, PairwiseMRF, "a PairwiseMRF")
        node = log_weights(
            "node_scores", node_scores, (None, model.num_nodes, model.num_labels)
        )  # fmt: skip
        edge = float_array("edge_scores", edge_scores)
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

    def __iter__(self) -> Iterator[PairwiseMRF]:
        return iter(self.items)

    def log_partition(self) -> FloatArray:
        """Return log Z of each item (B,), in nats."""
        return np.array([item.log_partition() for item in self])

    def marginals(self) -> Table:
        """Return marginals of nodes (B, I, C), edges (B, E, C, C) and larger factors (B, cells)."""
        return _stacked([item.marginals() for item in self])

    def infer(self, method: str = "exact", **options: Any) -> list[Inference]:
        """Return the result of `PairwiseMRF.infer` for each item."""
        return [item.infer(method, **options) for item in self]

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
        results = [
            item.nll(y, method, **item_options(options, b, len(self)))
            for b, (item, y) in enumerate(zip(self, labels, strict=True))
        ]
        return np.array([value for value, _ in results]), _stacked([table for _, table in results])

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent, exact labelings of each item (B, k, I) int64."""
        random = generator(rng)
        return np.stack([item.sample(k, random) for item in self])

    def mode(self) -> IntArray:
        """Return the best labeling of each item (B, I) int64."""
        return np.stack([item.mode() for item in self])


def _stacked(tables: list[Table]) -> Table:
    return Table(
        np.stack([t.node for t in tables]),
        np.stack([t.edge for t in tables]),
        np.stack([t.factors for t in tables]),
    )
