"""Markov random fields (McAllester, TTIC 31230, exponential softmax on graphs).

Reading order, each only importing what comes before it:

- `graph`, `table`, `scored_graph` : the data; `result`, `method` : what methods return and are.
- `exact/`, `messages/`, `mean_field`, `mini_buckets`, `sampling/`, `block_field`, `sequential`,
  `graph_cut` : the algorithms.
- `methods`, `decode`, `losses` : tables of them, by name.
- `model` : `PairwiseMRF`, the facade; `batch`, `factors`, `images`, `uai` : ways to make models.
"""
