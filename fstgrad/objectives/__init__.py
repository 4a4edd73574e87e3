"""Objectives of a batch on arrays: what the operators of PyTorch and JAX evaluate.

Reading order
-------------
- `base` : the contract: values with their exact gradients, Hessian products where there are any.
- `threads` : the items of a batch in threads.
- `sampling` : how objectives are estimated where they are not exact, and what is known of it.
- `strings`, `alignments`, `lists`, `lattices`, `fields`, `trees` : the objectives.
"""
