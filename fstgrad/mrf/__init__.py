"""Markov random fields (McAllester, TTIC 31230, exponential softmax on graphs).

Reading order
-------------
- `arrays`, `kernels` : models as named tuples of arrays; the compiled loops.
- `graph`, `table`, `scored_graph`, `factors` : the data of a model.
- `result`, `method` : types of results, and methods with their options.
- `budget`, `threads`, `keys` : a time limit; tasks in threads; keys of random numbers.
- `exact`, `clamping`, `kbest` : exact inference, labels given, the k best labelings.
- `sampling`, `block_field`, `mini_buckets` : Markov chains; structured mean field; upper bounds.
- `sequential`, `masks` : a labeling with a certified gap; finite masks as hard zeros.
- `mean_field`, `messages` : naive mean field; belief propagation.
- `parts`, `bounds` : bounds on one part of Z, and certified bounds on log Z.
- `graph_cut`, `expansion` : the best labelings by minimum cuts.
- `methods`, `decode`, `losses` : tables of the algorithms, by name.
- `model` : `PairwiseMRF`, the facade.
- `batch`, `images`, `uai`, `estimator` : batches on one graph, images, files, scikit-learn.
- `dense` : mean field of a dense random field, which imports none of the others.
"""
