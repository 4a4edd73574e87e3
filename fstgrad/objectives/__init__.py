"""Objectives of a batch of NumPy arrays, which the PyTorch and JAX operators evaluate.

Reading order
-------------
- `threads`, `base` : the items of a batch in threads; the contract: values, exact gradients, and
  Hessian products if available.
- `sampling` : settings of sampled objectives, and the accuracy of the estimates.
- `strings`, `alignments`, `lists`, `lattices`, `fields`, `trees` : the objectives.
- `predictions` : padded tables and minimum-risk predictions, shared by the frameworks.
"""
