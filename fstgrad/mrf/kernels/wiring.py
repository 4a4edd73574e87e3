"""Kernel that wires a bucket tree to the score tables of a model."""

from fstgrad.core.compiler import kernel
from fstgrad.mrf.arrays import Buckets, Inputs, Scopes


@kernel
def wire(tree: Buckets, tables: Scopes, inputs: Inputs) -> None:
    """Fill the arrays of `inputs`: for each bucket its score tables first, then its children.

    step[first_step[j] + a] is how far input j moves in memory for one step along axis a of its
    bucket, 0 if the input does not depend on that axis.  slowest[j] is the first axis that input j
    depends on; the last axis if there is none.
    """
    first_axis, cliques, sizes, parent, first_input = tree
    first_node, scope, stride, bucket_of = tables
    child, slowest, first_step, step, number = inputs
    buckets = len(parent)
    used = first_input[:-1].copy()
    for t in range(len(bucket_of)):
        j = used[bucket_of[t]]
        used[bucket_of[t]] += 1
        child[j], number[j] = -1, t
    for k in range(buckets):
        if parent[k] >= 0:
            j = used[parent[k]]
            used[parent[k]] += 1
            child[j], number[j] = k, -1
    at = 0
    for k in range(buckets):
        for j in range(first_input[k], first_input[k + 1]):
            first_step[j] = at
            low, high = first_axis[k], first_axis[k + 1]
            step[at : at + high - low] = 0
            if child[j] < 0:
                for slot in range(first_node[number[j]], first_node[number[j] + 1]):
                    for axis in range(low, high):
                        if cliques[axis] == scope[slot]:
                            step[at + axis - low] = stride[slot]
            else:
                width = 1
                for own in range(first_axis[child[j] + 1] - 2, first_axis[child[j]] - 1, -1):
                    for axis in range(low, high):
                        if cliques[axis] == cliques[own]:
                            step[at + axis - low] = width
                    width *= sizes[cliques[own]]
            slowest[j] = high - low - 1
            for axis in range(high - low - 1, -1, -1):
                if step[at + axis] != 0:
                    slowest[j] = axis
            at += high - low
