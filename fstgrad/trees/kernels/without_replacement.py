"""Draws without replacement: the remaining trees are kept in parts without drawn trees.

A tree is a path of n choices, each a pair (head, label), from the last dependent to the first; with
a single root, the first choice is the root's dependent (`sampling.colbourn`).  A part is the set of
trees that share their first choices with a drawn tree, differ in the next choice, and are free in
the rest.  No probability of a part is computed as a difference of those of larger parts, so it
keeps its digits even if little probability is left.  Each drawn tree was drawn from a part of an
earlier tree, its owner.  The tree holds the parts that leave its path below the level where the
path left that of the owner: logs (n, options), -inf for options that are not its own.
The probabilities of heads come from an updated inverse if it keeps its digits, otherwise from
eliminations.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.trees.kernels.sampling import (
    contract,
    contract_inverse,
    head_probabilities,
    head_weights,
    inverse_of_laplacian,
    swap_heads,
    with_root_dependent,
)


class RemainingTrees(NamedTuple):
    """The distribution, and the parts that each drawn tree holds.

    w : (n+1, n+1) weights, or their logarithms if `is_log`.
    children : (n+1,) log-probabilities of the single root's dependent; empty without single root.
    label_logs : (n+1, n+1, y) log-probabilities of labels given arcs.
    choices : (k, n) the option chosen at each level, head * y + label.
    logs : (k, n, (n+1) * y) log-probabilities of the parts that each drawn tree holds.
    totals : (k,) log-probability of all parts of a drawn tree.
    branch : (k,) the level at which a drawn tree left its owner's path, -1 for the first tree.
    """

    w: FloatArray
    is_log: bool
    children: FloatArray
    label_logs: FloatArray
    choices: IntArray
    logs: FloatArray
    totals: FloatArray
    branch: IntArray


@part_kernel
def draw_by_logs(logs: FloatArray, rng: np.random.Generator) -> int:
    """Return an index drawn in proportion to exp(logs)."""
    top = logs.max()
    total = 0.0
    for x in logs:
        total += np.exp(x - top)
    target = rng.random() * total
    last = 0
    for i in range(len(logs)):
        if logs[i] > -np.inf:
            last = i
            target -= np.exp(logs[i] - top)
            if target < 0.0:
                break
    return last


@part_kernel
def log_sum(logs: FloatArray) -> float:
    """Return the logarithm of the sum of exp(logs)."""
    top = -np.inf
    for x in logs:
        top = max(top, x)
    if top == -np.inf:
        return top
    total = 0.0
    for x in logs:
        total += np.exp(x - top)
    return float(top + np.log(total))


@part_kernel
def write_option_logs(
    parts: RemainingTrees,
    column: FloatArray,
    names: IntArray,
    dependent: int,
    before: float,
    out: FloatArray,
) -> None:
    """Write log-probabilities of the options of a level, given those of the heads up to a constant.

    column : (n+1,) the logs of the heads.  names : the node that each head stands for.
    dependent : the node whose head is chosen, or 0 if the choice is the root's dependent.
    before : the log-probability of the choices before.
    """
    labels = parts.label_logs.shape[2]
    total = log_sum(column)
    for h in range(len(column)):
        for y in range(labels):
            if dependent > 0:
                label = parts.label_logs[names[h], dependent, y]
            else:
                label = parts.label_logs[0, names[h], y]
            out[h * labels + y] = before + (column[h] - total) + label


@part_kernel
def fill_path(
    parts: RemainingTrees, tree: int, level: int, given: int, rng: np.random.Generator
) -> bool:
    """Fill the path of a drawn tree and its parts below `level`; return whether pivots were safe.

    given : the number of choices that are already set; the others are drawn.
    """
    w, choices, logs = parts.w, parts.choices[tree], parts.logs[tree]
    n, labels = len(w) - 1, parts.label_logs.shape[2]
    single = len(parts.children) > 0
    column, names = empty(n + 1), np.arange(n + 1)
    holder = np.arange(n + 1)
    weights = w
    a = weights[:, 1:].copy()
    inverse = empty((n, n))
    is_updated = not (single or parts.is_log) and inverse_of_laplacian(weights, inverse)
    before = 0.0
    options = empty(logs.shape[1])
    for t in range(n):
        j = n - 1 - t
        if single and t == 0:
            write_option_logs(parts, parts.children, names, 0, before, options)
        else:
            good = False
            if is_updated:
                good, is_updated = head_probabilities(inverse, weights, holder, j, column)
            if not (good and is_updated) and not head_weights(
                a[: j + 2, : j + 1], weights, holder, j, parts.is_log, column
            ):
                return False
            if not parts.is_log:
                column = np.log(column)
            write_option_logs(parts, column, names, names[j + 1], before, options)
        if t > level:
            logs[t] = options
        if t >= given:
            choices[t] = draw_by_logs(options, rng)
        before = options[choices[t]]
        if t > level:
            logs[t, choices[t]] = -np.inf
        head = choices[t] // labels
        if single and t == 0:
            weights = with_root_dependent(w, head, parts.is_log)
            a = weights[:, 1:].copy()
            names[n], names[head] = head, n
            head = 0
            is_updated = not parts.is_log and inverse_of_laplacian(weights, inverse)
        is_updated = is_updated and contract_inverse(inverse, j, holder[head])
        contract(a, holder, j, head, parts.is_log)
    parts.totals[tree] = log_sum(logs.reshape(-1))
    return True


@part_kernel
def remove_part(parts: RemainingTrees, tree: int, level: int, option: int) -> None:
    """Remove a part from the tree that holds it."""
    parts.logs[tree, level, option] = -np.inf
    parts.totals[tree] = log_sum(parts.logs[tree].reshape(-1))


@part_kernel
def insert_tree(parts: RemainingTrees, tree: int, rng: np.random.Generator) -> bool:
    """Add tree number `tree`, whose choices are set; return whether all pivots were safe."""
    n = parts.choices.shape[1]
    level, owner = -1, -1
    for other in range(tree):
        same = 0
        while parts.choices[other, same] == parts.choices[tree, same]:
            same += 1
        if same > parts.branch[other] and same > level:
            level, owner = same, other
    parts.branch[tree] = level
    parts.logs[tree] = -np.inf
    if owner >= 0:
        remove_part(parts, owner, level, parts.choices[tree, level])
    return fill_path(parts, tree, level, n, rng)


@kernel
def draw_remaining(parts: RemainingTrees, known: int, rng: np.random.Generator) -> int:
    """Draw trees after the first `known` ones, whose choices are set.

    Return the number of trees: fewer than requested if no more are allowed, -1 if a pivot was
    unsafe.
    """
    width = parts.logs.shape[2]
    for tree in range(known):
        if not insert_tree(parts, tree, rng):
            return -1
    for tree in range(known, len(parts.choices)):
        parts.logs[tree] = -np.inf
        level, owner = -1, -1
        if tree > 0:
            if parts.totals[:tree].max() == -np.inf:
                return tree
            owner = draw_by_logs(parts.totals[:tree], rng)
            place = draw_by_logs(parts.logs[owner].reshape(-1), rng)
            level = place // width
            copy_to(parts.choices[tree], parts.choices[owner, :level])
            parts.choices[tree, level] = place % width
            remove_part(parts, owner, level, place % width)
        parts.branch[tree] = level
        if not fill_path(parts, tree, level, level + 1, rng):
            return -1
    return len(parts.choices)


@kernel
def to_choices(heads: IntArray, labels: IntArray, count: int, single: bool, out: IntArray) -> None:
    """Write the choices (k, n) of trees (k, n) with labels (k, n); `count` : number of labels."""
    n = heads.shape[1]
    tree = empty(n, dtype=np.int64)
    label = empty(n, dtype=np.int64)
    for i in range(len(heads)):
        copy_to(tree, heads[i])
        copy_to(label, labels[i])
        if single:
            child = int(np.argmin(tree)) + 1
            swap_heads(tree, child, n)
            label[child - 1], label[n - 1] = label[n - 1], label[child - 1]
        for j in range(n):
            out[i, n - 1 - j] = tree[j] * count + label[j]
        if single:
            out[i, 0] = child * count + label[n - 1]


@kernel
def from_choices(
    choices: IntArray, count: int, single: bool, heads: IntArray, labels: IntArray
) -> None:
    """Write the trees (k, n) and labels (k, n) of choices (k, n); `count` : number of labels."""
    n = choices.shape[1]
    for i in range(len(choices)):
        for j in range(n):
            heads[i, j] = choices[i, n - 1 - j] // count
            labels[i, j] = choices[i, n - 1 - j] % count
        if single:
            child = heads[i, n - 1]
            heads[i, n - 1] = 0
            swap_heads(heads[i], child, n)
            labels[i, child - 1], labels[i, n - 1] = labels[i, n - 1], labels[i, child - 1]
