"""Elimination plans: an order of the nodes, its cliques, and what they cost in memory."""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, prod

from fstgrad.errors import MemoryLimitError
from fstgrad.mrf.graph import Graph

DEFAULT_BYTES = 4 << 30
# A search costs about as much time as this many cells for each node: below, it does not pay.
CELLS_A_SEARCH = 20_000
Neighbours = list[set[int]]
Rule = Callable[[Neighbours, int], float]


@dataclass(frozen=True)
class Plan:
    """A bucket tree: one clique for each node, in the order of elimination.

    Attributes
    ----------
    order : nodes in the order of elimination
    cliques : for each position, its separator in reverse order of elimination, then the node
    parent : position of the clique that takes the message, -1 where the separator is empty
    sizes : number of labels of each node that are alive
    """

    order: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]
    sizes: tuple[int, ...]

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of a clique's table."""
        return tuple(self.sizes[v] for v in self.cliques[position])

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Number of cells of each clique's table."""
        return tuple(prod(self.shape(k)) for k in range(len(self.order)))

    @cached_property
    def width(self) -> int:
        """Number of nodes of the largest clique, less one."""
        return max(len(clique) for clique in self.cliques) - 1

    @cached_property
    def messages(self) -> tuple[int, ...]:
        """Number of cells of each clique's message, a table over its separator."""
        return tuple(
            cells // self.sizes[v] for cells, v in zip(self.cells, self.order, strict=True)
        )

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the cliques that send to each clique."""
        children: list[list[int]] = [[] for _ in self.order]
        for k, parent in enumerate(self.parent):
            if parent >= 0:
                children[parent].append(k)
        return tuple(tuple(found) for found in children)

    def require(self, needed: int, max_bytes: int) -> None:
        """Raise MemoryLimitError if `needed` bytes pass the limit."""
        if needed > max_bytes:
            raise MemoryLimitError(
                f"exact elimination needs {needed / 2**30:,.2f} GiB (a clique of "
                f"{self.width + 1} nodes, {max(self.cells):,} cells) and max_bytes is "
                f"{max_bytes / 2**30:,.2f} GiB; raise max_bytes or take infer('bp'), "
                "infer('trw') or infer('chromatic')"
            )


def make_plan(graph: Graph, sizes: Sequence[int], max_bytes: int = DEFAULT_BYTES) -> Plan:
    """Return the cheapest of several elimination orders.

    Tried are: the nodes as given, the lightest clique first, and the fewest fill-ins first with
    ties broken in several random ways (Koller and Friedman 2009, section 9.4.3.2).  The cost is
    the number of cells of all cliques.

    Raises
    ------
    MemoryLimitError
        No order has a largest clique within `max_bytes`; found without building a table.
    """
    # the tree width of a grid is its shorter side: no need to search for what cannot be there
    hopeless = graph.grid is not None and min(sizes) ** (min(graph.grid) + 1) > max_bytes // 8
    tries: list[tuple[Rule | None, int]] = [] if hopeless else [(_weight_rule(sizes), 0)]
    if tries and graph.num_nodes <= 3000:
        tries += [(None, 0), *((_fill_rule, seed) for seed in range(8))]
    best: Plan | None = None
    limit = (max_bytes // 8) * 1024
    for rule, seed in tries:
        if best is not None and limit < CELLS_A_SEARCH * graph.num_nodes:
            break
        plan = _eliminate(graph, sizes, rule, seed, max_bytes // 8, limit)
        if plan is not None:
            best, limit = plan, sum(plan.cells)
    if best is None:
        raise MemoryLimitError(
            f"exact elimination of {graph.num_nodes:,} nodes and {graph.num_edges:,} edges needs "
            f"more than max_bytes = {max_bytes / 2**30:,.2f} GiB; raise max_bytes or take "
            "infer('bp'), infer('trw') or infer('chromatic')"
        )
    return best


def _weight_rule(sizes: Sequence[int]) -> Rule:
    logs = [log(size) for size in sizes]
    return lambda near, v: logs[v] + sum(logs[u] for u in near[v])


def _fill_rule(near: Neighbours, v: int) -> float:
    """Return the number of edges that eliminating v adds."""
    mine = near[v]
    return (len(mine) * (len(mine) - 1) - sum(len(mine & near[u]) for u in mine)) / 2


def _eliminate(
    graph: Graph,
    sizes: Sequence[int],
    rule: Rule | None,
    seed: int,
    largest: int,
    limit: int,
) -> Plan | None:
    """Eliminate greedily by `rule` (None: in the given order), ties broken by `seed`.

    Returns None as soon as a clique has more than `largest` cells or all have `limit` or more.
    """
    ties = random.Random(seed)
    near: Neighbours = [set() for _ in range(graph.num_nodes)]
    for a, b in graph.edges.tolist():
        near[a].add(b)
        near[b].add(a)
    order: list[int] = []
    separators: list[set[int]] = []
    queue = [
        (0.0 if rule is None else rule(near, v), ties.random() if seed else 0.0, v)
        for v in range(graph.num_nodes)
    ]
    heapq.heapify(queue)
    gone = [False] * graph.num_nodes
    spent = 0
    while queue:
        cost, _, v = heapq.heappop(queue)
        if gone[v] or (rule is not None and cost != rule(near, v)):
            continue  # an entry from before a neighbour changed
        separator = near[v]
        cells = sizes[v] * prod(sizes[u] for u in separator)
        spent += cells
        if cells > largest or spent >= limit:
            return None
        gone[v] = True
        order.append(v)
        separators.append(separator)
        touched = set(separator)
        for u in separator:
            near[u] |= separator
            near[u] -= {u, v}
            if rule is _fill_rule:
                touched |= near[u]
        if rule is not None:
            for u in touched:
                heapq.heappush(queue, (rule(near, u), ties.random() if seed else 0.0, u))
    return _plan(order, separators, sizes)


def _plan(order: list[int], separators: list[set[int]], sizes: Sequence[int]) -> Plan:
    position = {v: k for k, v in enumerate(order)}
    cliques, parents = [], []
    for v, separator in zip(order, separators, strict=True):
        later = sorted(separator, key=position.__getitem__, reverse=True)
        cliques.append((*later, v))
        parents.append(position[later[-1]] if later else -1)
    return Plan(tuple(order), tuple(cliques), tuple(parents), tuple(sizes))
