"""Distributions over strings: log Z, gradient terms, samples, best strings, objectives.

Reading order
-------------
- `lattices` : distributions over the paths of a lattice, and losses along them.
- `kernels`, `solve` : the compiled passes; log Z and Q by them.
- `algebra`, `paths`, `passes` : semirings with derivatives; factors of a path; the passes in NumPy.
- `tangents`, `search` : directional derivatives of log Z and Q; samples and k best strings.
- `distribution` : `StringDistribution`.
- `objectives`, `consensus`, `cap_choice` : objectives of training; minimum Bayes risk; the choice
  of a cap.
- `budget`, `markov_chain`, `proposals`, `sampled` : sampled objectives with valid intervals.
- `bigrams`, `batches` : scores that are sums; many strings in one call.
- `linear_chain`, `packed_chains` : batches of chains without a loss.
- `ctc` : batches of paths with blanks that collapse to their gold strings.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
