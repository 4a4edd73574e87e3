"""Training: templates of features, log-linear sequence models, and their optimization.

Reading order
-------------
- `kernels` : the compiled loops.
- `templates`, `vocabulary` : the features that are active at a position; their names and numbers.
- `features`, `template_features` : linear maps from weights to scores.
- `objective`, `outcomes` : the objective of a pair; the results of pairs, and their sums.
- `bigram_chunks`, `batch` : many pairs in one loop; one objective over many pairs.
- `trainer`, `recipes` : optimizers and epochs; the default settings.
- `data`, `align`, `outputs` : the data of a fit; alignments; lengths of outputs, latent outputs.
- `edits`, `measures`, `comparison` : alignments of many pairs; error rates; two systems compared.
- `word_rules`, `alternatives` : words that are replaced or left out, or stand for each other.
- `score` : `fg.score`.
- `storage` : files of models, and learning curves.
- `sequence` : `SequenceModel`.
- `shards`, `shard_training` : sums over a corpus of many files, and training on them.
"""
