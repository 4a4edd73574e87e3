"""Predictions of a trained network: best structures, k best, samples, least expected loss.

Each family has one class, created from the same tensors as its objectives.  Predictions are not
differentiable.  Results are integer tensors on the device of the scores, padded with -100 so that
they can be compared with padded gold; log-probabilities are in nats.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from fstgrad.core.checks import IntArray, Seed, flag, generator, instance, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.losses import Loss
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.objectives.predictions import (
    PADDING,
    labels_of_least_risk,
    lattice_string_of_least_risk,
    least_total_loss,
    padded,
    string_of_least_risk,
    tree_of_least_risk,
)
from fstgrad.strings import StringDistribution
from fstgrad.strings.lattices import Lattice
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, require_cpu, to_numpy, upcast
from fstgrad.torch.device import chains
from fstgrad.torch.device.sums import finite
from fstgrad.torch.mrf import by_node, mrf_marginals
from fstgrad.torch.strings import Lengths
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import uncompiled
from fstgrad.trees.spanning import SpanningTrees

_Chain = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # emissions, transitions, mask


class Predictions:
    """Structures of B items, each from its distribution in `_all`."""

    _all: Sequence[Any]  # distributions with the methods mode, kbest and sample

    def __init__(
        self, items: int, device: torch.device, shape: tuple[int, ...] | None = None
    ) -> None:
        """Store the arguments; shape : of a padded structure, None to pad to the longest one."""
        if items == 0:
            raise InvalidInputError("scores have no items; give a batch of at least one")
        self.items, self.device, self.shape = items, device, shape

    @uncompiled
    def decode(self) -> torch.Tensor:
        """Return the most probable structure of each item (B, ...)."""
        return self._padded(self._each(lambda i: self._all[i].mode()))

    @uncompiled
    def nbest(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best structures (B, k, ...) and log p (B, k), best first.

        If an item has fewer, the remaining log p are -inf and the structures are -100.
        """
        k = positive_integer("k", k)
        lists = self._each(lambda i: self._all[i].kbest(k))
        log_probs = torch.full((self.items, k), -torch.inf, dtype=torch.float64)
        for i, ranked in enumerate(lists):
            item_log_probs = [log_prob for _, log_prob in ranked]
            log_probs[i, : len(ranked)] = torch.tensor(item_log_probs, dtype=torch.float64)
        structures = self._padded([[ids for ids, _ in ranked] for ranked in lists], k)
        return structures, log_probs.to(self.device)

    @uncompiled
    def sample(self, k: int, rng: Seed = None) -> torch.Tensor:
        """Return k independent structures of each item (B, k, ...)."""
        k = positive_integer("k", k)
        sources = generator(rng).spawn(self.items)
        return self._padded(self._each(lambda i: list(self._all[i].sample(k, sources[i]))), k)

    def _each(self, task: Callable[[int], Any]) -> list[Any]:
        results: list[Any] = [None] * self.items

        def run(i: int) -> None:
            results[i] = task(i)

        team().each(self.items, run)
        return results

    def _padded(self, structures: Sequence[Any], k: int | None = None) -> torch.Tensor:
        """Return arrays, one for each item or up to k for each item, as one padded tensor."""
        lists = [[item_structures] for item_structures in structures] if k is None else structures
        every = [structure for item_structures in lists for structure in item_structures]
        shape = self.shape or np.array([structure.shape for structure in every]).max(axis=0)
        table = padded(lists, k or 1, shape)
        return torch.from_numpy(table[:, 0] if k is None else table).to(self.device)


def _sizes(lengths: Lengths, items: int, most: int, least: int = 1) -> list[int]:
    """Return lengths as integers; without lengths, all items have `most` positions."""
    if lengths is None:
        return [most] * items
    known = arguments.integer_per_item("lengths", lengths, items)
    return [int(size) for size in arguments.in_range("lengths", known, least, most)]


