"""Cases selected from a product of lists, which would be too many."""

import itertools


def in_turn(rows, values, every=()):
    """Each row with one of the values, in turn; the rows in `every` with each of them."""
    places = itertools.cycle(values)
    chosen = ((row, values if row in every else [next(places)]) for row in rows)
    return [(row, value) for row, found in chosen for value in found]


def pairwise(*lists):
    """Combinations of one item of each list such that any two items of two lists meet in one."""

    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    tables = [list(items) for items in lists]
    every = list(itertools.product(*(range(len(items)) for items in tables)))
    left, chosen = set().union(*map(pairs, every)), []
    while left:
        best = max(every, key=lambda combination: len(pairs(combination) & left))
        chosen.append(tuple(items[i] for items, i in zip(tables, best, strict=True)))
        left -= pairs(best)
    return chosen
