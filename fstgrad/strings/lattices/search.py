"""Strings in a lattice: the sum over the paths of a string, the k best strings, the best path."""

import heapq
from itertools import count

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, positive_integer
from fstgrad.core.errors import InfeasibleError, StateLimitError
from fstgrad.strings.lattices.graph import NO_SYMBOL, Flow, Graph, sums_by


def log_sum_of_string(graph: Graph, label: IntArray, scores: FloatArray, ids: IntArray) -> float:
    """Return the log of the sum over the paths that read `ids`, in nats; -inf if there are none.

    label : (A,) the id that each arc reads, or -1; scores : (A,) in nats; ids : (l,)
    """
    paths, arc = paths_of_string(graph, label, ids)
    return float(paths.beta(scores[arc])[0])


def posterior_of_string(
    graph: Graph, label: IntArray, scores: FloatArray, ids: IntArray
) -> tuple[float, FloatArray]:
    """Return the log of the sum over the paths that read `ids` (nats), and their arc posteriors.

    The posteriors (A,) are probabilities of the arcs given the string.  If all these paths have the
    score -inf, they are equally likely.

    Raises
    ------
    InfeasibleError
        No path reads `ids`.
    """
    paths, arc = paths_of_string(graph, label, ids)
    weight = scores[arc]
    total = float(paths.beta(weight)[0])
    if total == -np.inf:
        weight = np.zeros(len(weight))
    if paths.beta(weight)[0] == -np.inf:
        raise InfeasibleError(
            "the string is not among those of the lattice; use the one that is closest to it: "
            "lattice.compile(loss, gold).closest()"
        )
    flow = Flow.of(paths, weight)
    return total, sums_by(arc, flow.posterior, graph.num_arcs)


def best_path_of_string(
    graph: Graph, label: IntArray, scores: FloatArray, ids: IntArray
) -> tuple[IntArray, float]:
    """Return the arcs of the best path that reads `ids`, and its score in nats.

    Raises
    ------
    InfeasibleError
        No path with a finite score reads `ids`.
    """
    paths, arc = paths_of_string(graph, label, ids)
    path, total = best_path(paths, scores[arc])
    return arc[path], total


def paths_of_string(graph: Graph, label: IntArray, ids: IntArray) -> tuple[Graph, IntArray]:
    """Return the graph of the paths that read `ids`, and the lattice arc of each of its arcs.

    Its states are pairs (state, number of symbols read), sorted by state.  It may contain states
    from which the end cannot be reached.
    """
    length = len(ids)
    reading = np.append(ids, NO_SYMBOL - 1)
    pairs = {(0, 0): 0}
    here: dict[int, list[int]] = {0: [0]}
    found: list[tuple[int, int, int, int, int]] = []
    first = graph.first_out.tolist()
    nextstates, labels = graph.nextstate.tolist(), label.tolist()
    for state in range(graph.num_states - 1):
        for position in here.pop(state, ()):
            for arc in range(first[state], first[state + 1]):
                if labels[arc] not in (NO_SYMBOL, reading[position]):
                    continue
                after = position + (labels[arc] != NO_SYMBOL)
                pair = (nextstates[arc], after)
                if pair not in pairs:
                    pairs[pair] = len(pairs)
                    here.setdefault(nextstates[arc], []).append(after)
                found.append((state, position, nextstates[arc], after, arc))
    pairs.setdefault((graph.num_states - 1, length), len(pairs))
    # the last pair is the end of the lattice with all symbols read
    order = sorted(pairs, key=lambda pair: (pair[0], pair[1] == length, pair[1]))
    number = {pair: i for i, pair in enumerate(order)}
    rows = sorted((number[s, i], number[t, j], arc) for s, i, t, j, arc in found)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    return Graph(columns[0], columns[1], len(order)), columns[2]


def best_path(graph: Graph, weight: FloatArray) -> tuple[IntArray, float]:
    """Return the arcs of the path with the highest weight, and its weight in nats; O(A).

    best[s'] = max over the arcs e from s to s' of best[s] + weight[e].  Among equals the first arc
    wins.

    Raises
    ------
    InfeasibleError
        No path has a finite weight.
    """
    best = np.full(graph.num_states, -np.inf)
    best[0] = 0.0
    through = np.full(graph.num_states, -1, dtype=np.int64)
    for state in range(graph.num_states):
        arcs = slice(graph.first_out[state], graph.first_out[state + 1])
        totals = best[state] + weight[arcs]
        for arc, total in enumerate(totals.tolist(), start=int(arcs.start)):
            if total > best[graph.nextstate[arc]]:
                best[graph.nextstate[arc]], through[graph.nextstate[arc]] = total, arc
    state, path = graph.num_states - 1, []
    if best[state] == -np.inf:
        raise InfeasibleError("no path of the lattice has a finite weight (Z = 0); allow more arcs")
    while state:
        path.append(int(through[state]))
        state = int(graph.source[through[state]])
    return np.array(path[::-1], dtype=np.int64), float(best[-1])


