"""Spanning trees (Zmigrod, Vieira, Cotterell, TACL 2021).

Reading order
-------------
- `structures`, `arcs` : trees as arrays of heads, the checked scores of a batch; `partial` :
  constraints and partial annotation.
- `kernels` : the compiled loops; the main ones are `kernels.matrix_tree` and `kernels.stable`.
- `solution` : log Z, marginals and their derivatives; `incremental` : updates of these after a
  change of scores.
- `moments`, `quadratic` : second-order quantities; `support` : trees that another family forbids.
- `base` : the common base of both families; `spanning`, `projective` : the families, with
  `sampling`, `distinct`, `kbest`.
- `undirected`, `sparse` : undirected and large graphs.
- `treebank`, `conllu`, `evaluation` : treebank files, score files and attachment scores.
"""
