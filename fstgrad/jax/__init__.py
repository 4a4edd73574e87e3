"""Objectives of fstgrad as JAX functions, on the CPU, under jit, grad and vmap.

Each returns one value for each item of a batch, in nats and in the dtype of the scores (half
precision: float32); take the mean or the sum as you like.  The passes are those of the arrays API,
reached by `jax.pure_callback`; the gradients are exact, and there are no second derivatives.

Index
-----
- strings : `softmax_margin`, `risk`, `crf_nll`.
- chains : `linear_chain_nll`.
- n-best lists : `nbest_risk`.
- trees : `spanning_tree_nll`.
- Markov random fields : `mrf_nll`.
"""

from fstgrad.jax.chains import linear_chain_nll
from fstgrad.jax.strings import crf_nll, nbest_risk, risk, softmax_margin
from fstgrad.jax.structures import mrf_nll, spanning_tree_nll

__all__ = [
    "crf_nll",
    "linear_chain_nll",
    "mrf_nll",
    "nbest_risk",
    "risk",
    "softmax_margin",
    "spanning_tree_nll",
]
