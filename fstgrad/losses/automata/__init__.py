"""From a transducer and a target to the loss automaton B.

Reading order
-------------
- `semiring`, `pairs` : the two semirings; inputs of the kernels over pairs of strings.
- `kernels` : the compiled loops.
- `machine` : M, the acceptor of the loss against one target.
- `composition`, `equivalence`, `reduction` : compose U o Y on arrays; merge states with equal
  futures; sort or remove epsilon arcs.
- `layout`, `automaton` : the arcs in the order of the compiled passes; B as read-only arrays.
- `determinize`, `minimize` : build B level by level; merge its states from the last level back.
- `bounds`, `band`, `evaluation` : caps and their bounds; alignments in a band; M run along given
  hypotheses.
- `product`, `collapse` : sums of two losses; losses of latent strings.
"""
