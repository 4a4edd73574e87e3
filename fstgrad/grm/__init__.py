"""Generalized root models of counts (Inouye, Ravikumar and Dhillon, arXiv 1606.00813).

Reading order
-------------
- `measures`, `bounds` : piecewise-linear bounds of A(eta).
- `base` : what a univariate family is; `tables`, `dispersion`, `count_families`, `continuous`,
  `families` : the families.
- `design`, `regression`, `fitting` : the shared columns, one node, all nodes and their union.
- `parameters` : a model; `conditionals`, `normalization`, `sampling`, `partition` : its answers.
- `model` : the estimator, with `inference`, `preparation`, `storage`, `progress`; `files` : tables.
- `kernels` : the compiled loops.
"""
