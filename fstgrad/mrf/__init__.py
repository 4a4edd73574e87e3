"""Markov random fields (McAllester, TTIC 31230, exponential softmax on graphs).

Reading order
-------------
- `reference` : the formulas of the slides in NumPy, which define what the rest computes.
- `arrays`, `kernels` : models as named tuples of arrays; the compiled loops.
- `graph`, `scored_graph`, `factors` : the data of a model, and tables like its scores.
- `resources`, `result` : limits of time and threads; types of results.
- `exact`, `clamping` : exact inference; labels given.
- `sampling`, `mini_buckets` : Markov chains; upper bounds.
- `trw_s`, `hard_zeros` : a labeling with a certified gap; finite masks replaced by hard zeros.
- `mean_field`, `messages` : mean field, naive and structured; belief propagation.
- `bounds` : certified bounds on log Z.
- `inference`, `graph_cuts`, `decoding`, `objectives` : the algorithms by name: marginals and log Z;
  the best labelings, some by minimum cuts; training losses.
- `distribution` : `PairwiseMRF`, the facade.
- `batch`, `images`, `uai`, `estimator` : batches on one graph, images, files, scikit-learn.
- `dense` : mean field of a dense random field, which imports none of the others.
"""
