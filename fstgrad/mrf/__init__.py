"""Markov random fields (McAllester, TTIC 31230, exponential softmax on graphs).

Reading order; each item imports only from the items before it:

- `graph`, `table`, `scored_graph` : the data; `result`, `method` : types of results and methods.
- `exact/`, `messages/`, `mean_field`, `mini_buckets`, `sampling/`, `block_field`, `sequential`,
  `graph_cut` : the algorithms.
- `methods`, `decode`, `losses` : tables of the algorithms, by name.
- `model` : `PairwiseMRF`, the facade; `batch`, `factors`, `images`, `uai` : ways to make models.
"""
