"""Message passing: belief propagation, tree-reweighted and max-product, on grids and graphs.

Reading order
-------------
- `tree_weights` : spanning trees that cover a graph, and their upper bound on log Z.
- `arcs`, `grid`, `linear`, `tree_reweighted` : the updates: log messages; grids; linear messages on
  any graph; tree-reweighted messages.
- `propagation` : belief propagation, which chooses among these.
- `linear_response` : the derivative of its pseudo-marginals.
"""
