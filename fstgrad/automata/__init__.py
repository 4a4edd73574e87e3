"""From a transducer and a target to the loss automaton B.

Reading order
-------------
- `semiring`, `machine` : the two semirings; M, the acceptor of the loss against one target.
- `composition`, `reduction`, `equivalence` : compose U o Y on arrays; sort or remove epsilon arcs;
  merge states with equal futures.
- `determinize`, `minimize` : build B level by level; merge its states from the last level back.
- `automaton`, `layout` : B as read-only arrays; its arcs in the order of the compiled passes.
- `bounds`, `band`, `evaluation` : caps and their bounds; alignments in a band; M run along given
  hypotheses.
- `product`, `collapse` : sums of two losses; losses of latent strings.
- `kernels`, `few` : the compiled loops; the same loops in Python until they are compiled.
"""
