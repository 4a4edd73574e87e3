"""Spanning trees (Zmigrod, Vieira, Cotterell, TACL 2021).

Reading order
-------------
- `structures`, `arcs` : trees as arrays of heads, the checked scores of a batch; `partial` :
  constraints and partial annotation.
- `kernels` : the compiled loops; `kernels.matrix_tree` and `kernels.stable` are the heart.
- `solution` : log Z, marginals and their derivatives; `incremental` : after a change.
- `moments`, `quadratic` : second-order quantities; `support` : trees that another family forbids.
- `base` : what spanning and projective trees share; `spanning`, `projective` : the families, with
  `sampling`, `distinct`, `kbest`.
- `undirected`, `sparse` : undirected and large graphs.
- `treebank`, `conllu`, `evaluation` : files and scores of parsers.
"""
