"""Spanning trees (Zmigrod, Vieira, Cotterell, TACL 2021).

Reading order
-------------
- `kernels` : the compiled loops; the main ones are `kernels.matrix_tree` and `kernels.stable`.
- `structures`, `arcs` : trees as arrays of heads, the checked scores of a batch; `partial` :
  constraints and partial annotation.
- `solution` : log Z, marginals and their derivatives; `incremental` : updates of these after a
  change of scores.
- `moments`, `quadratic` : second-order quantities; `signs` : products with negative factors;
  `support` : trees that another family forbids.
- `sampling`, `distinct`, `kbest` : samples, distinct samples, the best trees.
- `base` : the common base of both families; `spanning`, `projective` : the families.
- `undirected`, `sparse` : undirected and large graphs.
- `conllu`, `treebank`, `evaluation` : CoNLL-U files, treebanks and score files, attachment scores.
"""
