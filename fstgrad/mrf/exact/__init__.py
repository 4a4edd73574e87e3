"""Exact inference: one forward and one backward pass over a forest, or elimination.

Reading order
-------------
- `forest` : two sweeps of messages over a forest.
- `plan`, `wiring`, `elimination` : orders and cliques; a bucket tree wired to a model; its sweeps.
- `engine` : the choice between the two.
"""
