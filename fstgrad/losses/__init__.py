"""Losses: a transducer between hypotheses and targets, with weights in a semiring.

A loss is computed from U(y, y_i), the sum over the paths of a transducer that read the hypothesis y
and write the target y_i.  In the tropical semiring the loss is the cost of the cheapest path (edit
distances, alignments).  In the probability semiring U is a count or kernel value u, and the loss is
-log(u + smoothing) or -u.

Index
-----
- `Loss` : the interface of all losses; `a + b` (`SumLoss`) and `2 * a` (`ScaledLoss`) are losses.
- `TransducerLoss` : the loss of any transducer, from memory or from a file.
- `EditDistance`, `Hamming`, `OptimalStringAlignment`, `LongestCommonSubsequence` : symbols
  inserted, deleted, substituted, transposed.
- `WordErrorRate`, `CharacterErrorRate` : edit distance per target symbol; `Normalized` : any loss
  per target symbol.
- `RuleLoss` : the loss of a grammar of rules, a text that runs no code.
- `SmithWaterman`, `GlobalAlignment`, `SubstitutionMatrix` : alignments with affine gaps.
- `NGram`, `NGramSum`, `GappyNGram`, `MismatchNGram` : kernels of n-grams.
- `FunctionLoss` : a function of Python, for samples, n-best lists and lattices of few paths.
- `CollapsedLoss`, `NoLoss`, `ExactMatch` : losses of latent strings, with blanks, ends or runs.
- `SpanHamming` : spans of tags (entities, chunks) that are missed or wrong.
- `LossReport` : the result of `loss.check(samples)`.

Reading order
-------------
- `transducers` : builders of U.
- `automata` : from U and a target to B; the evaluation of single strings.
- `reference` : the algorithms of Cortes et al. in OpenFst operations, line by line.
- `matrices`, `pairwise`, `edit_operations`, `evaluation` : substitution matrices; many pairs by
  dynamic programs; edit operations; the methods that need no compilation.
- `report` : the properties of a loss on samples.
- `base` : `Loss`, sums and multiples.
- `transducer` : the losses of any transducer and of a grammar.
- `edit`, `alignment`, `ngram`, `exact_match`, `function`, `collapse`, `spans` : the other losses.
- `names` : the losses of `SequenceModel(loss="...")` and `--loss` by name.
- `cache` : compiled losses in memory and on disk.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
