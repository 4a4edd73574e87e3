"""Factors over any number of nodes, sorted into node scores, edge scores and larger tables."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray, index_array, log_weights
from fstgrad.core.errors import InfeasibleError, InvalidInputError, MemoryLimitError
from fstgrad.core.sequences import items, rows_of
from fstgrad.core.short_repr import short_repr
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.scored_graph import ScoredGraph

PADDED_MEMORY = 4 << 30  # bytes of padded tables
PADDED_CELLS = 1 << 26  # of padded edge tables, half a GiB; with more, pairs are larger factors


class Factor(NamedTuple):
    """A log-table over the joint states of some nodes.

    Attributes
    ----------
    scope : the nodes, in the order of the table's axes
    table : float64 with one axis for each node, log-weights in nats
    """

    scope: Sequence[int]
    table: npt.ArrayLike

    def __repr__(self) -> str:
        return short_repr(self)


class Sorted(NamedTuple):
    """Factors sorted by their number of nodes; factors over the same nodes are added up.

    sizes (I,) : labels of each node.  offset : the sum of the factors over no node.
    unary, pairs, larger : log-tables by scope, nodes ascending.
    """

    sizes: list[int]
    offset: float
    unary: dict[int, FloatArray]
    pairs: dict[tuple[int, int], FloatArray]
    larger: dict[tuple[int, ...], FloatArray]


class Parts(NamedTuple):
    """The arguments of a model: scores (I, C) and (E, C, C), edges (E, 2), labels (I,)."""

    node: FloatArray
    edge: FloatArray
    edges: IntArray
    labels: IntArray
    offset: float
    factors: Factors


def model_parts(labels_per_node: npt.ArrayLike, factors: Iterable[Factor]) -> Parts:
    """Return the arguments of a model whose score is the sum of `factors`.

    Pairs become edges, padded to the largest number of labels.  If the padded tables would need
    more than half a GiB, the pairs remain separate tables.

    Raises
    ------
    InvalidInputError
        A factor is not (scope, table), its scope names a node twice or one that does not exist, or
        its table has the wrong shape, NaN or +inf.
    InfeasibleError
        A factor over no node is -inf.
    MemoryLimitError
        The padded tables need more than 4 GiB.
    """
    by_size = _sorted(labels_per_node, factors)
    if len(by_size.pairs) * max(by_size.sizes, default=0) ** 2 > PADDED_CELLS:
        by_size.larger.update({(*scope,): table for scope, table in by_size.pairs.items()})
        by_size.pairs.clear()
    node, edge, edges = _padded(by_size)
    larger = [(list(scope), table) for scope, table in by_size.larger.items()]
    packed = Factors.pack(len(by_size.sizes), larger)
    return Parts(node, edge, edges, np.array(by_size.sizes), by_size.offset, packed)


def _sorted(labels_per_node: npt.ArrayLike, factors: Iterable[Factor]) -> Sorted:
    """Return the factors, checked, with those over the same nodes added up."""
    sizes = index_array("labels_per_node", labels_per_node, 1 << 40, (None,), lower=1).tolist()
    by_size = Sorted(sizes, 0.0, {}, {}, {})
    offset = 0.0
    for number, (_, parts) in enumerate(rows_of("factors", factors)):
        if len(parts) != 2:
            raise InvalidInputError(
                f"factors[{number}] has {len(parts)} parts; give (scope, table)"
            )
        scope, values = parts
        name = f"factors[{number}].scope"
        nodes = index_array(name, items(name, scope), len(sizes), (None,)).tolist()
        table = log_weights(f"factors[{number}].table", values, tuple(sizes[v] for v in nodes))
        if len(set(nodes)) < len(nodes):
            raise InvalidInputError(f"{name} is {nodes}; name each node once")
        key = tuple(sorted(nodes))
        table = np.transpose(table, np.argsort(nodes)) if len(nodes) > 1 else table
        if len(nodes) == 0:
            offset += float(table)
        elif len(nodes) == 1:
            by_size.unary[key[0]] = by_size.unary.get(key[0], 0.0) + table
        elif len(nodes) == 2:
            pair = (key[0], key[1])
            by_size.pairs[pair] = by_size.pairs.get(pair, 0.0) + table
        else:
            by_size.larger[key] = by_size.larger.get(key, 0.0) + table
    if offset == -np.inf:
        raise InfeasibleError("a factor over no node is zero, so Z = 0; remove it")
    return by_size._replace(offset=offset)


def _padded(by_size: Sorted) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return node scores (I, C), edge scores (E, C, C), padded with 0, and edges (E, 2)."""
    size = max(by_size.sizes, default=0)
    needed = 16 * (len(by_size.pairs) * size**2 + len(by_size.sizes) * size)
    if needed > PADDED_MEMORY:
        raise MemoryLimitError(
            f"{len(by_size.sizes):,} nodes and {len(by_size.pairs):,} edges of {size:,} labels "
            f"need {needed / 2**30:,.1f} GiB; split the largest factor or variable"
        )
    node = np.zeros((len(by_size.sizes), size))
    edge = np.zeros((len(by_size.pairs), size, size))
    for v, scores in by_size.unary.items():
        node[v, : len(scores)] = scores
    for e, scores in enumerate(by_size.pairs.values()):
        edge[e, : scores.shape[0], : scores.shape[1]] = scores
    return node, edge, np.array(list(by_size.pairs), np.int64).reshape(-1, 2)


def pairwise_form(model: ScoredGraph) -> ScoredGraph:
    """Return a model without larger factors, with the same distribution over its first I nodes.

    Factor f becomes node I + f.  Its labels are the joint states of its scope (row-major, last node
    fastest), and edges with hard zeros make it agree with the nodes of its scope.

    Raises
    ------
    MemoryLimitError
        The tables, padded to the largest factor, need more than 4 GiB.
    """
    sizes = model.labels_per_node.tolist()
    ends = model.graph.edges.tolist()
    stack = model.edge_stack
    unary = {v: model.scores.node[v, :size] for v, size in enumerate(sizes)}
    pairs = {
        (a, b): stack[e if len(stack) > 1 else 0, : sizes[a], : sizes[b]]
        for e, (a, b) in enumerate(ends)
    }
    by_size = Sorted(sizes, 0.0, unary, pairs, {})
    for f in range(model.factors.number):
        table, new = model.factors.view(f), len(sizes)
        sizes.append(table.size)
        unary[new] = table.ravel()
        digits = np.indices(table.shape).reshape(table.ndim, -1)
        for v, digit in zip(model.factors.nodes(f), digits, strict=True):
            agrees = digit == np.arange(sizes[v])[:, None]
            pairs[v, new] = np.where(agrees, 0.0, -np.inf)
    node, edge, edges = _padded(by_size)
    graph = Graph.checked(len(sizes), edges)
    return ScoredGraph(graph, node, edge, np.array(sizes), model.offset)
