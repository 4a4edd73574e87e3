"""Generalized root models of counts (Inouye, Ravikumar and Dhillon, arXiv 1606.00813).

Reading order
-------------
- `measures`, `bounds` : piecewise-linear bounds of A(eta).
- `kernels` : the compiled loops.
- `base` : what a univariate family is; `count_tables`, `families` : the families.
- `blocks`, `design` : the columns that all nodes share; `covariates` : shifts of rows.
- `parameters`, `normalization` : a model; whether it can be normalized.
- `active_set`, `feature_sign`, `newton` : the active parameters of a fit; the minimum of a
  quadratic model; proximal Newton steps.
- `regression`, `joint` : the fit of one node, and of all nodes with tied parameters.
- `preparation`, `fitting`, `problem`, `progress` : checked data; threads and checkpoints; the data
  and problems of a fit; the progress bar.
- `sampling`, `calibration`, `conditionals`, `partition` : Gibbs sampling, and what is computed
  from a model.
- `report`, `scoring`, `inference` : goodness of fit; scores of rows; the methods of a fitted model.
- `matlab`, `files`, `storage` : tables of counts in files; models in files.
- `selection`, `model` : the choice of alpha; the estimator.
"""
