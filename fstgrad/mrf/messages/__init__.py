"""Message passing: belief propagation, tree-reweighted and max-product, on grids and graphs.

Reading order
-------------
- `tree_weights` : spanning trees that cover a graph, and their upper bound on log Z.
- `arcs`, `grid`, `weights`, `powers` : the updates: log messages, grids, any graph, powers.
- `propagation` : belief propagation, which chooses among these.
- `linear_response` : the derivative of its pseudo-marginals.
"""