class Strings(Predictions):
    """Predictions from scores (B, L, n), (B, L, n+1, n), ...: see `softmax_margin`.

    Parameters
    ----------
    scores : floating point
    lengths : (B,), optional

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> fgt.Strings(torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])).decode().tolist()
    [[1, 0]]
    """

    def __init__(self, scores: torch.Tensor, lengths: Lengths = None) -> None:
        if arguments.floating("scores", scores).ndim < 3:
            raise InvalidInputError(f"scores has the shape {tuple(scores.shape)}; give a batch")
        super().__init__(len(scores), scores.device, tuple(scores.shape[1:2]))
        self._chain: _Chain | None = None
        sizes = _sizes(lengths, len(scores), scores.shape[1])
        if computes_on_device(scores) and scores.ndim < 5:
            StringDistribution(np.zeros(scores.shape[1:]))  # checks the shape
            self._chain = _as_chain(scores, sizes)
            return
        require_cpu(f"order {scores.ndim - 2} of strings", scores)
        tables = to_numpy(scores)
        self._all = [
            StringDistribution(own[:size]) for own, size in zip(tables, sizes, strict=True)
        ]

    @uncompiled
    def decode(self) -> torch.Tensor:
        """Return the most probable string of each item (B, L)."""
        return super().decode() if self._chain is None else self._kbest(1)[0][:, 0]

    @uncompiled
    def nbest(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best strings (B, k, L) and log p (B, k), best first.

        If an item has fewer, the remaining log p are -inf and the strings are -100.
        """
        if self._chain is None:
            return super().nbest(k)
        strings, totals = self._kbest(positive_integer("k", k))
        return strings, totals - chains.log_partition(*self._chain)[:, None]

    @uncompiled
    def sample(self, k: int, rng: Seed = None) -> torch.Tensor:
        """Return k independent strings of each item (B, k, L)."""
        if self._chain is None:
            return super().sample(k, rng)
        ids = chains.sample(*self._chain, positive_integer("k", k), rng)
        return ids.masked_fill(ids < 0, PADDING)

    def _kbest(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, totals = chains.kbest(*cast(_Chain, self._chain), k)
        return ids.masked_fill(ids < 0, PADDING), totals

    @uncompiled
    def mbr(
        self, loss: Loss, *, candidates: int = 10, samples: int = 200, rng: Seed = None
    ) -> torch.Tensor:
        """Return the string y with the least E[L(y, Y)] among the k best of each item (B, L).

        The expectation, over Y ~ p, is estimated by the mean over `samples` drawn strings.  On a
        device, their ids are copied to the CPU once, where losses are computed.
        """
        candidates = positive_integer("candidates", candidates)
        samples = positive_integer("samples", samples)
        instance("loss", loss, Loss, "a Loss")
        if self._chain is not None:
            ids = torch.cat([self.nbest(candidates)[0], self.sample(samples, rng)], dim=1)
            every = [[row[row >= 0] for row in item] for item in ids.cpu().numpy()]

            def chosen(i: int) -> IntArray:
                best = [y for y in every[i][:candidates] if len(y)]
                return least_total_loss(best, every[i][candidates:], loss)

            return self._padded(self._each(chosen))
        sources = generator(rng).spawn(self.items)

        def choose(i: int) -> IntArray:
            return string_of_least_risk(self._all[i], loss, candidates, samples, sources[i])

        return self._padded(self._each(choose))


def _as_chain(scores: torch.Tensor, sizes: list[int]) -> _Chain:
    """Return emissions, transitions and the mask of `chains` for scores of order 1 or 2.

    Scores lose the largest one of each position, since a position may be masked.
    """
    mask = torch.arange(scores.shape[1]) < torch.tensor(sizes)[:, None]
    mask = mask.to(scores.device, non_blocking=True)
    rows = upcast(scores.detach())
    if scores.ndim == 4:  # the first position has the context "before the start", others have not
        first, rows = rows[:, :1, -1], rows[:, :, :-1]
        first = first - finite(first.amax(dim=2, keepdim=True))
    rows = rows - finite(rows.flatten(2).amax(dim=2)).reshape(*mask.shape, *(1,) * (rows.ndim - 2))
    if scores.ndim == 4:
        return torch.cat([first, torch.zeros_like(rows[:, 1:, 0])], dim=1), rows, mask
    return rows, rows.new_zeros(rows.shape[2], rows.shape[2]), mask


class LatticeStrings(Predictions):
    """Predictions from scores of the arcs of lattices: see `lattice_softmax_margin`.

    Parameters
    ----------
    scores : sequence of B tensors (A_i,)
    lattices : sequence of B Lattice
    """

    def __init__(self, scores: Sequence[torch.Tensor], lattices: Sequence[Lattice]) -> None:
        scores, lattices = items("scores", scores), items("lattices", lattices)
        if len(scores) != len(lattices) or len(scores) == 0:
            raise InvalidInputError(
                f"there are {len(lattices)} lattices; scores has {len(scores)} items"
            )
        for i, (own, lattice) in enumerate(zip(scores, lattices, strict=True)):
            arguments.floating(f"scores[{i}]", own)
            instance(f"lattices[{i}]", lattice, Lattice, "a Lattice")
        super().__init__(len(lattices), scores[0].device)
        require_cpu("the prediction of strings of lattices", *scores)
        self._all = [
            lattice.with_scores(to_numpy(own))
            for own, lattice in zip(scores, lattices, strict=True)
        ]

    @uncompiled
    def mbr(self, loss: Loss, *, candidates: int = 10) -> torch.Tensor:
        """Return the string y with the least E[L(y, Y)] among the k best of each item, Y ~ p.

        The expected loss is exact where `fg.mbr` can compute it, else over 1,000 drawn strings.
        """
        candidates = positive_integer("candidates", candidates)
        instance("loss", loss, Loss, "a Loss")
        return self._padded(
            self._each(lambda i: lattice_string_of_least_risk(self._all[i], loss, candidates))
        )


class Trees(Predictions):
    """Predictions from scores (B, n+1, n+1[, y]): heads (B, n), or heads and labels (B, n, 2).

    Parameters as in `spanning_tree_nll`.

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> scores = torch.tensor([[[0.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    >>> fgt.Trees(scores, single_root=True).decode().tolist()
    [[0, 1]]
    """

    def __init__(
        self,
        scores: torch.Tensor,
        *,
        single_root: bool,
        lengths: Lengths = None,
        labeled: bool = False,
    ) -> None:
        if arguments.floating("scores", scores).ndim != (4 if flag("labeled", labeled) else 3):
            raise InvalidInputError(f"scores has the shape {tuple(scores.shape)}; give a batch")
        shape = (scores.shape[1] - 1, *([2] if labeled else []))
        super().__init__(len(scores), scores.device, shape)
        require_cpu("the prediction of trees", scores)
        tables = to_numpy(scores).astype(np.float64)
        sizes = _sizes(lengths, len(tables), tables.shape[1] - 1, least=0)
        self._all = [
            SpanningTrees(own[: size + 1, : size + 1], single_root=single_root, labeled=labeled)
            for own, size in zip(tables, sizes, strict=True)
        ]

    @uncompiled
    def mbr(self) -> torch.Tensor:
        """Return the trees with the largest expected number of correct arcs (and labels)."""
        return self._padded(self._each(lambda i: tree_of_least_risk(self._all[i])))


class RandomFields(Predictions):
    """Predictions (B, I) from node scores and edge scores, (B, H, W) for images: see `mrf_nll`.

    Parameters
    ----------
    node_scores : (B, I, C), or images (B, C, H, W) floating point
    edge_scores : (C, C), (E, C, C) or (B, E, C, C)
    graph : PairwiseMRF
        Its scores are not used.
    """

    def __init__(
        self, node_scores: torch.Tensor, edge_scores: torch.Tensor, graph: PairwiseMRF
    ) -> None:
        arguments.floating("node_scores", node_scores)
        arguments.floating("edge_scores", edge_scores)
        instance("graph", graph, PairwiseMRF, "a PairwiseMRF")
        if node_scores.ndim not in (3, 4):
            raise InvalidInputError(
                f"node_scores has the shape {tuple(node_scores.shape)}; give (B, I, C), or images "
                "(B, C, H, W)"
            )
        shape = tuple(node_scores.shape[2:] if node_scores.ndim == 4 else node_scores.shape[1:2])
        node_scores = by_node(node_scores, graph)
        super().__init__(len(node_scores), node_scores.device, shape)
        if edge_scores.ndim == 4 and len(edge_scores) != len(node_scores):
            raise InvalidInputError(
                f"edge_scores has shape {tuple(edge_scores.shape)} for {len(node_scores)} items; "
                "give one table of edges for each item, or (E, C, C)"
            )
        self._scores, self._graph = (node_scores.detach(), edge_scores.detach()), graph
        if node_scores.device.type != "cpu":
            return
        nodes, edges = (to_numpy(t).astype(np.float64) for t in (node_scores, edge_scores))
        self._all = [
            graph.with_scores(own, edges[i] if edges.ndim == 4 else edges)
            for i, own in enumerate(nodes)
        ]

    def _each(self, task: Callable[[int], Any]) -> list[Any]:
        require_cpu("the prediction of labelings except by mbr", *self._scores)
        return super()._each(task)

    def _padded(self, labelings: Sequence[Any], k: int | None = None) -> torch.Tensor:
        if k is None:
            return super()._padded([labels.reshape(self.shape) for labels in labelings])
        return super()._padded(
            [[y.reshape(self.shape) for y in item_labelings] for item_labelings in labelings], k
        )

    @uncompiled
    def decode(self, method: str = "exact", **options: Any) -> torch.Tensor:
        """Return the best labeling of each item (B, I); methods as in `PairwiseMRF.decode`."""
        labelings = self._each(lambda i: self._all[i].decode(method, **options).labels)
        return self._padded(labelings)

    @uncompiled
    def mbr(self, method: str = "exact", **options: Any) -> torch.Tensor:
        """Return the labels with the fewest expected errors: those with largest marginals."""
        if computes_on_device(self._scores[0]):
            node = mrf_marginals(*self._scores, self._graph, method=method, **options).node
            labels = node.argmax(dim=2).masked_fill(node.isnan().any(dim=2), PADDING)
            return labels.reshape(self.items, *self.shape or ())
        return self._padded(
            self._each(lambda i: labels_of_least_risk(self._all[i], method, options))
        )