def kbest(
    graph: Graph, label: IntArray, scores: FloatArray, k: int, *, max_states: int
) -> list[tuple[IntArray, float]]:
    """Return the k strings with the highest total weight, best first, and their log-weights (nats).

    The weight of a string is the sum over its paths.  Best-first search (A*): a node is a prefix
    with the weight alpha(q) of its paths to every state q that they reach.  No string read from q
    on weighs more than

        bound(q) = max_a sum over arcs e from q (after epsilon arcs) that read a
                   of w(e) bound(next state of e),

    so sum_q alpha(q) bound(q) is an upper bound for every string with this prefix.  The bound is
    exact if the lattice is deterministic.  Among equal weights the smaller ids come first.

    Raises
    ------
    StateLimitError
        The prefixes that were visited reach more than `max_states` states, each counted anew.
    """
    after = _Continuations(graph, label, scores)
    ticket = count()  # unique, so the heap never compares the dictionaries
    # items: (minus the bound, prefix, 0 if ended else 1, ticket, {state: log-weight})
    queue: list[tuple[float, tuple[int, ...], int, int, dict[int, float]]] = [
        (-after.bound[0], (), 1, next(ticket), after.closed({0: 0.0}))
    ]
    found: list[tuple[IntArray, float]] = []
    max_states, visited = positive_integer("max_states", max_states), 0
    while queue and len(found) < k:
        bound, prefix, open_, _, reached = heapq.heappop(queue)
        if not open_:
            found.append((np.array(prefix, dtype=np.int64), -bound))
            continue
        total = reached.get(graph.num_states - 1, -np.inf)
        if total > -np.inf:
            heapq.heappush(queue, (-total, prefix, 0, next(ticket), {}))
        for symbol, ahead in after.steps(reached).items():
            best = np.logaddexp.reduce([w + after.bound[q] for q, w in ahead.items()])
            if best > -np.inf:
                item = (-float(best), (*prefix, symbol), 1, next(ticket), after.closed(ahead))
                heapq.heappush(queue, item)
                visited += len(item[-1])
        if visited > max_states:
            raise StateLimitError(
                visited,
                max_states,
                where=f"search for the {k} best strings",
                remedy="Use best_path(), sample() strings, or raise max_states of kbest().",
            )
    return found


class _Continuations:
    """The arcs and bounds of the continuations from each state of a lattice."""

    def __init__(self, graph: Graph, label: IntArray, scores: FloatArray) -> None:
        self._arcs = [
            list(
                zip(
                    label[arcs].tolist(),
                    graph.nextstate[arcs].tolist(),
                    scores[arcs].tolist(),
                    strict=True,
                )
            )
            for arcs in map(slice, graph.first_out[:-1], graph.first_out[1:])
        ]
        self.bound = self._bounds()

    def _bounds(self) -> FloatArray:
        """Return for each state (S,) the log of an upper bound for the strings read from it on."""
        end = len(self._arcs) - 1
        bound = np.full(end + 1, -np.inf)
        reading: list[dict[int, float]] = [{} for _ in range(end + 1)]
        reading[end] = {NO_SYMBOL: 0.0}  # the empty string
        for state in reversed(range(end + 1)):
            mine = reading[state]
            for symbol, nextstate, score in self._arcs[state]:
                ahead = (
                    reading[nextstate] if symbol == NO_SYMBOL else {symbol: float(bound[nextstate])}
                )
                for a, weight in ahead.items():
                    mine[a] = np.logaddexp(mine.get(a, -np.inf), score + weight)
            bound[state] = max(mine.values())
        return bound

    def closed(self, reached: dict[int, float]) -> dict[int, float]:
        """Return the log-weights of states after any number of epsilon arcs."""
        result = dict(reached)
        queue = sorted(reached)
        while queue:
            state = heapq.heappop(queue)
            for symbol, nextstate, score in self._arcs[state]:
                if symbol == NO_SYMBOL and score > -np.inf:
                    if nextstate not in result:
                        heapq.heappush(queue, nextstate)
                    result[nextstate] = np.logaddexp(
                        result.get(nextstate, -np.inf), result[state] + score
                    )
        return result

    def steps(self, reached: dict[int, float]) -> dict[int, dict[int, float]]:
        """Return for each symbol the states after reading it, without epsilon arcs after it."""
        result: dict[int, dict[int, float]] = {}
        for state, weight in reached.items():
            for symbol, nextstate, score in self._arcs[state]:
                if symbol != NO_SYMBOL and score > -np.inf:
                    ahead = result.setdefault(symbol, {})
                    ahead[nextstate] = np.logaddexp(ahead.get(nextstate, -np.inf), weight + score)
        return result
