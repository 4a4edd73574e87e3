"""Generalized root models of counts (Inouye, Ravikumar and Dhillon, arXiv 1606.00813).

Reading order
-------------
- `measures`, `log_moments` : piecewise-linear bounds of A(eta).
- `kernels` : the compiled loops.
- `base` : what a univariate family is; `count_tables`, `families` : the families.
- `blocks`, `design` : the columns that all nodes share; `covariates` : shifts of rows.
- `parameters`, `normalization` : a model; whether it can be normalized.
- `active_set`, `feature_sign`, `newton` : the active parameters of a fit; the minimum of a
  quadratic model; proximal Newton steps.
- `reference` : the node regression of the paper in NumPy, the definition of what a fit computes.
- `regression`, `joint` : the fit of one node, and of all nodes with tied parameters.
- `preparation`, `problem` : checked data; the problems of a fit.
- `checkpoint`, `fitting` : node fits in files; all nodes in threads, combined into one model.
- `sampling`, `calibration`, `conditionals`, `partition` : Gibbs sampling, and what is computed
  from a model.
- `report`, `selection` : strongest sets and goodness of fit; the choice of alpha.
- `matlab`, `files`, `storage` : tables of counts in files; models in files.
- `model` : the estimator.
"""
