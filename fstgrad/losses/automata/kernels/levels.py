"""Minimize one level; `tests/oracles/determinization.py` defines the same in numpy."""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.tables import HEAD, hash_cells, new_slots, number_row
from fstgrad.losses.automata.semiring import INF


@kernel
def merge_level(
    nextstate: IntArray, cost: IntArray, number: IntArray, potential: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (nextstate, cost, number, potential) of a level after merging its equal states.

    `number` is the new number of each state, -1 if no arc is left; `potential` is the cost of its
    cheapest completion.  As arguments, both are those of the next level, and as results (') those
    of this level.  Costs are pushed towards the start:

        potential'[s] = min_c cost[s, c] + potential[nextstate[s, c]]
        cost'[s, c] = cost[s, c] + potential[nextstate[s, c]] - potential'[s]
    """
    states, classes = nextstate.shape
    width = 2 * classes
    pool = empty(states * (width + HEAD) + HEAD, np.int64)
    slots = new_slots(states)
    own_number, own_potential = np.full(states, -1, np.int64), np.zeros(states, np.int64)
    cells = empty(width, np.int64)
    begin = count = int(0.0)  # a literal 0 would be of another type
    for s in range(states):
        least = INF
        for c in range(classes):
            to = nextstate[s, c]
            cells[c] = number[to] if to >= 0 else -1
            if cells[c] >= 0:
                cells[classes + c] = cost[s, c] + potential[to]
                least = min(least, cells[classes + c])
        if least == INF:
            continue
        for c in range(classes):
            cells[classes + c] = cells[classes + c] - least if cells[c] >= 0 else 0
        own_potential[s] = least
        hashed = hash_cells(cells, begin, width)
        used = count * (width + HEAD)
        own_number[s] = number_row(slots, pool, used, count, cells, begin, width, hashed)
        count += own_number[s] == count
    merged_nextstate = empty((count, classes), np.int64)
    merged_cost = empty((count, classes), np.int64)
    for s in range(count):
        at = s * (width + HEAD) + HEAD
        for c in range(classes):
            merged_nextstate[s, c], merged_cost[s, c] = pool[at + c], pool[at + classes + c]
    return merged_nextstate, merged_cost, own_number, own_potential
