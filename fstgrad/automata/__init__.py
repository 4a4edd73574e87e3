"""From a transducer and a target to the loss automaton B.

Reading order
-------------
- `semiring`, `machine` : weights, and M, the loss against one target as rows of weights.
- `composition`, `reduction`, `equivalence` : U o Y on arrays; epsilons ordered or removed; states
  with the same future merged.
- `determinize`, `minimize` : B level by level, then from the last level back.
- `automaton`, `layout` : B as frozen arrays, and its arcs in the order in which the passes walk.
- `bounds`, `evaluation` : capped losses between bounds; M run along given hypotheses.
- `kernels`, `few` : the compiled loops, and the same in Python while they are not compiled.
"""
