"""Message passing: belief propagation, tree-reweighted and max-product, on grids and graphs.

Reading order
-------------
- `tree_cover` : spanning trees that cover a graph, and their upper bound on log Z.
- `log_domain`, `grid`, `linear_domain`, `tree_reweighted` : the updates: log messages; grids;
  linear messages on any graph; tree-reweighted messages.
- `belief_propagation` : chooses among these.
- `linear_response` : the derivative of its pseudo-marginals.
"""
