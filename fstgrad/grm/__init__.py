"""Generalized root models of counts (Inouye, Ravikumar and Dhillon, arXiv 1606.00813).

Reading order
-------------
- `measures`, `bounds` : piecewise-linear bounds of A(eta).
- `base` : what a univariate family is; `tables`, `dispersion`, `count_families`,
  `finite_families`, `continuous`, `families` : the families.
- `design` : the shared columns; `newton` : proximal Newton steps; `regression`, `joint` : one node,
  all nodes with tied parameters; `fitting`, `problem` : threads, checkpoints, the data of a fit.
- `parameters` : a model; `conditionals`, `normalization`, `sampling`, `partition`, `report` : what
  is computed from it.
- `model` : the estimator, with `inference`, `selection`, `preparation`, `storage`, `progress`;
  `files` : tables.
- `kernels` : the compiled loops.
"""
