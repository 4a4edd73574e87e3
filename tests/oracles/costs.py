"""Enumeration of the alignments of a pair: all paths of a small transducer, one at a time.

A transducer is (start, arcs, final).  Arcs are (source, read, written, cost, nextstate), where None
means no symbol; final is {state: cost}.  Cycles of silent arcs are followed until the probability
of the path is less than `least`.
"""

import math
from collections import Counter


def paths(machine, x, y, least=1e-17):
    """Yield (probability, events) of all paths that read x and write y.

    Events are the indices of arcs, then ("end", state).
    """
    start, arcs, final = machine
    stack = [(start, 0, 0, 1.0, ())]
    while stack:
        state, i, j, weight, events = stack.pop()
        if i == len(x) and j == len(y) and state in final:
            yield weight * math.exp(-final[state]), (*events, ("end", state))
        for a, (source, read, written, cost, nextstate) in enumerate(arcs):
            if source != state or weight * math.exp(-cost) < least:
                continue
            if read is not None and (i == len(x) or x[i] != read):
                continue
            if written is not None and (j == len(y) or y[j] != written):
                continue
            step = (i + (read is not None), j + (written is not None))
            stack.append((nextstate, *step, weight * math.exp(-cost), (*events, a)))


def expected_counts(machine, x, y, least=1e-17):
    """Return the sum of the probabilities of all paths, and {event: expected count}."""
    total, counts = 0.0, Counter()
    for weight, events in paths(machine, x, y, least):
        total += weight
        for event in events:
            counts[event] += weight
    return total, {event: count / total for event, count in counts.items()}


def maximized(machine, pairs, given):
    """Return {event: new cost} after one EM step, in which every event has its own cost.

    given: None (joint), 0 (the read side is given) or 1 (the written side is given).  Events of
    states that no path reaches are left out.
    """
    _, arcs, final = machine
    counts = Counter()
    for x, y in pairs:
        counts.update(expected_counts(machine, x, y)[1])
    events = [*range(len(arcs)), *(("end", state) for state in final)]

    def state_of(event):
        return arcs[event][0] if isinstance(event, int) else event[1]

    def side(event):
        """Return what the given side shows: a symbol, None (free), or "end"."""
        return arcs[event][1 + given] if isinstance(event, int) else "end"

    def is_free(event):
        return given is not None and side(event) is None

    def total(*keys):
        """Return a function: the total count of events that equal its event in state and keys."""

        def of(event):
            return sum(
                counts[other]
                for other in events
                if state_of(other) == state_of(event) and all(k(other) == k(event) for k in keys)
            )

        return of

    costs = {}
    for event in events:
        whole = total()(event)
        if not whole:
            continue  # the state is never reached: nothing to learn
        if given is None:
            share = counts[event] / whole
        else:
            alike, gate = total(side)(event), total(is_free)(event)
            share = counts[event] / alike * gate / whole if alike else 0.0
        costs[event] = -math.log(share) if share else math.inf
    return costs
