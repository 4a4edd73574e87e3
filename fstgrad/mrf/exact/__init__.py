"""Exact inference: one forward and one backward pass over a forest, or elimination.

Reading order
-------------
- `forest` : two sweeps of messages over a forest.
- `plan`, `bucket_tree`, `elimination` : orders and cliques; a bucket tree connected to the arrays
  of a model; its sweeps.
- `engine` : the choice between the two.
"""
