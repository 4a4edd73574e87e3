"""Training: templates of features, log-linear sequence models, and their optimization.

Reading order
-------------
- `kernels` : the compiled loops.
- `templates`, `vocabulary` : the features that are active at a position; their names and numbers.
- `features`, `template_features`, `emissions` : linear maps from weights to scores.
- `kinds`, `pair_gradient`, `objective`, `sums` : the objective of one pair, of pairs, and its sums.
- `bigram_chunks`, `batch` : many pairs in one loop; one objective over many pairs.
- `optimizers`, `trainer`, `recipes` : the steps, the epochs, and the default settings.
- `data`, `align`, `latent`, `lengths` : the data of a fit; alignments; latent outputs; lengths.
- `measures`, `comparison`, `curves` : error rates, two models compared, learning curves.
- `predictions`, `estimator`, `storage` : outputs of many inputs; settings by name; files.
- `sequence` : `SequenceModel`.
- `shards`, `shard_training` : sums over a corpus of many files, and training on them.
"""
