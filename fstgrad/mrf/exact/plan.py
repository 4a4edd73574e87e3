"""Elimination plans: an order of the nodes, its cliques, and their cost in memory."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import IntArray
from fstgrad.core.errors import MemoryLimitError
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.resources import NO_LIMIT, Budget, SpentError

ELIMINATION_MEMORY = 4 << 30  # bytes that the tables may use by default
# A search costs about as much as this many cells per node: for a cheaper plan, it does not pay.
CELLS_A_SEARCH = 2000
LARGEST_SEARCH = 2048  # `any_order` searches on graphs of at most this many nodes
LARGEST_BITS = 8192  # most nodes for which sets of neighbours are stored as bits
STEPS = 16  # of a search between two checks of the time
Bits = npt.NDArray[np.uint64]
Rule = Literal["given", "weight", "fill"]


@dataclass(frozen=True)
class Plan:
    """A bucket tree: one clique for each node, in the order of elimination.

    Attributes
    ----------
    order : (I,) the nodes in the order of elimination
    cliques : for each position in the order, the nodes of its separator in reverse order of
        elimination, then the node itself
    parent : for each position, the position of the clique that receives its message; -1 if the
        separator is empty
    sizes : the number of labels of each node in the tables
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
        """Number of nodes of the largest clique minus 1."""
        return max(len(clique) for clique in self.cliques) - 1

    @cached_property
    def messages(self) -> tuple[int, ...]:
        """Number of cells of each clique's message, which is a table over its separator."""
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
        return tuple(tuple(positions) for positions in children)

    def require(self, needed: int, max_memory: int) -> None:
        """Raise MemoryLimitError if `needed` bytes exceed the limit."""
        if needed > max_memory:
            raise MemoryLimitError(
                f"exact elimination needs {needed / 2**30:,.2f} GiB (a clique of "
                f"{self.width + 1} nodes, {max(self.cells):,} cells) and max_memory is "
                f"{max_memory / 2**30:,.2f} GiB; raise max_memory or use infer('bp'), "
                "infer('trw') or infer('chromatic')"
            )


