"""Generalized root models of counts (Inouye, Ravikumar and Dhillon, arXiv 1606.00813).

Reading order
-------------
- `bases` : the univariate families and A(eta); `bounds`, `measures` : its piecewise-linear bounds.
- `design`, `regression`, `fitting` : the shared columns, one node, all nodes and their union.
- `parameters` : a model; `conditionals`, `normalization`, `sampling`, `partition` : its answers.
- `model` : the estimator, with `inference`, `preparation`, `storage`, `progress`; `files` : tables.
- `kernels` : the compiled loops.
"""
