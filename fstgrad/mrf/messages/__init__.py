"""Message passing: belief propagation, tree-reweighted and max-product, on grids and graphs."""