def make_plan(
    graph: Graph,
    sizes: Sequence[int],
    max_memory: int = ELIMINATION_MEMORY,
    budget: Budget = NO_LIMIT,
) -> Plan:
    """Return the cheapest of several elimination orders.

    The orders are: the nodes as given, the lightest clique first, and the fewest fill-ins first
    with ties broken in several random ways (Koller and Friedman 2009, section 9.4.3).  The cost
    is the number of cells of all cliques.  If the budget is spent, returns the cheapest so far.
    sizes : (I,), the number of labels of each node.

    Raises
    ------
    MemoryLimitError
        The largest clique of every order exceeds `max_memory` bytes; no table is built.
    SpentError
        The budget is spent before an order is found.
    """
    # a grid's tree width is its shorter side: if its cliques are too large, no order can succeed
    hopeless = graph.pixels is not None and min(sizes) ** (min(graph.pixels) + 1) > max_memory // 8
    tries: list[tuple[Rule, int]] = [] if hopeless else [("weight", 0)]
    if tries and graph.num_nodes <= LARGEST_BITS:
        tries += [("given", 0), *(("fill", seed) for seed in range(8))]
    best: Plan | None = None
    limit = (max_memory // 8) * 1024
    for rule, seed in tries:
        if best is not None and limit < CELLS_A_SEARCH * graph.num_nodes:
            break
        search = _by_bits if graph.num_nodes <= LARGEST_BITS else _by_sets
        try:
            plan = search(graph, sizes, rule, seed, (max_memory // 8, limit), budget)
        except SpentError:
            if best is None:
                raise
            break
        if plan is not None:
            best, limit = plan, sum(plan.cells)
    if best is None:
        raise MemoryLimitError(
            f"exact elimination of {graph.num_nodes:,} nodes and {graph.num_edges:,} edges needs "
            f"more than max_memory = {max_memory / 2**30:,.2f} GiB; raise max_memory or use "
            "infer('bp'), infer('trw') or infer('chromatic')"
        )
    return _depth_first(best)


def any_order(graph: Graph, sizes: Sequence[int], budget: Budget = NO_LIMIT) -> list[int]:
    """Return an order of elimination, without a limit on its width.

    Fewest fill-ins first, cached in `graph.cache`; the nodes as given if the graph has more than
    LARGEST_SEARCH nodes or the budget is spent.
    """
    key = "any order", tuple(sizes)
    if key not in graph.cache:
        order = list(range(graph.num_nodes))
        if graph.num_nodes <= LARGEST_SEARCH:
            try:
                greedy = _greedy(graph, sizes, "fill", 0, (np.inf, np.inf), budget)
            except SpentError:
                return order
            order = order if greedy is None else greedy[0].tolist()
        graph.cache[key] = order
    cached: list[int] = graph.cache[key]
    return cached


def _depth_first(plan: Plan) -> Plan:
    """Return the same bucket tree in an order in which few messages are stored at a time.

    Each subtree is finished before the next one begins.  Among siblings, the subtree that needs the
    most memory besides its own message comes first (Sethi and Ullman 1970).  The order within
    separators stays valid, because the nodes of a separator are on one path to the root.
    """
    peak = [0] * len(plan.order)
    children: list[list[int]] = []
    for k, siblings in enumerate(plan.children):
        ranked = sorted(siblings, key=lambda c: peak[c] - plan.messages[c], reverse=True)
        children.append(ranked)
        waiting = 0
        for c in ranked:
            peak[k] = max(peak[k], waiting + peak[c])
            waiting += plan.messages[c]
        peak[k] = max(peak[k], waiting + plan.messages[k])
    sequence: list[int] = []
    roots = [k for k, parent in enumerate(plan.parent) if parent < 0]
    stack = sorted(roots, key=lambda k: peak[k])
    while stack:  # parents before children, the last child first: the reverse of the order
        k = stack.pop()
        sequence.append(k)
        stack += children[k]
    sequence.reverse()
    place = {k: at for at, k in enumerate(sequence)}
    return Plan(
        tuple(plan.order[k] for k in sequence),
        tuple(plan.cliques[k] for k in sequence),
        tuple(place.get(plan.parent[k], -1) for k in sequence),
        plan.sizes,
    )


def _by_bits(
    graph: Graph, sizes: Sequence[int], rule: Rule, seed: int, limits: tuple[float, float],
    budget: Budget,
) -> Plan | None:  # fmt: skip
    """Return the plan of a greedy search by `rule`, ties broken by `seed`; None beyond the limits.

    limits : (cells of a clique, cells of all cliques)
    """
    greedy = _greedy(graph, sizes, rule, seed, limits, budget)
    if greedy is None:
        return None
    order, separators = greedy
    members = empty(graph.num_nodes, np.int64)
    sets = [
        members[: kernels.elimination_orders.members(row, members)].tolist() for row in separators
    ]
    return _plan(order.tolist(), sets, sizes)


def _greedy(
    graph: Graph, sizes: Sequence[int], rule: Rule, seed: int, limits: tuple[float, float],
    budget: Budget,
) -> tuple[IntArray, Bits] | None:  # fmt: skip
    """Return an order (I,) and its separators as bits (I, words); None beyond the limits.

    Raises SpentError if the budget is spent.
    """
    nodes, near = graph.num_nodes, _neighbours(graph)
    noise = np.random.default_rng(seed).random(nodes) if seed else np.arange(float(nodes))
    order, separators = empty(nodes, np.int64), empty_like(near)
    number = {
        "given": kernels.elimination_orders.GIVEN,
        "weight": kernels.elimination_orders.WEIGHT,
        "fill": kernels.elimination_orders.FILL,
    }[rule]
    counts, search = np.array(sizes, np.float64), kernels.elimination_orders.Search.of(nodes)
    largest, total = (float(limit) for limit in limits)
    for low in range(0, nodes, STEPS):  # signals are handled between two calls of the kernel
        budget.check()
        total -= kernels.elimination_orders.greedy_order(
            low, min(low + STEPS, nodes), near, counts, number, noise, (largest, total), search,
            order, separators,
        )  # fmt: skip
        if total == -np.inf:
            return None
    return order, separators


def _neighbours(graph: Graph) -> Bits:
    """Return the neighbours of each node as bits, (I, words)."""
    near = np.zeros((graph.num_nodes, (graph.num_nodes + 63) // 64), np.uint64)
    for a, b in ((0, 1), (1, 0)):
        v, u = graph.edges[:, a], graph.edges[:, b]
        np.bitwise_or.at(near, (v, u >> 6), np.uint64(1) << (u & 63).astype(np.uint64))
    return near


def _by_sets(
    graph: Graph, sizes: Sequence[int], rule: Rule, seed: int, limits: tuple[float, float],
    budget: Budget,
) -> Plan | None:  # fmt: skip
    """Do what `_by_bits` does for the weight rule (whatever `rule`), in O(E + fill-ins) memory."""
    near: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    for a, b in graph.edges.tolist():
        near[a].add(b)
        near[b].add(a)
    logs = [log(size) for size in sizes]

    def cost(v: int) -> float:
        return logs[v] + sum(logs[u] for u in near[v])

    order: list[int] = []
    separators: list[set[int]] = []
    queue = [(cost(v), v) for v in range(graph.num_nodes)]
    heapq.heapify(queue)
    gone = [False] * graph.num_nodes
    spent = 0
    while queue:
        budget.check()
        known, v = heapq.heappop(queue)
        if gone[v] or known != cost(v):
            continue  # an outdated entry: a neighbour has been eliminated since
        separator = near[v]
        cells = sizes[v] * prod(sizes[u] for u in separator)
        spent += cells
        if cells > limits[0] or spent >= limits[1]:
            return None
        gone[v] = True
        order.append(v)
        separators.append(separator)
        for u in separator:
            near[u] |= separator
            near[u] -= {u, v}
        for u in separator:
            heapq.heappush(queue, (cost(u), u))
    return _plan(order, separators, sizes)


def _plan(order: list[int], separators: Sequence[Iterable[int]], sizes: Sequence[int]) -> Plan:
    position = {v: k for k, v in enumerate(order)}
    cliques, parents = [], []
    for v, separator in zip(order, separators, strict=True):
        later = sorted(separator, key=position.__getitem__, reverse=True)
        cliques.append((*later, v))
        parents.append(position[later[-1]] if later else -1)
    return Plan(tuple(order), tuple(cliques), tuple(parents), tuple(sizes))
