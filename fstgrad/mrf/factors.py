"""Factors of any number of nodes, turned into node and edge scores."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray, index_array, log_weights
from fstgrad.errors import InfeasibleError, InvalidInputError, MemoryLimitError

MAX_BYTES = 4 << 30


class Factor(NamedTuple):
    """A log-table over the joint states of some nodes.

    Attributes
    ----------
    scope : the nodes, in the order of the table's axes
    table : float64 with one axis for each node, log-weights in nats
    """

    scope: Sequence[int]
    table: npt.ArrayLike


class Parts(NamedTuple):
    """The arguments of a pairwise model."""

    node: FloatArray
    edge: FloatArray
    edges: IntArray
    labels: IntArray
    offset: float
    num_variables: int


def pairwise_parts(labels_per_node: npt.ArrayLike, factors: Iterable[Factor]) -> Parts:
    """Return the parts of `PairwiseMRF.from_factors`."""
    counts = np.asarray(labels_per_node)
    sizes = index_array("labels_per_node", counts, 1 << 40, (None,), lower=1).tolist()
    variables = len(sizes)
    unary: dict[int, FloatArray] = {}
    pairs: dict[tuple[int, int], FloatArray] = {}
    offset = 0.0
    for number, (scope, values) in enumerate(factors):
        nodes = index_array(f"factors[{number}].scope", list(scope), variables, (None,)).tolist()
        shape = tuple(sizes[v] for v in nodes)
        table = log_weights(f"factors[{number}].table", values, shape)
        if len(set(nodes)) < len(nodes):
            raise InvalidInputError(f"factors[{number}].scope is {nodes}; name each node once")
        if len(nodes) == 0:
            offset += float(table)
        elif len(nodes) == 1:
            unary[nodes[0]] = unary.get(nodes[0], 0.0) + table
        elif len(nodes) == 2:
            key = (min(nodes), max(nodes))
            pairs[key] = pairs.get(key, 0.0) + (table if nodes[0] < nodes[1] else table.T)
        else:
            _add_joint_node(nodes, table, sizes, unary, pairs)
    if offset == -np.inf:
        raise InfeasibleError("a factor over no node is zero, so Z = 0; remove it")
    return _packed(sizes, unary, pairs, offset, variables)


def _add_joint_node(
    nodes: list[int],
    table: FloatArray,
    sizes: list[int],
    unary: dict[int, FloatArray],
    pairs: dict[tuple[int, int], FloatArray],
) -> None:
    """Append a node over the joint states of `nodes`; its edges allow only states that agree."""
    new = len(sizes)
    sizes.append(table.size)
    unary[new] = table.ravel()
    digits = np.indices(table.shape).reshape(table.ndim, -1)
    for v, digit in zip(nodes, digits, strict=True):
        agrees = digit == np.arange(sizes[v])[:, None]
        pairs[v, new] = np.where(agrees, 0.0, -np.inf)


def _packed(
    sizes: list[int],
    unary: dict[int, FloatArray],
    pairs: dict[tuple[int, int], FloatArray],
    offset: float,
    variables: int,
) -> Parts:
    size = max(sizes, default=0)
    needed = 16 * (len(pairs) + 1) * size**2
    if needed > MAX_BYTES:
        raise MemoryLimitError(
            f"{len(pairs):,} edges of {size:,} x {size:,} labels need {needed / 2**30:.1f} GiB; "
            "split the largest factor"
        )
    node = np.zeros((len(sizes), size))
    edge = np.zeros((len(pairs), size, size))
    for v, scores in unary.items():
        node[v, : len(scores)] = scores
    for e, scores in enumerate(pairs.values()):
        edge[e, : scores.shape[0], : scores.shape[1]] = scores
    edges = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Parts(node, edge, edges, np.array(sizes), offset, variables)
