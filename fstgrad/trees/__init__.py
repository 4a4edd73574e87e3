"""Spanning trees (Zmigrod, Vieira, Cotterell, TACL 2021).

Reading order
-------------
- `kernels` : the compiled loops; the main ones are `kernels.matrix_tree` and `kernels.stable`.
- `reference` : the formulas of the paper in NumPy, which tests compare with what runs.
- `structures` : trees as arrays of heads, and which trees are allowed; `arcs` : the checked scores
  of a batch; `constraints` : hard constraints and partial annotation.
- `solution` : log Z, marginals and their derivatives, and their updates if scores change;
  `arc_covariances` : covariances of arcs (T2), and products with negative factors; `second_order` :
  covariances of totals, by products of matrices (T2^v) or by rows of covariances (T2^h).
- `sampling`, `decoding` : samples, with and without replacement; the best trees.
- `distribution` : the common base of both families; `spanning`, `projective` : the families.
- `undirected`, `sparse` : undirected and large graphs.
- `treebank`, `evaluation` : CoNLL-U treebanks and score files, attachment scores.
"""
