"""Objectives of a batch of NumPy arrays, which the PyTorch and JAX operators evaluate.

Reading order
-------------
- `base` : the contract (values, exact gradients, and Hessian products if available), and the
  threads that share the items of a batch.
- `infeasible` : an objective that names all infeasible items, or counts them as zero.
- `sampling` : settings of sampled objectives, and the accuracy of the estimates.
- `predictions` : padded tables and minimum-risk predictions, shared by the frameworks.
- `strings`, `ctc`, `nbest`, `lattices`, `mrf`, `trees` : the objectives.
"""
