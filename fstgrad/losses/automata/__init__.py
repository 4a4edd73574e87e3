"""From a transducer and a target to the loss automaton B.

Reading order
-------------
- `semiring` : the two semirings.
- `kernels` : the compiled loops, and the named tuples that they read.
- `machine` : M, the acceptor of the loss against one target.
- `composition`, `equivalence`, `reduction` : compose U o Y on arrays; merge states with equal
  futures; sort or remove epsilon arcs.
- `layout`, `automaton` : the arcs in the order of the compiled passes; B as read-only arrays.
- `determinize` : build B level by level, and minimize it.
- `caps`, `band`, `pruning`, `target_loss` : caps and their bounds; alignments in a band; M without
  the paths above a threshold; M run along given hypotheses.
- `product`, `collapse` : sums of two losses; losses of latent strings.
"""
