"""The loss of a grammar of optional rules, by its definition: a recursion over positions."""

import functools
import math


def loss(rules, x, y):
    """Return the least cost from x to y by copies, edits, and rules whose contexts match in x."""

    @functools.cache
    def rest(i, j):
        best = 0.0 if i == len(x) and j == len(y) else math.inf
        if i < len(x) and j < len(y):
            cost = 0.0 if x[i] == y[j] else rules.substitution(x[i], y[j])
            best = min(best, math.inf if cost is None else cost + rest(i + 1, j + 1))
        if i < len(x):
            best = min(best, rules.edits.get("delete", math.inf) + rest(i + 1, j))
        if j < len(y):
            best = min(best, rules.edits.get("insert", math.inf) + rest(i, j + 1))
        for rule in rules.rules:
            for read, written in rule.pairs:
                end, goal = i + len(read), j + len(written)
                if (end, goal) == (i, j) or tuple(x[i:end]) != read or tuple(y[j:goal]) != written:
                    continue
                if is_before(rule.before, x, i) and is_after(rule.after, x, end):
                    best = min(best, rule.cost + rest(end, goal))
        return best

    return rest(0, 0)


def is_before(context, x, at):
    starts = [0] if context.is_anchored else range(at + 1)
    return any(at in ends(context.parts, x, start) for start in starts)


def is_after(context, x, at):
    return any(end == len(x) or not context.is_anchored for end in ends(context.parts, x, at))


def ends(parts, x, start):
    """Return where a match of a sequence of symbol sets that starts at `start` may end."""
    if not parts:
        return {start}
    (symbols, starred), rest = parts[0], parts[1:]
    found = ends(rest, x, start) if starred else set()
    at = start
    while at < len(x) and x[at] in symbols:
        at += 1
        found |= ends(rest, x, at)
        if not starred:
            break
    return found
